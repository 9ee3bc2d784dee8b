"""The files that recorded runs of scripts left."""

from collections.abc import Iterator
from typing import Final

from metier.record.events import ToolEnded, ToolStarted
from metier.record.store import Frame, Store
from metier.values.value import Count, Value

_RUNS: Final = 200
"""The runs that are looked through, the latest ones."""


class MadeFile(Value, kw_only=True):
    """A file that a script made."""

    session: str
    skill: str
    script: str
    path: str
    size: Count
    digest: str
    at_ms: int


def made_files(store: Store, session: str | None = None) -> list[MadeFile]:
    """The files that scripts made in one session or in all, the latest first."""
    frames = store.read(session, types=(ToolStarted.type, ToolEnded.type), limit=2 * _RUNS, newest=True)
    return list(_made_in(frames))[::-1]


def _made_in(frames: list[Frame]) -> Iterator[MadeFile]:
    started: dict[object, Frame] = {}
    for frame in frames:
        if frame["type"] == ToolStarted.type:
            started[frame.get("op")] = frame
            continue
        run = started.pop(frame.get("op"), {})
        for one in reversed(frame["artifacts"]):
            yield MadeFile(
                session=frame["session_id"],
                skill=str(run.get("name", "")),
                script=str(run.get("script", "")),
                path=one["path"],
                size=one["size"],
                digest=one["digest"],
                at_ms=frame["timestamp_ms"],
            )
