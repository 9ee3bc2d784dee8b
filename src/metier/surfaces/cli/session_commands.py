"""`search`, `prompt`, `load` and `read`: what a host would get. Each performs one operation of a session."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import click

from metier.errors import ConfigError
from metier.files.text import printable
from metier.session.queries import CatalogPrompt, SystemPrompt
from metier.skills import Skills
from metier.surfaces.cli import output
from metier.surfaces.cli.completion import complete_file, complete_skill
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import command, option
from metier.values.results import Hit, Prompt, SearchResult

by_option = option(
    "--by",
    "Who asks. For a model, what is hidden from models does not exist.",
    type=click.Choice(["user", "model"]),
    default="user",
)


@command(
    "search",
    'metier search "profile a csv file"',
    "metier search pdf --limit 3 --json",
    'metier search "check a csv file" --explain',
    sessions=True,
)
@click.argument("query")
@option("--limit N", "How many to show.", type=int)
@option("--scope S", "Only skills of this scope.")
@option("--context TEXT", "Optional context with little weight: languages, names of files.")
@option("--explain", "Say why each skill was found.")
@option("--wait", "Wait until the text of all skills is indexed.")
@by_option
def search_command(context: Context, /, query: str, explain: bool, wait: bool, **fields: Any) -> int:
    """Find skills by what they are for, the best first. Exits with 1 if none shares a word with the query.

    A fit is strong if enough of the query was found. The right skill may be a weak one if the query is vague.

    With --session the search belongs to that session, and is recorded there.
    """
    session = (
        context.open_session() if context.session else context.discover_for_session().session(only=context.only or None)
    )
    if wait:
        session.skills.wait_for_index()
    skills, result = session.skills, session.search(query, **fields)
    if explain or output.on_terminal():
        result = skills.explain(result)
    if context.as_json:
        hits = [{**hit.as_dict(), "matched": hit.matched} for hit in result.results]
        output.json_out({**result.as_dict(), "results": hits} if explain else result)
    elif not result.results:
        context.hint(f"no skill matches {query!r}")
    else:
        if explain:
            _explain(result, ranked=skills.profile.search.scoring == "ranked")
        else:
            _show(result, skills)
        if result.weak:
            context.hint("no skill fits this well; these are the nearest")
        if result.truncated:
            context.hint("more skills match; --limit shows more")
    for line in _left_out(skills, query):
        context.hint(line)
    if result.indexing:
        done, total = result.indexing
        known = f"the text of {total:,} skills is being indexed, {done:,} so far"
        context.hint(f"searched names and descriptions only: {known}; --wait waits for it")
    return not result.results


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


def _show(result: SearchResult, skills: Skills) -> None:
    """The hits as a table. A column says how well each fits if some are weak."""
    weak = any(hit.fit == "weak" for hit in result.results)
    heading = ("score", *(("fit",) if weak else ()), "name", "why", "description")
    denied = output.denying_rule(skills)
    rows = [
        (
            f"{hit.score:g}",
            *((hit.fit,) if weak else ()),
            hit.skill.name + output.mark_of(hit.skill, denied),
            hit.reason,
            hit.skill.description,
        )
        for hit in result.results
    ]
    # Where names may repeat, or some are shadowed or have copies, only scope and path say which skill is meant.
    repeats = skills.profile.collisions.rule == "ambiguous" and not skills.profile.resources.hide_paths
    placed = repeats or any(hit.shadowed_by or hit.like for hit in result.results)
    below = [_place(hit) for hit in result.results] if placed else []
    output.table(heading, rows, mark=_marker(result), below=below)


def _place(hit: Hit) -> str:
    shadowed = f"  shadowed by {hit.shadowed_by}" if hit.shadowed_by else ""
    like = f"  and {len(hit.like):,} like it" if hit.like else ""
    return f"{hit.skill.scope}  {hit.skill.path}{shadowed}{like}"


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
    from metier.search.finder import THRESHOLD

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


def _marker(result: SearchResult) -> Callable[[str], str]:
    """Sets the words that matched in bold."""
    from metier.search.words import spans, terms

    wanted = {term for hit in result.results for word in hit.matched for term in terms(word)}

    def mark(line: str) -> str:
        for start, end in reversed(spans(line, wanted)):
            line = line[:start] + click.style(line[start:end], bold=True) + line[end:]
        return line

    return mark


@command("prompt", "metier prompt --budget 4000", "metier prompt --full --profile omp", sessions=True)
@option("--message TEXT", "The user's message; it adds skills where the list is cut.")
@option(
    "--budget N",
    "At most this many characters (bytes in codelia). By default the host's limit, or 50,000.",
    type=click.IntRange(0),
)
@option("--file F", "A file being worked on; decides about skills with paths.", "files", multiple=True)
@option("--format F", "Another format: xml, codelia, list, tool, json, or a host's.", "format_")
@option("--full", "The whole system prompt, with AGENTS.md files.")
@option("--base TEXT", "The host's own prompt, which comes first; implies --full.", default="")
def prompt_command(
    context: Context, format_: str | None, full: bool, base: str, files: tuple[str, ...], **fields: Any
) -> None:
    """Show what goes into the system prompt.

    With --session, its skills count as offered to the model of that session.
    """
    if format_:
        context.overrides["prompt.format"] = format_
    fields["files"] = files or None
    session = context.open_session()
    offers = context.session is not None  # without a session to go on with, only a person looks at it
    whole = bool(full or base)
    prompt = session.perform(CatalogPrompt(**fields), offers=offers and not whole)
    if whole:
        text = session.perform(SystemPrompt(base=base, **fields), offers=offers).text
        prompt = Prompt(text, prompt.shown, prompt.total, prompt.truncated)
    if context.as_json:
        output.json_out(prompt)
        return
    if prompt.text:
        click.echo(output.safe(prompt.text))
    context.hint(f"{prompt.shown:,} of {prompt.total:,} skills, {len(prompt.text):,} characters")


@command(
    "load",
    'metier load release-notes --args "v1.0..v1.1"',
    "metier load --path ./pdf/SKILL.md",
    sessions=True,
)
@click.argument("name", required=False, shell_complete=complete_skill)
@option("--path P", "The path of a SKILL.md of the catalog, instead of a name.")
@option("--args TEXT", "What the skill should work on.", "arguments", default="")
@option("--parent NAME", "The skill that asks for this one, if one does.")
@by_option
def load_command(context: Context, name: str | None, path: str | None, **fields: Any) -> None:
    """Show what the model gets when it activates a skill."""
    if not name and not path:
        raise ConfigError("name a skill, or give its --path", key="NAME")
    loaded = context.open_session().load(name, path=path, **fields)
    context.answer(loaded, loaded.text)


@command(
    "read",
    "metier read csv-profile references/pitfalls.md",
    "metier read skill://csv-profile/references/pitfalls.md",
    sessions=True,
)
@click.argument("name", shell_complete=complete_skill)
@click.argument("path", required=False, shell_complete=complete_file)
@option("--raw", "The bytes as they are, whole, of any kind of file.")
@by_option
def read_command(context: Context, **fields: Any) -> None:
    """Read a file of a skill, by name and path or by a skill:// URL."""
    resource = context.open_session().read(**fields)
    if context.as_json:
        output.json_out(resource)
    elif resource.data is not None:
        click.echo(resource.data, nl=False)
    else:
        click.echo(output.safe(resource.text), nl=not resource.text.endswith("\n"))
