"""A store as JSON lines, and back. Equal content gives equal lines, whichever store it comes from.

An export writes the text that is stored, and ends each session with a line that seals it (`seal`). An import keeps its
input in an unnamed temporary file and reads it twice, first to check everything and then to write, so that a damaged
file changes nothing. Each batch it writes is a transaction and a prefix of every stream, so an import that was
interrupted is completed by running it again.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import Final, TextIO

from msgspec import Struct

from metier import limits
from metier.errors import StoreError
from metier.files.json_text import parse_json
from metier.record.events import check_version
from metier.record.store.checks import (
    check_digest,
    check_frame,
    check_integer,
    check_name,
    check_stored_artifact,
    plain,
)
from metier.record.store.protocol import Store
from metier.record.store.seal import Seal, SealCheck, SealProblem, is_end
from metier.record.store.values import EVENT_BYTES, Document, Frame, Imported, Json, canonical, encode
from metier.record.store.writes import StreamHead, check_stream, seq_gap
from metier.values.value import field

_FRAMES: Final = 500
_BYTES: Final = 8_000_000
"""An import writes a batch when it has this many frames and documents, or artifacts of this size."""


def export_lines(store: Store, session_id: str | None = None) -> Iterator[str]:
    """Yield the lines of one session, or of the whole store. See `Store.export_lines`."""
    known = [summary.id for summary in store.sessions()]
    if session_id is not None and session_id not in known:
        raise StoreError(f"there is no session {session_id!r}", reason="invalid")
    done: set[str] = set()
    for session in [session_id] if session_id is not None else known:
        seal = Seal()
        yield from map(seal.add, _session_lines(store, session, done))
        yield seal.end(session)
    if session_id is None:
        seal = Seal()
        yield from map(seal.add, _other_lines(store, known, done))
        if seal.lines:
            yield seal.end(None)


def _session_lines(store: Store, session: str, done: set[str]) -> Iterator[str]:
    """Yield all lines of a session, without the artifacts that were written for another one."""
    yield from _artifact_lines(store, store.artifacts(session), done)
    page = store.page(0, session)
    while page.frames:
        yield from map(canonical, page.frames)
        page = store.page(page.cursor, session)
    yield from _state_lines(store, session)


def _other_lines(store: Store, known: list[str], done: set[str]) -> Iterator[str]:
    """Yield the artifacts that no event names, and the documents of sessions without events."""
    yield from _artifact_lines(store, store.artifacts(), done)
    for session in sorted({session for session, _ in store.states()} - set(known)):
        yield from _state_lines(store, session)


def _artifact_lines(store: Store, digests: list[str], done: set[str]) -> Iterator[str]:
    for digest in digests:
        if digest not in done:
            done.add(digest)
            content = base64.b64encode(store.get_artifact(digest)).decode("ascii")
            yield encode({"artifact": digest, "base64": content})


def _state_lines(store: Store, session: str) -> Iterator[str]:
    for _, document in store.states(session):
        yield encode(
            {"state": document.key, "session_id": session, "version": document.version, "value": document.value}
        )


class _Pending(Struct):
    """The batch that is being filled."""

    frames: list[Frame] = field(default_factory=list[Frame])
    artifacts: list[bytes] = field(default_factory=list[bytes])
    states: list[tuple[str, Document]] = field(default_factory=list[tuple[str, Document]])
    size: int = 0

    def add(self, record: "bytes | Frame | tuple[str, Document]") -> None:
        if isinstance(record, bytes):
            self.artifacts.append(record)
            self.size += len(record)
        elif isinstance(record, dict):
            self.frames.append(record)
        else:
            self.states.append(record)

    @property
    def full(self) -> bool:
        return len(self.frames) + len(self.states) >= _FRAMES or self.size >= _BYTES


LINE_CHARACTERS: Final = limits.RESOURCE_BYTES // 3 * 4 + EVENT_BYTES
"""The longest line of an export: the largest artifact in base64."""


def read_lines(stream: TextIO, name: str = "") -> Iterator[str]:
    """Yield the lines of an exported file with their ends. Raises `StoreError` for one that no export has."""
    number = 0
    while line := stream.readline(LINE_CHARACTERS + 1):
        number += 1
        if len(line) > LINE_CHARACTERS:
            raise StoreError(f"line {number} is longer than any line of an export", reason="invalid", store=name)
        yield line


def import_lines(store: Store, lines: Iterable[str]) -> Imported:
    """Check all lines, then write those that are new. See `Store.import_lines`."""
    import tempfile  # slow to import, and only an export needs it

    with tempfile.SpooledTemporaryFile(_BYTES, "w+", encoding="utf-8", newline="\n") as kept:
        for line in _checked(store, lines):
            kept.write(line + "\n")
        kept.seek(0)
        imported = Imported()
        pending = _Pending()
        for line in kept:
            if (record := _record(line)) is not None:
                pending.add(record)
            if pending.full:
                imported += store.restore(pending.frames, pending.artifacts, pending.states)
                pending = _Pending()
        return imported + store.restore(pending.frames, pending.artifacts, pending.states)


def _checked(store: Store, lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that are not blank, without line ends, each checked by itself and against those before it."""
    check, seal = _FrameCheck(store), SealCheck()
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                record = _record(line)
                if isinstance(record, dict):
                    check.frame(record)
            except StoreError as error:
                message = f"line {number}: {error.message}"
                raise StoreError(message, reason=error.reason, hint=error.hint) from error
            yield line.rstrip("\r\n")
        _refuse(seal.line(number, line))
    _refuse(seal.finish())


def _refuse(problem: SealProblem | None) -> None:
    if problem is not None:
        raise StoreError(str(problem), reason="changed", hint="export the session again")


class _FrameCheck:
    """Checks frames in the order of a file: no stream has a gap, and no frame differs from the stored one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._streams: dict[str, StreamHead] = {}
        self._stored: dict[str, tuple[int, Iterator[Frame]]] = {}

    def frame(self, frame: Frame) -> None:
        check_version(frame)
        stream_id, seq = frame["stream_id"], frame["seq"]
        stream = self._streams.get(stream_id)
        if stream is None:
            last = self._store.last_seq(stream_id)
            stream = StreamHead(stream_id, frame["session_id"], frame["stream_kind"], min(seq, last + 1))
            self._streams[stream_id] = stream
            self._stored[stream_id] = (last, self._stored_from(stream_id, seq))
        check_stream(stream, frame["session_id"], frame["stream_kind"])
        if seq != stream.next_seq:
            raise seq_gap(stream_id, stream.next_seq, seq)
        last, stored = self._stored[stream_id]
        if seq <= last and canonical(next(stored)) != canonical(frame):
            message = f"seq {seq} of stream {stream_id!r} is stored with different content"
            raise StoreError(message, reason="conflict")
        stream.next_seq += 1

    def _stored_from(self, stream_id: str, seq: int) -> Iterator[Frame]:
        while frames := self._store.read(stream_id=stream_id, after=seq - 1, limit=_FRAMES):
            yield from frames
            seq = frames[-1]["seq"] + 1


def _record(line: str) -> bytes | Frame | tuple[str, Document] | None:
    """Return what a line holds: the content of an artifact, a frame, a document with its session, or no content."""
    try:
        record: Json = parse_json(line)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"not valid JSON: {error}", reason="invalid") from error
    if not isinstance(record, dict):
        raise StoreError("a line must be one JSON object", reason="invalid")
    if "artifact" in record and "seq" not in record:
        return _artifact(str(record["artifact"]), str(record.get("base64")))
    if "state" in record and "seq" not in record:
        session = check_name(record.get("session_id"), "the session id")
        version = check_integer(record.get("version"), "the version", 1)
        return session, Document(check_name(record["state"], "the key"), version, plain(record.get("value"), "value"))
    return None if is_end(record) else check_frame(record)


def _artifact(digest: str, encoded: str) -> bytes:
    check_digest(digest)
    try:
        content = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise StoreError(f"artifact {digest} is not valid base64: {error}", reason="changed-artifact") from error
    return check_stored_artifact(content, digest)
