"""Every code that the source can report is documented, and every documented code can occur."""

import ast
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import metier
from metier.catalog.validate import codes
from metier.hosts.removed import removed
from metier.surfaces.cli import cli
from worlds import World

SKILLS = ".agents/skills"
SOURCE = Path(metier.__file__).parent
GOOD = "name: x\ndescription: x\n"


def skill(yaml: str | bytes, fenced: bool = True) -> Callable[[World], dict[str, object]]:
    """Write one skill named x with this frontmatter."""
    text = yaml.encode() if isinstance(yaml, str) else yaml

    def build(world: World) -> dict[str, object]:
        world.skill(f"{SKILLS}/x", text=b"---\n" + text + b"\n---\n" if fenced else text)
        return {}

    return build


def unreadable(world: World) -> dict[str, object]:
    (world.project / SKILLS / "x").mkdir(parents=True)
    (world.project / SKILLS / "x/SKILL.md").symlink_to("/nowhere/SKILL.md")
    return {}


def not_a_file(world: World) -> dict[str, object]:
    (world.project / SKILLS / "x/SKILL.md").mkdir(parents=True)
    return {}


def wrong_case(world: World) -> dict[str, object]:
    (world.project / SKILLS / "x").mkdir(parents=True)
    (world.project / SKILLS / "x/skill.md").write_text("")
    return {}


def root_missing(world: World) -> dict[str, object]:
    return {"settings": {"custom_directories": ["nowhere"]}}


def root_not_folder(world: World) -> dict[str, object]:
    (world.project / ".agents").mkdir()
    (world.project / SKILLS).write_text("")
    return {}


def root_outside(world: World) -> dict[str, object]:
    return {"settings": {"project": {"root_env": "HERE"}}, "env": {"HERE": "/elsewhere"}}


def registry_invalid(world: World) -> dict[str, object]:
    (world.home / ".claude/plugins").mkdir(parents=True)
    (world.home / ".claude/plugins/installed_plugins.json").write_text("{")
    return {"profile": "omp"}


def bound_reached(world: World) -> dict[str, object]:
    (world.project / SKILLS / "a/b/c").mkdir(parents=True)
    return {"settings": {"discovery": {"max_depth": 1}}}


def link_not_followed(world: World) -> dict[str, object]:
    (world.project / SKILLS).mkdir(parents=True)
    (world.project / SKILLS / "x").symlink_to(world.home)
    return {"settings": {"discovery": {"folder_links": "never"}}}


def collision(world: World) -> dict[str, object]:
    world.skill(f"{SKILLS}/a/x", description="one")
    world.skill(f"{SKILLS}/b/x", description="two")
    return {}


def switched_off(world: World) -> dict[str, object]:
    return {"settings": {"enabled": False}}


def too_many_skills(world: World) -> dict[str, object]:
    world.skill(f"{SKILLS}/x")
    world.skill(f"{SKILLS}/y")
    return {"settings": {"catalog": {"max_skills": 1}}}


def state_invalid(world: World) -> dict[str, object]:
    (world.project / ".metier").mkdir()
    (world.project / ".metier/skills.json").write_text("{")
    return {}


def setting_elsewhere(world: World) -> dict[str, object]:
    return {"settings": {"skills": {"initial": {"maxEntries": 3}}}}


def context_file_refused(world: World) -> dict[str, object]:
    (world.project / "AGENTS.md").symlink_to("/etc/hostname")
    return {}


def setting_removed(world: World) -> dict[str, object]:
    return {"settings": dict.fromkeys(removed("settings"), True)}


def rule_dropped(world: World) -> dict[str, object]:
    return {"profile": "codelia", "settings": {"permissions": {"deny": [{"tool": "skill_load", "skill_name": ""}]}}}


def rule_wrong(world: World) -> dict[str, object]:
    return {"settings": {"permissions": {"deny": [{"tool": "run"}]}}}


def untrusted(world: World) -> dict[str, object]:
    world.skill(f"{SKILLS}/x")
    return {"settings": {"policy": {"trust": "required"}}}


CASES: dict[str, Callable[[World], dict[str, object]]] = {
    "unreadable": unreadable,
    "not-a-file": not_a_file,
    "wrong-case": wrong_case,
    "not-utf8": skill(b"name: \xff"),
    "nul-byte": skill(b"name: \x00"),
    "frontmatter-missing": skill("# Title", fenced=False),
    "frontmatter-unclosed": skill("---\nname: x\n", fenced=False),
    "frontmatter-too-large": skill("name: " + "x" * 70_000),
    "fence-repaired": skill(f"text\n---\n{GOOD}---\n", fenced=False),
    "yaml-invalid": skill("- a\nb: c"),
    "yaml-repaired": skill("name: x\ndescription: a: b"),
    "yaml-not-mapping": skill("- a"),
    "yaml-key": skill("[a]: b"),
    "yaml-too-deep": skill("a: " + "[" * 99 + "]" * 99),
    "yaml-anchor": skill("a: &b c"),
    "yaml-merge-key": skill("a: {<<: {b: c}}"),
    "yaml-tag": skill("a: !b c"),
    "duplicate-key": skill(f"{GOOD}name: x"),
    "name-missing": skill("description: x"),
    "name-invalid": skill("name: X_\ndescription: x"),
    "name-too-long": skill(f"name: {'x' * 65}\ndescription: x"),
    "name-mismatch": skill("name: y\ndescription: x"),
    "description-missing": skill("name: x"),
    "description-too-long": skill(f"name: x\ndescription: {'x' * 1025}"),
    "field-type": skill(f"{GOOD}license: [x]"),
    "compatibility-length": skill(f"{GOOD}compatibility: ''"),
    "metadata-values": skill(f"{GOOD}metadata: x"),
    "allowed-tools-form": skill(f"{GOOD}allowed-tools: [x]"),
    "unknown-key": skill(f"{GOOD}version: x"),
    "hidden-characters": skill('name: x\ndescription: "x\\u202e"'),
    "invisible-removed": skill('name: x\ndescription: "x\\u200b"'),
    "root-missing": root_missing,
    "root-not-folder": root_not_folder,
    "root-outside": root_outside,
    "registry-invalid": registry_invalid,
    "bound-reached": bound_reached,
    "link-not-followed": link_not_followed,
    "collision": collision,
    "switched-off": switched_off,
    "too-many-skills": too_many_skills,
    "state-invalid": state_invalid,
    "setting-elsewhere": setting_elsewhere,
    "setting-removed": setting_removed,
    "rule-dropped": rule_dropped,
    "rule-wrong": rule_wrong,
    "untrusted": untrusted,
    "context-file-refused": context_file_refused,
}


@pytest.mark.parametrize("code", CASES)
def test_the_code_is_reported_for_what_it_describes(world: World, code: str) -> None:
    skills = world.discover(**CASES[code](world))  # pyright: ignore[reportArgumentType]
    assert code in [d.code for d in skills.diagnostics]


def test_an_inline_command_is_reported_by_validate(world: World) -> None:
    world.skill("x", body="Now: !`rm -rf /`")
    result = CliRunner().invoke(cli, ["validate", "--json", str(world.project / "x")])
    assert [d["code"] for s in json.loads(result.stdout)["skills"] for d in s["diagnostics"]] == ["inline-command"]


@pytest.mark.system
def test_a_rule_for_a_skill_that_is_not_here_is_reported_by_doctor(world: World) -> None:
    world.skill(f"{SKILLS}/deploy")
    (world.home / ".config/metier").mkdir(parents=True)
    rules = '[permissions]\ndeny = [{tool = "skill_run", skill_name = "deplyo"}]\n'
    (world.home / ".config/metier/config.toml").write_text(rules)
    place = ["--cwd", str(world.project), "--home", str(world.home)]
    shown = json.loads(CliRunner().invoke(cli, ["doctor", "--json", *place]).stdout)["diagnostics"]
    (found,) = (one for one in shown if one["code"] == "rule-without-skill")
    assert "did you mean deploy?" in found["message"]


AUTHORS: dict[str, dict[str, Any]] = {
    # what only a strict validation reports
    "byte-order-mark": {"text": "\ufeff---\nname: x\ndescription: Use when asked.\n---\n"},
    "description-placeholder": {"description": "TODO"},
    "description-vague": {"description": "X"},
    "description-when": {"description": "Standards for the database."},
    "body-too-long": {"body": "line\n" * 501},
    "file-missing": {"body": "[forms](forms.md)"},
    "link-outside": {"body": "[other](../other/SKILL.md)"},
    "reference-unreachable": {"files": {"references/a.md": ""}},
    "invisible-characters": {"body": "a\u200bb"},
}


@pytest.mark.parametrize("code", AUTHORS)
def test_a_strict_validation_reports_the_code(world: World, code: str) -> None:
    world.skill("x", **{"description": "Use when asked.", **AUTHORS[code]})
    result = CliRunner().invoke(cli, ["validate", "--strict", "--json", str(world.project / "x")])
    assert [d["code"] for s in json.loads(result.stdout)["skills"] for d in s["diagnostics"]] == [code]


def test_every_documented_code_is_met_in_a_test() -> None:
    assert {*CASES, *AUTHORS, "inline-command", "rule-without-skill"} == set(codes()["diagnostics"])


REPORTERS = {"Diagnostic": 0, "report": 0, "finding": 0, "failed": 0, "failed_row": 1, "Unusable": 0, "failure": 1}
REPORTERS["DescriptionFlaw"] = 0


def reported_codes() -> set[str]:
    """The codes in calls that create diagnostics, and the codes in the tables of the frontmatter."""
    codes: set[str] = set()
    for file in SOURCE.rglob("*.py"):
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                position = REPORTERS.get(name)
                if position is not None and len(node.args) > position:
                    codes.update(literals(node.args[position]))
        if file.parent.name == "frontmatter":
            tables = re.findall(r'"((?:frontmatter|yaml)-[a-z-]+)"', file.read_text())
            codes.update(tables)
    return codes


def literals(node: ast.expr) -> set[str]:
    return {leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)}


def test_the_source_reports_exactly_the_documented_codes() -> None:
    assert reported_codes() - set(codes()["findings"]) == set(codes()["diagnostics"])


def test_codes_are_kebab_case_and_described_in_a_sentence() -> None:
    for code, text in codes()["diagnostics"].items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code)
        assert text.endswith(".")


def test_every_code_is_in_the_documentation() -> None:
    page = SOURCE.parents[1] / "docs" / "diagnostics.md"
    if not os.path.isfile(page):
        pytest.skip("an installed package has no docs folder")
    text = page.read_text()
    assert [code for code in codes()["diagnostics"] if f"`{code}`" not in text] == []
