"""`check`: how each host would treat a skill, as text, JSON or SARIF 2.1.0, which code scanning services take."""

import os
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final
from urllib.parse import quote

import click

from metier import __version__
from metier.authoring import check
from metier.authoring.verdict import HeldVerdicts, HostVerdict, Status
from metier.catalog import validate
from metier.files.text import printable
from metier.hosts.roots import project_of
from metier.surfaces.cli import output
from metier.surfaces.cli.completion import complete_profile
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.failure import CommandRefusal
from metier.surfaces.cli.frame import command, option
from metier.values.skill import SKILL_FILE, Diagnostic, Severity
from metier.values.value import replace

# --- SARIF, which `validate` prints, too ---

_LEVEL: Final[dict[Severity, str]] = {"error": "error", "warning": "warning", "info": "note"}


Remark = tuple[Diagnostic, Mapping[str, str | None]]
"""One remark about a file, and the hosts to which it applies, each with how sure its verdict is.

Without hosts, it is about the file alone.
"""


def sarif_log(remarks: Sequence[Remark], base: str, command: str) -> dict[str, object]:
    """The remarks as a SARIF log. Paths below `base`, the project, are relative to it.

    `command` tells the runs of different commands apart, so that a service does not replace one by the other.
    """
    codes = list(dict.fromkeys(about.code for about, _ in remarks))
    described = {code: text for table in validate.codes().values() for code, text in table.items()}
    rules = [{"id": code, "shortDescription": {"text": described.get(code, code)}} for code in codes]
    driver = {"name": "metier", "semanticVersion": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"metier-{command}/"},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"PROJECT": {"uri": f"file://{_uri(base)}/"}},
        "results": [_result(about, hosts, codes.index(about.code), base) for about, hosts in remarks],
    }
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def _uri(path: str) -> str:
    return quote(os.fsencode(path))  # the name of a folder may contain bytes that are not UTF-8


def _result(about: Diagnostic, hosts: Mapping[str, str | None], rule: int, base: str) -> dict[str, object]:
    inside = about.path.startswith(f"{base.rstrip('/')}/")
    artifact = (
        {"uri": _uri(os.path.relpath(about.path, base)), "uriBaseId": "PROJECT"}
        if inside
        else {"uri": f"file://{_uri(about.path)}"}
    )
    region = {"startLine": max(about.line, 1), "startColumn": max(about.column, 1)}
    hint = f"; {about.hint}" if about.hint else ""
    named = f" ({', '.join(hosts)})" if hosts else ""
    result: dict[str, object] = {
        "ruleId": about.code,
        "ruleIndex": rule,
        "level": _LEVEL[about.severity],
        "message": {"text": f"{printable(about.message + hint)}{named}"},
        "locations": [{"physicalLocation": {"artifactLocation": artifact, "region": region}}],
    }
    if hosts:
        result["properties"] = {"hosts": list(hosts), "certainty": hosts}
    return result


# --- the command ---

_FOUND: Final[dict[Status, str]] = {
    "offered": "yes",
    "later": "later",
    "shadowed": "shadowed",
    "left-out": "left out",
    "elsewhere": "no",
    "invalid": "invalid",
}
_MEANING: Final[dict[Status, str]] = {
    "offered": "the host has it in its catalog",
    "later": "the host finds it once it uses files beside it",
    "shadowed": "the host uses another skill of the same name",
    "left-out": "a rule of the host leaves it out",
    "elsewhere": "it is not in a folder that the host searches",
    "invalid": "the host rejects it",
}
_COLUMNS: Final = "model, user: who can use it, - where that does not apply"
_NOT_FOUND: Final = ("shadowed", "left-out", "elsewhere")
_REASONS: Final = ("host-elsewhere", "host-left-out", "host-shadowed", "host-hidden", "host-cut")
"""The findings that can be why a host does not show a skill."""
_RANK: Final[dict[Severity, int]] = {"error": 0, "warning": 1, "info": 2}


@command(
    "check",
    "metier check .agents/skills/release-notes",
    "metier check --host codex --host gemini-cli .agents/skills",
    "metier check --sarif . > skills.sarif",
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@option(
    "--host NAME|FILE",
    "Require that this host finds and shows the skill, and check no other.",
    "hosts",
    many=True,
    complete=complete_profile,
)
@option("--sarif", "Print SARIF 2.1.0, for code review.")
def check_command(context: Context, paths: tuple[str, ...], hosts: tuple[str, ...], sarif: bool) -> int:
    """Show how each host would treat a skill, or all skills below a folder.

    For each host: whether it finds the skill, the name, who sees it, where text is cut, and which fields are ignored.
    Hosts are named with --host, or with `hosts` in the table [check] of a configuration file. Exits with 1 if a named
    host does not find the skill or does not show it. If no host is named, all are checked, and only one that rejects a
    skill counts.

    \b
    FOUND  yes       the host has it in its catalog
           later     it has it once it uses files beside it
           shadowed  it uses another skill of the same name
           left out  a rule of the host leaves it out
           no        it is not in a folder that the host searches
           invalid   the host rejects it
    MODEL  whether the model sees it in the list of skills
    USER   whether a user can call it, - if the host has no way to
    SURE   where the rules behind the verdict come from: all have tests, or
           are documented, or some were read from the host's source, or some
           are assumed; `metier profiles NAME` has the source of each
    """
    cwd = os.path.abspath(os.path.expanduser(context.cwd or "."))
    named = list(hosts) or ([context.profile] if context.profile else list(context.settings().check_hosts))
    with HeldVerdicts() as held:
        counts: dict[str, Counter[str]] = {}
        failed = 0
        for verdicts in check.by_host(paths, named or None, cwd, context.home, context.skills):
            held.add(verdicts)
            failed += sum(not _passes(verdict, named) for verdict in verdicts)
            for verdict in verdicts[:1]:
                counts[verdict.profile] = Counter(word for v in verdicts for word in (v.status, v.certainty or ""))
            del verdicts  # many of them are in a file by now, and the next host needs the memory
        if not counts:
            raise CommandRefusal(f"there is no {SKILL_FILE} in or below {', '.join(paths)}", "NOT_FOUND")
        skills = held.by_skill()
        if sarif:
            told = (one for each in skills for one in remarks(each, bool(named)))
            kept = [one for one in told if context.verbose or one[0].severity != "info"]
            output.json_out(sarif_log(sorted(kept, key=_rank), project_of(cwd), "check"))
        elif context.as_json:
            listed = ({"path": each[0].path, "verdicts": each} for each in skills)
            output.json_out({"hosts": list(counts), "passed": not failed, "skills": listed})
        else:
            first, second = next(skills), next(skills, None)
            if second is None:
                _one(first, context)
            else:
                _many(chain((first, second), skills), counts, cwd, context)
            if named and failed and not context.quiet:
                _tell_failed((v for each in held.by_skill() for v in each if not _passes(v, named)), cwd)
    return bool(failed)


def _passes(verdict: HostVerdict, named: Sequence[str]) -> bool:
    return verdict.shown if named else verdict.valid


def _tell_failed(failed: Iterable[HostVerdict], cwd: str) -> None:
    """Say which named hosts do not show which skills."""
    for verdict in failed:
        what = "does not find" if verdict.status in _NOT_FOUND else "rejects" if not verdict.valid else "does not show"
        click.echo(f"failed: {verdict.profile} {what} {printable(output.relative(verdict.path, cwd))}", err=True)


def _one(verdicts: Sequence[HostVerdict], context: Context) -> None:
    rows = [
        (v.profile, _FOUND[v.status], v.name, _seen(v, v.model), _seen(v, v.user, v.called), v.certainty or "-")
        for v in verdicts
    ]
    output.table(("host", "found", "name", "model", "user", "sure"), rows, 2)
    if not context.quiet:
        used = {v.status for v in verdicts} - {"offered"}
        _explain([f"{word}: {_MEANING[status]}" for status, word in _FOUND.items() if status in used], _COLUMNS)
    if not context.quiet:
        _tell_remarks(verdicts, remarks(verdicts), context.verbose, _RANK)


def _explain(meanings: Sequence[str], columns: str = "") -> None:
    """Say below a table what is in it."""
    text = "; ".join((*meanings, *([columns] if columns else [])))
    click.secho(output.wrap(text), dim=True)


def _seen(verdict: HostVerdict, may: bool, way: str = "always") -> str:
    return "-" if not way or verdict.status in ("invalid", "shadowed", "left-out") else "yes" if may else "no"


def _many(
    skills: Iterable[Sequence[HostVerdict]], counts: Mapping[str, Counter[str]], cwd: str, context: Context
) -> None:
    headers = (*_FOUND, "assumed")
    output.table(("host", *headers), [(host, *(str(count[s]) for s in headers)) for host, count in counts.items()], 0)
    if not context.quiet:
        used = {status for count in counts.values() for status in count if count[status]}
        _explain([f"{status}: {meaning}" for status, meaning in _MEANING.items() if status in used])
    severities: list[Severity] = ["error", "warning", "info"] if context.verbose else ["error", "warning"]
    number = rejected = 0
    for verdicts in skills:
        number += 1
        rejected += not all(verdict.valid for verdict in verdicts)
        told = [] if context.quiet else remarks(verdicts)
        if any(about.severity in severities for about, _ in told):
            click.secho(f"\n{printable(output.relative(verdicts[0].path, cwd))}", bold=True)
            _tell_remarks(verdicts, told, context.verbose, severities)
    if not context.quiet:
        click.echo(f"{number:,} skills, {rejected:,} of them rejected by a host", err=True)


def _tell_remarks(
    verdicts: Sequence[HostVerdict], told: Sequence[Remark], verbose: bool, severities: Container[Severity]
) -> None:
    everyone = [verdict.profile for verdict in verdicts]
    assumed = [one for one in told if one[0].code == "host-assumed"]
    others = [one for one in told if one[0].code not in ("host-assumed", "host-ignores")]
    for about, hosts in (*others, *_ignored(verdicts), *assumed):
        of_file = about.code in validate.codes()["diagnostics"]
        if about.severity not in severities or (of_file and about.severity == "info" and not verbose):
            continue
        who = "every host" if [*hosts] == everyone and len(everyone) > 1 else ", ".join(hosts)
        label = f"{about.severity}[{about.code}] in line {about.line}: " if of_file else ""
        click.echo(output.wrap(f"{label}{printable(about.message)} ({who})", "- ", "  "))


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
        yield Diagnostic("host-ignores", "info", text), dict.fromkeys(names)


def remarks(verdicts: Sequence[HostVerdict], required: bool = False) -> list[Remark]:
    """The remarks about the files, the most severe first. A remark that applies to several hosts occurs once.

    If the hosts are `required` to show the skills, it is an error if one does not.
    """
    hosts: dict[Diagnostic, dict[str, str | None]] = {}
    for verdict in verdicts:
        failed = required and not verdict.shown
        for found in verdict.diagnostics:
            hosts.setdefault(replace(found, path=verdict.path), {})[verdict.profile] = verdict.certainty
        for found in verdict.findings():
            about = replace(found, severity="error") if failed and found.code in _REASONS else found
            hosts.setdefault(about, {})[verdict.profile] = verdict.certainty
    return sorted(hosts.items(), key=_rank)


def _rank(remark: Remark) -> tuple[int, str, bool]:
    """The place of a remark among others: by severity, then by file."""
    about, _ = remark
    return _RANK[about.severity], about.path, about.code in validate.codes()["findings"]
