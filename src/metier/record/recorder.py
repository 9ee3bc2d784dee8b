"""How a session writes its record: the beginning, the catalogs it saw, and every operation with its result.

An `EventWriter` turns events into chained frames and writes what belongs together in one transaction, on condition that
the stream still ends where the writer believes. A `Recorder` puts the frames of an operation between `session_called`
and `session_returned`. If another process wrote first, its events are folded in and the operation is decided anew; once
something outside was done, such as starting a script, its remaining frames only follow. The clock and the ids come from
outside, so that a replay writes the same bytes.
"""

import copy
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

from metier.catalog import snapshot
from metier.catalog.build import Catalog
from metier.errors import MetierError, StoreError, StreamConflict
from metier.files.digests import digest_of
from metier.files.text import storable_table, utf8
from metier.model import JsonObject
from metier.record import process, telemetry
from metier.record.chain import link
from metier.record.events import (
    VERSION,
    Event,
    PolicyChanged,
    SessionCalled,
    SessionReturned,
    SessionStarted,
    SkillCatalogUpdated,
    SkillWarning,
    ToolFailed,
)
from metier.record.state import SNAPSHOT, OpenedState, Running, SessionState, apply, fold, options_of, read_state
from metier.record.store import Draft, Frame, Store
from metier.record.store.memory import MemoryStore

if TYPE_CHECKING:
    from metier.hosts.schema import Profile

HELD_EVENTS: Final = 10_000
"""Events that are held in memory while a store is in trouble and the host goes on."""

SNAPSHOT_EVENTS: Final = 200
"""A snapshot is stored after this many events, so that opening a session folds few."""

_TRIES: Final = 100
"""How often an operation is decided anew because other processes were first."""
_NO_SPAN: Final = nullcontext(None)
_LOG: Final = logging.getLogger("metier")

R = TypeVar("R")

EventWatcher = Callable[[Event, Mapping[str, bytes]], None]
"""Is shown each event of an operation when it is written, with the artifacts that are kept."""


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


class Overtaken(Exception):
    """Another process wrote to the session first. What was held back is to be decided anew. Never reaches a caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a recorder takes from outside, and a replay from the record."""

    clock: Callable[[], int] = system_clock
    ids: Callable[[], str] = random_ids
    process: Callable[[], str] = process.current
    sandbox: bool | None = None
    """Whether a sandbox works on this machine; `None` to look."""
    version: int = VERSION
    """The version of the frames to write."""


class EventWriter:
    """Turns the events of one session into frames. Events are held back until `flush`, and then written in one go.

    `state` is the fold of all events, also of those that are held back. What a store could not take is held and written
    with the next events, so that trouble leaves no hole in a record.
    """

    def __init__(
        self,
        store: Store,
        session_id: str,
        inputs: Inputs,
        *,
        shared: bool,
        required: bool = True,
        keeps_artifacts: bool = True,
    ) -> None:
        """`required`: trouble with the store is raised. Otherwise it is logged, for up to `HELD_EVENTS` events.

        `shared`: other processes may write to the session, too.
        """
        self.store, self.session_id, self._inputs = store, session_id, inputs
        self._shared, self._required, self._keeps_artifacts = shared, required, keeps_artifacts
        self._written = SessionState()
        self.state = self._written
        self._drafts: list[Draft] = []
        self._events: list[Event] = []
        self._artifacts: dict[str, bytes] = {}
        self._settled = 0
        """How many of the held drafts stay, whatever others wrote: somebody was told of them, or something was done."""
        self._snapshot_seq = -1
        self.op = ""
        """The id of the operation, or of the beginning, that causes events now."""
        self.live = inputs.clock is system_clock
        """Whether it happens now; a replay has the times of the record."""
        self.watch: EventWatcher | None = None
        """Sees each event when it is written, with the artifacts that are kept."""

    # --- what others wrote ---

    def open(self, opened: OpenedState) -> None:
        """Go on after this state, which the store has."""
        self._written = self.state = opened.state
        self._snapshot_seq = opened.snapshot_seq

    def catch_up(self) -> None:
        """Fold in what other processes wrote. What is held back comes after it."""
        if not self._shared:
            return
        try:
            frames = self.store.read(self.session_id, self.session_id, after=self._written.seq)
        except StoreError as error:
            self.tolerate(error)
            return
        if frames:
            self._written = fold(frames, self._written)
            self._let_go({frame["id"] for frame in frames})
            self._fold_held()

    def _let_go(self, stored: set[str]) -> None:
        """Drop held drafts that the store has: the answer to an append was lost."""
        kept = [index for index, draft in enumerate(self._drafts) if draft.id not in stored]
        if len(kept) < len(self._drafts):
            self._settled = sum(index < self._settled for index in kept)
            self._drafts = [self._drafts[index] for index in kept]
            self._events = [self._events[index] for index in kept]

    def _fold_held(self) -> None:
        self.state = self._written
        for draft in self._drafts:
            self.state = apply(self.state, self._frame(draft, self.state))

    # --- what is held back ---

    def note(self, *events: Event, artifacts: Mapping[str, bytes] | None = None) -> None:
        """Hold events back until `flush`; artifacts by their digests."""
        for event in events:
            if event.since <= self._inputs.version:
                self._hold(event)
        if artifacts and self._keeps_artifacts:
            self._artifacts.update(artifacts)

    def _hold(self, event: Event) -> None:
        inputs = self._inputs
        id_, now, data = inputs.ids(), inputs.clock(), event.data(inputs.version)
        if inputs.version > 1:
            if isinstance(event, SessionStarted | SessionCalled):
                self.op = id_
            data = {"op": self.op, **data} if self.op else data
            if self.live:  # a clock may be set back, but a stream never runs backwards
                now = max(now, self.state.time_ms)
        draft = Draft(id_, now, event.type, data)
        self._drafts.append(draft)
        self._events.append(event)
        self.state = apply(self.state, self._frame(draft, self.state))

    def _frame(self, draft: Draft, state: SessionState) -> Frame:
        return {
            "id": draft.id,
            "session_id": self.session_id,
            "stream_kind": "session",
            "stream_id": self.session_id,
            "timestamp_ms": draft.timestamp_ms,
            "seq": state.seq + 1,
            "type": draft.type,
            **draft.data,
            "chain": "",
        }

    def forget(self) -> None:
        """Drop what is held back and not settled, to decide it anew."""
        del self._drafts[self._settled :], self._events[self._settled :]
        self._fold_held()

    def settle(self) -> None:
        """Keep what is held back, whatever others write."""
        self._settled = len(self._drafts)

    # --- writing ---

    def flush(self, *, settled: bool = True) -> None:
        """Write what was held back. It is safe when this returns, unless trouble is tolerated.

        Raises `Overtaken` if another process wrote first and not everything is settled.
        """
        if settled:
            self.settle()
        if not self._drafts:
            return
        try:
            self._append()
        except StoreError as error:
            if error.reason == "invalid":
                self._drafts, self._events = [], []
                self.state = self._written
            self.settle()
            self.tolerate(error)
        else:
            self._keep_snapshot()

    def _append(self) -> None:
        id_ = self.session_id
        while self._drafts:
            drafts = self._chained()
            try:
                stored = self.store.append(
                    id_, "session", id_, drafts, self._artifacts.values(), expected_seq=self._written.seq
                )
                break
            except StreamConflict:
                if self._settled < len(self._drafts):
                    raise Overtaken from None
                self.catch_up()
                self._later_times()
        else:
            return
        last, events, artifacts = stored[-1], self._events, self._artifacts
        self._drafts, self._events, self._artifacts, self._settled = [], [], {}, 0
        if last["seq"] == self.state.seq:
            self._written = self.state = replace(self.state, chain=last.get("chain", ""))
        else:  # an append whose answer was lost, and others wrote since
            self._written = self.state = read_state(self.store, id_).state
        if self.watch is not None:
            for event in events:
                self.watch(event, artifacts)

    def _chained(self) -> list[Draft]:
        """The held drafts, each with the hash of the frame that it becomes."""
        if self._inputs.version < 2:
            return self._drafts
        state, drafts = self._written, list[Draft]()
        for held in self._drafts:
            draft = held
            try:
                chain = link(state.chain, self._frame(draft, state))
            except UnicodeEncodeError:  # hardly ever: looking for it in every event would cost a tenth of a load
                draft = replace(draft, data=storable_table(draft.data))
                chain = link(state.chain, self._frame(draft, state))
            drafts.append(replace(draft, data={**draft.data, "chain": chain}))
            state = replace(state, seq=state.seq + 1, chain=chain)
        return drafts

    def _later_times(self) -> None:
        """Move the held drafts after what others wrote meanwhile."""
        earliest = self._written.time_ms
        self._drafts = [replace(one, timestamp_ms=max(one.timestamp_ms, earliest)) for one in self._drafts]

    def _keep_snapshot(self) -> None:
        if not self._shared or self._written.seq - self._snapshot_seq < SNAPSHOT_EVENTS:
            return
        self._snapshot_seq = self._written.seq
        try:
            self.store.save_state(self.session_id, SNAPSHOT, self._written.snapshot())
        except StoreError as error:
            _LOG.debug("no snapshot of the session was kept: %s", error)  # the events say the same

    def tolerate(self, error: StoreError) -> None:
        """Raise a store's error, or log it where the host should go on."""
        if self._required or error.reason == "invalid" or len(self._drafts) > HELD_EVENTS:
            raise error
        _LOG.warning("events are not kept for now: %s", error)

    def frames(self) -> list[Frame]:
        return self.store.read(self.session_id, self.session_id)


@dataclass(slots=True)
class Returned:
    """What an operation returns: its text, and the code of a failure that is an answer."""

    text: str = ""
    code: str = ""


class NamedCatalog(NamedTuple):
    """A catalog by the digest that the record has, and itself if it is at hand."""

    digest: str
    catalog: Catalog | None


class Recorder:
    """See the module. `lock` is held while an operation runs."""

    def __init__(
        self,
        store: Store | None,
        session_id: str,
        inputs: Inputs,
        profile: "Profile",
        *,
        required: bool = True,
        keeps_artifacts: bool = True,
        opened: OpenedState | None = None,
    ) -> None:
        """Without a `store` the events live as long as the session, and nothing is kept to run it again.

        `opened` is the state of the session in the store, if that is known already.
        """
        self._writer = EventWriter(
            store or MemoryStore(),
            session_id,
            inputs,
            shared=store is not None,
            required=required,
            keeps_artifacts=keeps_artifacts,
        )
        self.store = self._writer.store
        self.inputs = inputs
        self.lock = threading.RLock()
        self.keeps_record = store is not None
        self._profile = profile
        self._life = ""
        self._begun = False
        self._committed = False
        self._catalog: tuple[Catalog, str] | None = None
        self._silent = False
        self.flush, self.frames = self._writer.flush, self._writer.frames
        if store is not None:
            try:
                self._writer.open(opened or read_state(store, session_id))
            except StoreError as error:
                self._writer.tolerate(error)

    @property
    def state(self) -> SessionState:
        """What the session knows now."""
        return self._writer.state

    def note(self, *events: Event, artifacts: Mapping[str, bytes] | None = None) -> None:
        """Hold events of an operation back until they are written together; artifacts by their digests."""
        if not self._silent:
            self._writer.note(*events, artifacts=artifacts)

    def silent(self) -> "Recorder":
        """The same for what only shows something: it knows the state, and records nothing."""
        view = copy.copy(self)
        view._silent = True  # noqa: SLF001 - it is the same class
        return view

    def refresh(self) -> None:
        """Learn what other processes did in the session, unless an operation is at it: that one learns it anyway."""
        if self.lock.acquire(blocking=False):
            try:
                self._writer.catch_up()
            finally:
                self.lock.release()

    def _decide(self, work: Callable[[], R]) -> R:
        """Do something whose events must follow on the state it was decided on; again where others were first."""
        for _ in range(_TRIES):
            self._writer.catch_up()
            try:
                return work()
            except Overtaken:
                self._writer.forget()
            finally:
                self._committed, self._writer.op = False, ""
        message = "too many processes write to the session at once"
        raise StoreError(message, reason="conflict", store=self.store.location)

    # --- beginning ---

    def begin(
        self,
        started: SessionStarted,
        notes: Sequence[Event],
        notice: Callable[[], None],
        preload: Callable[[], R] | None = None,
    ) -> R | None:
        """Record how a session begins, unless it goes on in a record that says just that already.

        `notice` is called to record the catalog, and `preload` to record what the session begins with.
        """

        def work() -> R | None:
            life = self._same_life(started) if preload is None else None
            loaded: R | None = None
            if life is not None:
                self._life = life
            else:
                self.note(started)
                self._life = self._writer.op
                notice()
                self._begun = True
                self.note(*notes)
                loaded = preload() if preload is not None else None
            self.flush(settled=False)
            return loaded

        with self.lock:
            return self._decide(work)

    def _same_life(self, started: SessionStarted) -> str | None:
        """The beginning in the record with the same options and policy, if there is one to go on with."""
        if not self.keeps_record or self.inputs.version < 2 or started.state:
            return None
        options = options_of(started.data())
        lives = (life for life in reversed(self.state.lives) if life.options == options)
        return next((life.id for life in lives if life.policy == started.policy), None)

    def recover(self, longest_ms: int) -> None:
        """Write the end of operations whose process ended first. No script runs longer than `longest_ms`."""

        def work() -> None:
            now = self.inputs.clock()
            for op, running in self.state.running.items():
                ended = process.has_ended(running.process) if running.process else None
                if ended or (ended is None and now - running.since_ms > longest_ms):
                    self._lose(op, running)
            self.flush(settled=False)

        if self.keeps_record and self._writer.live and self.state.running:
            with self.lock:
                self._decide(work)

    def _lose(self, op: str, running: Running) -> None:
        """Record that an operation ended without an answer."""
        self._writer.op = op
        if running.process:
            detail = "the process that ran it ended first"
            self.note(ToolFailed("skill_run", running.name, running.script, "lost", detail))
        self._return(running.operation, "lost", "", "Lost")

    # --- what is in force ---

    def notice(self, catalog: Catalog, dump: Callable[[], bytes]) -> None:
        """Record the catalog when it is not the one that the record named last, with every choice between equal names.

        `dump` gives the whole catalog as data.
        """
        if self._silent:
            return
        known, digest = self._catalog or (None, "")
        if known is not catalog:
            digest = digest_of(dump()) if self.keeps_record else ""
            self._catalog = (catalog, digest)
        elif not self.keeps_record:
            return
        if digest and digest == self.state.catalog and (self.inputs.version > 1 or self._begun):
            return
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
        self.note(updated, *warnings, artifacts={digest: dump()} if digest else None)

    def has_noticed(self, catalog: Catalog) -> bool:
        """Whether this catalog was recorded last, or found to be the recorded one."""
        return self._catalog is not None and self._catalog[0] is catalog

    @property
    def named_catalog(self) -> NamedCatalog:
        """The catalog that the record named last."""
        digest = self.state.catalog
        return NamedCatalog(digest, self._catalog[0] if self._catalog and self._catalog[1] == digest else None)

    def restored(self, named: NamedCatalog) -> Catalog | None:
        """A catalog that the record named, as it was then."""
        if named.catalog is not None or not named.digest:
            return named.catalog
        try:
            return snapshot.restore(self.store.get_artifact(named.digest).decode())
        except (StoreError, ValueError):
            return None

    def notice_policy(self, policy: JsonObject) -> None:
        """Record the policy when it is not the one that the record has for this process."""
        life = self.state.life(self._life)
        if life is None or life.policy != policy:
            self.note(PolicyChanged(policy))

    # --- operations ---

    def span(
        self, name: str, arguments: Callable[[], Mapping[str, object]]
    ) -> AbstractContextManager[EventWatcher | None]:
        """The span around an operation and its questions, where telemetry is on."""
        if telemetry.active is None:
            return _NO_SPAN
        return telemetry.active.operation(self._writer, self._profile, name, arguments())

    def operation(
        self,
        name: str,
        arguments: Callable[[], Mapping[str, object]],
        work: Callable[[Returned], R],
        watch: EventWatcher | None = None,
    ) -> R:
        """Do one operation, recorded with its arguments and what it returned. The caller holds the lock.

        `work` fills in what is returned. It may be called again; see the module. `watch` is shown each event.
        """

        def attempt() -> R:
            self.note(SessionCalled(name, arguments(), self._life))
            op = self._writer.op
            returned = Returned()
            try:
                result = work(returned)
            except MetierError as error:
                self._return(name, "error", str(error), type(error).__name__)
                self.flush(settled=self._committed)
                raise
            except Overtaken:
                raise
            except BaseException:
                self._break_off(op)
                raise
            self._return(name, "error" if returned.code else "ok", returned.text, returned.code)
            self.flush(settled=self._committed)
            return result

        self._writer.watch = watch
        try:
            return self._decide(attempt)
        finally:
            self._writer.watch = None

    def commit(self) -> None:
        """Write what the operation has decided. From here on it is not decided anew, and its frames only follow."""
        if not self._silent:
            self.flush(settled=self._committed)
            self._committed = True

    def _break_off(self, op: str) -> None:
        """An operation ended by something that is no answer, such as an interrupt."""
        if not self._committed:
            self._writer.forget()
        elif running := self.state.running.get(op):
            self._lose(op, running)
            self.flush()

    def _return(self, name: str, status: Literal["ok", "error", "lost"], text: str, code: str) -> None:
        data = utf8(text)
        digest = digest_of(data)
        self.note(SessionReturned(name, status, digest, code or None), artifacts={digest: data})
