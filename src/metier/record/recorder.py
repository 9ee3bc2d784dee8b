"""What happened, one frozen type per kind of event, and the recorder that puts them into frames.

An event carries the facts of its kind; the `Recorder` gives it an id and a time and hands it to a store, which numbers
it. Clock and ids come from outside, so that a replay makes the same bytes. Only a session records; every surface sees
the same frames. Frames have a version: a new field is no new version, a changed meaning is.
"""

import itertools
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from metier.files.text import storable_table
from metier.record.events import Event
from metier.record.store import Draft, Frame, StateConflict, StoreError

HELD_EVENTS: Final = 10_000
"""Events that are held in memory while a store is in trouble and the host goes on."""

_LOG: Final = logging.getLogger("metier")


class Sink(Protocol):
    """Where frames go: the part of a store that a session needs.

    `append` numbers the frames of a stream 0, 1, 2... without a gap, and returns when they are safe.
    """

    def append(
        self,
        session_id: str,
        stream_kind: str,
        stream_id: str,
        drafts: Sequence[Draft],
        artifacts: Iterable[bytes] = (),
    ) -> list[Frame]: ...

    def read(self, session_id: str | None = None) -> list[Frame]: ...

    def get_artifact(self, digest: str) -> bytes: ...


def system_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def random_ids() -> str:
    """Ids that sort by time and never meet."""
    return f"{time.time_ns():016x}{os.urandom(8).hex()}"


class Counter:
    """Ids 'prefix-0', 'prefix-1', ... and a clock that ticks once per look: the surroundings of a deterministic run."""

    def __init__(self, prefix: str = "event", start_ms: int = 0) -> None:
        self._prefix = prefix
        self._ids = itertools.count()
        self._ticks = itertools.count(start_ms)

    def ids(self) -> str:
        return f"{self._prefix}-{next(self._ids)}"

    def clock(self) -> int:
        return next(self._ticks)


class Recorder:
    """Puts events into frames for one session. What belongs together is held back and written in one go.

    What a store could not take is held and written with the next events, so that trouble leaves no hole in a trail.
    """

    def __init__(
        self,
        sink: Sink,
        session_id: str,
        clock: Callable[[], int] = system_clock,
        ids: Callable[[], str] = random_ids,
        *,
        required: bool = True,
        keeps_artifacts: bool = True,
    ) -> None:
        """`required`: trouble with the store is raised; else it is logged, and goes on for `HELD_EVENTS` events."""
        self.sink, self.session_id, self._clock, self._ids = sink, session_id, clock, ids
        self._required, self._keeps_artifacts = required, keeps_artifacts
        self._drafts: list[Draft] = []
        self._artifacts: dict[str, bytes] = {}
        self.live = clock is system_clock
        """Whether it happens now; a replay has the times of then."""
        self.watch: Callable[[Event, Mapping[str, bytes]], None] | None = None
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

    def flush(self, state: tuple[str, Any, int] | None = None) -> list[Frame]:
        """Write what was held back; safe when this returns, unless trouble is tolerated.

        `state` goes with it, as in `Store.append`: where that is in conflict, nothing is written, and all is held.
        """
        if not self._drafts:
            return []
        drafts, artifacts = self._drafts, self._artifacts
        self._drafts, self._artifacts = [], {}
        try:
            return self._append(drafts, artifacts, {} if state is None else {"state": state})
        except StoreError as error:
            if error.reason != "invalid" or state is not None:  # an id is written once: trying again is safe
                self._drafts, self._artifacts = drafts, artifacts
            if isinstance(error, StateConflict):
                raise
            if error.reason == "invalid" and state is not None:
                self.flush()  # it may be the document that is wrong: what happened is kept all the same
            self.tolerate(error)
            return []

    def _append(self, drafts: list[Draft], artifacts: Mapping[str, bytes], more: Mapping[str, Any]) -> list[Frame]:
        where = (self.session_id, "session", self.session_id)
        try:
            return self.sink.append(*where, drafts, artifacts.values(), **more)
        except StoreError as error:
            if error.reason != "invalid":
                raise
        # Hardly ever: text that is no UTF-8. Looking for it in every event beforehand would cost a tenth of a load.
        drafts = [replace(draft, data=storable_table(draft.data)) for draft in drafts]
        return self.sink.append(*where, drafts, artifacts.values(), **more)

    def tolerate(self, error: StoreError) -> None:
        """Raise the trouble of a store, or log it where the host should go on."""
        if self._required or error.reason == "invalid" or len(self._drafts) > HELD_EVENTS:
            raise error
        _LOG.warning("events are not kept for now: %s", error)

    def frames(self) -> list[Frame]:
        return [frame for frame in self.sink.read(self.session_id) if frame["stream_kind"] == "session"]
