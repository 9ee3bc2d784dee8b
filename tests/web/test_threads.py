"""Work in threads: every result reaches the caller that waits for it, on whichever event loop."""

import asyncio
import contextvars
import os
import subprocess
import sys
import threading

import pytest

from metier.web import threads
from metier.web.threads import run_in_threadpool

SECONDS = 60


def test_results_and_errors_reach_their_callers_with_their_context() -> None:
    asked = contextvars.ContextVar[int]("asked")

    def answer(more: int, *, name: str) -> tuple[int, str, bool]:
        if more % 7 == 3:
            raise LookupError(name)
        return asked.get() + more, name, threading.current_thread() is threading.main_thread()

    async def ask(number: int) -> object:
        asked.set(1_000)
        try:
            return await run_in_threadpool(answer, number, name=f"call {number}")
        except LookupError as error:
            return error.args

    async def everything() -> list[object]:
        async with asyncio.timeout(SECONDS):
            return await asyncio.gather(*(ask(number) for number in range(500)))

    for _ in range(2):  # a second loop uses the same threads
        found = asyncio.run(everything())
        assert found == [
            (f"call {number}",) if number % 7 == 3 else (1_000 + number, f"call {number}", False)
            for number in range(500)
        ]


def test_more_calls_than_threads_wait_for_their_turn_and_a_stopped_one_disturbs_nobody() -> None:
    pool, free, begun = threads.Threads(3), threading.Event(), threading.Semaphore(0)

    def wait() -> int:
        begun.release()
        assert free.wait(SECONDS)
        return threading.get_ident()

    async def everything() -> list[int | BaseException]:
        async with asyncio.timeout(SECONDS):
            waiting = [asyncio.ensure_future(pool.submit(wait)) for _ in range(20)]
            for _ in range(3):
                while not begun.acquire(blocking=False):
                    await asyncio.sleep(0.001)
            assert not begun.acquire(blocking=False)  # the others wait
            waiting[0].cancel()
            waiting[19].cancel()
            free.set()
            return await asyncio.gather(*waiting, return_exceptions=True)

    found = asyncio.run(everything())
    assert [isinstance(one, asyncio.CancelledError) for one in found] == [True, *[False] * 18, True]
    assert len({one for one in found if isinstance(one, int)}) <= 3


def test_what_ends_after_its_loop_and_what_stops_an_iteration_leave_the_threads_working() -> None:
    pool, free, began = threads.Threads(1), threading.Event(), threading.Event()

    def late() -> None:
        began.set()
        assert free.wait(SECONDS)

    def stops() -> None:
        raise StopIteration

    async def begin() -> None:
        pool.submit(late)
        while not began.is_set():
            await asyncio.sleep(0.001)

    async def after() -> int:
        async with asyncio.timeout(SECONDS):
            with pytest.raises(RuntimeError, match="StopIteration"):
                await pool.submit(stops)
            return await pool.submit(lambda: 3)

    asyncio.run(begin())
    free.set()
    assert asyncio.run(after()) == 3


FORKED = """
import asyncio, os
from metier.web.threads import run_in_threadpool

async def ask():
    async with asyncio.timeout(60):
        return await run_in_threadpool(os.getpid)

async def many():
    return await asyncio.gather(*(ask() for _ in range(20)))

asyncio.run(many())
child = os.fork()
if not child:
    os._exit(0 if asyncio.run(ask()) == os.getpid() else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_has_threads_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
