"""What a person chose for a chat: its title, whether it is pinned, and the model that answers in it.

It is a document of its own beside the head: a running turn holds the head under a version, and a person can rename a
chat at any time without stopping the turn.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from metier.errors import StateConflict
from metier.record.store import Store

KEY: Final = "chat-label"
TITLE_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class ChatLabel:
    """See the module. An empty title is the one that the chat gave itself."""

    title: str = ""
    pinned: bool = False
    model: Mapping[str, object] = field(default_factory=dict[str, object])
    """The data of a `ModelChoice`, without its key; empty if the chat uses the server's model."""

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> "ChatLabel":
        return cls(**{key: value[key] for key in cls.__slots__ if key in value})

    def data(self) -> dict[str, object]:
        return {"title": self.title, "pinned": self.pinned, "model": dict(self.model)}


def labels(store: Store) -> dict[str, ChatLabel]:
    """The labels of all chats that have one."""
    return {chat_id: ChatLabel.read(document.value) for chat_id, document in store.states(key=KEY)}


def label_of(store: Store, chat_id: str) -> ChatLabel:
    document = store.load_state(chat_id, KEY)
    return ChatLabel.read(document.value) if document is not None else ChatLabel()


def change_label(store: Store, chat_id: str, **changes: Any) -> ChatLabel:
    """Change some of what a person chose. The rest stays as another page or process left it."""
    while True:
        document = store.load_state(chat_id, KEY)
        before = ChatLabel.read(document.value) if document is not None else ChatLabel()
        after = replace(before, **changes)
        try:
            store.save_state(chat_id, KEY, after.data(), document.version if document is not None else 0)
            return after
        except StateConflict:
            continue
