"""`doctor SKILL`: what the scripts of a skill need and this machine, or policy, does not give them, and the way out."""

import os
import shutil
from collections.abc import Iterator
from typing import Literal, NamedTuple

import click

from metier.capabilities.imports import PACKAGE
from metier.capabilities.look import NamedCapabilities, look
from metier.capabilities.sources import language_of
from metier.cli import output
from metier.cli.context import Context
from metier.errors import ScriptRefused
from metier.files.source import DiskFiles, take_folder
from metier.files.tree import SkillTree
from metier.model import JsonObject, Skill
from metier.sandbox.interpreter import SYSTEM_FOLDERS, VISIBLE, find_program
from metier.secrets.storage import SecretStorage
from metier.session.policy import Policy
from metier.session.script_secrets import TOOL
from metier.session.skill_request import skill_request
from metier.skills import Skills

State = Literal["here", "missing", "hidden", "not-given", "wanted"]
"""`hidden` is a program that is here and that a sandbox does not see. A package is `wanted`: a run installs it."""
_LACKS = ("missing", "hidden", "not-given")


class Need(NamedTuple):
    """One thing that scripts of the skill need."""

    kind: Literal["interpreter", "program", "secret", "package"]
    name: str
    state: State
    where: tuple[str, ...]
    help: str = ""

    def as_dict(self) -> JsonObject:
        return {**self._asdict(), "where": list(self.where)}


def examine_skill(context: Context, skills: Skills, skill_name: str) -> None:
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
        found = {"skill": skill.name, "path": skill.path, "ready": not lacks}
        output.json_out({**found, "needs": [need.as_dict() for need in needs]})
    elif needs:
        rows = [(need.kind, need.name, need.state, ", ".join(need.where)) for need in needs]
        output.table(("need", "name", "state", "named in"), rows, whole=True)
        for need in needs:
            if need.help:
                click.echo(output.safe(f"{need.name}: {need.help}"))
    else:
        click.echo("its scripts need nothing that could be missing")
    if lacks:
        raise click.exceptions.Exit(1)


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
