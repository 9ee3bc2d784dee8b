"""The page of a chat. What is said goes to the HTTP API; what happens comes back as the same cards the page began with.

A card is rendered here and nowhere else: when the page opens, and whenever its item changes, as a message of the stream
that this page follows. So a card never looks different after a reload.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from metier.chat.chat_store import NoSuchChat
from metier.chat.model_choice import PROVIDERS
from metier.files.text import visible
from metier.web.endpoints import encode
from metier.web.pages.site import Site

if TYPE_CHECKING:
    from metier.web.api import Api

CARD_CHARACTERS: Final = 100_000
"""Of one text on a card; all of it is in the activity."""
LARGE_CHARACTERS: Final = 1_200
"""A resource that is longer is folded at first."""
ITEMS: Final = 300
"""Of a chat at first: the latest."""
SUGGESTIONS: Final = 4
LISTED: Final = 100
"""Chats at the side."""


@dataclass(frozen=True)
class ChatPages:
    """See the module."""

    site: Site
    api: "Api"

    async def new(self, request: Request) -> Response:
        return await run_in_threadpool(self._page, request, "")

    async def chat(self, request: Request) -> Response:
        return await run_in_threadpool(self._page, request, request.path_params["chat_id"])

    def _page(self, request: Request, chat_id: str) -> Response:
        chats = self.api.chats
        items: list[dict[str, Any]] = []
        status, skills, title, earlier = "idle", list[str](), "", 0
        if chat_id:
            try:
                head, kept = chats.read(chat_id)
            except NoSuchChat as error:
                return self.site.error(request, 404, "There is no such chat", str(error), "It may have been removed.")
            turn = chats.turn(chat_id)
            status = turn.status if turn is not None else head.status if head.busy else "idle"
            skills, title = turn.skills if turn is not None else list(head.skills), head.title
            earlier = 0 if "all" in request.query_params else max(0, len(kept) - ITEMS)
            items = [_BLANK | self.api.veil(item.as_dict()) for item in kept[earlier:]]
        return self.site.page(
            request, "chat/index.html", chat_id=chat_id, title=title, state=status, skills=skills, items=items,
            earlier=earlier, chats=chats.shelf.chats()[:LISTED], model=chats.choice.as_dict(), providers=PROVIDERS,
            suggestions=chats.commands("", SUGGESTIONS), found=len(self.site.skills()), **_LIMITS,
        )  # fmt: skip

    async def stream(self, request: Request) -> Response:
        chat_id = request.path_params["chat_id"]
        try:
            await run_in_threadpool(self.api.chats.shelf.head, chat_id)
        except NoSuchChat:
            return Response(status_code=404)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._messages(chat_id), headers=headers, media_type="text/event-stream")

    async def _messages(self, chat_id: str) -> AsyncIterator[bytes]:
        watcher = self.api.watcher
        async with watcher.watching(chat_id) as news:
            async for event, data in self.api.chats.follow(chat_id, news):
                if event == "still":
                    yield b": still here\n\n"
                    if watcher.ending:
                        return
                    continue
                shown = data if event == "delta" else await run_in_threadpool(self._shown, event, data, chat_id)
                yield b"event: " + event.encode() + b"\ndata: " + encode(self.api.veil(shown)) + b"\n\n"

    def _shown(self, event: str, data: dict[str, Any], chat_id: str) -> dict[str, Any]:
        render = self.site.render
        if event == "end":
            chats = self.api.chats.shelf.chats()[:LISTED]
            return {
                "status": data["status"],
                "title": visible(self.api.chats.shelf.head(chat_id).title),
                "chips": render("chat/chips.html", skills=data["skills"]),
                "chats": render("chat/list.html", chats=chats, chat_id=chat_id),
            }
        item = _BLANK | self.api.veil(data)
        return {"id": data["id"], "html": render("chat/item.html", item=item, chat_id=chat_id, **_LIMITS)}


_BLANK: Final[dict[str, Any]] = dict.fromkeys(
    (
        "text", "skill", "done", "cut", "superseded", "tool", "role", "args", "state", "code", "path", "truncated",
        "already_loaded", "hits", "exit_code", "stdout", "stderr", "rule", "event_seq", "digest", "why", "detail",
        "command", "message", "retry",
    )
)  # fmt: skip
"""What an item may say; a card shows only what its item does say."""

_LIMITS: Final[dict[str, Any]] = {"most": CARD_CHARACTERS, "large": LARGE_CHARACTERS}
