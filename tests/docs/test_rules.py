"""Every rule in the documentation decides something: a request of a real skill that goes otherwise without it."""

import ast
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calling import Run
from metier.hosts import settings
from metier.policy.decide import Policy
from metier.policy.rules import Rule, tool_named
from metier.session.explaining import asked_about
from metier.values.network import HostPattern
from worlds import World

pytest_plugins = ["surfaces.cli.cli_fixtures"]

REPOSITORY = Path(__file__).parents[2]
PAGES = [
    path
    for path in (*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "examples").rglob("*"))
    if path.is_file() and path.suffix in (".md", ".py", ".toml", ".json") and path.name != "hosts.md"
]
"""All but the list of behaviours, which has the notation of each host."""
RULE = re.compile(r"\{[^{}]*\btool\"?\s*[=:]\s*\"[^{}]*\}")
LIST = re.compile(r"\b(allow|deny|ask)\"?\s*[=:]\s*\[")
ME = "/home/me"
NOT_ABOUT_FILES = ("install", "mcp_load")
"""The tools whose requests are about a skill that is not on disk yet, or need not be."""


def read(text: str) -> dict[str, str]:
    """A rule as a page has it: a table of TOML, or a dict of Python or JSON."""
    return tomllib.loads(f"rule = {text}")["rule"] if "=" in text.partition('"')[0] else ast.literal_eval(text)


def rules(page: Path) -> list[tuple[int, str, dict[str, str]]]:
    """The line, the list and the text of each rule of a page."""
    text = page.read_text()
    found: list[tuple[int, str, dict[str, str]]] = []
    for match in RULE.finditer(text):
        lists = LIST.findall(text, 0, match.start())
        verdict = lists[-1] if lists else "allow"  # in a sentence, a rule gives something
        found.append((text.count("\n", 0, match.start()) + 1, verdict, read(match[0])))
    return found


RULES = [
    pytest.param(verdict, rule, id=f"{page.relative_to(REPOSITORY)}:{line}")
    for page in PAGES
    for line, verdict, rule in rules(page)
]


def test_the_rules_of_the_pages_are_found() -> None:
    found = [str(one.id).partition(":")[0] for one in RULES]
    expected = {"teams.md": 2, "scripts.md": 17, "policy.md": 8, "install.md": 2, "embed.md": 5, "adapters.md": 1}
    assert {page: found.count(f"docs/{page}") for page in expected} == expected
    assert "docs/mcp.md" in found


@pytest.mark.parametrize(("verdict", "rule"), RULES)
def test_a_rule_decides_about_a_request_of_a_real_skill(world: World, verdict: str, rule: dict[str, str]) -> None:
    own = {key: value.replace(ME, str(world.home)) for key, value in rule.items()}
    name = own.get("skill_name") or Path(own.get("folder", "any")).name
    place = f"~/.agents/skills/{name}" if own.get("scope", "user") == "user" else f".agents/skills/{name}"
    world.skill(place, name, files={"scripts/run.py": ""})
    skills = world.discover()
    request = asked_about(
        skills.settings,
        Policy(),
        own["tool"],
        name if own["tool"] in NOT_ABOUT_FILES else skills[name],
        path=own.get("path", "").replace("*", "x"),
        command=own.get("command", "").replace("*", "x"),
        secret=own.get("name", ""),
    )
    if "digest" in own:
        own["digest"] = request.digest
    policy = Policy.from_settings({verdict: [own]}, skills.profile)
    (read_rule,) = policy.rules().allow + policy.rules().deny + policy.rules().ask
    if read_rule.host is None:
        assert policy.decide(request).rule == read_rule
        assert policy.decide(request).verdict == verdict
    elif verdict == "allow":
        assert policy.hosts(request) == (read_rule.host,)
        assert Policy().hosts(request) == ()
    else:
        anywhere = Rule("run_network", host="*.example.org")
        assert replace(policy, allow=(anywhere,)).hosts(request) == (anywhere.host, f"!{read_rule.host}")


BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(REPOSITORY)}:{page.read_text().count(chr(10), 0, match.start()) + 1}")
    for page in PAGES
    for match in re.finditer(r"^ *```toml\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL)
    if "permissions" in (block := match[1])
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_configuration_with_rules_is_read_as_it_stands(world: World, block: str) -> None:
    file = world.home / ".config/metier/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(block)
    found = settings.resolve(world.project, home=world.home)
    written: dict[str, Any] = tomllib.loads(block)["permissions"]
    policy = Policy.configured(found)
    assert policy.warnings == []
    for verdict in ("allow", "deny", "ask"):
        assert len(getattr(policy, verdict)) == len(written.get(verdict, ()))


def test_the_rules_for_teams_refuse_the_projects_scripts_and_run_the_users(world: World, run: Run) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", (REPOSITORY / "docs/teams.md").read_text(), re.DOTALL)
    file = world.home / ".config/metier/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(block)
    world.skill("~/.agents/skills/csv-profile", files={"scripts/x.sh": "#!/bin/sh\necho RAN\n"})
    world.skill(".agents/skills/cloned", files={"scripts/x.sh": "#!/bin/sh\necho RAN\n"})
    home = ("--home", str(world.home), "--json")
    verdicts = [run("policy", "explain", "skill_run", "--skill", name, *home) for name in ("csv-profile", "cloned")]
    assert [(done.code, done.json["verdict"]) for done in verdicts] == [(0, "allow"), (3, "deny")]
    refused = run("run", "cloned", "scripts/x.sh", "--yes", *home)
    assert (refused.code, refused.out) == (3, "")
    assert "deny rule: tool = 'skill_run', scope = 'repo'" in refused.err


def test_every_tool_and_host_on_a_command_line_is_one(world: World) -> None:
    profile = world.discover().profile
    text = "\n".join(page.read_text() for page in PAGES)
    tools = re.findall(r"metier policy explain\s+(\w+)", text)
    hosts = re.findall(r"metier run .*--host ([\w.*:-]+)", text)
    assert tools
    assert hosts
    assert all(tool_named(tool, profile) for tool in tools)
    assert all(HostPattern.parse(host) for host in hosts)
