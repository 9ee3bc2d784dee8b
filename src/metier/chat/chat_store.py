"""Where chats are kept: the items as events, and a head per chat with its title, status and who is at work on it.

Invariant: one turn at a time, over all processes that share the store. Whoever works on a chat has claimed its head
under a version and renews the claim; a claim that was not renewed is void, so that a process that died blocks nobody.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from metier.chat import items
from metier.chat.items import Item
from metier.errors import MetierError, StateConflict
from metier.files.text import storable_table
from metier.record.events import ChatTurnEnded, ChatTurnStarted, Event
from metier.record.recorder import random_ids, system_clock
from metier.record.store import Draft, Store

KEY: Final = "chat"
"""The key of a chat's head among the documents of its session, and the kind of its stream."""

LEASE_MS: Final = 20_000
"""How long a claim holds that is not renewed."""

LISTED: Final = 500
"""Chats in the list; older ones are still there by their id."""

_ID: Final = re.compile(r"[0-9a-f]{32}")

Status = Literal["idle", "running", "waiting"]


class NoSuchChat(MetierError):
    """No chat has that id."""

    def __init__(self, chat_id: str) -> None:
        super().__init__(f"there is no chat {chat_id!r}")


class Busy(MetierError):
    """Another turn is at work on the chat; or, `here`, too many turns are at work in this process."""

    def __init__(self, message: str, *, here: bool = False) -> None:
        self.here = here
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a chat without its items."""

    title: str = ""
    created_ms: int = 0
    updated_ms: int = 0
    model: str = ""
    skills: tuple[str, ...] = ()
    status: Status = "idle"
    turn: str = ""
    claimed_until_ms: int = 0
    hidden: bool = False
    version: int = field(default=0, compare=False)

    @classmethod
    def read(cls, value: Mapping[str, Any], version: int) -> "Head":
        known: dict[str, Any] = {key: value[key] for key in cls.__slots__ if key in value}
        known.update(skills=tuple(known.get("skills", ())), version=version)
        return cls(**known)

    def data(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "version"}

    @property
    def busy(self) -> bool:
        return self.status != "idle" and self.claimed_until_ms > system_clock()

    @property
    def lost(self) -> bool:
        """Whether a process died at work on it."""
        return self.status != "idle" and not self.busy


def stream_of(chat_id: str) -> str:
    return f"{chat_id}/{KEY}"


class Shelf:
    """The chats of one store. Every method may block; call it from a thread."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def create(self) -> str:
        chat_id, now = random_ids(), system_clock()
        self._save(chat_id, Head(created_ms=now, updated_ms=now))
        return chat_id

    def head(self, chat_id: str) -> Head:
        document = self.store.load_state(chat_id, KEY) if _ID.fullmatch(chat_id) else None
        if document is None or document.value.get("hidden"):
            raise NoSuchChat(chat_id)
        return Head.read(document.value, document.version)

    def chats(self) -> list[tuple[str, Head]]:
        """The chats that are not hidden, the one used last first."""
        found = [
            (session_id, Head.read(document.value, document.version))
            for session_id, document in self.store.states(key=KEY)
            if not document.value.get("hidden")
        ]
        return sorted(found, key=lambda chat: chat[1].updated_ms, reverse=True)[:LISTED]

    def hide(self, chat_id: str) -> None:
        head = self.head(chat_id)
        if head.busy:
            raise Busy("a turn is at work on the chat; stop it first")
        self._save(chat_id, replace(head, hidden=True))

    # --- turns ---

    def claim(self, chat_id: str, head: Head, started: ChatTurnStarted, title: str) -> Head:
        """Begin a turn; `Busy` where another one is at work."""
        if head.busy:
            raise Busy("a turn is at work on the chat; wait for its end, or stop it")
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
            raise Busy("another turn began on the chat at this moment") from conflict
        self._append(chat_id, [started])
        return claimed

    def renew(self, chat_id: str, head: Head, status: Status) -> Head:
        """Go on with a claim; `Busy` if somebody else has taken it over since."""
        try:
            return self._save(chat_id, replace(head, status=status, claimed_until_ms=system_clock() + LEASE_MS))
        except StateConflict as conflict:
            raise Busy("the turn was taken over by another process") from conflict

    def release(self, chat_id: str, head: Head, skills: Sequence[str], outcome: str) -> Head:
        ended = replace(
            head, status="idle", skills=tuple(skills), updated_ms=system_clock(), turn="", claimed_until_ms=0
        )
        saved = self._save(chat_id, ended)
        # Behind the head: whoever wakes by the event finds the chat free.
        self._append(chat_id, [ChatTurnEnded(head.turn, outcome)])
        return saved

    def settle(self, chat_id: str, head: Head) -> Head:
        """Put a chat in order whose process died: what was open is closed, and an error says what happened."""
        try:
            claimed = self.renew(chat_id, head, "running")
        except Busy:
            return self.head(chat_id)
        kept, _ = self.items(chat_id)
        self.keep(chat_id, [*close(kept, "the server stopped"), items.error(
            "The server stopped in the middle of the answer. Nothing before it is lost; try again."
        )])  # fmt: skip
        return self.release(chat_id, claimed, head.skills, "lost")

    # --- items ---

    def items(self, chat_id: str, after: int = -1) -> tuple[list[Item], int]:
        """The items that were stored behind a place in the stream, and the place behind them."""
        frames = self.store.read(chat_id, stream_of(chat_id), None, after)
        return items.from_frames(frames, self.store.get_artifact), frames[-1]["seq"] if frames else after

    def keep(self, chat_id: str, changed: Sequence[Item], redact: Callable[[str], str] = str) -> None:
        events: list[Event] = []
        artifacts: list[bytes] = []
        for item in changed:
            event, texts = items.to_event(item, redact)
            events.append(event)
            artifacts += texts
        self._append(chat_id, events, artifacts)

    def _append(self, chat_id: str, events: Sequence[Event], artifacts: Sequence[bytes] = ()) -> None:
        drafts = [Draft(random_ids(), system_clock(), event.type, storable_table(event.data())) for event in events]
        self.store.append(chat_id, KEY, stream_of(chat_id), drafts, artifacts)

    def _save(self, chat_id: str, head: Head) -> Head:
        return replace(head, version=self.store.save_state(chat_id, KEY, head.data(), head.version))


def close(kept: Sequence[Item], why: str) -> list[Item]:
    """End what was under way: the items that changed by it."""
    changed: list[Item] = []
    for item in kept:
        if item.type == "tool" and item["state"] == "running":
            item.data.update(state="failed", code="STOPPED", text=item["text"] or f"It did not finish: {why}.")
        elif item.type == "text" and not item["done"]:
            item.data.update(done=True, cut=True)
        elif item.type == "ask" and item["state"] == "waiting":
            item.data["state"] = "no"
        else:
            continue
        changed.append(item)
    return changed
