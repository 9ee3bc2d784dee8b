"""Verifies the protections of a sandbox in /proc before the script starts.

Arguments to bubblewrap only request a protection. What counts is what the kernel reports about every process that is in
the sandbox when the script starts: what the script can take over must be limited as the script is. The invariant: a
protection is reported only after it was verified here.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from metier.running.sandbox import SKILL_DIR, Job, modules
from metier.running.sandbox.cgroup import Group
from metier.running.sandbox.identity import Identity, must_switch
from metier.running.sandbox.interpreter import Program
from metier.running.sandbox.watch import read_at

_NAMESPACES: Final = ("mnt", "pid", "ipc", "uts", "net")
_READ_ONLY: Final = (SKILL_DIR, "/", "/usr", "/etc", "/dev")
_LOOPBACK: Final = "lo"
_LARGEST_PAGE: Final = 1 << 16  # sizes are rounded up to pages


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A sandbox that waits: the host's pids of its first process and of the shell, and what the host has opened."""

    first: int
    shell: int
    proc: int
    writable: tuple[int, ...]
    job: Job
    program: Program | None
    identity: Identity
    group: Group | None

    def gaps(self) -> list[str]:
        """Return the protections that are missing."""
        pids = [name for name in os.listdir(self.proc) if name.isdigit()]
        gaps = [] if pids else ["no process is visible"]
        for pid in pids:
            gaps += self._process_gaps(pid)
        gaps += self._namespace_gaps()
        if self.job.hosts:
            gaps += self._route_gaps()
        for place in (*_READ_ONLY, *modules.places(self.job)) if self.program is not None else _READ_ONLY[1:]:
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
