"""What --json prints fits its JSON Schema in every state of the skills, and has no key that the schema leaves out."""

import io
import json
import sys
from collections.abc import Mapping
from typing import Any

import click
import jsonschema
import pytest

from calling import Run
from metier.surfaces.cli import cli, registry
from metier.surfaces.cli.json_schema import Failed, printed, schema_for
from metier.values.value import schema_of
from worlds import World

pytest_plugins = ["surfaces.cli.cli_fixtures"]

LINES = ("events", "store export")


def closed(schema: Any) -> Any:
    """The schema without the permission for further keys, except where it is given expressly."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **found} if "properties" in found else found


SCHEMAS = dict(printed(cli))
CLOSED = {name: closed(schema) for name, schema in SCHEMAS.items()}

COMMANDS = {
    "list": ["list --json", "list --json --all --profile omp"],
    "show": ["show pdf --json", "show .agents/skills/pdf/SKILL.md --json"],
    "search": ["search forms --json", "search forms --json --explain", "search zzz --json"],
    "load": ["load pdf --json --session s"],
    "read": ["read pdf references/forms.md --json", "read pdf assets/a.bin --raw --json"],
    "artifacts": ["artifacts --json"],
    "invoke": ["invoke hello --json", "invoke /pdf --json", "invoke $pdf --json --profile codelia"],
    "prompt": ["prompt --json", "prompt --full --json"],
    "init": ["init --json", "init --json"],
    "new": ["new fresh --json"],
    "validate": [
        "validate . --json",
        "validate --strict . --json",
        "validate --diff . --json",
        "validate --fix . --json",
    ],
    "schema": ["schema --json"],
    "check": ["check . --json"],
    "install": [
        "install .agents/skills/xlsx --project --yes --json --replace --lenient",
        "install --verify --project --json",
    ],
    "enable": ["enable pdf --json"],
    "disable": ["disable pdf --json --project"],
    "mode": ["mode pdf pinned --json"],
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
    "store stats": ["store stats --json"],
    "store export": ["store export --session s"],
    "store import": ["store import --json"],
    "env show": ["env show --json", "env show pdf --json"],
    "env lock": ["env lock pdf --json"],
    "env clear": ["env clear --json"],
    "tools": ["tools --json", "tools --json --profile codelia"],
    "call": ['call skill_load {"name":"pdf"}', "call nope --json"],
    "commands": ["commands --json --profile omp"],
    "may-use": ["may-use Bash --json"],
    "output": ["output REF --session s --json"],
    "compact": ["compact --session s --json"],
    "end-turn": ["end-turn --session s --json"],
    "profiles": ["profiles --json", "profiles codelia --json", "profiles --compare --json"],
    "completion": ["completion bash --json"],
    "help": ["help --json"],
    "store prune": ["store prune --days 0 --json"],
}
ELSEWHERE = {
    "run": "needs a sandbox; its shape is that of HTTP, where tests run scripts",
    "pick": "needs a person; prints a skill as `list` does",
    "secret set": "reads standard input; tests/surfaces/cli/test_secret_command.py calls it",
    "serve": "does not end; tests/surfaces/cli/test_serve_json.py starts it",
    "doctor": "is slow; tests below run it once",
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


def test_every_command_has_a_group_and_a_schema() -> None:
    listed = [name for group in registry.GROUPS.values() for name in group]
    assert len(listed) == len(set(listed))
    assert set(paths(cli)) == {*SCHEMAS, "mcp", "rpc"}, "those two speak a protocol instead"
    assert set(SCHEMAS) == set(COMMANDS) | set(ELSEWHERE)
    for schema in (*SCHEMAS.values(), schema_for(cli, "")):
        jsonschema.Draft202012Validator.check_schema(dict(schema))


def fits(name: str, out: str) -> None:
    documents = [json.loads(line) for line in out.splitlines()] if name in LINES else [json.loads(out)]
    for document in documents:
        jsonschema.validate(document, CLOSED[name])


@pytest.mark.parametrize("state", ["empty", "mixed"])
def test_what_is_printed_fits_the_schema(
    world: World, run: Run, state: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if state == "mixed":
        request.getfixturevalue("mixed")
        config = world.home / ".config/metier/config.toml"
        config.parent.mkdir(parents=True)
        config.write_text('[permissions]\nask = [{ tool = "Bash" }]\nallow = [{ tool = "skill_run" }]\n')
        (config.parent / "permissions.toml").write_text('[[allow]]\ntool = "skill_load"\nskill_name = "pdf"\n')
    printed: set[str] = set()
    ref = exported = ""
    for name, lines in COMMANDS.items():
        for line in lines:
            monkeypatch.setattr(sys, "stdin", io.StringIO(exported))
            result = run(*line.replace("REF", ref).split())
            if not result.out:
                told = json.loads(result.err.splitlines()[-1]) if "--json" in line else {}
                assert told or name in LINES, line
                if "error" in told:
                    jsonschema.validate(told, schema_of(Failed))
                continue
            fits(name, result.out)
            printed.add(name)
            ref = json.loads(result.out)["ref"] if name == "load" else ref
            exported = result.out if name == "store export" else exported
    if state == "mixed":
        assert printed == set(COMMANDS), "every command printed something"


def test_the_schema_is_printed(run: Run) -> None:
    shown = run("trust", "--json-schema").json
    assert shown["required"] == ["project", "trusted", "settings", "changes"]
    assert shown["title"] == "metier trust --json"
    assert set(run("policy", "--json-schema").json["$defs"]) == {
        "policy show",
        "policy explain",
        "policy list",
        "policy revoke",
    }
    assert set(run("--json-schema").json["$defs"]) == {*SCHEMAS, "error", "warning"}
    assert run("show", "--json-schema").code == 0, "arguments are not needed"


def test_doctor_fits_its_schema(mixed: World, run: Run) -> None:
    fits("doctor", run("doctor", "--json").out)
    fits("doctor", run("doctor", "pdf", "--json").out)
