"""A store as JSON lines, and back: the same lines for the same content, whatever store it came from.

Export writes what is stored, text for text. Import reads its input twice (it is kept in an unnamed temporary file
meanwhile): once to check everything, once to write, so that a broken file changes nothing. It writes in batches that
are each a transaction and a prefix of every stream, so an import that was cut off is finished by running it again.
"""

import base64
import binascii
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

from metier.errors import StoreError
from metier.record.store.values import (
    Document,
    Frame,
    Page,
    Stream,
    Summary,
    canonical,
    check_artifact,
    check_digest,
    check_frame,
    check_name,
    check_whole,
    plain,
    same_stream,
)

_FRAMES: Final = 500
_BYTES: Final = 8_000_000
"""A batch of an import is written when it has this many frames, or artifacts of this size."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import wrote; what was there already does not count."""

    events: int = 0
    artifacts: int = 0
    states: int = 0

    def __add__(self, other: "Imported") -> "Imported":
        return Imported(self.events + other.events, self.artifacts + other.artifacts, self.states + other.states)

    def as_dict(self) -> dict[str, int]:
        return {"events": self.events, "artifacts": self.artifacts, "states": self.states}


class Portable(Protocol):
    """The part of a store that moving its content needs."""

    def sessions(self) -> list[Summary]: ...
    def page(self, cursor: int = 0, session_id: str | None = None, *, limit: int = 500) -> Page: ...
    def read(
        self, session_id: str | None = None, stream_id: str | None = None, *, after: int = -1, limit: int | None = None
    ) -> list[Frame]: ...
    def last_seq(self, stream_id: str) -> int: ...
    def artifacts(self, session_id: str | None = None) -> list[str]: ...
    def get_artifact(self, digest: str) -> bytes: ...
    def states(self, session_id: str | None = None) -> list[tuple[str, Document]]: ...
    def restore(
        self,
        frames: Iterable[Mapping[str, Any]],
        artifacts: Iterable[bytes] = (),
        states: Iterable[tuple[str, Document]] = (),
    ) -> Imported: ...


def export_lines(store: Portable, session_id: str | None = None) -> Iterator[str]:
    """The lines of one session, or of all and of whatever belongs to none."""
    known = [summary.id for summary in store.sessions()]
    if session_id is not None and session_id not in known:
        raise StoreError(f"there is no session {session_id!r}", reason="invalid")
    done: set[str] = set()
    for session in [session_id] if session_id is not None else known:
        yield from _artifact_lines(store, store.artifacts(session), done)
        page = store.page(0, session)
        while page.frames:
            yield from map(canonical, page.frames)
            page = store.page(page.cursor, session)
        yield from _state_lines(store, session)
    if session_id is None:
        yield from _artifact_lines(store, store.artifacts(), done)
        others = sorted({session for session, _ in store.states()} - set(known))
        for session in others:
            yield from _state_lines(store, session)


def _artifact_lines(store: Portable, digests: list[str], done: set[str]) -> Iterator[str]:
    for digest in digests:
        if digest not in done:
            done.add(digest)
            content = base64.b64encode(store.get_artifact(digest)).decode("ascii")
            yield _dump({"artifact": digest, "base64": content})


def _state_lines(store: Portable, session: str) -> Iterator[str]:
    for _, document in store.states(session):
        record = {"state": document.key, "session_id": session, "version": document.version, "value": document.value}
        yield _dump(record)


def _dump(record: Mapping[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


@dataclass(slots=True)
class _Pending:
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


def import_lines(store: Portable, lines: Iterable[str]) -> Imported:
    """Check all lines, then write those that are new."""
    check = _Check(store)
    with tempfile.SpooledTemporaryFile(_BYTES, "w+", encoding="utf-8", newline="\n") as kept:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    record = _record(line)
                    if isinstance(record, dict):
                        check.frame(record)
                except StoreError as error:
                    raise _at(number, error) from error
                kept.write(line.rstrip("\r\n") + "\n")
        kept.seek(0)
        done = Imported()
        pending = _Pending()
        for line in kept:
            pending.add(_record(line))
            if pending.full:
                done += store.restore(pending.frames, pending.artifacts, pending.states)
                pending = _Pending()
        return done + store.restore(pending.frames, pending.artifacts, pending.states)


class _Check:
    """Frames in the order of a file: each stream goes on where the file or the store left it, and nothing differs."""

    def __init__(self, store: Portable) -> None:
        self._store = store
        self._streams: dict[str, Stream] = {}
        self._stored: dict[str, tuple[int, Iterator[Frame]]] = {}

    def frame(self, frame: Frame) -> None:
        stream_id, seq = frame["stream_id"], frame["seq"]
        stream = self._streams.get(stream_id)
        if stream is None:
            last = self._store.last_seq(stream_id)
            stream = Stream(stream_id, frame["session_id"], frame["stream_kind"], min(seq, last + 1))
            self._streams[stream_id] = stream
            self._stored[stream_id] = (last, self._from(stream_id, seq))
        same_stream(stream, frame["session_id"], frame["stream_kind"])
        if seq != stream.next_seq:
            message = f"stream {stream_id!r} goes on with seq {stream.next_seq}, but this frame has {seq}"
            raise StoreError(message, reason="gap", hint="export it again, whole")
        last, stored = self._stored[stream_id]
        if seq <= last and canonical(next(stored)) != canonical(frame):
            message = f"seq {seq} of stream {stream_id!r} is stored with another content"
            raise StoreError(message, reason="conflict")
        stream.next_seq += 1

    def _from(self, stream_id: str, seq: int) -> Iterator[Frame]:
        while frames := self._store.read(stream_id=stream_id, after=seq - 1, limit=_FRAMES):
            yield from frames
            seq = frames[-1]["seq"] + 1


def _record(line: str) -> bytes | Frame | tuple[str, Document]:
    """What a line holds: the content of an artifact, a frame, or a session's document."""
    try:
        content: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"no JSON: {error}", reason="invalid") from error
    if not isinstance(content, dict):
        raise StoreError("a line is one JSON object", reason="invalid")
    record = cast("dict[str, Any]", content)
    if "artifact" in record and "seq" not in record:
        digest = check_digest(str(record["artifact"]))
        try:
            decoded = base64.b64decode(str(record.get("base64")), validate=True)
        except (binascii.Error, ValueError) as error:
            raise StoreError(f"artifact {digest} is no base64: {error}", reason="changed-artifact") from error
        return check_artifact(decoded, digest, "")
    if "state" in record and "seq" not in record:
        session = check_name(record.get("session_id"), "the session id")
        version = check_whole(record.get("version"), "the version", 1)
        return session, Document(check_name(record["state"], "the key"), version, plain(record.get("value"), "value"))
    return check_frame(record)


def _at(number: int, error: StoreError) -> StoreError:
    return StoreError(f"line {number}: {error.message}", reason=error.reason, hint=error.hint)
