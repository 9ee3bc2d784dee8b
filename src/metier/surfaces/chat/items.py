"""The items of a chat: messages, answers, reasoning, tool cards, questions, choices, notices and errors.

An item may change while its turn runs; the state stored last counts. Long texts that came from a skill are stored as
artifacts and referenced by digest, so that the record of a chat contains no body of a skill. Cards are filled in from
the events of their operation, which are the same under every profile, whatever shape the host's results have.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from metier.errors import StoreError
from metier.files.digests import digest_of
from metier.files.json_text import part_of
from metier.files.shapes import is_items, is_table
from metier.files.text import from_utf8, utf8
from metier.policy.question import Question
from metier.record.events import ChatItem
from metier.record.state import ref_of
from metier.record.store import Frame
from metier.record.writer import random_ids, system_clock
from metier.running.grants import read, recorded
from metier.values.results import AmbiguousMention, Request, ToolResult
from metier.values.skill import JsonObject

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

ItemKind = Literal["user", "file", "text", "reasoning", "tool", "ask", "choice", "notice", "error"]
CardState = Literal["running", "done", "failed", "refused"]
AskState = Literal["waiting", "once", "always", "no"]

FILE_CHARACTERS: Final = 20_000
"""Characters of one file that the model reads."""

ARTIFACT_FIELDS: Final = ("text", "stdout", "stderr", "detail", "before")
"""The fields of cards and questions that are stored as artifacts."""

_REDACTED_FIELDS: Final = ("text", "message", "stdout", "stderr", "detail", "before", "command")
_ENVELOPE: Final = ("id", "at_ms")
_OPTIONAL: Final = {"optional": True}
"""Marks a field that is left out of the data while it has its default."""

_GONE: Final = "[no longer kept]"


@dataclass(slots=True, kw_only=True, eq=False)
class Item:
    """One item. Two items are the same only if they are one object."""

    type: ClassVar[ItemKind]
    id: str = field(default_factory=random_ids)
    at_ms: int = field(default_factory=system_clock)

    def content(self) -> dict[str, object]:
        """The data of the item without its id, type and time."""
        values = ((one, getattr(self, one.name)) for one in fields(self) if one.name not in _ENVELOPE)
        return {one.name: value for one, value in values if not one.metadata or value != one.default}

    def as_dict(self) -> dict[str, object]:
        return {"id": self.id, "type": self.type, "at_ms": self.at_ms, **self.content()}


@dataclass(slots=True, kw_only=True, eq=False)
class UserItem(Item):
    """A message of the user. `message` is what the model is told instead, where the text calls a skill by name."""

    type: ClassVar[ItemKind] = "user"
    text: str
    skill: str | None = None
    message: str | None = field(default=None, metadata=_OPTIONAL)
    loaded: bool = field(default=False, metadata=_OPTIONAL)
    """Whether the skill was loaded by the host, and its instructions are a card of their own."""
    replaces: str = field(default="", metadata=_OPTIONAL)
    """The id of an earlier message that this one stands for. That one and what followed it are set aside."""


@dataclass(slots=True, kw_only=True, eq=False)
class FileItem(Item):
    """A file that the user added. Scripts find the latest one of each name in their current folder.

    What the model reads of it is made from the file; see `metier.surfaces.chat.history`.
    """

    type: ClassVar[ItemKind] = "file"
    name: str
    size: int
    digest: str
    characters: int = field(default=0, metadata=_OPTIONAL)
    """The length of its text; 0 if it is no text."""


@dataclass(slots=True, kw_only=True, eq=False)
class TextItem(Item):
    """An answer of the model. `step` is the request of the turn that it answers."""

    type: ClassVar[ItemKind] = "text"
    text: str = ""
    done: bool = False
    step: int
    cut: bool = field(default=False, metadata=_OPTIONAL)
    superseded: bool = field(default=False, metadata=_OPTIONAL)
    spent: Mapping[str, object] | None = field(default=None, metadata=_OPTIONAL)
    """The tokens of the answer and of the calls before it, and their price; see `Spent`."""


@dataclass(slots=True, kw_only=True, eq=False)
class ReasoningItem(TextItem):
    """What the model thought before an answer, where its provider sends that. It is not sent back."""

    type: ClassVar[ItemKind] = "reasoning"
    ended_ms: int = field(default=0, metadata=_OPTIONAL)


@dataclass(slots=True, kw_only=True, eq=False)
class ToolItem(Item):
    """A tool card. `call` is the model's id for the call; a card by the user stands for a command in a message."""

    type: ClassVar[ItemKind] = "tool"
    tool: str
    role: str | None
    args: Mapping[str, object]
    state: CardState = "running"
    code: str | None = None
    skill: str | None = None
    path: str | None = None
    truncated: bool = False
    already_loaded: bool = False
    text: str = ""
    hits: list[dict[str, object]] | None = None
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    rule: str | None = None
    event_seq: int | None = None
    step: int
    call: str
    by: Literal["model", "user"] = "model"
    digest: str | None = field(default=None, metadata=_OPTIONAL)
    injected: bool = field(default=False, metadata=_OPTIONAL)
    """Whether the instructions are in the system prompt of this turn only."""
    ref: str = field(default="", metadata=_OPTIONAL)
    """The ref by which the session gives the text again."""
    shown_at: Sequence[str] = field(default=(), metadata=_OPTIONAL)
    """Where `text` is JSON: the keys that lead to the part that the card shows; see `ToolResult`."""
    made: Sequence[Mapping[str, object]] = field(default=(), metadata=_OPTIONAL)
    """The files that the script made: path, digest and size."""

    def fill(self, result: ToolResult, frames: Iterable[Frame]) -> None:
        """Complete the card. `frames` come from the operation itself: another process may work in the same session."""
        self.text, self.code, self.shown_at = result.text, result.code or None, result.shown_at
        self.state = "done" if result.ok else "failed"
        if result.code == "ACCESS_DENIED":
            self.state, self.rule = "refused", result.rule or part_of(result.text, result.shown_at)
        for frame in frames:
            self._note(frame)
        if self.role == "search" and result.ok:
            self.hits = [_hit(one) for one in result.data.get("results", ())]
        if self.role == "run":
            script = self.args.get("script")
            self.path = None if script is None else str(script)
            if result.ok:
                exit_code = result.data.get("exit_code")
                self.exit_code = exit_code if isinstance(exit_code, int) else None
                self.stdout, self.stderr = str(result.data.get("stdout", "")), str(result.data.get("stderr", ""))

    def _note(self, frame: Frame) -> None:
        kind = frame["type"]
        if kind == "session_called" and self.event_seq is None:
            self.event_seq = frame["seq"]
        elif kind == "skill_loaded":
            self.skill, self.digest, self.truncated = frame["name"], frame["digest"], frame.get("truncated", False)
            self.already_loaded = frame.get("already_loaded", False)
            self.ref = ref_of(frame["output"])
        elif kind == "tool_ended":
            self.made = [dict(one) for one in frame["artifacts"]]
            self.ref = ref_of(frame["stdout"]) if frame["stdout"] else ""
        elif kind in ("skill_resource_read", "skill_resource_refused"):
            self.skill, self.path, self.truncated = frame["name"], frame["path"], frame.get("truncated", False)

    def show_output(self, frames: Sequence[Frame]) -> bool:
        """Take over what the script of the operation has printed so far. Return whether that is new."""
        before = self.stdout, self.stderr
        self.stdout = "".join(frame["text"] for frame in frames if frame["type"] == "tool_stdout")
        self.stderr = "".join(frame["text"] for frame in frames if frame["type"] == "tool_stderr")
        return before != (self.stdout, self.stderr)

    def stop(self, frames: Sequence[Frame]) -> None:
        """Complete the card of a call that was stopped. What its script had printed stays, also for the model."""
        self.show_output(frames)
        self.state, self.code, self.text = "failed", "STOPPED", "The call was stopped before it ended."
        printed = "\n".join(filter(None, (self.stdout, self.stderr)))
        if printed:
            self.text += f" Its output until then:\n{printed}"


def _hit(found: Mapping[str, object]) -> dict[str, object]:
    skill = found.get("skill")
    about = skill if is_table(skill) else found
    return {
        **{key: about.get(key) for key in ("name", "description", "path", "scope")},
        **{key: found.get(key) for key in ("score", "reason", "fit")},
    }


@dataclass(slots=True, kw_only=True, eq=False)
class AskItem(Item):
    """A question of the policy: the request, the reason for asking, and the answer.

    Only the request is stored. What a person reads is made from it, so that an old chat shows it in today's words.
    """

    type: ClassVar[ItemKind] = "ask"
    tool: str
    skill: str
    path: str
    command: str
    digest: str
    detail: str = ""
    before: str = field(default="", metadata=_OPTIONAL)
    arguments: Sequence[str] = field(default=(), metadata=_OPTIONAL)
    grants: Mapping[str, JsonObject] | None = field(default=None, metadata=_OPTIONAL)
    folder: str = field(default="", metadata=_OPTIONAL)
    scope: str = field(default="", metadata=_OPTIONAL)
    source: str = field(default="", metadata=_OPTIONAL)
    foreign: bool = field(default=False, metadata=_OPTIONAL)
    name: str = field(default="", metadata=_OPTIONAL)
    why: str
    state: AskState = "waiting"

    @classmethod
    def of(cls, request: Request, why: str) -> "AskItem":
        values = {name: getattr(request, name) for name in cls._of_request()}
        grants = recorded(request.grants) if request.grants else None
        return cls(skill=request.skill_name, why=why, grants=grants, **values)

    @property
    def request(self) -> Request:
        values: dict[str, Any] = {name: getattr(self, name) for name in self._of_request()}
        lists: dict[str, Any] = {name: tuple(value) for name, value in values.items() if is_items(value)}
        grants = read(self.grants) if self.grants is not None else ()
        return Request(skill_name=self.skill, grants=grants, **values | lists)

    @classmethod
    def _of_request(cls) -> list[str]:
        """The fields that a request has under the same name, as they are."""
        return [one.name for one in fields(cls) if one.name not in (*_ENVELOPE, "skill", "why", "state", "grants")]

    def takes(self, answer: str) -> bool:
        return answer in ("once", "always", "no")

    def as_dict(self) -> dict[str, object]:
        return {**Item.as_dict(self), "question": Question.of(self.request).as_dict()}


@dataclass(slots=True, kw_only=True, eq=False)
class ChoiceItem(Item):
    """A choice between the skills that bear a name in the message. `chosen` is the id of the one that was picked."""

    type: ClassVar[ItemKind] = "choice"
    name: str
    candidates: Sequence[Mapping[str, str]]
    """The id, path, scope and description of each skill."""
    state: Literal["waiting", "chosen", "none"] = "waiting"
    chosen: str | None = None

    @classmethod
    def of(cls, mention: AmbiguousMention) -> "ChoiceItem":
        about = (
            {"skill_id": one.id, "path": one.path, "scope": one.scope, "description": one.description}
            for one in mention.candidates
        )
        return cls(name=mention.name, candidates=list(about))

    def takes(self, answer: str) -> bool:
        """Whether this can be picked: the id of one of the skills, or none."""
        return not answer or any(one["skill_id"] == answer for one in self.candidates)


@dataclass(slots=True, kw_only=True, eq=False)
class NoticeItem(Item):
    """A remark about the turn."""

    type: ClassVar[ItemKind] = "notice"
    text: str


@dataclass(slots=True, kw_only=True, eq=False)
class ErrorItem(Item):
    """Why the turn could not continue, and whether the page offers to try again."""

    type: ClassVar[ItemKind] = "error"
    message: str
    retry: bool = True
    superseded: bool = field(default=False, metadata=_OPTIONAL)


def files_of(kept: Iterable[Item]) -> dict[str, FileItem]:
    """The files of a chat by name, of each name the latest."""
    return {item.name: item for item in kept if isinstance(item, FileItem)}


def in_use(kept: Iterable[Item]) -> list[Item]:
    """The items of a chat without those that a message set aside. Files just before a message belong to it."""
    used: list[Item] = []
    for item in kept:
        if isinstance(item, UserItem) and item.replaces:
            places = (number for number, one in enumerate(used) if one.id == item.replaces)
            aside = used[next(places, len(used)) :]
            files = list(itertools.takewhile(lambda one: isinstance(one, FileItem), reversed(aside)))
            used[len(used) - len(aside) :] = reversed(files)
        used.append(item)
    return used


KINDS: Final[Mapping[str, type[Item]]] = {
    one.type: one
    for one in (
        *(UserItem, FileItem, TextItem, ReasoningItem, ToolItem),
        *(AskItem, ChoiceItem, NoticeItem, ErrorItem),
    )
}


# --- storing ---


def to_event(item: Item, redact: Callable[[str], str]) -> tuple[ChatItem, list[bytes]]:
    """The event that stores an item, and its artifacts. `redact` hides what people and models wrote."""
    data = _redacted(item, redact)
    digests: dict[str, str] = {}
    artifacts: list[bytes] = []
    if isinstance(item, ToolItem | AskItem):
        for key in ARTIFACT_FIELDS:
            text = data.pop(key, "")
            if text:
                content = utf8(str(text))
                artifacts.append(content)
                digests[key] = digest_of(content)
    return ChatItem(item.id, item.type, item.at_ms, data, digests), artifacts


def _redacted(item: Item, redact: Callable[[str], str]) -> dict[str, object]:
    data = item.content()
    if redact("x") == "x":
        return data
    for key in _REDACTED_FIELDS:
        if data.get(key):
            data[key] = redact(str(data[key]))
    if isinstance(item, ToolItem):
        data["args"] = {key: redact("x") for key in item.args}
    if isinstance(item, AskItem) and item.arguments:
        data["arguments"] = [redact(one) for one in item.arguments]
    return data


def from_frames(frames: Iterable[Frame], artifact: Callable[[str], bytes]) -> list[Item]:
    """The items of a stream in the order in which they began, each in the state stored last."""
    latest: dict[str, Frame] = {}
    for frame in frames:
        if frame["type"] == ChatItem.type:
            latest[frame["item"]] = frame
    return [_from_frame(frame, artifact) for frame in latest.values()]


def _from_frame(frame: Frame, artifact: Callable[[str], bytes]) -> Item:
    kind = KINDS[frame["kind"]]
    names = {one.name for one in fields(kind)}
    content: Mapping[str, Any] = frame.get("content", {})
    values = {key: value for key, value in content.items() if key in names}
    digests: Mapping[str, str] = frame.get("texts", {})
    for key, digest in digests.items():
        try:
            values[key] = from_utf8(artifact(digest))
        except StoreError:
            values[key] = _GONE
    return kind(id=frame["item"], at_ms=frame["at_ms"], **values)


# --- tokens and their price ---


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens sent and received, and their price in dollars. `priced` says whether all of them have a price.

    The price comes from the library that the model client uses. A model that it does not know has no price here, which
    is another thing than a price of zero.
    """

    input: int = 0
    output: int = 0
    cost: Decimal = Decimal()
    priced: bool = True

    def __add__(self, other: "Spent") -> "Spent":
        if not (self.tokens and other.tokens):
            return self if self.tokens else other
        return Spent(
            self.input + other.input, self.output + other.output, self.cost + other.cost, self.priced and other.priced
        )

    @property
    def tokens(self) -> int:
        return self.input + self.output

    def as_dict(self) -> dict[str, object] | None:
        """The data that an item keeps, or `None` if the provider told nothing."""
        if not self.tokens:
            return None
        return {"input": self.input, "output": self.output, "cost": str(self.cost) if self.priced else None}

    @property
    def words(self) -> str:
        """For people: the tokens, and the price if it is known."""
        if not self.tokens:
            return ""
        shown = f"{self.tokens:,} tokens"
        if self.priced:
            shown += f" · ${self.cost:.2f}" if self.cost >= Decimal("0.01") else f" · ${self.cost:.4f}"
        return shown


def spent_on(response: "ModelResponse") -> Spent:
    """What one answer of a model took."""
    used = response.usage
    if not (used.input_tokens or used.output_tokens):
        return Spent()
    try:
        price = response.cost().total_price
    except (LookupError, ValueError, AssertionError):
        return Spent(used.input_tokens, used.output_tokens, priced=False)
    return Spent(used.input_tokens, used.output_tokens, price)


def spent_of(value: Mapping[str, Any] | None) -> Spent:
    """What an item keeps."""
    if not value:
        return Spent()
    cost = value["cost"]
    return Spent(value["input"], value["output"], Decimal(cost or 0), cost is not None)


def spent_in(kept: Iterable[Item]) -> Spent:
    """What all answers of a chat took, also those that were replaced by another one."""
    return sum((spent_of(item.spent) for item in kept if isinstance(item, TextItem)), Spent())
