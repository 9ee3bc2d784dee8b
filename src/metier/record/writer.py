"""How the events of a session reach its store: chained frames, if the stream still ends at the expected number.

Events are held back and written together, in one transaction. If another process wrote first, its events are folded in,
and what was held back is decided anew by the caller, or follows if it is settled. Times and ids come from a
`RecordWorld`, so that a replay writes the same bytes.
"""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from metier.errors import StoreError, StreamConflict
from metier.files.text import storable_table
from metier.record.chain import chained
from metier.record.events import Event, SessionCalled, SessionStarted
from metier.record.state import SNAPSHOT, OpenedState, SessionState, apply, fold, read_state
from metier.record.store import Draft, EncodedFrame, Frame, Store
from metier.values.value import replace

if TYPE_CHECKING:
    from metier.record.telemetry import Telemetry

HELD_EVENTS: Final = 10_000
"""Events that are held in memory while a store is in trouble and the host goes on."""

SNAPSHOT_EVENTS: Final = 200
"""A snapshot is stored after at least this many events, so that opening a session folds few."""

_ALONE: Final = 8
"""Others wrote to a session lately if they did so before one of this many looks at the store."""

_BEGINNINGS: Final = (SessionStarted, SessionCalled)
"""The events that begin an operation, or a session. Those that follow carry their id."""

_LOG: Final = logging.getLogger("metier")

EventWatcher = Callable[[Event, Frame, Mapping[str, bytes]], None]
"""Is shown each event of an operation when it is written, with its frame and the artifacts that are kept."""


def system_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


_random: Final = deque[str]()
"""Random digits for the next ids: one system call for many. A fork draws its own."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.clear)


def random_ids() -> str:
    """Ids that sort by time and never collide."""
    try:
        digits = _random.pop()
    except IndexError:
        drawn = os.urandom(8 * 64).hex()
        _random.extend(drawn[start : start + 16] for start in range(16, len(drawn), 16))
        digits = drawn[:16]
    return f"{time.time_ns():016x}{digits}"


class Overtaken(Exception):
    """Another process wrote to the session first. What was held back is to be decided anew. Never reaches a caller."""


class NotWritten(Exception):
    """The store did not take what was held back, which therefore did not happen. Callers get its `error` instead."""

    def __init__(self, error: StoreError) -> None:
        self.error = error


class RecordWorld(Protocol):
    """What a record takes from outside; see `metier.running.world`."""

    def time(self, after_ms: int) -> int:
        """Milliseconds since 1970, at least `after_ms`: a clock may be set back, but a stream never runs backwards."""
        ...

    def id(self) -> str:
        """A new id for an event. Its time is asked for next."""
        ...

    @property
    def telemetry(self) -> "Telemetry | None":
        """What watches the operations, if something does."""
        ...

    def process(self) -> str:
        """The name of this process."""
        ...

    def has_ended(self, name: str) -> bool | None:
        """Whether a process has ended; `None` where that cannot be known."""
        ...


class _Held(NamedTuple):
    """An event that is not written yet. It becomes a draft with its hash when it is."""

    id: str
    timestamp_ms: int
    type: str
    data: Mapping[str, object]


class EventWriter:
    """Turns the events of one session into frames. Events are held back until `flush`, and then written in one go.

    `state` is the fold of all events, also of those that are held back. What a store could not take is forgotten. If it
    is settled or trouble is tolerated, it is held and written with the next events, so that the record has no hole.
    """

    def __init__(
        self,
        store: Store,
        session_id: str,
        world: RecordWorld,
        *,
        shared: bool,
        required: bool = True,
        keeps_artifacts: bool = True,
    ) -> None:
        """`required`: trouble with the store is raised. Otherwise it is logged, for up to `HELD_EVENTS` events.

        `shared`: other processes may write to the session, too.
        """
        self.store, self.session_id, self._world = store, session_id, world
        self._shared, self._required, self._keeps_artifacts = shared, required, keeps_artifacts
        self._written = SessionState()
        self.state = self._written
        self._drafts: list[_Held] = []
        self._frames: list[Frame] = []
        """The frames that the drafts become if no other process writes first."""
        self._events: list[Event] = []
        self._artifacts: dict[str, bytes] = {}
        self._settled = 0
        """How many of the held drafts stay, whatever others wrote: somebody was told of them, or something was done."""
        self._snapshot_seq = -1
        self._looks = _ALONE
        """How often the store was looked at since others had written."""
        self.op = ""
        """The id of the operation, or of the beginning, that causes events now."""
        self.noted_ms = 0
        """The time of the event that was noted last."""
        self.watch: EventWatcher | None = None
        """Sees each event when it is written."""

    # --- what others wrote ---

    def open(self, opened: OpenedState) -> None:
        """Go on after this state, which the store has."""
        self._written = self.state = opened.state
        self._snapshot_seq = opened.snapshot_seq

    @property
    def is_alone(self) -> bool:
        """Whether no other process wrote to the session lately, and nothing is held back."""
        return self._looks >= _ALONE and not self._drafts

    def catch_up(self) -> None:
        """Fold in what other processes wrote. What is held back comes after it."""
        if not self._shared:
            return
        self._looks += 1
        try:
            frames = self.store.read(self.session_id, self.session_id, after=self._written.seq)
        except StoreError as error:
            self.tolerate(error)
            return
        if frames:
            self._looks = 0
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
        self.state, self._frames = self._written, []
        for draft in self._drafts:
            self.state = self._apply(draft)

    def _apply(self, draft: _Held) -> SessionState:
        """The state after one more draft. Its hash is known when it is written."""
        frame = self._frame(draft, self.state.seq + 1)
        self._frames.append(frame)
        return apply(self.state, frame, chain="")

    # --- what is held back ---

    def note(self, *events: Event, artifacts: Mapping[str, bytes] | None = None) -> None:
        """Hold events back until `flush`; artifacts by their digests."""
        for event in events:
            self._hold(event)
        if artifacts and self._keeps_artifacts:
            self._artifacts.update(artifacts)

    def _hold(self, event: Event) -> None:
        id_, now, data = self._world.id(), self._world.time(self.state.time_ms), event.data()
        if isinstance(event, _BEGINNINGS):
            self.op = id_
        data = {"op": self.op, **data} if self.op else data
        self.noted_ms = now
        draft = _Held(id_, now, event.type, data)
        self._drafts.append(draft)
        self._events.append(event)
        self.state = self._apply(draft)

    def _frame(self, draft: _Held, seq: int) -> Frame:
        return {
            "id": draft.id,
            "session_id": self.session_id,
            "stream_kind": "session",
            "stream_id": self.session_id,
            "timestamp_ms": draft.timestamp_ms,
            "seq": seq,
            "type": draft.type,
            **draft.data,
        }

    def forget(self) -> None:
        """Drop what is held back and not settled, to decide it anew."""
        del self._drafts[self._settled :], self._events[self._settled :]
        if not self._drafts:
            self._artifacts = {}
        self._fold_held()

    def settle(self) -> None:
        """Keep what is held back, whatever others write."""
        self._settled = len(self._drafts)

    # --- writing ---

    def flush(self, *, settled: bool = True, more_follows: bool = False) -> None:
        """Write what was held back. It is safe when this returns, unless trouble is tolerated or more of it follows.

        Raises `Overtaken` if another process wrote first and not everything is settled, and `NotWritten` if the store
        failed then.
        """
        if settled:
            self.settle()
        if not self._drafts:
            return
        try:
            self._append()
        except StoreError as error:
            if self._settled < len(self._drafts) and not self._tolerates(error):
                self.forget()
                raise NotWritten(error) from error
            if error.reason == "invalid":
                self._drafts, self._frames, self._events = [], [], []
                self.state = self._written
            self.settle()
            if not more_follows or error.reason == "invalid":
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
                self._looks = 0
                if self._settled < len(self._drafts):
                    raise Overtaken from None
                self.catch_up()
                self._later_times()
        else:
            return
        last, events, artifacts = stored[-1], self._events, self._artifacts
        self._drafts, self._frames, self._events, self._artifacts, self._settled = [], [], [], {}, 0
        if last["seq"] == self.state.seq:
            self._written = self.state = replace(self.state, chain=last["chain"])
        else:  # an append whose answer was lost, and others wrote since
            self._written = self.state = read_state(self.store, id_).state
        if self.watch is not None:
            for event, frame in zip(events, stored, strict=True):
                self.watch(event, frame, artifacts)

    def _chained(self) -> list[Draft]:
        """The held drafts, each with the hash of the frame that it becomes."""
        seq, chain, drafts = self._written.seq, self._written.chain, list[Draft]()
        for held, frame in zip(self._drafts, self._frames, strict=True):
            seq, data = seq + 1, held.data
            try:
                chain, text = chained(chain, frame)
            except UnicodeEncodeError:  # hardly ever: looking for it in every event would cost a tenth of a load
                data = storable_table(data)
                chain, text = chained(chain, self._frame(held._replace(data=data), seq))
            encoded = EncodedFrame(seq, text)
            drafts.append(Draft(held.id, held.timestamp_ms, held.type, {**data, "chain": chain}, encoded))
        return drafts

    def _later_times(self) -> None:
        """Move the held drafts after what others wrote meanwhile."""
        earliest = self._written.time_ms
        self._drafts = [one._replace(timestamp_ms=max(one.timestamp_ms, earliest)) for one in self._drafts]
        self._fold_held()

    def _keep_snapshot(self) -> None:
        # A snapshot has all loaded skills, so where they are many, it is worth the work after more events.
        enough = max(SNAPSHOT_EVENTS, 4 * len(self._written.loaded))
        if not self._shared or self._written.seq - self._snapshot_seq < enough:
            return
        self._snapshot_seq = self._written.seq
        try:
            self.store.save_state(self.session_id, SNAPSHOT, self._written.snapshot())
        except StoreError as error:
            _LOG.debug("no snapshot of the session was kept: %s", error)  # the events say the same

    def tolerate(self, error: StoreError) -> None:
        """Raise a store's error, or log it where the host should go on."""
        if not self._tolerates(error):
            raise error
        _LOG.warning("events are not kept for now: %s", error)

    def _tolerates(self, error: StoreError) -> bool:
        return not self._required and error.reason not in ("invalid", "version") and len(self._drafts) <= HELD_EVENTS

    def frames(self) -> list[Frame]:
        return self.store.read(self.session_id, self.session_id)
