"""`doctor` and `caps`: what works here and where settings come from; what a skill lacks, names, may use and used."""

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, TypedDict, cast

import click

from metier import Skills, __version__
from metier.errors import SandboxUnavailable, ScriptRefused, StoreError
from metier.files.source import DiskFiles, take_folder
from metier.files.tree import SkillTree
from metier.policy.decide import Policy
from metier.policy.remembered import rules_without_skill
from metier.policy.rules import Rule, Verdict, skill_request
from metier.record.runs import ScriptTally, UsedCapabilities, used
from metier.running.capabilities.look import PACKAGE, NamedCapabilities, language_of, look
from metier.running.grants.secrets import TOOL
from metier.running.packages import PackagesUnavailable, programs
from metier.running.sandbox.interpreter import SYSTEM_FOLDERS, VISIBLE, find_program
from metier.running.secrets.storage import SecretStorage
from metier.surfaces.cli import output
from metier.surfaces.cli.completion import complete_skill
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import command
from metier.surfaces.cli.policy import RulePrinted, printed
from metier.values.skill import SKILL_FILE, Counts, Diagnostic, Skill
from metier.values.value import Count, Meta, Value

if TYPE_CHECKING:
    from metier.hosts.schema import RunRules
    from metier.running.sandbox.probe import ProbeFinding


class Part(NamedTuple):
    """A part of the runtime that needs something of the machine."""

    name: str
    works: bool
    about: str


class MachineFacts(TypedDict):
    version: str
    python: str
    platform: str
    profile: str
    cwd: str
    project: str
    home: str
    config: str


class SandboxPromise(NamedTuple):
    """A promise of the sandbox, and whether it was kept."""

    promise: str
    held: bool
    detail: str


class SettledRoot(NamedTuple):
    path: str
    source: str
    exists: bool


class MachineReport(Value, kw_only=True):
    json_keys = ("*facts", "parts", "sandbox", "settings", "roots", "counts", "diagnostics")

    facts: MachineFacts
    parts: Sequence[Part]
    sandbox: Sequence[SandboxPromise]
    settings: Mapping[str, str]
    roots: Sequence[SettledRoot]
    counts: Counts
    diagnostics: Sequence[Diagnostic]


State = Literal["here", "missing", "hidden", "not-given", "wanted"]
"""`hidden` is a program that is here and that a sandbox does not see. A package is `wanted`: a run installs it."""


class Need(NamedTuple):
    """One thing that scripts of the skill need."""

    kind: Literal["interpreter", "program", "secret", "package"]
    name: str
    state: State
    where: tuple[str, ...]
    help: str = ""


class SkillNeeds(Value):
    skill: str
    path: str
    ready: bool
    needs: Sequence[Need]


_REPORT: Final = MachineReport | Annotated[SkillNeeds, Meta(description="With a SKILL.")]


@command("doctor", "metier doctor --profile omp", "metier doctor release-notes", prints=_REPORT)
@click.argument("skill_name", metavar="[SKILL]", required=False, shell_complete=complete_skill)
def doctor_command(context: Context, skill_name: str | None) -> int:
    """Show what works here, what is missing, and where each setting comes from.

    With a SKILL, show what its scripts need: interpreters, programs, secrets and packages. Exits with 1 if one is
    missing, and says how to get it.
    """
    skills = context.discover()
    if skill_name is not None:
        return _examine_skill(context, skills, skill_name)
    sandbox, promises = _sandbox(skills.profile.run)
    parts = [sandbox, _packages_of_python(), _cache(skills.settings.cache_folder)]
    if context.as_json:
        output.json_out(_report(skills, parts, promises))
    else:
        _print(skills, parts, promises)
    sys.stdout.flush()
    return 0


def _report(skills: Skills, parts: list[Part], promises: "list[ProbeFinding]") -> "MachineReport":
    return MachineReport(
        facts=cast("MachineFacts", _facts(skills)),
        parts=parts,
        sandbox=[SandboxPromise(*finding) for finding in promises],
        settings=skills.settings.origins,
        roots=[SettledRoot(root.path, root.source, os.path.isdir(root.path)) for root in skills.roots],
        counts=skills.counts,
        diagnostics=_of_settings(skills),
    )


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
    named = look(tree, skill.frontmatter)
    needs = [
        *_interpreters(tree, skills.profile.run.folders),
        *_programs(named),
        *_secrets(named, skill, tree.digest, skills),
        *_packages(named),
    ]
    lacks = [need for need in needs if need.state in _LACKS]
    if context.as_json:
        output.json_out(SkillNeeds(skill.name, skill.path, not lacks, needs))
    elif needs:
        rows = [(need.kind, need.name, need.state, ", ".join(need.where)) for need in needs]
        output.table(("need", "name", "state", "named in"), rows, whole=True)
        for need in needs:
            if need.help:
                click.echo(output.safe(f"{need.name}: {need.help}"))
    else:
        click.echo("its scripts need nothing that could be missing")
    return bool(lacks)


def _interpreters(tree: SkillTree, folders: tuple[str, ...]) -> Iterator[Need]:
    needed: dict[tuple[str, State, str], list[str]] = {}
    for file in tree.files:
        if file.target or file.path.split("/", 1)[0] not in folders or "/" not in file.path:
            continue
        try:
            program = find_program(tree, file.path)
        except ScriptRefused as error:
            if error.reason == "interpreter-missing" or (language_of(file) and error.reason != "not-executable"):
                name = language_of(file) or "?"
                needed.setdefault((name, "missing", str(error).partition(": ")[2]), []).append(file.path)
            continue
        needed.setdefault((program.kind, "here", ""), []).append(file.path)
    for (name, state, text), where in needed.items():
        yield Need("interpreter", name, state, tuple(where), text)


def _programs(named: NamedCapabilities) -> Iterator[Need]:
    for one in named.programs:
        state, text = _look_for(one.name)
        yield Need("program", one.name, state, one.where, text)


def _look_for(name: str) -> tuple[State, str]:
    places = [name] if os.path.isabs(name) else [os.path.join(folder, name) for folder in SYSTEM_FOLDERS]
    if any(os.access(path, os.X_OK) and os.path.realpath(path).startswith(VISIBLE) for path in places):
        return "here", ""
    elsewhere = shutil.which(name)
    if elsewhere is not None:
        folders = ", ".join(SYSTEM_FOLDERS)
        return "hidden", f"it is at {elsewhere}, which a sandbox does not see; install it for all users, in {folders}"
    return "missing", "install it with the package manager of the system"


def _secrets(named: NamedCapabilities, skill: Skill, digest: str, skills: Skills) -> Iterator[Need]:
    policy, stored = Policy.configured(skills.settings), SecretStorage(skills.settings.config_folder).names()
    variables = {name for name in skills.profile.run.env if name in skills.settings.place.env}
    for one in named.secrets:
        request = skill_request(TOOL, skill, digest=digest, name=one.name)
        is_given = policy.decide(request).verdict == "allow"
        allow = "" if is_given else f"`metier secret allow {one.name} {skill.name}`"
        if one.name in variables or (is_given and one.name in stored):
            yield Need("secret", one.name, "here", one.where)
        elif one.name in stored:
            yield Need("secret", one.name, "not-given", one.where, f"give it with {allow}")
        else:
            then = f", and give it with {allow}" if allow else ""
            yield Need("secret", one.name, "missing", one.where, f"set it with `metier secret set {one.name}`{then}")


def _packages(named: NamedCapabilities) -> Iterator[Need]:
    for one in named.imports:
        if one.kind == PACKAGE:
            yield Need("package", one.name, "wanted", one.where)


# --- caps: what a skill names, may use and has used ---


_PLACE: Final = ("tool", "skill_name", "folder", "scope", "source", "digest")
"""The keys of a rule that say which skill it is about. All others narrow what it allows."""
_GRANTS: Final = "run_"
_NAMED: Final = 3
"""The files that are listed in a row of the table."""
_KINDS: Final[Mapping[str, str]] = {
    "imports": "import",
    "hosts": "host",
    "programs": "program",
    "files": "file",
    "secrets": "secret",
    "commands": "! command",
}


class RunsPrinted(Value):
    verdict: Verdict
    why: str


class GivenPrinted(Value):
    json_keys = ("verdict", "*rule")

    verdict: Literal["deny", "allow"]
    rule: RulePrinted


class ScriptPrinted(TypedDict):
    script: str
    runs: Count
    exit_codes: Mapping[str, Count]
    last_ms: int


class UsedPrinted(TypedDict):
    runs: Count
    refused: Count
    unsandboxed: Count
    last_ms: int | None
    scripts: Sequence[ScriptPrinted]
    grants: Mapping[str, Count]
    secrets: Mapping[str, Count]
    hosts: Mapping[str, Count]


class CapabilitiesPrinted(Value, kw_only=True):
    skill: str
    path: str
    digest: str
    names: NamedCapabilities
    runs: RunsPrinted
    given: Sequence[GivenPrinted]
    used: UsedPrinted


class GivenByPolicy(NamedTuple):
    """A rule in force that is about the scripts of the skill."""

    verdict: Literal["deny", "allow"]
    rule: Rule

    @property
    def limits(self) -> dict[str, str]:
        """What the rule is limited to, besides the skill."""
        return {key: value for key, value in self.rule.as_dict().items() if key not in _PLACE}


@command("caps", "metier caps release-notes", "metier caps release-notes --json", prints=CapabilitiesPrinted)
@click.argument("skill_name", metavar="SKILL", shell_complete=complete_skill)
def caps_command(context: Context, skill_name: str) -> None:
    """Show what a skill names in its files, what policy gives it, and what it used in recorded runs.

    The files are only read. What a script puts together at run time is not found.
    """
    skills = context.discover()
    skill = skills.catalog.find(skill_name)
    tree = take_folder(DiskFiles().folder(skill), skill.inner)
    named = look(tree, skill.frontmatter)
    policy = Policy.configured(skills.settings)
    runs = policy.decide(skill_request("skill_run", skill, digest=tree.digest))
    given = list(_given(policy, skill, tree.digest))
    try:
        with context.open_store() as store:
            seen = used(store, skill.name)
    except StoreError as error:
        context.note(f"warning: the record cannot be read: {error}")
        seen = UsedCapabilities()
    if context.as_json:
        output.json_out(
            CapabilitiesPrinted(
                skill=skill.name,
                path=skill.path,
                digest=tree.digest,
                names=named,
                runs=RunsPrinted(runs.verdict, runs.why),
                given=[GivenPrinted(one.verdict, printed(one.rule)) for one in given],
                used=cast("UsedPrinted", seen.as_dict()),
            )
        )
        return
    output.facts([("skill", skill.name), ("path", skill.path), ("digest", tree.digest)], whole=("path", "digest"))
    click.echo()
    _print_caps(named, given, seen)
    click.echo(output.safe(f"\nrunning its scripts: {runs.verdict} ({runs.why})"))
    for one in given:
        click.echo(output.safe(f"{one.verdict} rule: {one.rule}"))
    _print_runs(seen)


def _given(policy: Policy, skill: Skill, digest: str) -> Iterator[GivenByPolicy]:
    """The rules about grants that cover this skill, whatever else they are limited to."""
    rules = policy.rules()
    lists: tuple[tuple[Literal["deny", "allow"], Sequence[Rule]], ...] = (("deny", rules.deny), ("allow", rules.allow))
    for verdict, found in lists:
        for rule in found:
            if not rule.tool.startswith(_GRANTS):
                continue
            place = Rule(**{key: value for key, value in rule.as_dict().items() if key in _PLACE})
            request = skill_request(rule.tool, skill, digest=digest)
            if place.allows(request) if verdict == "allow" else place.matches(request):
                yield GivenByPolicy(verdict, rule)


def _print_caps(named: NamedCapabilities, given: Sequence[GivenByPolicy], seen: UsedCapabilities) -> None:
    rows: list[tuple[str, ...]] = [
        (
            word,
            one.name,
            one.kind,
            _gives(key, one.name, given),
            _uses(key, one.name, seen),
            output.first(one.where, _NAMED),
        )
        for key, word in _KINDS.items()
        for one in named.of(key)
    ]
    extra = [name for name in seen.secrets if name not in {one.name for one in named.secrets}]
    rows += [("secret", name, "", _gives("secrets", name, given), _uses("secrets", name, seen), "") for name in extra]
    rows += [("host", name, "", "", f"{count:,}", "") for name, count in sorted(seen.hosts.items())]
    if rows:
        output.table(("what", "name", "kind", "given", "used", "named in"), rows, whole=True)
    else:
        click.echo("its files name nothing that a sandbox would have to give")


def _gives(key: str, name: str, given: Sequence[GivenByPolicy]) -> str:
    """The verdict of the rules about this very thing; empty where no rule is."""
    about = {"secrets": ("run_secret", "name"), "hosts": ("run_network", "host")}.get(key)
    if about is None:
        return ""
    tool, limit = about
    found = [one.verdict for one in given if one.rule.tool == tool and one.limits.get(limit, name) == name]
    return found[0] if found else "no"


def _uses(key: str, name: str, seen: UsedCapabilities) -> str:
    count = seen.secrets[name] if key == "secrets" else 0
    return f"{count:,}" if count else ""


def _print_runs(seen: UsedCapabilities) -> None:
    if not seen.runs and not seen.refused:
        click.echo("no run is recorded")
        return
    refused = f", {seen.refused:,} refused" if seen.refused else ""
    grants = ", ".join(f"{name} {count:,}" for name, count in sorted(seen.grants.items()))
    click.echo(f"{seen.runs:,} recorded runs{refused}{f'; grants: {grants}' if grants else ''}")
    if seen.scripts:
        click.echo()
        rows = [
            (script, f"{tally.runs:,}", _ended(tally), output.moment(tally.last_ms))
            for script, tally in sorted(seen.scripts.items())
        ]
        output.table(("script", "runs", "exit codes", "last"), rows, 0)


def _ended(tally: ScriptTally) -> str:
    return ", ".join(f"{code} ({many:,}x)" for code, many in sorted(tally.exit_codes.items()))
