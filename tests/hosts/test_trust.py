"""Trust: what a project's skills, settings and switches may do before the user says that the project is trusted, and
what they may never do."""

import json
from pathlib import Path
from typing import Any

import pytest

from calling import Run, caller
from metier import Skills
from metier.errors import ConfigError, PolicyDenied
from metier.hosts import profiles, settings
from metier.hosts.trust import trust
from metier.session.session import Session
from metier.values.skill import Diagnostic
from worlds import World

REQUIRED: dict[str, Any] = {"settings": {"permissions": {"trust": "required"}}}


def config(world: World) -> Path:
    folder = world.home / ".config/metier"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def both(world: World) -> World:
    world.skill(".agents/skills/theirs", body="THEIRS-MARKER", files={"a.md": "FILE", "scripts/x.sh": "#!/bin/sh\n"})
    world.skill("~/.agents/skills/mine", body="MINE-MARKER")
    return world


@pytest.fixture
def run(both: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return caller(both, capsys, monkeypatch)


def reachable(session: Session, name: str) -> bool:
    """Whether the model gets at a skill, in any of the ways it has."""
    path = str(session.skills[name].path)
    calls = [
        session.call("skill_load", {"name": name}),
        session.call("skill_load", {"path": path}),
        session.call("skill_read", {"name": name, "path": "SKILL.md"}),
        session.call("skill_run", {"name": name, "script": "scripts/x.sh"}),
    ]
    shown = f"{session.prompt().text}{[tool.as_dict() for tool in session.tools()]}"
    found = session.call("skill_search", {"query": name}).data["count"]
    ways = {name in shown, bool(found), *(result.ok for result in calls[:3])}
    assert len(ways) == 1, "all ways agree"
    return ways.pop()


@pytest.mark.parametrize(
    ("required", "trusted", "seen"),
    [(False, False, True), (False, True, True), (True, False, False), (True, True, True)],
)
@pytest.mark.parametrize("asks", ["permissions", "profile"])
def test_a_projects_skills_are_for_the_model_only_where_nobody_asks_for_trust_or_it_is_given(
    both: World, required: bool, trusted: bool, seen: bool, asks: str
) -> None:
    if required:
        text = '[permissions]\ntrust = "required"\n' if asks == "permissions" else '[policy]\ntrust = "required"\n'
        (config(both) / "config.toml").write_text(text)
    if trusted:
        trust(str(config(both)), str(both.project))
    skills = both.discover()
    session = skills.session()
    assert reachable(session, "theirs") is seen
    assert reachable(session, "mine") is True
    assert [skill.name for skill in skills] == ["mine", "theirs"]
    assert (skills["theirs"].visible, skills["theirs"].trusted, skills["mine"].trusted) == (seen, seen, True)
    notes = [d for d in skills.diagnostics if d.code == "untrusted"]
    assert len(notes) == (0 if seen else 1)
    assert all("metier trust" in d.hint and d.path == str(both.project) for d in notes)
    assert "THEIRS-MARKER" in skills.session().load("theirs").text
    assert session.invoke("/theirs").skill is not None


def test_an_untrusted_skill_is_not_preloaded_and_takes_no_name_from_a_skill_of_the_user(both: World) -> None:
    with pytest.raises(PolicyDenied, match="not trusted"):
        both.discover(**REQUIRED).session(preload=["theirs"])
    both.skill("given/extra", body="x")
    named = both.discover(roots=[both.project / "given"], **REQUIRED)
    assert [skill.name for skill in named if skill.trusted] == ["extra", "mine"], "a folder that the user names"
    both.skill(".agents/skills/mine", body="FALSE-MARKER")
    skills = both.discover(**REQUIRED)
    assert "MINE-MARKER" in skills.session().call("skill_load", {"name": "mine"}).text
    assert [entry.skill.path for entry in skills.shadowed] == [str(both.project / ".agents/skills/mine/SKILL.md")]
    both.trust()
    skills.refresh()
    assert "FALSE-MARKER" in skills.session().call("skill_load", {"name": "mine"}).text


def test_trust_is_of_the_real_folder_alone_and_of_none_where_it_cannot_be_read(both: World, tmp_path: Path) -> None:
    both.trust()
    link, other = tmp_path / "link", tmp_path / "project-two"
    link.symlink_to(both.project)
    assert Skills.discover(link, home=both.home, **REQUIRED)["theirs"].trusted
    (other / ".git").mkdir(parents=True)
    both.skill(str(other / ".agents/skills/theirs"))
    assert not Skills.discover(other, home=both.home, **REQUIRED)["theirs"].trusted
    for content in ("{", "[]", '{"projects": 3}', ""):
        (config(both) / "trust.json").write_text(content)
        skills = both.discover(**REQUIRED)
        assert not skills["theirs"].trusted
        assert "state-invalid" in [d.code for d in skills.diagnostics]
    old = {"version": 1, "projects": [str(both.project)]}  # of an earlier version, which showed no settings
    (config(both) / "trust.json").write_text(json.dumps(old))
    both.configure("catalog.max_skills = 5\n", trusted=False)
    skills = both.discover(**REQUIRED)
    assert (skills["theirs"].trusted, skills.profile.catalog.max_skills == 5) == (True, False)
    assert "catalog.max_skills" in str([d.message for d in skills.diagnostics if d.code == "untrusted"])


WAITING: dict[str, str] = {
    'profile = "omp"': "profile",
    "enabled = false": "enabled",
    'store = "/tmp/elsewhere.db"': "store",
    "store_required = false": "store_required",
    "telemetry = true": "telemetry",
    "cache = false": "cache",
    "catalog.max_skills = 9": "catalog.max_skills",
    'run.env = ["API_TOKEN"]': "run.env",
    "skills.run.seconds = 9": "run.seconds",
    "app.skills.policy.enforce_hints = false": "policy.enforce_hints",
    'tools.run = "run_it"': "tools.run",
    'custom_directories = ["elsewhere"]': "custom_directories",
    'check.hosts = ["./own.toml"]': "check.hosts",
    "profile.standard.catalog.max_skills = 9": "profile.standard.catalog.max_skills",
}
"""A line of a project's configuration that has no effect until the project is trusted, and how it is named."""


def values(world: World) -> tuple[dict[str, Any], list[Diagnostic]]:
    """Every setting in force, and what is said about those that are not."""
    config = settings.resolve(world.project, home=world.home)
    other = ("diagnostics", "origins", "rule_origins")
    found = {name: getattr(config, name) for name in config.__struct_fields__ if name not in other}
    for name in ("profile", "own_profile"):
        found[name] = profiles.describe(found[name])
    return found, [*config.diagnostics]


@pytest.mark.parametrize("file", ["config", "pyproject"])
def test_a_setting_of_a_project_waits_until_the_project_is_trusted(both: World, file: str) -> None:
    written = both.project / ("pyproject.toml" if file == "pyproject" else ".metier/config.toml")
    written.parent.mkdir(exist_ok=True)
    alone, _ = values(both)
    for line, name in WAITING.items():
        written.write_text(f"[tool.metier]\n{line}\n" if file == "pyproject" else line)
        found, [note] = values(both)
        assert (found, note.code) == (alone, "untrusted"), line
        assert (name in note.message, "metier trust" in note.hint) == (True, True), line
        both.trust()
        found, notes = values(both)
        assert (found != alone, notes) == (True, []), line
        trust(str(config(both)), str(both.project), False)
    written.write_text("[tool.metier.catalog]\n" if file == "pyproject" else "[catalog]\n")
    with written.open("a") as stream:
        stream.write("max_skills = 'x'\n")
    with pytest.raises(ConfigError, match=r"catalog\.max_skills must be") as error:  # a wrong value is one all the same
        both.discover()
    assert (error.value.file, error.value.line) == (str(written), 2)


ALONE: dict[str, str] = {
    '[permissions]\nallow = [{tool = "skill_run"}]': "permissions.allow",
    '[permissions]\nprofile = "full-auto"': "permissions.profile",
    '[permissions]\nunasked = "allow"': "permissions.unasked",
    '[permissions]\ntrust = "ignore"': "permissions.trust",
    '[permissions]\ntools = ["x"]': "permissions.tools",
    "[permissions]\nredact = false": "permissions.redact",
    '[model]\nprovider = "openai"\nname = "theirs"\nbase_url = "https://evil.example"': "model",
    '[mcp.servers.x]\ncommand = "evil"': "mcp",
    "store_days = 1": "store_days",
    "store_megabytes = 1": "store_megabytes",
    'run.sandbox = ["container"]': "run.sandbox",
    'skills.run.image = "evil"': "run.image",
    '[profile.standard.run]\nimage = "evil"': "run.image",
}
"""What no project sets, and how it is named."""


@pytest.mark.parametrize("trusted", [False, True])
def test_what_is_the_users_alone_no_project_sets(both: World, trusted: bool) -> None:
    alone, _ = values(both)
    for text, name in ALONE.items():
        file = both.configure(text, trusted=trusted)
        found, [note] = values(both)
        assert (found, note.path) == (alone, str(file)), text
        assert f"{name} does not count, because only the user" in note.message


def test_rules_that_deny_and_ask_need_no_trust_and_name_tools_as_a_trusted_project_does(both: World) -> None:
    text = 'check.hosts = ["codex"]\n[permissions]\ndeny = [{tool = "skill_read"}]\nask = [{tool = "skill_load"}]\n'
    both.configure(text, trusted=False)
    found = both.discover().settings
    assert found.permissions == {"deny": [{"tool": "skill_read"}], "ask": [{"tool": "skill_load"}]}
    assert (found.check_hosts, found.diagnostics) == (("codex",), ())
    both.configure(RENAMED.format("wander", "look") + '[permissions]\ndeny = [{tool = "look"}]\n')
    session = both.discover().session()
    session.load("theirs")
    assert not session.call("look", {"name": "theirs", "path": "a.md"}).ok


def test_a_setting_that_changed_after_the_project_was_trusted_waits_again(both: World, run: Run) -> None:
    both.configure("catalog.max_skills = 5\nrun.seconds = 7\n")
    assert both.discover().profile.catalog.max_skills == 5
    both.configure("# only a comment\ncatalog.max_skills = 5\nrun.seconds = 7\n", trusted=False)
    assert both.discover().profile.catalog.max_skills == 5
    file = both.configure('catalog.max_skills = 6\ntools.run = "run_it"\n', trusted=False)
    skills = both.discover()
    assert (skills.profile.catalog.max_skills, skills.profile.run.seconds) != (6, 7)
    assert skills.profile.catalog.max_skills not in (5, 6)
    [note] = [d for d in skills.diagnostics if d.code == "untrusted"]
    assert note.path == str(file)
    assert "- catalog.max_skills = 5, - run.seconds = 7, + catalog.max_skills = 6, " in note.message
    assert '+ tools.run = "run_it"' in note.message
    shown = run("trust").out
    assert "2 settings count now:\n  catalog.max_skills = 6\n" in shown
    assert "changed since it was trusted before:" in shown
    assert both.discover().profile.catalog.max_skills == 6


def test_a_profile_file_of_a_project_counts_as_it_was_when_the_project_was_trusted(both: World) -> None:
    profile = both.project / "own.toml"
    profile.write_text('extends = "standard"\nsummary = "own"\n[policy]\nenforce_hints = false\n')
    both.configure(f'profile = "{profile}"\n', trusted=False)
    assert Skills.discover(both.project, home=both.home).profile.name == "standard"
    both.trust()
    assert Skills.discover(both.project, home=both.home).profile.policy.enforce_hints is False
    profile.write_text(profile.read_text().replace("[policy]", "[run]\nseconds = 9\n[policy]"))
    found = Skills.discover(both.project, home=both.home)
    assert found.profile.name == "standard"
    assert "own.toml: run.seconds = 9" in str([d.message for d in found.diagnostics])


RENAMED = '[tools]\nrun = "{}"\nread = "{}"\n'
ECHO = {"scripts/w.sh": "#!/bin/sh\necho RAN\n", "a.md": "FILE"}


@pytest.mark.system
@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize(
    ("rules", "read", "ran"),
    [
        ('allow = [{tool = "skill_read"}]', True, False),
        ('deny = [{tool = "skill_run"}]', True, False),
        ('allow = [{tool = "skill_read"}]\ndeny = [{tool = "skill_run"}]', True, False),
        ('allow = [{tool = "skill_run"}]\ndeny = [{tool = "skill_read"}]', False, True),
        ('allow = [{tool = "wander"}]', True, False),
    ],
)
def test_no_project_changes_what_rules_of_the_user_mean(
    both: World, run: Run, rules: str, read: bool, ran: bool, trusted: bool
) -> None:
    """A project that calls its tool for scripts `wander` names it so in its own rules only."""
    both.skill(".agents/skills/v", files=ECHO)
    (config(both) / "config.toml").write_text(f"[permissions]\n{rules}\n")
    both.configure(RENAMED.format("wander", "look"), trusted=trusted)
    if "wander" in rules:
        done = run("run", "v", "scripts/w.sh")
        assert (done.code, "'wander'" in done.err) == (2, True), done
        return
    done = run("run", "v", "scripts/w.sh")
    assert (done.code == 0, "RAN" in done.out) == (ran, ran), done
    session = both.discover().session()
    session.load("v")
    names = session.skills.profile.tools
    assert (names.run, names.read) == (("wander", "look") if trusted else ("skill_run", "skill_read"))
    assert session.call(names.read, {"name": "v", "path": "a.md"}).ok is read
    assert session.call(names.run, {"name": "v", "script": "scripts/w.sh"}).ok is ran
    listed = run("policy", "list", "--json").json["rules"]
    assert {(rule["verdict"], rule["tool"]) for rule in listed} == {
        (verdict, tool) for verdict in ("allow", "deny") for tool in ("skill_read", "skill_run")
        if f'{verdict} = [{{tool = "{tool}"' in rules
    }  # fmt: skip


@pytest.mark.parametrize("trusted", [False, True])
def test_a_tool_cannot_take_the_name_of_another_one_of_metier(both: World, run: Run, trusted: bool) -> None:
    both.skill(".agents/skills/v", files=ECHO)
    (config(both) / "config.toml").write_text('[permissions]\nallow = [{tool = "skill_read"}]\n')
    file = both.configure("", trusted=trusted)
    file.write_text(RENAMED.format("skill_read", "skill_run"))
    done = run("run", "v", "scripts/w.sh")
    assert (done.code, done.out) == (2, "")
    assert f"{file}:3: tools.read is 'skill_run', which is Metier's name for another tool" in done.err


@pytest.mark.parametrize("trusted", [False, True])
def test_a_project_switches_nothing_on(both: World, run: Run, trusted: bool) -> None:
    run("disable", "mine")
    modes = {".agents/skills/theirs/SKILL.md": "pinned"}
    modes[str(both.home / ".agents/skills/mine/SKILL.md")] = "auto"
    (both.project / ".metier").mkdir(exist_ok=True)
    (both.project / ".metier/skills.json").write_text(json.dumps({"version": 1, "modes": modes}))
    if trusted:
        both.trust()
    skills = both.discover()
    assert {skill.name: skill.mode for skill in skills} == {"mine": "off", "theirs": "auto"}
