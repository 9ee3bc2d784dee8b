"""Hosts that rules give a script: what it gets, what a person is asked, and what the record and the model say."""

from typing import Any

import pytest

import parts
from calling import caller
from metier import ConfigError, SandboxUnavailable
from metier.policy.question import Question
from metier.record.store.memory import MemoryStore
from metier.replay import from_store, replay
from metier.running.sandbox import HostAttempt, Job, Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.session.session import Session
from people import Person
from worlds import World

RUN = {"tool": "skill_run"}
HOST = {"tool": "run_network", "host": "API.Example.org"}
REFUSED = [
    HostAttempt("api.example.org", 443, True),
    HostAttempt("evil.example.org", 8443, False, "not-listed"),
    HostAttempt("old.example.org", 443, False, "denied"),
    HostAttempt("api.example.org", 80, False, "private-address"),
    HostAttempt("evil.example.org", 8443, False, "not-listed"),
    HostAttempt("", 0, False, "bad-request"),
    HostAttempt("api.example.org", 443, True, "unreachable"),
]


def trying(job: Job) -> Outcome:
    """A run that tries to connect to several hosts, and to others too often to list them."""
    for attempt in REFUSED:
        assert job.on_attempt is not None
        job.on_attempt(attempt)
    return Outcome(0, "exit", 3, b"said\n", attempts_left_out=1234)


def opened(world: World, policy: dict[str, Any], **given: Any) -> tuple[Session, FakeRunner]:
    world.skill(".agents/skills/fetch", files={"scripts/get.py": "print(1)\n"})
    runner = FakeRunner(default=given.pop("answer", Outcome(0, "exit", 1)))
    return world.discover().session(runner=runner, policy=policy, **given), runner


ANY, OLD = {"tool": "run_network"}, {"tool": "run_network", "host": "old.example.org"}
NONE = "It has no network."
RULES: list[tuple[dict[str, Any], bool, tuple[str, ...], str]] = [
    ({"allow": [HOST]}, False, ("api.example.org",), "It may connect to api.example.org, and to nothing else."),
    (
        {"allow": [HOST, {**ANY, "scope": "repo", "host": "*.test.org:8443"}, HOST]},
        False,
        ("api.example.org", "*.test.org:8443"),
        "It may connect to api.example.org, *.test.org:8443, and to nothing else.",
    ),
    (
        {"allow": [{**HOST, "host": "*.example.org"}], "deny": [OLD]},
        False,
        ("*.example.org", "!old.example.org"),
        "It may connect to *.example.org, but not to old.example.org, and to nothing else.",
    ),
    ({"allow": [HOST], "deny": [HOST]}, False, (), NONE),
    ({"allow": [HOST], "deny": [ANY]}, False, (), NONE),
    ({"allow": [HOST, ANY]}, True, (), "It may use the network."),
    ({"allow": [ANY], "deny": [HOST]}, False, (), NONE),
    ({"allow": [{**HOST, "skill_name": "other"}]}, False, (), NONE),
    ({"ask": [HOST]}, False, (), NONE),
]


def test_rules_for_hosts_add_up_and_a_deny_rule_outranks_them(world: World) -> None:
    for rules, network, hosts, says in RULES:
        person = Person("once")
        session, runner = opened(world, rules, approve=person)
        session.run("fetch", "scripts/get.py")
        assert (runner.jobs[0].network, runner.jobs[0].hosts, len(person.asked)) == (network, hosts, 1), rules
        assert {fact.label: fact.text for fact in Question.of(person.asked[0]).facts}["Network"] == says
        started = next(frame for frame in session.events if frame["type"] == "tool_started")
        assert tuple(started.get("grants", {}).get("network", {}).get("hosts", ())) == hosts


def test_a_rule_by_name_gives_no_host_to_a_skill_that_a_foreign_project_brings(world: World) -> None:
    session, runner = opened(world, {"allow": [RUN, {**HOST, "skill_name": "fetch"}]})
    session.run("fetch", "scripts/get.py")
    assert runner.jobs[0].hosts == ()
    other, again = opened(world, {"allow": [RUN, {**HOST, "skill_name": "fetch", "scope": "repo"}]})
    other.run("fetch", "scripts/get.py")
    assert again.jobs[0].hosts == ("api.example.org",)


def test_a_rule_with_a_wrong_host_is_a_configuration_error(world: World) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({**HOST, "host": "127.1"}, "host cannot be '127.1' in a rule of permissions.allow: it is not the address"),
        ({**HOST, "host": "*"}, r"it has a \* that is not all of its first part"),
        ({**HOST, "host": "*.org"}, "covers too much"),
        ({"tool": "skill_run", "host": "a.org"}, "needs the tool run_network"),
        ({**HOST, "host": 5}, "host must be text"),
    ]
    for rule, says in wrong:
        with pytest.raises(ConfigError, match=says):
            opened(world, {"allow": [rule]})


def test_an_answer_for_good_covers_the_hosts_that_the_person_was_shown(world: World) -> None:
    person = Person("always")

    def run(*hosts: str) -> int:
        rules = {"allow": [{"tool": "run_network", "host": host} for host in hosts]}
        opened(world, rules, approve=person)[0].run("fetch", "scripts/get.py")
        return len(person.asked)

    counts = [run(), run(), run("a.org"), run("a.org"), run("a.org", "b.org"), run("b.org"), run("a.org"), run()]
    assert counts == [1, 1, 2, 2, 3, 4, 4, 4], "asked once for each set of hosts, and again for none of them"


def test_each_attempt_is_in_the_record_the_answer_and_the_replay(world: World) -> None:
    store = MemoryStore()
    session, _ = opened(world, {"allow": [RUN, HOST]}, answer=trying, store=store)
    session.load("fetch")
    told = session.call("skill_run", {"name": "fetch", "script": "scripts/get.py"}).text
    frames = [frame for frame in session.events if frame["type"] == "tool_network"]
    seen = [(one.get("host", ""), one["port"], one["allowed"], one.get("reason", "")) for one in frames]
    assert seen == [(one.host, one.port, one.allowed, one.reason) for one in REFUSED]
    ended = next(frame for frame in session.events if frame["type"] == "tool_ended")
    assert ended["attempts_left_out"] == 1234
    rule = 'allow = [{ tool = "run_network", skill_name = "fetch", scope = "repo", source = "agents", '
    rule += 'host = "evil.example.org:8443" }]'
    config = "~/.config/metier/config.toml"
    notes = [
        f"refused: evil.example.org:8443; the user can allow it in [permissions] of {config} with {rule}",
        "refused: old.example.org:443 is a host that a rule denies; only the user or the host can lift that rule",
        f"refused: api.example.org:80 is not on the public internet; the user can set run.private_hosts in {config}",
        "refused: a request that is not valid for a proxy",
        "not reached: api.example.org:443 cannot be reached",
        "1,234 more attempts to connect to a host are only counted",
    ]
    assert ended["notes"] == notes
    assert all(note in told for note in notes)
    outcome = replay(from_store(store, session.id))
    assert outcome.identical, outcome.differences


@pytest.mark.system
def test_without_a_sandbox_a_script_with_hosts_runs_only_with_the_whole_network(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metier.running.scripts.default_runner", lambda _: None)
    world.skill(".agents/skills/fetch", files={"scripts/get.py": "print('ran')\n"})
    bare = {"tool": "run_unsandboxed"}
    session = world.discover().session(policy={"allow": [RUN, bare, HOST]})
    with pytest.raises(SandboxUnavailable, match="cannot be limited to hosts"):
        session.run("fetch", "scripts/get.py")
    assert [frame["type"] for frame in session.events if frame["type"].startswith("tool_")] == ["tool_failed"]
    whole = world.discover().session(policy={"allow": [RUN, bare, HOST, {"tool": "run_network"}]})
    assert whole.run("fetch", "scripts/get.py").stdout == "ran\n"


# --- the command line, in a real sandbox ---


@pytest.mark.system
def test_a_person_gives_one_run_a_host_on_the_command_line(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.require_sandbox()
    text = "import urllib.request\ntry: urllib.request.urlopen('https://evil.test/')\nexcept OSError as e: print(e)\n"
    world.skill(".agents/skills/fetch", files={"scripts/get.py": text})
    metier = caller(world, capsys, monkeypatch)
    line = ["run", "fetch", "scripts/get.py", "--home", str(world.home), "--yes"]
    given = metier(*line, "--host", "api.test", "--json")
    assert "403 not an allowed host" in given.json["stdout"]
    assert 'host = "evil.test"' in str(given.json["notes"])
    assert "403" not in metier(*line).out, "it was for one run"
    wrong = metier(*line, "--host", "evil test")
    assert (wrong.code, wrong.out) == (2, "")
    assert "'evil test' is not the name of a host" in wrong.err
