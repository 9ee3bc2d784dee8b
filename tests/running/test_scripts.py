"""Scripts of a skill through a session: policy first, then the sandbox, then the trail."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import parts
from metier import PolicyDenied, ResourceError, SandboxUnavailable
from metier.record.store.memory import MemoryStore
from metier.replay import from_store, replay
from metier.running.sandbox import Outcome, WrittenFile
from metier.running.sandbox.fake import FakeRunner
from metier.session.session import Session
from metier.values.grants import recorded_tools
from worlds import World

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "skills"
MARKER = "METIER-VALIDATION-SCRIPT-6J1X"
ALLOW = {"allow": [{"tool": "skill_run"}]}


@pytest.fixture
def sandbox() -> None:
    """The real one; skipped with one line where none works, but never in CI."""
    parts.require_sandbox()


def types(session: Session) -> list[str]:
    return [frame["type"] for frame in session.events if frame["type"].startswith("tool_")]


def probe(world: World, **fields: Any) -> None:
    world.skill(
        ".agents/skills/probe", files={"scripts/say.sh": "#!/bin/sh\necho said $1\n", "notes.sh": "x"}, **fields
    )


def opened(world: World, runner: FakeRunner | None = None, **given: Any) -> Session:
    answer = Outcome(0, "exit", 3, b"said\n", b"but\n", protections=("no-network",))
    return world.discover().session(runner=runner or FakeRunner(default=answer), **given)


@pytest.mark.system
@pytest.mark.behaviour("K-081", "R-021", "R-045")
@pytest.mark.usefixtures("sandbox")
def test_the_conformance_script_prints_its_marker_in_the_sandbox_and_in_the_replay(world: World) -> None:
    store = MemoryStore()
    session = world.discover(roots=[EXAMPLES]).session(policy=ALLOW, store=store)
    result = session.run("skills-system-validation", "scripts/echo.sh", ["one", "two words"])
    assert MARKER in result.stdout
    assert "[two words]" in result.stdout
    assert (result.exit_code, result.ended) == (0, "exit")
    assert "no-network" in result.protections
    assert types(session)[0] == "tool_started"
    assert types(session)[-1] == "tool_ended"
    started = next(frame for frame in session.events if frame["type"] == "tool_started")
    assert set(started["protections"]) == set(result.protections)
    assert any(MARKER in frame.get("text", "") for frame in session.events)
    again = replay(from_store(store, session.id))
    assert again.identical, again.differences
    assert any(MARKER in output for output in again.outputs)


@pytest.mark.system
@pytest.mark.usefixtures("sandbox")
def test_a_file_whose_name_is_not_utf8_is_kept_under_an_escaped_name_and_replays(world: World) -> None:
    lines = ["import os", "open(b'caf\\xe9.txt', 'w').write('kept')", "os.symlink('/etc', b'to\\xff')"]
    lines += ["os.mkdir(b'in\\xfe')", "open(b'in\\xfe/a.txt', 'w').write('inside')"]
    world.skill(".agents/skills/writer", files={"scripts/w.py": "\n".join(lines)})
    store = MemoryStore()
    session = world.discover().session(policy=ALLOW, store=store)
    result = session.run("writer", "scripts/w.py")
    assert result.exit_code == 0, result.stderr
    assert [one.path for one in result.artifacts] == ["caf\\udce9.txt", "in\\udcfe/a.txt"]
    assert "not kept: to\\udcff: a symbolic link" in result.notes
    json.dumps(result.as_dict(), ensure_ascii=False).encode()
    (ended,) = (frame for frame in session.events if frame["type"] == "tool_ended")
    assert [one["path"] for one in ended["artifacts"]] == [one.path for one in result.artifacts]
    assert [store.get_artifact(one["digest"]) for one in ended["artifacts"]] == [b"kept", b"inside"]
    again = replay(from_store(store, session.id))
    assert again.identical, again.differences


def test_a_host_without_a_tool_for_scripts_runs_none_until_its_switch_is_on(world: World) -> None:
    world.skill(".skills/probe", files={"scripts/say.sh": "echo"})
    runner = FakeRunner(default=Outcome(0, "exit", 1))
    off = world.discover("remcochat", settings={"enabled": True}).session(runner=runner, policy=ALLOW)
    assert all("run" not in tool.name.lower() for tool in off.tools())
    assert not off.call("skills.run", {"name": "probe", "script": "scripts/say.sh"}).ok
    assert runner.jobs == []
    switched = {"enabled": True, "tools.run": "skills.run"}
    on = world.discover("remcochat", settings=switched).session(runner=runner, policy=ALLOW)
    on.call("skills.activate", {"name": "probe"})
    assert on.call("skills.run", {"name": "probe", "script": "scripts/say.sh"}).ok
    assert len(runner.jobs) == 1


@pytest.mark.behaviour("K-076")
def test_a_skill_that_lists_its_tools_runs_scripts_only_if_running_is_among_them(world: World) -> None:
    for hint in (None, "Read skill_run", "Bash", "Bash(scripts/*)"):
        probe(world, allowed_tools=hint)
        assert opened(world, policy=ALLOW).run("probe", "scripts/say.sh").exit_code == 0, hint
    for hint in ("Read", "Bash(git:*)"):
        probe(world, allowed_tools=hint)
        with pytest.raises(PolicyDenied, match="allowed-tools"):
            opened(world, policy=ALLOW).run("probe", "scripts/say.sh")


def test_only_files_in_scripts_run(world: World) -> None:
    probe(world)
    runner = FakeRunner(default=Outcome(0, "exit", 1))
    session = opened(world, runner, policy=ALLOW)
    outside = {"notes.sh": "not a script", "SKILL.md": "not a script", "../x.sh": "traversal", "/bin/sh": "absolute"}
    for script, why in {**outside, "scripts": "folder", "scripts/none.sh": "File not found"}.items():
        with pytest.raises(ResourceError, match=why):
            session.run("probe", script)
    assert runner.jobs == []


def test_the_model_must_load_a_skill_first_and_reads_what_went_wrong(world: World) -> None:
    probe(world)
    session = opened(world, FakeRunner(default=SandboxUnavailable("none works")), policy=ALLOW)
    call = {"name": "probe", "script": "scripts/say.sh"}
    refused = session.call("skill_run", call)
    assert (refused.ok, "load" in refused.text) == (False, True)
    session.call("skill_load", {"name": "probe"})
    failed = session.call("skill_run", call)
    assert (failed.ok, "none works" in failed.text) == (False, True)


@pytest.mark.parametrize(
    ("rules", "check"),
    [
        ([], lambda job: not job.network and job.project and job.cwd == job.project and not job.project_writable),
        (["run_network"], lambda job: job.network and job.project is None),
        (["run_network", "run_project"], lambda job: job.network and job.project),
        (["run_project"], lambda job: job.project and not job.project_writable),
        (["run_project_write"], lambda job: job.project and job.project_writable),
    ],
)
def test_nothing_is_granted_beyond_the_sandbox_unless_a_rule_names_it(
    world: World, rules: list[str], check: Callable[[Any], object]
) -> None:
    probe(world)
    runner = FakeRunner(default=Outcome(0, "exit", 1))
    policy = {"profile": "full-auto", "allow": [{"tool": "skill_run"}, *({"tool": rule} for rule in rules)]}
    session = opened(world, runner, policy=policy)
    session.run("probe", "scripts/say.sh")
    assert check(runner.jobs[0])
    started = next(frame for frame in session.events if frame["type"] == "tool_started")
    assert sorted(recorded_tools(started.get("grants"))) == rules


def test_without_a_sandbox_a_run_is_refused_and_says_how_to_get_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe(world)
    monkeypatch.setattr("metier.running.scripts.default_runner", lambda _: None)
    monkeypatch.setenv("PATH", str(world.home))
    session = world.discover().session(policy=ALLOW)
    assert "skill_run" not in [tool.name for tool in session.tools()]
    monkeypatch.setattr("metier.running.sandbox.bubblewrap.shutil.which", lambda _: None)
    with pytest.raises(SandboxUnavailable) as refused:
        session.run("probe", "scripts/say.sh")
    assert refused.value.exit_code == 4


def test_a_run_that_is_ended_at_a_limit_says_so_and_replays(world: World) -> None:
    probe(world)
    written = WrittenFile("out.txt", 2, "", b"ok")
    outcome = Outcome(137, "timeout", 60_000, b"part", b"\xff\xfe", files=(written,), notes=("cut",))
    store = MemoryStore()
    session = opened(world, FakeRunner(default=outcome), policy=ALLOW, store=store)
    result = session.run("probe", "scripts/say.sh", stdin="in")
    assert (result.ended, result.exit_code) == ("timeout", 137)
    assert "timeout" in result.text
    assert types(session)[-2:] == ["tool_ended", "tool_failed"]
    assert replay(from_store(store, session.id)).identical
