"""Only an explicit yes is a yes: what an `approve` may return, also as a coroutine, and what its answer does."""

import asyncio
import gc
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from metier import PolicyDenied, Request
from metier.policy.asking import Answer
from metier.record.store.memory import MemoryStore
from metier.replay import from_store, replay
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.session.session import Session
from patience import PATIENCE
from worlds import World

SCRIPT = ("one", "scripts/x.sh")
ANSWERS: list[tuple[object, Answer]] = [
    (True, "once"),
    ("once", "once"),
    ("always", "always"),
    ("remember", "always"),
    (False, "no"),
    (None, "no"),
    ("no", "no"),
    ("declined", "declined"),
    ("cancelled", "cancelled"),
    ("unanswered", "unanswered"),
]
NEITHER: list[object] = [
    1,
    0,
    1.0,
    "",
    "yes",
    "nobody",
    "Once",
    [],
    ["once"],
    object(),
    {"answer": "no"},
    lambda: False,
]


class Trial:
    """A session whose script asks first."""

    def __init__(self, world: World, approve: Any) -> None:
        world.skill(".agents/skills/one", files={"scripts/x.sh": "#!/bin/sh\necho 1\n"})
        self.runner = FakeRunner(default=Outcome(0, "exit", 1))
        self.store = MemoryStore()
        self.session: Session = world.discover().session(store=self.store, approve=approve, runner=self.runner)

    @property
    def ran(self) -> bool:
        return bool(self.runner.jobs)

    @property
    def recorded(self) -> list[str]:
        return [frame["answer"] for frame in self.session.events if frame["type"] == "policy_asked"]


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize(("answer", "meaning"), ANSWERS)
def test_each_answer_means_one_thing_and_is_recorded_as_that(
    world: World, answer: Any, meaning: Answer, awaited: bool
) -> None:
    trial = Trial(world, coroutine_function(answer) if awaited else lambda _: answer)
    denied = meaning not in ("once", "always")
    with pytest.raises(PolicyDenied, match="skill_run") if denied else nullcontext():
        asyncio.run(trial.session.arun(*SCRIPT)) if awaited else trial.session.run(*SCRIPT)
    failed = [frame["reason"] for frame in trial.session.events if frame["type"] == "tool_failed"]
    assert (trial.ran, trial.recorded, failed) == (not denied, [meaning], ["PolicyDenied"] if denied else [])
    assert replay(from_store(trial.store, trial.session.id)).identical


@pytest.mark.parametrize("answer", NEITHER, ids=lambda one: type(one).__name__)
def test_anything_else_is_an_error_and_nothing_runs(world: World, answer: Any) -> None:
    trial = Trial(world, lambda _: answer)
    with pytest.raises(TypeError, match='return True, "once" or "always"'):
        trial.session.run(*SCRIPT)
    assert (trial.ran, trial.recorded) == (False, [])


def coroutine_function(answer: object) -> Callable[[Request], Any]:
    async def approve(_: Request) -> object:
        await asyncio.sleep(0)
        return answer

    return approve


@pytest.mark.parametrize("answer", [True, False])
def test_a_coroutine_in_a_call_that_cannot_await_it_is_closed_and_nothing_runs(world: World, answer: bool) -> None:
    trial = Trial(world, coroutine_function(answer))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a coroutine that is never awaited warns
        with pytest.raises(TypeError, match="approve is asynchronous"):
            trial.session.run(*SCRIPT)
        gc.collect()
    assert (trial.ran, trial.recorded) == (False, [])


def test_a_coroutine_is_awaited_in_the_loop_of_the_caller(world: World) -> None:
    loops: list[object] = []

    async def approve(_: Request) -> bool:
        loops.append(asyncio.get_running_loop())
        return True

    trial = Trial(world, approve)

    async def main() -> None:
        await trial.session.arun(*SCRIPT)
        assert loops == [asyncio.get_running_loop()]

    asyncio.run(main())
    assert trial.ran


def test_a_plain_call_inside_an_asynchronous_approve_does_not_wait_for_itself(world: World) -> None:
    async def approve(request: Request) -> bool:
        if request.tool == "skill_run" and request.arguments:
            trial.session.run(*SCRIPT)  # blocks the loop, so its own question cannot be awaited
        return True

    trial = Trial(world, approve)
    with pytest.raises(TypeError, match="approve is asynchronous"):
        asyncio.run(trial.session.arun(*SCRIPT, ["deep"]))
    assert not trial.ran


def test_a_cancelled_call_takes_its_question_back(world: World) -> None:
    async def main() -> None:
        asked, taken_back = asyncio.Event(), asyncio.Event()

        async def approve(_: Request) -> bool:
            asked.set()
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                taken_back.set()
                raise
            return True

        trial = Trial(world, approve)
        running = asyncio.create_task(trial.session.arun(*SCRIPT))
        await asyncio.wait_for(asked.wait(), PATIENCE)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.wait_for(taken_back.wait(), PATIENCE)
        assert not trial.ran

    asyncio.run(main())
