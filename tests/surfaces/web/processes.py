"""A real server for tests: `metier serve` in a process of its own, and a client for it."""

import asyncio
import contextlib
import functools
import json
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import IO, Any, ParamSpec

import httpx2

import forking
from metier.app import App
from metier.surfaces.web import server
from metier.surfaces.web.api import build
from metier.surfaces.web.guard import Gate
from patience import PATIENCE
from worlds import World

JsonObject = dict[str, Any]
P = ParamSpec("P")


class Process:
    """A running server: its address, its process, the token that it asks for, and a client that has it."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, token: str = "", link: str = "") -> None:
        self.process, self.url, self.token, self.link = process, url, token, link
        self.host, port = url.removeprefix("http://").rsplit(":", 1)
        self.port = int(port)
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._clients: list[httpx2.Client] = []
        self.client, self.stranger = self.connected(), self.browser()

    def connected(self) -> httpx2.Client:
        """A client with the token. It is closed with the server."""
        self._clients.append(httpx2.Client(base_url=self.url, headers=self.headers, timeout=PATIENCE, trust_env=False))
        return self._clients[-1]

    def browser(self) -> httpx2.Client:
        """A client without the token, which can sign in. It is closed with the server."""
        self._clients.append(httpx2.Client(base_url=self.url, timeout=PATIENCE, trust_env=False))
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.close()

    @property
    def line(self) -> str:
        """The header that carries the token, for requests that are written by hand."""
        return f"authorization: Bearer {self.token}\r\n" if self.token else ""

    def connect(self, timeout: float = 120) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=timeout)

    def begin(self) -> str:
        return self.client.post("/api/sessions").json()["session_id"]

    def call(self, session: str, tool: str, **args: object) -> JsonObject:
        answer = self.client.post(f"/api/sessions/{session}/call", json={"tool": tool, "args": args})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def frames(self, session: str) -> list[JsonObject]:
        return self.client.get(f"/api/sessions/{session}/events").json()

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def serve(
    world: World, *more: str, store: str = "memory:", env: dict[str, str] | None = None
) -> Generator[Process, None, None]:
    """A running server, with the token that it makes or that `env` gives it.

    Its further output is written to `serve.log` in the home folder.
    """
    place = ["--cwd", str(world.project), "--home", str(world.home), "--store", store]
    command = [*forking.METIER, "serve", "--port", "0", *place, *more]
    process = forking.start(command, stderr=subprocess.PIPE, env={**os.environ, **(env or {})})
    assert process.stderr is not None
    log = Path(world.home, "serve.log")
    copy = threading.Thread(target=_copy, args=(process.stderr, log), daemon=True)
    running: Process | None = None
    try:
        said = b""
        while not (found := re.search(rb"listening on (http://\S+)\n", said)):
            line = process.stderr.readline()
            assert line, f"the server did not start: {said.decode()}"
            said += line
        url, token = found[1].decode(), (env or {}).get("METIER_TOKEN", "")
        link = ""
        if not token and "--no-token" not in more:
            link = process.stderr.readline().decode().strip().removeprefix("to sign in, open ")
            token = token_of(world)
        running = Process(process, url, token, link)
        copy.start()
        yield running
    finally:
        if running is not None:
            running.close()
        if process.poll() is None:
            process.kill()
        process.wait()
        if running is not None:
            copy.join()
        process.stderr.close()


@contextlib.contextmanager
def running(app: App, gate: Gate | None = None) -> Generator[tuple[server.WebServer, str], None, None]:
    """A server in a thread of this process, and its URL. The app is closed with the server."""
    made = server.make(build(app, gate, watch=False), "127.0.0.1", 0)
    listening = server.listen("127.0.0.1", 0)
    thread = threading.Thread(target=made.run, args=([listening],))
    thread.start()
    try:
        yield made, f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        made.should_exit = True
        thread.join()
        listening.close()
        app.close()


def token_of(world: World) -> str:
    """The token that servers of this user share."""
    return Path(world.home, ".config/metier/token").read_text().strip()


def _copy(source: IO[bytes], target: Path) -> None:
    with contextlib.suppress(ValueError), target.open("ab") as kept:
        for line in source:
            kept.write(line)
            kept.flush()


def awaited(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run an asynchronous test, within a minute."""

    @functools.wraps(test)
    def run(*given: P.args, **named: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(60):
                await test(*given, **named)

        asyncio.run(bounded())

    return run


def messages(lines: Iterator[str]) -> Iterator[JsonObject]:
    """The messages of a stream of server-sent events, without its comments."""
    fields: dict[str, str] = {}
    for line in lines:
        if line and not line.startswith(":"):
            key, _, value = line.partition(": ")
            fields[key] = value
        elif not line and fields:
            yield {"id": int(fields["id"]), "event": fields["event"], "data": json.loads(fields["data"])}
            fields = {}
