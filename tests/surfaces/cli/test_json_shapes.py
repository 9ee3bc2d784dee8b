"""What --json prints keeps its keys and their types: each command has one golden file with the shapes of its output.

`WRITE_GOLDEN=1` writes the files anew; the difference then shows what would change for programs.
"""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any, cast

import click
import pytest

from calling import Run
from metier.surfaces.cli import cli, registry
from worlds import World

pytest_plugins = ["surfaces.cli.cli_fixtures"]

LINES = ("events", "session store export")
GOLDEN = Path(__file__).with_name("golden")
BY_NAME = {"frontmatter", "metadata", "settings", "inputSchema", "input_schema", "properties", "headers", "types"}
"""Keys of tables whose own keys are data."""

COMMANDS = {
    "list": ["list --json", "list --json --all --profile omp"],
    "show": ["show pdf --json", "show .agents/skills/pdf/SKILL.md --json"],
    "search": ["search forms --json", "search forms --json --explain", "search zzz --json"],
    "load": ["load pdf --json --session s"],
    "read": ["read pdf references/forms.md --json", "read pdf assets/a.bin --raw --json"],
    "session artifacts": ["session artifacts --json"],
    "session invoke": [
        "session invoke hello --json",
        "session invoke /pdf --json",
        "session invoke $pdf --json --profile codelia",
    ],
    "prompt": ["prompt --json", "prompt --full --json"],
    "new": ["new --project --json", "new fresh --json"],
    "validate": [
        "validate . --json",
        "validate --strict . --json",
        "validate --diff . --json",
        "validate --fix . --json",
        "validate --schema --json",
    ],
    "check": ["check . --json"],
    "install": [
        "install .agents/skills/xlsx --project --yes --json --replace --lenient",
        "install --verify --project --json",
    ],
    "enable": ["enable pdf --json", "enable pdf --mode pinned --json"],
    "disable": ["disable pdf --json --project"],
    "policy show": ["policy show --json"],
    "policy explain": ["policy explain skill_run --skill pdf --json", "policy explain Bash --json"],
    "policy list": ["policy list --json"],
    "policy revoke": ["policy revoke --all --json"],
    "secret list": ["secret list --json"],
    "secret allow": ["secret allow GITHUB_TOKEN pdf --json"],
    "secret remove": ["secret remove GITHUB_TOKEN --json"],
    "trust": ["trust --json", "trust --remove --json"],
    "mcp add": ["mcp add claude-code --yes --json", "mcp add claude-code --yes --json"],
    "mcp remove": ["mcp remove claude-code --yes --json"],
    "events": ["events --json"],
    "usage": ["usage --json"],
    "replay": ["replay s --json"],
    "session store stats": ["session store stats --json"],
    "session store export": ["session store export --session s"],
    "session store import": ["session store import --json"],
    "env show": ["env show --json", "env show pdf --json"],
    "env lock": ["env lock pdf --json"],
    "env clear": ["env clear --json"],
    "session tools": ["session tools --json", "session tools --json --profile codelia"],
    "session call": ['session call skill_load {"name":"pdf"} --json', "session call nope --json"],
    "session system-prompt": ["session system-prompt --json"],
    "session commands": ["session commands --json --profile omp"],
    "session may-use": ["session may-use Bash --json"],
    "session output": ["session output REF --session s --json"],
    "session compact": ["session compact --session s --json"],
    "session unload": ["session unload pdf --session s --json"],
    "session end-turn": ["session end-turn --session s --json"],
    "profiles": ["profiles --json", "profiles codelia --json"],
    "completion": ["completion bash --json"],
    "help": ["help --json"],
    "session store prune": ["session store prune --days 0 --json"],
}
ELSEWHERE = {
    "run": "needs a sandbox; its shape is that of HTTP, where tests run scripts",
    "pick": "needs a person; prints a skill as `list` does",
    "secret set": "reads standard input; tests/surfaces/cli/test_secret_command.py calls it",
    "serve": "does not end; tests/surfaces/web/test_api_process.py starts it",
    "doctor": "depends on the machine; tests/surfaces/cli/test_doctor_and_profiles.py reads it",
    "mcp": "speaks a protocol instead",
    "rpc": "speaks a protocol instead",
}


def paths(group: click.Group, before: str = "") -> list[str]:
    context = click.Context(group)
    found: list[str] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = paths(command, f"{before}{name} ") if isinstance(command, click.Group) else []
        found += inner if inner and name != "mcp" else [f"{before}{name}", *inner]
    return found


def test_every_command_has_a_group_and_a_golden_file() -> None:
    listed = [name for group in registry.GROUPS.values() for name in group]
    assert len(listed) == len(set(listed))
    assert set(paths(cli)) == set(COMMANDS) | set(ELSEWHERE)
    assert {file.stem for file in GOLDEN.glob("*.json")} == {name.replace(" ", "-") for name in COMMANDS}


def shape(value: object, key: str = "") -> Any:
    """The keys of a value and the types of their values. Several items of a list are one, with all that they have."""
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        if key in BY_NAME:
            return {"*": union([shape(one) for one in table.values()])}
        return {name: shape(one, name) for name, one in table.items()}
    if isinstance(value, list):
        return [union([shape(one) for one in cast("list[object]", value)])]
    return "null" if value is None else type(value).__name__


def union(shapes: list[Any]) -> Any:
    """One shape that fits all of them."""
    tables = [one for one in shapes if isinstance(one, dict)]
    lists = [one for one in shapes if isinstance(one, list)]
    words = {one for one in shapes if isinstance(one, str)}
    if tables and not lists and words <= {"null"}:
        keys = sorted({key for one in tables for key in one})
        made: dict[str, Any] = {}
        for key in keys:
            optional = any(key not in one for one in tables)
            made[f"{key}?" if optional else key] = union([one[key] for one in tables if key in one])
        return {**made, "null?": "null"} if words else made
    if lists and not tables and not words:
        return [union([item for one in lists for item in one])]
    return " | ".join(sorted({*words, *("table" for _ in tables), *("list" for _ in lists)}))


def test_what_is_printed_keeps_its_shape(world: World, mixed: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    world.configure_user('[permissions]\nask = [{ tool = "Bash" }]\nallow = [{ tool = "skill_run" }]\n')
    (world.home / ".config/metier/permissions.toml").write_text('[[allow]]\ntool = "skill_load"\nskill_name = "pdf"\n')
    ref = exported = ""
    wrong: list[str] = []
    for name, lines in COMMANDS.items():
        shapes: dict[str, Any] = {}
        for line in lines:
            monkeypatch.setattr(sys, "stdin", io.StringIO(exported))
            result = run(*line.replace("REF", ref).split())
            documents = result.out.splitlines() if name in LINES else [result.out] if result.out else []
            if documents:
                shapes[line] = union([shape(json.loads(one)) for one in documents])
            ref = json.loads(result.out)["ref"] if name == "load" else ref
            exported = result.out if name == "session store export" else exported
        file = GOLDEN / f"{name.replace(' ', '-')}.json"
        if os.environ.get("WRITE_GOLDEN"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(shapes, indent=1, sort_keys=True) + "\n")
        assert shapes, f"{name} printed nothing"
        if json.loads(file.read_text()) != shapes:
            wrong.append(f"{name}: {json.dumps(shapes, sort_keys=True)}")
    assert wrong == []
