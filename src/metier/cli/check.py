"""`check`: how each host would treat a skill, for people, for programs, and as SARIF for code review."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from textwrap import fill
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import click

from metier import __version__
from metier.catalog import check, validate
from metier.catalog.check import HostVerdict, Status
from metier.cli import output
from metier.cli.completion import complete_profile
from metier.cli.context import Context, shared
from metier.files.text import printable
from metier.hosts.settings import project_of
from metier.model import SKILL_FILE, Severity

_FOUND: Final[dict[Status, str]] = {
    "offered": "yes", "later": "later", "shadowed": "shadowed", "left-out": "left out", "elsewhere": "no",
    "invalid": "invalid",
}  # fmt: skip
_RANK: Final[dict[Severity, int]] = {"error": 0, "warning": 1, "info": 2}
_LEVEL: Final[dict[Severity, str]] = {"error": "error", "warning": "warning", "info": "note"}


class Remark(NamedTuple):
    """One thing to say about a file, and the hosts of which it holds."""

    code: str
    severity: Severity
    message: str
    path: str
    line: int
    column: int
    key: str
    """The field that a host ignores, where that is the remark."""
    hosts: tuple[str, ...]


@click.command(
    "check",
    epilog="Examples:\n\n\b\n  metier check .agents/skills/release-notes\n"
    "  metier check --host claude-code --host codex .\n  metier check --sarif . > skills.sarif",
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME|FILE", shell_complete=complete_profile,
    help="Ask only this profile; may be repeated.",
)  # fmt: skip
@click.option("--sarif", is_flag=True, help="Print SARIF 2.1.0, for code review.")
@shared
def check_command(context: Context, paths: tuple[str, ...], hosts: tuple[str, ...], sarif: bool) -> None:
    """Say how each host would treat a skill, or all skills below a folder.

    Found or not and where it would have to be, under which name, shown to whom, cut where, which fields are ignored.
    Each host's rules come from its public documentation; `metier profiles NAME` shows them. Exits with 1 if a host
    would not take a skill.
    """
    cwd = os.path.abspath(os.path.expanduser(context.cwd or "."))
    asked = list(hosts) or ([context.profile] if context.profile else None)
    verdicts = check.examine(paths, asked, cwd, context.home, context.skills)
    if not verdicts:
        raise click.ClickException(f"there is no {SKILL_FILE} in or below {', '.join(paths)}")
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
        told: list[Severity] = ["error", "warning", "info"] if context.verbose else ["error", "warning"]
        if not context.quiet and any(remark.severity in told for remark in remarks(verdicts)):
            shown = os.path.relpath(path, cwd) if path.startswith(f"{cwd.rstrip('/')}/") else path
            click.secho(f"\n{printable(shown)}", bold=True)
            _remarks(verdicts, context.verbose, told)
    if not context.quiet:
        refused = sum(1 for each in skills.values() if not all(v.valid for v in each))
        click.echo(f"{len(skills):,} skills, {refused:,} of them refused by a host", err=True)


def _remarks(verdicts: Sequence[HostVerdict], verbose: bool, severities: Iterable[Severity]) -> None:
    everyone = tuple(verdict.profile for verdict in verdicts)
    for remark in _joined(remarks(verdicts)):
        of_file = remark.code in validate.CODES
        if remark.severity not in severities or (of_file and remark.severity == "info" and not verbose):
            continue
        who = "every host" if remark.hosts == everyone and len(everyone) > 1 else ", ".join(remark.hosts)
        label = f"{remark.severity}[{remark.code}] in line {remark.line}: " if of_file else ""
        text = f"{label}{printable(remark.message)} ({who})"
        click.echo(fill(text, output.width(), initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False))


def _joined(told: Sequence[Remark]) -> list[Remark]:
    """The same with one line for all the fields that the same hosts ignore."""
    ignored: dict[tuple[str, ...], list[str]] = {}
    for remark in told:
        if remark.code == "host-ignores":
            ignored.setdefault(remark.hosts, []).append(remark.key)
    rest = [remark for remark in told if remark.code != "host-ignores"]
    for hosts, keys in ignored.items():
        text = f"ignored: {', '.join(f'`{key}`' for key in keys)}"
        one = Remark(code="host-ignores", severity="info", message=text, path="", line=1, column=1, key="", hosts=hosts)
        rest.append(one)
    return rest


def remarks(verdicts: Sequence[HostVerdict]) -> list[Remark]:
    """What is to be said about the files, worst first; what holds of several hosts is said once."""
    hosts: dict[tuple[str, Severity, str, str, int, int, str], list[str]] = {}
    for verdict in verdicts:
        for key in _said(verdict):
            hosts.setdefault(key, []).append(verdict.profile)
    found = [Remark(*key, tuple(dict.fromkeys(names))) for key, names in hosts.items()]
    return sorted(found, key=lambda remark: (_RANK[remark.severity], remark.path, remark.code in check.FINDINGS))


def _said(verdict: HostVerdict) -> Iterator[tuple[str, Severity, str, str, int, int, str]]:
    for d in verdict.diagnostics:
        yield d.code, d.severity, d.message, verdict.path, d.line, d.column, ""
    for found in verdict.findings():
        yield found.code, found.severity, found.message, verdict.path, found.line, 1, found.key


# --- SARIF ---


def _sarif(verdicts: Sequence[HostVerdict], base: str, notes: bool) -> dict[str, Any]:
    """The remarks as a SARIF log; those that are only good to know stand in it where they were asked for."""
    told = [remark for remark in remarks(verdicts) if notes or remark.severity != "info"]
    codes = list(dict.fromkeys(remark.code for remark in told))
    described = {**validate.CODES, **check.FINDINGS}
    rules = [{"id": code, "shortDescription": {"text": described.get(code, code)}} for code in codes]
    driver = {"name": "metier", "semanticVersion": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"PROJECT": {"uri": f"file://{_uri(base)}/"}},
        "results": [_result(remark, codes.index(remark.code), base) for remark in told],
    }
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def _uri(path: str) -> str:
    return quote(os.fsencode(path))  # the name of a folder may hold bytes that are no UTF-8


def _result(remark: Remark, rule: int, base: str) -> dict[str, Any]:
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
