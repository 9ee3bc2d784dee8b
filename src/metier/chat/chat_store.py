"""Stores chats: the items as events, and one head per chat with its title, its status and the turn that holds it.

Invariant: a chat has at most one running turn, across all processes that share the store. A turn claims the head under
a version and renews the claim while it runs. A claim that is not renewed expires, so a process that died blocks no one.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from metier.chat import items
from metier.chat.chat_label import ChatLabel, change_label, label_of, labels
from metier.chat.items import AskItem, ChoiceItem, ErrorItem, FileItem, Item, TextItem, ToolItem
from metier.errors import MetierError, StateConflict
from metier.files.text import storable_table
from metier.record.events import ChatTurnEnded, ChatTurnStarted, Event
from metier.record.store import Draft, Store
from metier.record.streams import CHAT, chat_stream
from metier.record.writer import random_ids, system_clock

KEY: Final = CHAT
"""The key of a chat's head among the documents of its session, and the kind of its stream."""

LEASE_MS: Final = 20_000
"""How long a claim lasts without a renewal."""

LIST_CHANGED: Final = "chats.changed"
"""The channel of the store on which processes tell each other that the list of chats changed, but for its turns."""

LISTED: Final = 500
"""Chats that the HTTP API lists. Older ones can still be found by their words, and opened by their id."""

_ID: Final = re.compile(r"[0-9a-f]{32}")
_SERVER_STOPPED: Final = "The server stopped during the answer. Everything before it is stored. Try again."

Status = Literal["idle", "running", "waiting"]


class NoSuchChat(MetierError):
    """No chat has that id."""

    def __init__(self, chat_id: str) -> None:
        super().__init__(f"there is no chat {chat_id!r}")


class ChatBusy(MetierError):
    """A turn is running on the chat already. With `here`, too many turns are running in this process."""

    def __init__(self, message: str, *, here: bool = False) -> None:
        self.here = here
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Head:
    """A chat without its items."""

    title: str = ""
    created_ms: int = 0
    updated_ms: int = 0
    model: str = ""
    skills: tuple[str, ...] = ()
    status: Status = "idle"
    turn: str = ""
    claimed_until_ms: int = 0
    hidden: bool = False
    pinned: bool = field(default=False, compare=False)
    """Whether a person pinned it. It is no part of the stored head; see `ChatLabel`."""
    version: int = field(default=0, compare=False)

    @classmethod
    def read(cls, value: Mapping[str, Any], version: int) -> "Head":
        known = {key: value[key] for key in cls.__slots__ if key in value}
        known.update(skills=tuple(known.get("skills", ())), version=version)
        return cls(**known)

    def data(self) -> dict[str, object]:
        return {key: value for key, value in asdict(self).items() if key not in ("version", "pinned")}

    @property
    def busy(self) -> bool:
        """Whether a turn is running."""
        return self.status != "idle" and self.claimed_until_ms > system_clock()

    @property
    def lost(self) -> bool:
        """Whether the process that ran the turn died."""
        return self.status != "idle" and not self.busy

    @property
    def shown_status(self) -> Status:
        """The status for people: a chat whose turn was lost is idle."""
        return self.status if self.busy else "idle"


class ChatStore:
    """The chats in one store. Every method may block, so call it in a thread."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def create(self) -> str:
        chat_id, now = random_ids(), system_clock()
        self._save(chat_id, Head(created_ms=now, updated_ms=now))
        self.store.notify(LIST_CHANGED)
        return chat_id

    def head(self, chat_id: str) -> Head:
        document = self.store.load_state(chat_id, KEY) if _ID.fullmatch(chat_id) else None
        if document is None or document.value.get("hidden"):
            raise NoSuchChat(chat_id)
        return _labelled(Head.read(document.value, document.version), label_of(self.store, chat_id))

    def chats(self) -> list[tuple[str, Head]]:
        """The chats that are not hidden: pinned ones first, then the most recently used ones. Takes two queries."""
        chosen, none = labels(self.store), ChatLabel()
        found = [
            (session_id, _labelled(Head.read(document.value, document.version), chosen.get(session_id, none)))
            for session_id, document in self.store.states(key=KEY)
            if not document.value.get("hidden")
        ]
        return sorted(found, key=lambda chat: (chat[1].pinned, chat[1].updated_ms), reverse=True)

    def label(self, chat_id: str) -> ChatLabel:
        """What a person chose for a chat."""
        self.head(chat_id)
        return label_of(self.store, chat_id)

    def change(self, chat_id: str, **changes: object) -> ChatLabel:
        """Change what a person chose for a chat. A turn that is running goes on."""
        self.head(chat_id)
        label = change_label(self.store, chat_id, **changes)
        self.store.notify(LIST_CHANGED)
        return label

    def hide(self, chat_id: str) -> None:
        head = self.head(chat_id)
        if head.busy:
            raise ChatBusy("a turn is running on this chat; stop it first")
        self._save(chat_id, replace(head, hidden=True))
        self.store.notify(LIST_CHANGED)

    def unhide(self, chat_id: str) -> None:
        """Put a hidden chat back into the list, as it was."""
        document = self.store.load_state(chat_id, KEY) if _ID.fullmatch(chat_id) else None
        if document is None:
            raise NoSuchChat(chat_id)
        head = Head.read(document.value, document.version)
        if head.hidden:
            self._save(chat_id, replace(head, hidden=False))
            self.store.notify(LIST_CHANGED)

    # --- turns ---

    def claim(self, chat_id: str, head: Head, started: ChatTurnStarted, title: str) -> Head:
        """Begin a turn. Raises `ChatBusy` if another one is running."""
        if head.busy:
            raise ChatBusy("a turn is running on this chat; wait for it to end, or stop it")
        now = system_clock()
        claimed = replace(
            head,
            title=head.title or title,
            updated_ms=now,
            model=started.model,
            status="running",
            turn=started.turn,
            claimed_until_ms=now + LEASE_MS,
        )
        try:
            claimed = self._save(chat_id, claimed)
        except StateConflict as conflict:
            raise ChatBusy("another turn just started on this chat") from conflict
        self._append(chat_id, [started])
        return claimed

    def renew(self, chat_id: str, head: Head, status: Status) -> Head:
        """Extend a claim. Raises `ChatBusy` if another process has taken the chat over since."""
        try:
            return self._save(chat_id, replace(head, status=status, claimed_until_ms=system_clock() + LEASE_MS))
        except StateConflict as conflict:
            raise ChatBusy("another process took over this turn") from conflict

    def release(self, chat_id: str, head: Head, skills: Sequence[str], outcome: str) -> Head:
        """End a turn."""
        ended = replace(
            head, status="idle", skills=tuple(skills), updated_ms=system_clock(), turn="", claimed_until_ms=0
        )
        saved = self._save(chat_id, ended)
        # The event comes after the head, so that a follower woken by the event finds the chat idle.
        self._append(chat_id, [ChatTurnEnded(head.turn, outcome)])
        return saved

    def settle(self, chat_id: str, head: Head) -> Head:
        """Repair a chat whose process died: close its open items and add an error that says what happened."""
        try:
            claimed = self.renew(chat_id, head, "running")
        except ChatBusy:
            return self.head(chat_id)
        kept, _ = self.items(chat_id)
        self.keep(chat_id, [*close(kept, "the server stopped"), ErrorItem(message=_SERVER_STOPPED)])
        return self.release(chat_id, claimed, head.skills, "lost")

    # --- items ---

    def items(self, chat_id: str, after: int = -1) -> tuple[list[Item], int]:
        """The items stored after a position in the stream, and the position of the last one."""
        frames = self.store.read(chat_id, chat_stream(chat_id), None, after)
        return items.from_frames(frames, self.store.get_artifact), frames[-1]["seq"] if frames else after

    def add_file(self, chat_id: str, item: FileItem, data: bytes) -> None:
        """Store a file that the user added, and its bytes."""
        event, _ = items.to_event(item, str)
        self._append(chat_id, [event], [data])

    def keep(self, chat_id: str, changed: Sequence[Item], redact: Callable[[str], str] = str) -> None:
        """Store items as they are now."""
        events: list[Event] = []
        artifacts: list[bytes] = []
        for item in changed:
            event, texts = items.to_event(item, redact)
            events.append(event)
            artifacts += texts
        self._append(chat_id, events, artifacts)

    def _append(self, chat_id: str, events: Sequence[Event], artifacts: Sequence[bytes] = ()) -> None:
        drafts = [Draft(random_ids(), system_clock(), event.type, storable_table(event.data())) for event in events]
        self.store.append(chat_id, KEY, chat_stream(chat_id), drafts, artifacts)

    def _save(self, chat_id: str, head: Head) -> Head:
        return replace(head, version=self.store.save_state(chat_id, KEY, head.data(), head.version))


def _labelled(head: Head, label: ChatLabel) -> Head:
    """The head with what a person chose."""
    return replace(head, title=label.title or head.title, pinned=label.pinned)


def close(kept: Sequence[Item], why: str) -> list[Item]:
    """End the items that are still open, and return those that changed."""
    changed: list[Item] = []
    for item in kept:
        if isinstance(item, ToolItem) and item.state == "running":
            item.state, item.code, item.text = "failed", "STOPPED", item.text or f"The call did not finish: {why}."
        elif isinstance(item, TextItem) and not item.done:
            item.done = item.cut = True
        elif isinstance(item, AskItem) and item.state == "waiting":
            item.state = "no"
        elif isinstance(item, ChoiceItem) and item.state == "waiting":
            item.state = "none"
        else:
            continue
        changed.append(item)
    return changed
