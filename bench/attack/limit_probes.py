"""Attempts to use more than the limits of the sandbox allow.

A probe takes at most a few times its limit, and the limits are small, so that a sandbox that does not hold costs no
more than some hundred megabytes.
"""

import re
from dataclasses import dataclass
from typing import Final

from metier.limits import KIB, MIB
from metier.running.sandbox import RunLimits, Runner

from . import measure, probes
from .boxes import Box
from .rounds import Round

LIMITS: Final = RunLimits(
    seconds=4, memory_bytes=192 * MIB, processes=32, output_bytes=256 * KIB, file_bytes=16 * MIB, work_bytes=24 * MIB
)
_GRACE: Final = 6.0
"""Seconds that starting and ending a sandbox may take on a busy machine, besides its time limit."""

_HEAD: Final = """#!/usr/bin/env -S python3 -I -S
import ctypes, fcntl, mmap, os, socket, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
MIB = 1 << 20
def held(amount): os.write(1, b"held %d\\n" % amount)
def hold():
    while True: time.sleep(1)
def forks(count, work):
    for _ in range(count):
        try:
            if os.fork() == 0:
                try: work()
                finally: hold()
        except OSError: break
MOST = 80 * MIB  # of one process
def fill(stream, size=65536):
    stream.setblocking(False)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        stream.setsockopt(socket.SOL_SOCKET, option, 1 << 30)
    total = 0
    try:
        while total < 16 * MIB: total += stream.send(b"x" * size)
    except OSError: pass
    return total
"""


@dataclass(frozen=True, slots=True)
class LimitProbe:
    """A script that takes too much of something. It prints `held N` for memory that its processes do not show."""

    name: str
    body: str
    limits: RunLimits = LIMITS

    def text(self) -> str:
        return _HEAD + self.body


LIMIT_PROBES: Final = [
    LimitProbe(
        "processes-with-memory",
        """
def work():
    keep.append(mmap.mmap(-1, 40 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    keep[-1].write(b"x" * 40 * MIB)
keep = []
forks(14, work)
hold()
""",
    ),
    LimitProbe(
        "shared-memory",
        """
def work():
    for _ in range(4): keep.append(mmap.mmap(-1, 10 * MIB)); keep[-1].write(b"x" * 10 * MIB)
keep = []
forks(14, work)
hold()
""",
    ),
    LimitProbe(
        "first-thread-ends",
        """
def work():
    kept = bytearray(40 * MIB)
    for at in range(0, len(kept), 4096): kept[at] = 1
    hold()
def two():
    threading.Thread(target=work).start()
    libc.syscall(ctypes.c_long(60 if os.uname().machine == "x86_64" else 93), ctypes.c_long(0))
forks(12, two)
hold()
""",
    ),
    LimitProbe(
        "stream-sockets",
        """
keep = []
def work():
    total = 0
    while total < MOST and len(keep) < 100:
        pair = socket.socketpair(); keep.append(pair)
        total += (amount := fill(pair[0]) + fill(pair[1]))
        held(amount)
forks(8, work)
hold()
""",
    ),
    LimitProbe(
        "message-sockets",
        """
keep = []
def work():
    total = 0
    while total < MOST and len(keep) < 100:
        pair = socket.socketpair(type=(socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)[len(keep) % 2]); keep.append(pair)
        total += (amount := fill(pair[0], 32768) + fill(pair[1], 32768))
        held(amount)
forks(8, work)
hold()
""",
    ),
    LimitProbe(
        "sockets-in-flight",
        """
import array
keep = []
def work():
    carrier = socket.socketpair(); keep.append(carrier)
    total = 0
    while total < MOST:
        pair = socket.socketpair()
        total += (amount := fill(pair[0]) + fill(pair[1]))
        fds = array.array("i", [one.fileno() for one in pair])
        try: carrier[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        except OSError: break
        for one in pair: one.close()
        held(amount)
forks(6, work)
hold()
""",
    ),
    LimitProbe(
        "pipes",
        """
keep = []
def work():
    for _ in range(100):
        read, write = os.pipe(); keep.append((read, write))
        try: fcntl.fcntl(write, 1031, MIB)
        except OSError: pass
        os.set_blocking(write, False)
        total = 0
        try:
            while True: total += os.write(write, b"x" * 65536)
        except OSError: pass
        held(total)
forks(8, work)
hold()
""",
    ),
    LimitProbe(
        "folders-in-memory",
        """
for place in ("/work", "/tmp", "/dev/shm"):
    written, number = 0, 0
    try:
        while written < 100 * MIB:
            file = os.open("%s/f%d" % (place, number), os.O_CREAT | os.O_WRONLY, 0o600); number += 1
            try:
                for _ in range(8): written += os.write(file, b"x" * MIB)
            finally: os.close(file)
    except OSError: pass
    os.write(1, b"place %d\\n" % written)
    held(written)
def work(): keep.append(bytearray(40 * MIB))
keep = []
forks(10, work)
hold()
""",
    ),
    LimitProbe(
        "files-without-a-name",
        """
keep = []
for place in ("/work", "/tmp", "/dev/shm"):
    written = 0
    try:
        while written < 100 * MIB:
            file = os.open(place, os.O_TMPFILE | os.O_RDWR, 0o600); keep.append(file)
            for _ in range(8): written += os.write(file, b"x" * MIB)
    except OSError: pass
    os.write(1, b"place %d\\n" % written)
    held(written)
hold()
""",
    ),
    LimitProbe(
        "memory-files",
        """
try:
    file = os.memfd_create("x")
    for _ in range(400): held(os.write(file, b"x" * MIB))
except OSError: pass
hold()
""",
    ),
    LimitProbe("processes", "forks(300, lambda: None)\nhold()\n"),
    LimitProbe(
        "processes-that-detach",
        """
def work():
    os.setsid()
    libc.prctl(1, 0, 0, 0, 0)
    forks(20, lambda: (os.setsid(), libc.prctl(1, 0, 0, 0, 0)))
forks(20, work)
hold()
""",
    ),
    LimitProbe(
        "fork-bomb",
        """
limit = time.monotonic() + 3
def bomb():
    while time.monotonic() < limit:
        try:
            if os.fork() == 0: bomb()
        except OSError: time.sleep(0.05)
        time.sleep(0.01)
    hold()
bomb()
""",
    ),
    LimitProbe(
        "threads",
        """
for _ in range(400):
    try: threading.Thread(target=hold, daemon=True).start()
    except RuntimeError: break
hold()
""",
    ),
    LimitProbe(
        "time-of-detached-processes",
        """
import signal
for number in (1, 2, 3, 13, 14, 15): signal.signal(number, signal.SIG_IGN)
def work(): os.setsid(); libc.prctl(1, 0, 0, 0, 0); os.closerange(0, 3)
forks(3, work)
while True: pass
""",
    ),
    LimitProbe(
        "output",
        "forks(3, lambda: [os.write(2, b'x' * 65536) for _ in range(400)])\nwhile True: os.write(1, b'y' * 65536)\n",
    ),
    LimitProbe(
        "one-large-file",
        """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = os.open(os.environ["WORK_DIR"] + "/f", os.O_CREAT | os.O_RDWR)
try: os.ftruncate(file, 1 << 40)
except OSError: pass
os.write(1, b"file %d\\n" % os.fstat(file).st_size)
try:
    for _ in range(100): os.write(file, b"x" * MIB)
except OSError: pass
os.write(1, b"file %d\\n" % os.fstat(file).st_size)
""",
    ),
]


def exceed(round_: Round, sandbox: Runner | None = None, most: int = len(LIMIT_PROBES)) -> None:
    """Probes of limits, those of the round's number first."""
    box = Box(round_.folder / "limited", round_.token)
    sandbox = sandbox or probes.runner()
    start = round_.number * 3
    for step in range(most):
        if step and not round_.goes_on():
            return
        _exceed(round_, box, sandbox, LIMIT_PROBES[(start + step) % len(LIMIT_PROBES)])


def _exceed(round_: Round, box: Box, sandbox: Runner, probe: LimitProbe) -> None:
    limits, script = probe.limits, probe.body
    job = box.job(box.script("probe.py", probe.text()), limits=limits)
    with measure.measured() as peaks:
        outcome = probes.run(round_, sandbox, job)
    round_.tried()
    if outcome is None:
        return
    # What a limit ended at once was at work, though it was gone before it could be measured.
    at_work = peaks.tasks or b"held" in outcome.stdout or outcome.ended != "exit"
    if not at_work and probe.name not in ("one-large-file", "output"):
        round_.found("broken", f"{probe.name} was not seen at work: {outcome}", script)
    said = outcome.stdout.decode("utf-8", "replace")
    held = sum(map(int, re.findall(r"^held (\d+)$", said, re.MULTILINE)))
    promised = outcome.protections
    if "limit-memory" in promised:
        used = peaks.memory if peaks.grouped else peaks.memory + held
        round_.used(f"{probe.name}: memory", used, limits.memory_bytes, script)
    else:
        round_.used(f"{probe.name}: memory of one process", peaks.largest, limits.memory_bytes, script)
    round_.used(f"{probe.name}: processes", peaks.tasks, limits.processes, script)
    round_.used(f"{probe.name}: seconds", peaks.seconds, limits.seconds + _GRACE, script)
    round_.used(f"{probe.name}: output", len(outcome.stdout) + len(outcome.stderr), limits.output_bytes, script)
    for size in re.findall(r"^place (\d+)$", said, re.MULTILINE):
        round_.used(f"{probe.name}: a folder in memory", int(size), limits.work_bytes, script)
    for size in re.findall(r"^file (\d+)$", said, re.MULTILINE):
        round_.used(f"{probe.name}: one file", int(size), limits.file_bytes, script)
