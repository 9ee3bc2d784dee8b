"""Verifies the protections of a container before the script starts, from both sides.

The engine is asked what it has put in force (`inspect`) before the container starts. Once it has started, and before
the script, its first process reports what the kernel says about itself. The invariant: a protection is reported only
after both agreed, where both can know it; a fact that is missing counts as a protection that is missing.
"""

from collections.abc import Mapping
from typing import Final

from metier.files.shapes import as_table, is_list, is_table
from metier.sandbox import SKILL_DIR, Job, seccomp

USER: Final = 65532
"""The user of the script in the container, by convention one without any rights. It is mapped where ids are mapped."""
_WRITABLE: Final = frozenset(("/work", "/tmp", "/var/tmp", "/run", "/dev/shm", "/dev/mqueue"))  # noqa: S108
_HARMLESS: Final = frozenset(("/proc/keys", "/proc/timer_list", "/proc/kcore", "/proc/latency_stats", "/dev/null"))
"""Files that are covered by /dev/null, which everybody can write to."""
_DEVICES: Final = frozenset(
    (
        *("null", "zero", "full", "random", "urandom", "tty", "console", "pts", "ptmx"),
        *("fd", "stdin", "stdout", "stderr", "shm", "mqueue", "core"),
    )
)
_LARGEST_PAGE: Final = 1 << 16
_FOREIGN: Final = ("host", "container:", "ns:")


def inspected_gaps(found: Mapping[str, object], job: Job, volumes: Mapping[str, str]) -> list[str]:
    """The protections that are not in force, by what the engine says. `volumes` has what is mounted, by its place."""
    host, config = as_table(found.get("HostConfig")), as_table(found.get("Config"))
    limits = job.limits
    wanted = {
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
    }
    gaps = [gap for gap, kept in wanted.items() if not kept]
    mode = str(host.get("NetworkMode", "host"))
    if mode.startswith(_FOREIGN) or (mode != "none" and not job.network):
        gaps.append(f"its network is {mode}")
    modes = {name: str(host.get(name, "host")) for name in ("PidMode", "IpcMode", "UTSMode")}
    gaps += [f"its {name} is {mode}" for name, mode in modes.items() if mode.startswith(_FOREIGN)]
    return gaps + _mount_gaps(found.get("Mounts"), volumes)


def _mount_gaps(mounts: object, volumes: Mapping[str, str]) -> list[str]:
    if not is_list(mounts):
        return ["its mounts are not known"]
    gaps: list[str] = []
    seen: dict[str, str] = {}
    for mount in mounts:
        one = as_table(mount)
        place = str(one.get("Destination", ""))
        if one.get("Type") == "tmpfs":
            continue
        seen[place] = str(one.get("Name", ""))
        if one.get("Type") != "volume" or volumes.get(place) != seen[place]:
            gaps.append(f"something else is mounted at {place}")
        elif one.get("RW") is not False:
            gaps.append(f"{place} can be written to")
    gaps += [f"nothing is mounted at {place}" for place in volumes if place not in seen]
    return gaps


def reported_gaps(report: Mapping[str, object], job: Job) -> list[str]:
    """The protections that are not in force, by what the kernel says about the first process."""
    status, limits = as_table(report.get("status")), job.limits
    gaps = [
        f"capabilities are left ({key})"
        for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
        if str(status.get(key)).strip().strip("0") != "" or not status.get(key)
    ]
    wanted = {
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
    }
    gaps += [gap for gap, kept in wanted.items() if not kept]
    writable = report.get("writable")
    if not is_list(writable):
        gaps.append("what can be written to is not known")
    else:
        gaps += [f"{place} can be written to" for place in writable if place not in _WRITABLE | _HARMLESS]
    sizes = report.get("sizes")
    if not is_table(sizes) or not sizes:
        gaps.append("the sizes of its folders are not known")
    else:
        room = limits.work_bytes + _LARGEST_PAGE
        gaps += [f"{place} has no size limit" for place, size in sizes.items() if not _within(size, room)]
    devices = report.get("devices")
    if not is_list(devices) or not set(map(str, devices)) <= _DEVICES:
        gaps.append("devices of the host are visible")
    return gaps


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


def _within(value: object, most: int) -> bool:
    """Whether a limit is set and not above a number. Most engines say 0 or -1 for no limit."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most
