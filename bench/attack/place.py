"""The places that are attacked, with secrets around them, and the doors into Metier: Python, JSON-RPC, MCP and HTTP.

A secret is a file that holds the token of the round. None of the paths holds it, so that a message that repeats a path
is no secret. Servers are forked from this process, as the identity of the round.
"""

import contextlib
import http.client
import json
import os
import re
import secrets
import select
import signal
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from metier import Skills
from metier.hosts import profiles
from metier.testing import write_skill

from ..walk import processes
from .boxes import NOBODY
from .rounds import Round, own

SECONDS: Final = 40.0
"""How long an answer may take on a busy machine."""
Json = dict[str, Any]


def become(identity: str) -> None:
    """Give up the rights of root for good, if the identity is an ordinary user."""
    if identity == "nobody":
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


@contextlib.contextmanager
def beside(identity: str, work: Callable[[float], None]) -> Generator[None, None, None]:
    """A second process of that identity, which works until the block ends. It gets the time at which it gives up."""
    child = os.fork()
    if not child:
        try:
            become(identity)
            work(time.monotonic() + 120)
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@dataclass
class Place:
    """A home, a project and secrets, for one round."""

    round: Round
    name: str = "place"

    def __post_init__(self) -> None:
        self.base = self.round.folder / self.name
        self.home, self.project = self.base / "home", self.base / "project"
        for folder in ("home/.ssh", "home/.config/metier", "project/.git/hooks", "outside"):
            (self.base / folder).mkdir(parents=True)
        self.secrets = [self.base / "secret.txt", self.home / ".ssh" / "id", self.base / "outside" / "a.md"]
        for secret in self.secrets:
            secret.write_text(f"{self.round.token}\n")

    def config(self, text: str) -> None:
        """The user's own configuration."""
        (self.home / ".config" / "metier" / "config.toml").write_text(text)

    def skill(self, where: str, files: Mapping[str, str | bytes] | None = None, **given: Any) -> Path:
        """Write a skill; `~/` is the home, anything else lies in the project."""
        base = self.home / where[2:] if where.startswith("~/") else self.project / where
        return Path(write_skill(base, files=files, **given)).parent

    def hand_over(self) -> None:
        """Give everything to the identity that uses it."""
        own(self.base, self.round.identity)

    def options(self, *, store: bool = True, profile: str = "") -> list[str]:
        given = ["--cwd", str(self.project), "--home", str(self.home)]
        given += ["--store", f"sqlite:///{self.base}/events.db"] if store else []
        return given + (["--profile", profile] if profile else [])

    def surroundings(self, **env: str) -> processes.Surroundings:
        errors = self.base / f"stderr-{secrets.token_hex(4)}"
        return processes.Surroundings(str(self.project), {"HOME": str(self.home), **env}, str(errors))

    def discover(self, profile: str = "standard", **given: Any) -> Skills:
        return Skills.discover(self.project, home=self.home, profile=profile, env={}, **given)

    def start(self, arguments: list[str], surroundings: processes.Surroundings) -> processes.Child:
        """Start a command of Metier as the identity of the round."""

        def work() -> int:
            become(self.round.identity)
            return processes.run(arguments)

        return processes.fork(work, surroundings)


def home_roots(profile: str) -> list[str]:
    """The folders below the home in which a profile looks for skills."""
    rules = profiles.build(profiles.override(profiles.load(profile), {"enabled": True}, origin="the attack").raw)
    on = dict(rules.toggles)
    found = [root for root in rules.roots if root.at == "home" and not root.registry]
    named = [path.removeprefix("~/") for path in rules.directories if path.startswith("~/")]
    return [root.path for root in found if root.toggle in ("", "any") or on.get(root.toggle)] + named


@dataclass
class Lines:
    """A server on a pipe: `metier rpc` or `metier mcp`. Lines are sent as they are."""

    child: processes.Child
    errors: Path
    _buffer: bytes = b""
    _last: int = 0
    log: list[str] = field(default_factory=list[str])

    def send(self, data: bytes) -> None:
        """Send bytes without waiting for good, while answers are taken in."""
        deadline = time.monotonic() + SECONDS
        os.set_blocking(self.child.stdin, False)
        while data:
            left = max(0.0, deadline - time.monotonic())
            reads, writes, _ = select.select([self.child.stdout], [self.child.stdin], [], left)
            if reads:
                self._take()
            if writes:
                with contextlib.suppress(BlockingIOError):
                    data = data[os.write(self.child.stdin, data[:65536]) :]
            if not reads and not writes:
                raise processes.Gone("it does not read")

    def receive(self) -> Any:
        """The next message."""
        deadline = time.monotonic() + SECONDS
        while b"\n" not in self._buffer:
            if not select.select([self.child.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise processes.Gone("it did not answer in time")
            self._take()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def _take(self) -> None:
        chunk = os.read(self.child.stdout, 1 << 20)
        if not chunk:
            raise processes.Gone(f"it ended with {self.child.wait()}")
        self._buffer += chunk

    def ask(self, method: str, params: object) -> Json:
        """Send a request and return its answer. Questions of the server are answered with an error."""
        self._last += 1
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        self.send(json.dumps(message).encode() + b"\n")
        return self.answer(self._last)

    def answer(self, number: object) -> Json:
        while True:
            message = self.receive()
            if isinstance(message, dict) and "method" in message and "id" in message:
                refused = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}
                self.send(json.dumps(refused).encode() + b"\n")
            elif isinstance(message, dict) and message.get("id") == number:
                return message


@contextlib.contextmanager
def lines(place: Place, command: str) -> Generator[Lines, None, None]:
    """`metier rpc` or `metier mcp`, as the identity of the round."""
    surroundings = place.surroundings()
    child = place.start([command, *place.options()], surroundings)
    server = Lines(child, Path(surroundings.errors))
    try:
        if command == "mcp":
            hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "0"}}
            server.ask("initialize", hello)
            server.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        yield server
    finally:
        child.kill()


@dataclass
class Web:
    """A running `metier serve`."""

    child: processes.Child
    errors: Path
    port: int
    token: str

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """One request on its own connection: the status and the body of its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        given = {"authorization": f"Bearer {self.token}"} if token else {}
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        if data is not None:
            given["content-type"] = "application/json"
        try:
            connection.request(method, path, body=data, headers={**given, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def json(self, method: str, path: str, body: object = None) -> Any:
        status, content = self.request(method, path, body)
        if status >= 400:
            raise processes.Gone(f"{method} {path}: {status} {content[:300]!r}")
        return json.loads(content)


@contextlib.contextmanager
def web(place: Place) -> Generator[Web, None, None]:
    """`metier serve` with a token, as the identity of the round."""
    token = secrets.token_hex(16)
    surroundings = place.surroundings(METIER_TOKEN=token)
    child = place.start(["serve", "--port", "0", *place.options()], surroundings)
    errors = Path(surroundings.errors)
    try:
        deadline = time.monotonic() + SECONDS
        while not (found := re.search(r"http://[\w.\[\]:]*?:(\d+)", _text(errors))):
            if time.monotonic() > deadline or _ended(child):
                raise processes.Gone(f"the server did not start: {_text(errors)[-500:]}")
            time.sleep(0.01)
        yield Web(child, errors, int(found[1]), token)
    finally:
        child.kill()


def _ended(child: processes.Child) -> bool:
    pid, status = os.waitpid(child.pid, os.WNOHANG)
    if pid:
        child.code = os.waitstatus_to_exitcode(status)
    return bool(pid)


def _text(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text(errors="replace")
    return ""


def tracebacks(round_: Round, errors: Path, where: str) -> None:
    """Report an error that nobody foresaw."""
    text = _text(errors)
    # The parser of requests, at the end of a connection that it has given up. The server goes on.
    if "Traceback" in text and "h11._util.LocalProtocolError" not in text:
        shown = text[text.index("Traceback") :]
        last = next((line for line in shown.splitlines()[1:] if line and not line.startswith(" ")), "")
        round_.found("broken", f"{where} printed a traceback: {last}\n{shown[:3_000]}")
