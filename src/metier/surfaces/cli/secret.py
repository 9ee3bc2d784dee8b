"""`secret`: keeps secrets of the user, says who may use them, and gives them to skills. Values are never printed."""

import sys
from typing import Literal, NamedTuple

import click

from metier.errors import ConfigError, ResourceError
from metier.files.source import take_folder
from metier.policy.decide import Policy
from metier.policy.remembered import RememberedRules
from metier.policy.rules import Rule, skill_request
from metier.running.grants.secrets import TOOL
from metier.running.secrets.storage import LONGEST, SecretStorage, check_name, find_keyring
from metier.skills import Skills
from metier.surfaces.cli import output
from metier.surfaces.cli.completion import complete_skill
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import command, group, option
from metier.values.skill import REMOTE

SecretPlace = Literal["keyring", "file"]


@group(
    "secret", "metier secret set GITHUB_TOKEN", "metier secret allow GITHUB_TOKEN release-notes", "metier secret list"
)
def secret_group(context: Context) -> None:
    """Keep secrets, and give them to skills.

    A script gets a secret as a variable of its environment, in its own runs only, and only if a rule gives it to the
    skill. Its value is masked in everything that a script prints and writes.
    """


@command(
    "set",
    "metier secret set GITHUB_TOKEN",
    "metier secret set GITHUB_TOKEN < token.txt",
    of=secret_group,
)
@click.argument("name")
@click.argument("rest", nargs=-1, metavar="")
@option("--in-file", "Keep it in a file that only you can read, also if there is a keyring.")
def secret_set(context: Context, name: str, rest: tuple[str, ...], in_file: bool) -> None:
    """Keep a secret under the NAME of its variable.

    The value is asked for, or read from standard input without the line feed at its end. It is kept in the system
    keyring, or in a file that only you can read if there is none.
    """
    check_name(name)
    if rest:  # it is not repeated: what is printed may be kept
        message = "the value is never given on the command line, where other programs and the shell's history see it"
        raise ConfigError(message, key="value", hint=f"call `metier secret set {name}`, which asks for it")
    kept = SecretStorage(context.settings().config_folder)
    state = kept.set(name, _typed(name) if sys.stdin.isatty() else _piped(), in_file=in_file)
    where = f"the keyring {state.backend.name}" if state.backend is not None else kept.folder
    data = {"name": name, "place": kept.places()[name], "where": where, "why": state.problem}
    why = f", because {state.problem}" if state.problem and not in_file else ""
    context.done(data, f"{name} is kept in {where}{why}")


def _typed(name: str) -> str:
    return str(click.prompt(f"Value of {name}", hide_input=True, err=True, default="", show_default=False))


def _piped() -> str:
    data = sys.stdin.buffer.read(LONGEST + 3)
    return data.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape")


@command("remove", "metier secret remove GITHUB_TOKEN", of=secret_group)
@click.argument("name")
def secret_remove(context: Context, name: str) -> int:
    """Delete a secret, and take back the remembered rules about it. Exits with 1 if there is none."""
    config = context.settings()
    removed = SecretStorage(config.config_folder).remove(name)
    answers = RememberedRules(config.answers_file, config.profile)
    rules = [rule for rule in answers.written()["allow"] if rule.tool == TOOL and rule.name == name]
    if rules:
        answers.revoke([rule.id for rule in dict.fromkeys(rules)])
    data = {"name": name, "removed": removed, "revoked": len(rules)}
    context.done(data, f"{name} is removed" if removed else f"there is no secret {name}")
    return not removed


@command("allow", "metier secret allow GITHUB_TOKEN release-notes", of=secret_group)
@click.argument("name")
@click.argument("skill_name", metavar="SKILL", shell_complete=complete_skill)
def secret_allow(context: Context, name: str, skill_name: str) -> None:
    """Give a secret to the scripts of a skill, as long as no file of the skill changes.

    `metier policy revoke` takes it back.
    """
    check_name(name)
    skills = context.discover()
    skill = skills.catalog.find(skill_name)
    if skill.scope == REMOTE:
        raise ConfigError("secrets are given only to skills on this machine", key="SKILL")
    digest = take_folder(skill.folder, skill.inner).digest
    rule = Rule.covering(skill_request(TOOL, skill, digest=digest, name=name))
    config = skills.settings
    RememberedRules(config.answers_file, config.profile).add(rule)
    is_set = name in SecretStorage(config.config_folder).names()
    data = {"name": name, "skill": skill.name, "digest": digest, "id": rule.id, "set": is_set}
    context.done(data, f"{skill.name} is given {name} as long as none of its files changes ({digest})")
    if not is_set and not context.quiet:
        context.note(f"warning: {name} is not set yet; `metier secret set {name}` sets it")


# --- list ---


class _User(NamedTuple):
    """A rule that gives a secret to a skill, and whether it still holds."""

    skill: str
    holds: bool
    why: str


@command("list", "metier secret list", "metier secret list --json", of=secret_group)
def secret_list(context: Context) -> None:
    """List the names of the secrets, where each is kept, and which skills are given it."""
    skills = context.discover()
    config = skills.settings
    kept = SecretStorage(config.config_folder)
    places, rules = kept.places(), [rule for rule in Policy.configured(config).rules().allow if rule.tool == TOOL]
    users = {
        name: [_user(rule, skills) for rule in rules if rule.name == name]
        for name in sorted({*places, *(rule.name or "" for rule in rules)})
    }
    state = find_keyring()
    keyring = state.backend.name if state.backend is not None else ""
    if context.as_json:
        listed = [
            {"name": name, "place": places.get(name), "users": [user._asdict() for user in found]}
            for name, found in users.items()
        ]
        why = {"keyring": keyring or None, "why": state.problem, "folder": kept.folder}
        output.json_out({"secrets": listed, **why})
        return
    if users:
        rows = [(name, places.get(name, "not set"), _said(found)) for name, found in users.items()]
        output.table(("secret", "kept in", "given to"), rows, whole=True)
    else:
        click.echo("there are no secrets; `metier secret set NAME` keeps one")
    if not context.quiet:
        where = f"the keyring {keyring}" if keyring else f"{kept.folder}, because {state.problem}"
        click.echo(output.safe(f"new secrets are kept in {where}"))


def _said(users: list[_User]) -> str:
    return ", ".join(f"{user.skill}{'' if user.holds else f' ({user.why})'}" for user in users) or "no skill"


def _user(rule: Rule, skills: Skills) -> _User:
    named = [skill for skill in skills.catalog.skills if rule.names(skill.name)]
    if not named:
        return _User(rule.skill_name or rule.folder or "?", False, "it is not here")
    for skill in named:
        try:
            digest = take_folder(skill.folder, skill.inner).digest if rule.digest else ""
        except ResourceError:
            continue
        if rule.allows(skill_request(TOOL, skill, digest=digest, name=rule.name or "")):
            return _User(skill.name, True, "")
    return _User(rule.skill_name or rule.folder or "?", False, "its files changed since")
