"""Runs the application in uvicorn, with the time limits that uvicorn does not have and an orderly shutdown.

A connection has a time limit for its headers, for reading what it is sent, and between requests; the gate limits the
time for a body. On shutdown no new connection is accepted, streams end after their last message, and requests under way
are finished within a time limit.
"""

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import stat
from collections.abc import Callable, Generator
from typing import Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from metier import limits
from metier.errors import ConfigError
from metier.surfaces.web.api import Application

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
"""For the first line and the headers of a request."""

PIPELINED: Final = 1_000
"""Requests of one connection that wait for the answer to the first. A client that sends more is cut off."""

SETTLED_SECONDS: Final = 60
"""After that, what is in memory is mostly modules and the catalog, which stay."""

_BACKLOG: Final = 2_048


class Connection(HttpToolsProtocol):
    """A connection that a slow client cannot hold open, and that takes no endless headers."""

    _waiting: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _in_message = _in_head = False
    """Whether a request has begun to arrive, and whether its headers are still to come."""
    _head_bytes = _begun = 0
    """The bytes of these headers so far, and how many requests began in what was received last."""
    header_seconds: float = HEADER_SECONDS
    stalled_seconds: float = STALLED_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        # An answer is two writes. Without this the second waits until the client has acknowledged the first.
        connected: socket.socket = transport.get_extra_info("socket")
        if connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        is_head, self._begun = self._in_head or not self._in_message, 0
        super().data_received(data)
        if self._in_head:
            # Where another request ended or began in the same data, what is counted begins with the next.
            self._head_bytes += len(data) if is_head and self._begun < 2 else 0
            if self._head_bytes > HEADER_BYTES:
                self._refuse()
        if _is_answering(self.cycle):
            self._stop_waiting()
        elif self._waiting is None:
            self._await_headers()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_message = self._in_head = True
        self._head_bytes, self._begun = 0, self._begun + 1

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value.strip(b" \t"))  # the parser removes only what precedes a value

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
        if not self.url.startswith(b"/"):
            self.scope["path"] = self.url.decode("ascii")  # a whole URL names a host, too, and the gate refuses it
        if len(self.pipeline) > PIPELINED:
            self.transport.abort()

    def on_message_complete(self) -> None:
        self._in_message = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._stop_waiting()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self.stalled_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end_stall()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._end_stall()
        super().connection_lost(exc)

    def _refuse(self) -> None:
        if not self.transport.is_closing():
            self.send_400_response("The headers are too long.")

    def _await_headers(self) -> None:
        self._waiting = self.loop.call_later(self.header_seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _end_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


def _is_answering(cycle: RequestResponseCycle | None) -> bool:
    """Whether a request is being answered; uvicorn has no cycle before the first one."""
    return cycle is not None and not cycle.response_complete


class WebServer(uvicorn.Server):
    """A server that lets its streams end before it waits for them."""

    def __init__(self, config: uvicorn.Config, application: Application) -> None:
        super().__init__(config)
        self.application = application
        self.on_start: Callable[[], None] | None = None
        """Called when requests are answered and a signal ends the server in order."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.on_start is not None:
            self.on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.application.end()
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
    def on_start() -> None:
        # The garbage collector looks at all of it again and again otherwise: 0.2 s at a time with 10,000 skills.
        asyncio.get_running_loop().call_later(SETTLED_SECONDS, gc.freeze)
        if started is not None:
            started(where)

    _allow_files(CONNECTIONS)
    # Whoever is told of the server may end it at once. Before it handles signals, Python can lose one.
    server.on_start = on_start
    with listening, contextlib.suppress(KeyboardInterrupt):
        server.run([listening])
