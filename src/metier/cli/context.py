"""The options that every command shares; they may stand before and after its name, and the later one counts."""

import functools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from metier import Skills
from metier.cli.completion import complete_folder, complete_profile
from metier.hosts.settings import Settings, resolve
from metier.session.policy import Request

if TYPE_CHECKING:
    from metier.app import App
    from metier.record.store import Store
    from metier.session.session import Session
    from metier.skills import SkillSource


@dataclass(slots=True)
class Context:
    """The shared options of one call, and what is made from them."""

    cwd: str | None = None
    home: str | None = None
    profile: str | None = None
    skills: tuple[str, ...] = ()
    store: str | None = None
    session: str | None = None
    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    overrides: dict[str, Any] = field(default_factory=dict[str, Any])

    def discover(self) -> Skills:
        progress = None if self.quiet or self.as_json else Progress()
        found = Skills.discover(
            self.cwd,
            profile=self.profile,
            roots=self.skills,
            home=self.home,
            settings=self.overrides,
            progress=progress,
            source=self.source(),
        )
        if progress is not None:
            progress.done()
        return found

    def open_session(
        self,
        approve: Callable[[Request], bool | str] | None = None,
        *,
        acts: bool = False,
        only: Sequence[str] = (),
        preload: Sequence[str] = (),
        has_read_tool: bool = True,
    ) -> "Session":
        """A session whose events are kept; with --session it goes on where that one stopped.

        What only reads skills goes on with a warning where the store cannot be used, unless that was named or required.
        """
        from metier.app import open_session
        from metier.errors import StoreError
        from metier.record.store.memory import MemoryStore

        skills = self.discover()
        required = acts or skills.settings.store_required or bool(self.store or self.session)
        try:
            store = self.open_store()
        except StoreError as error:
            if required:
                raise
            click.echo(f"warning: events are not kept: {error}", err=True)
            store = MemoryStore()
        return open_session(
            skills,
            store,
            id=self.session,
            only=only or None,
            preload=preload,
            has_read_tool=False if not has_read_tool else None,
            surface="cli",
            store_required=required,
            approve=approve or (_ask if sys.stdin.isatty() else None),
        )

    def open_app(self, surface: str) -> "App":
        """Everything that a server needs, shared by its clients."""
        from metier.app import App

        return App(
            self.cwd,
            profile=self.profile,
            roots=self.skills,
            home=self.home,
            settings=self.overrides,
            store=self.store,
            surface=surface,
            source=self.source(),
        )

    def source(self) -> "SkillSource | None":
        """The skills of the MCP servers that the user's configuration names."""
        config = self.settings()
        if not config.mcp_servers:
            return None
        from metier.mcp.source import connect, servers

        return connect(servers(config.mcp_servers), config.cache_folder)

    def open_store(self) -> "Store":
        from metier.record.store import open_store

        return open_store(self.store or self.settings().store, on_trouble=lambda text: click.echo(text, err=True))

    def settings(self) -> Settings:
        return resolve(self.cwd, home=self.home, profile=self.profile, overrides=self.overrides)


def approve_all(request: Request) -> bool:
    """Yes, whatever is asked: for commands whose user already said so."""
    return True


def _ask(request: Request) -> str:
    """Put a question of the policy to the person at the terminal."""
    what = f"{request.tool} for {request.skill_name}" if request.skill_name else request.tool
    return click.prompt(
        f"Allow {what}?", type=click.Choice(["once", "always", "no"]), default="no", show_choices=True, err=True
    )


class Progress:
    """A line on stderr once a scan has taken a second."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.shown = 0.0
        self.live = sys.stderr.isatty()

    def __call__(self, found: int) -> None:
        now = time.monotonic()
        if now - self.started < 1 or now - self.shown < 0.2 or (self.shown and not self.live):
            return
        self.shown = now
        click.echo(f"\rsearching: {found:,} skills so far" if self.live else "searching, this takes a while", err=True,
                   nl=not self.live)  # fmt: skip

    def done(self) -> None:
        if self.shown and self.live:
            click.echo("\r\x1b[K", nl=False, err=True)


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--cwd", metavar="DIR", help="Work from this folder instead of the current one.", shell_complete=complete_folder
    ),
    click.option("--home", metavar="DIR", help="Take this folder as the home folder.", shell_complete=complete_folder),
    click.option(
        "--profile", metavar="NAME|FILE", help="The host whose rules apply (see `metier profiles`).",
        shell_complete=complete_profile,
    ),
    click.option(
        "--skills", metavar="DIR", multiple=True, help="Search this folder first; may be repeated.",
        shell_complete=complete_folder,
    ),
    click.option("--store", metavar="URL", help="Keep and read events here (see `metier doctor`)."),
    click.option("--session", metavar="ID", help="Go on with this session, or speak of it."),
    click.option("--json", "as_json", is_flag=True, default=None, help="Print JSON."),
    click.option("-q", "--quiet", is_flag=True, default=None, help="Say less."),
    click.option("-v", "--verbose", is_flag=True, default=None, help="Say more."),
)  # fmt: skip


def shared(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the shared options and pass it the `Context` as its first argument."""

    @click.pass_context
    @functools.wraps(command)
    def wrapper(click_context: click.Context, /, *args: Any, **given: Any) -> Any:
        context = click_context.ensure_object(Context)
        for name in ("cwd", "home", "profile", "store", "session", "as_json", "quiet", "verbose"):
            value = given.pop(name)
            if value is not None:
                setattr(context, name, value)
        context.skills += given.pop("skills")
        return command(context, *args, **given)

    for option in reversed(_OPTIONS):
        wrapper = option(wrapper)
    return wrapper
