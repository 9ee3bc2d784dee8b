"""Attempts of a script that may connect to a few hosts to reach others; see bench/attack/host_attempts.py.

Every other run sends the proxy requests that are put together at random from parts of valid and invalid ones.
"""

import json
from dataclasses import replace
from typing import Final

from metier.running.sandbox import RunLimits, Runner
from metier.running.sandbox.bubblewrap import BubblewrapRunner

from . import probes
from .boxes import Box
from .host_attempts import LISTED_NAMES, SCRIPT, Heard, services, to_this_machine
from .rounds import Round

_SECONDS: Final = 30.0
_REQUESTS: Final = 100

_AT_RANDOM: Final = r"""
import json, os, random, socket, sys
A = json.load(sys.stdin)
chance = random.Random(A["seed"])
listed, other = b"127.0.0.1:%d" % A["open"], b"127.0.0.1:%d" % A["port"]
hosts = [other, b"evil.test", b"api.test:%d" % A["port"], b"[::1]:%d" % A["port"], b"2130706433:%d" % A["port"], listed]
joints = [b"", b"@", b":", b",", b" ", b"\t", b"%00", b"\\", b"#", b"?", b"/", b"\r", b"\n", b"\x00", b"\xff", b"."]
ends = [b"\r\n"] * 6 + [b"\n", b"\r", b"\r\r\n", b"\x0b", b"\r\n "]
def host():
    parts = [chance.choice(hosts) for _ in range(chance.choice((1, 1, 1, 2)))]
    return chance.choice(joints).join(parts)
def request():
    method = chance.choice([b"GET", b"POST", b"CONNECT", b"CONNECT", b"HEAD", b"PRI"])
    scheme = chance.choice([b"http://"] * 4 + [b"", b"https://", b"HTTP://", b"http:/", b"//", b"http://x@"])
    target = host() if method == b"CONNECT" else scheme + host() + b"/"
    data = method + b" " + target + b" HTTP/1." + chance.choice([b"1", b"1", b"0", b"2"]) + chance.choice(ends)
    for _ in range(chance.randrange(4)):
        name = chance.choice([b"Host", b"Host", b"host ", b" Host", b"Content-Length", b"Transfer-Encoding", b"X", b""])
        value = chance.choice([host(), b"5", b"chunked", b"0", b"-1", b"a" * chance.choice((1, 9000, 40000))])
        if name == b"X":
            value = b"own"  # a header that leads nowhere may name any host
        data += name + b": " + value + chance.choice(ends)
    data += b"\r\n" + chance.choice([b"", b"5\r\nhello\r\n0\r\n\r\n", b"hello"])
    if method == b"CONNECT" or chance.random() < 0.5:
        return data  # what goes through a tunnel to the listed host is its own affair
    return data + b"GET / HTTP/1.1\r\nHost: evil.test\r\nX-Smuggled: yes\r\n\r\n"
tried = 0
for _ in range(A["count"]):
    try:
        with socket.create_connection(("127.0.0.1", 3128), 5) as proxy:
            proxy.sendall(request())
            proxy.shutdown(socket.SHUT_WR)
            proxy.settimeout(0.5)
            proxy.recv(4096)
    except OSError:
        pass
    tried += 1
print(json.dumps([tried, [], []]))
"""


def runner() -> Runner:
    """The sandbox that is attacked, for which every name is this machine."""
    return BubblewrapRunner(resolver=to_this_machine)


def attack(round_: Round) -> None:
    box = Box(round_.folder / "box", round_.token)
    sandbox = runner()
    while round_.goes_on():
        with services(str(box.base), round_.token) as heard:
            _run(round_, box, sandbox, heard)
        (box.base / "hosts.sock").unlink()
        if heard.reached:
            round_.escape(f"services of the host were reached: {heard.reached[:5]}", SCRIPT)
        if leaks := heard.leaks():
            round_.escape(f"a listed host was sent what is for another: {leaks[:3]}", SCRIPT)


def _run(round_: Round, box: Box, sandbox: Runner, heard: Heard) -> None:
    at_random = round_.attempts > 0 or round_.turn % 2
    known = json.loads(heard.knowledge()) | {"seed": round_.chance.random(), "count": _REQUESTS}
    script = _AT_RANDOM if at_random else SCRIPT
    job = box.job(
        box.script("attempts.py", script), stdin=json.dumps(known).encode(), limits=RunLimits(seconds=_SECONDS)
    )
    outcome = probes.run(round_, sandbox, replace(job, hosts=(*LISTED_NAMES, f"127.0.0.1:{heard.open}")))
    if outcome is None:
        return
    try:
        tried, got, _ = json.loads(outcome.stdout)
    except ValueError:
        round_.found("broken", f"the attempts said nothing: {outcome}", script)
        return
    round_.tried(tried)
    for what, answer in got:
        round_.escape(f"{what} succeeded: {answer}", script)
