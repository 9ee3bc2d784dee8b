"""The command of an operation that has no command of its own, made from its fields.

Required fields are arguments, and the others options. What is left out is not given, so that defaults stay those of the
operation, which also checks all values.
"""

import inspect
from typing import Any, Final, cast

import click

from metier.errors import ConfigError
from metier.files.json_text import parse_json
from metier.session.operation import Operation, parameters, schema_of
from metier.session.operations import OPERATIONS
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import command
from metier.values.value import Schema

_TYPES: Final = {"integer": click.INT, "number": click.FLOAT}


def operation_command(name: str) -> click.Command | None:
    """The command of the operation with this name, or `None` if there is no such operation."""
    kind = OPERATIONS.get(name.replace("-", "_"))
    if kind is None:
        return None
    chosen, known = kind, parameters(kind)

    def perform(context: Context, /, **given: Any) -> None:
        fields = {key: _read(key, value, known[key]) for key, value in given.items() if value not in (None, ())}
        operation = chosen.from_dict(fields)
        result = context.open_session().perform(operation)
        context.answer(operation.data(result), result.text)

    perform.__doc__ = inspect.getdoc(kind)
    made = command(name, f"metier {name} --help", sessions=True)(perform)
    made.params[:0] = _params(kind)
    return made


def _params(kind: type[Operation[Any]]) -> list[click.Parameter]:
    required = schema_of(kind)["required"]
    made: list[click.Parameter] = []
    for name, schema in parameters(kind).items():
        value = click.Choice(schema["enum"]) if "enum" in schema else _TYPES.get(schema.get("type", ""), click.STRING)
        several, flag = schema.get("type") == "array", schema.get("type") == "boolean"
        if name in required:
            made.append(click.Argument([name], type=value, nargs=-1 if several else 1, required=True))
        elif flag:
            made.append(click.Option([f"--{name.replace('_', '-')}"], is_flag=True, default=None, help=_help(schema)))
        else:
            spelled = [f"--{name.replace('_', '-')}", name]
            made.append(click.Option(spelled, type=value, multiple=several, help=_help(schema)))
    return made


def _help(schema: Schema) -> str:
    return schema.get("description", "")


def _read(name: str, given: Any, schema: Schema) -> object:
    """A value as the operation has it. Objects are JSON on a command line."""
    if schema.get("type") != "object":
        return list(cast("tuple[object, ...]", given)) if isinstance(given, tuple) else given
    try:
        return parse_json(given)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"it is not JSON: {error}", key=name) from error
