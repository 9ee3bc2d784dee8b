"""A chat with skills: one loop between a model, a session and the person who watches. Needs the extra `web`.

Everything a person sees is an item; items are events in a stream of the session's own, so that a chat can be reopened
by any process that opens the same store. The model sees what the items say, and nothing else is remembered.
"""

from metier.chat.engine import Busy, Chats, NoSuchChat
from metier.chat.model_choice import Choice

__all__ = ["Busy", "Chats", "Choice", "NoSuchChat"]
