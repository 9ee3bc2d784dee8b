"""Verifies the protections of a sandbox in /proc before the script starts.

Arguments to bubblewrap only request a protection. What counts is what the kernel reports about the process that is
about to become the script. The invariant: a protection is reported only after it was verified here.
"""

import os
from typing import Final

from metier.sandbox import SKILL_DIR, Job
from metier.sandbox.identity import Identity, must_switch
from metier.sandbox.interpreter import Program

_NAMESPACES: Final = ("mnt", "pid", "ipc", "uts", "net")
_READ_ONLY: Final = (SKILL_DIR, "/", "/usr", "/etc", "/dev")
_LARGEST_PAGE: Final = 1 << 16  # sizes are rounded up to pages


def find_gaps(proc: int, first: int, writable: tuple[int, ...], job: Job, program: Program | None) -> list[str]:
    """Return the protections that are missing. `first` is the host's pid of the sandbox's first process."""
    gaps = _status_gaps(proc)
    gaps += _limit_gaps(proc, job, program)
    for name in _NAMESPACES:
        there = _link(f"/proc/{first}/ns/{name}")
        if there in ("", _link(f"/proc/self/ns/{name}")) and not (name == "net" and job.network):
            gaps.append(f"the {name} namespace is the host's")
    for place in _READ_ONLY if program is not None else _READ_ONLY[1:]:
        if not os.statvfs(f"/proc/{first}/root{place}").f_flag & os.ST_RDONLY:
            gaps.append(f"{place} can be written to")
    for folder in writable:
        status = os.fstatvfs(folder)
        if status.f_blocks * status.f_frsize >= job.limits.work_bytes + _LARGEST_PAGE:
            gaps.append("a writable folder has no size limit")
    return gaps


def _status_gaps(proc: int) -> list[str]:
    """Check the waiting shell. It is the second process of the namespace; the first belongs to bubblewrap."""
    status = dict(line.split(":\t", 1) for line in _read(proc, "2/status").splitlines() if ":\t" in line)
    if not status:
        return ["the waiting process is not visible"]
    gaps = [
        f"capabilities are left ({key})" for key, value in status.items() if key.startswith("Cap") and int(value, 16)
    ]
    if status.get("Seccomp") != "2":
        gaps.append("the system call filter is not in force")
    if status.get("NoNewPrivs") != "1":
        gaps.append("new privileges are possible")
    if "0" in status.get("Uid", "0").split() and must_switch():
        gaps.append("the script would run as root")
    return gaps


def _limit_gaps(proc: int, job: Job, program: Program | None) -> list[str]:
    limits = job.limits
    wanted = {
        "Max processes": limits.processes,
        "Max address space": limits.memory_bytes + (program.address_reserve if program else 0),
        "Max file size": limits.file_bytes,
        "Max cpu time": int(limits.seconds) + 1,
        "Max core file size": 0,
    }
    found = {line[:26].strip(): line[26:].split() for line in _read(proc, "2/limits").splitlines()}
    gaps: list[str] = []
    for name, most in wanted.items():
        values = found.get(name, ["unlimited", "unlimited"])[:2]
        if any(not value.isdigit() or int(value) > most for value in values):
            gaps.append(f"{name.lower()} is {values[1]}")
    return gaps


def protections(job: Job, identity: Identity) -> tuple[str, ...]:
    """The names of the protections that `find_gaps` verified, for the record."""
    names = ["no-host-files", "no-host-processes", "no-host-ipc", "clean-environment", "no-devices"]
    names += ["no-capabilities", "no-new-privileges", "seccomp"]
    names.append("own-uid" if identity.switch else "user-namespace")
    if not job.network:
        names.append("no-network")
    limits = ("time", "memory", "processes", "output", "file-size", "work-size")
    return (*names, *(f"limit-{name}" for name in limits), "ends-with-host")


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _read(proc: int, path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 65536).decode("ascii", "replace")
    finally:
        os.close(descriptor)
