"""An operation is checked before it is asked, recorded or performed: what cannot be recorded is refused by field."""

from collections.abc import Callable
from typing import Any

import pytest

from metier import limits
from metier.errors import BadArguments
from metier.record.store import canonical
from metier.record.store.memory import MemoryStore
from metier.replay import from_store, replay
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.session.operation import Operation, parameters, schema_of
from metier.session.operations import OPERATIONS, Call
from metier.session.session import Session
from worlds import World

GOOD = {"string": "notes", "integer": 1, "boolean": True, "array": ["x"]}
FREE = {
    *(("load", "arguments"), ("search", "query"), ("search", "context"), ("run", "stdin"), ("output", "grep")),
    *(("invoke", "message"), ("prompt", "message"), ("system_prompt", "message"), ("system_prompt", "base")),
    ("may_use", "command"),
}
"""Fields that are text and no name, in which a NUL is a character like any other."""


def texts() -> list[tuple[type[Operation[Any]], str]]:
    """Every field of every operation that holds text, except what a model sends, which is never an error."""
    return [
        (kind, name)
        for kind in OPERATIONS.values()
        for name, schema in parameters(kind).items()
        if kind is not Call and schema.get("type") in ("string", "array")
    ]


def operation(kind: type[Operation[Any]], field: str, text: str) -> Operation[Any]:
    required = {name: GOOD[parameters(kind)[name]["type"]] for name in schema_of(kind)["required"]}
    return kind(**required | {field: (text,) if parameters(kind)[field]["type"] == "array" else text})


@pytest.fixture
def session(world: World) -> Session:
    world.skill(".agents/skills/notes", files={"scripts/say.sh": "#!/bin/sh\necho said\n", "a.md": "a"})
    runner = FakeRunner(default=Outcome(0, "exit", 1, b"said\n", b""))
    return world.discover().session(runner=runner, policy={"allow": [{"tool": "skill_run"}]}, store=MemoryStore())


def identical(session: Session) -> bool:
    store = session._context.recorder.store  # pyright: ignore[reportPrivateUsage] - the record, as a replay reads it
    return replay(from_store(store, session.id)).identical


def test_half_a_surrogate_pair_is_refused_by_its_field_and_so_is_a_nul_in_names_and_arguments(session: Session) -> None:
    before = len(session.events)
    for kind, field in texts():
        cases = {"\ud800": "be valid UTF-8", "caf\udce9": "be valid UTF-8", "a\0b": "not hold a NUL"}
        if (kind.operation, field) in FREE:
            operation(kind, field, "a\0b").check()
            del cases["a\0b"]
        for text, says in cases.items():
            with pytest.raises(BadArguments, match=f"^{field} must {says}") as caught:
                session.perform(operation(kind, field, text))
            assert caught.value.field == field
    assert len(session.events) == before, "nothing of it is recorded"
    assert session.load("notes").text


@pytest.mark.parametrize(
    ("act", "field"),
    [
        (lambda s: s.load(5), "name"),
        (lambda s: s.read("notes", ["a.md"]), "path"),
        (lambda s: s.read(""), "name"),
        (lambda s: s.run("notes", "scripts/say.sh", [1]), "arguments"),
        (lambda s: s.run("notes", "scripts/say.sh", stdin=b"x"), "stdin"),
        (lambda s: s.search("x", limit="3"), "limit"),
        (lambda s: s.search("x", limit=2**2000), "limit"),
        (lambda s: s.compact(-1), "budget"),
        (lambda s: s.output("x", start=float("nan")), "start"),
        (lambda s: s.load("notes", by="root"), "by"),
        (lambda s: s.invoke(None), "message"),
        (lambda s: s.call(None), "tool"),
    ],
)
def test_what_does_not_fit_is_refused_in_python(session: Session, act: Callable[[Any], object], field: str) -> None:
    before = len(session.events)
    with pytest.raises(BadArguments, match=rf"\b{field}\b"):
        act(session)
    assert len(session.events) == before
    assert identical(session)


def test_an_operation_that_no_event_can_hold_is_refused_and_leaves_no_frame(session: Session) -> None:
    before = session.events
    for act in (
        lambda: session.load("notes", arguments="x" * 5_000_000),
        lambda: session.run("notes", "scripts/say.sh", stdin="é" * 2_500_000),
        lambda: session.run("notes", "scripts/say.sh", ["x" * 1000] * 5_000),
        lambda: session.invoke("\0" * 1_000_000),
    ):
        with pytest.raises(BadArguments, match="must have at most"):
            act()
    assert session.events == before
    session.load("notes")
    assert identical(session)


def test_the_largest_operation_is_recorded_and_replays(session: Session) -> None:
    room = limits.OPERATION_BYTES - 200
    assert session.run("notes", "scripts/say.sh", stdin="é" * (room // 2)).stdout == "said\n"
    called = [frame for frame in session.events if frame["type"] == "session_called"]
    assert len(canonical(called[-1]).encode()) > room
    assert identical(session)


def test_a_models_mistake_is_a_recorded_result_that_replays(session: Session) -> None:
    session.call("skill_load", {"name": "notes"})
    run = {"name": "notes", "script": "scripts/say.sh"}
    mistakes: list[dict[str, object]] = [
        {**run, "arguments": ["a\0b"]},
        {**run, "arguments": ["\ud800"]},
        {**run, "stdin": "\udce9"},
        {**run, "script": "scripts/\0"},
        {**run, "name": "\0"},
        {**run, "stdin": "x" * 5_000_000},
        {**run, "\ud800": 1},
        {**run, "arguments": [float("nan")]},
    ]
    for arguments in mistakes:
        before = len(session.events)
        result = session.call("skill_run", arguments)
        assert (result.ok, result.code) == (False, "INVALID_PARAM"), arguments
        assert [frame["type"] for frame in session.events[before:]] == ["session_called", "session_returned"]
    assert session.call("skill_run", run).ok
    assert identical(session)
