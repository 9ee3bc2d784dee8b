"""A scripted model server for tests: real HTTP on loopback and the wire protocol of /v1/chat/completions.

It streams chunks as such servers do, calls tools, and misbehaves on demand: errors, silence, an answer that is cut off,
chunks that are not JSON. It keeps every request.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Reply = Callable[["Handler"], None]
JsonObject = dict[str, Any]


def chunk(delta: Mapping[str, object], finish: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "scripted", "choices": [choice]}
    return f"data: {json.dumps(body)}\n\n"


DONE = "data: [DONE]\n\n"


def text(*pieces: str, finish: str | None = "stop") -> Reply:
    """An answer in pieces."""
    said = (chunk({"role": "assistant", "content": piece}) for piece in pieces)
    return raw(*said, chunk({}, finish) if finish else "", DONE)


def calls(*wanted: tuple[str, object], say: str = "") -> Reply:
    """Tool calls, their arguments in two pieces; arguments that are text are sent as they are."""

    def reply(handler: "Handler") -> None:
        handler.begin()
        if say:
            handler.send(chunk({"role": "assistant", "content": say}))
        for index, (name, given) in enumerate(wanted):
            arguments = given if isinstance(given, str) else json.dumps(given)
            number = len(handler.owner.requests)
            start = {"index": index, "id": f"call-{number}-{index}", "type": "function"}
            handler.send(chunk({"tool_calls": [{**start, "function": {"name": name, "arguments": arguments[:3]}}]}))
            rest = {"index": index, "function": {"arguments": arguments[3:]}}
            handler.send(chunk({"tool_calls": [rest]}))
        handler.send(chunk({}, "tool_calls"), DONE)
        handler.end()

    return reply


def status(code: int, message: str = "no luck", headers: dict[str, str] | None = None) -> Reply:
    """An error before any answer; the client is told not to try again by itself."""

    def reply(handler: "Handler") -> None:
        body = json.dumps({"error": {"message": message, "type": "scripted"}}).encode()
        handler.send_response(code)
        for name, value in {"x-should-retry": "false", **(headers or {})}.items():
            handler.send_header(name, value)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return reply


def raw(*lines: str, ends: bool = True) -> Reply:
    """A stream of these lines that ends properly, or whose connection closes before it has ended."""

    def reply(handler: "Handler") -> None:
        handler.begin()
        handler.send(*lines)
        if ends:
            handler.end()

    return reply


def cut(piece: str) -> Reply:
    """An answer that breaks off in the middle."""
    return raw(chunk({"role": "assistant", "content": piece}), ends=False)


def held(gate: threading.Event, piece: str = "") -> Reply:
    """An answer that starts, and continues when the gate is opened or the server ends."""

    def reply(handler: "Handler") -> None:
        handler.begin()
        if piece:
            handler.send(chunk({"role": "assistant", "content": piece}))
        handler.owner.wait(gate)
        handler.send(chunk({"content": "the end"}), chunk({}, "stop"), DONE)
        handler.end()

    return reply


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def owner(self) -> "ModelServer":
        assert isinstance(self.server, _Server)
        return self.server.owner

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        reply = self.owner.take(json.loads(data), dict(self.headers), self.path)
        self.close_connection = True
        with contextlib.suppress(OSError):  # the client may have disconnected
            reply(self)

    def do_GET(self) -> None:
        """The list of models."""
        self.owner.listed.append(dict(self.headers))
        body = json.dumps({"object": "list", "data": [{"id": name} for name in self.owner.models]}).encode()
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def send(self, *pieces: str) -> None:
        for piece in pieces:
            if piece:
                data = piece.encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()

    def end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the standard library
        """Log nothing, to keep the output of the tests clean."""


class _Server(ThreadingHTTPServer):
    owner: "ModelServer"


class ModelServer:
    """Follows its script, one reply per request. The last one is repeated."""

    def __init__(self, *script: Reply) -> None:
        self.script: list[Reply] = list(script)
        self.requests: list[JsonObject] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.models: list[str] = ["scripted", "other-model"]
        self.listed: list[dict[str, str]] = []
        """The headers of requests for the list of models."""
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def plays(self, *script: Reply) -> None:
        with self._lock:
            self.script = list(script)

    def take(self, request: JsonObject, headers: dict[str, str], path: str) -> Reply:
        with self._lock:
            self.requests.append(request)
            self.headers.append(headers)
            self.paths.append(path)
            return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def wait(self, gate: threading.Event) -> None:
        while not gate.wait(0.02) and not self._ending.is_set():
            pass

    def messages(self, number: int = -1) -> list[JsonObject]:
        """The messages of one request, without the system prompt."""
        return [one for one in self.requests[number]["messages"] if one["role"] != "system"]

    def system(self, number: int = -1) -> str:
        return "\n".join(one["content"] for one in self.requests[number]["messages"] if one["role"] == "system")

    def tools(self, number: int = -1) -> list[str]:
        offered: Iterable[JsonObject] = self.requests[number].get("tools", ())
        return [one["function"]["name"] for one in offered]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
