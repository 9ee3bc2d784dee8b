"""The tools of a session as plain functions: what a framework reads of them, and what a model gets from them."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast, get_type_hints

import pytest
from pydantic import TypeAdapter

from metier import Session, StoreError
from metier.record.store.memory import MemoryStore
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from worlds import World


@pytest.fixture
def session(world: World) -> Session:
    world.skill(
        ".agents/skills/tally",
        description="Counts things.",
        body="# Tally\nCount aloud.\n",
        files={"references/sums.md": "One and one.\n", "scripts/count.sh": "#!/bin/sh\necho $1\n"},
    )
    return world.discover().session(runner=FakeRunner(default=Outcome(0, "exit", 1, b"three\n")), store=MemoryStore())


def by_name(functions: list[Callable[..., str]]) -> dict[str, Callable[..., str]]:
    return {function.__name__: function for function in functions}


def test_a_function_has_the_signature_the_hints_and_the_words_of_its_tool(session: Session) -> None:
    found = by_name(session.as_functions())
    assert list(found) == [tool.name for tool in session.tools()]
    run = found["skill_run"]
    parameters = inspect.signature(run).parameters
    required = {name: one.default is inspect.Parameter.empty for name, one in parameters.items()}
    assert required == {"name": True, "script": True, "arguments": False, "stdin": False}
    hints = {"name": str, "script": str, "arguments": list[str] | None, "stdin": str | None, "return": str}
    assert get_type_hints(run) == hints
    assert get_type_hints(found["skill_search"])["limit"] == int | None
    assert (run.__doc__ or "").startswith(
        "Runs a script of a loaded skill in a sandbox and returns its output.\n\nArgs:\n"
    )
    assert "    script: The script, such as scripts/check.py.\n" in (run.__doc__ or "")
    assert "    scope: Only skills of this scope. One of: repo, user.\n" in (found["skill_search"].__doc__ or "")
    assert inspect.getfullargspec(run).args == ["name", "script", "arguments", "stdin"]
    adapter: TypeAdapter[object] = TypeAdapter(cast("Any", run))  # as frameworks make schemas of functions
    assert adapter.json_schema()["required"] == ["name", "script"]


def test_a_call_returns_the_text_for_the_model_and_is_recorded(session: Session) -> None:
    found = by_name(session.as_functions())
    assert "Count aloud." in found["skill_load"](name="tally")
    assert found["skill_read"]("tally", "references/sums.md") == "One and one.\n"
    assert "tally" in found["skill_search"](query="count things", limit=None, scope=None)
    assert session.activated == ["tally"]
    called = [frame["args"] for frame in session.events if frame["type"] == "session_called"]
    assert called[-1] == {"tool": "skill_search", "arguments": {"query": "count things"}}


def test_whatever_is_wrong_is_text_and_nothing_is_raised(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    found = by_name(session.as_functions())
    assert "there is no skill 'nope'; available: tally" in found["skill_load"]("nope")
    assert "`name` is missing" in found["skill_read"]()
    assert "`name` must be a string" in found["skill_load"](name=3)
    assert "skill_read takes at most 2 arguments, not 3" in found["skill_read"]("tally", "a", "b")
    assert "skill_read was given `name` twice" in found["skill_read"]("tally", name="tally")
    assert "must be JSON" in found["skill_load"](name="tally", arguments=object())
    found["skill_load"]("tally")
    refused = found["skill_run"]("tally", "scripts/count.sh")
    assert "nobody can be asked here" in refused
    assert 'allow = [{ tool = "skill_run"' in refused

    def broken(*_: object, **__: object) -> None:
        raise StoreError("the store is gone")

    monkeypatch.setattr(MemoryStore, "append", broken)
    assert "the store is gone" in found["skill_search"]("count")


def test_coroutine_functions_are_the_same_to_read_and_to_await(session: Session) -> None:
    plain, found = session.as_functions(), session.as_async_functions()
    for one, other in zip(plain, found, strict=True):
        assert inspect.iscoroutinefunction(other)
        assert (one.__name__, one.__doc__) == (other.__name__, other.__doc__)
        assert inspect.signature(one) == inspect.signature(other)

    async def both() -> list[str]:
        load: Callable[..., Awaitable[str]] = next(one for one in found if one.__name__ == "skill_load")
        return [await load("tally"), await load("nope")]

    loaded, missing = asyncio.run(both())
    assert "Count aloud." in loaded
    assert "there is no skill 'nope'" in missing


def test_a_tool_whose_name_is_no_identifier_has_a_name_for_python(world: World) -> None:
    world.skill(".agents/skills/tally")
    session = world.discover(settings={"tools": {"load": "skills.activate"}}).session()
    load = session.as_functions()[0]
    assert load.__name__ == "skills_activate"
    assert "<skill_content" in load("tally")
