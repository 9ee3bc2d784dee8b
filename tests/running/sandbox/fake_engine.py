"""A container engine for tests that starts nothing: it answers as Docker or Podman, or wrongly, as a test wants it."""

import contextlib
import json
import re
import socketserver
import struct
import tempfile
import threading
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

GOOD: dict[str, Any] = {
    "program": "/usr/bin/python3",
    "machine": "x86_64",
    "status": {
        **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0000000000000000"),
        "NoNewPrivs": "1",
        "Seccomp": "2",
        "Uid": "65532\t65532\t65532\t65532",
    },
    "pid": 1,
    "processes": [1],
    "memory_protected": True,
    "root_read_only": True,
    "skill_read_only": True,
    "writable": ["/dev/shm", "/tmp", "/work"],
    "shown": [],
    "sizes": {"/work": 4096, "/tmp": 4096},
    "memory_limit": 1 << 30,
    "process_limit": 65,
    "kills_counted": True,
    "interfaces": ["lo"],
    "devices": ["null", "shm"],
}
"""What the first process of a container reports in which everything is in force."""


class Line:
    """The first process of a container that does not exist, as it speaks with the host."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self._in, self._out = handler.rfile, handler.wfile

    def receive(self) -> tuple[bytes, bytes]:
        """The next frame of the host; empty at the end."""
        head = self._in.read(5)
        return (head[:1], self._in.read(struct.unpack(">I", head[1:])[0])) if len(head) == 5 else (b"", b"")

    def expect(self, kind: bytes) -> bytes:
        while (frame := self.receive())[0] not in (kind, b""):
            pass
        return frame[1]

    def raw(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._out.write(data)
            self._out.flush()

    def engine(self, data: bytes, stream: int = 1) -> None:
        self.raw(struct.pack(">BxxxI", stream, len(data)) + data)

    def send(self, kind: bytes, content: bytes = b"") -> None:
        self.engine(kind + struct.pack(">I", len(content)) + content)


Speaks = Callable[[Line], None]


def well_behaved(line: Line) -> None:
    started(line)
    line.send(b"O", b"hello\n")
    line.send(b"X", b'{"code": 0, "ended": ""}')
    line.send(b".")


def started(line: Line, report: dict[str, Any] | None = None) -> None:
    """Report, and wait for the word to start."""
    line.expect(b"J")
    line.send(b"R", json.dumps(GOOD if report is None else report).encode())
    line.expect(b"G")


class FakeEngine:
    """The state of the engine, and the answers that a test replaces."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.containers: dict[str, dict[str, Any]] = {}
        self.volumes: dict[str, dict[str, Any]] = {}
        self.started: list[str] = []
        self.name = "Engine"
        self.speaks: Speaks = well_behaved
        self.inspected: Callable[[dict[str, Any]], object] = lambda found: found
        self.answers: dict[str, bytes] = {}
        """A raw answer by method and the end of the path, such as `POST /containers/create`."""

    def inspect(self, name: str) -> object:
        made = self.containers[name]
        host = {"PidMode": "", "UTSMode": "", "Privileged": False, "CapAdd": None, "MaskedPaths": ["/proc/kcore"]}
        host |= made["HostConfig"]
        mounts = [
            {"Type": "volume", "Name": one["Source"], "Destination": one["Target"], "RW": not one.get("ReadOnly")}
            for one in made["HostConfig"]["Mounts"]
        ]
        return self.inspected({"Config": {"User": made.get("User")}, "HostConfig": host, "Mounts": mounts})


class _Handler(BaseHTTPRequestHandler):
    engine: FakeEngine

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        self.close_connection = True
        with contextlib.suppress(BrokenPipeError):  # the host has heard enough
            self.answer()

    def answer(self) -> None:
        address = urlsplit(self.path)
        raw = next(
            (a for key, a in self.engine.answers.items() if re.fullmatch(key, f"{self.command} {address.path}")), None
        )
        size = int(self.headers.get("Content-Length") or 0)
        if address.path.endswith("/attach"):
            if raw is not None:
                self.wfile.write(raw)
                return
            self.wfile.write(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
            self.wfile.flush()
            self.engine.speaks(Line(self))
            return
        body = self.rfile.read(size)
        status, found = self.act(address.path, parse_qs(address.query), body)
        if raw is not None:
            self.wfile.write(raw)
            return
        data = json.dumps(found).encode() if found is not None else b""
        head = f"HTTP/1.1 {status} Answer\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        self.wfile.write(head.encode() + data)

    def act(self, path: str, query: dict[str, list[str]], body: bytes) -> tuple[int, object]:
        engine, words = self.engine, path.strip("/").split("/")
        match (self.command, *words):
            case ("GET", "version"):
                return 200, {"Components": [{"Name": engine.name, "Version": "1"}]}
            case ("GET", "images", *_):
                return 200, {"Id": "sha256:1"}
            case ("GET", "containers", "json"):
                return 200, [{"Id": name, "Labels": made["Labels"]} for name, made in engine.containers.items()]
            case ("GET", "volumes"):
                return 200, {"Volumes": [{"Name": name, **made} for name, made in engine.volumes.items()] or None}
            case ("POST", "volumes", "create"):
                made = json.loads(body)
                engine.volumes[made["Name"]] = {"Labels": made["Labels"]}
                return 201, made
            case ("POST", "containers", "create"):
                engine.containers[query["name"][0]] = json.loads(body)
                return 201, {"Id": query["name"][0]}
            case ("GET", "containers", name, "json"):
                return 200, engine.inspect(name)
            case ("POST", "containers", name, "start"):
                engine.started.append(name)
                return 204, None
            case ("DELETE", "containers" | "volumes" as kind, name):
                gone = (engine.containers if kind == "containers" else engine.volumes).pop(name, None)
                return (204, None) if gone is not None else (404, {"message": "no such thing"})
            case _:
                return 200, None


@contextlib.contextmanager
def a_fake_engine() -> Generator[FakeEngine]:
    with tempfile.TemporaryDirectory(prefix="metier-engine-") as folder:
        engine = FakeEngine(str(Path(folder, "engine.sock")))
        handler = type("Handler", (_Handler,), {"engine": engine})
        with socketserver.ThreadingUnixStreamServer(engine.path, handler) as server:
            server.daemon_threads, server.block_on_close = True, False
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
            thread.start()
            try:
                yield engine
            finally:
                server.shutdown()
                thread.join()
