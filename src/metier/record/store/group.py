"""Group commit: the writes of concurrent sessions share transactions, and with them the flushes of the disk.

A thread that writes while nobody else does leads: it commits its own write at once. Writes that come meanwhile wait,
and the next leader commits all of them together. One writer alone therefore never waits for others, and under load the
transactions grow instead of the queue.

Invariant: a write is acknowledged only after its own transaction is durable. A write that is refused changes nothing
for the others. Where a transaction fails as a whole, each of its writes is tried again alone, which is safe because
every write can run twice.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from metier.errors import StoreError

W = TypeVar("W")
R = TypeVar("R")

LARGEST: Final = 256
"""The most writes of one transaction, so that the first does not wait long for the last."""


class _Pending(Generic[W, R]):
    """A write, and what became of it. Its thread waits for `turn`."""

    __slots__ = ("outcome", "settled", "turn", "write")

    def __init__(self, write: W) -> None:
        self.write = write
        self.turn = threading.Lock()
        self.turn.acquire()
        self.settled = False
        """Whether the write was in a transaction. If not, its thread leads when it is woken."""
        self.outcome: R | StoreError | None = None
        """The result, the error, or `None` if the write is to be tried alone."""


class GroupCommit(Generic[W, R]):
    """See the module. `commit` writes in one transaction, and returns the outcome of each write in order.

    An outcome is a result, a `StoreError` that concerns this write only, or `None` to have it tried `alone`, by its own
    thread, while others lead. `commit` raises if the transaction failed. Up to `leaders` threads call it at a time.
    Whoever waits longer than `patience` seconds for a turn gets the error that `busy` makes.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[W]], Sequence[R | StoreError | None]],
        alone: Callable[[W], R],
        busy: Callable[[], StoreError],
        *,
        leaders: int,
        patience: float,
    ) -> None:
        self._commit, self._alone, self._busy = commit, alone, busy
        self._free, self._patience = leaders, patience
        self._lock = threading.Lock()
        self._queue: deque[_Pending[W, R]] = deque()
        """Writes whose threads wait. It is empty while a thread could still lead."""

    def write(self, write: W) -> R:
        """Write in a transaction that may be shared. It is durable when this returns."""
        own = _Pending[W, R](write)
        with self._lock:
            leads = self._free > 0
            if leads:
                self._free -= 1
            else:
                self._queue.append(own)
        if not leads:
            self._wait(own)
        if not own.settled:
            self._lead(own)
        if own.outcome is None:
            return self._alone(write)
        if isinstance(own.outcome, StoreError):
            raise own.outcome
        return own.outcome

    def _wait(self, own: _Pending[W, R]) -> None:
        """Wait until the write is settled or its thread is to lead."""
        if own.turn.acquire(timeout=self._patience):
            return
        with self._lock:
            waiting = own in self._queue
            if waiting:
                self._queue.remove(own)
        if waiting:
            raise self._busy()
        own.turn.acquire()  # a transaction has it, and ends in its own time

    def _lead(self, own: _Pending[W, R]) -> None:
        """Commit the own write and what waits, and let the next thread lead."""
        with self._lock:
            taken = [own, *(self._queue.popleft() for _ in range(min(len(self._queue), LARGEST - 1)))]
        try:
            self._settle(taken)
        finally:
            with self._lock:
                follower = self._queue.popleft() if self._queue else None
                self._free += follower is None
            if follower is not None:
                follower.turn.release()
            for pending in taken:
                pending.settled = True
                if pending is not own:
                    pending.turn.release()

    def _settle(self, taken: Sequence[_Pending[W, R]]) -> None:
        try:
            outcomes = self._commit([pending.write for pending in taken])
        except StoreError as error:
            if len(taken) == 1:
                raise
            # Whoever holds the lock of the store still does: nobody needs to wait for it once more.
            is_busy = error.reason == "busy"
            outcomes = [self._busy() if is_busy else None for _ in taken]
        for pending, outcome in zip(taken, outcomes, strict=True):
            pending.outcome = outcome
