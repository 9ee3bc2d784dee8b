"""What commands print with `--json`, as JSON Schema. It comes from the type that each command says it prints.

A program must accept keys that it does not know, because later versions may add some.
"""

from collections.abc import Iterator
from typing import Annotated, Final, TypedDict, cast

import click

from metier.surfaces.cli.failure import CODES
from metier.surfaces.cli.frame import PrintingCommand
from metier.values.value import JsonObject, Meta, Schema, schema_of

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


class ErrorPrinted(TypedDict):
    """An error. What else it has depends on its code."""

    code: Annotated[str, Meta(extra_json_schema={"enum": [*CODES]})]
    message: str
    exit_code: int


class Failed(TypedDict):
    error: Annotated[ErrorPrinted, Meta(extra_json_schema={"additionalProperties": True})]


class WarningPrinted(TypedDict):
    message: str


class Warned(TypedDict):
    warning: WarningPrinted


def printed(command: click.Command, path: str = "") -> Iterator[tuple[str, Schema]]:
    """The schema of a command, or those of all commands of a group, by their names."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from printed(inner, f"{path} {name}".strip())
    elif isinstance(command, PrintingCommand) and command.prints and not isinstance(command.prints, str):
        prints: object = command.prints
        yield path, cast("Schema", prints) if isinstance(prints, dict) else schema_of(prints)


def schema_for(command: click.Command, path: str) -> JsonObject:
    """The schema of a command, or of all commands of a group. An empty path is `metier` itself: everything."""
    found = dict(printed(command, path))
    if path in found:
        return {"$schema": _DRAFT, "title": f"metier {path} --json", **found[path]}
    if not path:
        return {"$schema": _DRAFT, "$defs": {**found, "error": schema_of(Failed), "warning": schema_of(Warned)}}
    if not found:
        why = (command.prints if isinstance(command, PrintingCommand) else "") or "it prints none"
        raise click.UsageError(f"`metier {path}` has no JSON Schema: {why}")
    return {"$schema": _DRAFT, "$defs": found}
