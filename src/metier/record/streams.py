"""The streams of a store that are not sessions: installs, retention, the items of chats, and what models were offered.

A session has the stream of its own id. An id that names one of these streams is therefore refused for a session: its
events would mix with others, or the store would refuse one of the two.
"""

from typing import Final

from metier.errors import StoreError
from metier.record.events import INSTALLS

RETENTION: Final = "retention"
"""The stream of what was deleted because the store reached its bound. It belongs to no session."""
CHAT: Final = "chat"
"""The kind of a chat's stream, and the end of its id."""
OFFERS: Final = "offers"
"""The kind of the stream with the lists of skills that the model of a session was shown, and the end of its id."""
_NAMED: Final = (INSTALLS, RETENTION)


def chat_stream(chat_id: str) -> str:
    """The stream that holds the events of a chat; the session of the chat has its own."""
    return f"{chat_id}/{CHAT}"


def offers_stream(session_id: str) -> str:
    """The stream that holds what the model of a session was offered."""
    return f"{session_id}/{OFFERS}"


def is_internal(stream_id: str) -> bool:
    """Whether a stream belongs to Metier itself, so that no session can have its id."""
    return stream_id in _NAMED or stream_id.endswith((f"/{CHAT}", f"/{OFFERS}"))


def check_session_id(session_id: str) -> str:
    """Return the id of a session. Raises `StoreError` (reason "invalid") if it names a stream of Metier itself."""
    if is_internal(session_id):
        hint = "choose another id; `metier events --session` shows the events of this one"
        raise StoreError(f"the session id {session_id!r} is reserved", reason="invalid", hint=hint)
    return session_id
