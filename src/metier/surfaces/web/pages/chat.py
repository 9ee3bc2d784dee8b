"""The chat page. Messages go to the HTTP API, and items come back as rendered blocks.

The stream of a page stays open as long as the page is seen, so that every page of a chat shows the same, whichever page
or server a message was sent through.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from metier.files.text import visible
from metier.record.events import chat_stream
from metier.record.writer import system_clock
from metier.running.secrets.storage import find_keyring
from metier.surfaces.chat.chat_search import ChatSearch
from metier.surfaces.chat.chat_store import NoSuchChat
from metier.surfaces.chat.engine import MESSAGE_CHARACTERS
from metier.surfaces.chat.items import spent_in
from metier.surfaces.chat.live import TurnMessage
from metier.surfaces.chat.model_choice import PROVIDERS
from metier.surfaces.web import sse
from metier.surfaces.web.cards import Cards, CardStream, of_page
from metier.surfaces.web.endpoints import encode
from metier.surfaces.web.pages.chat_list import beside
from metier.surfaces.web.site import Site, whole

if TYPE_CHECKING:
    from metier.surfaces.web.api import Api

ITEMS: Final = 300
"""The latest items, which the page shows at first."""
SUGGESTIONS: Final = 4

PACE_SECONDS: Final = 0.05
"""How long the pieces of a growing answer are collected before the page gets them."""


@dataclass(frozen=True)
class ChatPages:
    """The pages `/` and `/chat/{chat_id}`, and the stream of rendered cards."""

    site: Site
    api: "Api"
    search: ChatSearch

    def new(self, request: Request) -> Response:
        answer = self.chat(request)
        answer.background = BackgroundTask(self.search.warm)  # so that the first search does not wait for it
        return answer

    def chat(self, request: Request) -> Response:
        chat_id: str = request.path_params.get("chat_id", "")
        chats = self.api.chats
        items: list[str] = []
        status, skills, title, earlier, position, elapsed, pinned = "idle", list[str](), "", 0, -1, 0, False
        if chat_id:
            head, kept, position = chats.read_to(chat_id)
            turn = chats.turn(chat_id)
            status = turn.status if turn is not None else head.shown_status
            skills, title = turn.skills if turn is not None else list(head.skills), head.title
            pinned = head.pinned
            earlier = 0 if "all" in request.query_params else max(0, len(kept) - ITEMS)
            elapsed = max(0, system_clock() - (turn.started_ms if turn is not None else head.updated_ms))
            items = Cards(self.site, chat_id).page([one.as_dict() for one in kept[earlier:]], idle=status == "idle")
        return self.site.page(
            request,
            "chat/index.html",
            chat_id=chat_id,
            title=title,
            state=status,
            skills=skills,
            items=items,
            position=position,
            elapsed=elapsed,
            most_characters=MESSAGE_CHARACTERS,
            earlier=earlier,
            pinned=pinned,
            removed=request.query_params.get("removed", "") if not chat_id else "",
            words="",
            beside=beside(self.search.find("")),
            model=chats.choice_of(chat_id).as_dict(),
            own_model=bool(chat_id and chats.store.head(chat_id).own_model),
            keyring=find_keyring().backend is not None,
            providers=PROVIDERS,
            suggestions=chats.commands("", SUGGESTIONS),
            found=len(self.site.skills()),
        )

    def spent(self, request: Request) -> Response:
        """What the model of a chat took so far, as a part of the page."""
        _, kept = self.api.chats.read(request.path_params["chat_id"])
        return self.site.page(request, "chat/spent.html", spent=spent_in(kept))

    def stream(self, request: Request) -> Response:
        chat_id = request.path_params["chat_id"]
        chats = self.api.chats
        _, kept = chats.read(chat_id)
        stream = CardStream(Cards(self.site, chat_id), [item.as_dict() for item in kept])
        after = whole(request.query_params.get("after"), -1, -1)

        async def source(subscriber: sse.Subscriber) -> AsyncGenerator[TurnMessage | None]:
            yield TurnMessage("ready", {})
            async for message in chats.watch(chat_id, subscriber, after):
                yield message
                if message is not None and message.event == "delta":
                    await asyncio.sleep(PACE_SECONDS)

        async def write(message: TurnMessage) -> bytes:
            told = await run_in_threadpool(of_page, message, stream)
            if message.event in ("end", "idle"):
                told.append((message.event, await run_in_threadpool(self._around, message, chat_id)))
            hidden = ((event, self.site.hide_paths(data)) for event, data in told)
            return b"".join(sse.message(event, encode(data)) for event, data in hidden)

        return sse.respond(self.api.feed.follow(chat_stream(chat_id), source, write))

    def _around(self, message: TurnMessage, chat_id: str) -> dict[str, object]:
        """What surrounds the items, after a turn: the title, the skills and the list of chats."""
        try:
            title = visible(self.api.chats.store.head(chat_id).title)
        except NoSuchChat:
            title = ""
        listed = beside(self.search.find(""))
        return {
            "status": message.data["status"],
            "title": title,
            "chips": self.site.render("chat/chips.html", skills=message.data["skills"]),
            "chats": self.site.render("chat/list.html", words="", beside=listed, chat_id=chat_id),
        }
