"""Names a process of this machine, so that another one can tell whether it is still there.

A name is `<place>-<pid>-<start>`. The place is a hash of the machine's current boot and its process namespace: only a
process in the same place can look for another, and the name says nothing about the machine.
"""

import functools
import hashlib
import os


def current() -> str:
    """The name of this process."""
    return _name(os.getpid())


@functools.lru_cache(1)
def _name(pid: int) -> str:
    return f"{_place()}-{pid}-{_start(pid)}"


def has_ended(name: str) -> bool | None:
    """Whether the process of this name has ended; `None` where that cannot be known from here."""
    place, _, rest = name.partition("-")
    pid, _, start = rest.partition("-")
    if place != _place() or not pid.isdigit():
        return None
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass  # it is there, and belongs to somebody else
    return _start(int(pid)) != start


@functools.cache
def _place() -> str:
    parts = [os.uname().nodename]
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
            parts.append(stream.read().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:
        pass  # not Linux: the name of the host must do
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _start(pid: int) -> str:
    """When a process started, in ticks since boot; empty where the system does not say."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == b"Z" else fields[19].decode("ascii")
