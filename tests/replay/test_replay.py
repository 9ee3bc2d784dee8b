"""Replay: a record runs again anywhere, byte for byte; whatever is wrong with it is found and named."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import forking
import parts
from lives import Lives
from metier import replay
from metier.record.events import TYPES
from metier.record.store import Frame, Store, canonical, open_store
from metier.record.store.memory import MemoryStore
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.running.sandbox.runners import choose
from metier.session.session import Session
from metier.surfaces.cli import cli
from metier.testing import write_skill
from recording import PROFILES, answers, discover, drive, fake_runner
from worlds import World

Lines = list[dict[str, Any]]


def elsewhere(tmp_path: Path, *arguments: str, code: int = 0) -> Any:
    """The command in a process of its own, in an empty folder with an empty home; its JSON."""
    folder = tmp_path / "elsewhere"
    (folder / "home").mkdir(parents=True, exist_ok=True)
    command = [*forking.METIER, *arguments, "--json"]
    env = {**os.environ, "HOME": str(folder / "home")}
    done = forking.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


@pytest.mark.system
@pytest.mark.behaviour("R-044", "R-045", "R-047", "R-048", "R-049", "R-053")
@pytest.mark.parametrize("profile", PROFILES)
def test_hundreds_of_mixed_calls_replay_elsewhere_with_the_skills_gone(
    world: World, tmp_path: Path, profile: str
) -> None:
    recording = MemoryStore()
    session = discover(world, profile).session(
        store=recording,
        approve=answers(),
        runner=fake_runner(),
        policy={"deny": [{"tool": "skill_load", "skill_name": "s5"}]},
    )
    failed = drive(session, 560, edit=world.project / "catalog")
    kinds = [frame["type"] for frame in session.events]
    file, url = tmp_path / "trail.jsonl", f"sqlite://{tmp_path}/trail.db"
    file.write_text("\n".join(recording.export_lines(session.id)))
    with open_store(url) as store:
        store.import_lines(file.read_text().splitlines())
    assert kinds.count("session_called") > 500
    assert failed > 50
    unseen = {"policy_chosen", "policy_changed", "skill_warning", "skill_override_proposed", "sessions_pruned"}
    unseen.add("tool_network")  # no rule gives a script a host here
    if profile != "standard":
        unseen.add("skills_chosen")  # no message changes the list of these hosts
    other_streams = ("chat_", "skill_install", "skills_offered")  # they are not in the stream of a session
    assert {kind.type for kind in TYPES if not kind.type.startswith(other_streams)} - set(kinds) <= unseen
    shutil.rmtree(world.project)
    expected = {
        "session": session.id,
        "frames": len(kinds),
        "not_compared": 0,
        "identical": True,
        "differences": [],
    }
    assert elsewhere(tmp_path, "replay", session.id, "--store", url) == expected
    assert elsewhere(tmp_path, "replay", "--verify", str(file)) == expected


# --- a small record to play with ---


@dataclass
class Recorded:
    world: World
    session: Session
    store: Store
    file: Path

    def lines(self) -> Lines:
        return [json.loads(line) for line in self.store.export_lines(self.session.id)]

    def write(self, lines: Lines) -> None:
        self.file.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def recorded(world: World, tmp_path: Path) -> Recorded:
    files = {"a.md": "a reference", "scripts/x.sh": "#!/bin/sh\n"}
    world.skill(".agents/skills/one", body="# One\n", files=files)
    world.skill(".agents/skills/two", body="# Two\n")
    store = MemoryStore()
    session = world.discover().session(
        store=store, approve=lambda _: "once", runner=FakeRunner(default=Outcome(0, "exit", 3, b"printed\n", b""))
    )
    session.call("skill_search", {"query": "one"})
    session.load("one", arguments="x")
    session.read("one", "a.md")
    session.run("one", "scripts/x.sh", ["1"])
    session.call("skill_load", {"name": "missing"})
    return Recorded(world, session, store, tmp_path / "trail.jsonl")


def is_frame(line: dict[str, Any]) -> bool:
    return "seq" in line


def drop(lines: Lines, which: Callable[[dict[str, Any]], bool]) -> None:
    del lines[next(number for number, line in enumerate(lines) if which(line))]


def change(lines: Lines, kind: str, **values: Any) -> None:
    next(line for line in lines if line.get("type") == kind).update(values)


def artifact_of(lines: Lines, kind: str, key: str) -> Callable[[dict[str, Any]], bool]:
    digest = next(line[key] for line in lines if line.get("type") == kind)
    return lambda line: line.get("artifact") == digest


def break_artifact(lines: Lines) -> None:
    next(line for line in lines if "artifact" in line)["base64"] = "bm90IGl0"


FAULTS: dict[str, tuple[Callable[[Lines], object], str]] = {
    "a frame is missing": (lambda lines: drop(lines, lambda line: line.get("seq") == 4), "gap"),
    "the first frame is missing": (lambda lines: drop(lines, lambda line: line.get("seq") == 0), "gap"),
    "a frame is there twice": (lambda lines: lines.append(next(filter(is_frame, lines))), "gap"),
    "an artifact was changed": (break_artifact, "changed-artifact"),
    "frames of another session": (lambda lines: change(lines, "skill_loaded", session_id="other"), "mixed-sessions"),
    "no frame at all": (lambda lines: lines.clear(), "empty"),
    "only artifacts": (lambda lines: lines.__delitem__(slice(None, None)) or lines.append({"x": 1}), "empty"),
    "a fact was changed": (lambda lines: change(lines, "skills_searched", count=7), "changed-frame"),
    "a name was changed": (lambda lines: change(lines, "skill_loaded", name="two"), "changed-frame"),
    "an end was changed": (lambda lines: change(lines, "session_returned", operation="loaded"), "changed-frame"),
    "a request was changed": (lambda lines: change(lines, "session_called", args={"tool": "x"}), "changed-frame"),
    "a request that does not exist": (lambda lines: change(lines, "session_called", operation="eval"), "changed-frame"),
    "a request without arguments": (lambda lines: change(lines, "session_called", args=None), "not-runnable"),
    "a policy that does not exist": (lambda lines: change(lines, "session_started", policy={"x": 1}), "not-runnable"),
    "a frame without a type": (lambda lines: next(filter(is_frame, lines)).pop("type"), "broken-frame"),
    **{
        f"the artifact of {kind}.{key} is missing": (
            lambda lines, kind=kind, key=key: drop(lines, artifact_of(lines, kind, key)),
            "missing-artifact",
        )
        for kind, key in (
            ("skill_catalog_updated", "snapshot"),
            ("skills_searched", "hits"),
            ("skill_loaded", "digest"),
            ("skill_loaded", "output"),
            ("skill_resource_read", "digest"),
            ("tool_started", "digest"),
            ("tool_ended", "stdout"),
            ("session_returned", "output"),
        )
    },
}  # fmt: skip


@pytest.mark.behaviour("R-050")
@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_with_a_record_is_found_and_named(recorded: Recorded, fault: str) -> None:
    spoil, kind = FAULTS[fault]
    lines = recorded.lines()
    spoil(lines)
    recorded.write(lines)
    done = CliRunner().invoke(cli, ["replay", "--verify", str(recorded.file), "--json"])
    assert done.exit_code == 1, done.output
    said = json.loads(done.stdout)
    assert said["identical"] is False
    assert kind in [one["kind"] for one in said["differences"]]
    people = CliRunner().invoke(cli, ["replay", str(recorded.file)])
    assert people.exit_code == 1
    assert kind in people.stdout


@pytest.mark.behaviour("R-050")
@pytest.mark.parametrize("line", ["not json", "[1]", '{"seq": ', "3", '{"artifact": "sha256:x"}', "\x00"])
def test_a_line_that_is_no_json_of_a_record_is_named_by_its_number(recorded: Recorded, line: str) -> None:
    lines = [json.dumps(one) for one in recorded.lines()]
    recorded.file.write_text("\n".join([*lines[:2], line, *lines[2:]]))
    found = replay.verify(replay.from_file(str(recorded.file)))
    assert ("broken-line", 3) in [(difference.kind, difference.index) for difference in found]
    assert not replay.replay(replay.from_file(str(recorded.file))).identical


@pytest.mark.behaviour("R-050")
def test_a_changed_frame_is_named_by_its_index_and_both_sides_are_shown(recorded: Recorded) -> None:
    lines = recorded.lines()
    change(lines, "skills_searched", count=7)
    recorded.write(lines)
    changed, chain, difference = replay.replay(replay.from_file(str(recorded.file))).differences
    frame = next(one for one in recorded.session.events if one["type"] == "skills_searched")
    assert changed.kind == "changed-file"
    assert chain.index == difference.index == frame["seq"]
    assert chain.detail == f"frame {frame['seq']} or one before it was changed after it was written"
    assert difference.detail == f"frame {frame['seq']} differs in count"
    assert json.loads(difference.expected)["count"] == 7
    assert difference.found == canonical(frame)


@pytest.mark.system
def test_a_missing_file_or_session_is_said_in_one_line(recorded: Recorded, tmp_path: Path) -> None:
    for arguments, code, says in (
        (["replay", str(tmp_path / "none.jsonl")], 4, "cannot be read"),
        (["replay", "none", "--store", "memory:"], 1, "there is no session 'none'"),
        (["replay", "--store", "memory:"], 2, "no session in the store yet"),
    ):
        done = forking.run([*forking.METIER, *arguments], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert says in done.stderr
        assert done.stderr.count("\n") == 1


# --- lives ---


@pytest.mark.system
@pytest.mark.behaviour("R-047", "R-049", "N-077")
def test_a_session_with_several_lives_replays_whole(world: World, tmp_path: Path) -> None:
    """Four processes one after the other, of which one is killed; then a fifth that has nothing but the store."""
    lives = Lives(world, f"sqlite://{tmp_path}/trail.db", "rip", ("--session", "s"))
    world.skill(".rip/skills/one", body="# One\n$ARGUMENTS\n", files={"a.md": "a reference"}, allowed_tools="Read")
    world.skill(".rip/skills/two", body="# Two\n")
    told = [json.loads(lives.run("session", "invoke", "/skill:one first life", "--json"))["loaded"]["text"]]
    with Lives(world, lives.url, "rip").rpc() as rpc:
        told.append(rpc.tool("s", "skill_load", name="one")["text"])
        world.skill(".rip/skills/one", body="# One, edited\n", files={"a.md": "another reference"})
        rpc.refresh()
        told.append(rpc.tool("s", "skill_load", name="one")["text"])
        rpc.kill()
    world.skill(".rip/skills/broken", description=None)
    lives.permissions('[permissions]\ndeny = [{tool = "skill_load", skill_name = "two"}]\n')
    with Lives(world, lives.url, "rip").rpc() as rpc:
        told.append(rpc.tool("s", "skill_load", name="two")["error"]["message"])
        told.append(rpc.tool("s", "skill_read", name="one", path="a.md")["text"])
    told.append(json.loads(lives.run("load", "one", "--args", "fourth life", "--json"))["text"])
    assert told[0] == "# One\nfirst life\n\nARGUMENTS: first life\n"
    assert told[2:] == [
        "# One, edited\n",
        "there is no skill 'two'; available: one",
        "another reference",
        "# One, edited\n\nARGUMENTS: fourth life\n",
    ]
    frames = lives.frames("s")
    begun = [
        (frame["surface"], len(frame["policy"].get("deny", ())))
        for frame in frames
        if frame["type"] == "session_started"
    ]
    assert begun == [("cli", 0), ("rpc", 0), ("rpc", 1), ("cli", 1)]
    assert [frame["seq"] for frame in frames] == list(range(len(frames)))
    shutil.rmtree(world.project)
    shutil.rmtree(world.home)
    expected = {"session": "s", "frames": len(frames), "not_compared": 0, "identical": True, "differences": []}
    assert elsewhere(tmp_path, "replay", "s", "--store", lives.url) == expected
    with open_store(lives.url) as store:
        outcome = replay.replay(replay.from_store(store, "s"))
    assert list(outcome.outputs) == told, "what each process answered, and nothing else"
    assert [canonical(frame) for frame in outcome.frames] == [canonical(frame) for frame in frames]


def test_a_session_whose_process_was_killed_replays_and_so_does_its_next_life(world: World) -> None:
    world.skill(".agents/skills/one", files={"scripts/x.sh": "#!/bin/sh\n"})
    store = MemoryStore()

    class Killed(BaseException):
        pass

    def die(job: Any) -> Outcome:
        raise Killed

    given: dict[str, Any] = {"id": "session", "store": store, "approve": lambda _: True}
    session = world.discover().session(runner=FakeRunner(default=die), **given)
    session.load("one")
    with pytest.raises(Killed):
        session.run("one", "scripts/x.sh")
    world.discover().session(**given).load("one")
    frames = store.read("session")
    assert [frame["operation"] for frame in frames if frame["type"] == "session_called"] == ["load", "run", "load"]
    assert [frame["status"] for frame in frames if frame["type"] == "session_returned"] == ["ok", "lost", "ok"]
    outcome = replay.replay(replay.from_store(store, "session"))
    assert outcome.differences == []
    assert outcome.not_compared == len([frame for frame in frames if frame.get("op") == lost_op(frames)])


def lost_op(frames: list[Frame]) -> str:
    return next(str(frame["op"]) for frame in frames if frame.get("status") == "lost")


def test_a_session_that_was_asked_for_nothing_replays(world: World) -> None:
    store = MemoryStore()
    session = world.discover().session(store=store)
    assert replay.replay(replay.from_store(store, session.id)).identical


def test_a_redacted_record_verifies_and_says_that_it_cannot_run(world: World, tmp_path: Path) -> None:
    world.skill(".agents/skills/one")
    store = MemoryStore()
    session = world.discover().session(store=store, policy={"redact": True})
    session.load("one", arguments="PRIVATE")
    file = tmp_path / "trail.jsonl"
    file.write_text("\n".join(store.export_lines(session.id)))
    assert "PRIVATE" not in file.read_text()
    done = CliRunner().invoke(cli, ["replay", "--verify", str(file), "--json"])
    assert (done.exit_code, json.loads(done.stdout)["identical"]) == (0, True)
    again = CliRunner().invoke(cli, ["replay", str(file), "--json"])
    assert again.exit_code == 1
    assert [one["kind"] for one in json.loads(again.stdout)["differences"]] == ["redacted"]


# --- scripts ---


@pytest.mark.system
@pytest.mark.behaviour("R-021", "R-044", "R-045", "R-048", "R-053")
def test_a_real_run_in_the_sandbox_replays_without_its_files(world: World) -> None:
    parts.require_sandbox()
    runner = choose()
    script = '#!/bin/sh\necho "given $1"\necho oops >&2\necho kept > "$WORK_DIR/out.txt"\nexit 3\n'
    world.skill(".agents/skills/one", files={"scripts/x.sh": script})
    store = MemoryStore()
    session = world.discover().session(store=store, runner=runner, policy={"allow": [{"tool": "skill_run"}]})
    result = session.run("one", "scripts/x.sh", ["word"])
    assert (result.exit_code, result.stdout, result.stderr) == (3, "given word\n", "oops\n")
    kinds = [frame["type"] for frame in session.events if frame["type"].startswith("tool_")]
    assert (kinds[0], kinds[-1], set(kinds[1:-1])) == ("tool_started", "tool_ended", {"tool_stdout", "tool_stderr"})
    (ended,) = [frame for frame in session.events if frame["type"] == "tool_ended"]
    assert (ended["exit_code"], ended["duration_ms"]) == (3, result.duration_ms)
    assert [(one["path"], one["size"]) for one in ended["artifacts"]] == [("out.txt", 5)]
    assert store.get_artifact(ended["artifacts"][0]["digest"]) == b"kept\n"
    shutil.rmtree(world.project)
    outcome = replay.replay(replay.from_store(store, session.id))
    assert outcome.differences == []
    assert outcome.outputs == [result.text]


# --- drift ---


def drifted(recorded: Recorded) -> list[str]:
    record = replay.from_store(recorded.store, recorded.session.id)
    return [one.detail.split(" ")[0] for one in replay.drift(record, recorded.world.discover())]


def test_nothing_has_drifted_while_the_files_are_the_same(recorded: Recorded) -> None:
    assert drifted(recorded) == []
    shutil.rmtree(recorded.world.project / ".agents/skills/two")
    assert "load" not in drifted(recorded)


@pytest.mark.parametrize(
    ("file", "expected"),
    [("SKILL.md", ["load", "run"]), ("a.md", ["read", "run"]), ("scripts/x.sh", ["run"])],
)  # a script may use any file of its skill
def test_a_drift_names_the_requests_that_an_edit_changes(recorded: Recorded, file: str, expected: list[str]) -> None:
    path = recorded.world.project / ".agents/skills/one" / file
    path.write_text(path.read_text() + "\nmore\n")
    assert drifted(recorded) == expected


def test_a_drift_runs_no_script_and_remembers_no_answer(world: World) -> None:
    world.skill(".agents/skills/one", files={"scripts/x.sh": "#!/bin/sh\n"})
    runner = FakeRunner(default=Outcome(0, "exit", 3, b"printed\n", b""))
    store = MemoryStore()
    session = world.discover().session(store=store, approve=lambda _: "always", runner=runner)
    session.run("one", "scripts/x.sh")
    answers = world.home / ".config/metier/permissions.toml"
    answers.unlink()
    assert replay.drift(replay.from_store(store, session.id), world.discover()) == []
    assert len(runner.jobs) == 1
    assert not answers.exists()


def test_drift_on_the_command_line_uses_the_profile_of_then(world: World, tmp_path: Path) -> None:
    path = world.skill(".rip/skills/one", body="# One\n")
    url = f"sqlite://{tmp_path}/trail.db"
    shared = ["--cwd", str(world.project), "--home", str(world.home), "--store", url]
    assert CliRunner().invoke(cli, ["load", "one", "--profile", "rip", *shared]).exit_code == 0
    same = CliRunner().invoke(cli, ["replay", "--drift", *shared])
    assert (same.exit_code, same.stdout) == (0, "6 frames: nothing has drifted\n")
    write_skill(path.parent, body="# Changed\n")
    other = CliRunner().invoke(cli, ["replay", "--drift", "--json", *shared])
    (difference,) = json.loads(other.stdout)["differences"]
    assert other.exit_code == 1
    assert (difference["kind"], difference["index"]) == ("drift", 2)
    assert (difference["expected"], difference["found"]) == ("# One\n", "# Changed\n")
