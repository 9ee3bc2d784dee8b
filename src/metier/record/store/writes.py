"""The writes of a store before they reach its tables: checked, copied, and with the seq of every event.

`prepare_append`, `prepare_restore` and `prepare_state` check the arguments of a write; after that nothing can fail
because of them. `number_drafts` and `new_rows` decide, inside the transaction, which events are new. All functions are
pure, and a store of your own can use them.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from metier.errors import StateConflict, StoreError, StreamConflict
from metier.files.digests import PATTERN
from metier.record.store.checks import (
    check_artifacts,
    check_draft,
    check_frame,
    check_integer,
    check_name,
    document_text,
)
from metier.record.store.values import Document, Draft, Frame, canonical, parse_frame
from metier.values.value import Value, replace

_QUOTED_DIGEST: Final = re.compile(rf'"({PATTERN})"')


class EventRow(NamedTuple):
    """An event as it is stored: the columns that a store searches by, and the text of the frame."""

    id: str
    session_id: str
    stream_id: str
    seq: int
    timestamp_ms: int
    type: str
    text: str


class StateRow(NamedTuple):
    """A document of session state as it is stored."""

    session_id: str
    key: str
    version: int
    text: str


class StreamHead(Struct):
    """The head of a stream: whose it is, and the seq of its next event."""

    id: str
    session_id: str
    kind: str
    next_seq: int = 0


class StateChange(Value):
    """A document to save as text, if the store has the expected version of it (`None`: any version)."""

    session_id: str
    key: str
    text: str
    expected: int | None

    def next_version(self, version: int) -> int:
        """Return the version that the document gets when `version` is in the store, or raise `StateConflict`."""
        if self.expected is not None and self.expected != version:
            raise StateConflict(self.session_id, self.key, self.expected, version)
        return version + 1


class AppendBatch(Value, kw_only=True):
    """The checked and copied arguments of one append. Artifacts are by digest."""

    session_id: str
    stream_kind: str
    stream_id: str
    drafts: tuple[Draft, ...]
    artifacts: Mapping[str, bytes]
    expected_seq: int | None

    @property
    def ids(self) -> list[str]:
        return [draft.id for draft in self.drafts]

    def new_stream(self) -> StreamHead:
        """Return the head of the stream for the case that the store does not have it yet."""
        return StreamHead(self.stream_id, self.session_id, self.stream_kind)


class RestoreBatch(Value):
    """The checked and copied arguments of one restore. Artifacts are by digest."""

    frames: list[Frame]
    artifacts: Mapping[str, bytes]
    states: list[StateRow]

    @property
    def ids(self) -> list[str]:
        return [frame["id"] for frame in self.frames]

    def new_streams(self) -> dict[str, StreamHead]:
        """Return the heads of the streams by id, for those that the store does not have yet."""
        return {
            frame["stream_id"]: StreamHead(frame["stream_id"], frame["session_id"], frame["stream_kind"])
            for frame in self.frames
        }


def prepare_append(
    session_id: str,
    stream_kind: str,
    stream_id: str,
    drafts: Iterable[Draft],
    artifacts: Iterable[bytes] = (),
    *,
    expected_seq: int | None = None,
) -> AppendBatch:
    """Check and copy the arguments of `Store.append`."""
    return AppendBatch(
        session_id=check_name(session_id, "the session id"),
        stream_kind=check_name(stream_kind, "the stream kind"),
        stream_id=check_name(stream_id, "the stream id"),
        drafts=tuple(map(check_draft, drafts)),
        artifacts=check_artifacts(artifacts),
        expected_seq=None if expected_seq is None else check_integer(expected_seq, "the expected seq", -1),
    )


def prepare_state(session_id: str, key: str, value: object, expected_version: int | None = None) -> StateChange:
    """Check and copy the arguments of `Store.save_state`."""
    check_name(session_id, "the session id")
    check_name(key, "the key")
    if expected_version is not None:
        check_integer(expected_version, "the expected version")
    return StateChange(session_id, key, document_text(value), expected_version)


def prepare_restore(
    frames: Iterable[Mapping[str, object]],
    artifacts: Iterable[bytes] = (),
    states: Iterable[tuple[str, Document]] = (),
) -> RestoreBatch:
    """Check and copy the arguments of `Store.restore`."""
    checked = [check_frame(frame) for frame in frames]
    rows = [
        StateRow(
            check_name(session_id, "the session id"),
            check_name(document.key, "the key"),
            document.version,
            document_text(document.value),
        )
        for session_id, document in states
    ]
    return RestoreBatch(checked, check_artifacts(artifacts), rows)


def check_stream(stream: StreamHead, session_id: str, kind: str) -> None:
    """Refuse events of another session or kind: in a mixed stream, seq would mean nothing to a replay."""
    if (stream.session_id, stream.kind) != (session_id, kind):
        message = f"stream {stream.id!r} is the {stream.kind!r} stream of session {stream.session_id!r}"
        raise StoreError(f"{message}, not the {kind!r} stream of {session_id!r}", reason="conflict")


def number_drafts(
    batch: AppendBatch, stream: StreamHead, existing: Mapping[str, str]
) -> tuple[list[Frame], list[EventRow]]:
    """Give each draft its seq. Return the frames of all drafts, and the rows of those that are new.

    `stream` is the head of the stream, and `existing` holds the stored texts of the batch's ids. A draft whose id is
    stored keeps its stored frame, so an append whose answer was lost can be repeated. If there is a new draft, the
    stream must end where the batch expects it (else `StreamConflict`).
    """
    check_stream(stream, batch.session_id, batch.stream_kind)
    frames: list[Frame] = []
    rows: list[EventRow] = []
    known = {id_: parse_frame(text) for id_, text in existing.items()}
    for draft in batch.drafts:
        frame = known.get(draft.id)
        if frame is None:
            frame = {
                "id": draft.id,
                "session_id": batch.session_id,
                "stream_kind": batch.stream_kind,
                "stream_id": batch.stream_id,
                "timestamp_ms": draft.timestamp_ms,
                "seq": stream.next_seq + len(rows),
                "type": draft.type,
                **draft.data,
            }
            known[draft.id] = frame
            made = draft.encoded
            rows.append(row_of(frame, made.text if made is not None and made.seq == frame["seq"] else None))
        elif frame["stream_id"] != batch.stream_id:
            message = f"event id {draft.id!r} is already used by an event of stream {frame['stream_id']!r}"
            raise StoreError(message, reason="conflict")
        frames.append(frame)
    last = stream.next_seq - 1
    if rows and batch.expected_seq not in (None, last):
        raise StreamConflict(stream.id, batch.expected_seq, last)
    return frames, rows


class NumberedGroup(Value):
    """The appends of one transaction with their numbers: the outcome of each, and all that is to be written."""

    outcomes: list[list[Frame] | StoreError]
    rows: list[EventRow]
    streams: Mapping[str, StreamHead]
    artifacts: Mapping[str, bytes]


def number_group(
    batches: Iterable[AppendBatch], streams: Mapping[str, StreamHead], existing: Mapping[str, str]
) -> NumberedGroup:
    """Number the drafts of several appends in their order. An append that is refused writes nothing.

    `streams` are the heads of the streams that the store has, and `existing` holds the stored texts of all ids.
    """
    heads, texts = dict(streams), dict(existing)
    outcomes: list[list[Frame] | StoreError] = []
    rows: list[EventRow] = []
    artifacts: dict[str, bytes] = {}
    for batch in batches:
        stream = heads.get(batch.stream_id) or batch.new_stream()
        try:
            known = {id_: texts[id_] for id_ in batch.ids if id_ in texts}
            frames, new = number_drafts(batch, stream, known)
        except StoreError as error:
            outcomes.append(error)
            continue
        outcomes.append(frames)
        rows += new
        texts.update((row.id, row.text) for row in new)
        heads[stream.id] = replace(stream, next_seq=stream.next_seq + len(new))
        artifacts |= batch.artifacts
    return NumberedGroup(outcomes, rows, heads, dict(sorted(artifacts.items())))


def new_rows(frames: Iterable[Frame], streams: Mapping[str, StreamHead], existing: Mapping[str, str]) -> list[EventRow]:
    """Return the rows of the complete frames that are new.

    `streams` are the heads of all their streams, and `existing` holds the stored texts of their ids. A frame that is
    stored must be the same (reason "conflict"), and no seq may be missing before a new one (reason "gap").
    """
    rows: list[EventRow] = []
    expected = {id_: stream.next_seq for id_, stream in streams.items()}
    for frame in frames:
        stream_id, seq = frame["stream_id"], frame["seq"]
        check_stream(streams[stream_id], frame["session_id"], frame["stream_kind"])
        if frame["id"] in existing:
            if existing[frame["id"]] != canonical(frame):
                message = f"event {frame['id']!r} (seq {seq} of stream {stream_id!r}) is stored with different content"
                raise StoreError(message, reason="conflict")
        elif seq < expected[stream_id]:
            message = f"seq {seq} of stream {stream_id!r} belongs to another event than {frame['id']!r}"
            raise StoreError(message, reason="conflict")
        elif seq > expected[stream_id]:
            raise seq_gap(stream_id, expected[stream_id], seq)
        else:
            rows.append(row_of(frame))
            expected[stream_id] += 1
    return rows


def seq_gap(stream_id: str, expected: int, found: int) -> StoreError:
    """Return the error for a frame that would leave a gap in its stream."""
    message = f"the next seq of stream {stream_id!r} is {expected}, but the frame has seq {found}"
    return StoreError(message, reason="gap", hint="export the whole session again")


def row_of(frame: Frame, text: str | None = None) -> EventRow:
    """Return the row of a complete frame. `text` is its text, if that is known."""
    return EventRow(
        id=frame["id"],
        session_id=frame["session_id"],
        stream_id=frame["stream_id"],
        seq=frame["seq"],
        timestamp_ms=frame["timestamp_ms"],
        type=frame["type"],
        text=canonical(frame) if text is None else text,
    )


def digests_in(text: str) -> set[str]:
    """Return the digests that the text of a frame contains as whole strings: the artifacts that its session needs."""
    return set(_QUOTED_DIGEST.findall(text))
