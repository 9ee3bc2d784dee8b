"""Stopped work and cancelled tasks end their scripts, with a runner and the wrapper of the package."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from metier.running.sandbox import ScriptRefused, stopped_by
from metier.running.sandbox.runners import BoundedRunner
from metier.running.sandbox.unsandboxed import UnsandboxedRunner
from worlds import World

pytestmark = pytest.mark.system

FILES = {"scripts/say.sh": "#!/bin/sh\nexit 3\n", "scripts/slow.sh": "#!/bin/sh\necho begun\nexec sleep 60\n"}


def test_stopped_work_and_a_cancelled_task_end_their_script(world: World) -> None:
    world.skill(".agents/skills/probe", files=FILES)
    stop, began = threading.Event(), time.monotonic()
    runner = BoundedRunner(UnsandboxedRunner(), 1)
    session = world.discover().session(runner=runner, policy={"allow": [{"tool": "skill_run"}]})

    def run() -> str:
        with stopped_by(stop), pytest.raises(ScriptRefused) as refused:
            session.run("probe", "scripts/slow.sh")
        return refused.value.reason

    with ThreadPoolExecutor(1) as pool:
        reason = pool.submit(run)
        stop.set()
        assert reason.result() == "stopped"
    assert session.run("probe", "scripts/say.sh").exit_code == 3, "the slot is free again"

    def types() -> list[str]:
        return [frame["type"] for frame in session.events]

    async def cancelled() -> None:
        task, before = asyncio.create_task(session.arun("probe", "scripts/slow.sh")), types().count("tool_started")
        while types().count("tool_started") == before:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    (failed,) = (frame for frame in session.events[-3:] if frame["type"] == "tool_failed")
    assert failed["reason"] == "stopped"
    assert time.monotonic() - began < 30, "each script would have slept for a minute"
