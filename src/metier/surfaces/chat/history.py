"""What a model is sent of a chat: its items as messages, as far as they fit, the same for new and for stored items.

The model is sent only what the user can see. Every call has a result, even a call that was stopped, because model
servers reject a conversation in which a result is missing. A result is sent as the session gave it, within the limits
of the profile, or a short notice stands in its place: a part of it would be no JSON where a host answers JSON. How much
a model takes is known from its profile, or learned when its server refuses a request as too long. Nothing is removed
from the chat: older messages and results stay on the page, and the model is told what it does not see. The instructions
of skills that would be lost are put back, because the session counts them as loaded.
"""

import contextlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition

from metier.errors import StoreError
from metier.files.media import image_type, text_of
from metier.files.shapes import as_table
from metier.files.text import fenced
from metier.session.tools import Tool
from metier.surfaces.chat.items import FILE_CHARACTERS, FileItem, Item, TextItem, ToolItem, UserItem, in_use
from metier.values.skill import wire_name

CHARACTERS: Final = 600_000
"""What a model takes if nothing is known about it, about 150,000 tokens."""
CHARACTERS_PER_TOKEN: Final = 3
"""Fewer than English text has, because code and other languages have fewer."""
LEAST: Final = 2_000
"""Below this, it makes no sense to leave out more."""

SHORTENED: Final = "This chat is longer than the model takes at once. Parts of it stay here, but are not sent."
"""What the person reads, once in a chat."""

LEFT_OUT: Final = "[left out to save room; call the tool again if it is needed]"
TOO_LARGE: Final = "[left out: it has {characters:,} characters, more than fit into this chat]"
READABLE: Final = '[left out: {characters:,} characters; `{tool}` reads parts of them by the ref "{ref}"]'
ADDED: Final = "[The user added the file {name} ({size:,} bytes). Scripts of skills find it in their current folder."
"""How the line that tells a model about a file begins."""
MESSAGE_CHARACTERS: Final = 60_000
"""Characters of all files of one message that the model reads."""
IMAGES: Final = 8
"""Images that are sent with one request, the latest ones."""
IMAGE_BYTES: Final = 4 << 20
CALLED: Final = 'The user calls the skill "{name}" explicitly.'
"""The sentence that tells a model about a command in a message."""
INSTRUCTIONS: Final = " Its instructions:\n\n"
"""What follows that sentence where the skill was loaded already."""

ReturnOutcome = Literal["success", "denied", "failed"]
_OUTCOMES: Final[Mapping[str, ReturnOutcome]] = {"done": "success", "refused": "denied"}


# --- calls and answers ---


class Arguments(NamedTuple):
    """The arguments of a call: `shown` on its card, and `given` as the model sent them, which may be any JSON."""

    shown: Mapping[str, object]
    given: Any


def definitions(tools: Iterable[Tool]) -> list[ToolDefinition]:
    return [
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=json.loads(json.dumps(tool.input_schema)),
        )
        for tool in tools
    ]


def arguments(part: ToolCallPart) -> Arguments:
    given: object = part.args or {}
    if isinstance(given, str):
        with contextlib.suppress(ValueError, RecursionError):
            given = json.loads(given)
    return Arguments(as_table(given), given)


def with_names(response: ModelResponse, known: Iterable[ToolDefinition]) -> ModelResponse:
    """A response in which every tool name occurs once. Some servers repeat it with every piece of the arguments."""
    names = [tool.name for tool in known]

    def once(sent: str) -> str:
        return next((name for name in names if sent and sent == name * (len(sent) // len(name))), sent)

    return _with_calls(response, lambda part: replace(part, tool_name=once(part.tool_name)))


def sendable(response: ModelResponse) -> ModelResponse:
    """A response that can be sent back: servers require arguments that are JSON objects."""
    return _with_calls(response, lambda part: replace(part, args=dict(arguments(part).shown)))


def _with_calls(response: ModelResponse, change: Callable[[ToolCallPart], ToolCallPart]) -> ModelResponse:
    return replace(response, parts=[change(one) if isinstance(one, ToolCallPart) else one for one in response.parts])


def messages(items: Sequence[Item], results: Mapping[str, str], before: str = "") -> list[ModelMessage]:
    """The conversation so far. `results` has the texts of cards and files by id, `before` what comes first."""
    sent: list[ModelMessage] = []
    step: int | None = None
    if before:
        _add_prompt(sent, before)
    for item in items:
        if isinstance(item, UserItem):
            _add_prompt(sent, item.text if item.message is None else item.message)
            step = None
        elif isinstance(item, FileItem):
            _add_prompt(sent, results[item.id])
        elif isinstance(item, ToolItem) and item.by == "user":
            if item.state == "done" and not item.injected:
                _add_prompt(sent, f"{CALLED.format(name=item.skill)}{INSTRUCTIONS}{results[item.id]}")
        elif isinstance(item, ToolItem) or (isinstance(item, TextItem) and not item.superseded):
            if item.step != step:
                sent.append(ModelResponse(parts=[]))
                step = item.step
            _add_answer(sent, item, results)
    return [one for one in sent if one.parts]


def _add_prompt(sent: list[ModelMessage], text: str) -> None:
    """Add text of the user. Consecutive texts are joined, since some servers require alternating turns."""
    last = sent[-1] if sent else None
    if isinstance(last, ModelRequest) and isinstance(last.parts[-1], UserPromptPart):
        before = last.parts[-1].content
        sent[-1] = ModelRequest(parts=[UserPromptPart(f"{before}\n\n{text}" if before else text)])
    else:
        sent.append(ModelRequest(parts=[UserPromptPart(text)]))


def _add_answer(sent: list[ModelMessage], item: TextItem | ToolItem, results: Mapping[str, str]) -> None:
    response = next(one for one in reversed(sent) if isinstance(one, ModelResponse))
    if isinstance(item, TextItem):
        response.parts = [*response.parts, TextPart(item.text)]
        return
    call = ToolCallPart(wire_name(item.tool), dict(item.args), tool_call_id=item.call)
    response.parts = [*response.parts, call]
    result = returned(item, results[item.id])
    if isinstance(sent[-1], ModelRequest):
        sent[-1].parts = [*sent[-1].parts, result]
    else:
        sent.append(ModelRequest(parts=[result]))


def returned(card: ToolItem, text: str | None = None) -> ToolReturnPart:
    """The result of a call as the model gets it."""
    content = card.text if text is None else text
    outcome: ReturnOutcome = _OUTCOMES.get(card.state, "failed")
    if outcome == "failed" and _is_object(content):
        outcome = "denied"  # the text says itself that it failed, and would only be quoted within another object
    return ToolReturnPart(wire_name(card.tool), content, tool_call_id=card.call, outcome=outcome)


def _is_object(text: str) -> bool:
    """Whether a text is a JSON object, as the results of some hosts are."""
    if not text.startswith("{"):
        return False
    with contextlib.suppress(ValueError, RecursionError):
        return isinstance(json.loads(text), dict)
    return False


def size(sent: Sequence[ModelMessage]) -> int:
    """The characters of a conversation, about."""
    return sum(
        len(str(getattr(part, "content", None) or getattr(part, "args", ""))) for one in sent for part in one.parts
    )


class Growth(NamedTuple):
    """What an event adds to an answer: text to one of its parts, or to what the model thought."""

    part: int
    text: str
    reasoning: bool = False


def growth(event: ModelResponseStreamEvent) -> Growth:
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart | ThinkingPart):
        return Growth(event.index, event.part.content, isinstance(event.part, ThinkingPart))
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta | ThinkingPartDelta):
        return Growth(event.index, event.delta.content_delta or "", isinstance(event.delta, ThinkingPartDelta))
    return Growth(0, "")


# --- files ---
#
# The bytes decide what is text, and never the name. A text stands in a fence that is longer than any in it, so that no
# file can pass for the words of the user. What does not fit is cut, and the model is told how much it sees.


class FileText(NamedTuple):
    """The text of a file as far as a model can read it, and how many characters the whole has."""

    start: str
    characters: int


def texts(items: Iterable[Item], artifact: Callable[[str], bytes]) -> dict[str, FileText]:
    """The texts of the files among the items, by their digests. A file that is no text, or is not kept, has none."""
    by_digest: dict[str, FileText] = {}
    for digest in {item.digest for item in items if isinstance(item, FileItem)}:
        try:
            text = text_of(artifact(digest))
        except StoreError:
            continue
        if text is not None:
            by_digest[digest] = FileText(text[:FILE_CHARACTERS], len(text))
    return by_digest


def told(files: Sequence[FileItem], known: Mapping[str, FileText], most: int) -> dict[str, str]:
    """What the model is told of the files of one message, by the ids of their items. `most` limits their text."""
    most = left = min(most, MESSAGE_CHARACTERS)
    by_item: dict[str, str] = {}
    for item in files:
        line, text = ADDED.format(name=item.name, size=item.size), known.get(item.digest)
        if text is None:
            by_item[item.id] = f"{line} It cannot be read as text.]"
            continue
        shown = text.start[:left]
        left -= len(shown)
        lines = [f"{line} Its text:]", fenced(shown)] if shown else [f"{line}]"]
        if len(shown) < text.characters:
            one = f"a file is shown up to {FILE_CHARACTERS:,} characters"
            all_of_them = f"the files of a message are shown up to {most:,} characters in all"
            lines.append(
                f"[cut here: {len(shown):,} of {text.characters:,} characters of {item.name} are shown; "
                f"{one if len(shown) == FILE_CHARACTERS else all_of_them}]"
            )
        by_item[item.id] = "\n".join(lines)
    return by_item


def with_images(
    messages: Sequence[ModelMessage], items: Sequence[Item], artifact: Callable[[str], bytes]
) -> list[ModelMessage]:
    """The messages with the images of the chat, where they say that these were added. Other files stay as they are."""
    wanted = [item for item in items if isinstance(item, FileItem) and item.size <= IMAGE_BYTES]
    images: dict[str, BinaryContent] = {}
    for item in reversed(wanted):
        line = ADDED.format(name=item.name, size=item.size)
        try:
            data = artifact(item.digest)
        except StoreError:
            continue
        if line not in images and len(images) < IMAGES and (kind := image_type(data)):
            images[line] = BinaryContent(data, media_type=kind)
    return [_with_images(one, images) if images and isinstance(one, ModelRequest) else one for one in messages]


def _with_images(request: ModelRequest, images: Mapping[str, BinaryContent]) -> ModelRequest:
    parts = list(request.parts)
    for number, part in enumerate(parts):
        if isinstance(part, UserPromptPart) and isinstance(text := part.content, str):
            found = [image for line, image in images.items() if line in text]
            parts[number] = replace(part, content=[text, *found]) if found else part
    return replace(request, parts=parts)


# --- what fits ---


class Fitted(NamedTuple):
    """The items that are sent, with the texts of the results of tools and of files by the ids of their items."""

    items: Sequence[Item]
    results: Mapping[str, str]
    notice: str
    """What the model is told of messages that it does not get."""
    forgets_skills: bool
    """Whether instructions of a skill are among what is not sent."""
    shortened: bool
    """Whether a part of the chat is not sent: messages, results, or text of a file that a model with room reads."""


def fit(
    items: Sequence[Item], room: int, texts: Mapping[str, FileText], *, guessed: bool = False, output: str = ""
) -> Fitted:
    """What fits into so many characters. The newest message is always sent, its files in part.

    Results are left out from the oldest on. One that is larger than the room is left out alone, unless it is the newest
    one and the room is `guessed`: then only the server knows whether it fits. `texts` has the texts of files by their
    digests, `output` is the tool that takes refs.
    """
    turns = _turns(items)
    kept: list[Sequence[Item]] = []
    files: dict[str, str] = {}
    results: dict[str, str] = {}
    left, full, cuts_files = room, False, False
    for number, turn in enumerate(reversed(turns)):
        size = sum(len(item.text) for item in turn if isinstance(item, UserItem | TextItem))
        if number and size > left:
            break
        kept.insert(0, turn)
        left -= size
        added = [item for item in turn if isinstance(item, FileItem)]
        about = told(added, texts, max(left, 0) if number else max(room // 2, LEAST))
        left -= sum(map(len, about.values()))
        files |= about
        cuts_files = cuts_files or about != told(added, texts, MESSAGE_CHARACTERS)
        for card in reversed([item for item in turn if isinstance(item, ToolItem)]):
            size, newest = len(card.text), not number and not results
            full = full or (left < size <= room and bool(results))
            whole = guessed and newest if size > room else not full
            results[card.id] = card.text if whole else _notice(card, output, again=size <= room)
            left -= len(results[card.id]) if size <= room or not whole else 0
    sent = [item for turn in kept for item in turn]
    dropped = [item for turn in turns[: len(turns) - len(kept)] for item in turn]
    cut = [item for item in sent if isinstance(item, ToolItem) and results[item.id] != item.text]
    count = sum(isinstance(item, UserItem | TextItem) for item in dropped)
    return Fitted(
        items=sent,
        results=files | results,
        notice=f"[{count} earlier message{'s' if count > 1 else ''} of this chat left out to save room]"
        if count
        else "",
        forgets_skills=any(_has_instructions(item) for item in (*dropped, *cut)),
        shortened=bool(cuts_files or cut or count),
    )


def _turns(items: Sequence[Item]) -> list[list[Item]]:
    """The items from each message of the user to the next. Files belong to the message that follows them."""
    turns: list[list[Item]] = []
    files: list[Item] = []
    for item in items:
        if isinstance(item, FileItem):
            files.append(item)
            continue
        if isinstance(item, UserItem) or not turns:
            turns.append([])
        turns[-1] += [*files, item]
        files = []
    if turns:
        turns[-1] += files
    return turns


def _notice(card: ToolItem, output: str, *, again: bool) -> str:
    """What stands in place of a result: a JSON object if the result is one."""
    told = LEFT_OUT if again else TOO_LARGE
    notice = (READABLE if output and card.ref else told).format(characters=len(card.text), tool=output, ref=card.ref)
    if _is_object(card.text):
        notice = json.dumps({"notice": notice}, ensure_ascii=False)
    return min(card.text, notice, key=len)


def _has_instructions(item: Item) -> bool:
    """Whether the card is the one place where the model has the instructions of a skill."""
    return isinstance(item, ToolItem) and item.role == "load" and item.state == "done" and not item.injected


class FittedMessages:
    """The messages of one turn to its model. They are built anew, and shorter, where they turn out to be too long."""

    def __init__(
        self,
        items: Callable[[], Sequence[Item]],
        put_back: Callable[[int], Awaitable[str]],
        learned: MutableMapping[str, int],
        texts: Mapping[str, FileText],
        output: str,
    ) -> None:
        """`put_back` gives the instructions of loaded skills within so many characters, `learned` what models take.

        `texts` has the texts of files by their digests, `output` is the tool that takes refs, if there is one.
        """
        self._items, self._put_back, self._learned, self._texts = items, put_back, learned, texts
        self._output = output
        self._room, self._guessed = CHARACTERS, True
        self._model = ""
        self.messages: list[ModelMessage] = []
        self.shortened = False
        """Whether a part of the chat is not sent."""

    async def begin(self, model: str, window: int | None) -> None:
        """Build the messages for a model that takes so many tokens, if that is known."""
        self._model = model
        known = window * CHARACTERS_PER_TOKEN if window else CHARACTERS
        self._room = min(known, self._learned.get(model, known))
        self._guessed = not window and model not in self._learned
        await self._build()

    async def _build(self) -> None:
        items = in_use(self._items())
        fitted = self._fit(items, self._room)
        aside = (item for item in self._items() if item not in items)
        put_back = ""
        if fitted.forgets_skills or any(_has_instructions(item) for item in aside):
            put_back = await self._put_back(self._room // 4)
            fitted = self._fit(items, self._room - len(put_back))
        self.shortened = fitted.shortened
        before = "\n\n".join(filter(None, (fitted.notice, put_back)))
        self.messages = messages(fitted.items, fitted.results, before)

    def _fit(self, items: Sequence[Item], room: int) -> Fitted:
        return fit(items, room, self._texts, guessed=self._guessed, output=self._output)

    async def grow(self, *messages: ModelMessage) -> None:
        """Add an answer of the model and the results of its calls."""
        self.messages += messages
        if size(self.messages) > self._room:
            await self._build()

    async def shorten(self) -> bool:
        """Build the messages anew, half as long, after the server refused them. False if that makes no sense."""
        room = min(self._room, size(self.messages)) // 2
        if room < LEAST:
            return False
        self._room, self._guessed = room, False
        self._learned[self._model] = room
        await self._build()
        return True
