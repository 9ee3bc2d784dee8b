"""The composition root: an `App` turns a place and its settings into catalogs, one store, and sessions by id.

Surfaces that serve many callers (JSON-RPC, HTTP, MCP) share an `App`. It keeps a session in memory while the session is
in use. What a session knows is in its events, so another process can answer its next call.
"""

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypedDict

from metier.hosts.settings import resolve
from metier.policy.asking import Approve
from metier.policy.decide import Policy
from metier.policy.remembered import rules_without_skill
from metier.record import telemetry
from metier.record.events import check_session_id
from metier.record.retention import Bound, Keeper
from metier.record.state import OpenedState, SessionState, read_state
from metier.record.store import Store, open_store
from metier.record.writer import random_ids
from metier.running.sandbox import Runner
from metier.session.session import Session
from metier.skills import PathLike, Skills, SkillSource
from metier.values.skill import Changes

if TYPE_CHECKING:
    from metier.catalog.build import Catalog

_LOG: Final = logging.getLogger("metier")

SESSIONS: Final = 1_000
"""Sessions kept in memory. Others are restored from the store when they are called."""

OPENING: Final = 64
"""Sessions that can be opened at the same time, so that one waiting for the store does not block the others."""

CHANGED: Final = "skills.changed"
"""The store channel on which hosts notify each other that skills changed on disk."""

CATALOGS: Final = 64
"""Working directories whose catalogs are kept in memory."""


class SessionDefaults(TypedDict, total=False):
    """Default options for the sessions that a server opens. See `Skills.session`."""

    preload: Sequence[str]
    only: Sequence[str] | None
    has_read_tool: bool


class App:
    """See the module. Thread-safe: a session answers one call at a time, different sessions run in parallel."""

    def __init__(
        self,
        cwd: PathLike | None = None,
        *,
        profile: PathLike | None = None,
        roots: Sequence[PathLike] = (),
        home: PathLike | None = None,
        settings: Mapping[str, object] | None = None,
        store: str | Store | None = None,
        surface: str = "python",
        source: SkillSource | None = None,
        policy: Policy | Mapping[str, object] | None = None,
        approve: Approve | None = None,
        keeps_bound: bool = False,
    ) -> None:
        """The first arguments are those of `Skills.discover`.

        Args:
            store: A `Store` or its URL. The store of the configuration by default.
            surface: The surface that uses the sessions, for the record.
            policy: The policy of every session: a `Policy`, or its settings. That of the configuration by default.
            approve: Answers what policy asks, in every session and on every surface. Clients are not asked then.
            keeps_bound: Whether old sessions are deleted as the settings `store_days` and `store_megabytes` say.
        """
        self._profile, self._home, self._source = profile, home, source
        self._roots, self._overrides = roots, settings
        self.defaults: SessionDefaults = {}
        """Options for new sessions, used where the caller gives none."""
        self.config = resolve(cwd, overrides=settings, profile=profile, home=home)
        if self.config.telemetry and telemetry.active is None:
            traced = telemetry.enable()
            if traced.dropped:
                _LOG.warning("telemetry is on, but no OpenTelemetry SDK is configured")
        self.store = (
            store if store is not None and not isinstance(store, str) else open_store(store or self.config.store)
        )
        self.surface = surface
        self.given_policy = policy
        """The policy that was given, if one was."""
        if policy is not None:
            self.policy()  # a mistake in it is raised here
        self.approve = approve
        """Who answers instead of clients, if somebody does."""
        self.runner: Runner | None = None
        """The runner for scripts in every session. `None` means the machine's own sandbox."""
        self._lock = threading.RLock()
        self._opening = tuple(threading.RLock() for _ in range(OPENING))
        self._catalogs: OrderedDict[str, Skills] = OrderedDict()
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        bound = Bound(self.config.store_days, self.config.store_megabytes)
        self._keeper = Keeper(self.store, bound, lambda: tuple(self._sessions)) if keeps_bound else None

    def skills(self, cwd: PathLike | None = None, *, reload: bool = False) -> Skills:
        """The catalog of a working directory. Each working directory has its own."""
        where = os.path.abspath(cwd) if cwd is not None else self.config.place.cwd
        with self._lock:
            known = self._catalogs.get(where)
            if known is None:
                known = Skills.discover(
                    where,
                    profile=self._profile,
                    roots=self._roots,
                    home=self._home,
                    settings=self._overrides,
                    source=self._source,
                )
                self._catalogs[where] = known
                _log(known)
                while len(self._catalogs) > CATALOGS:
                    self._catalogs.popitem(last=False)
            elif reload:
                known.refresh()
            self._catalogs.move_to_end(where)
            return known

    @property
    def catalogs(self) -> tuple[Skills, ...]:
        """The catalogs in memory, one for each requested working directory."""
        with self._lock:
            return tuple(self._catalogs.values())

    def refresh(self) -> Changes:
        """Rescan the disk for every catalog in memory, and return the combined changes.

        Every process that shares the store is notified: `app.store.listen(CHANGED)` yields the counts of changes.
        """
        with self._lock:
            changes = [skills.refresh() for skills in self._catalogs.values()]
        return self._told(changes)

    def adopt(self, found: "Mapping[Skills, Catalog]") -> Changes:
        """`refresh` with what a `Watcher` just found."""
        with self._lock:
            changes = [skills.adopt(found) for skills in self._catalogs.values()]
        return self._told(changes)

    def _told(self, changes: Sequence[Changes]) -> Changes:
        together = Changes.together(changes)
        if together:
            self.store.notify(CHANGED, str(together))
        return together

    def session(
        self,
        id: str | None = None,  # noqa: A002 - the public name of the argument
        *,
        cwd: PathLike | None = None,
        approve: Approve | None = None,
        tools: bool | None = None,
        preload: Sequence[str] = (),
        only: Sequence[str] | None = None,
        has_read_tool: bool | None = None,
        surface: str | None = None,
        applies: Collection[str] | None = None,
        is_new: bool = False,
    ) -> Session:
        """The session with this id, as its events say. Without an id, a new session.

        `cwd`, `tools`, `preload`, `only` and `has_read_tool` are the initial options of a session, and kept with it.
        `approve` answers in this session instead of the app's.
        With `is_new`, the caller knows that nothing was recorded under the id, so the store is not asked.
        """
        wanted = check_session_id(id) if id else random_ids()
        with self._opening[hash(wanted) % len(self._opening)]:
            with self._lock:
                known = self._sessions.get(wanted)
                # Only a caller with `approve` determines the session's callback and tools. Others use it as it is.
                if known is not None and (approve is None or _same_shape(known, approve, tools)):
                    self._sessions.move_to_end(wanted)
                    return known
            opened = read_state(self.store, wanted) if id and not is_new else OpenedState(SessionState())
            limited = only if only is not None else self.defaults.get("only")
            usual = self.defaults.get("preload", ())  # what a caller limits is limited for the defaults, too
            session = self.skills(cwd if cwd is not None else opened.options.get("cwd")).session(
                id=wanted,
                policy=self.given_policy,
                store=self.store,
                state=opened,
                cwd=os.fspath(cwd) if cwd is not None else None,
                approve=approve or self.approve,
                tools=tools,
                preload=preload or [name for name in usual if limited is None or name in limited],
                only=limited,
                has_read_tool=has_read_tool if has_read_tool is not None else self.defaults.get("has_read_tool"),
                surface=surface or self.surface,
                runner=self.runner,
                store_required=self.config.store_required,
                applies=applies,
            )
            with self._lock:
                self._sessions[wanted] = session
                while len(self._sessions) > SESSIONS:
                    self._sessions.popitem(last=False)
            return session

    def policy(self, skills: Skills | None = None) -> Policy:
        """The policy of sessions with these skills, by default those of the app's own folder."""
        return Policy.of(self.given_policy, skills.settings if skills is not None else self.config)

    def exists(self, session_id: str) -> bool:
        return session_id in self._sessions or self.store.last_seq(session_id) >= 0

    def close(self) -> None:
        if self._keeper is not None:
            self._keeper.stop()
        self.store.close()


def _same_shape(session: Session, approve: Approve, tools: bool | None) -> bool:
    """Whether a session has this `approve` callback and this `tools` option. A session never changes them."""
    return session.approve == approve and tools in (None, session.tools_enabled)


def _log(skills: Skills) -> None:
    """Log the diagnostics of a scan, once for each catalog, because the owner of a server may never list them."""
    for diagnostic in (*skills.diagnostics, *rules_without_skill(skills.settings, skills.catalog)):
        if diagnostic.severity != "info":
            _LOG.warning(": ".join(filter(None, (diagnostic.path, diagnostic.code, diagnostic.message))))
