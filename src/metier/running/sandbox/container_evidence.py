"""Verifies the protections of a container before the script starts, from both sides.

The engine is asked what it has put in force (`inspect`) before the container starts. Once it has started, and before
the script, its first process reports what the kernel says about itself. The invariant: a protection is reported only
after both agreed, where both can know it; a fact that is missing counts as a protection that is missing.
"""

from collections.abc import Mapping
from typing import Final

from metier.files.shapes import as_table, is_list, is_table
from metier.running.sandbox import SKILL_DIR, Job, seccomp

USER: Final = 65532
"""The user of the script in the container, by convention one without any rights. It is mapped where ids are mapped."""
_WRITABLE: Final = frozenset(("/work", "/tmp", "/var/tmp", "/run", "/dev/shm", "/dev/mqueue"))  # noqa: S108
_DEVICES: Final = frozenset(
    (
        *("null", "zero", "full", "random", "urandom", "tty", "console", "pts", "ptmx"),
        *("fd", "stdin", "stdout", "stderr", "shm", "mqueue", "core"),
    )
)
_CAPABILITIES: Final = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_LARGEST_PAGE: Final = 1 << 16
_FOREIGN: Final = ("host", "container:", "ns:")


def inspected_gaps(found: Mapping[str, object], job: Job, volumes: Mapping[str, str]) -> list[str]:
    """The protections that are not in force, by what the engine says. `volumes` has what is mounted, by its place."""
    host, config = as_table(found.get("HostConfig")), as_table(found.get("Config"))
    limits = job.limits
    modes = {name: str(host.get(name, "host")) for name in ("NetworkMode", "PidMode", "IpcMode", "UTSMode")}
    kept = {
        "the root folder can be written to": host.get("ReadonlyRootfs") is True,
        "it is privileged": host.get("Privileged") is False,
        "capabilities are added": not host.get("CapAdd"),
        "capabilities are left": bool(host.get("CapDrop")),
        "new privileges are possible": _has(host.get("SecurityOpt"), "no-new-privileges"),
        "the system call filter is off": not _has(host.get("SecurityOpt"), "unconfined"),
        "its memory is not limited": _within(host.get("Memory"), limits.memory_bytes),
        "its swap is not limited": _within(host.get("MemorySwap"), limits.memory_bytes),
        "its processes are not limited": _within(host.get("PidsLimit"), limits.processes + 1),
        "devices of the host are visible": not host.get("Devices") and not host.get("DeviceRequests"),
        "it is reachable": not host.get("PortBindings") and host.get("PublishAllPorts") in (False, None),
        "it would be started again": as_table(host.get("RestartPolicy")).get("Name") in ("", "no", None),
        "it is not removed at its end": host.get("AutoRemove") is True,
        "it has another user": config.get("User") == f"{USER}:{USER}",
        f"its network is {modes['NetworkMode']}": job.network or modes["NetworkMode"] == "none",
    }
    gaps = [gap for gap, is_kept in kept.items() if not is_kept]
    gaps += [f"its {name} is {mode}" for name, mode in modes.items() if mode.startswith(_FOREIGN)]
    return gaps + _mount_gaps(found.get("Mounts"), volumes)


def _mount_gaps(mounts: object, volumes: Mapping[str, str]) -> list[str]:
    if not is_list(mounts):
        return ["its mounts are not known"]
    gaps: list[str] = []
    missing = dict(volumes)
    for mount in map(as_table, mounts):
        place = str(mount.get("Destination", ""))
        if mount.get("Type") == "tmpfs":
            continue
        if mount.get("Type") != "volume" or missing.pop(place, "") != mount.get("Name"):
            gaps.append(f"something else is mounted at {place}")
        elif mount.get("RW") is not False:
            gaps.append(f"{place} can be written to")
    return gaps + [f"nothing is mounted at {place}" for place in missing]


def reported_gaps(report: Mapping[str, object], job: Job) -> list[str]:
    """The protections that are not in force, by what the kernel says about the first process."""
    status, sizes, limits = as_table(report.get("status")), report.get("sizes"), job.limits
    devices, writable, shown = report.get("devices"), report.get("writable"), report.get("shown")
    kept = {
        "new privileges are possible": str(status.get("NoNewPrivs")).strip() == "1",
        "the system call filter is not in force": str(status.get("Seccomp")).strip() == "2",
        "it does not run as the user without rights": str(status.get("Uid")).split() == [str(USER)] * 4,
        "other processes are visible": report.get("pid") == 1 and report.get("processes") == [1],
        "its memory can be written to": report.get("memory_protected") is True,
        "the root folder can be written to": report.get("root_read_only") is True,
        f"{SKILL_DIR} can be written to": report.get("skill_read_only") is True,
        "its memory is not limited": _within(report.get("memory_limit"), limits.memory_bytes),
        "its processes are not limited": _within(report.get("process_limit"), limits.processes + 1),
        "there is no system call filter for its processor": report.get("machine") in seccomp.ARCHITECTURES,
        "the kernel does not say when memory ran out": report.get("kills_counted") is True,
        "a network is there": job.network or report.get("interfaces") == ["lo"],
        "devices of the host are visible": is_list(devices) and set(map(str, devices)) <= _DEVICES,
        "what can be written to is not known": is_list(writable),
        "what can be read is not known": is_list(shown),
        "the sizes of its folders are not known": is_table(sizes) and bool(sizes),
    }
    gaps = [f"capabilities are left ({name})" for name in _CAPABILITIES if not _is_zero(status.get(name))]
    gaps += [gap for gap, is_kept in kept.items() if not is_kept]
    gaps += [
        f"{place} can be written to" for place in (writable if is_list(writable) else ()) if place not in _WRITABLE
    ]
    gaps += [f"{place} can be read" for place in (shown if is_list(shown) else ())]
    room = limits.work_bytes + _LARGEST_PAGE
    return gaps + [f"{place} has no size limit" for place, size in as_table(sizes).items() if not _within(size, room)]


def protections(job: Job) -> tuple[str, ...]:
    """The names of the protections that were verified, for the record."""
    names = ["no-host-files", "no-host-processes", "no-host-ipc", "no-host-paths", "clean-environment", "no-devices"]
    names += ["no-capabilities", "no-new-privileges", "seccomp", "approved-files", "own-uid"]
    if not job.network:
        names.append("no-network")
    limits = ("time", "memory", "processes", "output", "file-size", "work-size")
    return (*names, *(f"limit-{name}" for name in limits))


def _has(options: object, word: str) -> bool:
    return is_list(options) and any(word in str(option) for option in options)


def _is_zero(capabilities: object) -> bool:
    return isinstance(capabilities, str) and set(capabilities.strip()) == {"0"}


def _within(value: object, most: int) -> bool:
    """Whether a limit is set and not above a number. Most engines say 0 or -1 for no limit."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most
