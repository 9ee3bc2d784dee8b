"""Whose a container or a volume is, and the removal of what a host left that was killed.

A label names the host: its machine, the start of that machine, and the process. The invariant: only what belongs to a
process of this machine that has certainly ended is removed. What a process of another machine or of another container
left at the same engine stays, because whether it lives cannot be seen from here.
"""

import os
import platform
from contextlib import suppress
from typing import Final

from metier.files.shapes import as_table
from metier.sandbox.container_engine import Engine, EngineError

LABEL: Final = "io.metier.owner"


def owner() -> str:
    """This process, as its label names it: machine, start of the machine, namespace of numbers, number, start."""
    return "|".join((*_here(), str(os.getpid()), _start_of(os.getpid())))


def sweep(engine: Engine) -> None:
    """Remove the containers and volumes of processes of this machine that have ended."""
    for kind, key in (("containers", "Id"), ("volumes", "Name")):
        for one in engine.labelled(kind, LABEL):
            if has_ended(str(as_table(one.get("Labels")).get(LABEL, ""))):
                with suppress(EngineError):
                    engine.call("DELETE", f"/{kind}/{one.get(key)}", {"force": "1"})


def has_ended(label: str) -> bool:
    """Whether the process that a label names has certainly ended."""
    machine, boot, namespace, pid, start = (*label.split("|"), "", "", "", "", "")[:5]
    here = _here()
    if not pid.isdigit() or machine != here[0]:
        return False
    if boot != here[1]:
        return bool(boot and here[1])  # the machine has been started again
    if namespace != here[2]:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return start != _start_of(int(pid))  # another process has the number now


def _here() -> tuple[str, str, str]:
    namespace = ""
    with suppress(OSError):
        namespace = str(os.stat("/proc/self/ns/pid").st_ino)
    machine = _line("/etc/machine-id") or platform.node()
    return machine, _line("/proc/sys/kernel/random/boot_id"), namespace


def _start_of(pid: int) -> str:
    """When a process was started, as the kernel counts, or nothing where there is no /proc."""
    words = _line(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return words[19] if len(words) > 19 else ""


def _line(path: str) -> str:
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read(4096).strip().replace("|", "")
    return ""
