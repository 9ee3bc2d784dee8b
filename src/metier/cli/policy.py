"""`policy`: the rules in force, and which rule decides."""

import click

from metier.cli import output
from metier.cli.context import Context, shared
from metier.session.policy import Policy, Request


@click.group("policy", epilog="Example:\n\n\b\n  metier policy explain skill_run --skill release-notes")
@shared
def policy_group(context: Context) -> None:
    """Show the rules in force, and which rule decides."""


@policy_group.command("show", epilog="Example:\n\n\b\n  metier policy show --json")
@shared
def policy_show(context: Context) -> None:
    """List the rules in the order in which they are applied."""
    config = context.settings()
    policy = Policy.from_settings(config.permissions, config.profile)
    if context.as_json:
        output.json_out(policy.as_dict() | {"warnings": policy.warnings})
        return
    click.echo(f"policy {policy.name}: deny, then allow, then ask, then the defaults of the policy")
    rows = [("deny", str(r)) for r in policy.deny] + [("allow", str(r)) for r in policy.allow]
    rows += [("ask", str(r)) for r in policy.ask]
    if rows:
        output.table(("verdict", "rule"), rows)
    for warning in policy.warnings:
        click.echo(f"warning: {warning}", err=True)


@policy_group.command("explain", epilog="Example:\n\n\b\n  metier policy explain skill_load --skill pdf")
@click.argument("tool")
@click.option("--skill", "skill_name", default="", metavar="NAME", help="For this skill.")
@click.option("--path", default="", metavar="P", help="For this file.")
@click.option("--command", default="", metavar="C", help="For this command.")
@shared
def policy_explain(context: Context, tool: str, skill_name: str, path: str, command: str) -> None:
    """Show whether a tool may be used, and which rule decides. Exits with 3 if it is denied."""
    config = context.settings()
    policy = Policy.from_settings(config.permissions, config.profile)
    decision = policy.decide(
        Request(tool=policy.canonical(tool, config.profile), skill_name=skill_name, path=path, command=command)
    )
    if context.as_json:
        rule = decision.rule.as_dict() if decision.rule else None
        output.json_out({"verdict": decision.verdict, "why": decision.why, "rule": rule})
    else:
        click.echo(f"{decision.verdict}: {decision.why}")
    if decision.verdict == "deny":
        raise click.exceptions.Exit(3)


COMMANDS = (policy_group,)
