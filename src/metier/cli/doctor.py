"""`doctor`: what works on this machine, what is missing, and where each setting comes from; or what a skill lacks."""

import os
import platform
import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from metier import Skills, __version__
from metier.cli import output
from metier.cli.completion import complete_skill
from metier.cli.context import Context, shared
from metier.errors import SandboxUnavailable
from metier.model import SKILL_FILE, Diagnostic

if TYPE_CHECKING:
    from metier.hosts.schema import RunRules
    from metier.sandbox.probe import ProbeFinding


class Part(NamedTuple):
    """A part of the runtime that needs something of the machine."""

    name: str
    works: bool
    about: str


@click.command("doctor", epilog="Examples:\n\n\b\n  metier doctor --profile omp\n  metier doctor release-notes")
@click.argument("skill_name", metavar="[SKILL]", required=False, shell_complete=complete_skill)
@shared
def doctor_command(context: Context, skill_name: str | None) -> None:
    """Show what works here, what is missing, and where each setting comes from.

    With a SKILL, show what its scripts need: interpreters, programs, secrets and packages. Exits with 1 if one is
    missing, and says how to get it.
    """
    skills = context.discover()
    if skill_name is not None:
        from metier.cli.doctor_skill import examine_skill

        examine_skill(context, skills, skill_name)
        return
    sandbox, promises = _sandbox(skills.profile.run)
    parts = [sandbox, _cache(skills.settings.cache_folder)]
    if context.as_json:
        output.json_out(_report(skills, parts, promises))
    else:
        _print(skills, parts, promises)
    sys.stdout.flush()


def _report(skills: Skills, parts: list[Part], promises: "list[ProbeFinding]") -> dict[str, object]:
    return {
        **_facts(skills),
        "parts": [part._asdict() for part in parts],
        "sandbox": [finding._asdict() for finding in promises],
        "settings": dict(skills.settings.origins),
        "roots": [{"path": r.path, "source": r.source, "exists": os.path.isdir(r.path)} for r in skills.roots],
        "counts": skills.counts.as_dict(),
        "diagnostics": [diagnostic.as_dict() for diagnostic in _of_settings(skills)],
    }


def _print(skills: Skills, parts: list[Part], promises: "list[ProbeFinding]") -> None:
    output.facts(_facts(skills).items(), whole=("cwd", "project", "home", "config"))
    click.echo()
    rows = [(part.name, _yes(part.works), part.about) for part in parts]
    output.table(("part", "works", "about"), rows, whole=True)
    if promises:
        click.echo()
        output.table(("sandbox promise", "kept"), [(one.promise, _yes(one.held)) for one in promises], 0)
    if skills.settings.origins:
        click.echo()
        output.table(("setting", "set by"), sorted(skills.settings.origins.items()), whole=True)
    click.echo()
    rows = [(root.source, str(skills.catalog.per_root.get(root.path, "-")), root.path) for root in skills.roots]
    output.table(("source", "skills", "searched"), rows, whole=True)
    counts = skills.counts
    click.echo(
        f"\n{counts.found:,} found: {counts.loaded:,} offered, {counts.shadowed:,} shadowed, "
        f"{counts.skipped:,} left out, {counts.errors:,} broken"
    )
    for diagnostic in _of_settings(skills):
        output.diagnostic(diagnostic, skills.settings.place.cwd)


def _facts(skills: Skills) -> dict[str, str]:
    place = skills.settings.place
    return {
        "version": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "profile": skills.profile.name,
        "cwd": place.cwd,
        "project": place.project,
        "home": place.home,
        "config": skills.settings.config_folder,
    }


def _of_settings(skills: Skills) -> list[Diagnostic]:
    """The diagnostics that are not about a skill."""
    return [diagnostic for diagnostic in skills.diagnostics if not diagnostic.path.endswith(SKILL_FILE)]


def _sandbox(rules: "RunRules") -> "tuple[Part, list[ProbeFinding]]":
    """The sandbox of this machine, and the results of a few attempts to break out of it."""
    from metier.sandbox import choose
    from metier.sandbox.cgroup import find_place
    from metier.sandbox.probe import examine

    try:
        runner = choose(rules.sandbox, image=rules.image)
    except SandboxUnavailable as error:
        return Part("sandbox", False, str(error)), []
    findings = examine(runner)
    held = sum(finding.held for finding in findings)
    memory = "control group" if runner.name == "container" or find_place() is not None else "watched"
    text = f"{runner.name} keeps {held} of {len(findings)} promises; memory: {memory}"
    return Part("sandbox", held == len(findings), text), findings


def _cache(folder: str) -> Part:
    existing = folder
    while existing and not os.path.isdir(existing):
        existing = os.path.dirname(existing)
    works = bool(existing) and os.access(existing, os.W_OK)
    return Part("cache", works, f"caches scans in {folder}" if folder else "off: cache = false")


def _yes(value: bool) -> str:
    return "yes" if value else "NO"


COMMANDS = (doctor_command,)
