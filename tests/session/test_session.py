"""A session: who may see and load what, what it remembers as data, and what it puts back after a compaction."""

import json
from pathlib import Path
from typing import Any

import pytest

from metier import SkillNotFound
from metier.errors import InvocationError, PolicyDenied, ResourceError
from metier.record.store import open_store
from metier.record.store.memory import MemoryStore
from metier.replay import from_store, replay
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.session.session import Session
from worlds import World

BODY = "# Steps\n\nBODY-MARKER {}\n"


def write(world: World, name: str, **given: Any) -> Path:
    fields: dict[str, Any] = {"body": BODY.format(name), "files": {"a.md": "FILE"}, **given}
    return world.skill(f".agents/skills/{name}", **fields)


# --- hidden skills ---


def hide(world: World, how: str) -> tuple[Any, dict[str, Any]]:
    """A catalog with `plain` and a `secret` one that is hidden in some way, and what its session is given."""
    write(world, "plain")
    write(world, "secret", disable_model_invocation=True if how == "frontmatter" else None)
    skills = world.discover()
    if how in ("off", "manual"):
        skills.set_mode("secret", how)  # pyright: ignore[reportArgumentType]
    if how == "denied":
        return skills, {"policy": {"deny": [{"tool": "skill_load", "skill_name": "secret"}]}}
    return skills, {"only": ["plain"]} if how == "only" else {}


HIDDEN = ["off", "manual", "frontmatter", "denied", "only"]


@pytest.mark.parametrize("how", HIDDEN)
def test_a_hidden_skill_is_invisible_and_out_of_reach_for_the_model_on_every_path(world: World, how: str) -> None:
    skills, given = hide(world, how)
    session: Session = skills.session(**given)
    path = str(world.project / ".agents/skills/secret/SKILL.md")
    assert [skill.name for skill in session.visible()] == ["plain"]
    shown = session.prompt().text + session.system_prompt("x", message="secret") + str(session.tools())
    calls: list[tuple[str, dict[str, Any]]] = [
        ("skill_load", {"name": "secret"}),
        ("skill_load", {"name": "secre"}),
        ("skill_load", {"path": path}),
        ("skill_load", {"path": str(Path(path).parent)}),
        ("skill_load", {"name": "secret", "parent": "plain"}),
        ("skill_read", {"name": "secret", "path": "a.md"}),
        ("skill_read", {"name": "secret", "path": "SKILL.md"}),
        ("skill_search", {"query": "secret"}),
        ("skill_search", {"query": path}),
    ]
    for tool, arguments in calls:
        result = session.call(tool, arguments)
        found = result.data.get("results", ())
        assert not result.ok or all(hit["skill"]["name"] == "plain" for hit in found), arguments
        asked = {repr(value) for value in arguments.values()} | {repr(path)}
        said = f"{result.data}{result.text}"
        for one in sorted(asked, key=len, reverse=True):
            said = said.replace(one, "").replace(one[1:-1], "")
        shown += said
    for act in (
        lambda: session.load("secret", by="model"),
        lambda: session.load(path=path, by="model"),
        lambda: session.read("secret", "a.md", by="model"),
        lambda: session.read("skill://secret/a.md", by="model"),
    ):
        with pytest.raises(SkillNotFound) as refused:
            act()
        shown += " ".join(refused.value.available)
    for leak in ("secret", "BODY-MARKER secret", "FILE"):
        assert leak not in shown


@pytest.mark.parametrize("how", ["manual", "frontmatter"])
def test_a_hidden_skill_is_there_for_the_user(world: World, how: str) -> None:
    skills, given = hide(world, how)
    session: Session = skills.session(**given)
    assert "BODY-MARKER secret" in session.load("secret").text
    assert session.read("secret", "a.md").text == "FILE"
    assert "/secret" in session.commands()


def test_policy_stands_between_a_host_and_a_skill_that_it_denies(world: World) -> None:
    skills, given = hide(world, "denied")
    for act in (
        lambda: skills.session(**given).load("secret"),
        lambda: skills.session(**given).invoke("/secret now"),
        lambda: skills.session(preload=["secret"], **given),
    ):
        with pytest.raises(PolicyDenied):
            act()


@pytest.mark.parametrize("how", ["manual", "frontmatter"])
def test_a_hidden_skill_can_be_preloaded_and_stays_unlisted(world: World, how: str) -> None:
    skills, given = hide(world, how)
    session: Session = skills.session(preload=["secret"], **given)
    text = session.system_prompt()
    assert text.count("BODY-MARKER secret") == 1
    assert "secret" not in session.prompt().names
    assert session.call("skill_load", {"name": "secret"}).ok is False


# --- state ---


def test_state_is_plain_data_without_bodies_and_comes_back_whole(world: World) -> None:
    for name in ("one", "two"):
        write(world, name, body=BODY.format(name) + "For $ARGUMENTS\n")
    session = world.discover().session(id="chat-1")
    first = session.load("two", arguments="a b")
    session.load("one")
    stored = json.dumps(session.state())
    assert "BODY-MARKER" not in stored
    assert [one["name"] for one in json.loads(stored)["loaded"]] == ["two", "one"]
    again = world.discover().session(state=json.loads(stored))
    assert again.activated == ["two", "one"]
    assert again.state() == {**session.state(), "id": again.id}
    assert again.output(first.ref) == first.text, "made again from the unchanged file, with the same arguments"
    assert again.load("two", arguments="a b").already_loaded
    assert not again.load("two", arguments="other").already_loaded


def test_a_ref_outlives_the_file_where_a_store_kept_its_text(world: World) -> None:
    path = write(world, "one")
    store = MemoryStore()
    session = world.discover().session(store=store)
    first = session.load("one")
    path.write_text(path.read_text() + "NEW")
    assert world.discover().session(state=session.state(), store=store).output(first.ref) == first.text
    with pytest.raises(ResourceError, match="changed"):
        world.discover().session(state=session.state()).output(first.ref)


# --- compaction ---


def loaded_session(world: World, *sizes: int) -> Session:
    for number, size in enumerate(sizes):
        write(world, f"skill-{number}", body=f"START-{number} " + "x" * size, files={})
    session = world.discover().session()
    for number in range(len(sizes)):
        session.load(f"skill-{number}")
    return session


def test_after_a_compaction_every_loaded_skill_comes_back_the_newest_first(world: World) -> None:
    session = loaded_session(world, 100, 100, 100)
    session.load("skill-0", arguments="again")
    compaction = session.compact()
    assert compaction.restored == ("skill-0", "skill-2", "skill-1")
    places = [compaction.text.index(f"START-{number}") for number in (0, 2, 1)]
    assert places == sorted(places)
    assert "ARGUMENTS: again" in compaction.text


@pytest.mark.parametrize("budget", [0, 100, 500, 1500, 2500, 5000, 100_000])
def test_a_compaction_keeps_within_its_budget_and_names_what_it_only_refers_to(world: World, budget: int) -> None:
    session = loaded_session(world, 200, 1000, 200, 1000, 200)
    compaction = session.compact(budget)
    assert len(compaction.text) <= budget
    every = (*compaction.restored, *compaction.referenced, *compaction.left_out)
    assert sorted(every) == [f"skill-{number}" for number in range(5)]
    refs = {one["name"]: one["ref"] for one in session.state()["loaded"]}
    assert all(refs[name] in compaction.text for name in compaction.referenced)
    names = f"Loaded before, and left out here for lack of room: {', '.join(compaction.left_out)}."
    count = f"Skills loaded before, and left out here: {len(compaction.left_out)}."
    if compaction.left_out:
        assert budget == 0 or compaction.text.endswith((names, count))
    assert bool(compaction.left_out) == (budget < 1500)
    for number in range(5):
        whole = f"START-{number} x" in compaction.text
        assert whole is (f"skill-{number}" in compaction.restored)
    if budget == 100_000:
        assert compaction.referenced == ()
    if budget == 2500:
        assert "skill-4" in compaction.restored
        assert compaction.referenced
        for name in compaction.referenced:
            assert session.output(refs[name]).count("START-") == 1


def test_a_compaction_survives_a_skill_that_is_gone(world: World) -> None:
    session = loaded_session(world, 100, 5000)
    for number in range(2):
        (world.project / f".agents/skills/skill-{number}/SKILL.md").unlink()
    session.skills.refresh()
    compaction = session.compact(1000)
    assert compaction.restored == ("skill-0",), "what was already sent is remembered"
    assert compaction.referenced == ("skill-1",)
    assert world.discover().session(state=session.state()).compact().restored == ()


# --- odd files ---


@pytest.mark.parametrize("body", [b"\xff\xfe text", b"nul \x00 here", b"cut \xe6\x97", "日本".encode("utf-16")])
def test_a_body_with_odd_bytes_is_loaded_and_shows_them(world: World, body: bytes) -> None:
    text = b"---\nname: odd\ndescription: Odd.\n---\n" + body
    world.skill(".agents/skills/odd", text=text)
    loaded = world.discover().session().load("odd")
    assert body.decode("utf-8", "replace").strip("\n") in loaded.text
    assert not loaded.truncated


def test_a_preloaded_skill_counts_as_loaded_and_is_not_sent_again(world: World, tmp_path: Path) -> None:
    world.skill(".agents/skills/pinned", body="# PINNED\n", files={"scripts/x.sh": "#!/bin/sh\necho ran\n"})
    with open_store(str(tmp_path / "trail.db")) as store:
        session = world.discover().session(
            preload=["pinned"],
            store=store,
            runner=FakeRunner(default=Outcome(0, "exit", 1, b"ran", b"")),
            approve=lambda _: True,
        )
        assert "# PINNED" in session.system_prompt("base")
        assert session.call("skill_run", {"name": "pinned", "script": "scripts/x.sh"}).ok
        again = session.call("skill_load", {"name": "pinned"})
        assert "already loaded" in again.text
        assert "# PINNED" not in again.text
        assert "# PINNED" in session.output(session.preloaded[0].ref)
        assert session.compact().text == ""
        assert replay(from_store(store, session.id)).identical


def test_a_skill_that_is_loaded_by_itself_may_ask_for_the_one_that_asked_for_it_before(world: World) -> None:
    for name in ("one", "two"):
        world.skill(f".agents/skills/{name}")
    session = world.discover().session()
    session.load("one")
    session.load("two", parent="one")
    with pytest.raises(InvocationError, match="one"):
        session.load("one", parent="two")
    session.load("two")
    assert session.load("one", parent="two").already_loaded
