"""Tests on this machine whether a runner keeps its promises, by trying to break them.

A script tries to break each promise from the inside. The host checks the result from the outside too: a file that must
not be read or changed, and listeners that must receive nothing. The invariant: a promise counts as kept only if the
script ran, reported that its attempt failed, and the host saw no effect. A missing report counts as broken.
Every attempt is harmless if it succeeds, because a runner without a sandbox is tested too.
"""

import json
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, NamedTuple

from metier.errors import MetierError
from metier.files.shapes import is_list, is_table
from metier.files.text import from_utf8
from metier.limits import MIB
from metier.running.sandbox import Job, Outcome, RunLimits, Runner


class ProbeFinding(NamedTuple):
    """One promise, whether it was kept, and the evidence."""

    promise: str
    held: bool
    detail: str


_LIMITS: Final = RunLimits(seconds=20, memory_bytes=256 * MIB, processes=16, work_bytes=8 * MIB, file_bytes=4 * MIB)

_INSIDE: Final = """
import ctypes, errno, json, os, socket, sys

attempts, secret, outside, tcp, udp, host, own = sys.argv[1:]
report = {}


def attempt(name, code):
    try:
        done = eval(code)
    except BaseException as error:
        report[name] = [False, type(error).__name__ + ": " + str(error)[:80]]
    else:
        report[name] = [bool(done), str(done)[:80]]


def write(path):
    with open(path, "w") as file:
        file.write("changed")
    return path


def connect():
    with socket.create_connection(("127.0.0.1", int(tcp)), 2) as stream:
        stream.sendall(b"got out")
    return "connected"


def datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
        stream.sendto(b"got out", ("127.0.0.1", int(udp)))
    return "sent"


def mount():
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mount(b"none", b"/there/is/no/such/folder", b"tmpfs", 0, None)
    return "" if ctypes.get_errno() == errno.EPERM else "the kernel took the call"


def forks():
    made = 0
    children = []
    try:
        for _ in range(64):
            child = os.fork()
            if child == 0:
                import time
                time.sleep(3)
                os._exit(0)
            children.append(child)
            made += 1
    except OSError:
        pass
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
    return made if made >= 16 else ""


def fill():
    written = 0
    for number in range(8):
        with open("fill%d" % number, "wb") as file:
            try:
                written += file.write(b"x" * (3 << 20))
                file.flush()
            except OSError:
                written -= 3 << 20
                break
    for number in range(8):
        if os.path.exists("fill%d" % number):
            os.unlink("fill%d" % number)
    return written if written > 8 << 20 else ""


harmless = set("null zero full random urandom tty console pts ptmx fd stdin stdout stderr shm mqueue core".split())


def privileges():
    if not os.path.exists("/proc/self/status"):
        return "root" if os.getuid() == 0 else ""
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file if ":" in line)
    gained = [key for key in ("CapEff", "CapPrm", "CapBnd") if int(status[key], 16)]
    return gained or ("root" if os.getuid() == 0 else "")


for name, code in json.loads(attempts).items():
    attempt(name, code)
print(json.dumps(report))
"""

_PROMISES: Final = {
    "read": ("files of the host cannot be read", "open(secret).read()"),
    "write": ("files of the host cannot be written", "write(outside)"),
    "own": ("the skill cannot change itself", 'write(os.path.join(os.environ["SKILL_DIR"], "changed"))'),
    "home": ("home folders are not visible", 'len(os.listdir("/root" if os.path.isdir("/root") else "/home"))'),
    "environment": (
        "only granted variables are in the environment",
        '[name for name in os.environ if name not in own.split(",")]',
    ),
    "tcp": ("no TCP connection, not even to this machine", "connect()"),
    "udp": ("no UDP packet, not even to this machine", "datagram()"),
    "process": (
        "processes of the host are not visible",
        'os.path.exists("/proc/" + host) and os.kill(int(host), 0) is None',
    ),
    "privileges": ("no privileges, not root", "privileges()"),
    "mount": ("nothing can be mounted", "mount()"),
    "device": ("no devices", 'len(set(os.listdir("/dev")) - harmless)'),
    "forks": ("the number of processes is limited", "forks()"),
    "memory": ("memory is limited", "len(bytearray(400 << 20))"),
    "fill": ("the size of the work folder is limited", "fill()"),
}
"""What is promised, and the attempt to break it, as the script evaluates it."""
_VARIABLES: Final = "PATH,HOME,TMPDIR,LANG,LC_CTYPE,SKILL_DIR,WORK_DIR,PWD,OLDPWD,SHLVL,_"


def examine(runner: Runner) -> list[ProbeFinding]:
    """Try to break out of a runner. This takes a few hundred milliseconds and leaves nothing behind."""
    with ExitStack() as stack:
        base = stack.enter_context(tempfile.TemporaryDirectory(prefix="metier-probe-"))
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        skill = os.path.join(base, "skill")
        os.mkdir(skill)
        _write(os.path.join(skill, "probe.py"), _INSIDE)
        _write(os.path.join(skill, "linger.sh"), "#!/bin/sh\n(sleep 30) &\nsleep 30\n")
        secret, outside = os.path.join(base, "secret"), os.path.join(base, "outside")
        _write(secret, token := secrets.token_hex(16))
        _write(outside, "untouched")
        for listener in (tcp, udp):
            listener.settimeout(0.05)
        ports = [str(listener.getsockname()[1]) for listener in (tcp, udp)]
        attempts = json.dumps({name: code for name, (_, code) in _PROMISES.items()})
        arguments = [attempts, secret, outside, *ports, str(os.getpid()), _VARIABLES]
        try:
            outcome = runner.run(Job(skill, "probe.py", arguments, limits=_LIMITS))
        except MetierError as error:
            return [ProbeFinding("a script can be run", False, str(error))]
        seen = {
            "read": lambda: token.encode() in outcome.stdout,
            "write": lambda: _read(outside) != "untouched",
            "own": lambda: os.path.exists(os.path.join(skill, "changed")),
            "tcp": lambda: _received(lambda: tcp.accept()[0].close()),
            "udp": lambda: _received(lambda: udp.recv(64)),
        }
        return [*_judge(outcome, seen), _ends_in_time(runner, skill)]


def _judge(outcome: Outcome, seen: dict[str, Callable[[], bool]]) -> list[ProbeFinding]:
    try:
        report: object = json.loads(outcome.stdout)
    except ValueError:
        report = None
    if not is_table(report):
        why = from_utf8(outcome.stderr).strip()[-200:] or f"status {outcome.exit_code}"
        return [ProbeFinding(promise, False, f"the probe did not report: {why}") for promise, _ in _PROMISES.values()]
    findings: list[ProbeFinding] = []
    for name, (promise, _) in _PROMISES.items():
        succeeded, detail = _attempt(report.get(name))
        if name in seen and seen[name]():
            succeeded, detail = True, "seen from the outside"
        findings.append(ProbeFinding(promise, not succeeded, detail))
    return findings


def _attempt(reported: object) -> tuple[bool, str]:
    """Whether an attempt succeeded, and its detail, as the script reported it."""
    if not is_list(reported) or len(reported) != 2:
        return True, "not reported"
    return reported[0] is not False, str(reported[1])


def _ends_in_time(runner: Runner, skill: str) -> ProbeFinding:
    started = time.monotonic()
    outcome = runner.run(Job(skill, "linger.sh", limits=RunLimits(seconds=0.5)))
    took = time.monotonic() - started
    return ProbeFinding(
        "a script ends at its time limit", outcome.ended == "timeout" and took < 10, f"after {took:.1f} s"
    )


def _received(receive: Callable[[], object]) -> bool:
    try:
        receive()
    except OSError:
        return False
    return True


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
