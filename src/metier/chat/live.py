"""What is seen of a turn: its items, told to everyone who watches as they change, and stored when it matters.

Invariant: what is stored is stored in the order in which it was shown, also when the turn is stopped meanwhile, so that
of several frames of an item the last one is its last state.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from metier.chat.chat_store import Shelf
from metier.chat.items import Item

KEEP_SECONDS: Final = 1.0
"""How often the growing text of an answer is stored."""
STILL_SECONDS: Final = 15.0
"""Whoever watches hears at least this often that the turn is still at work."""

Message = tuple[str, dict[str, Any]]
"""What is told: `item`, `delta`, `end` or `still`, and its data."""


class Stage:
    """See the module. Lives in the event loop."""

    def __init__(self, chat_id: str, shelf: Shelf, redact: Callable[[str], str]) -> None:
        self.items: list[Item] = []
        self._chat_id, self._shelf, self._redact = chat_id, shelf, redact
        self._watchers: set[asyncio.Queue[Message]] = set()
        self._last: Message | None = None
        self._keeping = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None
        self._kept_at = 0.0

    async def follow(self) -> AsyncIterator[Message]:
        """Every item as it is now, then every change, then the end."""
        queue: asyncio.Queue[Message] = asyncio.Queue()
        for item in self.items:
            queue.put_nowait(("item", item.as_dict()))
        if self._last is not None:
            queue.put_nowait(self._last)
        self._watchers.add(queue)
        try:
            while True:
                try:
                    message = await asyncio.wait_for(queue.get(), STILL_SECONDS)
                except TimeoutError:
                    message = ("still", dict[str, Any]())
                yield message
                if message[0] == "end":
                    return
        finally:
            self._watchers.discard(queue)

    async def show(self, *shown: Item, keep: bool = True) -> None:
        """Tell of items that are new or have changed, and store them."""
        for item in shown:
            if item not in self.items:
                self.items.append(item)
            self._tell(("item", item.as_dict()))
        if keep:
            self._kept_at = time.monotonic()
            copies = [replace(item, data=dict(item.data)) for item in shown]
            self._writing = asyncio.create_task(self._keep(copies))
            await asyncio.shield(self._writing)

    async def grow(self, item: Item, text: str) -> None:
        """Add to the text of an item."""
        item.data["text"] += text
        self._tell(("delta", {"id": item.id, "text": text}))
        if time.monotonic() - self._kept_at > KEEP_SECONDS:
            await self.show(item)

    def end(self, skills: list[str]) -> None:
        self._last = ("end", {"status": "idle", "skills": skills})
        self._tell(self._last)

    async def _keep(self, changed: Sequence[Item]) -> None:
        async with self._keeping:
            await asyncio.to_thread(self._shelf.keep, self._chat_id, changed, self._redact)

    def _tell(self, message: Message) -> None:
        for queue in self._watchers:
            queue.put_nowait(message)
