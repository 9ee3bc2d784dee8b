"""Control groups: limits that the kernel keeps for all processes of a run together.

A group counts what no limit of a single process counts: the memory of all processes, socket and pipe buffers, files in
memory. A group can be created where this process may write to its own place in the hierarchy: as root, or where an
administrator or systemd delegated it (`Delegate=yes`, `systemd-run --user --scope -p Delegate=yes`). Both versions of
the kernel's interface are used, whichever has the controllers. The invariant: a group is only returned after its limits
were read back, and it is removed with its run.
"""

import functools
import itertools
import os
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from metier.values.value import Value

ROOT: Final = "/sys/fs/cgroup"
CONTROLLERS: Final = ("memory", "pids")
_PREFIX: Final = "metier-"
_REMOVED_SECONDS: Final = 5.0
_NUMBERS: Final = itertools.count(1)


class Group(Value):
    """The control group of one run: a folder, or one folder for each controller in version 1."""

    memory: str
    pids: str
    version: int

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.memory,) if self.memory == self.pids else (self.memory, self.pids)

    def add(self, pid: int) -> None:
        """Move a process into the group. What it starts from now on is in the group, too."""
        for folder in self.folders:
            _write(folder, "cgroup.procs", str(pid))

    def ran_out(self) -> bool:
        """Whether the kernel has ended a process of the group because of the memory limit."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        with suppress(OSError, ValueError):
            for line in _read(self.memory, name).splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    return int(value) > 0
        return False

    def gaps(self, pid: int, memory: int, processes: int) -> list[str]:
        """Why the group does not limit a process as promised. Reads everything back."""
        limit = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        found: list[str] = []
        try:
            if int(_read(self.memory, limit)) > memory:
                found.append("the group's memory limit is not in force")
            if int(_read(self.pids, "pids.max")) > processes:
                found.append("the group's process limit is not in force")
            if any(str(pid) not in _read(folder, "cgroup.procs").split() for folder in self.folders):
                found.append("the script is not in its control group")
        except (OSError, ValueError) as error:
            found.append(f"the control group cannot be read: {error}")
        return found

    def remove(self) -> None:
        """Remove the group. Its processes have ended, but the kernel may take a moment to notice."""
        deadline = time.monotonic() + _REMOVED_SECONDS
        for folder in self.folders:
            while os.path.isdir(folder):
                with suppress(OSError):
                    os.rmdir(folder)
                    break
                if time.monotonic() > deadline:
                    break
                time.sleep(0.001)


@contextmanager
def a_group(memory: int, processes: int) -> Generator[Group | None]:
    """A group with these limits for one run, or `None` where this process cannot create one."""
    place = find_place()
    group = _create(place, memory, processes) if place is not None else None
    try:
        yield group
    finally:
        if group is not None:
            group.remove()


@functools.cache
def find_place() -> Group | None:
    """Where groups can be created, found once by creating one. The folders are those that get new groups."""
    for place in _places():
        with suppress(OSError):
            _sweep(place)
            _prepare(place)
            group = _create(place, 1 << 30, 64)
            if group is not None:
                group.remove()
                return place
    return None


def _places() -> Iterator[Group]:
    """The places of this process in the hierarchy, best first. In version 2 also the one above, which systemd
    delegates together with a subgroup for the service's own processes."""
    own: dict[str, str] = {}
    with suppress(OSError), open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            own.update((name, path.rstrip("/")) for name in controllers.split(","))
    if "" in own:
        here = f"{ROOT}{own['']}"
        for folder in (here, os.path.dirname(here)) if own[""] else (here,):
            with suppress(OSError):
                if set(CONTROLLERS) <= set(_read(folder, "cgroup.controllers").split()):
                    yield Group(folder, folder, 2)
    if "memory" in own and "pids" in own:
        yield Group(f"{ROOT}/memory{own['memory']}", f"{ROOT}/pids{own['pids']}", 1)


def _prepare(place: Group) -> None:
    """Let groups in this place have their own limits. In version 2 that needs a place without processes, so this
    process moves into a subgroup if it is the only one there."""
    if place.version == 1:
        return
    wanted = " ".join(f"+{name}" for name in CONTROLLERS)
    if set(CONTROLLERS) <= set(_read(place.memory, "cgroup.subtree_control").split()):
        return
    try:
        _write(place.memory, "cgroup.subtree_control", wanted)
    except OSError:
        if _read(place.memory, "cgroup.procs").split() != [str(os.getpid())]:
            raise
        own = os.path.join(place.memory, f"{_PREFIX}host")
        with suppress(FileExistsError):
            os.mkdir(own)
        _write(own, "cgroup.procs", str(os.getpid()))
        _write(place.memory, "cgroup.subtree_control", wanted)


def _create(place: Group, memory: int, processes: int) -> Group | None:
    name = f"{_PREFIX}{_numbering()}-{os.getpid()}-{next(_NUMBERS)}"
    group = Group(os.path.join(place.memory, name), os.path.join(place.pids, name), place.version)
    try:
        for folder in group.folders:
            os.mkdir(folder)
        _write(group.pids, "pids.max", str(processes))
        if group.version == 2:
            _write(group.memory, "memory.max", str(memory))
            _write(group.memory, "memory.oom.group", "1")
            swap, most = "memory.swap.max", "0"
        else:
            _write(group.memory, "memory.limit_in_bytes", str(memory))
            swap, most = "memory.memsw.limit_in_bytes", str(memory)
        if os.path.exists(os.path.join(group.memory, swap)):  # without it, the memory limit counts alone
            _write(group.memory, swap, most)
    except OSError:
        group.remove()
        return None
    return group


def _sweep(place: Group) -> None:
    """Remove the empty groups of hosts that were killed. A group with processes cannot be removed.

    The groups of another container stay: whether its processes live cannot be seen from here.
    """
    ours = f"{_PREFIX}{_numbering()}-"
    for folder in place.folders:
        for name in os.listdir(folder):
            pid = name.removeprefix(ours).partition("-")[0]
            if name.startswith(ours) and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
                with suppress(OSError):
                    os.rmdir(os.path.join(folder, name))


def _numbering() -> int:
    """The namespace that gives processes their numbers. The same number is another process elsewhere."""
    return os.stat("/proc/self/ns/pid").st_ino


def _read(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
        return file.read(65536)


def _write(folder: str, name: str, value: str) -> None:
    descriptor = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)
