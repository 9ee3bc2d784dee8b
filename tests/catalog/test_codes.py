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
    """One skill named x with this frontmatter."""
    text = yaml.encode() if isinstance(yaml, str) else yaml
    return there({f"{SKILLS}/x/SKILL.md": b"---\n" + text + b"\n---\n" if fenced else text})


def there(files: dict[str, str | bytes | None], **given: object) -> Callable[[World], dict[str, object]]:
    """These files, links (`-> target`) and folders (`None`), and what is given to the scan."""

    def build(world: World) -> dict[str, object]:
        for name, content in files.items():
            path = world.home / name[2:] if name.startswith("~/") else world.project / name
            (path if content is None else path.parent).mkdir(parents=True, exist_ok=True)
            if isinstance(content, str) and content.startswith("-> "):
                path.symlink_to(content[3:])
            elif content is not None:
                path.write_bytes(content.encode() if isinstance(content, str) else content)
        return given

    return build


def named(*names: str, **settings: object) -> Callable[[World], dict[str, object]]:
    """A good skill in each of these folders, and settings."""
    files: dict[str, str | bytes | None] = {
        f"{SKILLS}/{name}/SKILL.md": f"---\nname: {name[-1]}\ndescription: {name}\n---\n" for name in names
    }
    return there(files, settings=settings)


HERE = {"settings": {"project": {"root_env": "HERE"}}, "env": {"HERE": "/elsewhere"}}
NO_NAME = {"deny": [{"tool": "skill_load", "skill_name": ""}]}
CASES: dict[str, Callable[[World], dict[str, object]]] = {
    "unreadable": there({f"{SKILLS}/x/SKILL.md": "-> /nowhere/SKILL.md"}),
    "not-a-file": there({f"{SKILLS}/x/SKILL.md": None}),
    "wrong-case": there({f"{SKILLS}/x/skill.md": ""}),
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
    "root-missing": named(custom_directories=["nowhere"]),
    "root-not-folder": there({SKILLS: ""}),
    "root-outside": there({}, **HERE),
    "registry-invalid": there({"~/.claude/plugins/installed_plugins.json": "{"}, profile="omp"),
    "bound-reached": there({f"{SKILLS}/a/b/c": None}, settings={"discovery": {"max_depth": 1}}),
    "link-not-followed": there({f"{SKILLS}/x": "-> /etc"}, settings={"discovery": {"folder_links": "never"}}),
    "collision": named("a/x", "b/x"),
    "switched-off": named(enabled=False),
    "too-many-skills": named("x", "y", catalog={"max_skills": 1}),
    "state-invalid": there({".metier/skills.json": "{"}),
    "setting-elsewhere": named(skills={"initial": {"maxEntries": 3}}),
    "setting-removed": named(**dict.fromkeys(removed("settings"), True)),
    "rule-dropped": there({}, profile="codelia", settings={"permissions": NO_NAME}),
    "rule-wrong": named(permissions={"deny": [{"tool": "run"}]}),
    "untrusted": named("x", policy={"trust": "required"}),
    "context-file-refused": there({"AGENTS.md": "-> /etc/hostname"}),
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


def test_every_code_is_in_the_documentation() -> None:
    page = SOURCE.parents[1] / "docs" / "diagnostics.md"
    if not os.path.isfile(page):
        pytest.skip("an installed package has no docs folder")
    text = page.read_text()
    assert [code for code in codes()["diagnostics"] if f"`{code}`" not in text] == []
