"""The options that every command shares. They may come before or after its name, and the later one wins."""

import functools
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from metier.cli import output
from metier.quick_dataclass import dataclass, field

if TYPE_CHECKING:
    # Help needs only the options, so everything else is imported where it is used.
    from click.shell_completion import CompletionItem

    from metier import Skills
    from metier.app import App
    from metier.hosts.settings import Settings
    from metier.record.store import Store
    from metier.results import Request
    from metier.session.session import Session
    from metier.skills import SkillSource


_PRUNE_SECONDS = 2.0
"""How long a command deletes old sessions before it goes on."""


@dataclass(slots=True)
class Context:
    """The shared options of one call, and the objects that are made from them."""

    cwd: str | None = None
    home: str | None = None
    profile: str | None = None
    skills: tuple[str, ...] = ()
    store: str | None = None
    session: str | None = None
    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    overrides: dict[str, object] = field(default_factory=dict[str, object])
    """Settings of this call, named as in a configuration file."""

    def note(self, text: str) -> None:
        """Say something besides the answer, on stderr."""
        output.note(text, self.as_json)

    def discover(self) -> "Skills":
        from metier import Skills

        progress = None if self.quiet or self.as_json else Progress()
        config = self.settings()
        found = Skills(config, self.skills, progress, source=self.source(config))
        if progress is not None:
            progress.done()
        if not found.profile.enabled and not self.quiet:
            self.note(found.profile.off_message)
        return found

    def discover_for_session(self) -> "Skills":
        """The skills for a command that obeys rules. Says which rules are dropped."""
        skills = self.discover()
        if not self.quiet:
            output.warnings((d for d in skills.warnings if d.code == "rule-dropped"), self.as_json)
        return skills

    def open_session(
        self,
        approve: "Callable[[Request], bool | str] | None" = None,
        *,
        acts: bool = False,
        only: Sequence[str] = (),
        preload: Sequence[str] = (),
        has_read_tool: bool = True,
        surface: str = "cli",
    ) -> "Session":
        """A session whose events are kept; with --session it goes on where that one stopped.

        If the store cannot be used, commands that only read skills print a warning and continue, unless the store or
        the session was named, or the settings require the store.
        """
        from metier.app import Begun, begun, open_session
        from metier.cli import asking
        from metier.errors import StoreError
        from metier.record.store.memory import MemoryStore

        skills = self.discover_for_session()
        required = acts or skills.settings.store_required or bool(self.store or self.session)
        try:
            store = self.open_store()
        except StoreError as error:
            if required:
                raise
            self.note(f"warning: events are not kept: {error}")
            store = MemoryStore()
        self._keep_bound(store, skills.settings)
        return open_session(
            skills,
            store,
            id=self.session,
            begun=begun(store, self.session) if self.session else Begun(),
            only=only or None,
            preload=preload,
            has_read_tool=False if not has_read_tool else None,
            surface=surface,
            store_required=required,
            approve=approve or asking.at_terminal(),
        )

    def _keep_bound(self, store: "Store", config: "Settings") -> None:
        """Delete sessions beyond the bound of the store, once a day and for a moment; the next command goes on."""
        from metier.errors import StoreError
        from metier.record.retention import Bound, enforce

        bound = Bound(config.store_days, config.store_megabytes)
        try:
            keep = (self.session,) if self.session else ()
            enforce(store, bound, keep=keep, deadline=time.monotonic() + _PRUNE_SECONDS)
        except StoreError as error:
            self.note(f"warning: old sessions were not deleted: {error}")

    def open_app(self, surface: str) -> "App":
        """Open what a server shares among its clients."""
        from metier.app import App

        return App(
            self.cwd,
            profile=self.profile,
            roots=self.skills,
            home=self.home,
            settings=self.overrides,
            store=self.store,
            surface=surface,
            source=self.source(self.settings()),
            keeps_bound=True,
        )

    def source(self, config: "Settings") -> "SkillSource | None":
        """The skills of the MCP servers that the user's configuration names."""
        if not config.mcp.servers:
            return None
        from metier.mcp.source import connect, servers

        return connect(servers(config.mcp.servers), config.cache_folder)

    def open_store(self) -> "Store":
        from metier.record.store import open_store

        return open_store(self.store or self.settings().store, on_trouble=self.note)

    def settings(self) -> "Settings":
        from metier.hosts.settings import resolve

        return resolve(self.cwd, home=self.home, profile=self.profile, overrides=self.overrides)


def approve_all(request: "Request") -> bool:
    """Allow every request, for commands whose user passed --yes."""
    return True


def complete_profile(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Complete the names of the built-in profiles, or files if no name matches."""
    from click.shell_completion import CompletionItem

    from metier.hosts import profiles

    named = [CompletionItem(name) for name in profiles.names() if name.startswith(incomplete)]
    return named or [CompletionItem(incomplete, type="file")]


def complete_folder(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Complete folders."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


class Progress:
    """Shows on a terminal how far a scan is that takes longer than a second."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.shown = 0.0
        self.live = sys.stderr.isatty()

    def __call__(self, found: int) -> None:
        now = time.monotonic()
        if not self.live or now - self.started < 1 or now - self.shown < 0.2:
            return
        self.shown = now
        click.echo(f"\rsearching: {found:,} skills so far", err=True, nl=False)

    def done(self) -> None:
        if self.shown:
            click.echo("\r\x1b[K", nl=False, err=True)


def _session_id(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse an id that no store can hold before anything is opened."""
    if value is None:
        return None
    from metier.errors import ConfigError, StoreError
    from metier.record.store import check_name

    try:
        return check_name(value, "the session id")
    except StoreError as error:
        raise ConfigError(error.message, key="--session", hint=error.hint) from error


def _print_schema(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    """Print what `--json` prints as a JSON Schema, and exit."""
    if not wanted or context.resilient_parsing:
        return
    from metier.cli import shapes

    output.json_out(shapes.schema_of(context.command_path.partition("metier")[2].strip()))
    context.exit()


Command = Callable[..., None]

_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    click.option("--cwd", metavar="DIR", help="Work in this folder.", shell_complete=complete_folder),
    click.option("--home", metavar="DIR", help="Use this folder as the home folder.", shell_complete=complete_folder),
    click.option(
        "--profile",
        metavar="NAME|FILE",
        help="Apply the rules of this host (see `metier profiles`).",
        shell_complete=complete_profile,
    ),
    click.option(
        "--skills",
        metavar="DIR",
        multiple=True,
        help="Search this folder first. Can be repeated.",
        shell_complete=complete_folder,
    ),
    click.option("--store", metavar="URL", help="Use this event store (see `metier doctor`)."),
    click.option("--session", metavar="ID", help="Use or continue this session.", callback=_session_id),
    click.option("--json", "as_json", is_flag=True, default=None, help="Print JSON."),
    click.option(
        "--json-schema",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_schema,
        help="Print the JSON Schema of --json and exit.",
    ),
    click.option("-q", "--quiet", is_flag=True, default=None, help="Print less."),
    click.option("-v", "--verbose", is_flag=True, default=None, help="Print more."),
)


def shared(command: Command) -> Command:
    """Give a command the shared options, and pass it the `Context` as its first argument."""

    @click.pass_context
    @functools.wraps(command)
    def wrapper(
        click_context: click.Context,
        /,
        *args: object,
        cwd: str | None,
        home: str | None,
        profile: str | None,
        skills: tuple[str, ...],
        store: str | None,
        session: str | None,
        as_json: bool | None,
        quiet: bool | None,
        verbose: bool | None,
        **given: object,
    ) -> None:
        outer = click_context.ensure_object(Context)
        # A later option wins. An option that was not given leaves the earlier value.
        outer.cwd = outer.cwd if cwd is None else cwd
        outer.home = outer.home if home is None else home
        outer.profile = outer.profile if profile is None else profile
        outer.skills += skills
        outer.store = outer.store if store is None else store
        outer.session = outer.session if session is None else session
        outer.as_json = outer.as_json if as_json is None else as_json
        outer.quiet = outer.quiet if quiet is None else quiet
        outer.verbose = outer.verbose if verbose is None else verbose
        command(outer, *args, **given)

    decorated: Command = wrapper
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
