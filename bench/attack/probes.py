"""Probes of the sandbox: attempts to get out, and attempts to use more than the limits allow.

An attempt is harmless where it succeeds (see tests/sandbox/attempts.py). A probe of a limit takes at most a few times
its limit, and the limits are small, so that a sandbox that does not hold costs no more than some hundred megabytes.
"""

import contextlib
import json
import os
import re
import socket
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

from metier.errors import MetierError
from metier.limits import KIB, MIB
from metier.sandbox import Job, Outcome, RunLimits, Runner, choose, seccomp
from sandbox.attempts import ATTEMPTS, NOTHING, PROJECT, WRITABLE, Attempt
from sandbox.boxes import Box, Listeners, a_victim, as_user, listeners

from . import measure
from .rounds import Round

_NUMBERS: Final = {
    "x86_64": {"clone": 56, "clone3": 435, "ioctl": 16, "socket": 41},
    "aarch64": {"clone": 220, "clone3": 435, "ioctl": 29, "socket": 198},
}

_OTHERS: Final = """
found = []
for pid in os.listdir("/proc"):
    if pid.isdigit() and int(pid) != os.getpid():
        try:
            {do}
        except OSError: pass
return found
"""

MORE: Final = [
    Attempt("memory-of-the-first-process", 'return open("/proc/1/mem", "r+b")', ""),
    Attempt("memory-of-any-process", _OTHERS.format(do='found.append(open("/proc/%s/mem" % pid, "r+b"))'), ""),
    Attempt(
        "memory-of-any-thread",
        _OTHERS.format(
            do='found += [open("/proc/%s/task/%s/mem" % (pid, t), "r+b") for t in os.listdir("/proc/%s/task" % pid)]'
        ),
        "",
    ),
    Attempt(
        "descriptors-of-any-process",
        _OTHERS.format(
            do="""where = "/proc/%s/fd/" % pid
            found += [n for n in os.listdir(where) if "pipe:" not in os.readlink(where + n)]"""
        ),
        "",
    ),
    Attempt(
        "root-of-any-process", _OTHERS.format(do='found += [os.listdir("/proc/%s/root%s" % (pid, A["base"]))]'), ""
    ),
    Attempt(
        "limits-of-the-first-process",
        "import resource; resource.prlimit(1, resource.RLIMIT_NPROC, (4000, 4000)); return True",
        "",
    ),
    Attempt(
        "limits-of-ourselves",
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2); return True",
        "",
    ),
    Attempt(
        "score-of-the-first-process",
        'os.write(os.open("/proc/1/oom_score_adj", os.O_WRONLY), b"-1000"); return True',
        "",
    ),
    Attempt("ids-of-the-first-process", 'os.write(os.open("/proc/1/uid_map", os.O_WRONLY), b"0 0 1"); return True', ""),
    Attempt(
        "host-paths-in-mounts",
        """
names = ["mountinfo", "mounts", "mountstats"]
paths = ["/proc/%s/%s" % (pid, name) for pid in ("self", "1") for name in names]
def of(path):
    try: return content(path)
    except OSError: return b""
return [path for path in paths if A["base"].encode() in of(path)]
""",
        also=PROJECT,
    ),
    Attempt(
        "host-paths-of-any-process",
        """
for pid in os.listdir("/proc"):
    for name in ("environ", "cmdline", "maps", "cgroup", "comm"):
        try:
            if pid.isdigit() and int(pid) != os.getpid() and A["base"].encode() in content("/proc/%s/%s" % (pid, name)):
                return "/proc/%s/%s" % (pid, name)
        except OSError: pass
""",
        "",
        also=PROJECT,
    ),
    Attempt(
        "our-control-group",
        """
lines = content("/proc/self/cgroup").decode().splitlines()
parts = [part for line in lines for part in line.split(":", 2)[2].split("/")]
return [part for part in parts if part not in ("", "..") and not part.startswith("metier-")]
""",
        "",
    ),
    Attempt("control-groups", 'return os.listdir("/sys/fs/cgroup")'),
    Attempt(
        "socket-in-the-project", 'return connect(socket.AF_UNIX, os.environ["PROJECT_DIR"] + "/s")', "", also=PROJECT
    ),
    Attempt(
        "socket-in-a-writable-project",
        'return connect(socket.AF_UNIX, os.environ["PROJECT_DIR"] + "/s")',
        "",
        also=WRITABLE,
    ),
    Attempt(
        "socket-in-the-project-by-another-way",
        """
os.chdir(os.environ["PROJECT_DIR"])
try: return connect(socket.AF_UNIX, "s")
except OSError: pass
fd = os.open("s", os.O_PATH)
return connect(socket.AF_UNIX, "/proc/self/fd/%d" % fd)
""",
        "",
        also=WRITABLE,
    ),
    Attempt(
        "write-to-the-read-only-project",
        'open(os.environ["PROJECT_DIR"] + "/x", "w").close(); return True',
        also=PROJECT,
    ),
    Attempt("secrets-of-the-skill-behind-links", 'return has(os.environ["SKILL_DIR"] + "/link-folder/.ssh/id")'),
    Attempt("files-of-the-skill-through-its-descriptors", 'return has("/proc/self/cwd/../.." + A["secret"])'),
]
"""Further attempts. Those of the tests come first."""

EVERY: Final = [*ATTEMPTS, *MORE]


def runner() -> Runner:
    """The sandbox that is attacked: the one that a user gets."""
    return choose()


# --- attempts ---


def attack(round_: Round) -> None:
    """As many attempts as fit into the round, in an order of its own, the further ones before those of the tests."""
    order = [*_shuffled(range(len(ATTEMPTS), len(EVERY)), round_), *_shuffled(range(len(ATTEMPTS)), round_)]
    box = Box(round_.folder / "box", round_.token)
    os.environ["METIER_SECRET"] = round_.token
    sandbox = runner()
    with listeners(box) as heard, _socket_in(box), a_victim(round_.token) as victim:
        for index in order:
            if not round_.goes_on():
                return
            _attempt(round_, box, sandbox, EVERY[index], _knowledge(box, heard, victim.pid), heard)
            if victim.poll() is not None:
                round_.escape(f"{EVERY[index].name} ended a process of the host", EVERY[index].body)
                return


def _shuffled(numbers: range, round_: Round) -> list[int]:
    return round_.chance.sample(numbers, len(numbers))


def _attempt(round_: Round, box: Box, sandbox: Runner, attempt: Attempt, known: str, heard: Listeners) -> None:
    grant = attempt.also
    job = box.job(
        box.script("attempt.py", attempt.text()),
        stdin=known.encode(),
        limits=RunLimits(seconds=30, processes=24),
        network=grant.network,
        project=str(box.project) if grant.project else None,
        project_writable=grant.project_writable,
    )
    before = box.fingerprint()
    outcome = run(round_, sandbox, job)
    round_.tried()
    if outcome is None:
        return
    script = attempt.body
    got_out = _verdict(outcome)
    if got_out is None:
        round_.found("broken", f"{attempt.name} said nothing: {outcome}", script)
    elif got_out:
        round_.escape(f"{attempt.name} succeeded", script)
    if box.fingerprint() != before:
        round_.escape(f"{attempt.name} changed files of the host", script)
    if reached := heard.heard():
        round_.escape(f"{attempt.name} reached services of the host: {reached}", script)
    carried = b"".join(file.data for file in outcome.files) + outcome.stdout
    if attempt.also == NOTHING:
        round_.secret_in(attempt.name, carried, script)


def run(round_: Round, sandbox: Runner, job: Job) -> Outcome | None:
    """Run a job as the identity, and check that nothing of it is left when it returns."""
    try:
        outcome = as_user(round_.identity, lambda: sandbox.run(job))
    except MetierError as error:
        round_.found("broken", f"a run could not start: {error} {getattr(error, 'tried', '')}")
        return None
    if left := measure.inside(os.getpid()):
        round_.found("survivor", f"{len(left)} processes are left when a run returns")
    return outcome


def _verdict(outcome: Outcome) -> bool | None:
    if not outcome.stdout and outcome.exit_code == 128 + 31:
        return False  # killed by the filter
    try:
        return bool(json.loads(outcome.stdout)[0])
    except ValueError:
        return None


def _knowledge(box: Box, heard: Listeners, victim: int) -> str:
    """Everything that an attacker could want to know about the host."""
    machine = seccomp.machine()
    assert machine is not None
    return json.dumps(
        {
            "token": box.token,
            "base": str(box.base),
            "secret": str(box.secret),
            "home": str(box.base / "home"),
            "project": str(box.project),
            "host": os.getpid(),
            "victim": victim,
            "tcp": heard.tcp.getsockname()[1],
            "tcp6": heard.tcp6.getsockname()[1] if heard.tcp6 else 0,
            "udp": heard.udp.getsockname()[1],
            "abstract": heard.abstract_name,
            "nr": {**seccomp.denied(machine), **_NUMBERS[machine]},
        }
    )


@contextlib.contextmanager
def _socket_in(box: Box) -> Generator[None, None, None]:
    """A service of the host whose socket lies in the project."""
    with socket.socket(socket.AF_UNIX) as service:
        here = os.open(box.project, os.O_RDONLY)
        service.bind(f"/proc/self/fd/{here}/s")  # the whole path may be too long for an address
        os.close(here)
        os.chmod(box.project / "s", 0o777)
        service.listen()
        yield


# --- limits ---

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
file = os.open("/work/f", os.O_CREAT | os.O_RDWR)
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


def exceed(round_: Round) -> None:
    """Probes of limits, those of the round's number first."""
    box = Box(round_.folder / "box", round_.token)
    sandbox = runner()
    start = round_.number * 3
    for step in range(len(LIMIT_PROBES)):
        if step and not round_.goes_on():
            return
        _exceed(round_, box, sandbox, LIMIT_PROBES[(start + step) % len(LIMIT_PROBES)])


def _exceed(round_: Round, box: Box, sandbox: Runner, probe: LimitProbe) -> None:
    limits, script = probe.limits, probe.body
    job = box.job(box.script("probe.py", probe.text()), limits=limits)
    with measure.measured() as peaks:
        outcome = run(round_, sandbox, job)
    round_.tried()
    if outcome is None:
        return
    if not peaks.tasks and b"held" not in outcome.stdout and probe.name not in ("one-large-file", "output"):
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
