"""Runs the application in uvicorn, with its limits, on an address or a socket, until a signal.

Requests are read by h11, which has a limit for headers and refuses what two servers could read differently. On shutdown
no new connection is accepted, streams end after their last message, and requests under way are finished within a time
limit.
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

from metier import limits
from metier.errors import ConfigError
from metier.surfaces.web.api import Application

IDLE_SECONDS: Final = 30
"""Between two requests on one connection."""

ENDING_SECONDS: Final = 10
"""For requests under way when the server ends."""

CONNECTIONS: Final = 4_000
HEADER_BYTES: Final = 64 * limits.KIB
"""For the first line and the headers of a request, while they have not arrived whole."""

SETTLED_SECONDS: Final = 60
"""After that, what is in memory is mostly modules and the catalog, which stay."""

_BACKLOG: Final = 2_048


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


def make(application: Application, host: str, port: int) -> WebServer:
    """A server that has not started."""
    config = uvicorn.Config(
        application,
        host=host,
        port=port,
        http="h11",
        ws="none",
        log_level="warning",
        access_log=False,
        forwarded_allow_ips="*",  # all that follows is whether a cookie of the client's own is for TLS only
        server_header=False,
        timeout_graceful_shutdown=ENDING_SECONDS,
        timeout_keep_alive=IDLE_SECONDS,
        limit_concurrency=CONNECTIONS,
        h11_max_incomplete_event_size=HEADER_BYTES,
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


def run(server: WebServer, started: Callable[[str], None] | None = None, path: str = "") -> None:
    """Serve until a signal, on the server's address or on a Unix socket at `path`. `started` gets where it listens.

    A place that cannot be used raises `ConfigError` instead of a line in a log.
    """
    where = os.path.abspath(os.path.expanduser(path)) if path else f"{server.config.host}:{server.config.port}"
    try:
        listening = _unix_socket(where) if path else listen(server.config.host, server.config.port)
    except OSError as error:
        reason, key = error.strerror or error, "socket" if path else "port"
        raise ConfigError(f"cannot listen on {where}: {reason}", key=key) from error
    if not path:
        host, port = listening.getsockname()[:2]
        where = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def on_start() -> None:
        # The garbage collector looks at all of it again and again otherwise: 0.2 s at a time with 10,000 skills.
        asyncio.get_running_loop().call_later(SETTLED_SECONDS, gc.freeze)
        if started is not None:
            started(where)

    _allow_files(CONNECTIONS)
    # Whoever is told of the server may end it at once. Before it handles signals, Python can lose one.
    server.on_start = on_start
    try:
        with listening, contextlib.suppress(KeyboardInterrupt):
            server.run([listening])
    finally:
        if path:
            with contextlib.suppress(OSError):
                os.unlink(where)


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    # An answer is two writes. Without this the second waits until the client has acknowledged the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


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
