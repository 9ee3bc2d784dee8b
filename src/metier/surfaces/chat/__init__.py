"""A chat with skills: one loop between a model, a session and a person. Needs the extra `web`.

Everything a person sees is an item. Items are events in the chat's own stream, so any process that opens the same store
can reopen the chat. The model is told what the items say; no other memory exists.
"""

from metier.surfaces.chat.engine import ChatBusy, Chats, NoSuchChat
from metier.surfaces.chat.model_choice import ModelChoice

__all__ = ["ChatBusy", "Chats", "ModelChoice", "NoSuchChat"]
