"""A script gets a secret only by a rule for its skill at its digest, in its own runs, and is told of the others."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import forking
import parts
from asked import words
from every_surface import JsonRpc
from metier.errors import ConfigError, MetierError
from metier.files.source import take_folder
from metier.policy.decide import Policy
from metier.policy.question import Question
from metier.record.store.memory import MemoryStore
from metier.replay import from_store, replay
from metier.running.sandbox import Job, Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.running.secrets.storage import SecretStorage
from metier.session.session import Session
from metier.values.results import Request
from people import Person
from worlds import World

VALUE = "ghp_0123456789abcdef"
SCRIPT = 'import os\nprint("has", os.environ.get("GITHUB_TOKEN"), os.environ.get("OTHER_KEY"))\n'
SKILL = "~/.agents/skills/gh"


def said(job: Job) -> Outcome:
    """Prints what the script of these tests would print, without a process, and fails without the token."""
    shown = f"has {job.env.get('GITHUB_TOKEN')} {job.env.get('OTHER_KEY')}\n"
    return Outcome(int("GITHUB_TOKEN" not in job.env), "exit", 1, shown.encode(), b"", protections=("no-network",))


def config(world: World) -> str:
    return str(world.home / ".config/metier")


def skill(world: World, script: str = SCRIPT, **given: Any) -> Path:
    return world.skill(SKILL, files={"scripts/say.py": script}, **given)


def rule(path: Path, name: str = "GITHUB_TOKEN") -> dict[str, str]:
    return {"tool": "run_secret", "name": name, "skill_name": "gh", "digest": take_folder(str(path.parent)).digest}


def opened(world: World, *rules: dict[str, str], **given: Any) -> Session:
    options: dict[str, Any] = {"policy": {"allow": [{"tool": "skill_run"}, *rules]}, "runner": FakeRunner(default=said)}
    return world.discover().session(**options | given)


def keep(world: World, **secrets: str) -> None:
    for name, value in secrets.items():
        SecretStorage(config(world)).set(name, value, in_file=True)


def test_a_rule_gives_one_secret_to_one_skill_at_its_digest(world: World) -> None:
    path = skill(world)
    world.skill("~/.agents/skills/other", files={"scripts/say.py": SCRIPT})
    keep(world, GITHUB_TOKEN=VALUE, OTHER_KEY="another-value-1")
    store = MemoryStore()
    session = opened(world, rule(path), store=store)
    assert session.run("gh", "scripts/say.py").stdout == "has [secret GITHUB_TOKEN] None\n"
    assert session.run("other", "scripts/say.py").stdout == "has None None\n", "it is for one skill"
    path.parent.joinpath("notes.md").write_text("changed")
    assert session.run("gh", "scripts/say.py").stdout == "has None None\n", "and for one content"
    started = [
        frame["grants"].get("secrets", {}).get("names") for frame in session.events if frame["type"] == "tool_started"
    ]
    assert started == [["GITHUB_TOKEN"], None, None]
    assert replay(from_store(store, session.id)).identical


def test_a_secret_that_is_denied_unreadable_or_removed_is_not_given_and_it_is_said(world: World) -> None:
    path = skill(world)
    keep(world, GITHUB_TOKEN=VALUE)
    denied = {"allow": [{"tool": "skill_run"}, rule(path)], "deny": [{"tool": "run_secret"}]}
    assert opened(world, policy=denied).run("gh", "scripts/say.py").stdout == "has None None\n"
    redacted = {"allow": [{"tool": "skill_run"}, rule(path)], "redact": True}
    session = opened(world, policy=redacted)
    assert session.run("gh", "scripts/say.py", [VALUE]).stdout == "has [secret GITHUB_TOKEN] None\n"
    assert VALUE not in json.dumps(session.events)
    assert '"args": ["[redacted]"]' in json.dumps(session.events)
    file = world.home / ".config/metier/secrets/GITHUB_TOKEN.secret"
    file.chmod(0o644)
    result = opened(world, rule(path)).run("gh", "scripts/say.py")
    assert ("has None" in result.stdout, "the secret GITHUB_TOKEN cannot be read" in result.text) == (True, True)
    file.chmod(0o600)
    session = opened(world, rule(path))
    SecretStorage(config(world)).remove("GITHUB_TOKEN")
    result = session.run("gh", "scripts/say.py")
    assert "has None" in result.stdout
    assert "the user can set it with `metier secret set GITHUB_TOKEN` and give it with" in result.text


def test_a_rule_that_gives_every_secret_or_to_every_skill_is_refused(world: World) -> None:
    for wrong in ({"skill_name": "gh"}, {"name": "X"}, {"name": "X", "scope": "user"}):
        with pytest.raises(ConfigError, match="run_secret"):
            Policy.from_settings({"allow": [{"tool": "run_secret", **wrong}]}, world.discover().profile)


def test_the_model_reads_which_commands_give_a_secret(world: World) -> None:
    skill(world, metadata={"requires": {"env": ["MAIL_PASSWORD"]}})
    session = opened(world)
    session.call("skill_load", {"name": "gh"})
    text = session.call("skill_run", {"name": "gh", "script": "scripts/say.py"}).text
    for name in ("GITHUB_TOKEN", "MAIL_PASSWORD", "OTHER_KEY"):
        assert f"`metier secret set {name}` and give it with `metier secret allow {name} gh`" in text
    keep(world, GITHUB_TOKEN=VALUE)
    text = session.call("skill_run", {"name": "gh", "script": "scripts/say.py"}).text
    assert "which no rule gives it; the user can give it with `metier secret allow GITHUB_TOKEN gh`" in text


def test_the_one_question_names_the_secrets_and_always_covers_just_them(world: World) -> None:
    path = skill(world)
    keep(world, GITHUB_TOKEN=VALUE, OTHER_KEY="another-value-1")
    person = Person("always")

    def asked(*names: str) -> int:
        skills = world.discover()
        rules = {"allow": [rule(path, name) for name in names]}
        policy = Policy.from_settings(rules, skills.profile).with_answers_of(skills.settings)
        skills.session(policy=policy, approve=person, runner=FakeRunner(default=said)).run("gh", "scripts/say.py")
        return len(person.asked)

    both = ("GITHUB_TOKEN", "OTHER_KEY")
    assert [asked(), asked(), asked(*both[:1]), asked(*both[:1]), asked(*both), asked()] == [1, 1, 2, 2, 3, 3]
    assert [request.as_dict().get("secrets", ()) for request in person.asked] == [(), both[:1], both]
    text = words(Question.of(person.asked[1]).as_text())
    assert "Secrets It is given GITHUB_TOKEN as variables." in text
    assert "as long as no file of the skill changes and it is given the same." in text


def test_a_refused_run_with_secrets_replays(world: World) -> None:
    path = skill(world)
    keep(world, GITHUB_TOKEN=VALUE)
    store = MemoryStore()
    for answer, problem in (("no", None), ("always", "no sandbox here")):
        runner = FakeRunner(problem=problem)
        session = opened(world, policy={"allow": [rule(path)]}, approve=Person(answer), store=store, runner=runner)
        with pytest.raises(MetierError):
            session.run("gh", "scripts/say.py")
        assert replay(from_store(store, session.id)).identical


def test_a_value_in_an_argument_reaches_the_script_and_nothing_else(world: World) -> None:
    skill(world)
    keep(world, GITHUB_TOKEN=VALUE)
    asked: list[Request] = []
    runner = FakeRunner(default=said)
    session = opened(world, policy={}, runner=runner, approve=lambda request: asked.append(request) is None)
    session.call("skill_load", {"name": "gh"})
    given = {"name": "gh", "script": "scripts/say.py", "arguments": [f"--token={VALUE}"]}
    shown = session.call("skill_run", given)
    assert runner.jobs[0].argv == (f"--token={VALUE}",)
    everything = json.dumps(session.events) + repr(asked) + shown.text + json.dumps(shown.as_dict())
    assert VALUE not in everything
    assert "--token=[secret GITHUB_TOKEN]" in everything
    assert asked[0].arguments == ("--token=[secret GITHUB_TOKEN]",)


@pytest.mark.system
def test_a_server_sees_what_another_process_sets_and_takes_back(world: World) -> None:
    parts.require_sandbox()
    skill(world)
    environment = {**os.environ, "HOME": str(world.home)}

    def call(*words: str, data: str = "") -> str:
        line = [*forking.METIER, *words]
        done = forking.run(line, input=data, capture_output=True, text=True, cwd=world.project, env=environment)
        assert done.returncode == 0, done.stderr
        assert VALUE not in done.stdout + done.stderr
        return done.stdout

    store = str(world.home / "record.db")
    surface = JsonRpc(world, store)
    try:
        given = {"name": "gh", "script": "scripts/say.py"}
        assert surface("run", given) == "has None None\n"
        call("secret", "set", "GITHUB_TOKEN", "--in-file", data=f"{VALUE}\n")
        assert surface("run", given) == "has None None\n"
        call("secret", "allow", "GITHUB_TOKEN", "gh")
        assert surface("run", given) == "has [secret GITHUB_TOKEN] None\n"
        assert "GITHUB_TOKEN  file     gh\n" in call("secret", "list")
        call("secret", "remove", "GITHUB_TOKEN")
        assert surface("run", given) == "has None None\n"
        assert "run_secret" not in call("policy", "list"), "the rule goes with the secret"
    finally:
        surface.close()
