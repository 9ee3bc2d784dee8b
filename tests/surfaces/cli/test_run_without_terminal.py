"""Where nobody can be asked, `metier run` needs `--yes` or a rule, as `metier install` does."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import forking
import parts
from metier import PolicyDenied, Skills
from metier.policy.rules import Rule
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.session.context import Asked, SessionContext, Work
from metier.session.operations import Run
from metier.values.results import RunResult
from worlds import World

RUN = ("run", "one", "scripts/x.sh")
ASKS = "metier: there is no terminal to ask for confirmation (pass --yes, or allow it in [permissions] of "
Metier = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def metier(world: World, tmp_path: Path) -> Metier:
    parts.require_sandbox()
    world.skill("~/.agents/skills/one", files={"scripts/x.sh": "#!/bin/sh\necho RAN\ncat\n"})
    shared = ["--cwd", str(world.project), "--home", str(world.home), "--store", f"sqlite://{tmp_path}/s.db"]

    def call(*arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        line = [*forking.METIER, *arguments, *shared]
        return forking.run(line, input=given, capture_output=True, text=True, env=dict(os.environ))

    return call


@pytest.mark.system
def test_it_is_refused_with_the_ways_out_and_both_work(world: World, metier: Metier) -> None:
    refused = metier(*RUN)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(ASKS)
    kinds = {json.loads(line)["type"] for line in metier("events", "--json").stdout.splitlines()}
    assert "session_started" in kinds
    assert not kinds & {"skill_loaded", "policy_asked", "tool_started"}, "nothing ran by the record either"
    world.skill("new")
    for line in (RUN, ("install", "new")):
        done = metier(*line, "--json")
        error = json.loads(done.stderr)["error"]
        assert (done.returncode, error["code"], error["exit_code"], error["key"]) == (2, "INVALID_PARAM", 2, "--yes")
    assert metier(*RUN, "--stdin", given="y\n").returncode == 2, "standard input for the script is no answer"
    assert metier(*RUN, "--stdin", "--yes", given="y\n").stdout == "RAN\ny\n"
    rule = refused.stderr.partition(" with ")[2].strip().removesuffix(")")
    world.configure_user(f"[permissions]\n{rule}\n")
    allowed = metier(*RUN)
    assert (allowed.returncode, allowed.stdout) == (0, "RAN\n")


def test_what_changes_after_the_check_is_not_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent with a shell could exchange a script between the check and the run."""
    script = (
        world.skill("~/.agents/skills/one", files={"scripts/x.sh": "#!/bin/sh\necho OLD\n"}).parent / "scripts/x.sh"
    )
    runner = FakeRunner(default=Outcome(exit_code=0, ended="exit", duration_ms=1))
    skills = Skills.discover(world.project, home=world.home)
    (asked,) = skills.session(runner=runner).questions(Run(name="one", script="scripts/x.sh"))[-1:]
    allowed = skills.session(policy={"allow": [Rule.covering(asked)]}, runner=runner)
    check = SessionContext.unasked

    def exchanging(context: SessionContext, work: Work[RunResult]) -> Asked:
        checked = check(context, work)  # the second time, there is no script to check
        script.write_text("#!/bin/sh\necho NEW\n")
        return checked

    monkeypatch.setattr(SessionContext, "unasked", exchanging)
    allowed.perform(Run(name="one", script="scripts/x.sh"), unasked=False)
    (job,) = runner.jobs
    file = job.tree.file("scripts/x.sh") if job.tree is not None else None
    assert file is not None
    assert b"OLD" in file.data
    script.unlink()
    with pytest.raises(PolicyDenied, match="it changed after the question was asked"):
        allowed.perform(Run(name="one", script="scripts/x.sh"), unasked=False)
    assert len(runner.jobs) == 1


@pytest.mark.system
def test_a_rule_is_an_answer_and_only_yes_stands_in_for_a_person(world: World, metier: Metier) -> None:
    for rules, more, code, yes in (
        ('allow = [{ tool = "skill_run" }]', (), 0, 0),
        ('allow = [{ tool = "skill_run", skill_name = "one", scope = "user" }]', (), 0, 0),
        ('profile = "full-auto"', (), 0, 0),
        ('allow = [{ tool = "skill_run" }]', ("--write",), 2, 0),
        ('allow = [{ tool = "skill_run", path = "scripts/other.sh" }]', (), 2, 0),
        ('ask = [{ tool = "skill_run" }]', (), 2, 0),
        ('unasked = "allow"', (), 2, 0),
        ('deny = [{ tool = "skill_run" }]', (), 3, 3),
        ('profile = "read-only"', (), 3, 3),
    ):
        world.configure_user(f"[permissions]\n{rules}\n")
        for line, expected in ((RUN, code), ((*RUN, "--yes"), yes)):
            done = metier(*line, *more)
            assert (done.returncode, done.stdout) == (expected, "" if expected else "RAN\n"), (rules, done.stderr)
