"""rip: the frames that a session leaves, one flat JSON object each, in order and the same every time."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from metier.record.events import TYPES
from metier.record.store import canonical
from metier.record.store.memory import MemoryStore
from metier.replay import from_store, replay
from metier.session.session import Session
from recording import Counter
from worlds import World

BODY = "# Steps\n\nBODY-MARKER\n"
ENVELOPE = ("id", "session_id", "stream_kind", "stream_id", "timestamp_ms", "seq", "type")
Frames = list[dict[str, Any]]


def open_session(world: World, *roots: str, **given: Any) -> Session:
    counter = Counter()
    skills = world.discover("rip", settings={"skills": {"roots": list(roots)}} if roots else {})
    return skills.session(id=given.pop("id", "session"), clock=counter.clock, ids=counter.ids, **given)


def frames(session: Session, kind: str) -> Frames:
    assert kind in {known.type for known in TYPES}
    return [frame for frame in session.events if frame["type"] == kind]


def busy(world: World, **given: Any) -> Session:
    """A session in which something of every kind has happened."""
    files = [
        world.skill(
            ".rip/skills/one", body=BODY + "For $ARGUMENTS\n", files={"a.md": "text"}, allowed_tools="Read", extra=1
        ),
        world.skill("~/.rip/skills/one"),
        world.skill(".rip/skills/two", body="x" * 100),
    ]
    for file in files:
        os.utime(file, (1_700_000_000, 1_700_000_000))  # the record has the time of what was loaded
    session = open_session(world, **given)
    session.call("skill_search", {"query": "one"})
    session.call("skill_load", {"name": "one", "arguments": "a b"})
    session.read("one", "a.md")
    session.call("skill_read", {"name": "one", "path": "../x"})
    session.invoke("/skill:two now")
    session.call("no_such_tool", {})
    session.compact()
    session.end_turn()
    return session


@pytest.mark.behaviour("R-040")
def test_a_frame_is_one_flat_json_line_with_the_envelope_first_and_the_same_bytes_every_time(world: World) -> None:
    session = busy(world)
    assert len(session.events) > 15
    for number, frame in enumerate(session.events):
        assert tuple(frame)[: len(ENVELOPE)] == ENVELOPE
        assert (frame["seq"], frame["session_id"]) == (number, "session")
        assert (frame["stream_kind"], frame["stream_id"]) == ("session", "session")
        assert isinstance(frame["timestamp_ms"], int)
        assert "\n" not in canonical(frame)
        assert json.loads(canonical(frame)) == json.loads(json.dumps(frame))
    assert len({frame["id"] for frame in session.events}) == len(session.events)
    assert [canonical(frame) for frame in busy(world).events] == [canonical(frame) for frame in session.events]
    one, two = session.skills.session(), session.skills.session()
    for each in (one, two, one):
        each.load("one")
    for each in (one, two):
        assert [(frame["seq"], frame["session_id"]) for frame in each.events] == [
            (number, each.id) for number in range(len(each.events))
        ]
    assert one.id != two.id


@pytest.mark.behaviour("R-036")
def test_the_catalog_is_recorded_with_count_and_roots_and_again_when_it_changed(world: World) -> None:
    world.skill(".rip/skills/one")
    session = open_session(world)
    (updated,) = frames(session, "skill_catalog_updated")
    assert updated["count"] == 1
    assert updated["roots"] == [str(world.project / ".rip/skills"), str(world.home / ".rip/skills")]
    assert "collisions" not in updated
    session.load("one")
    assert len(frames(session, "skill_catalog_updated")) == 1
    world.skill(".rip/skills/two")
    session.skills.refresh()
    session.load("two")
    assert [frame["count"] for frame in frames(session, "skill_catalog_updated")] == [1, 2]


@pytest.mark.behaviour("R-013", "R-014", "R-036")
@pytest.mark.parametrize("order", [["a", "b", "c"], ["c", "a", "b"]])
def test_a_collision_is_in_the_frames_with_winner_and_losers(world: World, order: list[str]) -> None:
    written = {where: str(world.skill(f"{where}/same")) for where in "abc"}
    other = [str(world.skill(f"{where}/other")) for where in order[:2]]
    session = open_session(world, *order)
    (updated,) = frames(session, "skill_catalog_updated")
    assert sorted(updated["collisions"], key=lambda one: one["name"]) == [
        {"name": "other", "winner": other[0], "losers": other[1:]},
        {"name": "same", "winner": written[order[0]], "losers": sorted(written[where] for where in order[1:])},
    ]
    warnings = {frame["name"]: frame for frame in frames(session, "skill_warning") if frame["kind"] == "collision"}
    assert sorted(warnings) == ["other", "same"]
    assert all(path in warnings["same"]["detail"] for path in written.values())


@pytest.mark.behaviour("R-011", "R-039", "N-073")
def test_every_skill_that_is_left_out_leaves_a_warning_with_the_reason(world: World) -> None:
    for name in ("broken", "ignored", "switched-off", "zz-too-many", "kept", "not-wanted"):
        world.skill(f".rip/skills/{name}", description=None if name == "broken" else "Does one thing.")
    world.discover("rip").disable("switched-off")
    settings = {"filters": {"ignore": ["ignored"]}, "catalog": {"max_skills": 3}}
    store = MemoryStore()
    session = world.discover("rip", settings=settings).session(id="s", store=store, only=["kept", "switched-off"])
    warned = {frame["name"]: (frame["kind"], frame["detail"]) for frame in frames(session, "skill_warning")}
    reasons = {
        "broken": ("invalid", "`description` is missing"),
        "ignored": ("excluded", "the name matches ignored"),
        "switched-off": ("excluded", "it is switched off"),
        "zz-too-many": ("excluded", "more than 3 skills"),
        "not-wanted": ("excluded", "the session is limited to other skills"),
    }
    path = f"{world.project}/.rip/skills/{{}}/SKILL.md: {{}}"
    assert warned == {name: (kind, path.format(name, why)) for name, (kind, why) in reasons.items()}
    untrusted = world.discover("rip", settings={"policy": {"trust": "required"}}).session()
    details = {frame["name"]: frame["detail"] for frame in frames(untrusted, "skill_warning")}
    assert details["kept"].endswith("its project is not trusted")
    shutil.rmtree(world.project)
    outcome = replay(from_store(store, "s"))
    assert (outcome.differences, len(outcome.frames)) == ([], len(session.events))


@pytest.mark.behaviour("N-074")
def test_skills_beyond_a_hundred_that_are_left_out_are_counted_and_not_listed(world: World) -> None:
    for number in range(1125):
        world.skill(f".rip/skills/bad-{number:04}", text="no frontmatter")
    store = MemoryStore()
    warnings = frames(world.discover("rip").session(id="s", store=store), "skill_warning")
    assert [frame.get("name") for frame in warnings] == [*(f"bad-{number:04}" for number in range(100)), None]
    assert warnings[-1]["detail"] == "1,025 more skills are left out"
    assert replay(from_store(store, "s")).differences == []


@pytest.mark.behaviour("R-039", "N-075")
def test_a_rule_that_was_dropped_is_a_warning_without_a_name_that_replays(world: World) -> None:
    world.skill(".rip/skills/one")
    store = MemoryStore()
    policy = {"deny": [{"tool": "skill_load", "skill_name": "Not_Kebab"}]}
    session = world.discover("rip").session(id="s", store=store, policy=policy)
    session.load("one")
    (warning,) = frames(session, "skill_warning")
    assert (warning["kind"], "Not_Kebab" in warning["detail"], "name" in warning) == ("policy", True, False)
    outcome = replay(from_store(store, "s"))
    assert (outcome.differences, len(outcome.frames)) == ([], len(session.events))


@pytest.mark.behaviour("R-006")
def test_paths_in_catalog_and_frames_are_normalised_however_a_root_is_written(world: World) -> None:
    path = world.skill("tools/skills/one", body=BODY)
    roots = ("tools/skills", "./tools/skills/", "tools/../tools/./skills", f"{world.project}//tools/skills/.")
    for named in (*((root,) for root in roots), roots):
        session = open_session(world, *named)
        session.load("one")
        (updated,), (loaded,) = frames(session, "skill_catalog_updated"), frames(session, "skill_loaded")
        assert updated["roots"] == [str(path.parent.parent)]
        assert (loaded["path"], loaded["directory"]) == (str(path), str(path.parent))
        assert [(skill.path, skill.root.path) for skill in session.skills] == [(str(path), str(path.parent.parent))]


@pytest.mark.behaviour("R-037", "R-042", "R-043")
def test_a_load_records_directory_digest_and_the_parsed_frontmatter_with_unknown_fields(world: World) -> None:
    path = world.skill(".rip/skills/one", body=BODY, metadata={"version": "1.10"}, unknown={"deep": [1, {"x": "y"}]})
    session = open_session(world)
    session.load("one")
    (loaded,) = frames(session, "skill_loaded")
    assert (loaded["name"], loaded["path"], loaded["directory"]) == ("one", str(path), str(path.parent))
    assert loaded["digest"] == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    assert loaded["frontmatter"] == {
        "name": "one",
        "description": "Does one thing, for a test.",
        "metadata": {"version": "1.10"},
        "unknown": {"deep": [1, {"x": "y"}]},
    }
    assert "warnings" not in loaded


@pytest.mark.behaviour("R-037", "R-039")
def test_a_cut_is_a_warning_of_its_load(world: World) -> None:
    world.skill(".rip/skills/one", body="x" * 3000, files={"a.txt": "y" * 3000})
    settings = {"load": {"max_bytes": 1000}, "resources": {"max_bytes": 1000}}
    session = world.discover("rip", settings=settings).session()
    session.load("one")
    session.read("one", "a.txt")
    (loaded,) = frames(session, "skill_loaded")
    assert loaded["truncated"] is True
    (warning,) = loaded["warnings"]
    cut = frames(session, "skill_warning")
    assert [(frame["kind"], frame["name"]) for frame in cut] == [("truncated", "one")] * 2
    assert cut[0]["detail"] == warning
    assert cut[1]["detail"] == "a.txt has 3000 bytes, 2000 were left out"


@pytest.mark.behaviour("R-038", "R-041", "N-082")
def test_every_load_leaves_its_frame_and_every_invocation_who_asked_and_with_what(world: World) -> None:
    """All ways of Python. The other surfaces are in the tests of parity and of the chat."""
    path = str(world.skill(".rip/skills/one", body=BODY, allowed_tools="Read Bash"))
    session = open_session(world, policy={"tools": ["Read"]})
    ways: list[tuple[Callable[[], object], str, str | None]] = [
        (lambda: session.call("skill_load", {"name": "one"}), "auto", None),
        (lambda: session.call("skill_load", {"path": path}), "auto", None),
        (lambda: session.call("skill_load", {"name": "one", "arguments": "a b"}), "auto", "a b"),
        (lambda: session.load("one"), "manual", None),
        (lambda: session.load(path=path), "manual", None),
        (lambda: session.load("one", arguments="a"), "manual", "a"),
        (lambda: session.load("one", by="model"), "auto", None),
        (lambda: session.invoke("/skill:one a  b"), "manual", "a  b"),
    ]
    for number, (act, mode, args) in enumerate(ways * 2, 1):
        act()
        loaded, invoked = frames(session, "skill_loaded"), frames(session, "skill_invoked")
        assert (len(loaded), len(invoked)) == (number, number)
        assert (invoked[-1]["name"], invoked[-1]["mode"], invoked[-1].get("args")) == ("one", mode, args)
        assert invoked[-1]["effective_allowed_tools"] == ["Read"]
    session.call("skill_load", {"name": "missing"})
    session.call("skill_search", {"query": "one"})
    for wrong in ("../x", "/etc/passwd", "missing"):
        session.call("skill_read", {"name": "one", "path": wrong})
    assert len(frames(session, "skill_loaded")) == len(ways) * 2
    refused = frames(session, "skill_resource_refused")
    assert [frame["reason"] for frame in refused] == ["traversal", "absolute", "not-found"]
    assert frames(session, "skill_resource_read") == []
