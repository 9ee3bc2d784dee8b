"""`session`: what a host asks of a session, the files that its scripts made, and the store that keeps it.

Each operation of a session that has no command of its own is a command here, made from its fields: what is required
or an object is an argument, and the others are options. What is left out is not given, so that defaults stay those of
the operation, which also checks all values.
"""

import glob
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final, TextIO, cast

import click

from metier.errors import ConfigError, ResourceNotFound
from metier.files.json_text import parse_json
from metier.files.text import printable
from metier.record import retention
from metier.record.events import RETENTION, is_internal
from metier.record.runs import MadeFile, made_files
from metier.record.writer import system_clock
from metier.session.operation import Operation, parameters, schema_of
from metier.session.operations import OPERATIONS
from metier.surfaces.cli import output
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import SuggestingGroup, command, group, option, standard_input
from metier.surfaces.cli.registry import COMMANDS
from metier.surfaces.cli.run import report, write_out
from metier.values.value import Schema

# --- operations ---

_EXAMPLES: Final[Mapping[str, Sequence[str]]] = {
    "call": ('metier session call skill_load \'{"name": "pdf"}\'', "metier session call skill_search - < args.json"),
    "invoke": (
        'metier session invoke "/release-notes v1.0..v1.1"',
        "echo 'use $csv-profile' | metier session invoke -",
    ),
    "may-use": ('metier session may-use Bash --command "git status"',),
    "unload": ("metier session unload csv-profile --session ID",),
    "output": ("metier session output skill-0a1b2c3d4e5f --session ID --grep TODO",),
}
_TYPES: Final = {"integer": click.INT, "number": click.FLOAT}


class _SessionCommands(SuggestingGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        operations = (name.replace("_", "-") for name in OPERATIONS)
        return [*(name for name in operations if name not in COMMANDS), *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        kind = OPERATIONS.get(cmd_name.replace("-", "_")) if cmd_name not in COMMANDS else None
        return super().get_command(ctx, cmd_name) or (kind and _operation_command(cmd_name, kind))


@group("session", "metier session tools", "metier session store stats", cls=_SessionCommands)
def session_group(context: Context) -> None:
    """Ask of a session what a host asks, and manage what was recorded."""


def _operation_command(name: str, kind: type[Operation[Any]]) -> click.Command:
    known = parameters(kind)

    def perform(context: Context, /, **given: Any) -> int:
        fields = {key: _read(key, value, known[key]) for key, value in given.items() if value not in (None, ())}
        operation = kind.from_dict(fields)
        result = context.open_session().perform(operation)
        context.answer(operation.data(result), result.text)
        if not context.as_json:
            for line in operation.remarks(result):
                context.hint(printable(line))
        return operation.exit_code(result)

    perform.__doc__ = f"{inspect.getdoc(kind)}."
    made = command(name, *_EXAMPLES.get(name, (f"metier session {name}",)), sessions=True)(perform)
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
        elif schema.get("type") == "object":
            made.append(click.Argument([name], required=False, metavar="[JSON]"))
        elif flag:
            made.append(
                click.Option(
                    [f"--{name.replace('_', '-')}"], is_flag=True, default=None, help=schema.get("description", "")
                )
            )
        else:
            spelled = [f"--{name.replace('_', '-')}", name]
            made.append(click.Option(spelled, type=value, multiple=several, help=schema.get("description", "")))
    return made


def _read(name: str, given: Any, schema: Schema) -> object:
    """A value as the operation has it. Objects are JSON on a command line, and `-` is standard input."""
    if isinstance(given, tuple):
        return list(cast("tuple[object, ...]", given))
    text = standard_input() if given == "-" else given
    if schema.get("type") != "object":
        return text
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} must be JSON: {error}", key=name) from error


# --- files that scripts made ---

_NONE: Final = "no script has made a file yet"


@command(
    "artifacts", "metier session artifacts", "metier session artifacts --session ID --out results", of=session_group
)
@click.argument("names", nargs=-1, metavar="[--] [NAME]...")
@option("--out DIR", "Write the files into this folder.")
@option("--force", "Let --out replace files.")
def artifacts_command(context: Context, names: tuple[str, ...], out: str | None, force: bool) -> int | None:
    """List the files that scripts made, and fetch them.

    NAME is the path of a file, or the beginning of its digest. Without --out, the bytes of that file go to standard
    output; of several, those of the latest. Without NAME, --out takes the data files of one --session. What is no data
    by its name, such as a script or a page, is written only if it is named.
    """
    with context.open_store() as store:
        found = made_files(store, context.session)
        if names:
            if out is None and len(names) > 1:
                raise ConfigError("several files need a folder to be written to", key="--out")
            found = list({one.path: one for name in names for one in _named_files(found, name)}.values())
        if out is not None:
            if not names and context.session is None:
                raise ConfigError("name a file, or a --session whose files are meant", key="--out")
            latest = {one.path: store.get_artifact(one.digest) for one in reversed(found)}
            placed = write_out(latest, out, [glob.escape(one.path) for one in found if names], force=force)
            if context.as_json:
                output.json_out(found)
            report(placed)
            if not found and not context.quiet:
                context.note(_NONE)
            return bool(placed.refused)
        if context.as_json:
            output.json_out(found)
        elif names:
            click.echo(store.get_artifact(found[0].digest), nl=False)
        elif found:
            rows = [(output.moment(one.at_ms), one.skill, one.path, f"{one.size:,}", one.session) for one in found]
            output.table(("made", "skill", "file", "bytes", "session"), rows)
        elif not context.quiet:
            context.note(_NONE)
    return None


def _named_files(found: Sequence[MadeFile], name: str) -> list[MadeFile]:
    """The files of a name, or with a digest that begins with it, the latest last. There is at least one."""
    named = [one for one in reversed(found) if one.path == name or (len(name) > 9 and one.digest.startswith(name))]
    if not named:
        raise ResourceNotFound(name)
    return named


# --- store ---


@group("store", "metier session store stats", of=session_group)
def store_group(context: Context) -> None:
    """Count, move and delete the events in the store."""


@command("stats", "metier session store stats --json", of=store_group)
def store_stats(context: Context) -> None:
    """Count the contents of the store, and list its latest sessions.

    `keeps` is the bound of the store. Sessions beyond it are deleted once a day, except those of the last day.
    """
    config = context.settings()
    bound = retention.Bound(config.store_days, config.store_megabytes)
    with context.open_store() as store:
        stats, sessions = store.stats(), [one for one in store.sessions() if not is_internal(one.id)]
        size = retention.content_bytes(store)
    sessions.sort(key=lambda one: -one.last_ms)
    if context.as_json:
        kept = {"content_bytes": size, "store_days": bound.days, "store_megabytes": bound.megabytes}
        output.json_out({**stats.as_dict(), **kept, "latest": sessions[:50]})
        return
    stats = stats.as_dict() | {"content_bytes": size, "keeps": f"{bound} (store_days, store_megabytes)"}
    output.facts((key, f"{value:,}" if isinstance(value, int) else str(value)) for key, value in stats.items())
    if sessions:
        click.echo()
        output.table(("session", "events"), [(one.id, f"{one.events:,}") for one in sessions[:20]], 0)


@command("prune", "metier session store prune --days 30", of=store_group)
@option("--days", "Delete sessions without an event for this many days.", type=click.IntRange(0), required=True)
@option("--keep SESSION", "Keep this session.", many=True)
def store_prune(context: Context, days: int, keep: tuple[str, ...]) -> None:
    """Delete old sessions, and the artifacts that are no longer needed."""
    now = system_clock()
    with context.open_store() as store:
        pruned = retention.prune(store, now - days * retention.DAY_MS, (*keep, RETENTION), "command", now)
    counts = f"{pruned.sessions:,} sessions, {pruned.events:,} events and {pruned.artifacts:,} artifacts"
    context.answer(pruned, f"{counts} were deleted")


@command("export", "metier session store export --session ID > record.jsonl", of=store_group)
def store_export(context: Context) -> None:
    """Print events and artifacts as JSON lines: all, or those of one --session."""
    with context.open_store() as store:
        for line in store.export_lines(context.session):
            click.echo(line)


@command("import", "metier session store import < record.jsonl", of=store_group)
@click.argument("file", type=click.File("r", encoding="utf-8"), default="-")
def store_import(context: Context, file: TextIO) -> None:
    """Read the JSON lines of an export. Events that are already stored are skipped."""
    from metier.record.store.lines import read_lines

    with context.open_store() as store:
        imported = store.import_lines(read_lines(file))
    counts = f"{imported.events:,} events and {imported.artifacts:,} artifacts"
    context.answer(imported, f"{counts} were imported")
