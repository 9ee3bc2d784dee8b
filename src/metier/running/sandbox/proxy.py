"""The filtering proxy: the only way from a sandbox to the network, and only to the hosts that a job lists.

It runs in threads of the host and accepts connections on a socket in the sandbox's own network namespace (see
`stage.py`). It understands CONNECT and plain HTTP requests. Names are resolved here, once: the address that was
checked is the one that is connected to. Addresses that are not on the public internet are refused, unless a rule names
that very address. A redirect is nothing special: the script makes a new request, which is checked like any other.

The invariant: no connection is made before its host, port and address were checked, and each attempt is counted.
"""

import contextlib
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Sequence
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
    """The proxy of one run."""

    def __init__(
        self,
        listener: socket.socket,
        hosts: HostList,
        *,
        private: bool = False,
        resolver: Resolver | None = None,
    ) -> None:
        self._listener, self._hosts, self._private = listener, hosts, private
        self._resolve = resolver or resolve
        self._lock = threading.Lock()
        self._free = threading.Semaphore(CONNECTIONS)
        self._sockets: set[socket.socket] = {listener}
        self._threads: set[threading.Thread] = set()
        self._closed = False
        self._new: list[HostAttempt] = []
        self._count = 0
        self._begin(self._accept)

    def attempts(self) -> list[HostAttempt]:
        """The attempts since the last call, as long as there are not too many."""
        with self._lock:
            found, self._new = self._new, []
            return found

    @property
    def left_out(self) -> int:
        """How many attempts are not reported."""
        return max(0, self._count - ATTEMPTS)

    def close(self) -> None:
        """End every connection. What still waits for a name server connects to nothing."""
        with self._lock:
            self._closed = True
            sockets, threads = list(self._sockets), list(self._threads)
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._free.release()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._listener.close()

    # --- threads and sockets ---

    def _begin(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        def body() -> None:
            try:
                with contextlib.suppress(OSError, EOFError):  # one side went away
                    work(*arguments)
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        thread = threading.Thread(target=body, name="metier-proxy", daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        while self._free.acquire() and not self._closed:
            connection, _ = self._listener.accept()
            self._begin(self._serve, connection)

    @contextlib.contextmanager
    def _kept(self, one: socket.socket) -> Generator[None]:
        """Close a socket at the end of the context, and at the end of the run at the latest."""
        with one:
            with self._lock:
                if self._closed:
                    raise OSError("the run has ended")
                self._sockets.add(one)
            try:
                yield
            finally:
                with self._lock:
                    self._sockets.discard(one)

    # --- one connection of the script ---

    def _serve(self, connection: socket.socket) -> None:
        try:
            with self._kept(connection):
                incoming = _Incoming(connection)
                host, port = "", 0
                try:
                    request = read_request(incoming.head())
                    host, port = request.host, request.port
                    self._check(host, port)
                    server = self._connected(host, port)
                except BadProxyRequest as error:
                    self._note("", 0, "bad-request")
                    _answer(connection, b"400 Bad Request", str(error))
                except _Refused as error:
                    self._note(host, port, error.reason, allowed=error.allowed)
                    status = b"502 Bad Gateway" if error.allowed else b"403 not an allowed host"
                    _answer(connection, status, f"{shown(host, port)} {error.message}")
                else:
                    with self._kept(server):
                        self._note(host, port)
                        self._pass_on(request, incoming, server)
        finally:
            self._free.release()

    def _note(self, host: str, port: int, reason: str = "", *, allowed: bool | None = None) -> None:
        attempt = HostAttempt(host, port, not reason if allowed is None else allowed, reason)
        with self._lock:
            self._count += 1
            if self._count <= ATTEMPTS:
                self._new.append(attempt)

    def _check(self, host: str, port: int) -> None:
        if self._hosts.denies(host, port):
            raise _Refused("denied", "is a host that a rule denies to this script")
        if not self._hosts.allows(host, port):
            raise _Refused("not-listed", "is not among the hosts that this script may connect to")

    def _connected(self, host: str, port: int) -> socket.socket:
        """A connection to an address of the host that was checked."""
        addresses = [host]  # a rule names this very address
        if not is_address(host):
            try:
                addresses = list(self._resolve(host, port))
                public = all(is_public(parse_address(address)) for address in addresses)
            except (OSError, ValueError) as error:
                raise _Refused("unresolved", "has no known address", allowed=True) from error
            if not public and not self._private:
                raise _Refused("private-address", "has an address that is not on the public internet")
        for address in addresses[:_ADDRESSES]:
            with contextlib.suppress(OSError):
                return self._dial(address, port)
        raise _Refused("unreachable", "cannot be reached", allowed=True)

    def _dial(self, address: str, port: int) -> socket.socket:
        server = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            with self._lock:
                if self._closed:
                    raise OSError("the run has ended")
                self._sockets.add(server)  # the end of the run ends the attempt as well
            server.settimeout(CONNECT_SECONDS)
            server.connect((address, port))
            server.settimeout(None)
        except OSError:
            with self._lock:
                self._sockets.discard(server)
            server.close()
            raise
        return server

    # --- bytes ---

    def _pass_on(self, request: ProxyRequest, incoming: "_Incoming", server: socket.socket) -> None:
        script = incoming.connection
        if request.tunnel:
            script.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            server.sendall(request.head)
        back = self._begin(_copy_all, server, script)
        try:
            if request.tunnel:
                self._tunnel(request, incoming, server)
            else:
                _send_body(request, incoming, server)
        except BaseException:
            for one in (server, script):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            raise
        finally:
            back.join()

    def _tunnel(self, request: ProxyRequest, incoming: "_Incoming", server: socket.socket) -> None:
        """Pass on what the script sends, if it begins with TLS for the host of the tunnel.

        On other ports than 80 and 443, which a rule must name, other protocols may be spoken, too.
        """
        first = incoming.peek()
        if first[:1] == b"\x16" or (first and request.port in DEFAULT_PORTS):
            try:
                raw, name = read_hello(incoming.exactly)
                meant = canonical_host(name) if name else ""
            except (NoClientHello, ValueError) as error:
                self._note(request.host, request.port, "not-tls")
                raise EOFError from error
            if meant != ("" if is_address(request.host) else request.host):
                self._note(meant or request.host, request.port, "other-host")
                raise EOFError
            server.sendall(raw)
        while piece := incoming.some():
            server.sendall(piece)
        server.shutdown(socket.SHUT_WR)


def _send_body(request: ProxyRequest, incoming: "_Incoming", server: socket.socket) -> None:
    """Pass on the body and not a byte more: what follows would be another request."""
    incoming.pass_on(request.length, server)
    while request.chunked:
        line = incoming.line()
        if not _CHUNK_SIZE.fullmatch(line):
            raise EOFError
        size = int(line, 16)
        server.sendall(b"%x\r\n" % size)
        incoming.pass_on(size, server)
        if incoming.line():  # after the last chunk, headers could follow here, which nobody needs
            raise EOFError
        server.sendall(b"\r\n")
        if not size:
            return


def _copy_all(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(_CHUNK):
            target.sendall(piece)
    finally:
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def _answer(connection: socket.socket, status: bytes, text: str) -> None:
    body = f"metier: {text}\n".encode()
    head = b"HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n" % (status, len(body))
    connection.sendall(head + b"Connection: close\r\n\r\n" + body)
    connection.shutdown(socket.SHUT_WR)
    # Closing a socket with unread bytes would reset it, and the script would not see the answer.
    connection.settimeout(1.0)
    for _ in range(16):
        if not connection.recv(_CHUNK):
            return


class _Incoming:
    """What the script sends, with a buffer for what was read too early."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._buffer = b""

    def head(self) -> bytes:
        """The head of a request, without the empty line at its end."""
        deadline = time.monotonic() + HEAD_SECONDS
        while b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > HEAD_BYTES:
                raise BadProxyRequest("the head of the request is too long")
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.connection.settimeout(left)
            piece = self.connection.recv(_CHUNK)
            if not piece:
                raise EOFError
            self._buffer += piece
        self.connection.settimeout(None)
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        if len(head) > HEAD_BYTES:
            raise BadProxyRequest("the head of the request is too long")
        return head

    def peek(self) -> bytes:
        """The first bytes of what comes next. Empty at the end."""
        if not self._buffer:
            self._buffer = self.connection.recv(_CHUNK)
        return self._buffer[:1]

    def some(self, most: int = _CHUNK) -> bytes:
        """What is there, at most so many bytes. Empty at the end."""
        self.peek()
        piece, self._buffer = self._buffer[:most], self._buffer[most:]
        return piece

    def pass_on(self, count: int, server: socket.socket) -> None:
        """Pass on exactly so many bytes."""
        while count:
            piece = self.some(count)
            if not piece:
                raise EOFError
            server.sendall(piece)
            count -= len(piece)

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.some(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def line(self) -> bytes:
        data = b""
        while not data.endswith(b"\r\n"):
            data += self.exactly(1)
            if len(data) > 64:
                raise EOFError
        return data[:-2]


# --- the way to it from a sandbox ---


def proxy_variables(job: Job) -> dict[str, str]:
    """The variables by which programs find the proxy. Some read only one spelling of a name.

    What a script itself serves in its sandbox is reached without the proxy, unless a rule gives it that host.
    """
    address = f"http://127.0.0.1:{PROXY_PORT}"
    listed = HostList.parse(job.hosts).allowed
    own = ",".join(name for name in ("localhost", "127.0.0.1") if not any(one.names(name) for one in listed))
    named = {"http_proxy": address, "https_proxy": address, "all_proxy": address, "no_proxy": own}
    return named | {name.upper(): value for name, value in named.items()} | {"NODE_USE_ENV_PROXY": "1"}


@contextlib.contextmanager
def a_proxy(job: Job, first: int, resolver: Resolver | None) -> Generator[HostProxy | None]:
    """Run the proxy of a job, if it lists hosts, for the sandbox whose first process is `first`."""
    if not job.hosts:
        yield None
        return
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
