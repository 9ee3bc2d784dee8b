"""Lists chats, and finds them by their titles and by what was said in them.

The texts of the latest chats are kept in memory, and read again only for chats that changed, so a search costs no
query for each chat. Only what people and models wrote is searched, not the bodies of skills.
"""

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from metier.record.events import ChatItem, ChatTurnEnded, ChatTurnStarted, chat_stream
from metier.record.store import Listener
from metier.surfaces.chat.chat_store import LIST_CHANGED, ChatStore, Head, NoSuchChat, order

CHAT_CHARACTERS: Final = 200_000
"""Characters of one chat that are searched, the latest ones."""
ALL_CHARACTERS: Final = 40_000_000
SNIPPET: Final = 60
"""Characters on each side of what was found."""

_KINDS: Final = ("user", "text")
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


@dataclass(frozen=True, slots=True)
class FoundChat:
    """A chat, and the words around what was found in it."""

    id: str
    head: Head
    snippet: str = ""


@dataclass(slots=True)
class _Known:
    version: int = -1
    position: int = -1
    parts: dict[str, str] = field(default_factory=dict[str, str])
    text: str = ""
    folded: str = ""


class ChatSearch:
    """The searchable texts of one store's chats."""

    def __init__(self, store: ChatStore) -> None:
        self._store, self._lock, self._chats = store, threading.Lock(), KnownChats(store)
        self._known: dict[str, _Known] = {}

    def find(self, words: str) -> list[FoundChat]:
        """The chats that have all the words, those with them in the title first. Without words, all chats."""
        chats = self._chats.all()
        wanted = words.casefold().split()
        if not wanted:
            return [FoundChat(chat_id, head) for chat_id, head in chats]
        with self._lock:
            self._update(chats)
            titled: list[FoundChat] = []
            said: list[FoundChat] = []
            for chat_id, head in chats:
                title, known = head.title.casefold(), self._known.get(chat_id)
                if all(word in title for word in wanted):
                    titled.append(FoundChat(chat_id, head))
                elif known is not None and all(word in known.folded or word in title for word in wanted):
                    said.append(FoundChat(chat_id, head, _snippet(known, wanted)))
        return [*titled, *said]

    def warm(self) -> None:
        """Read the texts before they are needed."""
        chats = self._chats.all()
        with self._lock:
            self._update(chats)

    def _update(self, chats: Sequence[tuple[str, Head]]) -> None:
        left = ALL_CHARACTERS
        current: dict[str, _Known] = {}
        for chat_id, head in sorted(chats, key=lambda chat: -chat[1].updated_ms):
            known = self._known.get(chat_id) or _Known()
            if known.version != head.version:
                self._read(chat_id, known)
                known.version = head.version
            left -= len(known.text)
            if left < 0:
                break
            current[chat_id] = known
        self._known = current

    def _read(self, chat_id: str, known: _Known) -> None:
        stored = self._store.store
        frames = stored.read(chat_id, chat_stream(chat_id), (ChatItem.type,), known.position)
        for frame in frames:
            known.position = frame["seq"]
            if frame["kind"] in _KINDS:
                known.parts[frame["item"]] = str(frame.get("content", {}).get("text", ""))
            elif frame["kind"] == "file":
                known.parts[frame["item"]] = str(frame.get("content", {}).get("name", ""))
        if frames:
            known.text = "\n".join(known.parts.values())[-CHAT_CHARACTERS:]
            known.folded = known.text.casefold()


def _snippet(known: _Known, wanted: Sequence[str]) -> str:
    at = next((place for word in wanted if (place := known.folded.find(word)) >= 0), -1)
    if at < 0:
        return ""
    start, end = max(0, at - SNIPPET), min(len(known.text), at + SNIPPET)
    words = " ".join(known.text[start:end].split())
    return f"{'…' if start else ''}{words}{'…' if end < len(known.text) else ''}"
