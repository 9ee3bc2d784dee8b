"""What must be true of a record after a walk."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

from metier import replay
from metier.record.store import Frame, open_store

from .processes import Json


def check(url: str, session_id: str, folder: str, tokens: Sequence[str] = ()) -> Json:
    """Verify and replay a session of a store, and its export. Return what is wrong, and what was counted.

    Each of the tokens must be in the arguments of an operation.
    """
    file = os.path.join(folder, "record.jsonl")
    with open_store(url) as store:
        frames = store.read(session_id)
        wrong = [(f"verify {one.kind}", one.detail) for one in replay.verify(replay.from_store(store, session_id))]
        with open(file, "w", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in store.export_lines(session_id))
    record = replay.from_file(file)
    wrong += ((f"verify-file {one.kind}", one.detail) for one in replay.verify(record))
    again = replay.replay(record)
    for one in again.differences[:1]:  # the others mostly follow from the first
        wrong.append((_kind(one, frames), f"the first of {len(again.differences)}: {_detail(one)}"))
    for stream in dict.fromkeys(frame["stream_id"] for frame in frames):
        times = [frame["timestamp_ms"] for frame in frames if frame["stream_id"] == stream]
        back = next((n for n in range(1, len(times)) if times[n] < times[n - 1]), None)
        if back is not None:
            late = times[back - 1] - times[back]
            wrong.append(("time-backwards", f"frame {back} of {stream} is {late} ms before the last"))
    kinds = Counter(str(frame["type"]) for frame in frames)
    if kinds["tool_started"] > kinds["tool_ended"] + kinds["tool_failed"]:
        wrong.append(("script-without-end", f"{kinds['tool_started']} scripts began, {kinds['tool_ended']} ended"))
    asked = json.dumps([frame["args"] for frame in frames if frame["type"] == "session_called"])
    wrong += (("lost", f"{token} was acknowledged and is not in the record") for token in tokens if token not in asked)
    returned = Counter(str(frame["operation"]) for frame in frames if frame["type"] == "session_returned")
    not_compared = int(getattr(again, "not_compared", 0))
    return {"frames": len(frames), "wrong": wrong, "returned": returned, "not_compared": not_compared}


def _kind(one: replay.Difference, frames: list[Frame]) -> str:
    """A short name for a difference: which kind of frame differs, in what, within which operation."""
    was, now = _frame(one.expected), _frame(one.found)
    if not was and not now:
        return f"replay {one.kind}: {one.detail.partition(':')[2].strip()[:80]}"
    keys = sorted(key for key in {*was, *now} if was.get(key) != now.get(key))
    before = [frame for frame in frames[: one.index + 1] if frame["type"] == "session_called"]
    inside = f" in {before[-1]['operation']}" if before else ""
    if was.get("type") != now.get("type"):
        return f"replay {one.kind}: {was.get('type')} became {now.get('type')}{inside}"
    return f"replay {one.kind}: {was.get('type')} [{', '.join(keys)}]{inside}"


def _detail(one: replay.Difference) -> str:
    return f"{one.detail} | was {one.expected[:600]} | now {one.found[:600]}"


def _frame(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
