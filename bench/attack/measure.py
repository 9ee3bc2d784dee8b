"""Measures a sandbox from outside while it runs: its processes, their memory, and how long they live.

A process of its own looks at /proc, so that neither the attack nor the product can hold it up. The processes of a
sandbox are the descendants of the round in another process namespace. Processes in another control group than ours have
the memory that the kernel charges to it, buffers and files in memory included. Of all others, only memory that the
processes brought counts (`Pss_Anon` and `Pss_Shmem`), because pages of the system's libraries belong to everybody. Of a
process whose first thread has ended, the other threads still show the memory.

Looking at many processes takes a while. A look counts only if nothing that was counted has ended or shrunk meanwhile:
then everything was there at the same time.
"""

import contextlib
import json
import os
import select
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .rounds import descendants

_PAUSE: Final = 0.02


@dataclass(slots=True)
class Peaks:
    """The most that was seen at a time."""

    memory: int = 0
    """Bytes of all processes together."""
    largest: int = 0
    """Bytes of the largest process."""
    tasks: int = 0
    """Processes and threads, without the first process of the sandbox, which is not the script's."""
    seconds: float = 0.0
    """From the first to the last moment at which the script was seen."""
    grouped: bool = False
    """Whether the script was in a control group, so that `memory` has everything."""


@contextlib.contextmanager
def measured() -> Generator[Peaks, None, None]:
    """Measure the sandboxes below this process. The peaks are there when the context has ended."""
    stop, stopping = os.pipe()
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if not child:
        try:
            os.close(stopping)
            peaks = _look(parent, stop)
            os.write(
                writing, json.dumps([peaks.memory, peaks.largest, peaks.tasks, peaks.seconds, peaks.grouped]).encode()
            )
        finally:
            os._exit(0)
    for descriptor in (stop, writing):
        os.close(descriptor)
    peaks = Peaks()
    try:
        yield peaks
    finally:
        os.close(stopping)
        content = b""
        while chunk := os.read(reading, 4096):
            content += chunk
        os.close(reading)
        os.waitpid(child, 0)
        if content:
            peaks.memory, peaks.largest, peaks.tasks, peaks.seconds, peaks.grouped = json.loads(content)


def inside(parent: int) -> list[int]:
    """The processes of sandboxes below a process."""
    ours = _namespace(parent)
    return [pid for pid in descendants(parent) if _namespace(pid) not in ("", ours)]


def _look(parent: int, stop: int) -> Peaks:
    peaks, first = Peaks(), 0.0
    while not select.select([stop], [], [], _PAUSE)[0]:
        pids = [pid for pid in inside(parent) if not _is_first(pid)]
        if pids:
            first = first or time.monotonic()
            peaks.seconds = time.monotonic() - first
        seen = {pid: _Usage.of(pid) for pid in pids}
        groups = {usage.group for usage in seen.values() if usage.group}
        charged = sum(_charged(group) for group in groups)
        if any(not _Usage.of(pid).covers(usage) for pid, usage in seen.items()):
            continue
        loose = sum(usage.memory for usage in seen.values() if not usage.group)
        peaks.grouped = peaks.grouped or bool(groups)
        peaks.memory = max(peaks.memory, charged + loose)
        peaks.largest = max([peaks.largest, *(usage.memory for usage in seen.values())])
        peaks.tasks = max(peaks.tasks, sum(usage.tasks for usage in seen.values()))
    return peaks


@dataclass(frozen=True, slots=True)
class _Usage:
    """What one process uses."""

    memory: int
    tasks: int
    group: str
    """The folder of its control group, if that is another than ours."""

    @classmethod
    def of(cls, pid: int) -> "_Usage":
        threads = _threads(pid)
        return cls(_memory(pid, threads), len(threads), _group(pid, threads))

    def covers(self, before: "_Usage") -> bool:
        return self.memory >= before.memory and self.tasks >= before.tasks and self.group == before.group


def _group(pid: int, threads: list[str]) -> str:
    """The group of a thread that lives. One that has ended is in no group any more, even if the process goes on."""
    with contextlib.suppress(OSError):
        ours = Path("/proc/self/cgroup").read_text().splitlines()
        for line in Path(f"/proc/{pid}/task/{threads[0]}/cgroup").read_text().splitlines() if threads else ():
            _, controllers, path = line.split(":", 2)
            if line in ours or path == "/" or controllers not in ("", "memory"):
                continue
            for root in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
                if os.path.isdir(root + path):
                    return root + path
    return ""


def _charged(group: str) -> int:
    """What the kernel charges to a control group."""
    for name in ("memory.current", "memory.usage_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            return int(Path(group, name).read_text())
    return 0


def _namespace(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return ""


def _is_first(pid: int) -> bool:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return line.split()[-1] == "1"
    return True


def _threads(pid: int) -> list[str]:
    """The threads that live."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                state = Path(f"/proc/{pid}/task/{thread}/stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX":
                    found.append(thread)
    return found


def _memory(pid: int, threads: list[str]) -> int:
    for thread in threads:
        with contextlib.suppress(OSError):
            total = 0
            for line in Path(f"/proc/{pid}/task/{thread}/smaps_rollup").read_text().splitlines():
                if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                    total += int(line.split()[1]) * 1024
            return total
    return 0
