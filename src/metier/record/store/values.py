"""The values that go into a store and come out of it.

A draft becomes a frame, and a frame has exactly one text. Invariant: `canonical` is the only function that turns a
frame into text. Stores keep that text and never encode a frame again, so a read returns the bytes that were written.
"""

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from metier import limits
from metier.errors import StoreError
from metier.values.value import Count, Value, field

EVENT_BYTES: Final = 4 * limits.MIB
"""The largest text of one event. A page of events must fit into memory; larger content belongs in an artifact."""

STATE_BYTES: Final = limits.MIB
"""The largest document of session state: it holds lists of names and settings, never bodies."""

NOTICE_BYTES: Final = 4000
"""The largest payload of a notice: it tells listeners where to look, and does not carry the content."""

GRACE_MS: Final = 3_600_000
"""How long a prune spares an artifact that no event names: another process may be about to append that event."""

ENVELOPE: Final = ("id", "session_id", "stream_kind", "stream_id", "timestamp_ms", "seq", "type")
"""The keys that every frame begins with, in this order."""

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A value that JSON can represent."""

Frame = dict[str, Any]
"""One stored event as a flat object: the envelope, then the data."""

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class EncodedFrame(NamedTuple):
    """The text of the frame that a draft becomes if it gets this seq, as `canonical` would give it."""

    seq: int
    text: str


class Draft(Value):
    """An event that has no seq yet. An id is written only once, so it is safe to repeat an append."""

    unshown = ("encoded",)
    uncompared = ("encoded",)
    unhashed = ("data",)

    id: str
    timestamp_ms: int
    type: str
    data: Mapping[str, object] = field(default_factory=dict[str, object])
    encoded: EncodedFrame | None = None
    """The frame as text, from a writer that had to make it anyway. A store then need not make it again."""


class Document(Value):
    """A document of session state. Its version starts at 1 and rises by 1 with every save."""

    unhashed = ("value",)

    key: str
    version: int
    value: Any


class Page(Value):
    """Events for a follower, and the cursor of the next page."""

    frames: tuple[Frame, ...]
    cursor: int


class Summary(Value):
    """One session of a store: the times of its first and last event, and the number of its events."""

    id: str
    first_ms: int
    last_ms: int
    events: Count


class Stats(Value, kw_only=True):
    """How much a store holds. `bytes` is its size on disk, or for a store in memory the size of its content."""

    kind: str
    location: str
    schema: Count
    sessions: Count
    streams: Count
    events: Count
    artifacts: Count
    artifact_bytes: Count
    states: Count
    bytes: Count


class Pruned(Value):
    """How much a prune removed."""

    sessions: Count = 0
    events: Count = 0
    artifacts: Count = 0
    artifact_bytes: Count = 0


class Imported(Value):
    """How much an import wrote. Content that was already in the store is not counted."""

    events: Count = 0
    artifacts: Count = 0
    states: Count = 0

    def __add__(self, other: "Imported") -> "Imported":
        return Imported(self.events + other.events, self.artifacts + other.artifacts, self.states + other.states)


def canonical(frame: Mapping[str, object]) -> str:
    """Return the text of a frame: the envelope in its order, then the data as given, without blanks or escapes."""
    if tuple(islice(frame, len(ENVELOPE))) != ENVELOPE:
        frame = {**{key: frame[key] for key in ENVELOPE}, **frame}
    return _ENCODER.encode(frame)


def encode(value: Json) -> str:
    """Return the text of a JSON value, in the same form as that of a frame."""
    return _ENCODER.encode(value)


def parse_frame(text: str) -> Frame:
    """Return the frame that a stored text holds."""
    frame: Frame = _parse(text)
    return frame


def parse_value(text: str) -> Json:
    """Return the value of a document that a stored text holds."""
    value: Json = _parse(text)
    return value


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"the stored text is not valid JSON: {error}", reason="corrupt") from error
