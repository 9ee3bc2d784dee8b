"""The conversation with the first process of a container: frames over the streams that the engine attaches.

What comes from the container is untrusted: a script cannot write these frames, but the engine or an image could be
broken. The invariant: frames have a limited length, files are counted while they are read, and a path is never used
without a check.
"""

import selectors
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from metier.files.digests import digest_of
from metier.files.json_text import parse_json
from metier.files.shapes import is_table
from metier.limits import KIB
from metier.sandbox import RunLimits, WrittenFile
from metier.sandbox.collect import REASONS
from metier.sandbox.container_engine import Demultiplexer, EngineError

WINDOW: Final = 256 * KIB
"""How many bytes of input may be on their way. container_init.py has the same number for output."""
FRAME_BYTES: Final = 256 * KIB
PIECE_BYTES: Final = 32 * KIB
_COMPLAINT_BYTES: Final = 2 * KIB
_TICK: Final = 0.1
_LENGTH: Final = struct.Struct(">I")

Frame = tuple[bytes, bytes]
"""One letter for the kind, and the content. container_init.py lists the kinds."""


class Channel:
    """A connection to the first process of a container. One thread uses it."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._stream.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(stream, selectors.EVENT_READ)
        self._streams = Demultiplexer()
        self._arrived = bytearray()
        self._leaving = bytearray()
        self._complaint = bytearray()
        self._input = memoryview(b"")
        self._credit = WINDOW
        self._closes_input = False
        self._broken = ""
        """Why nothing more comes. The complaint is the last line that the first process, or the image, has written."""

    def close(self) -> None:
        self._selector.close()
        self._stream.close()

    def send(self, kind: bytes, content: bytes = b"") -> None:
        self._leaving += kind + _LENGTH.pack(len(content)) + content

    def feed(self, data: bytes) -> None:
        """Send the input of the script, as fast as it reads it."""
        self._input, self._closes_input = memoryview(data), True
        self._feed()

    def read(self, content: bytes) -> None:
        """Tell the container that a piece was handled, so that it can send more."""
        self.send(b"A", _LENGTH.pack(len(content)))

    def frames(self, seconds: float = _TICK) -> Iterator[Frame]:
        """Wait for frames, and return those that have arrived. Raises `EngineError` at the end of the connection."""
        if not self._broken and self._complete() is None:
            writing = selectors.EVENT_WRITE if self._leaving else 0
            self._selector.modify(self._stream, selectors.EVENT_READ | writing)
            for _, events in self._selector.select(seconds):
                if events & selectors.EVENT_WRITE:
                    self._write()
                if events & selectors.EVENT_READ:
                    self._read()
        while (frame := self._frame()) is not None:
            if frame[0] == b"C":
                self._credit += _number(frame[1])
                self._feed()
            else:
                yield frame
        if self._broken:  # after what came before the end
            raise EngineError(self._broken)

    def expect(self, wanted: bytes, deadline: float) -> bytes:
        """Wait for a frame of one kind."""
        while time.monotonic() < deadline:
            for kind, content in self.frames():
                if kind == wanted:
                    return content
        raise EngineError("the container did not answer in time")

    def _feed(self) -> None:
        while self._input and self._credit > 0:
            piece = self._input[: min(PIECE_BYTES, self._credit)]
            self._input = self._input[len(piece) :]
            self._credit -= len(piece)
            self.send(b"I", bytes(piece))
        if self._closes_input and not self._input:
            self._closes_input = False
            self.send(b"Z")

    def _write(self) -> None:
        try:
            del self._leaving[: self._stream.send(self._leaving)]
        except BlockingIOError:
            return
        except OSError:
            self._leaving.clear()  # the end of the connection is what is read next

    def _read(self) -> None:
        try:
            data = self._stream.recv(64 * KIB)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            lines = self._complaint.decode("utf-8", "replace").strip().splitlines()
            self._broken = f"the container ended early{f': {lines[-1]}' if lines else ''}"
        for stream, piece in self._streams.feed(data):
            if stream == 1:
                self._arrived += piece
            else:
                self._complaint += piece[: max(0, _COMPLAINT_BYTES - len(self._complaint))]

    def _complete(self) -> int | None:
        """Where the next frame ends, if it has arrived as a whole."""
        if len(self._arrived) < 1 + _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._arrived, 1)
        if length > FRAME_BYTES:
            raise EngineError("the container sends a frame that is too long")
        end = 1 + _LENGTH.size + length
        return end if len(self._arrived) >= end else None

    def _frame(self) -> Frame | None:
        end = self._complete()
        if end is None:
            return None
        kind, content = bytes(self._arrived[:1]), bytes(self._arrived[1 + _LENGTH.size : end])
        del self._arrived[:end]
        return kind, content


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
        self._limits = limits
        self._room = limits.work_bytes
        self._files: dict[str, bytearray] = {}
        self._current: bytearray | None = None
        self._left_out: list[str] = []
        self._missing = 0

    def take(self, kind: bytes, content: bytes) -> None:
        """Take a frame: a path, bytes of its file, or a path that is left out."""
        if kind == b"F":
            self._current = self._started(content)
        elif kind == b"D" and self._current is not None:
            self._room -= len(content)
            if self._room < 0 or len(self._current) + len(content) > self._limits.file_bytes:
                raise EngineError("the container sends more than the limit of the work folder")
            self._current += content
        elif kind == b"L":
            path, _, why = content.partition(b"\0")
            self.leave_out(path.decode("utf-8", "surrogateescape"), why.decode("utf-8", "replace"))

    def _started(self, content: bytes) -> bytearray:
        path = content.decode("utf-8", "surrogateescape")
        plain = "\0" not in path and not {"", ".", ".."} & set(path.split("/"))
        if not plain or path in self._files or len(self._files) >= self._limits.files:
            raise EngineError("the container sends a file that cannot be in the work folder")
        self._files[path] = bytearray()
        return self._files[path]

    def leave_out(self, path: str, why: str) -> None:
        self._missing += 1
        if len(self._left_out) < REASONS:
            self._left_out.append(f"{path}: {why}")

    def result(self) -> tuple[tuple[WrittenFile, ...], tuple[str, ...]]:
        more = ("and more",) if self._missing > len(self._left_out) else ()
        contents = ((path, bytes(data)) for path, data in sorted(self._files.items()))
        files = tuple(WrittenFile(path, len(data), digest_of(data), data) for path, data in contents)
        return files, (*self._left_out, *more)


def _number(content: bytes) -> int:
    with suppress(struct.error):
        (number,) = _LENGTH.unpack(content)
        return int(number)
    raise EngineError("the container sends a number that is none")
