"""Asks the person what the policy leaves open, and which skill a name means, and waits for the answer.

A rule may answer a question first: "always" in another chat, another process or `metier policy` holds at once, so a
question that a rule now covers is closed without a click, and without a second rule.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from metier.policy.decide import UNANSWERED, Policy, Request
from metier.surfaces.chat.chat_store import Status
from metier.surfaces.chat.items import AskItem, ChoiceItem
from metier.surfaces.chat.live import LiveTurn
from metier.values.results import AmbiguousMention
from metier.values.skill import Skill

LOOK_SECONDS: Final = 0.5
"""How often the rules are read while a question waits."""
CHOICES: Final = 8
"""Names in one message that a person is asked about. A message that has more is hardly meant so."""


class TurnQuestions:
    """The questions and choices of one turn. Lives in the event loop."""

    def __init__(self, live: LiveTurn, claim: Callable[[Status], Awaitable[None]], seconds: float) -> None:
        """`claim` says whether the turn works or waits. After `seconds`, the answer is no, or none of the skills."""
        self._live, self._claim, self._seconds = live, claim, seconds
        self._open: dict[str, tuple[AskItem | ChoiceItem, asyncio.Future[str]]] = {}
        self._stopped = False

    def stop(self) -> None:
        """Answer every question with no. The end of the turn closes their items."""
        self._stopped = True
        for item, future in self._open.values():
            if isinstance(item, AskItem) and not future.done():
                future.set_result("no")

    def answer(self, item_id: str, answer: str) -> bool:
        """Answer a question, or pick a skill by its id. Return false if nothing waits for this answer."""
        item, future = self._open.get(item_id, (None, None))
        if item is None or future is None or future.done() or not item.takes(answer):
            return False
        future.set_result(answer)
        return True

    async def _begin(self, item: AskItem | ChoiceItem) -> asyncio.Future[str]:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open[item.id] = (item, future)
        await self._live.keep(item)
        await self._claim("waiting")
        return future

    async def _end(self, item: AskItem | ChoiceItem) -> None:
        await self._live.keep(item)
        await self._claim("running")

    async def choose(self, mention: AmbiguousMention) -> Skill | None:
        """Show the skills of a name and wait until the person has picked one, or none. A stop closes the item."""
        item = ChoiceItem.of(mention)
        future = await self._begin(item)
        await asyncio.wait([future], timeout=self._seconds)  # `wait_for` could miss that the turn is stopped
        picked = future.result() if future.done() else ""
        item.state, item.chosen = ("chosen", picked) if picked else ("none", None)
        await self._end(item)
        return next((skill for skill in mention.candidates if skill.id == picked), None)

    async def ask(self, request: Request, policy: Policy) -> str:
        if self._stopped:
            return "no"
        item = AskItem.of(request, policy.decide(request).why)
        answer = await self._answered(await self._begin(item), request, policy)
        if self._stopped:
            return "no"
        item.state = "once" if answer == "once" else "always" if answer in ("always", "covered") else "no"
        await self._end(item)
        return "once" if answer == "covered" else answer or UNANSWERED

    async def _answered(self, future: asyncio.Future[str], request: Request, policy: Policy) -> str | None:
        """The answer of the person, `covered` if a rule allows the request now, or none."""
        deadline = asyncio.get_running_loop().time() + self._seconds
        while not future.done():
            left = deadline - asyncio.get_running_loop().time()
            await asyncio.wait([future], timeout=max(0.0, min(LOOK_SECONDS, left)))
            if future.done():
                break
            if left <= LOOK_SECONDS:
                return None
            if (await asyncio.to_thread(policy.decide, request)).verdict == "allow":
                return "covered"
        return future.result()
