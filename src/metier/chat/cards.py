"""What came of a tool call, put into its card: what the model got, and what the trail of the session says about it.

The frames of the session are the same under every profile, whatever shape the host's results have, so cards are too.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from metier.chat.items import Item
from metier.record.store import Frame
from metier.session.policy import Request
from metier.session.tools import ToolResult


def fill(card: Item, result: ToolResult, frames: Iterable[Frame]) -> None:
    """Complete a card. `frames` are those of the session since the call began."""
    data = card.data
    data.update(text=result.text, state="done" if result.ok else "failed", code=result.code or None)
    if result.code == "ACCESS_DENIED":
        rule = re.search(r"\((.*)\)$", result.text, re.DOTALL)
        data.update(state="refused", rule=rule[1] if rule else result.text)
    for frame in frames:
        if frame["type"] == "session_called" and data["event_seq"] is None:
            data["event_seq"] = frame["seq"]
        elif frame["type"] == "skill_loaded":
            data.update(skill=frame["name"], truncated=frame.get("truncated", False), digest=frame["digest"])
            data["already_loaded"] = frame.get("already_loaded", False)
        elif frame["type"] in ("skill_resource_read", "skill_resource_refused"):
            data.update(skill=frame["name"], path=frame["path"], truncated=frame.get("truncated", False))
    if data["role"] == "search" and result.ok:
        data["hits"] = [_hit(one) for one in result.data.get("results", ())]
    if data["role"] == "run":
        data["path"] = data["args"].get("script")
        if result.ok:
            data.update((key, result.data.get(key)) for key in ("exit_code", "stdout", "stderr"))


def question(request: Request, why: str) -> Item:
    """The card of a question: what would be done, for which skill, with which content."""
    return Item(
        "ask",
        {
            "tool": request.tool,
            "skill": request.skill_name,
            "path": request.path,
            "command": request.command,
            "digest": request.digest,
            "detail": request.detail,
            "why": why,
            "state": "waiting",
        },
    )


def _hit(found: Mapping[str, Any]) -> dict[str, Any]:
    skill: Mapping[str, Any] = found.get("skill", found)
    return {
        "name": skill.get("name"),
        "description": skill.get("description"),
        "score": found.get("score"),
        "reason": found.get("reason"),
    }
