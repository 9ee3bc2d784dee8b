"""Fills in tool cards: the result that the model got, and what the record of the session says about the call.

The events of a session are the same under every profile, whatever shape the host's results have. Cards are built from
the events, so they are the same, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from metier.chat.items import ToolItem
from metier.files.json_text import part_of
from metier.files.shapes import as_table, is_table
from metier.model import wire_name
from metier.record.state import ref_of
from metier.record.store import Frame
from metier.session.tools import ToolResult

STOPPED: Final = "The call was stopped before it ended."


def fill(card: ToolItem, result: ToolResult, frames: Iterable[Frame]) -> None:
    """Complete a card. `frames` are the frames of the session since the call began."""
    card.text, card.code, card.shown_at = result.text, result.code or None, result.shown_at
    card.state = "done" if result.ok else "failed"
    if result.code == "ACCESS_DENIED":
        card.state, card.rule = "refused", result.rule or part_of(result.text, result.shown_at)
    known = list(frames)
    op = operation_of(card, known)
    for frame in known:
        if frame.get("op") == op:
            _note(card, frame)
    if card.role == "search" and result.ok:
        found: Iterable[Mapping[str, object]] = result.data.get("results", ())
        card.hits = [_hit(one) for one in found]
    if card.role == "run":
        script = card.args.get("script")
        card.path = None if script is None else str(script)
        if result.ok:
            exit_code = result.data.get("exit_code")
            card.exit_code = exit_code if isinstance(exit_code, int) else None
            card.stdout, card.stderr = str(result.data.get("stdout", "")), str(result.data.get("stderr", ""))


def output(card: ToolItem, frames: Sequence[Frame]) -> tuple[str, str]:
    """What the script of a card has printed so far, to stdout and to stderr."""
    op = operation_of(card, frames)
    printed = [frame for frame in frames if frame.get("op") == op]
    return (
        "".join(frame["text"] for frame in printed if frame["type"] == "tool_stdout"),
        "".join(frame["text"] for frame in printed if frame["type"] == "tool_stderr"),
    )


def stop(card: ToolItem, frames: Sequence[Frame]) -> None:
    """Complete the card of a call that was stopped. What its script had printed stays, also for the model."""
    card.stdout, card.stderr = output(card, frames)
    card.state, card.code, card.text = "failed", "STOPPED", STOPPED
    printed = "\n".join(filter(None, (card.stdout, card.stderr)))
    if printed:
        card.text += f" Its output until then:\n{printed}"


def operation_of(card: ToolItem, frames: Iterable[Frame]) -> str | None:
    """The id of the operation that a card shows. Another process may be at work in the same session."""
    for frame in frames:
        if frame["type"] == "session_called":
            tool = str(as_table(frame.get("args")).get("tool"))
            if wire_name(tool) == wire_name(card.tool) or (card.by == "user" and frame["operation"] != "call"):
                return str(frame["op"])
    return None


def _note(card: ToolItem, frame: Frame) -> None:
    kind = frame["type"]
    if kind == "session_called" and card.event_seq is None:
        card.event_seq = frame["seq"]
    elif kind == "skill_loaded":
        card.skill, card.digest, card.truncated = frame["name"], frame["digest"], frame.get("truncated", False)
        card.already_loaded = frame.get("already_loaded", False)
        card.ref = ref_of(frame["output"])
    elif kind == "tool_ended":
        card.made = [dict(one) for one in frame["artifacts"]]
        card.ref = ref_of(frame["stdout"]) if frame["stdout"] else ""
    elif kind in ("skill_resource_read", "skill_resource_refused"):
        card.skill, card.path, card.truncated = frame["name"], frame["path"], frame.get("truncated", False)


def _hit(found: Mapping[str, object]) -> dict[str, object]:
    skill = found.get("skill")
    about = skill if is_table(skill) else found
    return {
        "name": about.get("name"),
        "description": about.get("description"),
        "path": about.get("path"),
        "scope": about.get("scope"),
        "score": found.get("score"),
        "reason": found.get("reason"),
        "fit": found.get("fit"),
    }
