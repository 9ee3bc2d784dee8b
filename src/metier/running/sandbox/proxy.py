"""The filtering proxy: the only way from a sandbox to the network, and only to the hosts that a job lists.

It runs in a thread of the host and accepts connections on a socket in the sandbox's own network namespace (see
`stage.py`). It understands CONNECT and plain HTTP requests. Names are resolved here, once: the address that was
checked is the one that is connected to. Addresses that are not on the public internet are refused, unless a rule names
that very address. A redirect is nothing special: the script makes a new request, which is checked like any other.

The invariant: no connection is made before its host, port and address were checked, and each attempt is counted.
"""

import asyncio
import contextlib
import functools
import os
import re
import socket
import subprocess
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import Final

from metier.files.addresses import is_public, parse_address
from metier.limits import KIB
from metier.running.sandbox import HostAttempt, Job, SandboxUnavailable
from metier.running.sandbox.interpreter import own_program, own_python
from metier.running.sandbox.proxy_input import (
    HEAD_BYTES,
    BadProxyRequest,
    NoClientHello,
    ProxyRequest,
    read_hello,
    read_request,
)
from metier.values.network import DEFAULT_PORTS, PROXY_PORT, HostList, canonical_host, is_address, shown

Resolver = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a name. Raises `OSError` if there are none."""

_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]

CONNECTIONS: Final = 32
"""Connections at a time. Further ones wait."""
ATTEMPTS: Final = 100
"""Attempts of one run that are reported. The rest is counted."""
HEAD_SECONDS: Final = 15.0
CONNECT_SECONDS: Final = 10.0
_ADDRESSES: Final = 4
"""Addresses of a name that are tried."""
_CHUNK: Final = 64 * KIB
_CLOSE_SECONDS: Final = 2.0
_LISTENER_SECONDS: Final = 20.0
_CHUNK_SIZE: Final = re.compile(rb"[0-9a-fA-F]{1,8}")


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, as the system knows them."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))


class _Refused(Exception):
    """The request is not passed on. `allowed` says that a rule would allow it, so that something else is wrong."""

    def __init__(self, reason: str, message: str, *, allowed: bool = False) -> None:
        super().__init__(message)
        self.reason, self.message, self.allowed = reason, message, allowed


class HostProxy:
    """The proxy of one run, in a thread and an event loop of its own."""

    def __init__(
        self,
        listener: socket.socket,
        hosts: HostList,
        *,
        private: bool = False,
        resolver: Resolver | None = None,
    ) -> None:
        self._hosts, self._private = hosts, private
        self._resolve = resolver or resolve
        self._new = deque[HostAttempt]()
        self._count = 0
        self._free = asyncio.Semaphore(CONNECTIONS)
        self._serving: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(listener,), name="metier-proxy", daemon=True)
        self._thread.start()

    def attempts(self) -> list[HostAttempt]:
        """The attempts since the last call, as long as there are not too many."""
        return [self._new.popleft() for _ in range(len(self._new))]

    @property
    def left_out(self) -> int:
        """How many attempts are not reported."""
        return max(0, self._count - ATTEMPTS)

    def close(self) -> None:
        """End every connection. What still waits for a name server connects to nothing."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._end)
        self._thread.join(_CLOSE_SECONDS)

    def _end(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _run(self, listener: socket.socket) -> None:
        with (
            contextlib.suppress(OSError, asyncio.CancelledError),
            listener,
            asyncio.Runner(loop_factory=lambda: self._loop) as runner,
        ):
            runner.run(self._accept(listener))

    async def _accept(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        while await self._free.acquire():
            connection, _ = await self._loop.sock_accept(listener)
            task = self._loop.create_task(self._serve(connection))
            self._serving.add(task)
            task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        self._free.release()

    # --- one connection of the script ---

    async def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):  # one side went away
            async with _stream(await asyncio.open_connection(sock=connection, limit=HEAD_BYTES)) as script:
                host, port = "", 0
                try:
                    request = read_request(await _head(script[0]))
                    host, port = request.host, request.port
                    self._check(host, port)
                    opened = await self._connected(host, port)
                except BadProxyRequest as error:
                    self._note("", 0, "bad-request")
                    await _answer(script, b"400 Bad Request", str(error))
                except _Refused as error:
                    self._note(host, port, error.reason, allowed=error.allowed)
                    status = b"502 Bad Gateway" if error.allowed else b"403 not an allowed host"
                    await _answer(script, status, f"{shown(host, port)} {error.message}")
                else:
                    async with _stream(opened) as server:
                        self._note(host, port)
                        await self._pass_on(request, script, server)

    def _note(self, host: str, port: int, reason: str = "", *, allowed: bool | None = None) -> None:
        attempt = HostAttempt(host, port, not reason if allowed is None else allowed, reason)
        self._count += 1
        if self._count <= ATTEMPTS:
            self._new.append(attempt)

    def _check(self, host: str, port: int) -> None:
        if self._hosts.denies(host, port):
            raise _Refused("denied", "is a host that a rule denies to this script")
        if not self._hosts.allows(host, port):
            raise _Refused("not-listed", "is not among the hosts that this script may connect to")

    async def _connected(self, host: str, port: int) -> _Stream:
        """A connection to an address of the host that was checked."""
        addresses = [host]  # a rule names this very address
        if not is_address(host):
            try:
                addresses = list(await self._addresses(host, port))
                public = all(is_public(parse_address(address)) for address in addresses)
            except (OSError, ValueError) as error:
                raise _Refused("unresolved", "has no known address", allowed=True) from error
            if not public and not self._private:
                raise _Refused("private-address", "has an address that is not on the public internet")
        for address in addresses[:_ADDRESSES]:
            with contextlib.suppress(OSError):
                return await asyncio.wait_for(self._dial(address, port), CONNECT_SECONDS)
        raise _Refused("unreachable", "cannot be reached", allowed=True)

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        """Ask for the addresses in a thread that holds up nothing, not even the end of this process."""
        found: asyncio.Future[Sequence[str]] = self._loop.create_future()

        def tell(answer: Callable[[], None]) -> None:
            if not found.done():
                answer()

        def work() -> None:
            try:
                addresses = self._resolve(host, port)
                answer = functools.partial(found.set_result, addresses)
            except (OSError, ValueError) as error:
                answer = functools.partial(found.set_exception, error)
            with contextlib.suppress(RuntimeError):  # the run has ended
                self._loop.call_soon_threadsafe(tell, answer)

        threading.Thread(target=work, name="metier-proxy", daemon=True).start()
        return await found

    async def _dial(self, address: str, port: int) -> _Stream:
        return await asyncio.open_connection(address, port)

    # --- bytes ---

    async def _pass_on(self, request: ProxyRequest, script: _Stream, server: _Stream) -> None:
        if request.tunnel:
            await _send(script, b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            await _send(server, request.head)
        back = self._loop.create_task(_copy_all(server[0], script))
        try:
            if request.tunnel:
                await self._tunnel(request, script[0], server)
            else:
                await _send_body(request, script[0], server)
            await back
        finally:
            back.cancel()

    async def _tunnel(self, request: ProxyRequest, script: asyncio.StreamReader, server: _Stream) -> None:
        """Pass on what the script sends, if it begins with TLS for the host of the tunnel.

        On other ports than 80 and 443, which a rule must name, other protocols may be spoken, too.
        """
        first = await script.read(1)
        if first == b"\x16" or (first and request.port in DEFAULT_PORTS):
            try:
                first, name = await read_hello(first, script.readexactly)
                meant = canonical_host(name) if name else ""
            except (NoClientHello, ValueError) as error:
                self._note(request.host, request.port, "not-tls")
                raise EOFError from error
            if meant != ("" if is_address(request.host) else request.host):
                self._note(meant or request.host, request.port, "other-host")
                raise EOFError
        await _send(server, first)
        await _copy_all(script, server)


@contextlib.asynccontextmanager
async def _stream(stream: _Stream) -> AsyncGenerator[_Stream]:
    """Close a connection at the end of the context: what was written arrives, unless the context failed."""
    try:
        yield stream
        stream[1].close()
        await stream[1].wait_closed()
    finally:
        stream[1].transport.abort()


async def _send(stream: _Stream, data: bytes) -> None:
    stream[1].write(data)
    await stream[1].drain()


async def _send_body(request: ProxyRequest, script: asyncio.StreamReader, server: _Stream) -> None:
    """Pass on the body and not a byte more: what follows would be another request."""
    await _copy(script, server, request.length)
    while request.chunked:
        line = await _line(script)
        if not _CHUNK_SIZE.fullmatch(line):
            raise EOFError
        size = int(line, 16)
        await _send(server, b"%x\r\n" % size)
        await _copy(script, server, size)
        if await _line(script):  # after the last chunk, headers could follow here, which nobody needs
            raise EOFError
        await _send(server, b"\r\n")
        if not size:
            return


async def _copy(source: asyncio.StreamReader, target: _Stream, count: int) -> None:
    """Pass on exactly so many bytes."""
    while count:
        piece = await source.read(min(count, _CHUNK))
        if not piece:
            raise EOFError
        await _send(target, piece)
        count -= len(piece)


async def _copy_all(source: asyncio.StreamReader, target: _Stream) -> None:
    with contextlib.suppress(OSError):
        while piece := await source.read(_CHUNK):
            await _send(target, piece)
    with contextlib.suppress(OSError):
        target[1].write_eof()


async def _head(script: asyncio.StreamReader) -> bytes:
    """The head of a request, without the empty line at its end."""
    try:
        head = await asyncio.wait_for(script.readuntil(b"\r\n\r\n"), HEAD_SECONDS)
    except asyncio.LimitOverrunError as error:
        raise BadProxyRequest("the head of the request is too long") from error
    return head[:-4]


async def _line(script: asyncio.StreamReader) -> bytes:
    try:
        line = await script.readuntil(b"\r\n")
    except asyncio.LimitOverrunError as error:
        raise EOFError from error
    return line[:-2]


async def _answer(script: _Stream, status: bytes, text: str) -> None:
    body = f"metier: {text}\n".encode()
    head = b"HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n" % (status, len(body))
    await _send(script, head + b"Connection: close\r\n\r\n" + body)
    script[1].write_eof()
    # Closing a socket with unread bytes would reset it, and the script would not see the answer.
    for _ in range(16):
        if not await asyncio.wait_for(script[0].read(_CHUNK), 1.0):
            return


# --- the way to it from a sandbox ---


@contextlib.contextmanager
def a_proxy(job: Job, first: int, resolver: Resolver | None) -> Generator[HostProxy]:
    """Run the proxy of a job for the sandbox whose first process is `first`."""
    listener = _listener(first)
    proxy = HostProxy(listener, HostList.parse(job.hosts), private=job.private_hosts, resolver=resolver)
    try:
        yield proxy
    finally:
        proxy.close()


def _listener(first: int) -> socket.socket:
    with contextlib.ExitStack() as stack:
        ours, theirs = socket.socketpair()
        stack.callback(ours.close)
        stack.callback(theirs.close)
        try:
            namespace = os.open(f"/proc/{first}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, namespace)
            done = subprocess.run(  # noqa: S603
                [own_python(), "-I", "-S", "-c", own_program("stage.py"), "listen", str(namespace), str(PROXY_PORT)],
                stdin=theirs.fileno(),
                capture_output=True,
                env={},
                cwd="/",
                pass_fds=[namespace],
                timeout=_LISTENER_SECONDS,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise SandboxUnavailable(f"the sandbox has no way to the network: {error}") from error
        theirs.close()
        _, descriptors, _, _ = socket.recv_fds(ours, 16, 1)
        if not descriptors:
            why = done.stderr.decode("utf-8", "replace").strip() or f"status {done.returncode}"
            raise SandboxUnavailable(f"the sandbox has no way to the network: {why}")
        return socket.socket(fileno=descriptors[0])
