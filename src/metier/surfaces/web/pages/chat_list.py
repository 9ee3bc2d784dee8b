"""The list of chats: search as one types, dates, pages, and renaming, pinning and removing a chat.

A removed chat is only hidden, so it can be put back as it was. Everything is a form, which works without scripts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from metier.surfaces.chat.chat_search import ChatSearch, FoundChat
from metier.surfaces.chat.chat_store import LABEL_CHARACTERS
from metier.surfaces.web.site import Form, Site, back_to, see_other, whole

if TYPE_CHECKING:
    from metier.surfaces.web.api import Api

PER_PAGE: Final = 50
BESIDE: Final = 40
"""Chats beside the chat that is open."""


@dataclass(frozen=True, slots=True)
class DatedChats:
    """Chats of one time, such as today."""

    label: str
    chats: Sequence[FoundChat]


@dataclass(frozen=True, slots=True)
class ChatsBeside:
    """What the list beside a chat shows, and how many chats it does not."""

    groups: Sequence[DatedChats]
    more: int


def beside(found: Sequence[FoundChat], words: str = "") -> ChatsBeside:
    return ChatsBeside(grouped(found[:BESIDE], words), max(0, len(found) - BESIDE))


def grouped(found: Sequence[FoundChat], words: str) -> list[DatedChats]:
    """Chats by their time or, where they were searched for, in the order of how well they match."""
    return list(dated(found)) if not words else [DatedChats("", found)] if found else []


def dated(found: Sequence[FoundChat], today: date | None = None) -> Iterator[DatedChats]:
    """Chats by their time, in the order in which they are given."""
    now = today or date.today()  # noqa: DTZ011 - the days of the person, who is mostly at this machine
    groups: list[tuple[str, list[FoundChat]]] = []
    for one in found:
        label = "Pinned" if one.head.pinned else _day(one.head.updated_ms, now)
        if not groups or groups[-1][0] != label:
            groups.append((label, []))
        groups[-1][1].append(one)
    return (DatedChats(label, chats) for label, chats in groups)


def _day(ms: int, today: date) -> str:
    then = datetime.fromtimestamp(ms / 1000).date()  # noqa: DTZ006 - see above
    days = (today - then).days
    if days <= 0:
        return "Today"
    if days == 1:
        return "Yesterday"
    if days < 7:
        return "The last 7 days"
    return then.strftime("%B %Y") if then.year != today.year else then.strftime("%B")


@dataclass(frozen=True)
class ChatListPages:
    """The page `/chats`, and what it does to chats."""

    site: Site
    api: "Api"
    search: ChatSearch

    def index(self, request: Request) -> Response:
        words = request.query_params.get("q", "").strip()[:300]
        part = request.query_params.get("part", "")
        found = self.search.find(words)
        if part == "beside":
            current = request.query_params.get("chat", "")
            return self.site.page(request, "chat/list.html", beside=beside(found, words), chat_id=current, words=words)
        last = max(1, -(-len(found) // PER_PAGE))
        number = min(whole(request.query_params.get("page"), 1, 1), last)
        return self.site.page(
            request,
            "chats/list.html" if part else "chats/index.html",
            groups=grouped(found[(number - 1) * PER_PAGE : number * PER_PAGE], words),
            total=len(found),
            number=number,
            last=last,
            words=words,
            removed=request.query_params.get("removed", ""),
        )

    def change(self, request: Request, given: Form) -> Response:
        """Rename, pin, remove or put back a chat, and return to the page that asked."""
        chat_id = request.path_params["chat_id"]
        store, back = self.api.chats.store, back_to(given.get("back", ""), "/chats")
        what = given.get("what", "")
        if what == "rename":
            store.change(chat_id, title=" ".join(given.get("title", "").split())[:LABEL_CHARACTERS])
        elif what in ("pin", "unpin"):
            store.change(chat_id, pinned=what == "pin")
        elif what == "remove":
            store.hide(chat_id)
            back = f"{'/' if back.startswith('/chat/') else '/chats'}?{urlencode({'removed': chat_id})}"
        elif what == "put-back":
            store.unhide(chat_id)
        return see_other(back)
