"""What goes into a store and what comes out: a draft becomes a frame, and a frame has exactly one text.

Invariant: `canonical` is the only place that turns a frame into text. Stores keep that text and never make it again, so
what is read is byte for byte what was written. Everything here is pure; whatever is refused is refused before a
transaction begins.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

from metier import limits
from metier.errors import StateConflict, StoreError
from metier.files.digests import FORM, PATTERN, digest_of, is_digest

EVENT_BYTES: Final = 4 * limits.MIB
"""The text of one event. A page of events must fit into memory; what is larger belongs into an artifact."""

STATE_BYTES: Final = limits.MIB
"""One document of session state: lists of names and settings, never bodies."""

NOTICE_BYTES: Final = 4000
"""The payload of a notice: it says where to look, not what is there."""

NAME_CHARACTERS: Final = 256
"""Ids, kinds, types and keys: they are index keys, and an index entry must fit into a page of either database."""

DATA_DEPTH: Final = 64
"""Nesting of an event's data, so that no reader's stack depends on what was written."""

INTEGER_BITS: Final = 13_000
"""Some 3,900 digits: Python refuses to read more than 4,300, and what was written must stay readable."""

GRACE_MS: Final = 3_600_000
"""How long an artifact that no event names is safe from a prune: somebody may be about to append that event."""

ENVELOPE: Final = ("id", "session_id", "stream_kind", "stream_id", "timestamp_ms", "seq", "type")
"""The keys that every frame begins with, in this order."""

Frame = dict[str, Any]
"""One event as a flat object: the envelope, then the data."""

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_QUOTED_DIGEST: Final = re.compile(rf'"({PATTERN})"')
_LARGEST_TIME: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Draft:
    """An event before it has its place. The id makes an append safe to repeat: one id is written once."""

    id: str
    timestamp_ms: int
    type: str
    data: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)


@dataclass(frozen=True, slots=True)
class Page:
    """Events for a follower, and the cursor that continues behind them."""

    frames: tuple[Frame, ...]
    cursor: int


@dataclass(frozen=True, slots=True)
class Summary:
    """One session of a store."""

    id: str
    first_ms: int
    last_ms: int
    events: int

    def as_dict(self) -> dict[str, Any]:
        return {"id": self.id, "first_ms": self.first_ms, "last_ms": self.last_ms, "events": self.events}


@dataclass(frozen=True, slots=True)
class Document:
    """A piece of session state with its version, which starts at 1 and rises with every save."""

    key: str
    version: int
    value: Any = field(hash=False)


@dataclass(frozen=True, slots=True)
class Stats:
    """How much a store holds. `bytes` is what it takes on disk (in memory: the texts and artifacts)."""

    kind: str
    location: str
    schema: int
    sessions: int
    streams: int
    events: int
    artifacts: int
    artifact_bytes: int
    states: int
    bytes: int

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a prune removed."""

    sessions: int = 0
    events: int = 0
    artifacts: int = 0
    artifact_bytes: int = 0

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}


class Row(NamedTuple):
    """An event as it lies in a table."""

    id: str
    session_id: str
    stream_id: str
    seq: int
    timestamp_ms: int
    type: str
    text: str


@dataclass(slots=True)
class Stream:
    """The head of a stream while a transaction holds it."""

    id: str
    session_id: str
    kind: str
    next_seq: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """The arguments of one append, checked and copied, so that nothing can fail on their account any more."""

    session_id: str
    stream_kind: str
    stream_id: str
    drafts: tuple[Draft, ...]
    artifacts: Mapping[str, bytes]

    @property
    def ids(self) -> list[str]:
        return [draft.id for draft in self.drafts]


@dataclass(frozen=True, slots=True)
class StateChange:
    """A document to be saved, as text, if the expected version stands (`None`: whichever does)."""

    session_id: str
    key: str
    text: str
    expected: int | None

    def next_version(self, version: int) -> int:
        """The version that it gets where this one stands."""
        if self.expected is not None and self.expected != version:
            raise StateConflict(self.session_id, self.key, self.expected, version)
        return version + 1


def canonical(frame: Mapping[str, Any]) -> str:
    """The one text of a frame: the envelope in its order, then the data in the order given, no blanks, no escapes."""
    ordered = {key: frame[key] for key in ENVELOPE}
    ordered.update(frame)
    return _ENCODER.encode(ordered)


def parse(text: str) -> Any:
    """The value of a stored text: a frame or a document."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"what is stored is no JSON: {error}", reason="corrupt") from error


def check_digest(digest: str) -> str:
    if not is_digest(digest):
        raise _invalid(f"{digest!r} is no digest", FORM)
    return digest


def check_artifact(content: bytes, digest: str, store: str) -> bytes:
    """What was stored under a digest, if it still is that."""
    found = digest_of(content)
    if found != digest:
        message = f"artifact {digest} was changed: its content has digest {found}"
        raise StoreError(message, reason="changed-artifact", store=store, hint="bring it back from an export")
    return content


def missing_artifact(digest: str, store: str) -> StoreError:
    return StoreError(f"artifact {digest} is not here", reason="missing-artifact", store=store)


def references(texts: Iterable[str]) -> set[str]:
    """The digests that events name as whole strings: what a session needs for its replay."""
    return {digest for text in texts for digest in _QUOTED_DIGEST.findall(text)}


def check_name(value: object, what: str) -> str:
    """An id, kind, type or key: printable and short, so that it is safe in an index, a log line and a terminal."""
    if not isinstance(value, str) or not value or len(value) > NAME_CHARACTERS or not value.isprintable():
        shown = ascii(value)
        shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
        raise _invalid(f"{what} {shown} is no name", f"1 to {NAME_CHARACTERS} printable characters")
    return str(value)


def check_whole(value: object, what: str, lowest: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= _LARGEST_TIME:
        raise _invalid(f"{what} {value!r} is no whole number of at least {lowest}")
    return int(value)


def plain(value: object, where: str, depth: int = 0) -> Any:
    """A copy of a JSON value made of plain types, or an error that names the place of what JSON cannot carry."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        if value.bit_length() > INTEGER_BITS:
            raise _invalid(f"{where} is a number of more than 3,900 digits", "write it as text")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _invalid(f"{where} is {value}", "JSON has no such number")
        return float(value)
    if depth == DATA_DEPTH:
        raise _invalid(f"{where} is nested more than {DATA_DEPTH} levels deep")
    if isinstance(value, Mapping):
        copy: dict[str, Any] = {}
        for key, item in cast("Mapping[Any, Any]", value).items():
            if not isinstance(key, str):
                raise _invalid(f"{where} has the key {key!r}", "keys are text in JSON")
            copy[str.__str__(key)] = plain(item, f"{where}.{key}", depth + 1)
        return copy
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[Any]", value)
        return [plain(item, f"{where}[{number}]", depth + 1) for number, item in enumerate(items)]
    raise _invalid(f"{where} is a {type(value).__name__}", "not a JSON value")


def encode(value: object, where: str, cap: int) -> str:
    """The text of a plain value, known to fit and to be valid UTF-8."""
    text = _ENCODER.encode(value)
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        found = ascii(text[max(0, error.start - 20) : error.end])
        hint = "replace it, or pass the bytes as an artifact"
        raise _invalid(f"{where} holds half a surrogate pair, near {found}", hint) from None
    if size > cap:
        raise _invalid(f"{where} has {size} bytes, more than {cap}", "put the content into an artifact")
    return text


def prepare(
    session_id: str, stream_kind: str, stream_id: str, drafts: Iterable[Draft], artifacts: Iterable[bytes]
) -> Batch:
    """The arguments of an append, checked."""
    check_name(session_id, "the session id")
    check_name(stream_kind, "the stream kind")
    check_name(stream_id, "the stream id")
    return Batch(session_id, stream_kind, stream_id, tuple(map(_draft, drafts)), artifacts_of(artifacts))


def artifacts_of(contents: Iterable[bytes]) -> dict[str, bytes]:
    """Artifacts by digest, sorted: whoever locks several of them does so in the same order."""
    found: dict[str, bytes] = {}
    for content in contents:
        if len(content) > limits.RESOURCE_BYTES:
            raise _invalid(f"an artifact has {len(content)} bytes, more than {limits.RESOURCE_BYTES}")
        copy = bytes(content)
        found[digest_of(copy)] = copy
    return dict(sorted(found.items()))


def check_frame(frame: Mapping[str, Any]) -> Frame:
    """A frame that comes from outside (an import), checked as a draft is."""
    missing = [key for key in ENVELOPE if key not in frame]
    if missing:
        raise _invalid(f"a frame has no {', '.join(missing)}")
    for key in ("id", "session_id", "stream_kind", "stream_id", "type"):
        check_name(frame[key], key)
    check_whole(frame["seq"], "seq")
    check_whole(frame["timestamp_ms"], "timestamp_ms")
    copy: Frame = plain(frame, "frame")
    encode(copy, "the frame", EVENT_BYTES)
    return {**{key: copy[key] for key in ENVELOPE}, **copy}


def same_stream(stream: Stream, session_id: str, kind: str) -> None:
    """A stream belongs to one session for ever; a mix would make its seq meaningless to a replay."""
    if (stream.session_id, stream.kind) != (session_id, kind):
        message = f"stream {stream.id!r} is the {stream.kind!r} stream of session {stream.session_id!r}"
        raise StoreError(f"{message}, not the {kind!r} stream of {session_id!r}", reason="conflict")


def number(batch: Batch, next_seq: int, existing: Mapping[str, str]) -> tuple[list[Frame], list[Row]]:
    """Give the drafts their seq: the frames of all of them, and the rows of those that are new.

    `existing` are the stored texts by id. A draft that is there already keeps the frame it has, which is what makes a
    retry after a lost answer harmless.
    """
    frames: list[Frame] = []
    rows: list[Row] = []
    known: dict[str, Frame] = {id_: parse(text) for id_, text in existing.items()}
    for draft in batch.drafts:
        frame = known.get(draft.id)
        if frame is None:
            frame = {
                "id": draft.id,
                "session_id": batch.session_id,
                "stream_kind": batch.stream_kind,
                "stream_id": batch.stream_id,
                "timestamp_ms": draft.timestamp_ms,
                "seq": next_seq + len(rows),
                "type": draft.type,
                **draft.data,
            }
            known[draft.id] = frame
            rows.append(row_of(frame))
        elif frame["stream_id"] != batch.stream_id:
            raise _taken(draft.id, frame["stream_id"])
        frames.append(frame)
    return frames, rows


def settle(frames: Iterable[Frame], streams: Mapping[str, Stream], existing: Mapping[str, str]) -> list[Row]:
    """The rows of complete frames that are new; those that are there must be the same, and none may be missing."""
    rows: list[Row] = []
    expected = {id_: stream.next_seq for id_, stream in streams.items()}
    for frame in frames:
        stream_id, seq = frame["stream_id"], frame["seq"]
        same_stream(streams[stream_id], frame["session_id"], frame["stream_kind"])
        if frame["id"] in existing:
            if existing[frame["id"]] != canonical(frame):
                message = f"event {frame['id']!r} (seq {seq} of stream {stream_id!r}) is stored with another content"
                raise StoreError(message, reason="conflict")
        elif seq < expected[stream_id]:
            message = f"seq {seq} of stream {stream_id!r} is taken by another event than {frame['id']!r}"
            raise StoreError(message, reason="conflict")
        elif seq > expected[stream_id]:
            message = f"stream {stream_id!r} goes on with seq {expected[stream_id]}, but the next frame has {seq}"
            raise StoreError(message, reason="gap", hint="export it again, whole")
        else:
            rows.append(row_of(frame))
            expected[stream_id] += 1
    return rows


def row_of(frame: Frame) -> Row:
    return Row(
        frame["id"],
        frame["session_id"],
        frame["stream_id"],
        frame["seq"],
        frame["timestamp_ms"],
        frame["type"],
        canonical(frame),
    )


def not_text(store: str) -> StoreError:
    """For a name that somebody asks for, such as a session's from a command line, that no store can hold."""
    return StoreError("a name that was asked for is no valid text", reason="invalid", store=store)


def newer_schema(store: str, found: int, known: int) -> StoreError:
    message = f"was written by a newer Metier: schema {found}, this one knows {known}"
    return StoreError(message, reason="newer", store=store, hint="upgrade with: pip install --upgrade metier")


def _draft(draft: Draft) -> Draft:
    check_name(draft.id, "the event id")
    check_name(draft.type, "the event type")
    check_whole(draft.timestamp_ms, "timestamp_ms")
    data: dict[str, Any] = plain(draft.data, "data")
    taken = [key for key in ENVELOPE if key in data]
    if taken:
        raise _invalid(f"data of event {draft.id!r} has the reserved key {taken[0]!r}", "rename it")
    # Twice the longest names bound the envelope, so that the whole frame is within the cap as well.
    encode(data, f"data of event {draft.id!r}", EVENT_BYTES - 8 * 4 * NAME_CHARACTERS)
    return Draft(draft.id, draft.timestamp_ms, draft.type, data)


def _taken(id_: str, stream_id: str) -> StoreError:
    return StoreError(f"event id {id_!r} is taken by an event of stream {stream_id!r}", reason="conflict")


def _invalid(message: str, hint: str = "") -> StoreError:
    return StoreError(message, reason="invalid", hint=hint)


def backwards(query: str) -> str:
    """A query for events that gives the last first."""
    return query.replace(" LIMIT", " DESC LIMIT")
