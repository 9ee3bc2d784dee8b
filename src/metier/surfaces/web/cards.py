"""Turns the items of a chat into the blocks of its page, when the page opens and as the items change.

Only this module renders items, so a block looks the same before and after a reload. The calls of one step of the model
are one block, with the questions about them: a question stands where the card of its call is.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from metier.files.json_text import part_of
from metier.files.shapes import is_items, is_table
from metier.files.text import visible
from metier.surfaces.chat.items import FILE_CHARACTERS, KINDS, spent_of
from metier.surfaces.chat.live import TurnMessage
from metier.surfaces.web.markdown import MARKDOWN_CHARACTERS, answer_html, last_block
from metier.surfaces.web.site import Site

CARD_CHARACTERS: Final = 100_000
"""Characters of one text on a card. The activity page has all of them."""
LARGE_CHARACTERS: Final = 1_200
"""A longer resource is folded at first."""
TAIL_CHARACTERS: Final = 10_000
"""A block of Markdown that grows beyond them is not rendered again and again."""
SOURCES: Final = 12
"""Skills and files that are named below an answer."""

ShownItem = Mapping[str, object]
"""The data of an item with every field that a template may ask for."""

_LIMITS: Final = {"most": CARD_CHARACTERS, "large": LARGE_CHARACTERS, "read": FILE_CHARACTERS}
_BLANK: Final[Mapping[str, object]] = dict.fromkeys(
    (
        *(field.name for kind in KINDS.values() for field in fields(kind)),
        *("question", "shown", "growing", "sources", "last"),
    )
)
"""Every field that some item has, for templates that fail on an undefined one."""


class Cards:
    """Renders blocks of one chat."""

    def __init__(self, site: Site, chat_id: str) -> None:
        self._site, self._chat_id = site, chat_id

    def page(self, items: Sequence[Mapping[str, object]], *, idle: bool) -> list[str]:
        """All blocks of a page. Without `idle`, the last turn has not ended."""
        turns = _turns([self.shown(item) for item in items])
        ended = [_with_sources(turn) if idle or number + 1 < len(turns) else turn for number, turn in enumerate(turns)]
        shown: list[tuple[ShownItem, str]] = []
        for item, html in ((block[0], self.block(block)) for turn in ended for block in blocks(turn)):
            places = (
                number
                for number, (known, _) in enumerate(shown)
                if item["replaces"] == known["id"] and item["replaces"]
            )
            start, end = next(places, len(shown)), len(shown)
            while end > start and shown[end - 1][0]["type"] == "file":
                end -= 1  # files just before a message belong to it
            if start < end:
                aside = self._site.render("chat/aside.html", blocks=[one for _, one in shown[start:end]])
                shown[start:end] = [({"id": None, "type": "aside"}, aside)]
            shown.append((item, html))
        return [html for _, html in shown]

    def block(self, block: Sequence[ShownItem]) -> str:
        return self._site.render("chat/block.html", block=block, chat_id=self._chat_id, **_LIMITS)

    def shown(self, item: Mapping[str, object]) -> ShownItem:
        keys = item.get("shown_at")
        text = str(item.get("text", ""))
        given = {**item, "shown": part_of(text, [str(key) for key in keys] if is_items(keys) else ())}
        if is_table(spent := item.get("spent")):
            given["spent"] = spent_of(spent).words
        if item["type"] in ("text", "reasoning") and not item.get("done"):
            given["growing"] = GrowingAnswer(text).whole()
        return {**_BLANK, **self._site.hide_paths(given)}


class CardStream:
    """The blocks of the turn that runs, for one page that follows it."""

    def __init__(self, cards: Cards, items: Iterable[Mapping[str, object]]) -> None:
        """`items` are those that the page may have already."""
        self._cards = cards
        self._items: dict[str, ShownItem] = {}
        self._growing: dict[str, GrowingAnswer] = {}
        for item in items:
            self._keep(item)

    def item(self, item: Mapping[str, object]) -> dict[str, object]:
        """The block of an item that is new or has changed."""
        self._keep(item)
        if item["type"] in ("text", "reasoning") and not item.get("done"):
            self._growing[str(item["id"])] = answer = GrowingAnswer(str(item["text"]))
            answer.whole()
        return self._block(str(item["id"]))

    def grown(self, delta: Mapping[str, object]) -> dict[str, object] | None:
        """What a piece of text adds to its answer."""
        answer = self._growing.get(str(delta["id"]))
        return None if answer is None else {"id": delta["id"], **answer.grow(str(delta["text"]))}

    def ended(self) -> list[dict[str, object]]:
        """The blocks that change when the turn has ended: its answer says what it is based on."""
        kept = list(self._items.values())
        self._items = {str(item["id"]): item for item in _with_sources(kept)}
        return [self._block(str(item["id"])) for item in self._items.values() if item["last"]]

    def _keep(self, item: Mapping[str, object]) -> None:
        if item["type"] == "user" and str(item["id"]) not in self._items:
            self._items.clear()
            self._growing.clear()
        self._items[str(item["id"])] = self._cards.shown(item)

    def _block(self, item_id: str) -> dict[str, object]:
        found = blocks(list(self._items.values()))
        block = next(block for block in found if any(item["id"] == item_id for item in block))
        return {"id": block[0]["id"], "html": self._cards.block(block)}


def of_page(message: TurnMessage, stream: CardStream) -> list[tuple[str, Mapping[str, object]]]:
    """What a page is told of a message, apart from what surrounds the items."""
    if message.event == "item":
        replaced = message.data.get("replaces")
        before = [("aside", {"first": replaced})] if replaced else []
        return [*before, ("item", stream.item(message.data))]
    if message.event == "delta":
        grown = stream.grown(message.data)
        return [] if grown is None else [("grow", grown)]
    if message.event in ("end", "idle"):
        return [("item", block) for block in stream.ended()]
    return [(message.event, message.data)]


def blocks(items: Sequence[ShownItem]) -> list[list[ShownItem]]:
    """The items of one or several turns in blocks: the calls of one step and their questions, or one item."""
    found: list[list[ShownItem]] = []
    for item in items:
        if found and _belongs(found[-1], item):
            found[-1].append(item)
        else:
            found.append([item])
    return found


def _belongs(block: Sequence[ShownItem], item: ShownItem) -> bool:
    first = block[0]
    if first["type"] != "tool":
        return False
    same_step = (first["step"], first["by"]) == (item["step"], item["by"])
    return item["type"] == "ask" or (item["type"] == "tool" and same_step)


def _turns(items: Sequence[ShownItem]) -> list[list[ShownItem]]:
    turns: list[list[ShownItem]] = []
    for item in items:
        if item["type"] == "user" or not turns:
            turns.append([])
        turns[-1].append(item)
    return turns


def _with_sources(turn: Sequence[ShownItem]) -> list[ShownItem]:
    """A turn whose last answer names the skills and files that it used."""
    answers = [item for item in turn if item["type"] == "text" and item["done"] and not item["superseded"]]
    if not answers:
        return list(turn)
    used = (
        (item["skill"], item["path"] if item["role"] in ("read", "run") else None)
        for item in turn
        if item["type"] == "tool"
        and item["state"] == "done"
        and item["role"] in ("load", "read", "run")
        and item["skill"]
    )
    sources = list(itertools.islice(dict.fromkeys(used), SOURCES))
    return [{**item, "last": item is answers[-1], "sources": sources if item is answers[-1] else None} for item in turn]


@dataclass(slots=True)
class GrowingAnswer:
    """The growing text of an answer as HTML: blocks that stay as they are, and the block that still changes.

    A block of Markdown is rendered once, when the next one begins. Only the last one is rendered again as it grows, so
    the work for an answer does not depend on how many pieces it comes in. A block that is very long grows as plain text
    until the answer is whole.
    """

    text: str
    _done: int = 0
    """How much of the text is in blocks that stay."""
    _plain: int = -1
    """How much of the text was sent once it grows as plain text."""

    def whole(self) -> dict[str, str]:
        """All blocks, for a page that has none of them."""
        self._done, self._plain = 0, -1
        grown = self.grown()
        return {"done": grown.get("done", ""), "tail": grown.get("tail", ""), "plain": grown.get("plain", "")}

    def grow(self, text: str) -> dict[str, str]:
        """Append text. `done` is to be added to the blocks, `tail` replaces the last one, `plain` is appended to it."""
        self.text += text
        return self.grown()

    def grown(self) -> dict[str, str]:
        done = ""
        if self._plain < 0 and self._done < MARKDOWN_CHARACTERS:
            rest = self.text[self._done : self._done + MARKDOWN_CHARACTERS]
            place = last_block(rest)
            if place:
                done = answer_html(rest[:place])
                self._done += place
        tail = self.text[self._done :]
        if self._plain < 0 and len(tail) <= TAIL_CHARACTERS:
            return {"done": done, "tail": answer_html(tail)}
        start = max(self._plain, self._done)
        fresh = self._plain < 0
        self._plain = len(self.text)
        plain = visible(self.text[start:], lines=True)
        return {"done": done, "tail": "", "plain": plain} if fresh else {"plain": plain}
