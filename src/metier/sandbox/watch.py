"""Ends a run at its limits, in its own thread, so that a blocking consumer cannot delay the time limit.

The invariant: a run is always ended by the given `end`, and the first reason is reported. Checks are polled, so usage
can exceed a limit between two polls.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Self

from metier.sandbox import Ended

POLL_SECONDS: Final = 0.025
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")

Check = Callable[[], Ended | None]


class Watch:
    """A context in which a run is watched. `ended` is the reason if the run was ended."""

    def __init__(
        self, seconds: float, end: Callable[[], None], checks: Sequence[Check], stop: threading.Event | None = None
    ) -> None:
        self.ended: Ended | None = None
        self._seconds, self._end, self._checks, self._stop = seconds, end, checks, stop
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="metier-run-watch", daemon=True)

    def __enter__(self) -> Self:
        self._deadline = time.monotonic() + self._seconds
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def finish(self, why: Ended) -> None:
        """End the run. Only the first reason is kept."""
        with self._lock:
            if self.ended is None:
                self.ended = why
        self._end()

    def _watch(self) -> None:
        pause = min(POLL_SECONDS, self._seconds)
        while not self._over.wait(pause):
            why = self._poll()
            if why is not None:
                self.finish(why)
                return

    def _poll(self) -> Ended | None:
        if self._stop is not None and self._stop.is_set():
            return "killed"
        if time.monotonic() >= self._deadline:
            return "timeout"
        for check in self._checks:
            if (why := check()) is not None:
                return why
        return None


def entries_below(folders: Sequence[int], limit: int) -> Check:
    """End a run that creates more files and folders than the limit. Their size has its own limit."""

    def check() -> Ended | None:
        used = 0
        for folder in folders:
            status = os.fstatvfs(folder)
            used += status.f_files - status.f_ffree
        return "files-limit" if used > limit else None

    return check


def memory_below(proc: int, limit: int) -> Check:
    """End a run whose processes together use more memory. `proc` is the open /proc of its process namespace.

    The resident size is cheap to read but counts shared pages once per process. If it exceeds the limit, the exact
    figure is read.
    """

    def check() -> Ended | None:
        pids = _pids(proc)
        resident = sum(_resident(proc, pid) for pid in pids)
        if resident <= limit:
            return None
        return "memory-limit" if sum(_proportional(proc, pid) for pid in pids) > limit else None

    return check


def _pids(proc: int) -> list[str]:
    try:
        return [name for name in os.listdir(proc) if name.isdigit()]
    except OSError:
        return []  # the namespace has ended


def _read(proc: int, path: str) -> str:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
        try:
            return os.read(descriptor, 4096).decode("ascii", "replace")
        finally:
            os.close(descriptor)
    return ""


def _resident(proc: int, pid: str) -> int:
    fields = _read(proc, f"{pid}/statm").split()
    return int(fields[1]) * _PAGE if len(fields) > 1 else 0


def _proportional(proc: int, pid: str) -> int:
    for line in _read(proc, f"{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return _resident(proc, pid)
