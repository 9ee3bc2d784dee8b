"""The host is killed with SIGKILL at a random moment of a run. Nothing of the sandbox may be left.

The process of the round inherits whatever loses its parent, so a process of the sandbox cannot hide from it.
"""

import os
import signal
import time
from collections.abc import Mapping
from typing import Final

from metier.errors import MetierError

from . import probes
from .boxes import settled
from .place import Place, become
from .project import ALLOWED, Entry, planted, snapshot
from .rounds import Round, descendants, describe, reap

_SIZE: Final = 3_000_000
WAIT: Final = 15.0
"""Seconds after which a process that is left counts as a survivor."""

SCRIPT: Final = f"""#!/usr/bin/env -S python3 -I -S
import ctypes, os, signal, time
libc = ctypes.CDLL(None)
def stay():
    os.setsid()
    libc.prctl(1, 0, 0, 0, 0)
    for number in range(1, 32):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
def hold():
    while True: time.sleep(1)
for _ in range(3):
    if os.fork() == 0:
        stay()
        if os.fork() == 0: os.closerange(0, 10)
        hold()
stay()
for target in (1, os.getppid()):
    try:
        with open("/proc/%d/mem" % target, "r+b"): pass
    except OSError: pass
with open("/project/notes.txt", "w") as file: file.write("n" * {_SIZE})
with open("/project/new.txt", "w") as file: file.write("n" * {_SIZE})
print("up", flush=True)
time.sleep(float(os.environ.get("PAUSE", "0.2")))
if os.getpid() % 2: hold()
os._exit(0)
"""


def attack(round_: Round) -> None:
    number = 0
    while round_.goes_on():
        _kill_once(round_, number)
        number += 1


def _kill_once(round_: Round, number: int) -> None:
    place = Place(round_, f"kill-{number}")
    place.skill("~/.agents/skills/planter", files={"scripts/x.py": SCRIPT})
    (place.project / "notes.txt").write_text("o" * _SIZE)
    place.hand_over()
    before = snapshot(place.project)
    ready, telling = os.pipe()
    host = os.fork()
    if not host:
        try:
            os.close(ready)
            become(round_.identity)
            _host(place, telling)
        finally:
            os._exit(0)
    os.close(telling)
    os.read(ready, 1)  # the imports are done; what follows is the run
    os.close(ready)
    pause = round_.chance.choice((0.02, 0.1, 0.3, 0.6)) * round_.chance.random()
    time.sleep(pause)
    os.kill(host, signal.SIGKILL)
    os.waitpid(host, 0)
    round_.tried()

    def left() -> list[int]:
        reap()
        return descendants(os.getpid())

    remaining = settled(left, [], WAIT)
    if remaining:
        shown = "; ".join(describe(pid) for pid in remaining[:5])
        round_.found("survivor", f"{len(remaining)} processes {WAIT:g} s after the host was killed: {shown}", SCRIPT)
        for pid in remaining:
            os.kill(pid, signal.SIGKILL)
    _check_project(round_, place, before)


def _host(place: Place, telling: int) -> None:
    session = place.discover().session(
        policy=ALLOWED, runner=probes.runner(), store=f"sqlite:///{place.base}/events.db"
    )
    os.write(telling, b"r")
    try:
        session.run("planter", "scripts/x.py", write_paths=["notes.txt", "new.txt"])
    except MetierError as error:
        os.write(2, f"the run of the host failed: {error}\n".encode())


def _check_project(round_: Round, place: Place, before: Mapping[str, Entry]) -> None:
    """A file of the project is as it was or as the script left it, whenever the host died."""
    for what in planted(place.project, before, ("notes.txt", "new.txt")):
        round_.escape(f"after a kill: {what}", SCRIPT)
    for path, entry in snapshot(place.project).items():
        if path in ("notes.txt", "new.txt") and entry.content not in (b"o" * _SIZE, b"n" * _SIZE):
            round_.escape(f"{path} was half written when the host was killed: {len(entry.content)} bytes", SCRIPT)
        elif path not in before and path != "new.txt":
            round_.found("survivor", f"{path} is left in the project after the host was killed")
