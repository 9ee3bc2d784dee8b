"""`new` and `install`: a folder for skills, a first skill, and a skill from elsewhere.

The invariant: no existing file is changed unless --replace says so, and every new file is named. A skill is checked and
shown before it is installed.
"""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import click

from metier.authoring.new import SkillExists, new_skill
from metier.errors import ConfigError
from metier.files.text import printable
from metier.hosts import roots
from metier.hosts.project_files import waiting_settings
from metier.hosts.roots import project_of
from metier.hosts.settings import Settings
from metier.hosts.trust import trust
from metier.policy.decide import Request
from metier.sources.install import Installer, InstallRequest, Offer
from metier.surfaces.cli import asking, output
from metier.surfaces.cli.completion import complete_folder
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.failure import CommandRefusal
from metier.surfaces.cli.frame import command, option

_TEMPLATE: Final = os.path.join(os.path.dirname(__file__), "new_config.toml")
_PROFILE: Final = '# profile = "standard"'
"""The line of the template that names the profile."""


@command(
    "new",
    "metier new meeting-minutes",
    'metier new csv-report --description "Reports on CSV files. Use when ..."',
    "metier new triage --user",
    "metier new --project --profile claude-code",
)
@click.argument("name", required=False)
@option("--description TEXT", "What the skill does and when to use it.")
@option("--user", "Create it for you in every project.")
@option("--in DIR", "Create it in this folder.", "folder", complete=complete_folder)
@option("--project", "Prepare the project for skills: a folder for them, and a commented configuration.")
def new_command(
    context: Context, name: str | None, description: str | None, user: bool, folder: str | None, project: bool
) -> None:
    """Create a skill to start from: SKILL.md, a reference and a script, with comments.

    With --project, the profile decides which folder is made, and existing files are not changed. The project is trusted
    from then on, unless it had skills or settings before.
    """
    if (name is None) != project:
        raise click.UsageError("name a skill, or prepare a project for skills with --project")
    config = context.settings()
    if name is None:
        made, kept = _new_project(context, config)
        _tell(context, config, made, kept, "next: create a skill with `metier new NAME`")
        return
    try:
        made = new_skill(config, name, description, user=user, folder=folder)
    except SkillExists as error:
        raise CommandRefusal(error.message, "CONFLICT") from error
    skill = printable(output.relative(os.path.dirname(made[0]), config.place.cwd))
    following = f"next: write SKILL.md, then `metier validate --strict {skill}` and `metier check {skill}`"
    _tell(context, config, made, [], following)


def _new_project(context: Context, config: Settings) -> tuple[list[str], list[str]]:
    """Prepare a project for skills. Returns what was made, and what was there already."""
    project = project_of(config.place.cwd)
    folder, _ = roots.usual(config.profile)
    if not folder:
        raise ConfigError(f"the profile {config.profile.name} has no folder for project skills", key="profile")
    with open(_TEMPLATE, encoding="utf-8") as template:
        text = template.read()
    if context.profile:
        text = text.replace(_PROFILE, f'profile = "{context.profile}"')
    theirs = waiting_settings(project) or [skill for skill in context.discover() if skill.foreign]
    made: list[str] = []
    kept: list[str] = []
    with _writing(project):
        skills = os.path.join(project, folder)
        (kept if os.path.isdir(skills) else made).append(skills)
        os.makedirs(skills, exist_ok=True)
        file = os.path.join(project, ".metier", "config.toml")
        os.makedirs(os.path.dirname(file), exist_ok=True)
        (made if _write(file, text) else kept).append(file)
    if file in made and not theirs:
        trust(config.config_folder, project)
    return made, kept


@contextmanager
def _writing(path: str) -> Generator[None]:
    """Turn an error of the file system into one line with the reason."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or path
        raise ConfigError(f"{error.filename} cannot be written: {error.strerror}", key="") from error


def _write(file: str, content: str) -> bool:
    """Write a new file. Return `False` if it exists, without changing it."""
    try:
        stream = open(file, "x", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed below
    except FileExistsError:
        return False
    try:
        with stream:
            stream.write(content)
    except OSError as error:
        os.unlink(file)  # half a file would be kept the next time
        error.filename = file
        raise
    return True


def _tell(context: Context, config: Settings, made: list[str], kept: list[str], following: str) -> None:
    lines = [f"created {output.relative(path, config.place.cwd)}" for path in made]
    lines += [f"kept {output.relative(path, config.place.cwd)}, which exists" for path in kept]
    if context.as_json:
        output.json_out({"made": made, "kept": kept})
    elif not context.quiet:
        click.echo("\n".join([*map(printable, lines), following]))


# --- install ---


_LISTED = 40
"""How many files are shown before the question. The rest are counted."""


@command(
    "install",
    "metier install ./pdf",
    "metier install pdf.skill --project",
    "metier install https://skills.example.com pdf",
    "metier install --verify",
)
@click.argument("source", required=False)
@click.argument("name", required=False)
@option(
    "--project/--user",
    "Install for this project, or for you (the default). With --verify, compare only these; otherwise both.",
    default=None,
)
@option("--replace", "Replace an installed skill of that name.")
@option("--digest sha256:...", "Refuse a source with another digest.", default="")
@option("--lenient", "Accept violations of the standard that the profile accepts.")
@option("--yes", "Install without asking.")
@option("--verify", "Only compare the installed skills with the lock files.")
def install_command(
    context: Context, source: str | None, name: str | None, project: bool | None, yes: bool, verify: bool, **given: Any
) -> int:
    """Install a skill from a folder, an archive, a URL of an archive, or by NAME from a site.

    A source on the network is refused without a connection, unless a rule in [permissions] allows or asks for the tool
    `install`. Nothing is run, and nothing is overwritten without --replace.
    """
    if verify:
        return _verify(context, project)
    if not source:
        raise ConfigError("SOURCE is missing", key="SOURCE", hint="name a folder, an archive or a URL")
    request = InstallRequest(source=source, name=name or "", project=bool(project), **given)
    can_ask = sys.stdin.isatty() and not context.as_json
    with context.open_store() as store:
        installer = Installer(context.settings(), store, approve=(lambda _: True) if yes else _ask if can_ask else None)
        offer = installer.install(request, lambda offer: _decide(offer, yes, can_ask, context.quiet or context.as_json))
    context.done(offer.as_dict(), f"installed {offer.name} in {offer.target}")
    return 0


def _verify(context: Context, project: bool | None) -> bool:
    with context.open_store() as store:
        findings = Installer(context.settings(), store).verify(project=project)
    changed = [finding for finding in findings if finding.problems]
    if context.as_json:
        output.json_out({"unchanged": not changed, "skills": list(findings)})
    else:
        for finding in changed:
            for problem in finding.problems:
                click.echo(printable(f"{finding.scope}: {finding.name}: {problem}"))
        for scope, is_project in (("user", False), ("project", True)):
            if not context.quiet and project in (None, is_project):
                problems = [bool(finding.problems) for finding in findings if finding.scope == scope]
                told = f"{scope}: {len(problems):,} in the lock file, {sum(problems):,} changed"
                click.echo(told, err=bool(changed))
    return bool(changed)


def _ask(request: Request) -> bool:
    return asking.ask(request, ("once", "no")) == "once"


def _decide(offer: Offer, yes: bool, can_ask: bool, silent: bool) -> bool:
    """Show what would be installed, and ask."""
    if not silent:
        _show(offer)
    if yes:
        return True
    if not can_ask:
        raise asking.no_terminal()
    return click.confirm("Replace the installed skill?" if offer.replaces else "Install this skill?", err=True)


def _show(offer: Offer) -> None:
    size = sum(size for _, size, _ in offer.files)
    output.facts(
        (
            ("name", offer.name),
            ("description", offer.description),
            ("from", offer.source),
            ("archive", offer.artifact),
            ("digest", offer.tree),
            ("to", offer.target + (" (replaces the installed skill)" if offer.replaces else "")),
            ("files", f"{len(offer.files):,} files, {size:,} bytes"),
        ),
        whole=("from", "archive", "digest", "to"),
    )
    for path, size, executable in offer.files[:_LISTED]:
        click.echo(f"  {size:>10,}  {printable(path)}{'  (executable)' if executable else ''}")
    if len(offer.files) > _LISTED:
        click.echo(f"  and {len(offer.files) - _LISTED:,} more")
    if offer.left_out:
        click.echo(printable(f"not installed: {output.first(offer.left_out, _LISTED)}"))
    for note in offer.diagnostics:
        click.echo(printable(f"{note.severity}: {note.message}"))
