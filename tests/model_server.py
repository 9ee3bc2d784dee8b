"""The server on a loopback port that stands in for a model's provider. What it answers is the test's business."""

import contextlib
import json
import threading
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextlib.contextmanager
def serving(answer: Callable[[str, Any], tuple[bytes, str]]) -> Generator[str, None, None]:
    """The address of a server that answers the path and the JSON of a request with bytes and their content type."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.reply(json.dumps({"data": [], "models": []}).encode(), "application/json")

        def do_HEAD(self) -> None:
            self.reply(b"", "text/plain")

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
            try:
                body = json.loads(data or b"{}")
            except ValueError:
                body = {}
            self.reply(*answer(self.path, body))

        def reply(self, data: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.send_header("connection", "close")
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True  # a host may keep a connection open on which it asks nothing
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
