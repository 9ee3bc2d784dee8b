"""Asks the person what the policy leaves open, and waits for the answer.

A rule may answer first: "always" in another chat, another process or `metier policy` holds at once, so a question that
a rule now covers is closed without a click, and without a second rule.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from metier.chat.chat_store import Status
from metier.chat.items import AskItem
from metier.chat.live import LiveTurn
from metier.session.policy import UNANSWERED, Policy, Request

Answer = Literal["once", "always", "no"]

LOOK_SECONDS: Final = 0.5
"""How often the rules are read while a question waits."""


class Asking:
    """The questions of one turn. Lives in the event loop; `ask` is called in a thread of the session."""

    def __init__(self, live: LiveTurn, claim: Callable[[Status], Awaitable[None]], seconds: float) -> None:
        """`claim` says whether the turn works or waits. After `seconds`, the answer is no."""
        self._live, self._claim, self._seconds = live, claim, seconds
        self._open: dict[str, asyncio.Future[Answer]] = {}
        self._stopped = False

    def stop(self) -> None:
        """Answer every question with no. The end of the turn closes their items."""
        self._stopped = True
        for future in self._open.values():
            if not future.done():
                future.set_result("no")

    def answer(self, ask_id: str, answer: Answer) -> bool:
        """Answer a question. Return false if no such question is waiting."""
        future = self._open.get(ask_id)
        if future is None or future.done():
            return False
        future.set_result(answer)
        return True

    async def ask(self, request: Request, policy: Policy) -> str:
        if self._stopped:
            return "no"
        item = AskItem.of(request, policy.decide(request).why)
        self._open[item.id] = future = asyncio.get_running_loop().create_future()
        await self._live.show(item)
        await self._claim("waiting")
        answer = await self._answered(future, request, policy)
        if self._stopped:
            return "no"
        item.state = "always" if answer == "covered" else answer or "no"
        await self._live.show(item)
        await self._claim("running")
        return "once" if answer == "covered" else answer or UNANSWERED

    async def _answered(
        self, future: asyncio.Future[Answer], request: Request, policy: Policy
    ) -> Answer | Literal["covered"] | None:
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
