"""A local HTTP server that offers skills, counts connections and misbehaves on request."""

import contextlib
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Generator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from metier.files.digests import digest_of
from metier.sources.install.fetch import INDEX, SCHEMA

Answer = Callable[[BaseHTTPRequestHandler], None]


class Site:
    """The pages of the server by path, and the requests it got."""

    def __init__(self, server: ThreadingHTTPServer, scheme: str = "http", host: str = "127.0.0.1") -> None:
        self.url = f"{scheme}://{host}:{server.server_address[1]}"
        self.pages: dict[str, bytes | Answer] = {}
        self.asked: list[str] = []
        self.connections = 0

    def offer(self, name: str, data: bytes, *, type: str = "archive", url: str = "") -> None:  # noqa: A002
        """Serve an artifact, and an index that lists only it."""
        url = url or f"{name}.bin"
        path = f"/.well-known/agent-skills/{url}"
        self.pages.setdefault(path, data)
        digest = digest_of(data)
        self.index({"name": name, "type": type, "description": "x", "url": url, "digest": digest})

    def index(self, *entries: Mapping[str, str], schema: str | None = SCHEMA) -> None:
        document: dict[str, object] = {"skills": list(entries), **({"$schema": schema} if schema else {})}
        self.pages[INDEX] = json.dumps(document).encode()

    def redirect(self, path: str, target: str) -> None:
        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(302)
            handler.send_header("Location", target)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        self.pages[path] = answer


@contextlib.contextmanager
def serving(certificate: Path | None = None) -> Generator[Site, None, None]:
    """Run a site. With a certificate it uses TLS."""

    class Handler(BaseHTTPRequestHandler):
        def setup(self) -> None:
            site.connections += 1
            super().setup()

        def do_GET(self) -> None:
            site.asked.append(self.path)
            page = site.pages.get(self.path)
            if callable(page):
                page(self)
                return
            self.send_response(200 if page is not None else 404)
            self.send_header("Content-Length", str(len(page or b"")))
            self.end_headers()
            self.wfile.write(page or b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = False
        block_on_close = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # clients that hang up are part of the tests

    server = Server(("127.0.0.1", 0), Handler)
    site = Site(server, "https", "localhost") if certificate else Site(server)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def certificate(folder: Path) -> Path:
    """Create an untrusted certificate for localhost, with its key, in one file."""
    key, made, both = folder / "key.pem", folder / "cert.pem", folder / "both.pem"
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    line += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(made)]
    subprocess.run(line, check=True, capture_output=True)
    both.write_bytes(key.read_bytes() + made.read_bytes())
    return both


class Listener:
    """A port that counts the connections to it."""

    def __init__(self, server: socket.socket) -> None:
        self.port = int(server.getsockname()[1])
        self._server = server

    def count(self) -> int:
        """How many connections there were since the last call."""
        count = 0
        with contextlib.suppress(TimeoutError):
            while True:
                self._server.accept()[0].close()
                count += 1
        return count


@contextlib.contextmanager
def listener() -> Generator[Listener, None, None]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        yield Listener(server)
