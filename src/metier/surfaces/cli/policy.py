"""`policy`, `enable`, `disable` and `trust`: the rules in force, how skills are offered, trusted projects."""

import os
from collections.abc import Mapping
from typing import Final

import click

from metier.catalog.modes import Level
from metier.errors import ConfigError
from metier.files.text import printable
from metier.hosts import trust
from metier.hosts.project_files import waiting_settings
from metier.hosts.roots import project_of
from metier.hosts.settings import Settings, changes
from metier.policy import windows
from metier.policy.decide import Decision, Policy
from metier.policy.remembered import dropped_rules, rules_without_skill
from metier.policy.rules import Rule
from metier.record.state import read_state
from metier.session.explaining import answers_of, asked_about, listed_rules, origin_word
from metier.surfaces.cli import output
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import command, group, name_argument, option
from metier.values.skill import MODES, Mode

_ID = 8
"""The characters of an id that are shown."""


@group("policy", "metier policy list", "metier policy explain skill_run --skill release-notes")
def policy_group(context: Context) -> None:
    """Show the rules in force, which rule decides, and take back remembered answers."""


@command("show", "metier policy show --json", of=policy_group)
def policy_show(context: Context) -> None:
    """Show the policy as a configuration file has it, in the order in which the rules are applied."""
    policy = Policy.configured(context.settings())
    rules = policy.rules()
    if context.as_json:
        output.json_out(policy.as_dict() | {"warnings": list(rules.warnings)})
        return
    click.echo(f"policy {policy.name}: deny, then allow, then ask, then the defaults of the policy")
    lists = {"deny": rules.deny, "allow": rules.allow, "ask": rules.ask}
    if rows := [(verdict, str(rule)) for verdict, listed in lists.items() for rule in listed]:
        output.table(("verdict", "rule"), rows, whole=True)
    for warning in rules.warnings:
        context.note(f"warning: {warning}")


@command("explain", "metier policy explain skill_load --skill pdf", of=policy_group)
@click.argument("tool")
@option("--skill NAME", "For this skill.", "skill_name", default="")
@option("--path P", "For this file.", default="")
@option("--command C", "For this command.", default="")
@option("--name N", "For this secret, with run_secret.", "secret", default="")
def policy_explain(context: Context, tool: str, skill_name: str, path: str, command: str, secret: str) -> int:
    """Show whether a tool may be used, and which rule decides. Exits with 3 if it is denied.

    With --session, the skills that are active in that session count, too: their allowed-tools can only narrow.
    """
    config = context.settings()
    policy = Policy.configured(config)
    skills = context.discover() if skill_name or context.session is not None else None
    skill = skills.get(skill_name) if skills is not None else None
    asked = asked_about(config, policy, tool, skill or skill_name, path=path, command=command, secret=secret)
    decision = policy.decide(asked)
    if not context.quiet:
        output.warnings(dropped_rules(config), context.as_json)
    if skills is not None and context.session is not None and decision.verdict != "deny":
        with context.open_store() as store:
            active = read_state(store, context.session).state.windows
        if name := windows.refusing(policy, skills.catalog, active, tool, command):
            decision = Decision("deny", windows.reason(name))
    rule = decision.rule.as_dict() if decision.rule else None
    data = {"verdict": decision.verdict, "why": decision.why, "rule": rule}
    context.answer(data, f"{decision.verdict}: {decision.why}")
    return 3 if decision.verdict == "deny" else 0


# --- list and revoke ---


@command("list", "metier policy list", "metier policy list --json --profile codelia", of=policy_group)
def policy_list(context: Context) -> None:
    """List every rule in force and where it comes from.

    Rules are listed in the order in which they are applied: deny, allow, ask. Remembered answers have an ID for
    `metier policy revoke`.
    """
    config = context.settings()
    policy, listed = Policy.configured(config), listed_rules(config)
    unknown = rules_without_skill(config, context.discover().catalog)
    warnings = (*policy.rules().warnings, *(note.message for note in unknown))
    if context.as_json:
        rules = [
            {"verdict": one.verdict, **one.rule.as_dict(), "origin": one.origin, **({"id": one.id} if one.id else {})}
            for one in listed
        ]
        output.json_out({"policy": policy.name, "unasked": policy.unasked, "rules": rules, "warnings": list(warnings)})
        return
    click.echo(f"policy {policy.name}; a model's call that nobody can confirm: {policy.unasked}")
    if listed:
        places = {one.origin: origin_word(one.origin, config) for one in listed}
        rows = [(one.id[:_ID], one.verdict, one.rule.tool, places[one.origin], _more(one.rule)) for one in listed]
        output.table(("id", "verdict", "tool", "from", "limited to"), rows, whole=True)
        for origin, place in places.items():
            if os.path.isabs(origin):
                click.echo(f"{place}: {output.safe(_below_home(origin, config))}")
        for one in listed:  # a table has no room for paths and digests, and a rule is not understood without its place
            about = " ".join(filter(None, (one.id[:_ID], one.verdict, one.rule.tool, one.rule.skill_name)))
            if one.rule.folder:
                click.echo(output.safe(f"{about}: only in {_below_home(one.rule.folder, config)}"))
            if one.rule.digest:
                click.echo(output.safe(f"{about}: only {one.rule.digest}"))
    else:
        click.echo("no rules; the defaults of the policy decide")
    for warning in warnings:
        context.note(f"warning: {warning}")


@command("revoke", "metier policy revoke 7b95d83f", "metier policy revoke --all", of=policy_group)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@option("--all", "Take back all remembered answers.", "everything")
def policy_revoke(context: Context, ids: tuple[str, ...], everything: bool) -> None:
    """Take back remembered answers, at once for all running processes.

    `metier policy list` shows the IDs. The first characters of an ID are enough. Rules of your configuration file have
    no ID; delete them there.
    """
    if bool(ids) == everything:
        raise ConfigError("name the answers to take back", key="ID", hint="either ID... or --all")
    revoked = answers_of(context.settings()).revoke(None if everything else ids)
    if context.as_json:
        output.json_out({"revoked": [{"id": rule.id, **rule.as_dict()} for rule in revoked]})
    elif not context.quiet:
        for rule in revoked:
            click.echo(f"revoked {rule.id[:_ID]}: {output.safe(str(rule))}")
        if not revoked:
            click.echo("there are no remembered answers")


def _more(rule: Rule) -> str:
    """What a rule is limited to. Its folder and its digest are listed below the table."""
    parts = (
        rule.name or "",
        rule.skill_name or "",
        rule.path and f"path {rule.path}",
        rule.command and f"command {rule.command}",
        rule.scope and f"scope {rule.scope}",
        rule.source and f"source {rule.source}",
    )
    return ", ".join(part for part in parts if part)


def _below_home(path: str, config: Settings) -> str:
    home = config.place.home.rstrip("/") + "/"
    return f"~/{path.removeprefix(home)}" if path.startswith(home) else path


# --- how a skill is offered, and trust ---


_MESSAGE: Final[Mapping[Mode, str]] = {
    "auto": "{name} is on for {whom}",
    "pinned": "{name} is pinned for {whom}: it comes first in every prompt",
    "name-only": "{name} is name-only for {whom}: the model sees its name without its description",
    "manual": "{name} is manual for {whom}: it is hidden from the model, and people call it by name",
    "off": "{name} is off for {whom}",
}

_project = option("--project", "Save it for everyone in this project.")


def _switch(context: Context, name: str, mode: Mode, project: bool) -> None:
    level: Level = "project" if project else "user"
    skills = context.discover()
    skill = skills.set_mode(name, mode, level=level)
    context.done(
        {"name": skill.name, "path": skill.path, "enabled": skill.enabled, "mode": skill.mode, "level": level},
        _MESSAGE[skill.mode].format(name=skill.name, whom="this project" if project else "you"),
    )
    successor = skills.get(skill.name)
    if successor is None or successor.path == skill.path or skill.enabled or context.as_json or context.quiet:
        return
    where = os.path.relpath(successor.path, skills.settings.place.cwd)
    click.echo(f"another skill of that name takes its place: {printable(where)}")


@command("enable", "metier enable release-notes", "metier enable release-notes --mode pinned")
@name_argument
@option("--mode", "How it is offered to the model.", type=click.Choice(MODES), default="auto", show_default=True)
@_project
def enable_command(context: Context, name: str, mode: Mode, project: bool) -> None:
    """Switch a skill on, by name or path, and set how it is offered to the model.

    \b
    pinned     always in the prompt, before all others
    auto       in the prompt if there is room; the default
    name-only  in the prompt without its description
    manual     hidden from the model; people call it by name
    """
    _switch(context, name, mode, project)


@command("disable", "metier disable release-notes --project")
@name_argument
@_project
def disable_command(context: Context, name: str, project: bool) -> None:
    """Switch a skill off, by name or path. Another skill of that name takes its place."""
    _switch(context, name, "off", project)


@command("trust", "metier trust", "metier trust ~/site", "metier trust --remove")
@click.argument("folder", required=False, metavar="[DIR]", type=click.Path())
@option("--remove", "Remove the trust.")
def trust_command(context: Context, folder: str | None, remove: bool) -> None:
    """Trust the project of this folder, or of DIR.

    The settings in its .metier/config.toml and [tool.metier] count only if it is trusted, but for rules that deny and
    ask, and the hosts to check. They are shown, and wait again when they change. Allow rules that name only a skill
    cover the skills of trusted projects and your own. If permissions.trust = "required", the model sees no skill of an
    untrusted project.
    """
    if folder is not None:
        context.cwd = os.path.join(context.cwd or "", folder)
    config = context.settings()
    project = config.place.project
    files = project_of(config.place.cwd)
    before, now = trust.trusted_settings(config.config_folder, files), {} if remove else waiting_settings(files)
    different = changes(before, now) if before is not None and not remove else []
    for one in {project, files}:
        trust.trust(config.config_folder, one, not remove)
    what = "no longer trusted" if remove else "trusted"
    context.done(
        {"project": project, "trusted": not remove, "settings": now, "changes": different}, f"{project} is {what}"
    )
    lines: list[str] = []
    if now:
        lines += [f"{len(now):,} {'setting counts' if len(now) == 1 else 'settings count'} now:"]
        lines += [f"  {key} = {value}" for key, value in now.items()]
    if different:
        lines += ["changed since it was trusted before:", *(f"  {line}" for line in different)]
    if lines and not context.as_json and not context.quiet:
        click.echo("\n".join(map(output.safe, lines)))
