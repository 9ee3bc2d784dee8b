"""The only place that wires things: a place and its settings become catalogs, one store, and sessions by id.

Surfaces that serve many callers (JSON-RPC, HTTP, MCP) share an `App`. A session lives here while it is used; what it
knows is in the store, so that another process may answer its next call.
"""

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from metier.errors import StoreError
from metier.hosts.settings import resolve
from metier.model import Changes
from metier.record import telemetry
from metier.record.recorder import random_ids
from metier.record.store import Store, open_store
from metier.sandbox import Runner
from metier.session.policy import Request
from metier.session.session import Session
from metier.skills import PathLike, Skills, Source

_LOG: Final = logging.getLogger("metier")

SESSIONS: Final = 1_000
"""Sessions that are kept ready; others are taken up again from the store when they are called."""

OPENING: Final = 64
"""Sessions that can be opened at the same time; each waits for the store, and others need not wait with it."""

PLACE: Final = "place"
"""The document of a store with the working directory of a session that has one of its own."""

CHANGED: Final = "skills.changed"
"""The channel of a store on which hosts tell each other that skills changed on disk."""

CATALOGS: Final = 64
"""Working directories whose catalogs are kept ready."""


class App:
    """See the module. Thread-safe: a session answers one call at a time, different sessions at once."""

    def __init__(
        self,
        cwd: PathLike | None = None,
        *,
        profile: PathLike | None = None,
        roots: Sequence[PathLike] = (),
        home: PathLike | None = None,
        settings: Mapping[str, Any] | None = None,
        store: str | Store | None = None,
        surface: str = "python",
        source: Source | None = None,
    ) -> None:
        self._given: dict[str, Any] = {"profile": profile, "home": home}
        self._source = source
        self._roots, self._overrides = roots, settings
        self.config = resolve(cwd, overrides=settings, **self._given)
        if self.config.telemetry and telemetry.active is None:
            traced = telemetry.enable()
            if traced.unheard:
                _LOG.warning("telemetry is on, but nobody hears it: this process has set up no OpenTelemetry SDK")
        self.store = (
            store if store is not None and not isinstance(store, str) else open_store(store or self.config.store)
        )
        self.surface = surface
        self.runner: Runner | None = None
        """What runs scripts in every session; the machine's own sandbox where there is none."""
        self._lock = threading.RLock()
        self._opening = tuple(threading.RLock() for _ in range(OPENING))
        self._catalogs: OrderedDict[str, Skills] = OrderedDict()
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def skills(self, cwd: PathLike | None = None, *, reload: bool = False) -> Skills:
        """The catalog of a working directory; asking for one does not change another."""
        where = os.path.abspath(cwd) if cwd is not None else self.config.place.cwd
        with self._lock:
            known = self._catalogs.get(where)
            if known is None:
                known = Skills.discover(
                    where, roots=self._roots, settings=self._overrides, source=self._source, **self._given
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
        """Those that are kept ready, one for each working directory that was asked for."""
        with self._lock:
            return tuple(self._catalogs.values())

    def refresh(self) -> Changes:
        """Look at the disk again for every catalog that is kept; what changed in any.

        Whoever shares the store hears of it: `app.store.listen(CHANGED)` gives what was added and removed, counted.
        """
        with self._lock:
            changes = [skills.refresh() for skills in self._catalogs.values()]
        together = Changes(
            tuple(sorted({name for one in changes for name in one.added})),
            tuple(sorted({name for one in changes for name in one.removed})),
            tuple(sorted({name for one in changes for name in one.changed})),
        )
        if together:
            self.store.notify(CHANGED, str(together))
        return together

    def session(
        self,
        id: str | None = None,  # noqa: A002 - the public name of the argument
        *,
        cwd: PathLike | None = None,
        approve: Callable[[Request], bool | str] | None = None,
        tools: bool = True,
        surface: str | None = None,
    ) -> Session:
        """The session of that id, as it was left by whichever process used it last; a new one without an id."""
        wanted = id or random_ids()
        with self._opening[hash(wanted) % len(self._opening)]:
            saved = self.store.load_state(wanted, "session") if id else None
            with self._lock:
                known = self._sessions.get(wanted)
                current = known is not None and (saved is None or known.saved_version >= saved.version)
                # Whoever can be asked decides what the session is; others take it as it is.
                if known is not None and current and (approve is None or known.shaped(approve, tools)):
                    self._sessions.move_to_end(wanted)
                    return known
            session = self.skills(self._place_of(wanted) if cwd is None and saved else cwd).session(
                id=wanted,
                store=self.store,
                approve=approve,
                tools=tools,
                state=saved,
                surface=surface or self.surface,
                runner=self.runner,
                store_required=self.config.store_required,
            )
            if cwd is not None:
                self._keep_place(wanted, cwd)
            with self._lock:
                self._sessions[wanted] = session
                while len(self._sessions) > SESSIONS:
                    self._sessions.popitem(last=False)
            return session

    def _place_of(self, session_id: str) -> str | None:
        """The working directory that a session was begun with, if it was one of its own."""
        kept = self.store.load_state(session_id, PLACE)
        return kept.value["cwd"] if kept else None

    def _keep_place(self, session_id: str, cwd: PathLike) -> None:
        try:
            self.store.save_state(session_id, PLACE, {"cwd": os.path.abspath(cwd)})
        except StoreError:
            if self.config.store_required:
                raise

    def exists(self, session_id: str) -> bool:
        return session_id in self._sessions or self.store.load_state(session_id, "session") is not None

    def close(self) -> None:
        self.store.close()


def _log(skills: Skills) -> None:
    """What a scan has to say goes into the log of a server, once for each catalog: its owner may never list it."""
    for diagnostic in skills.diagnostics:
        if diagnostic.severity != "info":
            _LOG.warning("%s: %s: %s", diagnostic.path, diagnostic.code, diagnostic.message)
