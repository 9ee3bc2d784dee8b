"""The part of the Docker Engine API that the container runner needs, over a Unix socket, and the conversation with the
first process of a container: frames over the streams that the engine attaches.

Podman serves the same API (`podman system service`). Only the standard library is used. The engine may be any program
that listens at the socket, so sizes and times are limited and every answer is checked for its shape. What comes from
the container is untrusted, too: a script cannot write these frames, but the engine or an image could be broken. The
invariant: whatever the engine answers, or if it does not, the only error is `EngineError`. Frames have a limited
length, files are counted while they are read, and a path is never used without a check.
"""

import functools
import http.client
import json
import os
import platform
import selectors
import socket
import struct
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Final
from urllib.parse import urlencode

from metier.files import process
from metier.files.json_text import parse_json
from metier.files.shapes import as_table, is_list, is_table
from metier.limits import KIB, MIB
from metier.running.sandbox import RunLimits, WrittenFile
from metier.running.sandbox.collect import CollectedFiles
from metier.running.sandbox.container_init import CHUNK, WINDOW, Line

SECONDS: Final = 60.0
"""How long the engine may take for an answer. It usually takes a few milliseconds."""
ANSWER_BYTES: Final = 8 * MIB
_HEADER: Final = struct.Struct(">BxxxI")
LABEL: Final = "io.metier.owner"
"""Names the machine, its start and the process that made a container or a volume."""
FRAME_BYTES: Final = 256 * KIB
_COMPLAINT_BYTES: Final = 2 * KIB
_TICK: Final = 0.1
_UPGRADE: Final = {"Connection": "Upgrade", "Upgrade": "tcp", "Content-Length": "0"}


Frame = tuple[bytes, bytes]
"""One letter for the kind, and the content. container_init.py lists the kinds."""


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
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(SECONDS)
        self.sock.connect(self._path)


class Engine:
    """A container engine at a Unix socket. Each request has a connection of its own, so any thread may use it."""

    def __init__(self, path: str) -> None:
        self.path = path

    @functools.cached_property
    def is_podman(self) -> bool:
        return "Podman" in str(as_table(self.call("GET", "/version")).get("Components"))

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
        with self._connected() as connection:
            connection.request(method, f"{path}?{urlencode(query)}" if query else path, content, headers)
            return _json(_content(connection.getresponse()))

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
        if not is_list(answer) or not all(is_table(item) for item in answer):
            raise EngineError(f"the container engine gives no list of {kind}")
        return [dict(item) for item in answer if is_table(item)]

    def attach(self, container: str) -> socket.socket:
        """A connection to the standard streams of a container that has not started, so that nothing comes in yet.

        What comes in later is framed (see `Channel`).
        """
        with self._connected() as connection:
            query = "stream=1&stdin=1&stdout=1&stderr=1"
            connection.request("POST", f"/containers/{container}/attach?{query}", headers=_UPGRADE)
            answer = connection.getresponse()
            if answer.status == 101:
                return connection.sock.dup()
            _content(answer)
        raise EngineError("the container engine does not attach to the container")

    @contextmanager
    def _connected(self) -> Generator[_Connection]:
        connection = _Connection(self.path)
        try:
            yield connection
        except (OSError, http.client.HTTPException, ValueError) as error:
            words = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
            raise EngineError(f"the container engine at {self.path} does not answer: {words}") from error
        finally:
            connection.close()


def _content(answer: http.client.HTTPResponse) -> bytes:
    """The content of an answer. Raises `EngineError` with what the engine says, if it refuses the request."""
    data = answer.read(ANSWER_BYTES + 1)
    if len(data) > ANSWER_BYTES:
        raise EngineError("the answer of the container engine is too long")
    if not 200 <= answer.status < 300:
        text: object = None
        with suppress(EngineError):
            text = as_table(_json(data)).get("message")
        said = f"says: {text[:500]}" if isinstance(text, str) and text else f"answers with status {answer.status}"
        raise EngineError(f"the container engine {said}", answer.status)
    return data


def _json(data: bytes, what: str = "the answer of the container engine") -> object:
    if not data.strip():
        return None
    try:
        return parse_json(data.decode())
    except (ValueError, RecursionError) as error:
        raise EngineError(f"{what} is not JSON") from error


# --- the conversation with the first process ---


class Channel(Line):
    """The host's end of the line to the first process of a container. One thread uses it.

    The engine frames both streams: standard output is 1 and has our own frames, standard error is 2.
    """

    def __init__(self, stream: socket.socket) -> None:
        super().__init__(FRAME_BYTES)
        self._stream = stream
        self._stream.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(stream, selectors.EVENT_READ)
        self._received = bytearray()
        self._kind = self._left = 0
        self._leaving = bytearray()
        self._complaint = bytearray()
        self._input: memoryview | None = None
        self._broken = ""
        """Why nothing more comes. The complaint is the last line that the first process, or the image, has written."""

    def close(self) -> None:
        self._selector.close()
        self._stream.close()

    def send(self, kind: bytes, content: bytes = b"") -> None:
        self._leaving += self.pack(kind, content)

    def feed(self, data: bytes) -> None:
        """Send the input of the script, as fast as it reads it."""
        self._input = memoryview(data)
        self._feed()

    def acknowledge(self, content: bytes) -> None:
        """Tell the container that a piece was handled, so that it can send more."""
        self.send(b"A", len(content).to_bytes(4, "big"))

    def receive(self) -> Frame:
        """The next frame, or an empty one if none comes soon. Raises `EngineError` at the end of the connection."""
        frame = self._next()
        if frame is None:
            if self._broken:
                raise EngineError(self._broken)
            self._exchange()
            frame = self._next() or (b"", b"")
        if frame[0] == b"A":
            self._feed()
        return frame

    def expect(self, wanted: bytes, deadline: float) -> bytes:
        """Wait for a frame of one kind."""
        while time.monotonic() < deadline:
            kind, content = self.receive()
            if kind == wanted:
                return content
        raise EngineError("the container did not answer in time")

    def _next(self) -> Frame | None:
        try:
            return self.frame()
        except ValueError as error:
            raise EngineError("the container sends a frame that is too long") from error

    def _feed(self) -> None:
        while self._input is not None and self.unread < WINDOW:
            piece, self._input = bytes(self._input[:CHUNK]), self._input[CHUNK:]
            self.send(b"I" if piece else b"Z", piece)
            if not piece:
                self._input = None

    def _exchange(self) -> None:
        """Write and read what is possible now, or soon."""
        self._selector.modify(self._stream, selectors.EVENT_READ | (selectors.EVENT_WRITE if self._leaving else 0))
        for _, events in self._selector.select(_TICK):
            if events & selectors.EVENT_WRITE:
                try:
                    sent = self._stream.send(self._leaving)
                except BlockingIOError:
                    sent = 0
                except OSError:
                    sent = len(self._leaving)  # the end of the connection is what is read next
                del self._leaving[:sent]
            if events & selectors.EVENT_READ:
                try:
                    data = self._stream.recv(64 * KIB)
                except BlockingIOError:
                    continue
                except OSError:
                    data = b""
                self._take(data)

    def _take(self, data: bytes) -> None:
        if not data:
            lines = self._complaint.decode("utf-8", "replace").strip().splitlines()
            self._broken = f"the container ended early{f': {lines[-1]}' if lines else ''}"
        self._received += data
        while self._received:
            if not self._left:
                if len(self._received) < _HEADER.size:
                    return
                self._kind, self._left = _HEADER.unpack_from(self._received)
                del self._received[: _HEADER.size]
                if self._kind not in (1, 2):
                    raise EngineError(f"the container engine sends a stream {self._kind}, which does not exist")
            # A frame of any length is taken piece by piece and never collected.
            piece = bytes(self._received[: self._left])
            del self._received[: len(piece)]
            self._left -= len(piece)
            if self._kind == 1:
                self.arrived += piece
            else:
                self._complaint += piece[: max(0, _COMPLAINT_BYTES - len(self._complaint))]


def table_of(content: bytes) -> Mapping[str, object]:
    """The JSON object in a frame."""
    found = _json(content, "what the container sends")
    if not is_table(found):
        raise EngineError("the container sends JSON that is not an object")
    return found


class Collection:
    """The files that a container sends, checked again on this side."""

    def __init__(self, limits: RunLimits) -> None:
        self._limits, self._room = limits, limits.work_bytes
        self._files: dict[str, bytearray] = {}
        self._latest = bytearray()
        self._found = CollectedFiles(limits)

    def take(self, kind: bytes, content: bytes) -> None:
        """Take a frame: a path, bytes of its file, or a path that is left out."""
        if kind == b"F":
            path = content.decode("utf-8", "surrogateescape")
            plain = "\0" not in path and not {"", ".", ".."} & set(path.split("/"))
            if not plain or path in self._files or len(self._files) >= self._limits.files:
                raise EngineError("the container sends a file that cannot be in the work folder")
            self._latest = self._files[path] = bytearray()
        elif kind == b"D":
            self._room -= len(content)
            if self._room < 0 or len(self._latest) + len(content) > self._limits.file_bytes:
                raise EngineError("the container sends more than the limit of the work folder")
            self._latest += content
        elif kind == b"L":
            path, _, why = content.partition(b"\0")
            self._found.leave_out(path.decode("utf-8", "surrogateescape"), why.decode("utf-8", "replace"))

    def result(self) -> tuple[tuple[WrittenFile, ...], tuple[str, ...]]:
        for path, data in self._files.items():
            self._found.keep(path, bytes(data))
        return self._found.files(), self._found.left_out()


# --- whose a container or a volume is ---


def owner() -> str:
    """This process, as its label names it."""
    return "|".join((*_here(), process.current()))


def sweep(engine: Engine) -> None:
    """Remove the containers and volumes that processes of this machine left which were killed.

    What a process of another machine or container left at the same engine stays: whether it lives cannot be seen here.
    """
    for kind, key in (("containers", "Id"), ("volumes", "Name")):
        for left in engine.labelled(kind, LABEL):
            if has_ended(str(as_table(left.get("Labels")).get(LABEL, ""))):
                with suppress(EngineError):
                    engine.call("DELETE", f"/{kind}/{left.get(key)}", {"force": "1"})


def has_ended(label: str) -> bool:
    """Whether the process that a label names has certainly ended."""
    machine, boot, name = (*label.split("|"), "", "", "")[:3]
    here, now = _here()
    if machine != here:
        return False
    if boot != now:
        return bool(boot and now)  # the machine has been started again
    return process.has_ended(name) is True


def _here() -> tuple[str, str]:
    return _line("/etc/machine-id") or platform.node(), _line("/proc/sys/kernel/random/boot_id")


def _line(path: str) -> str:
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read(4096).strip().replace("|", "")
    return ""
