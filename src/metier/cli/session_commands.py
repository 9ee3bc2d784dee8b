"""The operations of a session as commands: what a host would get.

`search`, `prompt`, `load`, `read`, `invoke`, `end-turn`, `output`, `compact`, `tools`, `commands`, `may-use` and
`call`. Each opens a session, performs one operation and prints its result.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import click

from metier import limits
from metier.cli import output
from metier.cli.completion import complete_file, complete_skill
from metier.cli.session_options import Opening, opens_sessions
from metier.errors import ConfigError
from metier.files.json_text import parse_json
from metier.files.text import blank_controls, printable
from metier.model import JsonObject
from metier.results import Hit, Prompt, SearchResult
from metier.session.queries import CatalogPrompt, SystemPrompt
from metier.session.visibility import By
from metier.skills import Skills


def standard_input() -> str:
    """All of standard input as text, within the bound of an operation."""
    try:
        text = sys.stdin.read(limits.OPERATION_BYTES + 1)
    except UnicodeDecodeError as error:
        raise ConfigError(f"standard input is not text in UTF-8: {error.reason} at byte {error.start:,}") from error
    if len(text) > limits.OPERATION_BYTES:
        raise ConfigError(f"standard input has more than {limits.OPERATION_BYTES:,} bytes")
    return text


by_option = click.option(
    "--by",
    type=click.Choice(["user", "model"]),
    default="user",
    help="Who asks. For a model, what is hidden from models does not exist.",
)
file_option = click.option(
    "--file", "files", multiple=True, metavar="F", help="A file being worked on; decides about skills with paths."
)


@click.command(
    "search",
    epilog='Examples:\n\n\b\n  metier search "profile a csv file"\n  metier search pdf --limit 3 --json\n'
    '  metier search "check a csv file" --explain',
)
@click.argument("query")
@click.option("--limit", type=int, metavar="N", help="How many to show.")
@click.option("--scope", metavar="S", help="Only skills of this scope.")
@click.option("--context", metavar="TEXT", help="What else is known: languages, names of files. It counts little.")
@click.option("--explain", is_flag=True, help="Say why each skill was found.")
@click.option("--wait", is_flag=True, help="Wait until the text of all skills is indexed.")
@by_option
@opens_sessions
def search_command(
    opening: Opening,
    query: str,
    limit: int | None,
    scope: str | None,
    context: str | None,
    explain: bool,
    wait: bool,
    by: By,
) -> None:
    """Find skills by what they are for, the best first. Exits with 1 if none shares a word with the query.

    A fit is strong if enough of the query was found. The right skill may be a weak one if the query is vague.

    With --session the search belongs to that session, and is recorded there.
    """
    place = opening.context
    session = opening.session() if place.session else place.discover_for_session().session(only=_names(opening))
    if wait:
        session.skills.wait_for_index()
    skills, result = session.skills, session.search(query, limit=limit, scope=scope, context=context, by=by)
    if explain or output.on_terminal():
        result = skills.explain(result)
    if opening.as_json:
        output.json_out(_explained(result) if explain else result.as_dict())
    elif result.results:
        if explain:
            _explain(result, ranked=skills.profile.search.scoring == "ranked")
        else:
            head, rows = _rows(result)
            # Where names may repeat, only scope and path say which skill is meant.
            repeats = skills.profile.collisions.rule == "ambiguous" and not skills.profile.resources.hide_paths
            places = [f"{hit.skill.scope}  {hit.skill.path}" for hit in result.results] if repeats else []
            if any(hit.shadowed_by or hit.like for hit in result.results):
                places = [_place(hit) for hit in result.results]
            output.table(head, rows, mark=_marker(result), below=places)
        if result.weak and not opening.quiet:
            click.echo("no skill fits this well; these are the nearest", err=True)
        if result.truncated and not opening.quiet:
            click.echo("more skills match; --limit shows more", err=True)
    elif not opening.quiet:
        click.echo(f"no skill matches {query!r}", err=True)
    if not opening.quiet:
        for line in _left_out(skills, query):
            click.echo(line, err=True)
        if result.indexing:
            done, total = result.indexing
            known = f"the text of {total:,} skills is being indexed, {done:,} so far"
            click.echo(f"searched names and descriptions only: {known}; --wait waits for it", err=True)
    if not result.results:
        raise click.exceptions.Exit(1)


def _left_out(skills: Skills, query: str) -> Iterator[str]:
    """A line for each skill that the query names and no search finds: it was left out, or it is broken."""
    words = {query.strip(), *query.split()}

    def named(path: str) -> bool:
        return os.path.basename(os.path.dirname(path)) in words

    for skipped in skills.skipped:
        if skipped.name in words or named(skipped.path):
            yield printable(f"left out: {skipped.path}: {skipped.detail or skipped.reason}")
    odd = (note for note in skills.warnings if note.code == "wrong-case")
    for note in (*skills.errors, *odd):
        if named(note.path):
            yield printable(f"broken: {note.path}: {note.message}")


def _place(hit: Hit) -> str:
    """The line below a hit, where some are shadowed or have copies."""
    shadowed = f"  shadowed by {hit.shadowed_by}" if hit.shadowed_by else ""
    like = f"  and {len(hit.like):,} like it" if hit.like else ""
    return f"{hit.skill.scope}  {hit.skill.path}{shadowed}{like}"


def _rows(result: SearchResult) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The heading and the lines of a table of hits. Only where some are weak, a column says how well each fits."""
    if not any(hit.fit == "weak" for hit in result.results):
        rows = [(f"{hit.score:g}", hit.skill.name, hit.reason, hit.skill.description) for hit in result.results]
        return ("score", "name", "why", "description"), [*rows]
    judged = [(f"{hit.score:g}", hit.fit, hit.skill.name, hit.reason, hit.skill.description) for hit in result.results]
    return ("score", "fit", "name", "why", "description"), [*judged]


def _names(opening: Opening) -> Sequence[str] | None:
    return opening.only or None


_WHY: Final[Mapping[str, str]] = {
    "exact_path": "the query is its path",
    "exact_name": "the query is its name",
    "prefix": "its name begins with the query",
    "token_overlap": "it shares words with the query",
}


_FITS: Final[Mapping[str, str]] = {
    "strong": "strong",
    "weak": "weak: too little of the query was found to be sure, so read the description",
    "": "",
}


def _explain(result: SearchResult, ranked: bool) -> None:
    """Each hit with the reasons for it, and the score below which a hit is weak."""
    from metier.catalog.search.finder import THRESHOLD

    mark = _marker(result)
    for number, hit in enumerate(result.results, 1):
        spelled = hit.reason == "token_overlap" and not hit.matched
        why = "its name is spelled much like the query" if spelled else _WHY[hit.reason]
        click.secho(f"{number}. {printable(hit.skill.name)}", bold=True)
        facts = (
            ("score", f"{hit.score:g}"),
            ("fit", _FITS[hit.fit]),
            ("why", f"{why} ({hit.reason})"),
            ("matched", ", ".join(hit.matched)),
            ("description", hit.skill.description),
            ("file", hit.file),
            ("shadowed by", hit.shadowed_by),
            ("like it", ", ".join(one.path for one in hit.like)),
            ("scope", hit.skill.scope),
            ("path", hit.skill.path),
        )
        output.facts(facts, mark)
        click.echo()
    words = f"words 100 to 200, and a hit below {THRESHOLD:g} is weak" if ranked else "words 100 and one each"
    click.echo(output.wrap(f"A path scores 1000, a name 900, the beginning of a name 700, {words}."))


def _explained(result: SearchResult) -> JsonObject:
    data = result.as_dict()
    for row, hit in zip(data["results"], result.results, strict=True):
        row["matched"] = list(hit.matched)
    return data


def _marker(result: SearchResult) -> Callable[[str], str]:
    """Sets the words that matched in bold."""
    from metier.catalog.search.words import spans, terms

    wanted = {term for hit in result.results for word in hit.matched for term in terms(word)}

    def mark(line: str) -> str:
        for start, end in reversed(spans(line, wanted)):
            line = line[:start] + click.style(line[start:end], bold=True) + line[end:]
        return line

    return mark


@click.command("prompt", epilog="Examples:\n\n\b\n  metier prompt --budget 4000\n  metier prompt --full --profile omp")
@click.option("--message", metavar="TEXT", help="The user's message; the skills that fit it come first.")
@click.option(
    "--budget",
    type=click.IntRange(0),
    metavar="N",
    help="At most this many characters (bytes in codelia). By default the host's limit, or 50,000.",
)
@file_option
@click.option("--format", "format_", metavar="F", help="Another format: xml, codelia, list, tool, json, or a host's.")
@click.option("--full", is_flag=True, help="The whole system prompt, with AGENTS.md files.")
@click.option("--base", default="", metavar="TEXT", help="The host's own prompt, which comes first; implies --full.")
@opens_sessions
def prompt_command(
    opening: Opening,
    message: str | None,
    budget: int | None,
    files: tuple[str, ...],
    format_: str | None,
    full: bool,
    base: str,
) -> None:
    """Show what goes into the system prompt.

    With --session, its skills count as offered to the model of that session.
    """
    if format_:
        opening.context.overrides["prompt.format"] = format_
    session = opening.session()
    worked_on = files or None
    offers = opening.context.session is not None  # without a session to go on with, only a person looks at it
    whole = bool(full or base)
    listed = CatalogPrompt(message=message, budget=budget, files=worked_on)
    prompt = session.perform(listed, offers=offers and not whole)
    if whole:
        system = SystemPrompt(base=base, message=message, budget=budget, files=worked_on)
        text = session.perform(system, offers=offers).text
        prompt = Prompt(text, prompt.shown, prompt.total, prompt.truncated)
    if opening.as_json:
        output.json_out(prompt.as_dict())
        return
    if prompt.text:
        click.echo(output.safe(prompt.text))
    if not opening.quiet:
        click.echo(f"{prompt.shown:,} of {prompt.total:,} skills, {len(prompt.text):,} characters", err=True)


@click.command(
    "load",
    epilog='Examples:\n\n\b\n  metier load release-notes --args "v1.0..v1.1"\n  metier load --path ./pdf/SKILL.md',
)
@click.argument("name", required=False, shell_complete=complete_skill)
@click.option("--path", metavar="P", help="The path of a SKILL.md of the catalog, instead of a name.")
@click.option("--args", "arguments", default="", metavar="TEXT", help="What the skill should work on.")
@click.option("--parent", metavar="NAME", help="The skill that asks for this one, if one does.")
@by_option
@opens_sessions
def load_command(
    opening: Opening, name: str | None, path: str | None, arguments: str, parent: str | None, by: By
) -> None:
    """Show what the model gets when it activates a skill."""
    if not name and not path:
        raise ConfigError("name a skill, or give its --path", key="NAME")
    loaded = opening.session().load(name, path=path, arguments=arguments, parent=parent, by=by)
    if opening.as_json:
        output.json_out(loaded.as_dict())
    else:
        click.echo(output.safe(loaded.text))


@click.command(
    "read",
    epilog="Examples:\n\n\b\n  metier read csv-profile references/pitfalls.md\n"
    "  metier read skill://csv-profile/references/pitfalls.md",
)
@click.argument("name", shell_complete=complete_skill)
@click.argument("path", required=False, shell_complete=complete_file)
@click.option("--raw", is_flag=True, help="The bytes as they are, whole, of any kind of file.")
@by_option
@opens_sessions
def read_command(opening: Opening, name: str, path: str | None, raw: bool, by: By) -> None:
    """Read a file of a skill, by name and path or by a skill:// URL."""
    resource = opening.session().read(name, path, by=by, raw=raw)
    if opening.as_json:
        output.json_out(resource.as_dict())
    elif resource.data is not None:
        click.echo(resource.data, nl=False)
    else:
        click.echo(output.safe(resource.text), nl=not resource.text.endswith("\n"))


@click.command(
    "invoke",
    epilog='Examples:\n\n\b\n  metier invoke "/release-notes v1.0..v1.1"\n'
    "  echo 'use $csv-profile' | metier invoke -",
)
@click.argument("message")
@opens_sessions
def invoke_command(opening: Opening, message: str) -> None:
    """Show what a user's message calls, as a host would see it; `-` reads it from stdin."""
    text = standard_input() if message == "-" else message
    invocation = opening.session().invoke(text)
    if opening.as_json:
        output.json_out(invocation.as_dict())
        raise click.exceptions.Exit(0 if invocation.skill is not None else 1)
    for choice in invocation.choices:
        click.echo(f"${choice.name} is ambiguous; put one of these paths into the message:", err=True)
        for candidate in choice.candidates:
            click.echo(f"  {blank_controls(candidate.path)} ({candidate.scope})", err=True)
    if invocation.skill is None:
        click.echo("the message calls no skill", err=True)
        raise click.exceptions.Exit(1)
    called = [f"{skill.name}, {skill.path}" for skill in invocation.mentioned]
    output.facts((*(("skill", one) for one in called), ("message", invocation.message)), whole=("skill",))
    if invocation.loaded is not None:
        click.echo("\n" + output.safe(invocation.loaded.text))


@click.command("end-turn", epilog="Example:\n\n\b\n  metier end-turn --session ID")
@opens_sessions
def end_turn_command(opening: Opening) -> None:
    """Begin the user's next turn: what skills were granted for the last one is gone."""
    session = opening.session()
    session.end_turn()
    if opening.as_json:
        output.json_out({})
    elif not opening.quiet:
        click.echo(f"the turn of session {printable(session.id)} ended", err=True)


@click.command("output", epilog="Example:\n\n\b\n  metier output skill-0a1b2c3d4e5f --session ID --grep TODO")
@click.argument("ref")
@click.option("--from", "start", type=click.IntRange(1), default=1, metavar="N", help="The first line, from 1.")
@click.option("--to", "end", type=click.IntRange(1), metavar="N", help="The last line.")
@click.option("--grep", metavar="TEXT", help="Only the lines that contain this text, with their numbers.")
@opens_sessions
def output_command(opening: Opening, ref: str, start: int, end: int | None, grep: str | None) -> None:
    """Show again what a session was given, by its ref."""
    text = opening.session().output(ref, start=start, end=end, grep=grep)
    if opening.as_json:
        output.json_out({"text": text})
    else:
        click.echo(output.safe(text))


@click.command("compact", epilog="Example:\n\n\b\n  metier compact --session ID --budget 8000")
@click.option(
    "--budget",
    type=click.IntRange(0),
    default=limits.COMPACTION_CHARACTERS,
    metavar="N",
    help="At most this many characters.",
)
@opens_sessions
def compact_command(opening: Opening, budget: int) -> None:
    """Show what belongs back into a context that its host compacted."""
    compaction = opening.session().compact(budget)
    if opening.as_json:
        output.json_out(compaction.as_dict())
    elif compaction.text:
        click.echo(output.safe(compaction.text))
    elif not opening.quiet:
        click.echo("the session has loaded nothing; --session names a session", err=True)


@click.command("tools", epilog="Example:\n\n\b\n  metier tools --profile remcochat --json")
@opens_sessions
def tools_command(opening: Opening) -> None:
    """List the tools that a model is given."""
    tools = opening.session().tools()
    if opening.as_json:
        output.json_out([tool.as_dict() for tool in tools])
    elif tools:
        rows = [(tool.name, ", ".join(tool.input_schema["properties"]), tool.description) for tool in tools]
        output.table(("tool", "arguments", "description"), rows)
    elif not opening.quiet:
        click.echo("no tools are offered", err=True)


@click.command("commands", epilog="Example:\n\n\b\n  metier commands --profile omp")
@opens_sessions
def commands_command(opening: Opening) -> None:
    """List the slash commands that a host may offer to a user, one per skill."""
    commands = opening.session().commands()
    if opening.as_json:
        output.json_out({"commands": commands})
        return
    for command in commands:
        click.echo(printable(command))
    if not commands and not opening.quiet:
        click.echo("no commands are offered: this host has none, or there are no skills here", err=True)


@click.command("may-use", epilog='Example:\n\n\b\n  metier may-use Bash --command "git status"')
@click.argument("tool")
@click.option("--command", default="", metavar="C", help="The command that it would run.")
@opens_sessions
def may_use_command(opening: Opening, tool: str, command: str) -> None:
    """Say whether a tool of the host may be used now. Exits with 3 if it may not."""
    allowed = opening.session().may_use(tool, command)
    if opening.as_json:
        output.json_out({"allowed": allowed})
    else:
        click.echo("allowed" if allowed else "refused")
    if not allowed:
        raise click.exceptions.Exit(3)


@click.command(
    "call",
    epilog='Examples:\n\n\b\n  metier call skill_load \'{"name": "pdf"}\'\n  metier call skill_search - < args.json',
)
@click.argument("tool")
@click.argument("arguments", default="{}", metavar="JSON")
@opens_sessions
def call_command(opening: Opening, tool: str, arguments: str) -> None:
    """Answer one tool call in the profile's shape. Exits with 1 if the answer is an error."""
    try:
        given: Any = parse_json(standard_input() if arguments == "-" else arguments)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the arguments are not JSON: {error}", key="JSON") from error
    result = opening.session().call(tool, given)
    output.json_out(result.as_dict())
    if not result.ok:
        raise click.exceptions.Exit(3 if result.rule else 1)


COMMANDS = (
    search_command,
    prompt_command,
    load_command,
    read_command,
    invoke_command,
    end_turn_command,
    output_command,
    compact_command,
    tools_command,
    commands_command,
    may_use_command,
    call_command,
)
