"""The items of a running turn: sent to every follower as they change, and stored soon, or at once when it matters.

Invariant: items are stored in the order in which they were shown, even if the turn is stopped meanwhile. So of several
frames of one item, the last one is its last state. What changes often is stored with the next item that matters.

Questions are items that wait. A rule may answer one before the person does: "always" in another chat, another process
or `metier policy` holds at once, so a question that a rule now covers is closed without a click and a second rule.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from metier.errors import MetierError
from metier.policy.asking import UNANSWERED
from metier.policy.decide import Policy, Request
from metier.record.writer import system_clock
from metier.surfaces.chat.chat_store import ChatStore, Status
from metier.surfaces.chat.items import AskItem, ChoiceItem, Item, TextItem
from metier.values.results import AmbiguousMention
from metier.values.skill import Skill

if TYPE_CHECKING:
    from metier.surfaces.web.sse import Subscriber

KEEP_SECONDS: Final = 1.0
"""How soon an item is stored that need not be stored at once, such as the growing text of an answer."""
KEEP_CHARACTERS: Final = 20_000
"""A text of so many more characters is stored a second later, since it is stored as a whole each time."""
LOOK_SECONDS: Final = 0.5
"""How often the rules are read while a question waits."""
CHOICES: Final = 8
"""Names in one message that a person is asked about. A message that has more is hardly meant so."""

_LOG: Final = logging.getLogger("metier")


class TurnMessage(NamedTuple):
    """What a follower is told: a whole item, text to append to one, or the start or end of a turn.

    A page is told `ready` when its stream is open, and `idle` if no turn is running then.
    """

    event: Literal["ready", "idle", "item", "delta", "start", "end"]
    data: Mapping[str, object]


def ended(skills: Sequence[str]) -> TurnMessage:
    return TurnMessage("end", {"status": "idle", "skills": list(skills)})


def idle(skills: Sequence[str]) -> TurnMessage:
    return TurnMessage("idle", ended(skills).data)


def begun(started_ms: int) -> TurnMessage:
    """A turn is running, since that time."""
    return TurnMessage("start", {"status": "running", "elapsed_ms": max(0, system_clock() - started_ms)})


@dataclass(slots=True, eq=False)
class _Follower:
    wakeup: "Subscriber"
    messages: list[TurnMessage] = field(default_factory=list[TurnMessage])

    def tell(self, message: TurnMessage) -> None:
        self.messages.append(message)
        self.wakeup.wake()

    def take(self) -> list[TurnMessage]:
        """What is to be told. Texts for one item are joined: a follower that is slow hears less often, not later."""
        taken: list[TurnMessage] = []
        grown = itertools.groupby(self.messages, lambda one: one.data["id"] if one.event == "delta" else None)
        for item, messages in grown:
            if item is None:
                taken += messages
            else:
                text = "".join(str(one.data["text"]) for one in messages)
                taken.append(TurnMessage("delta", {"id": item, "text": text}))
        self.messages = []
        return taken


class LiveTurn:
    """The items of one turn and its followers. Lives in the event loop."""

    def __init__(self, chat_id: str, store: ChatStore) -> None:
        self.items: list[Item] = []
        self._chat_id, self._store = chat_id, store
        self._followers: set[_Follower] = set()
        self._last: TurnMessage | None = None
        self._unkept: dict[str, Item] = {}
        self._keeping = asyncio.Lock()
        self._soon: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None

    async def follow(self, wakeup: "Subscriber") -> AsyncGenerator[TurnMessage | None]:
        """Every item as it is now, then every change, then the end; `None` when a heartbeat is due."""
        follower = _Follower(wakeup, [TurnMessage("item", item.as_dict()) for item in self.items])
        if self._last is not None:
            follower.messages.append(self._last)
        self._followers.add(follower)
        try:
            while True:
                for message in follower.take():
                    yield message
                    if message.event == "end":
                        return
                if not follower.messages and not await wakeup.wait():
                    yield None
        finally:
            self._followers.discard(follower)

    def show(self, *shown: Item, stored: bool = False) -> None:
        """Tell the followers about new or changed items. They are stored soon, unless they are `stored` otherwise."""
        for item in shown:
            if item not in self.items:
                self.items.append(item)
            self._tell(TurnMessage("item", item.as_dict()))
            if not stored:
                self._keep_soon(item)

    def grow(self, item: TextItem, text: str) -> None:
        """Append to the text of an answer."""
        item.text += text
        self._tell(TurnMessage("delta", {"id": item.id, "text": text}))
        self._keep_soon(item)

    async def keep(self, *shown: Item) -> None:
        """Show items and store them, and what was shown before, before this returns, also if the turn is stopped."""
        self.show(*shown)
        await self._written()

    async def end(self, store: Callable[[Sequence[Item]], Awaitable[Sequence[str]]]) -> None:
        """End the turn for all followers. `store` stores what is left, and returns the skills of the chat."""
        if self._soon is not None:
            self._soon.cancel()
        async with self._keeping:
            self._last = ended(await store(list(self._unkept.values())))
        self._tell(self._last)

    def _keep_soon(self, item: Item) -> None:
        self._unkept[item.id] = item
        if self._soon is None or self._soon.done():
            characters = len(item.text) if isinstance(item, TextItem) else 0
            self._soon = asyncio.create_task(self._write_after(KEEP_SECONDS + characters // KEEP_CHARACTERS))

    async def _write_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        try:
            await self._written()
        except MetierError as error:  # it is stored with the next items; if that fails, too, the turn ends
            _LOG.warning("items of chat %s could not be stored yet: %s", self._chat_id, error)

    async def _written(self) -> None:
        """Wait until all is stored. A write goes on if this is cancelled, so that no later one overtakes it."""
        self._writing = asyncio.create_task(self._write())
        await asyncio.shield(self._writing)

    async def _write(self) -> None:
        async with self._keeping:
            unkept, self._unkept = self._unkept, {}
            try:
                if unkept:
                    copies = [replace(item) for item in unkept.values()]
                    await asyncio.to_thread(self._store.keep, self._chat_id, copies)
            except MetierError:
                self._unkept = unkept | self._unkept
                raise

    def _tell(self, message: TurnMessage) -> None:
        for follower in self._followers:
            follower.tell(message)


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
