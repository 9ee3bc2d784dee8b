"""Fills in tool cards: the result that the model got, and the frames of the operation that gave it.

Events are the same under every profile, whatever shape the host's results have. Cards are built from the events, so
they are the same, too. The frames come from the operation itself: another process may be at work in the same session.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from metier.files.json_text import part_of
from metier.files.shapes import is_table
from metier.record.state import ref_of
from metier.record.store import Frame
from metier.session.tools import ToolResult
from metier.surfaces.chat.items import ToolItem

STOPPED: Final = "The call was stopped before it ended."


def fill(card: ToolItem, result: ToolResult, frames: Iterable[Frame]) -> None:
    """Complete a card. `frames` are the frames of its operation."""
    card.text, card.code, card.shown_at = result.text, result.code or None, result.shown_at
    card.state = "done" if result.ok else "failed"
    if result.code == "ACCESS_DENIED":
        card.state, card.rule = "refused", result.rule or part_of(result.text, result.shown_at)
    for frame in frames:
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


def output(frames: Sequence[Frame]) -> tuple[str, str]:
    """What the script of an operation has printed so far, to stdout and to stderr."""
    return (
        "".join(frame["text"] for frame in frames if frame["type"] == "tool_stdout"),
        "".join(frame["text"] for frame in frames if frame["type"] == "tool_stderr"),
    )


def stop(card: ToolItem, frames: Sequence[Frame]) -> None:
    """Complete the card of a call that was stopped. What its script had printed stays, also for the model."""
    card.stdout, card.stderr = output(frames)
    card.state, card.code, card.text = "failed", "STOPPED", STOPPED
    printed = "\n".join(filter(None, (card.stdout, card.stderr)))
    if printed:
        card.text += f" Its output until then:\n{printed}"


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
