"""A real HTTP server on this machine that offers skills, counts who connects, and misbehaves on request."""

import contextlib
import hashlib
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from metier.install.fetch import INDEX, SCHEMA

Answer = Callable[[BaseHTTPRequestHandler], None]


class Site:
    """What is served, by path, and what was asked."""

    def __init__(self, server: ThreadingHTTPServer, scheme: str = "http", host: str = "127.0.0.1") -> None:
        self.url = f"{scheme}://{host}:{server.server_address[1]}"
        self.pages: dict[str, bytes | Answer] = {}
        self.asked: list[str] = []
        self.connections = 0

    def offer(self, name: str, data: bytes, *, type: str = "archive", url: str = "", **entry: Any) -> None:  # noqa: A002
        """Serve an artifact, and an index with it alone."""
        url = url or f"{name}.bin"
        path = f"/.well-known/agent-skills/{url}"
        self.pages.setdefault(path, data)
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.index({"name": name, "type": type, "description": "x", "url": url, "digest": digest, **entry})

    def index(self, *entries: Any, schema: str | None = SCHEMA) -> None:
        document: dict[str, Any] = {"skills": list(entries)} | ({"$schema": schema} if schema else {})
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
    """A site for the time of a block; with a certificate it speaks TLS."""

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

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = False
        block_on_close = True

        def handle_error(self, request: Any, client_address: Any) -> None:
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
    """A new certificate for localhost that nobody trusts, with its key, in one file."""
    key, made, both = folder / "key.pem", folder / "cert.pem", folder / "both.pem"
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    line += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(made)]
    subprocess.run(line, check=True, capture_output=True)
    both.write_bytes(key.read_bytes() + made.read_bytes())
    return both


@contextlib.contextmanager
def listener() -> Generator[Callable[[], int], None, None]:
    """A port that counts who knocks; the answer is how many there were."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)

        def knocks() -> int:
            count = 0
            with contextlib.suppress(TimeoutError):
                while True:
                    server.accept()[0].close()
                    count += 1
            return count

        knocks.port = server.getsockname()[1]  # type: ignore[attr-defined]
        yield knocks
