"""Runs the application in uvicorn, with the time limits that uvicorn does not have and an orderly shutdown.

A connection has a time limit for its headers, for reading what it is sent, and between requests; the gate limits the
time for a body. On shutdown no new connection is accepted, streams end after their last message, and requests under way
are finished within a time limit.
"""

import asyncio
import contextlib
import os
import resource
import signal
import socket
import stat
from collections.abc import Callable, Generator
from typing import Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from metier import limits
from metier.errors import ConfigError
from metier.web.api import Application

HEADER_SECONDS: Final = 10
"""For the first line and the headers of a request, from its first byte or the start of the connection."""

IDLE_SECONDS: Final = 30
"""Between two requests on one connection."""

STALLED_SECONDS: Final = 30
"""For a client that reads nothing of what it is sent."""

ENDING_SECONDS: Final = 10
"""For requests under way when the server ends."""

CONNECTIONS: Final = 4_000
HEADER_BYTES: Final = 64 * limits.KIB
_BACKLOG: Final = 2_048


class Connection(H11Protocol):
    """A connection that a slow client cannot hold open."""

    _waiting: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    header_seconds: float = HEADER_SECONDS
    stalled_seconds: float = STALLED_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        # An answer is two writes. Without this the second waits until the client has acknowledged the first.
        connected: socket.socket = transport.get_extra_info("socket")
        if connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if _is_answering(self.cycle):
            self._unset("_waiting")
        elif self._waiting is None:
            self._await_headers()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unset("_waiting")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self.stalled_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unset("_stalled")

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset("_waiting")
        self._unset("_stalled")
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        self._waiting = self.loop.call_later(self.header_seconds, self.transport.close)

    def _unset(self, name: str) -> None:
        timer: asyncio.TimerHandle | None = getattr(self, name)
        if timer is not None:
            timer.cancel()
            setattr(self, name, None)


def _is_answering(cycle: RequestResponseCycle | None) -> bool:
    """Whether a request is being answered; uvicorn has no cycle before the first one."""
    return cycle is not None and not cycle.response_complete


class WebServer(uvicorn.Server):
    """A server that lets its streams end before it waits for them."""

    def __init__(self, config: uvicorn.Config, application: Application) -> None:
        super().__init__(config)
        self._application = application
        self.on_start: Callable[[], None] | None = None
        """Called when requests are answered and a signal ends the server in order."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.on_start is not None:
            self.on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._application.end()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """As in uvicorn, but SIGTERM is not raised again afterwards: an orderly shutdown is not a failure."""
        with super().capture_signals():
            yield
            self._captured_signals = [one for one in self._captured_signals if one != signal.SIGTERM]


def make(application: Application, host: str, port: int, proxies: tuple[str, ...] = ()) -> WebServer:
    """A server that has not started. `proxies` are the addresses trusted to report a client's address."""
    config = uvicorn.Config(
        application,
        host=host,
        port=port,
        http=Connection,
        ws="none",
        log_level="warning",
        access_log=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        server_header=False,
        timeout_graceful_shutdown=ENDING_SECONDS,
        timeout_keep_alive=IDLE_SECONDS,
        h11_max_incomplete_event_size=HEADER_BYTES,
        limit_concurrency=CONNECTIONS,
    )
    return WebServer(config, application)


def _allow_files(connections: int) -> None:
    """Raise the limit of open files to allow that many connections; the default is often about a thousand."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 1_000
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def run(server: WebServer, started: Callable[[str], None] | None = None) -> None:
    """Serve until a signal. An address that cannot be used raises `ConfigError` instead of a line in a log."""
    family = socket.AF_INET6 if ":" in server.config.host else socket.AF_INET
    try:
        listening = socket.create_server((server.config.host, server.config.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        where = f"{server.config.host}:{server.config.port}"
        raise ConfigError(f"cannot listen on {where}: {error.strerror or error}", key="port") from error
    host, port = listening.getsockname()[:2]
    _run(server, listening, f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}", started)


def run_on_socket(server: WebServer, path: str, started: Callable[[str], None] | None = None) -> None:
    """Serve on a Unix socket that only its owner can open, until a signal. The socket is removed afterwards."""
    where = os.path.abspath(os.path.expanduser(path))
    try:
        listening = _unix_socket(where)
    except OSError as error:
        raise ConfigError(f"cannot listen on {where}: {error.strerror or error}", key="socket") from error
    try:
        _run(server, listening, where, started)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(where)


def _unix_socket(path: str) -> socket.socket:
    """A listening socket with mode 600 from the start. One that nobody listens on any more is replaced."""
    folder = os.stat(os.path.dirname(path))
    if folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not folder.st_mode & stat.S_ISVTX:
        hint = "choose a folder that only you can write to"
        raise ConfigError(f"{os.path.dirname(path)} lets others replace the socket", key="socket", hint=hint)
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode) and not _is_listening(path):
            os.unlink(path)
    listening = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        listening.bind(path)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    finally:
        os.umask(before)
    return listening


def _is_listening(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return False
        return True


def _run(server: WebServer, listening: socket.socket, where: str, started: Callable[[str], None] | None) -> None:
    _allow_files(CONNECTIONS)
    # Whoever is told of the server may end it at once. Before it handles signals, Python can lose one.
    server.on_start = (lambda: started(where)) if started is not None else None
    with listening, contextlib.suppress(KeyboardInterrupt):
        server.run([listening])
