"""Policy: what the rules decide, what an answer changes for good, and that no skill ever makes more possible."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from metier.catalog.build import Catalog, build_catalog
from metier.catalog.discover import Found
from metier.catalog.modes import Modes
from metier.errors import ConfigError
from metier.files.digests import digest_of
from metier.hosts.profiles import build, load
from metier.hosts.roots import Place
from metier.hosts.settings import resolve
from metier.policy.decide import DEFAULTS, Policy, Request, Rule
from metier.policy.windows import may_use, of
from metier.record.state import Window
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.session.session import Session
from metier.surfaces.cli import cli
from metier.values.grants import grant_tools
from metier.values.skill import Root, Skill
from worlds import World

STANDARD = build(load("standard"))
SCRIPT = {"scripts/x.sh": "#!/bin/sh\n"}


def policy(**given: Any) -> Policy:
    return Policy.from_settings(given, STANDARD)


def a_skill(name: str = "one", hint: list[str] | None = None) -> Skill:
    path = f"/skills/{name}/SKILL.md"
    front: dict[str, Any] = {"name": name} | ({"allowed-tools": hint} if hint is not None else {})
    return Skill(name, "Does it.", path, path, Root("/skills", "repo", "agents"), 0, 0, front)


def printed(text: str) -> Outcome:
    return Outcome(0, "exit", 1, text.encode(), b"")


# --- rules ---


@pytest.mark.behaviour("N-093")
@pytest.mark.parametrize("name", list(DEFAULTS))
@pytest.mark.parametrize(
    ("listed", "verdict"),
    [
        (("deny", "allow", "ask"), "deny"),
        (("deny", "ask"), "deny"),
        (("deny",), "deny"),
        (("allow", "ask"), "allow"),
        (("allow",), "allow"),
        (("ask",), "ask"),
    ],
)
@pytest.mark.parametrize("tool", ["skill_load", "skill_run", "override", "install", "run_network", "Bash"])
def test_deny_outranks_allow_outranks_ask(name: str, listed: tuple[str, ...], verdict: str, tool: str) -> None:
    rules = policy(profile=name, **{key: [{"tool": tool}] for key in listed})
    decision = rules.decide(Request(tool, "any"))
    assert (decision.verdict, decision.rule) == (verdict, Rule(tool))
    assert decision.why == f"{verdict} rule: tool = {tool!r}"


@pytest.mark.parametrize(
    ("name", "verdicts"),
    [
        ("read-only", {"skill_run": "deny", "install": "deny", "override": "deny"}),
        ("default", {"skill_run": "ask", "install": "deny", "override": "deny"}),
        ("full-auto", {"skill_run": "allow", "install": "allow", "override": "allow"}),
    ],
)
def test_what_no_rule_covers_follows_the_defaults_and_a_grant_needs_a_rule(name: str, verdicts: dict[str, str]) -> None:
    rules = policy(profile=name, allow=[{"tool": "Write"}])
    for tool in ("skill_load", "skill_read", "skill_search", "Bash"):
        assert rules.decide(Request(tool)).verdict == "allow"
    assert {tool: rules.decide(Request(tool)).verdict for tool in verdicts} == verdicts
    assert {rules.decide(Request(grant)).verdict for grant in grant_tools()} == {"deny"}
    assert repr(name) in rules.decide(Request("skill_run")).why


@pytest.mark.behaviour("N-093")
@pytest.mark.parametrize(
    ("rule", "request_", "matches"),
    [
        ({"path": "references/*"}, {"path": "references/a.md"}, True),
        ({"path": "references/*"}, {"path": "scripts/a.md"}, False),
        ({"path": "*.md"}, {"path": "a/b.MD"}, False),
        ({"path": "x/[ab]/*"}, {"path": "x/a/b.md"}, True),
        ({"command": "scripts/x.sh *"}, {"command": "scripts/x.sh --force"}, True),
        ({"command": "scripts/x.sh *"}, {"command": "scripts/x.sh"}, False),
        ({"command": "*--force*"}, {"command": "scripts/x.sh -f"}, False),
        ({"skill_name": "a*"}, {"skill_name": "ab"}, True),
        ({"skill_name": "a*"}, {"skill_name": "ba"}, False),
        ({"skill_name": "gro\u0308\u00dfe"}, {"skill_name": "gr\u00f6\u00dfe"}, True),
        ({"skill_name": "gr\u00f6\u00dfe"}, {"skill_name": "gro\u0308\u00dfe"}, True),
        ({"skill_name": "a"}, {"skill_name": "a"}, True),
        ({"skill_name": "a"}, {"skill_name": "ab"}, False),
        ({"skill_name": "a", "path": "*"}, {"skill_name": "b", "path": "x"}, False),
        ({"digest": digest_of(b"1")}, {"digest": digest_of(b"1")}, True),
        ({"digest": digest_of(b"1")}, {"digest": digest_of(b"2")}, False),
        ({"digest": digest_of(b"1")}, {}, False),
    ],
)
def test_a_rule_matches_by_globs(rule: dict[str, str], request_: dict[str, str], matches: bool) -> None:
    asked = replace(Request("skill_run"), **request_)
    rules = policy(deny=[{"tool": "skill_run", **rule}], allow=[{"tool": "skill_run"}])
    assert (rules.decide(asked).verdict == "deny") is matches
    assert rules.decide(replace(asked, tool="skill_load")).verdict == "allow"


def test_an_answer_for_good_about_a_skill_named_like_a_glob_is_for_that_skill() -> None:
    rules = policy()
    rules.remember(Request("skill_run", "a[b]*"))
    verdicts = {name: rules.decide(Request("skill_run", name)).verdict for name in ("a[b]*", "ab", "abc", "a[b]c")}
    assert verdicts == {"a[b]*": "allow", "ab": "ask", "abc": "ask", "a[b]c": "ask"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"allwo": []}, "unknown key permissions.allwo"),
        ({"profile": "yolo"}, "there is no policy 'yolo'"),
        ({"deny": {}}, "permissions.deny must be a list of rules"),
        ({"deny": ["skill_load"]}, "must be a table with a tool"),
        ({"deny": [{"skill_name": "a"}]}, "must be a table with a tool"),
        (
            {"deny": [{"tool": "a", "skil_name": "x"}]},
            r"unknown key skil_name .*did you mean skill_name\? known: tool, ",
        ),
    ],
)
def test_a_wrong_policy_is_a_configuration_error(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        policy(**given)


@pytest.mark.parametrize(
    ("profile", "name", "kept"),
    [
        ("codelia", "Repo_Review", False),
        ("codelia", "repo*", False),
        ("codelia", "", False),
        ("rip", "größe", True),
        ("rip", "Größe", False),
        ("standard", "My_Skill", True),
        ("omp", "My Skill", True),
    ],
)
def test_a_rule_is_dropped_only_if_no_skill_of_the_host_can_bear_its_name(profile: str, name: str, kept: bool) -> None:
    rules = Policy.from_settings({"deny": [{"tool": "skill_load", "skill_name": name}]}, build(load(profile)))
    assert (rules.decide(Request("skill_load", name)).verdict == "deny") is kept
    assert len(rules.warnings) == (0 if kept else 1)


# --- answers ---


def run(session: Session) -> str:
    return session.run("one", "scripts/x.sh").text


@pytest.mark.parametrize(("answer", "asked"), [("once", 2), (True, 2), ("always", 1), ("remember", 1)])
def test_a_yes_holds_once_or_for_good(world: World, answer: bool | str, asked: int) -> None:
    world.skill(".agents/skills/one", files=SCRIPT)
    questions: list[Request] = []
    runner = FakeRunner(default=lambda job: printed("done"))
    session = world.discover().session(approve=lambda r: questions.append(r) or answer, runner=runner)
    assert [run(session), run(session)] == ["done", "done"]
    assert len(questions) == asked
    assert (questions[0].tool, questions[0].path, questions[0].detail) == ("skill_run", "scripts/x.sh", "#!/bin/sh\n")


@pytest.mark.parametrize("name", ["größe", 'a"b', "a\x7fb", "\U0001f600", "a\\b"])
def test_any_name_survives_the_file_of_answers(world: World, name: str) -> None:
    config = resolve(world.project, home=world.home)
    first, second = Policy.configured(config), Policy.configured(config)
    for rules in (first, second, first):
        rules.remember(Request("skill_load", name))
    assert [rule.as_dict() for rule in second.rules().allow] == [{"tool": "skill_load", "skill_name": name}]


def test_an_answer_never_breaks_a_file_that_says_it_another_way(world: World) -> None:
    file = world.home / ".config/metier/permissions.toml"
    file.parent.mkdir(parents=True)
    file.write_text('allow = [{ tool = "skill_read" }]\n')
    world.skill(".agents/skills/one", files=SCRIPT)
    session = world.discover().session(approve=lambda _: "always", runner=FakeRunner())
    with pytest.raises(ConfigError, match="cannot be added"):
        run(session)
    assert file.read_text() == 'allow = [{ tool = "skill_read" }]\n'


@pytest.mark.parametrize(
    ("arguments", "verdict", "rule", "code"),
    [
        (("skill_run", "--skill", "one"), "ask", None, 0),
        (("skill_run", "--skill", "two"), "allow", {"tool": "skill_run", "skill_name": "two"}, 0),
        (("skill_read", "--path", "keys/a.pem"), "deny", {"tool": "skill_read", "path": "*.pem"}, 3),
        (("run_network", "--skill", "two"), "deny", None, 3),
    ],
)
def test_explain_says_which_rule_decides(
    world: World, arguments: tuple[str, ...], verdict: str, rule: dict[str, str] | None, code: int
) -> None:
    world.configure_user(
        '[permissions]\nallow = [{ tool = "skill_run", skill_name = "two" }]\n'
        'deny = [{ tool = "skill_read", path = "*.pem" }]\n'
    )
    given = ["policy", "explain", *arguments, "--cwd", str(world.project), "--home", str(world.home)]
    done = CliRunner().invoke(cli, [*given, "--json"])
    assert done.exit_code == code
    said = json.loads(done.stdout)
    assert (said["verdict"], said["rule"]) == (verdict, rule)
    assert CliRunner().invoke(cli, given).stdout == f"{verdict}: {said['why']}\n"


# --- properties ---

TOOLS = ("Bash", "Read", "skill_run", "install", "run_network")
NAMES = ("one", "two", "three")
rules_ = st.lists(
    st.builds(
        lambda tool, name, command: {"tool": tool, **name, **command},
        st.sampled_from(TOOLS),
        st.sampled_from(({}, *({"skill_name": name} for name in NAMES))),
        st.sampled_from(({}, {"command": "git*"}, {"command": "*"})),
    ).map(lambda rule: {key: value for key, value in rule.items() if key != "command" or rule["tool"] != "install"}),
    max_size=4,
)
policies = st.fixed_dictionaries(
    {"profile": st.sampled_from(list(DEFAULTS)), "allow": rules_, "deny": rules_, "ask": rules_},
    optional={"tools": st.lists(st.sampled_from(TOOLS))},
)
hints = st.one_of(st.none(), st.lists(st.sampled_from((*TOOLS, "Bash(git:*)", "Other", "Read(x)")), max_size=4))
commands = st.sampled_from(("", "git add", "rm -rf /"))


def nothing_found() -> Catalog:
    place = Place("/project", "/home", "/project", {})
    return build_catalog(build(load("standard")), place, (), Found(), Modes("/none", "/project"))


def usable(rules: Policy, command: str, windows: Sequence[Window] = ()) -> set[str]:
    active = {f"/{window.name}/SKILL.md": window for window in windows}
    return {tool for tool in (*TOOLS, "Other") if may_use(rules, nothing_found(), active, tool, command)}


@pytest.mark.behaviour("R-023", "R-024", "R-027", "R-030")
@given(policies, st.lists(hints, max_size=3), commands)
@settings(max_examples=100)
def test_no_skill_and_no_number_of_skills_makes_more_usable(
    given_: dict[str, Any], hinted: list[list[str] | None], command: str
) -> None:
    rules = policy(**given_)
    alone = usable(rules, command)
    before = alone
    windows: list[Window] = []
    for name, hint in zip(NAMES, hinted, strict=False):
        windows.append(Window(name, of(a_skill(name, hint))))
        after = usable(rules, command, windows)
        assert after <= before
        if hint is not None:
            listed = {entry.partition("(")[0] for entry in hint}
            assert after <= (listed | {"skill_run"} if "Bash" in listed else listed)
        before = after
    assert usable(rules, command) == alone


@pytest.mark.behaviour("R-023", "R-024", "R-025", "R-027")
@given(policies, hints, st.sampled_from(NAMES))
@settings(max_examples=100)
def test_effective_tools_are_never_more_than_policy_allows_or_the_hint_names(
    given_: dict[str, Any], hint: list[str] | None, name: str
) -> None:
    rules = policy(**given_)
    effective = rules.effective_tools(a_skill(name, hint))
    if effective is None:
        assert hint is None
        assert rules.tools is None
        return
    assert set(effective) <= set(hint if hint is not None else rules.tools or ())
    for entry in effective:
        tool = entry.partition("(")[0]
        assert rules.tools is None or tool in rules.tools
        assert rules.decide(Request(tool, name)).verdict != "deny"


def test_a_verdict_says_whether_a_rule_or_the_default_gave_it() -> None:
    policy = Policy.from_settings({"deny": [{"tool": "skill_load"}]}, build(load("standard")))
    assert [policy.decide(Request(tool)).by_default for tool in ("skill_load", "skill_read")] == [False, True]
