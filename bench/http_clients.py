"""HTTP clients for load: many connections of one process, each with one request under way at a time.

A client that costs more than the server would measure itself. This one writes requests that were encoded before, reads
answers by their `Content-Length`, and keeps nothing but how long each took, so one core makes about 15,000 requests a
second. It runs in a process of its own: `python -m bench.http_clients` reads a plan and writes figures.
"""

import json
import os
import random
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which servers to ask for what, by how many connections and for how long. Connections take the targets in turn."""

    targets: Sequence[tuple[str, int]]
    requests: Sequence[Sequence[str]]
    """Lists of requests, which connections take in turn, too. Each sends requests of its list at random."""
    connections: int
    seconds: float
    warm_up: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the clients saw. Times are in milliseconds."""

    requests: int
    seconds: float
    p50: float
    p99: float
    refused: int
    """Answers other than 200."""
    failed: int
    """Connections that broke."""

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


def request(method: str, path: str, token: str, body: Mapping[str, object] | None = None) -> str:
    """The text of a request, with all its headers."""
    content = "" if body is None else json.dumps(body)
    kind = f"Content-Type: application/json\r\nContent-Length: {len(content.encode())}\r\n" if content else ""
    allowed = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{allowed}{kind}\r\n{content}"


def measure(plan: Plan) -> Measured:
    """Run a plan in a process of its own."""
    command = [sys.executable, "-m", "bench.http_clients"]
    done = subprocess.run(
        command, input=json.dumps(asdict(plan)), capture_output=True, text=True, cwd=ROOT, check=False
    )
    if done.returncode:
        raise AssertionError(f"the clients ended early: {done.stderr}")
    return Measured(**json.loads(done.stdout))


class _Client:
    """One connection."""

    def __init__(self, target: tuple[str, int], requests: Sequence[bytes], choice: random.Random) -> None:
        self._requests, self._choice = requests, choice
        self.socket = socket.create_connection(target, timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read, self._length = bytearray(), -1
        self.begun = 0.0

    def send(self) -> None:
        self._read.clear()
        self._length = -1
        self.begun = time.perf_counter()
        self.socket.sendall(self._choice.choice(self._requests))

    def receive(self) -> int:
        """Read what is there. Return the status once the answer is whole, and 0 before that."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError
        self._read += data
        if self._length < 0:
            end = self._read.find(b"\r\n\r\n")
            if end < 0:
                return 0
            head = bytes(self._read[:end]).lower()
            place = head.index(b"content-length:") + 15
            self._length = end + 4 + int(head[place:].split(b"\r\n", 1)[0])
        return int(self._read[9:12]) if len(self._read) >= self._length else 0


def run(plan: Plan) -> Measured:
    """Run a plan here. What happens in the time to warm up is not counted."""
    choice = random.Random(1)
    lists = [[one.encode() for one in requests] for requests in plan.requests]
    clients = [
        _Client(plan.targets[number % len(plan.targets)], lists[number % len(lists)], choice)
        for number in range(plan.connections)
    ]
    times: list[float] = []
    refused = failed = 0
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.send()
        start = time.perf_counter() + plan.warm_up
        end = now = start + plan.seconds
        while selector.get_map() and (now := time.perf_counter()) < end:
            for key, _ in selector.select(end - now):
                client: _Client = key.data
                try:
                    status = client.receive()
                    if not status:
                        continue
                    ended = time.perf_counter()
                    if ended > start:
                        times.append(ended - client.begun)
                        refused += status != 200
                    client.send()
                except OSError:
                    failed += 1
                    selector.unregister(client.socket)
    for client in clients:
        client.socket.close()
    ordered = sorted(times) or [0.0]
    return Measured(
        requests=len(times),
        seconds=max(now - start, plan.seconds),
        p50=ordered[len(ordered) // 2] * 1e3,
        p99=ordered[int(len(ordered) * 0.99)] * 1e3,
        refused=refused,
        failed=failed,
    )


def main() -> None:
    given: dict[str, Any] = json.load(sys.stdin)
    given["targets"] = [(host, port) for host, port in given["targets"]]
    json.dump(asdict(run(Plan(**given))), sys.stdout)


if __name__ == "__main__":
    main()
