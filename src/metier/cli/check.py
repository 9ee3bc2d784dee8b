"""`check`: how each host would treat a skill, as text, JSON or SARIF."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

import click

from metier import __version__
from metier.catalog import check, validate
from metier.catalog.check import HostVerdict, Status
from metier.cli import output
from metier.cli.context import Context, complete_profile, shared
from metier.cli.failure import CommandRefusal
from metier.files.text import printable
from metier.hosts.settings import project_of
from metier.model import SKILL_FILE, Severity

_FOUND: Final[dict[Status, str]] = {
    "offered": "yes",
    "later": "later",
    "shadowed": "shadowed",
    "left-out": "left out",
    "elsewhere": "no",
    "invalid": "invalid",
}
_RANK: Final[dict[Severity, int]] = {"error": 0, "warning": 1, "info": 2}
_LEVEL: Final[dict[Severity, str]] = {"error": "error", "warning": "warning", "info": "note"}


class Remark(NamedTuple):
    """One remark about a file, and the hosts to which it applies."""

    code: str
    severity: Severity
    message: str
    path: str
    line: int
    column: int
    hosts: tuple[str, ...] = ()


@click.command(
    "check",
    epilog="Examples:\n\n\b\n  metier check .agents/skills/release-notes\n"
    "  metier check --host claude-code --host codex .\n  metier check --sarif . > skills.sarif",
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME|FILE",
    shell_complete=complete_profile,
    help="Check only this profile. Can be repeated.",
)
@click.option("--sarif", is_flag=True, help="Print SARIF 2.1.0, for code review.")
@shared
def check_command(context: Context, paths: tuple[str, ...], hosts: tuple[str, ...], sarif: bool) -> None:
    """Show how each host would treat a skill, or all skills below a folder.

    For each host: whether it finds the skill, the name, who sees it, where text is cut, and which fields are ignored.
    The rules of a host come from its public documentation; `metier profiles NAME` shows them. Exits with 1 if a host
    rejects a skill.
    """
    cwd = os.path.abspath(os.path.expanduser(context.cwd or "."))
    asked = list(hosts) or ([context.profile] if context.profile else None)
    verdicts = check.examine(paths, asked, cwd, context.home, context.skills)
    if not verdicts:
        raise CommandRefusal(f"there is no {SKILL_FILE} in or below {', '.join(paths)}", "NOT_FOUND")
    skills: dict[str, list[HostVerdict]] = {}
    for verdict in verdicts:
        skills.setdefault(verdict.path, []).append(verdict)
    if sarif:
        output.json_out(_sarif(verdicts, project_of(cwd), context.verbose))
    elif context.as_json:
        output.json_out(
            {
                "hosts": list(dict.fromkeys(v.profile for v in verdicts)),
                "skills": [{"path": path, "verdicts": [v.as_dict() for v in each]} for path, each in skills.items()],
            }
        )
    elif len(skills) == 1:
        _one(verdicts, context)
    else:
        _many(skills, cwd, context)
    if not all(verdict.valid for verdict in verdicts):
        raise click.exceptions.Exit(1)


def _one(verdicts: Sequence[HostVerdict], context: Context) -> None:
    rows = [(v.profile, _FOUND[v.status], v.name, _seen(v, v.model), _seen(v, v.user, v.called)) for v in verdicts]
    output.table(("host", "found", "name", "model", "user"), rows, 2)
    if not context.quiet:
        _remarks(verdicts, context.verbose, _RANK)


def _seen(verdict: HostVerdict, may: bool, way: str = "always") -> str:
    return "-" if not way or verdict.status in ("invalid", "shadowed", "left-out") else "yes" if may else "no"


def _many(skills: dict[str, list[HostVerdict]], cwd: str, context: Context) -> None:
    counts: dict[str, Counter[Status]] = {}
    for verdict in (v for each in skills.values() for v in each):
        counts.setdefault(verdict.profile, Counter())[verdict.status] += 1
    headers = ("host", *(status for status in _FOUND))
    output.table(headers, [(host, *(str(count[s]) for s in _FOUND)) for host, count in counts.items()], 0)
    for path, verdicts in skills.items():
        severities: list[Severity] = ["error", "warning", "info"] if context.verbose else ["error", "warning"]
        if not context.quiet and any(remark.severity in severities for remark in remarks(verdicts)):
            shown = os.path.relpath(path, cwd) if path.startswith(f"{cwd.rstrip('/')}/") else path
            click.secho(f"\n{printable(shown)}", bold=True)
            _remarks(verdicts, context.verbose, severities)
    if not context.quiet:
        rejected = sum(1 for each in skills.values() if not all(v.valid for v in each))
        click.echo(f"{len(skills):,} skills, {rejected:,} of them rejected by a host", err=True)


def _remarks(verdicts: Sequence[HostVerdict], verbose: bool, severities: Iterable[Severity]) -> None:
    everyone = tuple(verdict.profile for verdict in verdicts)
    for remark in (*_without_ignored(verdicts), *_ignored(verdicts)):
        of_file = remark.code in validate.CODES
        if remark.severity not in severities or (of_file and remark.severity == "info" and not verbose):
            continue
        who = "every host" if remark.hosts == everyone and len(everyone) > 1 else ", ".join(remark.hosts)
        label = f"{remark.severity}[{remark.code}] in line {remark.line}: " if of_file else ""
        text = f"{label}{printable(remark.message)} ({who})"
        click.echo(output.wrap(text, "- ", "  "))


def _without_ignored(verdicts: Sequence[HostVerdict]) -> list[Remark]:
    return [remark for remark in remarks(verdicts) if remark.code != "host-ignores"]


def _ignored(verdicts: Sequence[HostVerdict]) -> Iterator[Remark]:
    """One remark for all fields that the same hosts ignore."""
    hosts: dict[str, list[str]] = {}
    for verdict in verdicts:
        for key in verdict.ignored:
            hosts.setdefault(key, []).append(verdict.profile)
    keys: dict[tuple[str, ...], list[str]] = {}
    for key, names in hosts.items():
        keys.setdefault(tuple(names), []).append(key)
    for names, ignored in keys.items():
        text = f"ignored: {', '.join(f'`{key}`' for key in ignored)}"
        yield Remark(code="host-ignores", severity="info", message=text, path="", line=1, column=1, hosts=names)


def remarks(verdicts: Sequence[HostVerdict]) -> list[Remark]:
    """The remarks about the files, the most severe first. A remark that applies to several hosts occurs once."""
    hosts: dict[Remark, list[str]] = {}
    for verdict in verdicts:
        for remark in _remarks_of(verdict):
            hosts.setdefault(remark, []).append(verdict.profile)
    found = [remark._replace(hosts=tuple(dict.fromkeys(names))) for remark, names in hosts.items()]
    return sorted(found, key=lambda remark: (_RANK[remark.severity], remark.path, remark.code in check.FINDINGS))


def _remarks_of(verdict: HostVerdict) -> Iterator[Remark]:
    """The remarks of one host, which is not named in them yet."""
    for d in verdict.diagnostics:
        yield Remark(
            code=d.code, severity=d.severity, message=d.message, path=verdict.path, line=d.line, column=d.column
        )
    for one in verdict.findings():
        yield Remark(
            code=one.code, severity=one.severity, message=one.message, path=verdict.path, line=one.line, column=1
        )


# --- SARIF ---


def _sarif(verdicts: Sequence[HostVerdict], base: str, notes: bool) -> dict[str, object]:
    """The remarks as a SARIF log. Those of severity `info` are included only if `notes` is set."""
    included = [remark for remark in remarks(verdicts) if notes or remark.severity != "info"]
    codes = list(dict.fromkeys(remark.code for remark in included))
    described = {**validate.CODES, **check.FINDINGS}
    rules = [{"id": code, "shortDescription": {"text": described.get(code, code)}} for code in codes]
    driver = {"name": "metier", "semanticVersion": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"PROJECT": {"uri": f"file://{_uri(base)}/"}},
        "results": [_result(remark, codes.index(remark.code), base) for remark in included],
    }
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def _uri(path: str) -> str:
    return quote(os.fsencode(path))  # the name of a folder may contain bytes that are not UTF-8


def _result(remark: Remark, rule: int, base: str) -> dict[str, object]:
    inside = remark.path.startswith(f"{base.rstrip('/')}/")
    artifact = (
        {"uri": _uri(os.path.relpath(remark.path, base)), "uriBaseId": "PROJECT"}
        if inside
        else {"uri": f"file://{_uri(remark.path)}"}
    )
    region = {"startLine": max(remark.line, 1), "startColumn": max(remark.column, 1)}
    return {
        "ruleId": remark.code,
        "ruleIndex": rule,
        "level": _LEVEL[remark.severity],
        "message": {"text": f"{printable(remark.message)} ({', '.join(remark.hosts)})"},
        "locations": [{"physicalLocation": {"artifactLocation": artifact, "region": region}}],
        "properties": {"hosts": list(remark.hosts)},
    }


COMMANDS = (check_command,)
