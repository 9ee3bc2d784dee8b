"""A rule that could never match is an error in the same words, wherever it comes from."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from calling import Run
from metier import ConfigError, MetierError, Policy, Rule, replay
from metier.app import App
from metier.hosts import profiles
from metier.hosts.profiles import BUILT_IN
from metier.hosts.settings import resolve
from metier.policy.rules import own_tools
from metier.record.store.memory import MemoryStore
from metier.session.session import Session
from metier.surfaces.rpc import pipe
from metier.values.results import Request
from metier.values.skill import SCOPES
from worlds import World

pytest_plugins = ["surfaces.cli.cli_fixtures"]

SKILLS = ".agents/skills"
OWN = ", ".join(own_tools())
HOST = "Bash, Read, Write, Edit, Glob, Grep, WebFetch, WebSearch; tools.host names those of your host"
RELATIVE = "(write it relative to the skill's folder, such as scripts/a.sh or references/*)"
WRONG = {
    "a role": ({"tool": "run"}, f"there is no tool 'run' (did you mean skill_run? known: {OWN}, {HOST})"),
    "a pattern": ({"tool": "*"}, f"there is no tool '*' (known: {OWN}, {HOST})"),
    "a typo": ({"tool": "skill_lod"}, f"there is no tool 'skill_lod' (did you mean skill_load? known: {OWN}, {HOST})"),
    "a scope": (
        {"tool": "skill_run", "scope": "project"},
        "there is no scope 'project' (did you mean repo? known: extra, repo, user, admin, mcp)",
    ),
    "a path that begins with a dot": (
        {"tool": "skill_run", "path": "./scripts/a.sh"},
        f"no request for skill_run has the path './scripts/a.sh' {RELATIVE}",
    ),
    "an absolute path": (
        {"tool": "skill_read", "path": "/scripts/*"},
        f"no request for skill_read has the path '/scripts/*' {RELATIVE}",
    ),
    "a relative path": (
        {"tool": "skill_load", "path": "pdf/SKILL.md"},
        (
            "no request for skill_load has the path 'pdf/SKILL.md' "
            "(write the path of SKILL.md, or a glob such as */SKILL.md)"
        ),
    ),
    "a path where there is none": (
        {"tool": "skill_search", "path": "*"},
        "a request for skill_search has no path (leave it out)",
    ),
    "a skill where there is none": (
        {"tool": "skill_search", "skill_name": "pdf"},
        (
            "a request for skill_search is about no skill "
            "(leave out what limits the rule to some skills; to hide a skill from the model, deny skill_load)"
        ),
    ),
    "a path for a tool of the host": ({"tool": "Bash", "path": "*"}, "a request for Bash has no path (leave it out)"),
    "a command where there is none": (
        {"tool": "skill_load", "command": "x"},
        "a request for skill_load has no command (leave it out)",
    ),
    "a digest": (
        {"tool": "skill_run", "digest": "xyz"},
        "digest cannot be 'xyz' (a digest is sha256: and 64 hexadecimal digits, as `metier policy list` shows them)",
    ),
    "a digest where there is none": (
        {"tool": "skill_load", "digest": f"sha256:{'0' * 64}"},
        "a request for skill_load has no digest (leave it out)",
    ),
    "an empty name": ({"tool": "skill_load", "skill_name": ""}, "skill_name is empty (leave it out for every skill)"),
    "a name": (
        {"tool": "skill_run", "name": "TOKEN"},
        "name is the name of a secret, so its rule needs the tool run_secret",
    ),
}


@pytest.fixture(params=list(WRONG))
def wrong(request: pytest.FixtureRequest) -> tuple[dict[str, str], str]:
    return WRONG[request.param]


def config(world: World, text: str, name: str = "config.toml") -> Path:
    file = world.home / ".config/metier" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def toml(rule: dict[str, Any]) -> str:
    return Rule(**rule).as_toml()


@pytest.mark.system
@pytest.mark.parametrize("verdict", ["allow", "deny", "ask"])
def test_in_the_users_file_no_session_opens_and_the_error_has_its_place(
    world: World, run: Run, wrong: tuple[dict[str, str], str], verdict: str
) -> None:
    rule, says = wrong
    world.skill(f"{SKILLS}/one", body="BODY")
    file = config(world, f'[permissions]\nredact = false\n{verdict} = [{{ tool = "Bash" }}, {toml(rule)}]\n')
    home = ("--home", str(world.home))
    for command in (("load", "one"), ("policy", "list"), ("policy", "explain", "skill_load"), ("rpc",), ("mcp",)):
        done = run(*command, *home)
        assert (done.code, done.out, done.err) == (2, "", f"metier: {file}:3: {says}\n"), command
    assert "BODY" not in run("load", "one", *home).out
    for command in ("list", "doctor"):
        (note,) = (note for note in run(command, *home, "--json").json["diagnostics"] if note["code"] == "rule-wrong")
        assert (note["severity"], note["path"], note["line"]) == ("error", str(file), 3)
        assert says == f"{note['message']} ({note['hint']})" if note["hint"] else note["message"]


def test_in_the_projects_file_and_among_the_answers(world: World, run: Run, wrong: tuple[dict[str, str], str]) -> None:
    rule, says = wrong
    world.skill(f"{SKILLS}/one")
    project = world.project / ".metier/config.toml"
    project.parent.mkdir()
    project.write_text(f"[permissions]\ndeny = [{toml(rule)}]\n")
    assert run("load", "one", "--home", str(world.home)).err == f"metier: {project}:2: {says}\n"
    project.unlink()
    answers = config(world, f"allow = [{toml(rule)}]\n", "permissions.toml")
    assert run("load", "one", "--home", str(world.home)).err == f"metier: {answers}: {says}\n"


def test_in_python_as_data_and_as_objects(world: World, wrong: tuple[dict[str, Any], str]) -> None:
    rule, says = wrong
    skills = world.discover()
    policies: list[Any] = [{"deny": [rule]}, {"ask": [Rule(**rule)]}, Policy(allow=(Rule(**rule),))]
    for policy in policies:
        with pytest.raises(ConfigError) as error:
            skills.session(policy=policy)
        assert str(error.value) == says


@pytest.mark.parametrize("tool", ["skill_run", "install", "mcp_load"])
def test_a_digest_limits_what_is_run_installed_and_fetched(world: World, tool: str) -> None:
    world.discover().session(policy={"allow": [{"tool": tool, "digest": f"sha256:{'0' * 64}"}]})


def test_on_the_command_line(world: World, run: Run) -> None:
    done = run("policy", "explain", "run", "--home", str(world.home))
    assert (done.code, done.err) == (2, f"metier: {WRONG['a role'][1]}\n")
    done = run("policy", "explain", "run", "--home", str(world.home), "--json")
    assert json.loads(done.err)["error"]["code"] == "INVALID_PARAM"


# --- names that no skill has ---


@pytest.mark.system
def test_a_name_that_no_skill_has_is_a_warning(world: World, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    world.skill("~/.agents/skills/release-notes")
    config(world, '[permissions]\ndeny = [{tool = "skill_run", skill_name = "relese-notes"}, {tool = "skill_run"}]\n')
    says = "no skill here has the name of the deny rule for skill_run, 'relese-notes'; did you mean release-notes?"
    home = ("--home", str(world.home))
    assert says in run("policy", "list", *home).err
    assert run("policy", "list", "--json", *home).json["warnings"] == [says]
    assert says in str(run("doctor", "--json", *home).json["diagnostics"])
    pipe.serve(App(world.project, home=world.home, store="memory:"), io.BytesIO(), io.StringIO())
    assert f"rule-without-skill: {says}" in caplog.messages, "before a client asks for anything"
    config(world, '[permissions]\ndeny = [{tool = "skill_run", skill_name = "rel*"}]\n')
    assert run("policy", "list", "--json", *home).json["warnings"] == []


# --- links ---


def test_a_rule_about_a_file_holds_for_a_link_that_leads_there(world: World) -> None:
    files = {"references/a.md": "SECRET", "references/b.md": "OTHER", "plain.md": "PLAIN"}
    folder = world.skill("~/.agents/skills/one", files=files).parent
    (folder / "link.md").symlink_to("references/a.md")
    (folder / "more").symlink_to("references")
    (folder / "fine.md").symlink_to("plain.md")
    rule = {"tool": "skill_read", "path": "references/*"}
    for lists in ({"deny": [rule]}, {"ask": [rule]}):
        store = MemoryStore()
        session = world.discover().session(policy=lists, store=store)
        for path in ("link.md", "more/b.md", "references/a.md"):
            answer = session.call("skill_read", {"name": "one", "path": path})
            assert (answer.ok, "SECRET" in answer.text, "OTHER" in answer.text) == (False, False, False), path
        with pytest.raises(MetierError, match=r"is a link to references/a\.md, which a rule is about"):
            session.read("one", "link.md", raw=True)
        assert "PLAIN" in session.call("skill_read", {"name": "one", "path": "fine.md"}).text
        assert replay.replay(replay.from_store(store, session.id)).identical


# --- the words that are allowed ---


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_tool_has_metiers_name_and_the_hosts_and_both_decide(world: World, name: str) -> None:
    settings = resolve(world.project, home=world.home, profile=name)
    profile = settings.profile
    for role, word in profile.tools.by_role().items():
        for written in (word, f"skill_{role}"):
            policy = Policy.from_settings({"deny": [{"tool": written}]}, profile)
            assert policy.decide(Request(f"skill_{role}", "one")).verdict == "deny"
            assert Policy(deny=(Rule(written),)).under(settings).deny == (Rule(f"skill_{role}"),)
    for word in (*own_tools(), *profile.tools.host):
        assert Policy.from_settings({"deny": [{"tool": word}]}, profile).decide(Request(word)).verdict == "deny"


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_scope_is_one_of_those_that_hold_everywhere_or_of_the_host(name: str) -> None:
    profile = profiles.build(profiles.load(name))
    own = {profile.extra_scope, profile.custom_scope, *(root.scope for root in profile.roots)}
    assert own <= {*SCOPES, "project"}
    for scope in own:
        policy = Policy.from_settings({"deny": [{"tool": "skill_load", "scope": scope}]}, profile)
        assert policy.decide(Request("skill_load", scope=scope)).verdict == "deny"
    for scope in SCOPES:
        Policy.from_settings({"deny": [{"tool": "skill_load", "scope": scope}]}, profile)


@pytest.mark.parametrize(
    ("profile", "folder"), [("standard", SKILLS), ("omp", ".omp/skills"), ("mycodeagent", "skills")]
)
@pytest.mark.parametrize("settings", [{}, {"directories": ["skills"]}], ids=["roots", "directories"])
def test_the_projects_scope_has_one_word(world: World, profile: str, folder: str, settings: dict[str, Any]) -> None:
    world.skill(f"{'skills' if settings else folder}/one")
    skills = world.discover(profile, settings=settings)
    rules = {"deny": [{"tool": "skill_load", "scope": "repo"}]}
    assert [skill.name for skill in skills] == ["one"]
    assert skills.session(policy=rules).prompt().shown == 0
    assert skills.session(policy={}).prompt().shown == 1


def test_a_setting_names_the_tools_of_the_host(world: World) -> None:
    rules = {"deny": [{"tool": "shell", "command": "rm *"}]}
    with pytest.raises(ConfigError, match="there is no tool 'shell'"):
        world.discover().session(policy=rules)
    session = world.discover(settings={"tools": {"host": ["shell"]}}).session(policy=rules)
    assert (session.may_use("shell", "rm -r /"), session.may_use("shell", "ls")) == (False, True)
    listed = world.discover().session(policy={"tools": ["shell"], **rules})
    assert not listed.may_use("shell", "rm -r /")


def test_a_record_with_such_a_rule_replays_as_it_was(world: World) -> None:
    world.skill(f"{SKILLS}/one", body="BODY")
    store = MemoryStore()
    rules = Policy(deny=(Rule("run", scope="project"),), on_remember=lambda _: None)
    session = Session(world.discover(), id="old", policy=rules, store=store)
    session.load("one")
    record = replay.from_store(store, "old")
    assert record.frames[0]["policy"]["deny"] == [{"tool": "run", "scope": "project"}]
    assert replay.replay(record).identical
    assert replay.drift(record, world.discover()) == []
