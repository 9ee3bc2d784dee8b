"""While a skill is active, its `allowed-tools` hold for scripts and for the host's tools, whoever asks and wherever."""

import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from metier import replay
from metier.app import App
from metier.errors import InvalidSkill, PolicyDenied
from metier.record.store.memory import MemoryStore
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.session.session import Session
from people import frames
from worlds import World

SKILLS = ".agents/skills"
SCRIPT = {"scripts/x.sh": "#!/bin/sh\necho ran\n"}
RUNS = {"allow": [{"tool": "skill_run"}]}


def app(world: World, store: str = "memory:") -> App:
    made = App(world.project, home=world.home, store=store, settings={"permissions": RUNS})
    made.runner = FakeRunner(default=Outcome(0, "exit", 3, b"ran\n", b""))
    return made


@pytest.fixture
def reading(world: World) -> World:
    """A skill that allows only `Read`, and two whose scripts would run."""
    world.skill(f"{SKILLS}/reader", allowed_tools="Read", files={**SCRIPT, "a.md": "of the reader"})
    world.skill(f"{SKILLS}/runner", files={**SCRIPT, "a.md": "of the runner"})
    world.skill(f"{SKILLS}/open", allowed_tools="Read skill_run Bash(git:*)", files=SCRIPT)
    return world


def test_a_window_is_enforced_where_tools_are_called(reading: World) -> None:
    """The same on every surface is shown by `tests/test_parity.py`."""
    made = app(reading)
    session = made.session("s")

    def run(name: str) -> str:
        return session.call("skill_run", {"name": name, "script": "scripts/x.sh"}).text

    for name in ("runner", "open"):
        session.load(name)
    assert (run("runner"), session.may_use("skill_run")) == ("ran", True)
    session.call("skill_load", {"name": "reader"})
    for name in ("runner", "open", "reader"):
        refused = run(name)
        assert ("allowed-tools" in refused, refused.startswith("ran")) == (True, False), name
        assert name == "reader" or "the skill reader is active" in refused
    assert [session.may_use(tool) for tool in ("Read", "Bash", "Write", "skill_run")] == [True, *[False] * 3]
    assert all(session.may_use(tool) for tool in ("skill_search", "skill_load", "skill_read", "skill_output"))
    assert session.call("skill_read", {"name": "runner", "path": "a.md"}).text == "of the runner"
    assert session.call("skill_search", {"query": "runner"}).ok
    assert session.call("skill_load", {"name": "runner"}).ok
    with pytest.raises(PolicyDenied, match="the skill reader is active"):  # a person is held by it, too
        session.run("runner", "scripts/x.sh")
    session.invoke("and now run it")
    assert (session.may_use("Bash"), session.may_use("skill_run"), run("runner")) == (True, True, "ran")
    assert replay.replay(replay.from_store(made.store, "s")).differences == []
    made.close()


def test_a_command_is_held_against_every_open_window(reading: World) -> None:
    reading.skill(f"{SKILLS}/shell", allowed_tools="Read Bash(scripts/x.sh safe*)", files=SCRIPT)
    session = app(reading).session("s")
    session.load("shell")
    assert session.run("runner", "scripts/x.sh", ["safe"]).stdout == "ran\n"
    assert session.may_use("skill_run", "scripts/x.sh safe")
    with pytest.raises(PolicyDenied, match="the skill shell is active"):
        session.run("runner", "scripts/x.sh", ["other"])
    assert not session.may_use("skill_run", "scripts/x.sh other")
    session.load("reader")
    assert not session.may_use("skill_run", "scripts/x.sh safe")


def test_a_host_that_does_not_enforce_hints_has_no_window(world: World) -> None:
    world.skill(".claude/skills/reader", allowed_tools="Read", files=SCRIPT)
    session = world.discover("claude-code").session(store=MemoryStore())
    session.load("reader")
    assert session.may_use("Bash")


# --- every command in a line must be covered ---

GIT, ADD = "Bash(git:*)", "Bash(git add:*, git commit:*)"
COVERED = [
    (GIT, "git"),
    (GIT, "git status"),
    (GIT, "git  log --format='%h $x `y`' -- \"a b\""),
    (GIT, "git add a.py && git commit -m 'a; b' || git status; git log | git cat-file & \n git diff\n"),
    (GIT, "git push 2>&1 >/dev/null 2> /dev/null; git fetch &>/dev/null"),
    (GIT, "'git' status"),
    (ADD, "git add x; git commit -m y"),
    ("Bash(git add *)", "git add x y"),
    ("Bash(git status)", "git status; git  status"),
    ("Bash(git:*) Bash(ls)", "git status | ls"),
    ("Bash(cut -d, -f1)", "cut -d, -f1"),
    ("Bash(scripts/*)", "scripts/x.sh ../y"),
    ("Bash(../scripts/x.sh:*)", "../scripts/x.sh y"),
    ("Bash", "rm $(x) > y"),
    ("Bash(*)", "rm $(x) > y"),
]
NOT_COVERED = [
    *((GIT, f"git status{sign}rm x") for sign in (";", "&", "&&", "|", "||", "|&", "\n", "\r\n", " 2>&1;")),
    *((GIT, f"git {part}") for part in ("$(rm x)", "`rm x`", "<(rm x)", ">(rm x)", '"$(rm x)"', '"`rm x`"', "$X")),
    *((GIT, f"git {part}") for part in (">x", "> x", ">>x", "2>x", "2>&1x", "&>x", "<x", "<<x", "> /dev/null/x")),
    *((GIT, f"git {part}") for part in ("{a,b}", "*", "~", "#x", "a\\\nb", '"a', "'a", "$'a'", "a\0b", "a\\ b", "!x")),
    *(
        (GIT, line)
        for line in ("(git)", "{ git; }", "if git; then git; fi", "A=b git", "git; A+=b git", "A=b", "! git")
    ),
    *((GIT, line) for line in ("gitevil", "git-evil", "evil git", "'git evil'", "./git", " ", ";", "g\u0456t x")),
    (ADD, "git push"),
    (ADD, "git addx"),
    (ADD, "git 'add x'"),
    ("Bash(git add *)", "git add x; rm y"),
    ("Bash(git status)", "git status -s"),
    ("Bash(git status)", "git 'status; rm x'"),
    ("Other(git:*)", "git status"),
    ("Bash(scripts/*)", "scripts/../../bin/rm x"),
    ("Bash(scripts/*)", "scripts/x.sh; 'scripts/..'/rm"),
    ("Bash(scripts/*:*)", "scripts/../../bin/rm x"),
]


def test_a_pattern_covers_a_line_only_if_it_covers_every_command_in_it(world: World) -> None:
    lines = [(*one, True) for one in COVERED] + [(*one, False) for one in NOT_COVERED]
    names = {hint: f"s{number}" for number, hint in enumerate(dict.fromkeys(hint for hint, _, _ in lines))}
    for hint, name in names.items():
        world.skill(f"{SKILLS}/{name}", allowed_tools=hint)
    skills = world.discover()
    said: list[tuple[str, str, bool]] = []
    for hint, line, _ in lines:
        session = skills.session()
        session.load(names[hint])
        said.append((hint, line, session.may_use("Bash", line)))
    assert said == lines


# --- a malformed list allows nothing ---

HINTS: dict[str, tuple[object, list[str] | None, tuple[bool, ...]]] = {
    "a map": ({"Read": True}, [], (False, False, False)),
    "a number": (5, [], (False, False, False)),
    "a flag": (False, [], (False, False, False)),
    "empty text": ("", [], (False, False, False)),
    "an open bracket": ("Bash(", [], (False, False, False)),
    "an empty list": ([], [], (False, False, False)),
    "a malformed item": (["Read", 5, "Bash("], ["Read"], (True, False, False)),
    "absent": (None, None, (True, True, True)),
}


@pytest.mark.parametrize("case", HINTS)
def test_a_malformed_list_allows_nothing_and_no_list_allows_everything(world: World, case: str) -> None:
    hint, entries, usable = HINTS[case]
    world.skill(
        f"{SKILLS}/odd", files=SCRIPT, **cast("dict[str, Any]", {} if hint is None else {"allowed-tools": hint})
    )
    first = app(world, f"sqlite://{world.home}/trail.db")
    assert first.session("s").load("odd").skill.as_dict()["allowed_tools"] == entries
    first.close()
    second = app(world, f"sqlite://{world.home}/trail.db")
    session = second.session("s")
    assert tuple(map(session.may_use, ("Read", "Bash", "skill_run"))) == usable
    assert replay.replay(replay.from_store(second.store, "s")).differences == []
    second.close()
    expected = [] if hint in (None, []) else [("allowed-tools-form", "warning")]
    found = world.discover().diagnostics
    assert [(one.code, one.severity) for one in found if one.severity != "info"] == expected


def test_null_is_no_list(world: World) -> None:
    world.skill(f"{SKILLS}/odd", text="---\nname: odd\ndescription: x\nallowed-tools: null\n---\n")
    session = world.discover().session()
    session.load("odd")
    assert session.may_use("Bash", "rm x")


# --- reading SKILL.md is an activation ---

WAYS: dict[str, Callable[[Session], object]] = {
    "session.read": lambda session: session.read("reader", "SKILL.md"),
    "session.read of bytes": lambda session: session.read("reader", "SKILL.md", raw=True),
    "a dotted path": lambda session: session.read("reader", "./SKILL.md"),
    "a URL": lambda session: session.read("skill://reader/SKILL.md"),
    "the model's tool": lambda session: session.call("skill_read", {"name": "reader", "path": "SKILL.md"}),
}


def active(world: World, **given: Any) -> tuple[Session, MemoryStore]:
    store = MemoryStore()
    session = world.discover().session(
        store=store, policy={**RUNS, "profile": "full-auto"}, runner=FakeRunner(default=Outcome(0, "exit", 3, b"", b""))
    )
    return session, store


@pytest.mark.parametrize("way", WAYS)
def test_reading_a_skill_file_activates_the_skill(world: World, way: str) -> None:
    world.skill(f"{SKILLS}/reader", allowed_tools="Read", model="small", overrides={"tools": {"depth": 2}})
    loading, _ = active(world)
    loading.load("reader", by="model" if "model" in way else "user")
    session, store = active(world)
    WAYS[way](session)
    assert session.activated == ["reader"]
    assert session.overrides == loading.overrides == {"model": "small", "tools.depth": 2}
    assert (session.may_use("Read"), session.may_use("Bash"), session.may_use("skill_run")) == (True, False, False)
    for kind, keys in (
        ("skill_loaded", ("name", "path", "digest", "frontmatter", "window", "files", "size")),
        ("skill_invoked", ("name", "mode", "effective_allowed_tools")),
        ("skill_override_proposed", ("name", "key", "value", "granted")),
    ):
        shown = [[[frame.get(key) for key in keys] for frame in frames(one, kind)] for one in (session, loading)]
        assert shown[0] == shown[1] != []
    assert replay.replay(replay.from_store(store, session.id)).differences == []


def test_a_list_of_the_hosts_tools_says_nothing_about_skills(reading: World) -> None:
    session = reading.discover().session(
        policy={"tools": ["Read"], "allow": [{"tool": "skill_run"}]},
        runner=FakeRunner(default=Outcome(0, "exit", 3, b"", b"")),
    )
    assert [session.may_use(tool) for tool in ("Read", "Bash", "skill_load", "skill_run")] == [True, False, True, True]
    session.load("runner")
    assert session.run("runner", "scripts/x.sh").exit_code == 0, "what may_use says is what happens"


def test_a_skill_file_that_was_read_is_given_again_by_its_ref_and_each_time_whole(world: World) -> None:
    world.skill(f"{SKILLS}/reader", body="# The body\n")
    session, store = active(world)
    first = session.read("reader", "SKILL.md").text
    assert session.read("reader", "SKILL.md").text == first
    assert "# The body" in first
    (known,) = session.state()["loaded"]
    assert session.output(known["ref"]) == first
    assert [frame.get("already_loaded", False) for frame in frames(session, "skill_loaded")] == [False, True]
    assert replay.replay(replay.from_store(store, session.id)).differences == []


@pytest.mark.parametrize("way", ["load", *WAYS])
def test_after_an_edit_everything_comes_from_the_same_bytes(world: World, way: str) -> None:
    world.skill(f"{SKILLS}/reader", body="# Old\n", allowed_tools="Bash", model="old")
    session, store = active(world)
    world.skill(f"{SKILLS}/reader", body="# New\n", allowed_tools="Read", model="new")
    if way == "load":
        assert "# New" in session.load("reader").text
    else:
        WAYS[way](session)
    (loaded,), (invoked,), (proposed,) = (
        frames(session, kind) for kind in ("skill_loaded", "skill_invoked", "skill_override_proposed")
    )
    bytes_given = store.get_artifact(loaded["digest"])
    assert b"# New" in bytes_given
    assert (loaded["frontmatter"]["model"], loaded["window"]) == ("new", ["Read"])
    assert invoked["effective_allowed_tools"] == ["Read"]
    assert proposed["value"] == "new"
    assert session.overrides == {"model": "new"}
    assert (session.may_use("Read"), session.may_use("Bash")) == (True, False)
    assert replay.replay(replay.from_store(store, session.id)).differences == []


INVALID = {
    "no YAML": "---\nname: [\n  x: {\n---\n",
    "no frontmatter": "# Only a body\n",
    "no description": "---\nname: reader\n---\n# Body\n",
    "hidden text": '---\nname: reader\ndescription: "a\\u202eb"\n---\n',
}


@pytest.mark.parametrize("noticed", [False, True], ids=["before the next scan", "after a scan"])
@pytest.mark.parametrize("text", INVALID)
@pytest.mark.parametrize("way", ["load", *WAYS])
def test_a_file_that_is_invalid_by_now_activates_nothing(world: World, way: str, text: str, noticed: bool) -> None:
    place = world.skill(f"{SKILLS}/reader", body="# Old\n", allowed_tools="Bash", model="old")
    session, store = active(world)
    place.write_text(INVALID[text])
    if noticed:
        session.skills.refresh()
    if "model" in way:
        assert "the skill is broken" in json.dumps(WAYS[way](session).as_dict())  # type: ignore[attr-defined]
    else:
        with pytest.raises(InvalidSkill, match="is not a valid skill"):
            session.load("reader") if way == "load" else WAYS[way](session)
    assert session.activated == []
    assert session.state()["loaded"] == []
    assert session.overrides == {}
    assert session.may_use("Write")
    kinds = {frame["type"] for frame in session.events}
    assert not kinds & {"skill_loaded", "skill_invoked", "skill_override_proposed", "skill_resource_read"}
    assert replay.replay(replay.from_store(store, session.id)).differences == []
