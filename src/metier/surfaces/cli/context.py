"""The shared options of one call, and the objects that commands make from them."""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from metier.files.text import printable
from metier.surfaces.cli import output
from metier.values.value import field

if TYPE_CHECKING:
    # Help needs only the options, so everything else is imported where it is used.
    from metier import Skills
    from metier.app import App
    from metier.hosts.settings import Settings
    from metier.record.store import Store
    from metier.session.session import Session
    from metier.skills import SkillSource
    from metier.values.results import Request


_PRUNE_SECONDS = 2.0
"""How long a command deletes old sessions before it goes on."""


class Context(Struct):
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
    only: tuple[str, ...] = ()
    """The skills that a session is limited to."""
    preload: tuple[str, ...] = ()
    no_read_tool: bool = False
    overrides: dict[str, object] = field(default_factory=dict[str, object])
    """Settings of this call, named as in a configuration file."""

    def answer(self, data: object, text: str) -> None:
        """Print the answer of a command: one JSON document with --json, else the text."""
        if self.as_json:
            output.json_out(data)
        else:
            click.echo(output.safe(text))

    def done(self, data: object, line: str) -> None:
        """Print what a command did: one JSON document with --json, else a line, which --quiet leaves out."""
        if self.as_json:
            output.json_out(data)
        elif not self.quiet:
            click.echo(printable(line))

    def note(self, text: str) -> None:
        """Say something besides the answer, on stderr."""
        output.note(text, self.as_json)

    def hint(self, text: str) -> None:
        """Say something to a person besides the answer, on stderr, unless it should be --quiet."""
        if not self.quiet:
            click.echo(text, err=True)

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
        self, approve: "Callable[[Request], bool | str] | None" = None, *, surface: str = "cli"
    ) -> "Session":
        """A session whose events are kept; with --session it goes on where that one stopped.

        Without `approve`, the person at the terminal is asked. A store that cannot be used ends the command, unless the
        setting `store_required` is false and neither the store nor the session was named.
        """
        from metier.errors import StoreError
        from metier.record.store.memory import MemoryStore
        from metier.surfaces.cli import asking

        skills = self.discover_for_session()
        required = skills.settings.store_required or bool(self.store or self.session)
        try:
            store = self.open_store()
        except StoreError as error:
            if required:
                raise
            self.note(f"warning: events are not kept: {error}")
            store = MemoryStore()
        self._keep_bound(store, skills.settings)
        return skills.session(
            id=self.session,
            store=store,
            only=self.only or None,
            preload=self.preload,
            has_read_tool=False if self.no_read_tool else None,
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
        """Open what a server shares among its clients, whose new sessions begin as the options say."""
        from metier.app import App
        from metier.policy.decide import Policy
        from metier.session.load import check_preload

        config = self.settings()
        check_preload(self.preload, self.only or None)  # at once, and not when the first client comes
        Policy.configured(config).rules()  # likewise
        app = App(
            self.cwd,
            profile=self.profile,
            roots=self.skills,
            home=self.home,
            settings=self.overrides,
            store=self.store,
            surface=surface,
            source=self.source(config),
            keeps_bound=True,
        )
        if self.only:
            app.defaults["only"] = self.only
        if self.preload:
            app.defaults["preload"] = self.preload
        if self.no_read_tool:
            app.defaults["has_read_tool"] = False
        return app

    def source(self, config: "Settings") -> "SkillSource | None":
        """The skills of the MCP servers that the user's configuration names."""
        if not config.mcp.servers:
            return None
        from metier.sources.mcp_servers import connect, servers

        return connect(servers(config.mcp.servers), config.cache_folder)

    def open_store(self) -> "Store":
        from metier.record.store import open_store

        return open_store(self.store or self.settings().store, on_trouble=self.note)

    def settings(self) -> "Settings":
        from metier.hosts.settings import resolve

        return resolve(self.cwd, home=self.home, profile=self.profile, overrides=self.overrides)


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
