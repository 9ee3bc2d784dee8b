"""A sandbox of bubblewrap that is ready, and what /proc says about it: its protections, and the memory that it uses.

Arguments to bubblewrap only request a protection. What counts is what the kernel reports about every process that is in
the sandbox when the script starts: what the script can take over must be limited as the script is. The invariant: a
protection is reported only after it was verified here.
"""

import os
import select
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from subprocess import Popen
from typing import Final

from metier.limits import KIB
from metier.running.sandbox import SKILL_DIR, Ended, Job
from metier.running.sandbox.base import Check
from metier.running.sandbox.cgroup import Group
from metier.running.sandbox.interpreter import Program
from metier.running.sandbox.mounts import ENTRIES_FACTOR, Identity, must_switch, places

_NAMESPACES: Final = ("mnt", "pid", "ipc", "uts", "net")
_READ_ONLY: Final = (SKILL_DIR, "/", "/usr", "/etc", "/dev")
_LOOPBACK: Final = "lo"
_LARGEST_PAGE: Final = 1 << 16  # sizes are rounded up to pages
SHORTEST_SECONDS: Final = 0.002
_FAULTS: Final = 8 << 30
"""The memory that one processor can fill in a second, generously."""
_PIPE_BYTES: Final = 64 * KIB
_SOCKET_BYTES: Final = 212_992
"""The buffers of a pipe and of a socket, at their default size, if the kernel does not say."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PROCESSORS: Final = os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSandbox:
    """A sandbox that waits: its processes, and the handles that the host has on it. All numbers of processes are those
    of the host."""

    process: Popen[bytes]
    """The outer process."""
    first: int
    ending: int
    """A pidfd of the first process, which never refers to another process that reuses the number."""
    shell: int
    proc: int
    writable: tuple[int, ...]
    layer: int | None
    """What the script writes to the project, if it may. It is among the writable folders."""
    job: Job
    program: Program | None
    identity: Identity
    group: Group | None

    def end(self) -> None:
        """End every process in the sandbox, and wait until they have ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.ending, signal.SIGKILL)
        # The first process of a PID namespace ends only after all the others have ended.
        poll = select.poll()
        poll.register(self.ending, select.POLLIN)
        poll.poll()

    def gaps(self) -> list[str]:
        """Return the protections that are missing."""
        pids = [name for name in os.listdir(self.proc) if name.isdigit()]
        gaps = [] if pids else ["no process is visible"]
        for pid in pids:
            gaps += self._process_gaps(pid)
        gaps += self._namespace_gaps()
        if self.job.hosts:
            gaps += self._route_gaps()
        for place in (*_READ_ONLY, *places(self.job)) if self.program is not None else _READ_ONLY[1:]:
            if not os.statvfs(f"/proc/{self.first}/root{place}").f_flag & os.ST_RDONLY:
                gaps.append(f"{place} can be written to")
        limits = self.job.limits
        for folder in self.writable:
            status = os.fstatvfs(folder)
            if status.f_blocks * status.f_frsize >= limits.work_bytes + _LARGEST_PAGE:
                gaps.append("a writable folder has no size limit")
        if self.group is not None:
            gaps += self.group.gaps(self.shell, limits.memory_bytes, limits.processes)
        return gaps

    def _process_gaps(self, pid: str) -> list[str]:
        lines = read_at(self.proc, f"{pid}/status").splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        users = status.get("Uid", "0").split()
        if self.identity.switch and pid == "1" and str(self.identity.uid) not in users:
            return []  # of bubblewrap; a script with another user id cannot reach it
        gaps = [
            f"capabilities are left ({key})"
            for key, value in status.items()
            if key.startswith("Cap") and int(value, 16)
        ]
        if status.get("Seccomp") != "2":
            gaps.append("the system call filter is not in force")
        if status.get("NoNewPrivs") != "1":
            gaps.append("new privileges are possible")
        if "0" in users and must_switch():
            gaps.append("the script would run as root")
        # The kernel gives the files of a process whose memory is protected to root.
        if str(os.stat(f"{pid}/mem", dir_fd=self.proc).st_uid) in users:
            gaps.append("its memory can be written to")
        return [f"{gap} in process {pid}" for gap in (*gaps, *self._limit_gaps(pid))]

    def _limit_gaps(self, pid: str) -> list[str]:
        limits = self.job.limits
        wanted: Mapping[str, int] = {
            "Max processes": limits.processes,
            "Max address space": limits.memory_bytes + (self.program.address_reserve if self.program else 0),
            "Max file size": limits.file_bytes,
            "Max cpu time": int(limits.seconds) + 1,
            "Max core file size": 0,
        }
        found = {line[:26].strip(): line[26:].split() for line in read_at(self.proc, f"{pid}/limits").splitlines()}
        gaps: list[str] = []
        for name, most in wanted.items():
            values = found.get(name, ["unlimited", "unlimited"])[:2]
            if any(not value.isdigit() or int(value) > most for value in values):
                gaps.append(f"{name.lower()} is {values[1]}")
        return gaps

    def _namespace_gaps(self) -> list[str]:
        gaps: list[str] = []
        for name in _NAMESPACES:
            there = _link(f"/proc/{self.first}/ns/{name}")
            if there in ("", _link(f"/proc/self/ns/{name}")) and not (name == "net" and self.job.network):
                gaps.append(f"the {name} namespace is the host's")
        return gaps

    def _route_gaps(self) -> list[str]:
        """Whether a packet could leave the sandbox. The loopback interface has no routes in the table of IPv4."""
        heading, *routes = read_at(self.proc, "1/net/route").splitlines() or [""]
        if not heading.startswith("Iface"):
            return ["the routes cannot be seen"]
        routes = [line.split()[0] for line in routes if line.strip()]
        routes += [line.split()[-1] for line in read_at(self.proc, "1/net/ipv6_route").splitlines() if line.strip()]
        return [f"there is a route to {name}" for name in dict.fromkeys(routes) if name != _LOOPBACK]

    def protections(self) -> tuple[str, ...]:
        """The names of the protections that were verified, for the record."""
        names = ["no-host-files", "no-host-processes", "no-host-ipc", "clean-environment", "no-devices"]
        names += ["no-capabilities", "no-new-privileges", "seccomp", "approved-files"]
        names.append("own-uid" if self.identity.switch else "user-namespace")
        if not self.job.network:
            names.append("listed-hosts-only" if self.job.hosts else "no-network")
        if self._hides_paths():
            names.append("no-host-paths")
        memory = "memory" if self.group is not None else "memory-per-process"
        limits = ("time", memory, "processes", "output", "file-size", "work-size")
        return (*names, *(f"limit-{name}" for name in limits), "ends-with-host")

    def _hides_paths(self) -> bool:
        """Whether the list of mounts, which a script can read, says nothing about where its folders are."""
        shown = (self.job.project, self.program.mount[0] if self.program and self.program.mount else None)
        with suppress(OSError), open(f"/proc/{self.first}/mountinfo", "rb") as file:
            mounts = file.read()
            return not any(path and _escaped(os.path.realpath(path)) in mounts for path in shown)
        return False

    # --- while the script runs ---

    def checks(self) -> list[Check]:
        """What ends a run that uses too much. Where there is a group, the kernel ends only one of its processes."""
        if (group := self.group) is not None:
            return [lambda: "memory-limit" if group.ran_out() else None, self._entries]
        return [memory_below(self.proc, self.writable, self.job.limits.memory_bytes), self._entries]

    def _entries(self) -> Ended | None:
        """End a run that creates more files and folders than its limit. Their size has its own limit."""
        statuses = [os.fstatvfs(folder) for folder in self.writable]
        used = sum(status.f_files - status.f_ffree for status in statuses)
        return "files-limit" if used > self.job.limits.files * ENTRIES_FACTOR else None


def _escaped(path: str) -> bytes:
    """A path as /proc writes it."""
    data = os.fsencode(path)
    for letter in b"\\ \t\n":
        data = data.replace(bytes([letter]), b"\\%03o" % letter)
    return data


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


# --- memory ---


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
