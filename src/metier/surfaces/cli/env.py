"""`env`: the packages that scripts import, how much space they take, and exact versions of them."""

import os
from collections.abc import Iterator, Sequence
from typing import Annotated, TypedDict, cast

import click

from metier.errors import ConfigError
from metier.files.source import take_folder
from metier.files.text import from_utf8, printable
from metier.files.tree import SkillTree
from metier.running.grants.packages import PackagesGrant, look_up, package_state
from metier.running.packages import Wanted
from metier.running.packages.environment import size_of
from metier.running.packages.lock import Lock
from metier.running.packages.state import PackageState, wanted_by
from metier.skills import Skills
from metier.surfaces.cli import output
from metier.surfaces.cli.completion import complete_skill
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import command, group
from metier.values.skill import Skill
from metier.values.value import Count, JsonObject, Meta, Value


class _Package(TypedDict):
    name: str
    version: str
    size: Count


class _Locked(TypedDict):
    digest: str
    source: str
    packages: Sequence[_Package]


class LockedPlace(_Locked):
    folder: str
    bytes: Count


class KeptEnvironments(Value):
    folder: str
    bytes: Count
    locks: Sequence[LockedPlace]


class LockedScript(_Locked):
    script: str
    notes: Sequence[str]


class ScriptPackages(LockedScript):
    wants: Sequence[str]
    inferred: bool
    folder: str


class SkillPackages(Value):
    skill: str
    scripts: Sequence[ScriptPackages]


class LockedSkill(Value):
    skill: str
    scripts: Sequence[LockedScript]


class Cleared(Value):
    environments: Count
    bytes: Count
    locks: Count


@group("env", "metier env show")
def env_group(context: Context) -> None:
    """Show, fix and delete the packages that scripts import."""


@command(
    "show",
    "metier env show",
    "metier env show csv-profile",
    prints=KeptEnvironments | Annotated[SkillPackages, Meta(description="With a skill.")],
    of=env_group,
)
@click.argument("skill", required=False, shell_complete=complete_skill)
def env_show(context: Context, skill: str | None) -> None:
    """Show every environment and its size, or what the scripts of one skill import.

    Nothing is looked up on an index. A script without a lock gets one when it first runs, or with `metier env lock`.
    """
    if skill is None:
        _show_all(context)
        return
    skills = context.discover()
    rows = [_row(skills, path, wanted) for path, wanted in _scripts(skills, _named(skills, skill))]
    if context.as_json:
        output.json_out(SkillPackages(skill, cast("list[ScriptPackages]", rows)))
        return
    if not rows:
        output.note("no script of this skill imports a package")
    for row in rows:
        facts = [
            ("script", row["script"]),
            ("wants", ", ".join(row["wants"])),
            ("source", f"{row['source']}, {'inferred' if row['inferred'] else 'declared'}"),
            ("locked", _packages(row) or "not yet; `metier env lock` looks it up"),
            ("installed", f"{row['folder']} ({_size(size_of(row['folder']))})" if row["folder"] else "no"),
            *(("note", note) for note in row["notes"]),
        ]
        output.facts((key, printable(value)) for key, value in facts)
        click.echo()


def _show_all(context: Context) -> None:
    state = _state(context)
    rows: list[JsonObject] = []
    for lock in state.locks.all():
        folder = state.environments.path(lock)
        rows.append({**_of_lock(lock), "folder": folder, "bytes": size_of(folder) if folder else 0})
    places = {str(row["folder"]): row["bytes"] for row in rows if row["folder"]}
    total = size_of(state.environments.folder)
    if context.as_json:
        output.json_out(KeptEnvironments(state.environments.folder, total, cast("list[LockedPlace]", rows)))
        return
    sizes = [_size(row["bytes"]) if row["folder"] else "not installed" for row in rows]
    table = [(row["source"], str(len(row["packages"])), size) for row, size in zip(rows, sizes, strict=True)]
    if table:
        output.table(("wanted by", "packages", "size"), table, 0)
    click.echo(f"{len(places):,} environments, {_size(total)}, in {printable(state.environments.folder)}")


@command("lock", "metier env lock csv-profile", prints=LockedSkill, of=env_group)
@click.argument("skill", shell_complete=complete_skill)
def env_lock(context: Context, skill: str) -> None:
    """Look up the newest packages for the scripts of a skill, and keep their exact versions.

    Only the index is read, and nothing is installed. Answers that were remembered for other versions do not cover them.
    """
    skills = context.discover()
    found: list[JsonObject] = []
    for path, wanted in _scripts(skills, _named(skills, skill)):
        plan = look_up(skills.settings, wanted, anew=True)
        found.append({"script": path, **_of_lock(plan.lock), "notes": _notes(plan)})
    if context.as_json:
        output.json_out(LockedSkill(skill, cast("list[LockedScript]", found)))
        return
    for row in found:
        click.echo(printable(f"{row['script']}: {_packages(row) or 'nothing'}"))
        for note in row["notes"]:
            output.note(printable(str(note)))
    if not found:
        output.note("no script of this skill imports a package")


@command("clear", "metier env clear", prints=Cleared, of=env_group)
def env_clear(context: Context) -> None:
    """Delete every environment and every lock. Scripts get new ones when they next run."""
    state = _state(context)
    locks = state.locks.clear()
    count, size = state.environments.clear()
    context.answer(
        Cleared(count, size, locks), f"{count:,} environments ({_size(size)}) and {locks:,} locks were deleted"
    )


# --- what a skill has ---


def _state(context: Context) -> PackageState:
    state = package_state(context.settings())
    if state is None:
        raise ConfigError("there is no folder for packages")
    return state


def _named(skills: Skills, name: str) -> Skill:
    return skills.at(name) if os.sep in name else skills[name]


def _scripts(skills: Skills, skill: Skill) -> Iterator[tuple[str, Wanted]]:
    """The scripts of a skill that want packages."""
    tree: SkillTree = take_folder(skill.folder, skill.inner)
    for file in tree.files:
        folder, _, rest = file.path.partition("/")
        if not rest or folder not in skills.profile.run.folders or file.target:
            continue
        wanted = wanted_by(tree, file.path, from_utf8(file.data[:200]))
        if wanted is not None:
            yield file.path, wanted


def _row(skills: Skills, path: str, wanted: Wanted) -> JsonObject:
    plan = look_up(skills.settings, wanted, offline=True)
    state = package_state(skills.settings)
    folder = state.environments.path(plan.lock) if state is not None and plan.lock is not None else ""
    return {
        "script": path,
        "wants": list(wanted.requirements),
        **_of_lock(plan.lock),
        "source": wanted.source,
        "inferred": bool(wanted.inferred),
        "folder": folder,
        "notes": _notes(plan),
    }


def _notes(plan: PackagesGrant) -> list[str]:
    return [plan.refusal] if plan.refusal else list(plan.remarks)


def _packages(row: JsonObject) -> str:
    return ", ".join(f"{one['name']} {one['version']}" for one in row["packages"])


def _of_lock(lock: Lock | None) -> JsonObject:
    if lock is None:
        return {"digest": "", "source": "", "packages": []}
    return {
        "digest": lock.digest,
        "source": lock.source,
        "packages": [{"name": one.name, "version": one.version, "size": one.size} for one in lock.packages],
    }


def _size(count: int) -> str:
    return f"{count / 1_000_000:,.1f} MB"
