"""Stores chats: the items as events, and one head per chat with its title, its status and the turn that holds it.

Invariant: a chat has at most one running turn, across all processes that share the store. A turn claims the head under
a version and renews the claim while it runs. A claim that is not renewed expires, so a process that died blocks no one.
What a person chose for a chat (title, pin, model) is a document of its own, so that it can change while a turn runs.
"""

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Literal

from metier.errors import MetierError, StateConflict
from metier.files.text import storable_table
from metier.record.events import CHAT, ChatTurnEnded, ChatTurnStarted, Event, chat_stream
from metier.record.store import Document, Draft, Store
from metier.record.writer import random_ids, system_clock
from metier.surfaces.chat import items
from metier.surfaces.chat.items import AskItem, ChoiceItem, ErrorItem, Item, TextItem, ToolItem

KEY: Final = CHAT
"""The key of a chat's head among the documents of its session, and the kind of its stream."""

LABEL: Final = "chat-label"
"""The key of what a person chose for a chat."""

LABEL_CHARACTERS: Final = 200
"""The longest title that a person can give."""

LEASE_MS: Final = 20_000
"""How long a claim lasts without a renewal."""

LIST_CHANGED: Final = "chats.changed"
"""The channel of the store on which processes tell each other that the list of chats changed, but for its turns."""

LISTED: Final = 500
"""Chats that the HTTP API lists. Older ones can still be found by their words, and opened by their id."""

ARTIFACTS: Final = 256
"""Texts of cards that are kept in memory, so that a long chat is not read as a whole with each turn."""

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
    version: int = field(default=0, compare=False)
    pinned: bool = field(default=False, compare=False)
    """Whether a person pinned it."""
    own_model: Mapping[str, object] = field(default_factory=dict[str, object], compare=False)
    """The data of the `ModelChoice` that a person made for this chat; empty if it uses the server's model."""

    @classmethod
    def read(cls, document: Document, label: Mapping[str, Any]) -> "Head":
        """The stored head, with what a person chose."""
        values: dict[str, Any] = {key: document.value[key] for key in cls.__slots__ if key in document.value}
        values["title"] = label.get("title") or values.get("title", "")
        values["skills"] = tuple(values.get("skills", ()))
        return cls(
            **values, pinned=label.get("pinned", False), own_model=label.get("model", {}), version=document.version
        )

    def data(self) -> dict[str, object]:
        return {key: value for key, value in asdict(self).items() if key not in ("version", "pinned", "own_model")}

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

    def __init__(self, store: Store, redact: Callable[[str], str] = str) -> None:
        """`redact` hides what people and models wrote."""
        self.store, self._redact = store, redact
        self._artifact = lru_cache(ARTIFACTS)(store.get_artifact)  # what a digest names never changes

    def create(self) -> str:
        chat_id, now = random_ids(), system_clock()
        self._save(chat_id, Head(created_ms=now, updated_ms=now))
        self.store.notify(LIST_CHANGED)
        return chat_id

    def head(self, chat_id: str) -> Head:
        head = self._head(chat_id)
        if head is None or head.hidden:
            raise NoSuchChat(chat_id)
        return head

    def _head(self, chat_id: str) -> Head | None:
        """The head of a chat, also of a hidden one. Takes one query."""
        if not _ID.fullmatch(chat_id):
            return None
        documents = {document.key: document for _, document in self.store.states(chat_id)}
        head, label = documents.get(KEY), documents.get(LABEL)
        return Head.read(head, label.value if label else {}) if head else None

    def chats(self) -> list[tuple[str, Head]]:
        """The chats that are not hidden: pinned ones first, then the most recently used ones. Takes two queries."""
        chosen = {chat_id: document.value for chat_id, document in self.store.states(key=LABEL)}
        found = [
            (chat_id, Head.read(document, chosen.get(chat_id, {})))
            for chat_id, document in self.store.states(key=KEY)
            if not document.value.get("hidden")
        ]
        return sorted(found, key=order, reverse=True)

    def change(self, chat_id: str, **changes: object) -> Mapping[str, object]:
        """Change some of what a person chose for a chat: `title`, `pinned`, `model`. A turn that is running goes on.

        The rest stays as another page or process left it.
        """
        self.head(chat_id)
        while True:
            document = self.store.load_state(chat_id, LABEL)
            before: Mapping[str, object] = document.value if document is not None else {}
            label = {**before, **changes}
            with contextlib.suppress(StateConflict):
                self.store.save_state(chat_id, LABEL, label, document.version if document is not None else 0)
                break
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
        head = self._head(chat_id)
        if head is None:
            raise NoSuchChat(chat_id)
        if head.hidden:
            self._save(chat_id, replace(head, hidden=False))
            self.store.notify(LIST_CHANGED)

    # --- turns ---

    def claim(
        self, chat_id: str, head: Head, started: ChatTurnStarted, title: str = "", message: Item | None = None
    ) -> Head:
        """Begin a turn with the message that it answers, if that is new. Raises `ChatBusy` if another is running."""
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
        self.keep(chat_id, [started, message] if message is not None else [started])
        return claimed

    def renew(self, chat_id: str, head: Head, status: Status) -> Head:
        """Extend a claim. Raises `ChatBusy` if another process has taken the chat over since."""
        try:
            return self._save(chat_id, replace(head, status=status, claimed_until_ms=system_clock() + LEASE_MS))
        except StateConflict as conflict:
            raise ChatBusy("another process took over this turn") from conflict

    def release(self, chat_id: str, head: Head, skills: Sequence[str], outcome: str, last: Sequence[Item] = ()) -> Head:
        """End a turn, and store its last items."""
        ended = replace(
            head, status="idle", skills=tuple(skills), updated_ms=system_clock(), turn="", claimed_until_ms=0
        )
        saved = self._save(chat_id, ended)
        # The event comes after the head, so that a follower woken by the event finds the chat idle.
        self.keep(chat_id, [*last, ChatTurnEnded(head.turn, outcome)])
        return saved

    def settle(self, chat_id: str, head: Head) -> Head:
        """Repair a chat whose process died: close its open items and add an error that says what happened."""
        try:
            claimed = self.renew(chat_id, head, "running")
        except ChatBusy:
            return self.head(chat_id)
        kept, _ = self.items(chat_id)
        last = [*close(kept, "the server stopped"), ErrorItem(message=_SERVER_STOPPED)]
        return self.release(chat_id, claimed, head.skills, "lost", last)

    # --- items ---

    def items(self, chat_id: str, after: int = -1) -> tuple[list[Item], int]:
        """The items stored after a position in the stream, and the position of the last one."""
        frames = self.store.read(chat_id, chat_stream(chat_id), None, after)
        return items.from_frames(frames, self._artifact), frames[-1]["seq"] if frames else after

    def keep(self, chat_id: str, what: Sequence[Item | Event], artifacts: Sequence[bytes] = ()) -> None:
        """Store events, and items as they are now. `artifacts` are the bytes of files among them."""
        drafts: list[Draft] = []
        kept = list(artifacts)
        for one in what:
            event, texts = items.to_event(one, self._redact) if isinstance(one, Item) else (one, [])
            drafts.append(Draft(random_ids(), system_clock(), event.type, storable_table(event.data())))
            kept += texts
        self.store.append(chat_id, KEY, chat_stream(chat_id), drafts, kept)

    def _save(self, chat_id: str, head: Head) -> Head:
        return replace(head, version=self.store.save_state(chat_id, KEY, head.data(), head.version))


def order(chat: tuple[str, Head]) -> tuple[bool, int]:
    """Sorts a list of chats, the first one last."""
    return chat[1].pinned, chat[1].updated_ms


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
