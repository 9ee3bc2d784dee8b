"""What happened, one frozen type per kind of event, and where events go.

An event carries the facts of its kind; the `Recorder` puts the envelope around it (id, session, stream, time) and hands
it to a sink, which numbers it. Clock and ids are given from outside, so that a replay makes the same bytes. Only a
session records; every surface sees the same frames.
"""

import itertools
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Literal, Protocol

VERSION: Final = 1
"""Of the frames. A new field is no new version; a changed meaning is."""

Frame = dict[str, Any]
"""One flat JSON object: id, session_id, stream_kind, stream_id, timestamp_ms, seq, type, then the event's own fields."""


@dataclass(frozen=True, slots=True)
class Event:
    """The root of all events. Fields that are `None` or empty are left out of the frame."""

    type: ClassVar[str] = ""

    def data(self) -> dict[str, Any]:
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in values.items() if value is not None and value != ()}


@dataclass(frozen=True, slots=True)
class SkillCatalogUpdated(Event):
    """The catalog was built or rebuilt. `collisions` are the names that two skills bear, with winner and losers."""

    type: ClassVar[str] = "skill_catalog_updated"
    count: int
    roots: tuple[str, ...]
    profile: str = "standard"
    collisions: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class SkillLoaded(Event):
    """A SKILL.md was read for activation. `digest` is that of the file, `artifact` that of what the model was given."""

    type: ClassVar[str] = "skill_loaded"
    name: str
    path: str
    digest: str
    frontmatter: Mapping[str, Any]
    directory: str = ""
    artifact: str = ""
    already_loaded: bool = False
    truncated: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SkillInvoked(Event):
    """A skill was called: by a user (`manual`) or by the model (`auto`)."""

    type: ClassVar[str] = "skill_invoked"
    name: str
    mode: Literal["manual", "auto"]
    args: str | None = None
    effective_allowed_tools: tuple[str, ...] | None = None
    parent: str | None = None

    def data(self) -> dict[str, Any]:
        values = super(SkillInvoked, self).data()
        if self.effective_allowed_tools is not None:
            values["effective_allowed_tools"] = self.effective_allowed_tools
        return values


@dataclass(frozen=True, slots=True)
class SkillWarning(Event):
    """Something to know: a collision, a cut, a bound. `kind` is a stable word."""

    type: ClassVar[str] = "skill_warning"
    kind: str
    detail: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ResourceRead(Event):
    """A file of a skill was read. `digest` is that of what was returned, and names the artifact that keeps it."""

    type: ClassVar[str] = "skill_resource_read"
    name: str
    path: str
    digest: str
    size: int
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class ToolCalled(Event):
    """The model called a tool, and what it was given back, by digest."""

    type: ClassVar[str] = "tool_called"
    tool: str
    args: Mapping[str, Any]
    status: Literal["ok", "error"]
    artifact: str
    code: str | None = None


class Sink(Protocol):
    """Where frames go. `append` numbers them, 0, 1, 2... without a gap in each stream, and returns when they are safe."""

    def append(
        self,
        session_id: str,
        stream_kind: str,
        stream_id: str,
        drafts: "Sequence[Draft]",
        artifacts: Iterable[bytes] = (),
    ) -> list[Frame]: ...

    def read(self, session_id: str | None = None) -> list[Frame]: ...

    def get_artifact(self, digest: str) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Draft:
    """A frame before it has its number."""

    id: str
    timestamp_ms: int
    type: str
    data: Mapping[str, Any]


def frame(draft: Draft, session_id: str, stream_kind: str, stream_id: str, seq: int) -> Frame:
    """The frame of a draft: the envelope first, then the event's own fields."""
    envelope = {
        "id": draft.id,
        "session_id": session_id,
        "stream_kind": stream_kind,
        "stream_id": stream_id,
        "timestamp_ms": draft.timestamp_ms,
        "seq": seq,
        "type": draft.type,
    }
    return {**envelope, **draft.data}


def canonical(one: Frame) -> str:
    """A frame as one line of JSON, the same bytes every time."""
    return json.dumps(one, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    raise TypeError(f"{type(value).__name__} cannot be written to an event")


def system_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def random_ids() -> str:
    """Ids that sort by time and never meet."""
    return f"{time.time_ns():016x}{uuid.uuid4().hex[:16]}"


class Counter:
    """Ids 'prefix-0', 'prefix-1', ... and a clock that ticks once per look: the surroundings of a deterministic run."""

    def __init__(self, prefix: str = "event", start_ms: int = 0) -> None:
        self._prefix = prefix
        self._ids = itertools.count()
        self._ticks = itertools.count(start_ms)

    def ids(self) -> str:
        return f"{self._prefix}-{next(self._ids)}"

    def clock(self) -> int:
        return next(self._ticks)


class MemorySink:
    """Keeps everything in this process: the default of a session without a store, and the fake for tests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._frames: list[Frame] = []
        self._next: dict[str, int] = {}
        self._artifacts: dict[str, bytes] = {}

    def append(
        self,
        session_id: str,
        stream_kind: str,
        stream_id: str,
        drafts: Sequence[Draft],
        artifacts: Iterable[bytes] = (),
    ) -> list[Frame]:
        with self._lock:
            for data in artifacts:
                self._artifacts.setdefault(digest_of(data), data)
            written: list[Frame] = []
            for draft in drafts:
                seq = self._next.get(stream_id, 0)
                self._next[stream_id] = seq + 1
                written.append(frame(draft, session_id, stream_kind, stream_id, seq))
            self._frames += written
            return written

    def read(self, session_id: str | None = None) -> list[Frame]:
        with self._lock:
            return [one for one in self._frames if session_id in (None, one["session_id"])]

    def get_artifact(self, digest: str) -> bytes:
        return self._artifacts[digest]


def digest_of(data: bytes) -> str:
    """`sha256:` and the hex digest: the name of content everywhere."""
    import hashlib

    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Recorder:
    """Puts events into frames and hands them on, for one session."""

    def __init__(
        self,
        sink: Sink,
        session_id: str,
        clock: Callable[[], int] = system_clock,
        ids: Callable[[], str] = random_ids,
    ) -> None:
        self.sink, self.session_id, self._clock, self._ids = sink, session_id, clock, ids

    def record(self, *events: Event, artifacts: Iterable[bytes] = ()) -> list[Frame]:
        drafts = [Draft(self._ids(), self._clock(), event.type, event.data()) for event in events]
        return self.sink.append(self.session_id, "session", self.session_id, drafts, artifacts)

    def frames(self) -> list[Frame]:
        return self.sink.read(self.session_id)
