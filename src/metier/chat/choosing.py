"""Lets the person choose where a name in a message is that of several skills. The turn waits for the choice."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from metier.chat.chat_store import Status
from metier.chat.items import ChoiceItem
from metier.chat.live import LiveTurn
from metier.model import Skill
from metier.results import AmbiguousMention

CHOICES: Final = 8
"""Names in one message that a person is asked about. A message that has more is hardly meant so."""

NONE: Final = ""
"""What is picked where none of the skills is meant."""


class Choosing:
    """The choices of one turn. Lives in the event loop."""

    def __init__(self, live: LiveTurn, claim: Callable[[Status], Awaitable[None]], seconds: float) -> None:
        """`claim` says whether the turn works or waits. After `seconds`, none of the skills is used."""
        self._live, self._claim, self._seconds = live, claim, seconds
        self._open: dict[str, asyncio.Future[str]] = {}
        self._items: dict[str, ChoiceItem] = {}

    def pick(self, item_id: str, skill_id: str) -> bool:
        """Pick a skill by its id, or none. Return false if no choice with such a skill is waiting."""
        future, item = self._open.get(item_id), self._items.get(item_id)
        if future is None or item is None or future.done() or not item.has(skill_id):
            return False
        future.set_result(skill_id)
        return True

    async def choose(self, mention: AmbiguousMention) -> Skill | None:
        """Show the skills of a name and wait until the person has picked one, or none. A stop closes the item."""
        item = ChoiceItem.of(mention)
        self._items[item.id] = item
        self._open[item.id] = future = asyncio.get_running_loop().create_future()
        await self._live.show(item)
        await self._claim("waiting")
        await asyncio.wait([future], timeout=self._seconds)  # `wait_for` could miss that the turn is stopped
        picked = future.result() if future.done() else NONE
        item.state, item.chosen = ("chosen", picked) if picked else ("none", None)
        await self._live.show(item)
        await self._claim("running")
        return next((skill for skill in mention.candidates if skill.id == picked), None)
