"""Ends a run at its limits, in its own thread, so that a blocking consumer cannot delay the time limit.

The invariant: a run is always ended by the given `end`, and the first reason is reported. Checks are polled, so usage
can exceed a limit between two polls. A check that is close to its limit asks to be called again sooner.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Self

from metier.limits import KIB
from metier.running.sandbox import Ended
from metier.running.sandbox.cgroup import Group

POLL_SECONDS: Final = 0.025
SHORTEST_SECONDS: Final = 0.002
_FAULTS: Final = 8 << 30
"""The memory that one processor can fill in a second, generously."""
_PIPE_BYTES: Final = 64 * KIB
_SOCKET_BYTES: Final = 212_992
"""The buffers of a pipe and of a socket, at their default size, if the kernel does not say."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PROCESSORS: Final = os.cpu_count() or 1

Check = Callable[[], Ended | float | None]
"""Returns why the run must end, or within how many seconds the check must be called again, if that is urgent."""


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
        longest = pause = min(POLL_SECONDS, self._seconds)
        while not self._over.wait(pause):
            found = self._poll()
            if isinstance(found, str):
                self.finish(found)
                return
            pause = min(longest, found)

    def _poll(self) -> Ended | float:
        if self._stop is not None and self._stop.is_set():
            return "killed"
        if time.monotonic() >= self._deadline:
            return "timeout"
        soonest = POLL_SECONDS
        for check in self._checks:
            found = check()
            if isinstance(found, str):
                return found
            soonest = min(soonest, found if found is not None else soonest)
        return soonest


def entries_below(folders: Sequence[int], limit: int) -> Check:
    """End a run that creates more files and folders than the limit. Their size has its own limit."""

    def check() -> Ended | None:
        used = 0
        for folder in folders:
            status = os.fstatvfs(folder)
            used += status.f_files - status.f_ffree
        return "files-limit" if used > limit else None

    return check


def group_below(group: Group) -> Check:
    """End a run whose control group ran out of memory. The kernel ends only one of its processes."""
    return lambda: "memory-limit" if group.ran_out() else None


def memory_below(proc: int, folders: Sequence[int], limit: int) -> Check:
    """End a run that uses more memory: its processes, their buffers, and the folders, which are in memory.

    `proc` is the open /proc of its process namespace. The cheap figures are upper bounds: the resident size counts
    shared pages once per process, and every descriptor counts as a full socket. If they exceed the limit, the exact
    figures are read.
    """
    socket = _socket_bytes()

    def check() -> Ended | float | None:
        pids = _pids(proc)
        used = sum(_used(folder) for folder in folders)
        bound = used + sum(_resident(proc, pid) + _descriptors(proc, pid) * socket for pid in pids)
        if bound > limit:
            alone = _without_borrowers(proc, pids)
            bound = used + sum(_proportional(proc, pid) for pid in alone) + _buffers(proc, pids, socket)
        if bound > limit:
            return "memory-limit"
        return max(SHORTEST_SECONDS, (limit - bound) / (_FAULTS * min(len(pids) or 1, _PROCESSORS)))

    return check


def _without_borrowers(proc: int, pids: Sequence[str]) -> list[str]:
    """The processes, without those that use the memory of their parent until they execute a program.

    Such a parent waits for its child, and both report the same memory. At most one child of it is left out, so this
    hides nothing: a parent that waits for one child and has others is still counted as often as there are copies.
    """
    facts = {pid: read_at(proc, f"{pid}/stat").rpartition(")")[2].split()[:2] for pid in pids}
    memory = {pid: read_at(proc, f"{pid}/statm") for pid in pids}
    waiting = {pid for pid in pids if facts[pid][:1] == ["D"]}
    left: list[str] = []
    for pid in pids:
        parent = facts[pid][1] if len(facts[pid]) > 1 else ""
        if parent in waiting and memory[pid] == memory.get(parent):
            waiting.discard(parent)
        else:
            left.append(pid)
    return left


def _socket_bytes() -> int:
    with suppress(OSError, ValueError), open("/proc/sys/net/core/wmem_default", encoding="utf-8") as file:
        return int(file.read())
    return _SOCKET_BYTES


def _used(folder: int) -> int:
    status = os.fstatvfs(folder)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def _descriptors(proc: int, pid: str) -> int:
    """How many descriptors a process has open. Newer kernels give the number as the size of the folder."""
    with suppress(OSError):
        found = os.stat(f"{pid}/fd", dir_fd=proc).st_size
        return found or len(_names(proc, f"{pid}/fd"))
    return 0


def _buffers(proc: int, pids: Sequence[str], socket: int) -> int:
    """What the sockets and pipes of all processes hold at most. Each counts once, also if processes share it."""
    found: set[str] = set()
    for pid in pids:
        for name in _names(proc, f"{pid}/fd"):
            with suppress(OSError):
                target = os.readlink(f"{pid}/fd/{name}", dir_fd=proc)
                if target.startswith(("socket:", "pipe:")):
                    found.add(target)
    return sum(socket if target.startswith("socket:") else _PIPE_BYTES for target in found)


def _names(proc: int, path: str) -> list[str]:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
        try:
            return os.listdir(descriptor)
        finally:
            os.close(descriptor)
    return []


def _pids(proc: int) -> list[str]:
    try:
        return [name for name in os.listdir(proc) if name.isdigit()]
    except OSError:
        return []  # the namespace has ended


def read_at(proc: int, path: str) -> str:
    """A file of an open /proc; empty if its process has ended."""
    with suppress(OSError), open(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc), "rb", buffering=0) as file:
        return (file.read(64 * KIB) or b"").decode("ascii", "replace")
    return ""


def _resident(proc: int, pid: str) -> int:
    fields = read_at(proc, f"{pid}/statm").split()
    resident = int(fields[1]) if len(fields) > 1 else 0
    if resident == 0:
        # If the main thread has ended, the process seems to be empty. The other threads show what it holds.
        for thread in _names(proc, f"{pid}/task"):
            fields = read_at(proc, f"{pid}/task/{thread}/statm").split()
            resident = max(resident, int(fields[1]) if len(fields) > 1 else 0)
    return resident * _PAGE


def _proportional(proc: int, pid: str) -> int:
    for line in read_at(proc, f"{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return _resident(proc, pid)
