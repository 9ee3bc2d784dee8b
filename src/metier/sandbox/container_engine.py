"""The part of the Docker Engine API that the container runner needs, over a Unix socket.

Podman serves the same API (`podman system service`). Only the standard library is used. The engine may be any program
that listens at the socket, so sizes and times are limited and every answer is checked for its shape. The invariant:
whatever the engine answers, or if it does not, the only error is `EngineError`.
"""

import http.client
import json
import os
import socket
import stat
import struct
from collections.abc import Iterator, Mapping
from typing import IO, Final
from urllib.parse import quote, urlencode

from metier.files.json_text import parse_json
from metier.files.shapes import as_table, is_list, is_table
from metier.limits import KIB, MIB

SECONDS: Final = 60.0
"""How long the engine may take for an answer. It usually takes a few milliseconds."""
ANSWER_BYTES: Final = 8 * MIB
_HEAD_BYTES: Final = 64 * KIB
_HEADER: Final = struct.Struct(">BxxxI")


class EngineError(Exception):
    """The engine cannot be reached, refused a request, or gave an answer that makes no sense. `status` may be 0."""

    def __init__(self, message: str, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


class _Connection(http.client.HTTPConnection):
    """A connection over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = _connected(self._path)


def _connected(path: str) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX)
    try:
        stream.settimeout(SECONDS)
        stream.connect(path)
    except BaseException:
        stream.close()
        raise
    return stream


class Engine:
    """A container engine at a Unix socket. Each request has a connection of its own, so any thread may use it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Mapping[str, object] | None = None,
        archive: IO[bytes] | None = None,
    ) -> object:
        """Make a request, and return the JSON of the answer, or `None` if it is empty."""
        headers: dict[str, str] = {}
        content: bytes | IO[bytes] | None = None
        if body is not None:
            content, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        elif archive is not None:
            headers = {"Content-Type": "application/x-tar", "Content-Length": str(archive.seek(0, os.SEEK_END))}
            archive.seek(0)
            content = archive
        connection = _Connection(self.path)
        try:
            connection.request(method, f"{path}?{urlencode(query)}" if query else path, content, headers)
            answer = connection.getresponse()
            status, data = answer.status, answer.read(ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise EngineError(f"the container engine at {self.path} does not answer: {_words(error)}") from error
        finally:
            connection.close()
        if len(data) > ANSWER_BYTES:
            raise EngineError("the answer of the container engine is too long")
        if not 200 <= status < 300:
            raise EngineError(_message(data) or f"the container engine answers with status {status}", status)
        return _json(data)

    def table(self, method: str, path: str, body: Mapping[str, object] | None = None) -> dict[str, object]:
        """Make a request whose answer is an object."""
        answer = self.call(method, path, body=body)
        if not is_table(answer):
            raise EngineError(f"the container engine gives no object for {path}")
        return dict(answer)

    def labelled(self, kind: str, label: str) -> list[dict[str, object]]:
        """The containers, or volumes, that have a label."""
        filters = {"filters": json.dumps({"label": [label]})}
        if kind == "containers":
            answer = self.call("GET", "/containers/json", {"all": "1", **filters})
        else:
            answer = as_table(self.call("GET", "/volumes", filters)).get("Volumes")
        if answer is None:
            return []  # Docker's word for no volumes
        if not is_list(answer) or not all(is_table(one) for one in answer):
            raise EngineError(f"the container engine gives no list of {kind}")
        return [dict(one) for one in answer if is_table(one)]

    def attach(self, container: str) -> socket.socket:
        """A connection to the standard streams of a container. What comes in is framed (see `Demultiplexer`)."""
        query = "stream=1&stdin=1&stdout=1&stderr=1"
        lines = (
            f"POST /containers/{quote(container)}/attach?{query} HTTP/1.1",
            "Host: localhost",
            "Connection: Upgrade",
            "Upgrade: tcp",
            "Content-Length: 0",
        )
        stream: socket.socket | None = None
        try:
            stream = _connected(self.path)
            stream.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode())
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                # Byte by byte, because what follows belongs to the container.
                piece = stream.recv(1)
                if not piece or len(head) > _HEAD_BYTES:
                    raise EngineError("the container engine does not attach to the container")
                head += piece
            words = head.split(b"\r\n", 1)[0].split(None, 2)
            if len(words) < 2 or words[1] not in (b"101", b"200"):
                raise EngineError("the container engine refuses to attach to the container")
        except (OSError, EngineError) as error:
            if stream is not None:
                stream.close()
            raise EngineError(_words(error)) from error
        return stream


class Demultiplexer:
    """Takes the frames of an attached container apart: standard output is 1, standard error is 2."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._kind = self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The pieces in what arrived. A frame of any length is passed on piece by piece and never collected."""
        view = memoryview(data)
        while view:
            if self._left:
                piece, view = view[: self._left], view[self._left :]
                self._left -= len(piece)
                yield self._kind, bytes(piece)
                continue
            missing = _HEADER.size - len(self._header)
            self._header += view[:missing]
            view = view[missing:]
            if len(self._header) == _HEADER.size:
                self._kind, self._left = _HEADER.unpack(self._header)
                self._header.clear()
                if self._kind not in (1, 2):
                    raise EngineError(f"the container engine sends a stream {self._kind}, which does not exist")


def is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _json(data: bytes) -> object:
    if not data.strip():
        return None
    try:
        return parse_json(data.decode())
    except (ValueError, RecursionError) as error:
        raise EngineError("the answer of the container engine is not JSON") from error


def _message(data: bytes) -> str:
    """What the engine says about an error."""
    try:
        answer = _json(data)
    except EngineError:
        return ""
    text = answer.get("message") if is_table(answer) else None
    return f"the container engine says: {text[:500]}" if isinstance(text, str) and text else ""


def _words(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
