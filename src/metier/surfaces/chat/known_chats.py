"""Lists the chats of a store, also thousands of them, at the cost of a few small queries."""

import contextlib
import threading
from typing import Final

from metier.record.events import ChatTurnEnded, ChatTurnStarted
from metier.record.store import Listener
from metier.surfaces.chat.chat_store import LIST_CHANGED, ChatStore, Head, NoSuchChat, order

_TURNS: Final = (ChatTurnStarted.type, ChatTurnEnded.type)


class KnownChats:
    """The heads of all chats in memory, as the store has them, so that a list of thousands costs a few small queries.

    A turn that begins or ends is an event, which is followed by the cursor of the store. What else changes a list is
    told by a notice: a new chat, a new title, a removed one. A running turn renews its head without either, so the
    heads of running chats are read each time. Thread-safe.
    """

    def __init__(self, store: ChatStore) -> None:
        self._store, self._lock = store, threading.Lock()
        self._listener: Listener | None = None
        self._heads: dict[str, Head] = {}
        self._sorted: list[tuple[str, Head]] = []
        self._cursor = 0

    def all(self) -> list[tuple[str, Head]]:
        """The chats that are not hidden: pinned ones first, then the most recently used ones."""
        with self._lock:
            if self._listener is None:
                self._listener = self._store.store.listen(LIST_CHANGED)
                self._load()
            elif self._listener.get(0):
                self._load()
            else:
                self._follow()
            return self._sorted

    def _load(self) -> None:
        self._cursor = self._store.store.cursor()  # before the heads: what comes in between is read again
        self._sorted = self._store.chats()
        self._heads = dict(self._sorted)

    def _follow(self) -> None:
        changed = {chat_id for chat_id, head in self._heads.items() if head.status != "idle"} | self._turns()
        if not changed:
            return
        for chat_id in changed:
            self._heads.pop(chat_id, None)
            with contextlib.suppress(NoSuchChat):
                self._heads[chat_id] = self._store.head(chat_id)
        self._sorted = sorted(self._heads.items(), key=order, reverse=True)

    def _turns(self) -> set[str]:
        """The chats in which a turn began or ended since the last look."""
        found: set[str] = set()
        while self._cursor != self._store.store.cursor():
            page = self._store.store.page(self._cursor, types=_TURNS)
            found.update(frame["session_id"] for frame in page.frames)
            if page.cursor == self._cursor:
                break
            self._cursor = page.cursor
        return found
