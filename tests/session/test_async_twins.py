"""The twins for asyncio do what their methods do: the same results, and the same operations in the record."""

import asyncio

import pytest

from metier import Session
from metier.record.store.memory import MemoryStore
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.session.operations import Search
from worlds import World


@pytest.fixture
def sessions(world: World) -> tuple[Session, Session]:
    files = {"references/a.md": "a reference\n", "scripts/x.sh": "#!/bin/sh\n"}
    world.skill(".agents/skills/one", body="# One\n$ARGUMENTS\n", files=files)
    skills = world.discover()

    def opened() -> Session:
        runner = FakeRunner(default=Outcome(0, "exit", 1, b"out\n"))
        return skills.session(store=MemoryStore(), runner=runner, policy={"allow": [{"tool": "skill_run"}]})

    return opened(), opened()


def test_every_twin_gives_what_its_method_gives(sessions: tuple[Session, Session]) -> None:
    plain, other = sessions
    loaded = plain.load("one", arguments="x")
    expected: list[object] = [
        loaded,
        plain.read("one", "references/a.md"),
        plain.search("one", limit=1),
        plain.run("one", "scripts/x.sh", ["1"], stdin="in"),
        plain.call("skill_search", {"query": "one"}),
        plain.output(loaded.ref, start=2),
        plain.compact(500),
        plain.invoke("/one y"),
        plain.end_turn(),
        plain.prompt("one", 900, ["a.py"]),
        plain.system_prompt("BASE", message="one", budget=900, files=["a.py"]),
        plain.search("one"),
    ]

    async def twins() -> list[object]:
        return [
            await other.aload("one", arguments="x"),
            await other.aread("one", "references/a.md"),
            await other.asearch("one", limit=1),
            await other.arun("one", "scripts/x.sh", ["1"], stdin="in"),
            await other.acall("skill_search", {"query": "one"}),
            await other.aoutput(loaded.ref, start=2),
            await other.acompact(500),
            await other.ainvoke("/one y"),
            await other.aend_turn(),
            await other.aprompt("one", 900, ["a.py"]),
            await other.asystem_prompt("BASE", message="one", budget=900, files=["a.py"]),
            await other.aperform(Search(query="one")),
        ]

    assert asyncio.run(twins()) == expected

    def called(session: Session) -> list[tuple[object, object]]:
        return [(f["operation"], f["args"]) for f in session.events if f["type"] == "session_called"]

    assert called(other) == called(plain)


def test_the_twins_of_a_catalog_search_and_refresh(world: World) -> None:
    world.skill(".agents/skills/one")
    skills = world.discover()
    assert asyncio.run(skills.asearch("one", limit=1)) == skills.search("one", limit=1)
    world.skill(".agents/skills/two")
    assert asyncio.run(skills.arefresh()).added == ("two",)
