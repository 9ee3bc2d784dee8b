"""How a session writes its record: the beginning, the catalogs it saw, every operation with its result, and its state.

An `EventWriter` turns events into frames and writes what belongs together in one transaction. A `Recorder` puts the
frames of an operation between `session_called` and `session_returned`, one operation at a time. The clock and the ids
come from outside, so that a replay writes the same bytes.
"""

import itertools
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from metier.catalog.build import Catalog
from metier.errors import MetierError, StateConflict, StoreError
from metier.files.digests import digest_of
from metier.files.text import storable_table, utf8
from metier.record import telemetry
from metier.record.events import (
    Event,
    SessionCalled,
    SessionReturned,
    SessionStarted,
    SkillCatalogUpdated,
    SkillWarning,
)
from metier.record.store import Draft, Frame, Store
from metier.record.store.memory import MemoryStore

if TYPE_CHECKING:
    from metier.hosts.schema import Profile

HELD_EVENTS: Final = 10_000
"""Events that are held in memory while a store is in trouble and the host goes on."""

STATE: Final = "session"
"""The key of a session's document in its store."""

_BEGUN, _CATALOG = "begun", "catalog"
"""Beside the state, in the document only: how the record began, and the catalog that it last named."""
_TRIES: Final = 8
_NO_SPAN: Final = nullcontext(None)
_LOG: Final = logging.getLogger("metier")

State = Mapping[str, object]

EventWatcher = Callable[[Event, Mapping[str, bytes]], None]
"""Is shown each event of an operation when it is noted, with the artifacts that are kept."""


def system_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def random_ids() -> str:
    """Ids that sort by time and never collide."""
    return f"{time.time_ns():016x}{os.urandom(8).hex()}"


class Counter:
    """Ids `prefix-0`, `prefix-1`, ... and a clock that ticks once per look, for a deterministic run."""

    def __init__(self, prefix: str = "event", start_ms: int = 0) -> None:
        self._prefix = prefix
        self._ids = itertools.count()
        self._ticks = itertools.count(start_ms)

    def ids(self) -> str:
        return f"{self._prefix}-{next(self._ids)}"

    def clock(self) -> int:
        return next(self._ticks)


class EventWriter:
    """Turns the events of one session into frames. Events are held back until `flush`, and then written in one go.

    What a store could not take is held and written with the next events, so that trouble leaves no hole in a record.
    """

    def __init__(
        self,
        store: Store,
        session_id: str,
        clock: Callable[[], int] = system_clock,
        ids: Callable[[], str] = random_ids,
        *,
        required: bool = True,
        keeps_artifacts: bool = True,
    ) -> None:
        """`required`: trouble with the store is raised. Otherwise it is logged, for up to `HELD_EVENTS` events."""
        self.store, self.session_id, self._clock, self._ids = store, session_id, clock, ids
        self._required, self._keeps_artifacts = required, keeps_artifacts
        self._drafts: list[Draft] = []
        self._artifacts: dict[str, bytes] = {}
        self.live = clock is system_clock
        """Whether it happens now; a replay has the times of the record."""
        self.watch: EventWatcher | None = None
        """Sees each event when it is noted, with the artifacts that are kept."""

    def note(self, *events: Event, artifacts: Mapping[str, bytes] | None = None) -> None:
        """Hold events back until `flush`; artifacts by their digests."""
        self._drafts += (Draft(self._ids(), self._clock(), event.type, event.data()) for event in events)
        if artifacts and self._keeps_artifacts:
            self._artifacts.update(artifacts)
        if self.watch is not None:
            for event in events:
                self.watch(event, self._artifacts)

    @property
    def holding(self) -> bool:
        """Whether there is something to write."""
        return bool(self._drafts)

    def flush(self, state: tuple[str, State, int] | None = None) -> list[Frame]:
        """Write what was held back. It is safe when this returns, unless trouble is tolerated.

        `state` is written with it, as in `Store.append`: on a conflict nothing is written, and everything is held.
        """
        if not self._drafts:
            return []
        drafts, artifacts = self._drafts, self._artifacts
        self._drafts, self._artifacts = [], {}
        try:
            return self._append(drafts, artifacts, state)
        except StoreError as error:
            if error.reason != "invalid" or state is not None:  # an id is written once: trying again is safe
                self._drafts, self._artifacts = drafts, artifacts
            if isinstance(error, StateConflict):
                raise
            if error.reason == "invalid" and state is not None:
                self.flush()  # it may be the document that is wrong: the events are kept all the same
            self.tolerate(error)
            return []

    def _append(
        self, drafts: list[Draft], artifacts: Mapping[str, bytes], state: tuple[str, State, int] | None
    ) -> list[Frame]:
        id_ = self.session_id
        try:
            return self.store.append(id_, "session", id_, drafts, artifacts.values(), state)
        except StoreError as error:
            if error.reason != "invalid":
                raise
        # Hardly ever: text that is not UTF-8. Looking for it in every event beforehand would cost a tenth of a load.
        drafts = [replace(draft, data=storable_table(draft.data)) for draft in drafts]
        return self.store.append(id_, "session", id_, drafts, artifacts.values(), state)

    def tolerate(self, error: StoreError) -> None:
        """Raise a store's error, or log it where the host should go on."""
        if self._required or error.reason == "invalid" or len(self._drafts) > HELD_EVENTS:
            raise error
        _LOG.warning("events are not kept for now: %s", error)

    def frames(self) -> list[Frame]:
        return [frame for frame in self.store.read(self.session_id) if frame["stream_kind"] == "session"]


@dataclass(slots=True)
class Returned:
    """What an operation returns: its text, and the code of a failure that is an answer."""

    text: str = ""
    code: str = ""


class Recorder:
    """See the module. `lock` is held while an operation runs."""

    def __init__(
        self,
        store: Store | None,
        session_id: str,
        clock: Callable[[], int] = system_clock,
        ids: Callable[[], str] = random_ids,
        *,
        required: bool = True,
        keeps_artifacts: bool = True,
        version: int = 0,
    ) -> None:
        """Without a `store` the events live as long as the session, and nothing is kept to run it again.

        `version` is that of the document in the store from which the session goes on.
        """
        self._writer = EventWriter(
            store or MemoryStore(), session_id, clock, ids, required=required, keeps_artifacts=keeps_artifacts
        )
        self.store = self._writer.store
        self.lock = threading.RLock()
        self.keeps_record = store is not None
        self.version = version
        self._noticed: Catalog | None = None
        self._profile: Profile | None = None
        self._begun = self._snapshot = ""
        self._saved: State = {}
        self.note, self.flush, self.frames = self._writer.note, self._writer.flush, self._writer.frames

    # --- beginning ---

    def begin(self, started: SessionStarted, notes: list[Event], catalog: Catalog, dump: Callable[[], bytes]) -> None:
        """Record how a session begins, unless the record says just that already and the session goes on in it."""
        self._profile = catalog.profile
        document = started.state or {}
        state = {key: value for key, value in document.items() if key not in (_BEGUN, _CATALOG)}
        self._begun = digest_of(json.dumps(replace(started, state=None).data(), sort_keys=True).encode())
        if self.keeps_record and self.version and document.get(_BEGUN) == self._begun:
            self._snapshot = str(document.get(_CATALOG, ""))  # if there is another by now, the next step says so
            return
        self.note(replace(started, state=state or None))
        self.notice(catalog, dump)
        self.note(*notes)
        self.flush()

    def notice(self, catalog: Catalog, dump: Callable[[], bytes]) -> None:
        """Record the catalog when it is new to this session, with every choice between equal names.

        `dump` gives the whole catalog as data.
        """
        if catalog is self._noticed:
            return
        self._noticed = catalog
        data = dump() if self.keeps_record else b""
        digest = digest_of(data) if data else ""
        if digest and digest == self._snapshot:
            return
        self._snapshot = digest
        losers: dict[str, list[str]] = {}
        winners: dict[str, str] = {}
        for entry in catalog.shadowed:
            losers.setdefault(entry.skill.name, []).append(entry.skill.path)
            winners[entry.skill.name] = entry.winner.path
        collisions = [{"name": name, "winner": winners[name], "losers": paths} for name, paths in losers.items()]
        updated = SkillCatalogUpdated(
            len(catalog.skills),
            tuple(root.path for root in catalog.roots),
            profile=catalog.profile.name,
            collisions=tuple(collisions),
            snapshot=digest,
        )
        warnings = (
            SkillWarning("collision", f"{winners[name]} counts, {', '.join(paths)} not", name)
            for name, paths in losers.items()
        )
        self.note(updated, *warnings, artifacts={digest: data} if digest else None)

    # --- operations ---

    def span(
        self, name: str, arguments: Callable[[], Mapping[str, object]]
    ) -> AbstractContextManager[EventWatcher | None]:
        """The span around an operation and its questions, where telemetry is on."""
        if telemetry.active is None or self._profile is None:
            return _NO_SPAN
        return telemetry.active.operation(self._writer, self._profile, name, arguments())

    @contextmanager
    def operation(
        self,
        name: str,
        arguments: Callable[[], Mapping[str, object]],
        save: Callable[[], None],
        watch: EventWatcher | None = None,
    ) -> Generator[Returned, None, None]:
        """One operation, recorded with its arguments and what it returned. The caller holds the lock.

        The caller fills in what is returned. `save` is called at the end, to keep the session's state. `watch` is shown
        each event.
        """
        self._writer.watch = watch
        try:
            self.note(SessionCalled(name, arguments()))
            returned = Returned()
            try:
                yield returned
            except MetierError as error:
                self._return(name, str(error), type(error).__name__)
                raise
            else:
                self._return(name, returned.text, returned.code)
        finally:
            save()
            self.flush()
            self._writer.watch = None

    def _return(self, name: str, text: str, code: str) -> None:
        data = utf8(text)
        digest = digest_of(data)
        returned = SessionReturned(name, "error" if code else "ok", digest, code or None)
        self.note(returned, artifacts={digest: data})

    # --- state ---

    def save(self, state: Callable[[], State], merge: Callable[[State], None]) -> None:
        """Keep the state where the events are, if it changed: another process may go on with the session.

        It is written with the events that are held back, in one go. If another process saved in the meantime, `merge`
        takes in what that process knows, and both are saved.
        """
        if not self.keeps_record:
            return
        session_id = self._writer.session_id
        try:
            for _ in range(_TRIES):
                current = state()
                if current == self._saved:
                    return
                document = {**current, _BEGUN: self._begun, _CATALOG: self._snapshot}
                try:
                    if not self._writer.holding:
                        self.version = self.store.save_state(session_id, STATE, document, self.version)
                    elif self.flush((STATE, document, self.version)):
                        self.version += 1
                    else:
                        return  # the store is in trouble, which is tolerated; the next operation tries again
                    self._saved = current
                    return
                except StateConflict:
                    known = self.store.load_state(session_id, STATE)
                    self.version = known.version if known else 0
                    merge(known.value if known else {})
            message = "too many processes save the session at once"
            raise StoreError(message, reason="conflict", store=self.store.location)
        except StoreError as error:
            self._writer.tolerate(error)
