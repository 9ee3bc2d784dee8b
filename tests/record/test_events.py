"""Events: one frozen type a kind, all documented, in frames that are the same for the same surroundings."""

import contextlib
import json
import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from metier import MetierError, replay
from metier.hosts.profiles import build, load
from metier.record.events import TYPES, SkillWarning
from metier.record.recorder import Recorder
from metier.record.store import ENVELOPE, StoreError, canonical
from metier.record.store.memory import MemoryStore
from metier.record.writer import HELD_EVENTS
from metier.running.sandbox import Job, Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.running.world import LiveWorld
from metier.session.session import Session
from recording import PROFILES, Counter, answers, discover, drive, fake_runner
from worlds import World

DOCS = Path(__file__).resolve().parents[2] / "docs" / "events.md"
BODY = "# Steps\n\nBODY-MARKER for $ARGUMENTS\n"


def frames(session: Session, kind: str) -> list[dict[str, Any]]:
    return [frame for frame in session.events if frame["type"] == kind]


# --- types ---


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.type)
def test_every_type_is_documented_with_its_fields(kind: type[Any]) -> None:
    page = DOCS.read_text()
    section = page.split(f"## `{kind.type}`\n")[1].split("\n## ")[0]
    assert section.strip().split("\n")[0]
    listed = [line.split("`")[1] for line in section.split("\n") if line.startswith("- ")]
    assert listed == [item.name for item in fields(kind)]


def test_each_type_has_a_name_of_its_own_and_no_field_hides_the_envelope() -> None:
    assert len({kind.type for kind in TYPES}) == len(TYPES)
    assert {kind.type: hidden for kind in TYPES if (hidden := {item.name for item in fields(kind)} & {*ENVELOPE})} == {}


# --- frames ---


@pytest.mark.behaviour("R-040", "R-044", "R-045", "R-049")
@pytest.mark.parametrize("profile", PROFILES)
def test_the_same_surroundings_give_the_same_flat_lines(world: World, profile: str) -> None:
    def once() -> list[str]:
        (world.home / ".config/metier/permissions.toml").unlink(missing_ok=True)  # the answers of an earlier run
        counter = Counter()
        session = discover(world, profile).session(
            id="s", clock=counter.clock, ids=counter.ids, approve=answers(), runner=fake_runner(), policy={}
        )
        drive(session, 80)
        return [canonical(frame) for frame in session.events]

    lines = once()
    assert lines == once()
    for number, line in enumerate(lines):
        frame = json.loads(line)
        assert "\n" not in line
        assert (frame["id"], frame["timestamp_ms"], frame["seq"]) == (f"event-{number}", number, number)
        assert frame["session_id"] == frame["stream_id"] == "s"


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("skill_load", {"name": "none"}, "NOT_FOUND"),
        ("skill_load", {"name": 3}, "INVALID_PARAM"),
        ("skill_read", {"name": "one", "path": "../x"}, "ACCESS_DENIED"),
        ("skill_read", {"name": "one", "path": "none"}, "NOT_FOUND"),
        ("skill_run", {"name": "one", "script": "scripts/x.sh"}, "EXECUTION_ERROR"),
        ("nothing", {}, "INVALID_PARAM"),
        ("skill_load", {"name": float("nan")}, "INVALID_PARAM"),
        ("skill_load", {"name": "x" * 2_000_000}, "INVALID_PARAM"),
        ("skill_load", {"name": "\ud800"}, "INVALID_PARAM"),
        ("t" * 5_000_000, {}, "INVALID_PARAM"),
    ],
)
def test_a_failed_call_is_on_record_as_an_error_with_its_code(
    world: World, tool: str, arguments: dict[str, Any], code: str
) -> None:
    world.skill(".agents/skills/one")
    store = MemoryStore()
    session = world.discover().session(store=store, runner=FakeRunner())
    result = session.call(tool, arguments)
    returned = session.events[-1]
    assert (result.ok, returned["status"], returned["code"]) == (False, "error", code)
    assert store.get_artifact(returned["output"]).decode() == result.text
    session.load("one")
    assert frames(session, "session_called")[-1]["operation"] == "load", "and what comes after it is on record, too"
    assert replay.replay(replay.from_store(store, session.id)).identical


def test_arguments_that_cannot_be_recorded_do_not_end_the_record(world: World) -> None:
    world.skill(".agents/skills/one")
    session = world.discover().session()
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    for odd in (deep, {1: 2}, {"x": {3}}, {"x": b""}, {"x": 10**5000}):
        assert not session.call("skill_load", {"name": odd}).ok
    assert len(frames(session, "session_called")) == len(frames(session, "session_returned")) == 5


# --- redaction ---


@pytest.mark.parametrize("profile", PROFILES)
def test_where_policy_redacts_nothing_that_was_said_is_kept_and_digests_are(world: World, profile: str) -> None:
    secret = "S3CRET"
    root = world.project / "catalog"
    world.skill("catalog/one", body=BODY, files={"a.md": "FILE-MARKER", "scripts/x.sh": f"#!/bin/sh\necho {secret}\n"})
    world.skill("catalog/two", body=BODY)
    store = MemoryStore()
    skills = world.discover(profile, roots=[root], settings={"enabled": True})
    session = skills.session(
        store=store, policy={"redact": True, "allow": [{"tool": "skill_run"}]}, id="s",
        runner=FakeRunner({"scripts/x.sh": Outcome(0, "exit", 1, secret.encode(), secret.encode())}),
    )  # fmt: skip
    session.load("one", arguments=secret)
    session.invoke(f"/one {secret}")
    session.invoke(f"/skill:two {secret}")
    session.search(secret)
    session.read("one", "a.md")
    session.run("one", "scripts/x.sh", [secret], stdin=secret)
    for tool in ("load", "read", "search", "output", "run"):
        for key in ("name", "path", "query", "ref", "arguments", "args", "parent", "script"):
            session.call(getattr(skills.profile.tools, tool), {"name": "one", "path": "a.md", key: secret})
    for act in (
        lambda: session.load(secret),
        lambda: session.load("one", parent=secret),
        lambda: session.read("one", f"{secret}.md"),
        lambda: session.read(f"skill://one/{secret}"),
        lambda: session.run("one", f"scripts/{secret}.sh"),
        lambda: session.output(secret),
    ):
        with contextlib.suppress(MetierError):
            act()
    skills.session(store=store, policy={"redact": True}, id="s", state=session.state())
    kept = "\n".join(store.export_lines())
    for marker in (secret, "BODY-MARKER", "FILE-MARKER"):
        assert marker not in kept
    assert store.artifacts() == []
    (loaded, *_) = frames(session, "skill_loaded")
    assert loaded["digest"].startswith("sha256:")
    assert loaded["output"].startswith("sha256:")
    (ended,) = frames(session, "tool_ended")
    assert ended["stdout"].startswith("sha256:")
    assert frames(session, "skill_resource_read")[0]["path"] == "a.md"


# --- trouble ---


class Troubled(MemoryStore):
    """A store that takes nothing while it is full."""

    full = False

    def append(self, *given: Any, **named: Any) -> Any:
        if self.full:
            raise StoreError("the disk is full", reason="full", store="memory:")
        return super().append(*given, **named)


def test_what_the_store_did_not_take_did_not_happen(world: World) -> None:
    world.skill(".agents/skills/one", body="BODY")
    store = Troubled()
    session = world.discover().session(store=store)
    store.full = True
    for _ in range(2):
        with pytest.raises(StoreError, match="full"):
            session.load("one")
    assert (session.activated, session.state()["loaded"]) == ([], [])
    store.full = False
    session.end_turn()
    assert "BODY" in session.load("one").text, "it is given for the first time"
    asked = [frame["operation"] for frame in frames(session, "session_called")]
    assert asked == ["end_turn", "load"]
    assert [frame["seq"] for frame in session.events] == list(range(len(session.events)))
    assert replay.replay(replay.from_store(store, session.id)).identical


def test_a_script_that_ran_is_on_record_when_the_store_is_back(world: World) -> None:
    world.skill(".agents/skills/one", files={"scripts/say.sh": "#!/bin/sh\necho said\n"})
    world.skill(".agents/skills/two")
    store = Troubled()

    def fill_the_disk(job: Job) -> Outcome:
        store.full = True
        return Outcome(exit_code=0, ended="exit", duration_ms=5, stdout=b"said\n", stderr=b"", protections=())

    session = world.discover().session(store=store, runner=FakeRunner(default=fill_the_disk))
    with pytest.raises(StoreError, match="full"):
        session.run("one", "scripts/say.sh")
    with pytest.raises(StoreError, match="full"):
        session.load("two")
    assert session.activated == ["one"]
    store.full = False
    session.end_turn()
    asked = [frame["operation"] for frame in frames(session, "session_called")]
    assert asked == ["run", "end_turn"]
    assert len(frames(session, "session_returned")) == 2
    assert replay.replay(replay.from_store(store, session.id)).identical


def test_a_host_that_may_go_on_does_and_the_trouble_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.skill(".agents/skills/one", body="BODY")
    store = Troubled()
    session = world.discover().session(store=store, store_required=False)
    store.full = True
    with caplog.at_level(logging.WARNING, "metier"):
        assert "BODY" in session.load("one").text
    assert "the disk is full" in caplog.text
    before = len(session.events)
    store.full = False
    session.end_turn()
    assert len(session.events) > before
    assert replay.replay(replay.from_store(store, session.id)).identical


def test_going_on_ends_where_too_much_would_be_held() -> None:
    store = Troubled()
    store.full = True
    counter = Counter()
    world = LiveWorld(clock=counter.clock, ids=counter.ids)
    recorder = Recorder(store, "s", world, build(load("standard")), required=False)
    recorder.note(*[SkillWarning("kind", "detail")] * HELD_EVENTS)
    recorder.flush()
    assert store.read("s") == []
    recorder.note(SkillWarning("kind", "detail"))
    with pytest.raises(StoreError):
        recorder.flush()
    store.full = False
    recorder.flush()
    assert len(store.read("s")) == HELD_EVENTS + 1


# --- surfaces ---
