"""The conversation with the first process of a container: frames over the streams that the engine attaches.

What comes from the container is untrusted: a script cannot write these frames, but the engine or an image could be
broken. The invariant: frames have a limited length, files are counted while they are read, and a path is never used
without a check.
"""

import selectors
import socket
import time
from collections.abc import Mapping
from typing import Final

from metier.files.json_text import parse_json
from metier.files.shapes import is_table
from metier.limits import KIB
from metier.running.sandbox import RunLimits, WrittenFile
from metier.running.sandbox.collect import CollectedFiles
from metier.running.sandbox.container_engine import Demultiplexer, EngineError
from metier.running.sandbox.container_init import CHUNK, WINDOW, Line

FRAME_BYTES: Final = 256 * KIB
_COMPLAINT_BYTES: Final = 2 * KIB
_TICK: Final = 0.1

Frame = tuple[bytes, bytes]
"""One letter for the kind, and the content. container_init.py lists the kinds."""


class Channel(Line):
    """The host's end of the line to the first process of a container. One thread uses it."""

    def __init__(self, stream: socket.socket) -> None:
        super().__init__(FRAME_BYTES)
        self._stream = stream
        self._stream.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(stream, selectors.EVENT_READ)
        self._streams = Demultiplexer()
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
        for stream, piece in self._streams.feed(data):
            if stream == 1:
                self.arrived += piece
            else:
                self._complaint += piece[: max(0, _COMPLAINT_BYTES - len(self._complaint))]


def table_of(content: bytes) -> Mapping[str, object]:
    """The JSON object in a frame."""
    try:
        found: object = parse_json(content)
    except (ValueError, RecursionError) as error:
        raise EngineError("the container sends something that is not JSON") from error
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
