"""Finds chats by their titles and by what was said in them.

The texts of the latest chats are kept in memory, and read again only for chats that changed, so a search costs no
query for each chat. Only what people and models wrote is searched, not the bodies of skills.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from metier.chat.chat_store import ChatStore, Head
from metier.chat.known_chats import KnownChats
from metier.record.events import ChatItem
from metier.record.streams import chat_stream

CHAT_CHARACTERS: Final = 200_000
"""Characters of one chat that are searched, the latest ones."""
ALL_CHARACTERS: Final = 40_000_000
SNIPPET: Final = 60
"""Characters on each side of what was found."""

_KINDS: Final = ("user", "text")


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
