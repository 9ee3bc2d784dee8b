"""What a person sees in a chat, one item each: messages, answers, tool cards, questions, notices, errors.

An item is plain data with an id. It may change while its turn runs; what is stored last counts. Long texts that came
from a skill are kept as artifacts and only named by their digest, so that the record of a chat holds no body.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from metier.errors import StoreError
from metier.files.digests import digest_of
from metier.files.text import from_utf8, utf8
from metier.record.events import ChatItem
from metier.record.recorder import random_ids, system_clock
from metier.record.store import Frame

Kind = Literal["user", "text", "tool", "ask", "notice", "error"]

KEPT_APART: Final = ("text", "stdout", "stderr", "detail")
"""The fields of cards and questions that are stored as artifacts."""

_GONE: Final = "[no longer kept]"


@dataclass(slots=True)
class Item:
    """One item. `data` is everything besides id, type and time."""

    type: Kind
    data: dict[str, Any]
    id: str = field(default_factory=random_ids)
    at_ms: int = field(default_factory=system_clock)

    def as_dict(self) -> dict[str, Any]:
        return {"id": self.id, "type": self.type, "at_ms": self.at_ms, **self.data}

    def __getitem__(self, key: str) -> Any:
        return self.data.get(key)


def user(text: str) -> Item:
    return Item("user", {"text": text, "skill": None})


def answer(step: int) -> Item:
    return Item("text", {"text": "", "done": False, "step": step})


def card(tool: str, role: str | None, args: Mapping[str, Any], step: int, call: str, by: str = "model") -> Item:
    """A tool card. `call` is the model's id for the call; a card by the user stands for a command in a message."""
    given = {"tool": tool, "role": role, "args": dict(args), "state": "running", "code": None, "skill": None}
    found = {"path": None, "truncated": False, "already_loaded": False, "text": "", "hits": None}
    ran = {"exit_code": None, "stdout": "", "stderr": "", "rule": None, "event_seq": None}
    return Item("tool", {**given, **found, **ran, "step": step, "call": call, "by": by})


def notice(text: str) -> Item:
    return Item("notice", {"text": text})


def error(message: str) -> Item:
    return Item("error", {"message": message, "retry": True})


def to_event(item: Item, redact: Callable[[str], str]) -> tuple[ChatItem, list[bytes]]:
    """The event that stores an item, and the artifacts it names. `redact` hides what people and models wrote."""
    data = _redacted(item, redact)
    apart: dict[str, str] = {}
    artifacts: list[bytes] = []
    if item.type in ("tool", "ask"):
        for key in KEPT_APART:
            text = data.pop(key, "")
            if text:
                content = utf8(text)
                artifacts.append(content)
                apart[key] = digest_of(content)
    return ChatItem(item.id, item.type, item.at_ms, data, apart), artifacts


def _redacted(item: Item, redact: Callable[[str], str]) -> dict[str, Any]:
    data = dict(item.data)
    if redact("x") == "x":
        return data
    for key in ("text", "message", "stdout", "stderr", "detail", "command"):
        if data.get(key):
            data[key] = redact(str(data[key]))
    if data.get("args"):
        data["args"] = {key: redact("x") for key in data["args"]}
    return data


def from_frames(frames: Iterable[Frame], artifact: Callable[[str], bytes]) -> list[Item]:
    """The items of a stream in the order in which they began, each as it was stored last."""
    latest: dict[str, Frame] = {}
    for frame in frames:
        if frame["type"] == ChatItem.type:
            latest[frame["item"]] = frame
    return [_from_frame(frame, artifact) for frame in latest.values()]


def _from_frame(frame: Frame, artifact: Callable[[str], bytes]) -> Item:
    data = dict(frame.get("content", {}))
    apart: Mapping[str, str] = frame.get("texts", {})
    if frame["kind"] in ("tool", "ask"):
        data.update((key, "") for key in KEPT_APART if frame["kind"] == "tool" and key != "detail")
    for key, digest in apart.items():
        try:
            data[key] = from_utf8(artifact(digest))
        except StoreError:
            data[key] = _GONE
    return Item(frame["kind"], data, frame["item"], frame["at_ms"])
