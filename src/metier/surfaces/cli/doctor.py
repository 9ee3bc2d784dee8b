"""`doctor`: what works here, where settings come from, and what a skill lacks."""

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from metier import Skills, __version__
from metier.errors import SandboxUnavailable, ScriptRefused
from metier.files.source import DiskFiles, take_folder
from metier.files.tree import SkillTree, TreeFile
from metier.policy.decide import Policy
from metier.policy.remembered import rules_without_skill
from metier.policy.rules import skill_request
from metier.running.grants.secrets import TOOL
from metier.running.packages import PackagesUnavailable, programs
from metier.running.packages.declared import declared
from metier.running.sandbox.interpreter import SYSTEM_FOLDERS, VISIBLE, find_program, recognise
from metier.running.secrets.storage import SecretStorage
from metier.running.variables import declared_in
from metier.surfaces.cli import output
from metier.surfaces.cli.completion import complete_skill
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import command
from metier.values.skill import SKILL_FILE, Diagnostic, Skill
from metier.values.value import JsonObject

if TYPE_CHECKING:
    from metier.hosts.schema import RunRules
    from metier.running.sandbox.probe import ProbeFinding


class Part(NamedTuple):
    """A part of the runtime that needs something of the machine."""

    name: str
    works: bool
    about: str


State = Literal["here", "missing", "hidden", "not-given", "wanted"]
"""`hidden` is a program that is here and that a sandbox does not see. A package is `wanted`: a run installs it."""


class Need(NamedTuple):
    """One thing that scripts of the skill need."""

    kind: Literal["interpreter", "program", "secret", "package"]
    name: str
    state: State
    where: tuple[str, ...]
    help: str = ""


@command("doctor", "metier doctor --profile omp", "metier doctor release-notes")
@click.argument("skill_name", metavar="[SKILL]", required=False, shell_complete=complete_skill)
def doctor_command(context: Context, skill_name: str | None) -> int:
    """Show what works here, what is missing, and where each setting comes from.

    With a SKILL, show what its scripts need: interpreters, and the programs, secrets and packages that it declares.
    Exits with 1 if one is missing, and says how to get it.
    """
    skills = context.discover()
    if skill_name is not None:
        return _examine_skill(context, skills, skill_name)
    sandbox, promises = _sandbox(skills.profile.run)
    parts = [sandbox, _packages_of_python(), _cache(skills.settings.cache_folder)]
    if context.as_json:
        report: JsonObject = {
            **_facts(skills),
            "parts": [part._asdict() for part in parts],
            "sandbox": [finding._asdict() for finding in promises],
            "settings": skills.settings.origins,
            "roots": [
                {"path": root.path, "source": root.source, "exists": os.path.isdir(root.path)} for root in skills.roots
            ],
            "counts": skills.counts,
            "diagnostics": _of_settings(skills),
        }
        output.json_out(report)
    else:
        _print(skills, parts, promises)
    sys.stdout.flush()
    return 0


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
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",  # `platform()` starts a program
        "profile": skills.profile.name,
        "cwd": place.cwd,
        "project": place.project,
        "home": place.home,
        "config": skills.settings.config_folder,
    }


def _of_settings(skills: Skills) -> list[Diagnostic]:
    """The diagnostics that are not about a skill."""
    found = [diagnostic for diagnostic in skills.diagnostics if not diagnostic.path.endswith(SKILL_FILE)]
    return [*found, *rules_without_skill(skills.settings, skills.catalog)]


def _sandbox(rules: "RunRules") -> "tuple[Part, list[ProbeFinding]]":
    """The sandbox of this machine, and the results of a few attempts to break out of it."""
    from metier.running.sandbox.cgroup import find_place
    from metier.running.sandbox.probe import examine
    from metier.running.sandbox.runners import choose

    try:
        runner = choose(rules.sandbox, image=rules.image)
    except SandboxUnavailable as error:
        return Part("sandbox", False, str(error)), []
    findings = examine(runner)
    held = sum(finding.held for finding in findings)
    memory = "control group" if runner.name == "container" or find_place() is not None else "watched"
    text = f"{runner.name} keeps {held} of {len(findings)} promises; memory: {memory}"
    return Part("sandbox", held == len(findings), text), findings


def _packages_of_python() -> Part:
    try:
        return Part("packages", True, f"scripts get packages for Python by {programs.uv()[0]}")
    except PackagesUnavailable as error:
        return Part("packages", False, str(error))


def _cache(folder: str) -> Part:
    existing = folder
    while existing and not os.path.isdir(existing):
        existing = os.path.dirname(existing)
    works = bool(existing) and os.access(existing, os.W_OK)
    return Part("cache", works, f"caches scans in {folder}" if folder else "off: cache = false")


def _yes(value: bool) -> str:
    return "yes" if value else "NO"


# --- what a skill lacks ---

_LACKS = ("missing", "hidden", "not-given")


def _examine_skill(context: Context, skills: Skills, skill_name: str) -> int:
    """Print what a skill needs. Exits with 1 if it lacks something."""
    skill = skills.catalog.find(skill_name)
    tree = take_folder(DiskFiles().folder(skill), skill.inner)
    files = list(tree.within(skills.profile.run.folders))
    needs = [
        *_interpreters(tree, files),
        *_programs(skill),
        *_secrets(skill, tree.digest, skills),
        *_packages(tree, files),
    ]
    lacks = [need for need in needs if need.state in _LACKS]
    if context.as_json:
        listed = [need._asdict() for need in needs]
        output.json_out({"skill": skill.name, "path": skill.path, "ready": not lacks, "needs": listed})
    elif needs:
        rows = [(need.kind, need.name, need.state, ", ".join(need.where)) for need in needs]
        output.table(("need", "name", "state", "named in"), rows, whole=True)
        for need in needs:
            if need.help:
                click.echo(output.safe(f"{need.name}: {need.help}"))
    else:
        click.echo("its scripts need nothing that could be missing")
    return bool(lacks)


def _interpreters(tree: SkillTree, files: Sequence[TreeFile]) -> Iterator[Need]:
    needed: dict[tuple[str, State, str], list[str]] = {}
    for file in files:
        try:
            name, state, text = find_program(tree, file.path).kind, "here", ""
        except ScriptRefused as error:
            named = error.reason == "unknown-interpreter" and file.data.startswith(b"#!")
            if error.reason != "interpreter-missing" and not named:
                continue
            name = "?" if named else recognise(tree, file.path).kind
            state, text = "missing", str(error).partition(": ")[2]
        needed.setdefault((name, state, text), []).append(file.path)
    for (name, state, text), where in needed.items():
        yield Need("interpreter", name, state, tuple(where), text)


def _programs(skill: Skill) -> Iterator[Need]:
    for name in declared_in(skill.frontmatter, "bins"):
        state, text = _look_for(name)
        yield Need("program", name, state, (SKILL_FILE,), text)


def _look_for(name: str) -> tuple[State, str]:
    places = [name] if os.path.isabs(name) else [os.path.join(folder, name) for folder in SYSTEM_FOLDERS]
    if any(os.access(path, os.X_OK) and os.path.realpath(path).startswith(VISIBLE) for path in places):
        return "here", ""
    elsewhere = shutil.which(name)
    if elsewhere is not None:
        folders = ", ".join(SYSTEM_FOLDERS)
        return "hidden", f"it is at {elsewhere}, which a sandbox does not see; install it for all users, in {folders}"
    return "missing", "install it with the package manager of the system"


def _secrets(skill: Skill, digest: str, skills: Skills) -> Iterator[Need]:
    policy, stored = Policy.configured(skills.settings), SecretStorage(skills.settings.config_folder).names()
    variables = {name for name in skills.profile.run.env if name in skills.settings.place.env}
    where = (SKILL_FILE,)
    for name in declared_in(skill.frontmatter, "env"):
        request = skill_request(TOOL, skill, digest=digest, name=name)
        is_given = policy.decide(request).verdict == "allow"
        allow = "" if is_given else f"`metier secret allow {name} {skill.name}`"
        if name in variables or (is_given and name in stored):
            yield Need("secret", name, "here", where)
        elif name in stored:
            yield Need("secret", name, "not-given", where, f"give it with {allow}")
        else:
            then = f", and give it with {allow}" if allow else ""
            yield Need("secret", name, "missing", where, f"set it with `metier secret set {name}`{then}")


def _packages(tree: SkillTree, files: Sequence[TreeFile]) -> Iterator[Need]:
    found: dict[str, list[str]] = {}
    for file in files:
        wanted = declared(tree, file.path) if _is_script(tree, file.path) else None
        for requirement in wanted.requirements if wanted is not None else ():
            found.setdefault(requirement, []).append(file.path)
    for requirement, where in found.items():
        yield Need("package", requirement, "wanted", tuple(where))


def _is_script(tree: SkillTree, path: str) -> bool:
    try:
        recognise(tree, path)
    except ScriptRefused:
        return False
    return True
