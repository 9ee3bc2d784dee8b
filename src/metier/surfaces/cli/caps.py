"""`caps`: what a skill names, what policy gives it now, and what it used in recorded runs, in one place."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypedDict, cast

import click

from metier.errors import StoreError
from metier.files.source import DiskFiles, take_folder
from metier.policy.decide import Policy
from metier.policy.rules import Rule, Verdict, skill_request
from metier.record.script_usage import ScriptTally, UsedCapabilities, used
from metier.running.capabilities.look import NamedCapabilities, look
from metier.running.capabilities.sources import Named
from metier.surfaces.cli import output
from metier.surfaces.cli.completion import complete_skill
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import command
from metier.surfaces.cli.policy import RulePrinted, printed
from metier.values.skill import Skill
from metier.values.value import Count, Value

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


class NamesPrinted(TypedDict):
    imports: Sequence[Named]
    hosts: Sequence[Named]
    programs: Sequence[Named]
    files: Sequence[Named]
    secrets: Sequence[Named]
    commands: Sequence[Named]


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
    names: NamesPrinted
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
                names=cast("NamesPrinted", named.as_dict()),
                runs=RunsPrinted(runs.verdict, runs.why),
                given=[GivenPrinted(one.verdict, printed(one.rule)) for one in given],
                used=cast("UsedPrinted", seen.as_dict()),
            )
        )
        return
    output.facts([("skill", skill.name), ("path", skill.path), ("digest", tree.digest)], whole=("path", "digest"))
    click.echo()
    _print(named, given, seen)
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


def _print(named: NamedCapabilities, given: Sequence[GivenByPolicy], seen: UsedCapabilities) -> None:
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
