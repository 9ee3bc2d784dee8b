"""One session, several processes: each knows what the others did, and the record of all of them replays."""

import json
import logging
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lives import Lives, Rpc, RpcFailure
from metier import replay
from metier.app import App
from metier.errors import InvalidSkill, MetierError, ResourceError, SkillNotFound
from metier.files import process
from metier.policy.decide import Policy
from metier.record.state import SNAPSHOT, fold
from metier.record.store import STATE_BYTES, Frame, open_store
from metier.record.store.memory import MemoryStore
from metier.running.sandbox import Job, Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.running.world import LiveWorld
from metier.session.session import Session
from metier.testing import write_skill
from patience import PATIENCE
from watching import wait_for
from worlds import World

SKILLS = ".agents/skills"
RUNS = '[permissions]\nallow = [{tool = "skill_run"}, {tool = "run_project"}, {tool = "run_unsandboxed"}]\n'
"""Scripts run in the sandbox and may read the project, and on a machine without a sandbox they run, too."""

WAITS = """#!/bin/sh
echo "$1 began"
left=600
while [ $left -gt 0 ]; do
    ls "$PROJECT_DIR" | grep -qx go && echo "$1 ended" && exit
    sleep 0.05
    left=$((left - 1))
done
"""
"""Waits for a file in the project, which it lists: a name that a sandbox did not find once may stay unfound."""

QUICK = '#!/bin/sh\necho "quick $1"\n'


@pytest.fixture
def lives(world: World, tmp_path: Path) -> Lives:
    return Lives(world, f"sqlite://{tmp_path}/trail.db")


def of_type(frames: list[Frame], kind: str) -> list[Frame]:
    return [frame for frame in frames if frame["type"] == kind]


# --- one process after the other ---


# --- two processes at once ---


def wait_for_output(lives: Lives, session: str, text: str) -> None:
    def has_it() -> bool:
        return any(text in frame["text"] for frame in of_type(lives.frames(session), "tool_stdout"))

    wait_for(has_it, f"the script to print {text!r}")


@pytest.mark.system
@pytest.mark.behaviour("R-047", "R-049")
def test_two_processes_work_on_one_session_while_a_script_runs(lives: Lives) -> None:
    world = lives.world
    lives.permissions(RUNS)
    world.skill(f"{SKILLS}/slow", files={"scripts/x.sh": WAITS})
    world.skill(f"{SKILLS}/quick", files={"scripts/x.sh": QUICK, "a.md": "the reference"})
    world.skill(f"{SKILLS}/late")
    with lives.rpc() as one, lives.rpc() as two:
        one.call("session.create", session_id="s")
        one.tool("s", "skill_load", name="slow")
        running = one.send(
            "session.call",
            session_id="s",
            tool="skill_run",
            args={"name": "slow", "script": "scripts/x.sh", "arguments": ["it"]},
        )
        wait_for_output(lives, "s", "it began")
        assert two.tool("s", "skill_load", name="slow")["already_loaded"]
        assert two.tool("s", "skill_load", name="quick")["ok"]
        assert two.tool("s", "skill_read", name="quick", path="a.md")["text"] == "the reference"
        quick = two.tool("s", "skill_run", name="quick", script="scripts/x.sh", arguments=["2"])
        assert quick["stdout"] == "quick 2\n"
        two.call("session.end_turn", session_id="s")
        two.tool("s", "skill_load", name="late")
        (world.project / "go").touch()
        slow = one.receive(running)
        assert slow["stdout"] == "it began\nit ended\n"
        assert one.tool("s", "skill_load", name="late")["already_loaded"]
    frames = lives.frames("s")
    ops = {frame["op"]: frame["operation"] for frame in of_type(frames, "session_called")}
    assert all(frame["op"] in ops for frame in frames if frame["type"].startswith("tool_"))
    for op in ops:
        of_op = [frame["type"] for frame in frames if frame["op"] == op]
        assert (of_op[0], of_op[-1]) == ("session_called", "session_returned")
        assert of_op.count("session_returned") == 1
    (slow_op,) = {frame["op"] for frame in of_type(frames, "tool_started") if frame["name"] == "slow"}
    printed = [frame["text"] for frame in of_type(frames, "tool_stdout") if frame["op"] == slow_op]
    assert "".join(printed) == "it began\nit ended\n"
    places = [frame["seq"] for frame in frames if frame["op"] == slow_op]
    assert places[-1] - places[0] > len(places)  # others wrote in between
    shutil.rmtree(world.project / SKILLS)
    assert lives.replayed("s").not_compared == 0


@pytest.mark.system
def test_any_process_answers_any_call(lives: Lives) -> None:
    lives.permissions(RUNS + 'profile = "full-auto"\n')
    world = lives.world
    world.skill(f"{SKILLS}/one", body="# One\n$ARGUMENTS\n", allowed_tools="Read", model="small")
    world.skill(f"{SKILLS}/two", body="# Two\n", allowed_tools="Read Bash", context="fork")
    with lives.rpc() as first, lives.rpc() as second:
        first.call("session.create", session_id="s")
        for here, there, name, known in (
            (first, second, "one", {"model": "small"}),
            (second, first, "two", {"model": "small", "context": "fork"}),
        ):
            loaded = here.tool("s", "skill_load", name=name)
            assert not loaded["already_loaded"]
            again = there.tool("s", "skill_load", name=name)
            assert again["already_loaded"]
            assert loaded["ref"] in again["text"]
            assert f"# {name.title()}" in there.tool("s", "skill_output", ref=loaded["ref"])["text"]
            assert name in there.call("session.system_prompt", session_id="s")["text"]
            state = there.call("session.state", session_id="s")
            assert state == here.call("session.state", session_id="s")
            assert state["overrides"] == known
            assert state["activated_skill_names"][-1] == name
            for process in (here, there):
                assert not process.call("session.may_use", session_id="s", tool="Bash")["allowed"]
        second.call("session.end_turn", session_id="s")
        assert first.call("session.may_use", session_id="s", tool="Bash")["allowed"]
        assert "overrides" not in first.call("session.state", session_id="s")
        assert first.call("session.events", session_id="s") == second.call("session.events", session_id="s")
    lives.replayed("s")


def test_sessions_of_two_apps_in_two_threads_keep_their_runs_apart(world: World, tmp_path: Path) -> None:
    """The same where no sandbox works, with a runner that waits for the other."""
    world.skill(f"{SKILLS}/one", files={"scripts/a.sh": "#!/bin/sh\n", "scripts/b.sh": "#!/bin/sh\n"})
    began, go = threading.Event(), threading.Event()

    def slow(_: Job) -> Outcome:
        began.set()
        assert go.wait(PATIENCE)
        return Outcome(0, "exit", 3, b"slow\n", b"")

    url = f"sqlite://{tmp_path}/trail.db"
    settings = {"permissions": {"allow": [{"tool": "skill_run"}]}}
    apps = [App(world.project, home=world.home, store=url, settings=settings) for _ in range(2)]
    apps[0].runner = FakeRunner(default=slow)
    apps[1].runner = FakeRunner(default=Outcome(0, "exit", 3, b"quick\n", b""))
    got: list[str] = []
    thread = threading.Thread(target=lambda: got.append(apps[0].session("s").run("one", "scripts/a.sh").stdout))
    thread.start()
    assert began.wait(PATIENCE)
    assert apps[1].session("s").run("one", "scripts/b.sh").stdout == "quick\n"
    apps[1].session("s").end_turn()
    go.set()
    thread.join()
    assert got == ["slow\n"]
    assert Lives(world, url).replayed("s").not_compared == 0
    for app in apps:
        app.close()


# --- the policy in force ---


def policy_of_each_call(frames: list[Frame]) -> list[dict[str, Any]]:
    """The policy that the record has for each operation: of its beginning, as changed since."""
    policies: dict[str, dict[str, Any]] = {}
    found: list[dict[str, Any]] = []
    life_of: dict[str, str] = {}
    for frame in frames:
        if frame["type"] == "session_started":
            policies[frame["id"]] = frame["policy"]
        elif frame["type"] == "session_called":
            life_of[frame["id"]] = frame["life"]
        elif frame["type"] == "policy_changed":
            policies[life_of[frame["op"]]] = frame["policy"]
        elif frame["type"] == "session_returned":
            found.append(policies[life_of[frame["op"]]])
    return found


@pytest.mark.system
def test_two_processes_with_different_policies_take_turns(lives: Lives) -> None:
    lives.world.skill(f"{SKILLS}/one", model="large")
    with lives.rpc() as careful:
        careful.call("session.create", session_id="s")
        careful.call("session.load", session_id="s", name="one")
        lives.permissions('[permissions]\nprofile = "full-auto"\n')
        with lives.rpc() as bold:
            for process in (bold, careful, bold, careful):
                process.call("session.load", session_id="s", name="one")
    frames = lives.frames("s")
    assert [frame["granted"] for frame in of_type(frames, "skill_override_proposed")] == [False, *[True, False] * 2]
    assert [policy["profile"] for policy in policy_of_each_call(frames)] == ["default", *["full-auto", "default"] * 2]
    lives.replayed("s")


def test_a_grant_shared_between_sessions_is_in_each_record_before_it_is_relied_on(world: World) -> None:
    world.skill(f"{SKILLS}/one", files={"scripts/x.sh": "#!/bin/sh\n"})
    skills, store = world.discover(), MemoryStore()
    rules = Policy.from_settings({}, skills.profile)
    asked: list[str] = []

    def approve(request: Any) -> str:
        asked.append(request.tool)
        return "always"

    def session(name: str) -> Session:
        runner = FakeRunner(default=Outcome(0, "exit", 3, b"ran\n", b""))
        return skills.session(id=name, store=store, policy=rules, approve=approve, runner=runner)

    one, two = session("one"), session("two")
    two.load("one")
    one.run("one", "scripts/x.sh")
    two.run("one", "scripts/x.sh")
    assert asked == ["skill_run"]
    for made in (one, two):
        frames = made.events
        (changed,) = of_type(frames, "policy_changed")
        (started,) = of_type(frames, "tool_started")
        assert changed["seq"] < started["seq"]
        assert changed["policy"] == two.policy.as_dict()
        assert policy_of_each_call(frames)[-1] == made.policy.as_dict()
        assert replay.replay(replay.from_store(store, made.id)).differences == []
    assert of_type(two.events, "policy_asked") == []


# --- skills that are gone or broken by now ---


def steps_on(session: Session, name: str) -> list[str]:
    """What a person, and a model, get for a skill: the texts of all answers."""
    said: list[str] = []
    for work in (
        lambda: session.read(name, "a.md").text,
        lambda: session.read(name, "SKILL.md").text,
        lambda: session.load(name).text,
        lambda: session.run(name, "scripts/x.sh").text,
    ):
        try:
            said.append(work())
        except MetierError as error:
            said.append(f"{type(error).__name__}: {error}")
    for tool, arguments in (
        ("skill_read", {"name": name, "path": "a.md"}),
        ("skill_load", {"name": name}),
        ("skill_run", {"name": name, "script": "scripts/x.sh"}),
    ):
        said.append(session.call(tool, arguments).text)
    return said


@pytest.mark.parametrize("noticed", [False, True], ids=["before the next scan", "after a scan"])
def test_a_removed_skill_is_said_to_be_removed(world: World, noticed: bool) -> None:
    world.skill(f"{SKILLS}/one", files={"a.md": "a", "scripts/x.sh": "#!/bin/sh\n"})
    skills, store = world.discover(), MemoryStore()
    session = skills.session(
        store=store,
        policy={"allow": [{"tool": "skill_run"}]},
        runner=FakeRunner(default=Outcome(0, "exit", 3, b"ran\n", b"")),
    )
    session.load("one")
    shutil.rmtree(world.project / SKILLS / "one")
    if noticed:
        skills.refresh()
    said = steps_on(session, "one")
    assert all("removed" in text for text in said), said
    outcome = replay.replay(replay.from_store(store, session.id))
    assert outcome.differences == []
    assert list(outcome.outputs[1:5]) == [text.partition(": ")[2] for text in said[:4]]


@pytest.mark.parametrize("noticed", [False, True], ids=["before the next scan", "after a scan"])
@pytest.mark.parametrize("folder", ["one", "folder"])
def test_a_skill_that_became_invalid_is_said_by_its_own_name(world: World, folder: str, noticed: bool) -> None:
    place = world.skill(f"{SKILLS}/{folder}", name="one", files={"a.md": "a", "scripts/x.sh": "#!/bin/sh\n"})
    skills, store = world.discover(), MemoryStore()
    session = skills.session(store=store, policy={"allow": [{"tool": "skill_run"}]})
    session.load("one")
    place.write_text("---\nname: [\n---\n")
    if noticed:
        skills.refresh()
    before = session.state()
    for _ in range(2):
        for work in (lambda: session.load("one"), lambda: session.read("one", "SKILL.md")):
            with pytest.raises(InvalidSkill, match=str(place)):
                work()
        assert "broken" in session.call("skill_load", {"name": "one"}).text
    assert session.state() == before
    assert replay.replay(replay.from_store(store, session.id)).differences == []


def test_a_skill_that_the_session_never_loaded_is_unknown_once_it_is_gone(world: World) -> None:
    world.skill(f"{SKILLS}/one")
    world.skill(f"{SKILLS}/two")
    skills = world.discover()
    session = skills.session(store=MemoryStore())
    shutil.rmtree(world.project / SKILLS / "one")
    skills.refresh()
    for _ in range(2):
        with pytest.raises(SkillNotFound, match=r"no skill 'one'$"):
            session.load("one")
    with pytest.raises(ResourceError):
        session.read("two", "none.md")


# --- how much a session can hold ---


@pytest.mark.system
def test_long_arguments_and_thousands_of_skills_end_no_session(
    lives: Lives, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    world = lives.world
    for number in range(1_000):
        write_skill(world.project / SKILLS / f"skill-{number:04}", body=f"# {number}\n", description="Tiny.")
    skills, store = world.discover(), MemoryStore()
    with caplog.at_level(logging.INFO, "metier"):
        session = skills.session(id="s", store=store)
        for number in range(6):
            session.invoke("/skill-0000 " + "x" * 300_000 + str(number))
            session.load("skill-0000", arguments="y" * 300_000 + str(number))
        for number in range(1_000):
            session.load(f"skill-{number:04}")
    assert [record.getMessage() for record in caplog.records] == []
    assert len(session.activated) == 1_000
    document = store.load_state("s", SNAPSHOT)
    assert document is not None
    assert len(json.dumps(document.value, separators=(",", ":")).encode()) <= STATE_BYTES
    with open_store(lives.url) as kept:
        kept.import_lines(store.export_lines("s"))
    with lives.rpc() as later:
        assert later.tool("s", "skill_load", name="skill-0999")["already_loaded"]
        assert later.tool("s", "skill_load", name="skill-0001")["already_loaded"]
        long = later.tool("s", "skill_load", name="skill-0002", arguments="z" * 300_000)
        assert "z" * 300_000 in later.tool("s", "skill_output", ref=long["ref"])["text"]
        assert len(later.call("session.state", session_id="s")["activated_skill_names"]) == 1_000
    assert fold(lives.frames("s")).as_dict()["activated_skill_names"] == session.activated
    lives.replayed("s")
    assert later.log.read_text() == ""


# --- processes that end first ---


def lost(frames: list[Frame]) -> list[tuple[str, str]]:
    """The operations that were recorded as lost, each with the type of the frame that says so."""
    failed = [(f["op"], f["type"]) for f in of_type(frames, "tool_failed") if f["reason"] == "lost"]
    return failed + [(f["op"], f["type"]) for f in of_type(frames, "session_returned") if f["status"] == "lost"]


def start_waiting(lives: Lives, process: Rpc, session: str, word: str) -> int:
    number = process.send("session.run", session_id=session, name="slow", script="scripts/x.sh", arguments=[word])
    wait_for_output(lives, session, f"{word} began")
    return number


@pytest.mark.system
def test_what_a_killed_process_ran_is_recorded_as_lost_once(lives: Lives) -> None:
    lives.permissions(RUNS)
    lives.world.skill(f"{SKILLS}/slow", files={"scripts/x.sh": WAITS})
    with lives.rpc() as killed:
        killed.call("session.create", session_id="s")
        start_waiting(lives, killed, "s", "it")
        killed.kill()
    (started,) = of_type(lives.frames("s"), "tool_started")
    with lives.rpc() as one, lives.rpc() as two:
        calls = [(process, process.send("session.load", session_id="s", name="slow")) for process in (one, two)]
        for process, number in calls:
            assert process.receive(number)["already_loaded"]
    op = started["op"]
    frames = lives.frames("s")
    assert lost(frames) == [(op, "tool_failed"), (op, "session_returned")]
    assert [frame["type"] for frame in frames if frame["op"] == op][-2:] == ["tool_failed", "session_returned"]
    lives.run("load", "slow", "--session", "s")
    assert len(lost(lives.frames("s"))) == 2
    assert fold(lives.frames("s")).running == {}
    outcome = lives.replayed("s")
    assert outcome.not_compared == len([frame for frame in frames if frame["op"] == op])


class RacingStore(MemoryStore):
    """Lets another process write first, once."""

    meanwhile: Callable[[], object] | None = None

    def append(self, *given: Any, **named: Any) -> list[Frame]:
        work, self.meanwhile = self.meanwhile, None
        if work is not None:
            work()
        return super().append(*given, **named)


@pytest.mark.system
def test_of_two_processes_that_find_a_lost_operation_at_the_same_time_one_records_it(world: World) -> None:
    world.skill(f"{SKILLS}/one", files={"scripts/x.sh": "#!/bin/sh\n"})
    skills, recording, left = world.discover(), MemoryStore(), list[str]()
    ended = subprocess.Popen(["true"])
    ended.wait()
    name = f"{process.current().partition('-')[0]}-{ended.pid}-1"

    class OtherProcess(LiveWorld):
        def process(self) -> str:
            return name

    def run(job: Job) -> Outcome:
        job.started(())
        left.extend(recording.export_lines("s"))  # all that a process leaves that is killed now
        return Outcome(0, "exit", 3, b"", b"")

    Session(
        skills,
        id="s",
        store=recording,
        policy={"allow": [{"tool": "skill_run"}]},
        world=OtherProcess(runner=FakeRunner(default=run)),
    ).run("one", "scripts/x.sh")
    store = RacingStore()
    store.import_lines(left)
    given: dict[str, Any] = {"id": "s", "store": store, "policy": {"allow": [{"tool": "skill_run"}]}}
    store.meanwhile = lambda: skills.session(**given)
    skills.session(**given)
    frames = store.read("s")
    assert [kind for _, kind in lost(frames)] == ["tool_failed", "session_returned"]
    assert len({frame_op for frame_op, _ in lost(frames)}) == 1
    assert fold(frames).running == {}


@pytest.mark.system
def test_what_another_process_still_runs_is_left_alone(lives: Lives) -> None:
    lives.permissions(RUNS)
    lives.world.skill(f"{SKILLS}/slow", files={"scripts/x.sh": WAITS})
    with lives.rpc() as running, lives.rpc() as other:
        running.call("session.create", session_id="s")
        number = start_waiting(lives, running, "s", "it")
        other.call("session.load", session_id="s", name="slow")
        lives.run("load", "slow", "--session", "s")
        assert lost(lives.frames("s")) == []
        (lives.world.project / "go").touch()
        assert "it ended" in running.receive(number)["stdout"]
    lives.run("load", "slow", "--session", "s")
    assert lost(lives.frames("s")) == []
    lives.replayed("s")


def test_times_never_run_backwards_whatever_clocks_say(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.skill(f"{SKILLS}/one")
    skills, store = world.discover(), MemoryStore()
    ahead = skills.session(id="s", store=store)
    ahead.load("one")
    now = store.read("s")[-1]["timestamp_ms"]
    monkeypatch.setattr("metier.record.writer.time.time_ns", lambda: (now - 3_600_000) * 1_000_000)
    behind = skills.session(id="s", store=store)
    for session in (behind, ahead, behind):
        session.load("one")
    monkeypatch.setattr("metier.record.writer.time.time_ns", lambda: (now + 3_600_000) * 1_000_000)
    ahead.load("one")
    monkeypatch.setattr("metier.record.writer.time.time_ns", lambda: now * 1_000_000)
    behind.load("one")
    times = [frame["timestamp_ms"] for frame in store.read("s")]
    assert times == sorted(times)
    assert times[-1] == now + 3_600_000
    assert replay.replay(replay.from_store(store, "s")).differences == []


@pytest.mark.system
def test_a_session_that_was_only_created_is_there_after_a_kill_with_its_options(lives: Lives, tmp_path: Path) -> None:
    elsewhere = World(lives.world.home, tmp_path / "elsewhere")
    (elsewhere.project / ".git").mkdir(parents=True)
    lives.world.skill(f"{SKILLS}/here")
    for name in ("one", "two", "three"):
        elsewhere.skill(f"{SKILLS}/{name}", body=f"# Body of {name}\n")
    options = {"cwd": str(elsewhere.project), "only": ["one", "two"], "preload": ["two"], "has_read_tool": False}
    with lives.rpc() as first:
        assert first.call("session.create", session_id="s", tools=False, **options) == {"session_id": "s"}
        first.kill()
    with lives.rpc() as second:
        prompt = second.call("session.system_prompt", session_id="s")["text"]
        assert "# Body of two" in prompt
        assert "three" not in prompt
        assert second.call("session.tools", session_id="s") == []
        loaded = second.call("session.load", session_id="s", name="one")
        assert loaded["skill"]["path"] == os.fspath(elsewhere.project / SKILLS / "one" / "SKILL.md")
        for name in ("three", "here"):
            with pytest.raises(RpcFailure, match="no skill"):
                second.call("session.load", session_id="s", name=name)
    (started,) = of_type(lives.frames("s"), "session_started")
    shown = {key: started[key] for key in ("cwd", "only", "tools", "has_read_tool")}
    assert shown == {"cwd": options["cwd"], "only": ["one", "two"], "tools": False, "has_read_tool": False}
    assert [frame["name"] for frame in of_type(lives.frames("s"), "skill_loaded") if frame.get("preloaded")] == ["two"]
    lives.replayed("s")
