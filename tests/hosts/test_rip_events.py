"""rip: the frames that a session leaves, one flat JSON object each, in order and the same every time."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest

import forking
from hosts.asking import metier
from metier.errors import BadArguments
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


# --- the envelope ---


@pytest.mark.behaviour("R-040")
def test_a_frame_is_one_flat_json_line_with_the_envelope_first(world: World) -> None:
    session = busy(world)
    assert len(session.events) > 15
    for number, frame in enumerate(session.events):
        assert tuple(frame)[: len(ENVELOPE)] == ENVELOPE
        assert (frame["seq"], frame["session_id"]) == (number, "session")
        assert (frame["stream_kind"], frame["stream_id"]) == ("session", "session")
        assert isinstance(frame["timestamp_ms"], int)
        line = canonical(frame)
        assert "\n" not in line
        assert json.loads(line) == json.loads(json.dumps(frame))
    assert len({frame["id"] for frame in session.events}) == len(session.events)


@pytest.mark.behaviour("R-040")
def test_each_session_counts_its_own_frames_from_zero(world: World) -> None:
    world.skill(".rip/skills/one", body=BODY)
    skills = world.discover("rip")
    one, two = skills.session(), skills.session()
    one.load("one")
    two.load("one")
    one.load("one")
    for session in (one, two):
        assert [frame["seq"] for frame in session.events] == list(range(len(session.events)))
        assert {frame["session_id"] for frame in session.events} == {session.id}
    assert one.id != two.id


def test_the_same_session_leaves_the_same_bytes(world: World) -> None:
    """The recording's part of R-049; replay is the rest of it."""
    first = [canonical(frame) for frame in busy(world).events]
    assert [canonical(frame) for frame in busy(world).events] == first


# --- the catalog ---


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
    folder = world.project / ".rip/skills"
    assert warned == {
        "broken": ("invalid", f"{folder}/broken/SKILL.md: `description` is missing"),
        "ignored": ("excluded", f"{folder}/ignored/SKILL.md: the name matches ignored"),
        "switched-off": ("excluded", f"{folder}/switched-off/SKILL.md: it is switched off"),
        "zz-too-many": ("excluded", f"{folder}/zz-too-many/SKILL.md: more than 3 skills"),
        "not-wanted": ("excluded", f"{folder}/not-wanted/SKILL.md: the session is limited to other skills"),
    }
    shutil.rmtree(world.project)
    outcome = replay(from_store(store, "s"))
    assert outcome.differences == []
    assert len(outcome.frames) == len(session.events)


@pytest.mark.behaviour("N-073")
def test_the_skills_of_a_project_without_trust_leave_warnings_where_trust_is_required(world: World) -> None:
    world.skill(".rip/skills/theirs")
    world.skill("~/.rip/skills/mine")
    session = world.discover("rip", settings={"policy": {"trust": "required"}}).session()
    (warning,) = frames(session, "skill_warning")
    assert (warning["kind"], warning["name"]) == ("excluded", "theirs")
    assert warning["detail"].endswith("its project is not trusted")


@pytest.mark.behaviour("N-074")
def test_thousands_of_skills_that_are_left_out_are_counted_and_not_all_listed(world: World) -> None:
    for number in range(2500):
        folder = world.project / f".rip/skills/bad-{number:04}"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text("no frontmatter")
    store = MemoryStore()
    session = world.discover("rip").session(id="s", store=store)
    warnings = frames(session, "skill_warning")
    assert [frame.get("name") for frame in warnings] == [*(f"bad-{number:04}" for number in range(100)), None]
    assert warnings[-1]["detail"] == "2,400 more skills are left out"
    assert replay(from_store(store, "s")).differences == []


@pytest.mark.behaviour("N-075")
def test_a_rule_that_was_dropped_is_a_warning_that_replays(world: World) -> None:
    world.skill(".rip/skills/one")
    store = MemoryStore()
    policy = {"deny": [{"tool": "skill_load", "skill_name": "Not_Kebab"}]}
    session = world.discover("rip").session(id="s", store=store, policy=policy)
    session.load("one")
    assert [frame["kind"] for frame in frames(session, "skill_warning")] == ["policy"]
    outcome = replay(from_store(store, "s"))
    assert outcome.differences == []
    assert len(outcome.frames) == len(session.events)


@pytest.mark.behaviour("R-006")
@pytest.mark.parametrize(
    "root", ["tools/skills", "./tools/skills/", "tools/../tools/./skills", "{project}//tools/skills/."]
)
def test_paths_in_frames_are_normalised_however_a_root_is_written(world: World, root: str) -> None:
    path = world.skill("tools/skills/one", body=BODY)
    session = open_session(world, root.format(project=world.project))
    session.load("one")
    (updated,), (loaded,) = frames(session, "skill_catalog_updated"), frames(session, "skill_loaded")
    assert updated["roots"] == [str(path.parent.parent)]
    assert (loaded["path"], loaded["directory"]) == (str(path), str(path.parent))


# --- loads and invocations ---


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


@pytest.mark.behaviour("R-039")
def test_a_warning_that_concerns_no_skill_has_no_name(world: World) -> None:
    world.skill(".rip/skills/one")
    session = open_session(world, policy={"deny": [{"tool": "skill_load", "skill_name": "Not_Kebab"}]})
    (warning,) = frames(session, "skill_warning")
    assert warning["kind"] == "policy"
    assert "Not_Kebab" in warning["detail"]
    assert "name" not in warning


@pytest.mark.behaviour("R-038", "N-082")
@pytest.mark.parametrize(
    ("act", "mode", "args"),
    [
        (lambda s: s.call("skill_load", {"name": "one"}), "auto", None),
        (lambda s: s.call("skill_load", {"name": "one", "arguments": "a b"}), "auto", "a b"),
        (lambda s: s.load("one"), "manual", None),
        (lambda s: s.load("one", arguments="a"), "manual", "a"),
        (lambda s: s.load("one", by="model"), "auto", None),
        (lambda s: s.invoke("/skill:one a  b"), "manual", "a  b"),
    ],
)
def test_an_invocation_records_who_asked_and_with_what(
    world: World, act: Callable[[Session], object], mode: str, args: str | None
) -> None:
    world.skill(".rip/skills/one", body=BODY, allowed_tools="Read Bash")
    session = open_session(world, policy={"tools": ["Read"]})
    act(session)
    (invoked,) = frames(session, "skill_invoked")
    assert (invoked["name"], invoked["mode"], invoked.get("args")) == ("one", mode, args)
    assert invoked["effective_allowed_tools"] == ["Read"]


@pytest.mark.behaviour("R-041")
def test_every_load_and_invocation_leaves_its_frame_by_whatever_way_it_came(world: World) -> None:
    """All ways of Python. The other surfaces are in the tests of parity and of the chat."""
    path = world.skill(".rip/skills/one", body=BODY)
    session = open_session(world)
    ways: list[Callable[[], object]] = [
        lambda: session.load("one"),
        lambda: session.load(path=path),
        lambda: session.load("one", arguments="x"),
        lambda: session.call("skill_load", {"name": "one"}),
        lambda: session.call("skill_load", {"path": str(path)}),
        lambda: session.invoke("/skill:one x"),
    ]
    for number, way in enumerate(ways * 2, 1):
        way()
        assert len(frames(session, "skill_loaded")) == number
        assert len(frames(session, "skill_invoked")) == number
    session.call("skill_load", {"name": "missing"})
    session.call("skill_search", {"query": "one"})
    assert len(frames(session, "skill_loaded")) == len(ways) * 2


def test_what_was_refused_is_on_record_too(world: World) -> None:
    world.skill(".rip/skills/one", files={"a.bin": b"\x00"})
    session = open_session(world)
    for path in ("../x", "/etc/passwd", "missing", "a.bin"):
        session.call("skill_read", {"name": "one", "path": path})
    refused = frames(session, "skill_resource_refused")
    assert [frame["reason"] for frame in refused] == ["traversal", "absolute", "not-found", "binary"]
    assert frames(session, "skill_resource_read") == []


def test_arguments_are_not_recorded_where_policy_says_redact(world: World) -> None:
    session = busy(world, policy={"redact": True})
    session.load("one", arguments="PRIVATE")
    session.invoke("/skill:one PRIVATE")
    session.search("PRIVATE")
    recorded = json.dumps([frame for frame in session.events if frame["type"] != "session_returned"])
    assert "PRIVATE" not in recorded
    assert "[redacted]" in recorded


ODD = {
    "half a character": "\ud800",
    "a byte that is not UTF-8": "caf\udce9",
    "a NUL": "a\x00b",
    "a control sequence": "\x1b[31m",
    "beyond the basic plane": "𝄞" * 10,
}


@pytest.mark.system
def test_odd_text_in_a_call_is_answered_and_the_next_process_reads_and_replays_the_record(world: World) -> None:
    world.skill(".rip/skills/one", body=BODY)
    store = f"sqlite:{world.home}/record.db"
    session = open_session(world, store=store, id="odd")
    for what, text in ODD.items():
        calls: list[tuple[str, dict[str, Any]]] = [
            ("skill_load", {"name": text}),
            ("skill_load", {"name": "one", "arguments": text}),
            ("skill_read", {"name": "one", "path": text}),
            ("skill_search", {"query": text}),
            (text, {text: text}),
        ]
        answers = [session.call(*call) for call in calls]
        assert all(answer.text.strip().encode() for answer in answers), "a provider can send each to the model"
        torn = what in ("half a character", "a byte that is not UTF-8")
        assert [answer.ok for answer in answers] == [False, not torn, False, not torn, False]
        assert all(("half a surrogate pair" in answer.text) is torn for answer in answers[:4])
        with contextlib.suppress(BadArguments):  # a host's mistake, unlike a model's
            session.invoke(text)
    options = ["--profile", "rip", "--store", store]
    replayed = metier(world, "replay", "--verify", "odd", *options)
    assert (replayed["identical"], replayed["differences"]) == (True, [])
    assert replayed["frames"] == len(session.events)
    shown = forking.run(
        [*forking.METIER, "events", "--session", "odd", "--json", *options],
        cwd=world.project,
        env={**os.environ, "HOME": str(world.home)},
        capture_output=True,
        check=True,
    )
    assert [json.loads(line) for line in shown.stdout.decode().splitlines()] == session.events
