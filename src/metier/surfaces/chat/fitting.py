"""What of a chat fits into one request to its model: the newest turns, and the newest results of tools in them.

How much a model takes is known from its profile, or learned when its server refuses a request as too long. Nothing is
removed from the chat: older messages and results stay on the page, and the model is told what it does not see. The
instructions of skills that would be lost are put back, because the session counts them as loaded.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic_ai.messages import ModelMessage

from metier.surfaces.chat import history
from metier.surfaces.chat.attached import MESSAGE_CHARACTERS, FileText, told
from metier.surfaces.chat.items import FileItem, Item, TextItem, ToolItem, UserItem, in_use

CHARACTERS: Final = 600_000
"""What a model takes if nothing is known about it, about 150,000 tokens."""
CHARACTERS_PER_TOKEN: Final = 3
"""Fewer than English text has, because code and other languages have fewer."""
LEAST: Final = 2_000
"""Below this, it makes no sense to leave out more."""

SHORTENED: Final = "This chat is longer than the model takes at once. Its oldest parts stay here, but are not sent."
"""What the person reads, once in a chat."""

NO_TEXTS: Final[Mapping[str, FileText]] = {}
LEFT_OUT: Final = "[left out to save room; call the tool again if it is needed]"


@dataclass(frozen=True, slots=True)
class Fitted:
    """The items that are sent, with the texts of the results of tools and of files by the ids of their items."""

    items: Sequence[Item]
    results: Mapping[str, str]
    messages_left_out: int
    forgets_skills: bool
    """Whether instructions of a skill are among what is not sent."""
    cuts_files: bool
    """Whether less of a file is sent than a model with enough room reads."""

    @property
    def notice(self) -> str:
        """What the model is told of messages that it does not get."""
        count = self.messages_left_out
        if not count:
            return ""
        return f"[{count} earlier message{'s' if count > 1 else ''} of this chat left out to save room]"


def fit(items: Sequence[Item], room: int, texts: Mapping[str, FileText] = NO_TEXTS) -> Fitted:
    """What fits into so many characters. The newest message is always sent, its files and the newest result in part.

    `texts` has the texts of files by their digests.
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
            text = _cut(card, max(room // 2, LEAST))
            full = full or (len(text) > left and bool(results))
            results[card.id] = LEFT_OUT if full else text
            left -= len(results[card.id])
    sent = [item for turn in kept for item in turn]
    dropped = [item for turn in turns[: len(turns) - len(kept)] for item in turn]
    lost = (*dropped, *(item for item in sent if isinstance(item, ToolItem) and results[item.id] != item.text))
    return Fitted(
        items=sent,
        results=files | results,
        messages_left_out=sum(isinstance(item, UserItem | TextItem) for item in dropped),
        forgets_skills=any(_has_instructions(item) for item in lost),
        cuts_files=cuts_files,
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


def _cut(card: ToolItem, most: int) -> str:
    """The result of a call, cut where one result alone would fill the request."""
    if len(card.text) <= most:
        return card.text
    way = f' The tool for output reads the rest by its ref "{card.ref}".' if card.ref else ""
    return f"{card.text[:most]}\n[cut here: {most:,} of {len(card.text):,} characters are shown.{way}]"


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
    ) -> None:
        """`put_back` gives the instructions of loaded skills within so many characters, `learned` what models take.

        `texts` has the texts of files by their digests.
        """
        self._items, self._put_back, self._learned, self._texts = items, put_back, learned, texts
        self._room = CHARACTERS
        self._model = ""
        self.messages: list[ModelMessage] = []
        self.shortened = False
        """Whether a part of the chat is not sent."""

    async def begin(self, model: str, window: int | None) -> None:
        """Build the messages for a model that takes so many tokens, if that is known."""
        self._model = model
        known = window * CHARACTERS_PER_TOKEN if window else CHARACTERS
        self._room = min(known, self._learned.get(model, known))
        await self._build()

    async def _build(self) -> None:
        items = in_use(self._items())
        fitted = fit(items, self._room, self._texts)
        aside = (item for item in self._items() if item not in items)
        put_back = ""
        if fitted.forgets_skills or any(_has_instructions(item) for item in aside):
            put_back = await self._put_back(self._room // 4)
            fitted = fit(items, self._room - len(put_back), self._texts)
        cut = fitted.cuts_files or any(text != card.text for card, text in _texts(fitted))
        self.shortened = cut or bool(fitted.messages_left_out)
        before = "\n\n".join(filter(None, (fitted.notice, put_back)))
        self.messages = history.messages(fitted.items, fitted.results, before)

    async def grow(self, *messages: ModelMessage) -> None:
        """Add an answer of the model and the results of its calls."""
        self.messages += messages
        if history.size(self.messages) > self._room:
            await self._build()

    async def shorten(self) -> bool:
        """Build the messages anew, half as long, after the server refused them. False if that makes no sense."""
        room = min(self._room, history.size(self.messages)) // 2
        if room < LEAST:
            return False
        self._room = self._learned[self._model] = room
        await self._build()
        return True


def _texts(fitted: Fitted) -> list[tuple[ToolItem, str]]:
    return [(item, fitted.results[item.id]) for item in fitted.items if isinstance(item, ToolItem)]
