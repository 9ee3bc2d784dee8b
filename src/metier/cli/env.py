"""`env`: the packages that scripts import, how much space they take, and exact versions of them."""

import os
from collections.abc import Iterator

import click

from metier.cli import output
from metier.cli.completion import complete_skill
from metier.cli.context import Context, shared
from metier.cli.suggest import SuggestingGroup
from metier.errors import ConfigError
from metier.files.source import take_folder
from metier.files.text import from_utf8, printable
from metier.files.tree import SkillTree
from metier.model import JsonObject, Skill
from metier.packages import Wanted
from metier.packages.environment import size_of
from metier.packages.lock import Lock
from metier.packages.state import PackageState, wanted_by
from metier.session import dependencies
from metier.skills import Skills


@click.group("env", cls=SuggestingGroup, epilog="Example:\n\n\b\n  metier env show")
@shared
def env_group(context: Context) -> None:
    """Show, fix and delete the packages that scripts import."""


@env_group.command("show", epilog="Examples:\n\n\b\n  metier env show\n  metier env show csv-profile")
@click.argument("skill", required=False, shell_complete=complete_skill)
@shared
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
        output.json_out({"skill": skill, "scripts": rows})
        return
    if not rows:
        output.note("no script of this skill imports a package")
    for row in rows:
        packages = ", ".join(f"{one['name']} {one['version']}" for one in row["packages"])
        facts = [
            ("script", row["script"]),
            ("wants", ", ".join(row["wants"])),
            ("source", f"{row['source']}, {'inferred' if row['inferred'] else 'declared'}"),
            ("locked", packages or "not yet; `metier env lock` looks it up"),
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
        output.json_out({"folder": state.environments.folder, "bytes": total, "locks": rows})
        return
    table = [
        (
            row["source"],
            str(len(row["packages"])),
            _size(int(row["bytes"])) if row["folder"] else "not installed",
        )
        for row in rows
    ]
    if table:
        output.table(("wanted by", "packages", "size"), table, 0)
    click.echo(f"{len(places):,} environments, {_size(total)}, in {printable(state.environments.folder)}")


@env_group.command("lock", epilog="Example:\n\n\b\n  metier env lock csv-profile")
@click.argument("skill", shell_complete=complete_skill)
@shared
def env_lock(context: Context, skill: str) -> None:
    """Look up the newest packages for the scripts of a skill, and keep their exact versions.

    Only the index is read, and nothing is installed. Answers that were remembered for other versions do not cover them.
    """
    skills = context.discover()
    found: list[JsonObject] = []
    for path, wanted in _scripts(skills, _named(skills, skill)):
        plan = dependencies.look_up(skills.settings, wanted, anew=True)
        notes = [plan.refusal] if plan.refusal else list(plan.notes)
        locked = _of_lock(plan.lock)
        found.append({"script": path, **locked, "notes": notes})
    if context.as_json:
        output.json_out({"skill": skill, "scripts": found})
        return
    for row in found:
        packages = ", ".join(f"{one['name']} {one['version']}" for one in row["packages"]) or "nothing"
        click.echo(printable(f"{row['script']}: {packages}"))
        for note in row["notes"]:
            output.note(printable(str(note)))
    if not found:
        output.note("no script of this skill imports a package")


@env_group.command("clear", epilog="Example:\n\n\b\n  metier env clear")
@shared
def env_clear(context: Context) -> None:
    """Delete every environment and every lock. Scripts get new ones when they next run."""
    state = _state(context)
    locks = state.locks.clear()
    count, size = state.environments.clear()
    if context.as_json:
        output.json_out({"environments": count, "bytes": size, "locks": locks})
    else:
        click.echo(f"{count:,} environments ({_size(size)}) and {locks:,} locks were deleted")


# --- what a skill has ---


def _state(context: Context) -> PackageState:
    state = dependencies.package_state(context.settings())
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
    plan = dependencies.look_up(skills.settings, wanted, offline=True)
    state = dependencies.package_state(skills.settings)
    folder = state.environments.path(plan.lock) if state is not None and plan.lock is not None else ""
    locked = _of_lock(plan.lock)
    return {
        "script": path,
        "wants": list(wanted.requirements),
        **locked,
        "source": wanted.source,
        "inferred": bool(wanted.inferred),
        "folder": folder,
        "notes": [plan.refusal] if plan.refusal else list(plan.notes),
    }


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


COMMANDS = (env_group,)
