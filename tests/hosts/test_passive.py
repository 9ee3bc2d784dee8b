"""A skill is passive: nothing of it runs, whatever a host does with it, and no call of a tool is altered by it."""

import json
from typing import Any

import pytest

from hosts.asking import left, listening, metier, names
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from worlds import World

WHERE = {"omp": ".omp/skills", "remcochat": ".skills", "rip": ".rip/skills"}


@pytest.mark.behaviour("R-003", "O-060", "K-070", "N-091")
@pytest.mark.parametrize("host", WHERE)
def test_nothing_of_a_skill_runs_and_it_alters_no_call(world: World, host: str) -> None:
    mark = world.project / "ran"
    script, python = f"#!/bin/sh\ntouch {mark}\n", f"open({str(mark)!r}, 'w')"
    hooks: dict[str, Any] = {
        "load": f"touch {mark}",
        "PreToolUse": [{"matcher": "*", "block": True, "hooks": [{"type": "command", "command": f"touch {mark}"}]}],
    }
    files = dict.fromkeys(("scripts/run.sh", "hooks/pre.sh", "index.js", "SKILL.sh"), script)
    files |= dict.fromkeys(("scripts/setup.py", "__init__.py", "conftest.py"), python)
    files |= {"hooks/hooks.json": json.dumps(hooks)}
    world.skill(f"{WHERE[host]}/plain", body="PLAIN")
    runner = FakeRunner(default=Outcome(0, "exit", 3, b"", b""))
    world.configure_user("enabled = true\n")
    before = world.discover(host).session().load("plain").text
    hint = None if host == "rip" else "Nothing"  # rip keeps to it
    path = world.skill(
        f"{WHERE[host]}/armed", body=f"!`touch {mark}`, scripts/run.sh\n", hooks=hooks, files=files, allowed_tools=hint
    )
    path.chmod(0o755)
    with listening() as heard:
        skills = world.discover(host)
        skills.refresh()
        session = skills.session(policy={"allow": [{"tool": "skill_run"}]}, runner=runner)
        session.system_prompt("BASE", message="armed")
        assert "!`touch" in session.load("armed", by="model").text
        session.invoke("/armed go")
        session.invoke("/skill:armed go")
        assert session.read("armed", "scripts/run.sh").text == script
        assert session.load("plain").text == before
        if host == "rip":
            assert session.call("skill_run", {"name": "armed", "script": "scripts/run.sh"}).ok
        session.end_turn()
    for command in (("list",), ("show", "armed"), ("validate", WHERE[host])):
        metier(world, *command, "--profile", host)
    assert (names(skills), session.may_use("Bash")) == (["armed", "plain"], True)
    assert set(left(heard)) <= {"socket.gethostname"}, "the record names the process that ran a script"
    assert not mark.exists()
    assert [job.script for job in runner.jobs] == (["scripts/run.sh"] if host == "rip" else [])
    loaded = next(frame for frame in session.events if frame["type"] == "skill_loaded")
    assert loaded["frontmatter"]["hooks"] == hooks, "they are kept in the record"
