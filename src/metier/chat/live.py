"""The items of a running turn: sent to every follower as they change, and stored when it matters.

Invariant: items are stored in the order in which they were shown, even if the turn is stopped meanwhile. So of several
frames of one item, the last one is its last state.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple, Protocol

from metier.chat.chat_store import ChatStore
from metier.chat.items import Item, TextItem
from metier.record.writer import system_clock

KEEP_SECONDS: Final = 1.0
"""How often the growing text of an answer is stored."""
KEEP_CHARACTERS: Final = 20_000
"""A text of so many more characters is stored a second later, since it is stored as a whole each time."""


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


class Wakeup(Protocol):
    """How one follower waits. It belongs to the event loop of the turn."""

    @property
    def ending(self) -> bool:
        """Whether the server ends, and the follower should stop."""
        ...

    def wake(self) -> None:
        """End the wait: there may be something new."""
        ...

    async def wait(self) -> bool:
        """Wait for `wake`. Return false if there was none for so long that the client should hear a heartbeat."""
        ...


@dataclass(slots=True, eq=False)
class _Follower:
    wakeup: Wakeup
    messages: list[TurnMessage] = field(default_factory=list[TurnMessage])

    def tell(self, message: TurnMessage) -> None:
        self.messages.append(message)
        self.wakeup.wake()

    def take(self) -> list[TurnMessage]:
        """What is to be told. Texts for one item are joined: a follower that is slow hears less often, not later."""
        taken: list[TurnMessage] = []
        pieces: list[str] = []
        for message in self.messages:
            last = taken[-1] if taken else None
            if message.event == "delta" and last and last.event == "delta" and last.data["id"] == message.data["id"]:
                pieces.append(str(message.data["text"]))
                continue
            _join(taken, pieces)
            taken.append(message)
        _join(taken, pieces)
        self.messages = []
        return taken


def _join(taken: list[TurnMessage], pieces: list[str]) -> None:
    if pieces:
        last = taken[-1].data
        taken[-1] = TurnMessage("delta", {"id": last["id"], "text": "".join((str(last["text"]), *pieces))})
        pieces.clear()


class LiveTurn:
    """The items of one turn and its followers. Lives in the event loop."""

    def __init__(self, chat_id: str, store: ChatStore, redact: Callable[[str], str]) -> None:
        self.items: list[Item] = []
        self._chat_id, self._store, self._redact = chat_id, store, redact
        self._followers: set[_Follower] = set()
        self._last: TurnMessage | None = None
        self._keeping = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None
        self._kept_at = 0.0

    async def follow(self, wakeup: Wakeup) -> AsyncGenerator[TurnMessage | None]:
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

    async def show(self, *shown: Item, keep: bool = True) -> None:
        """Tell the followers about new or changed items, and store the items."""
        for item in shown:
            if item not in self.items:
                self.items.append(item)
            self._tell(TurnMessage("item", item.as_dict()))
        if keep:
            self._kept_at = time.monotonic()
            copies = [replace(item) for item in shown]
            self._writing = asyncio.create_task(self._keep(copies))
            await asyncio.shield(self._writing)

    async def grow(self, item: TextItem, text: str) -> None:
        """Append to the text of an answer."""
        item.text += text
        self._tell(TurnMessage("delta", {"id": item.id, "text": text}))
        if time.monotonic() - self._kept_at > KEEP_SECONDS + len(item.text) // KEEP_CHARACTERS:
            await self.show(item)

    def end(self, skills: Sequence[str]) -> None:
        self._last = ended(skills)
        self._tell(self._last)

    async def _keep(self, changed: Sequence[Item]) -> None:
        async with self._keeping:
            await asyncio.to_thread(self._store.keep, self._chat_id, changed, self._redact)

    def _tell(self, message: TurnMessage) -> None:
        for follower in self._followers:
            follower.tell(message)
