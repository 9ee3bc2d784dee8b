"""The chat page. Messages go to the HTTP API, and items come back as rendered cards.

Only this module renders cards: when the page opens, and in the page's own stream whenever an item changes. So a card
looks the same before and after a reload.
"""

import asyncio
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from metier.chat.chat_search import ChatSearch
from metier.chat.chat_store import NoSuchChat
from metier.chat.live import TurnMessage
from metier.chat.model_choice import PROVIDERS
from metier.chat.spending import from_item, of_chat
from metier.files.json_text import part_of
from metier.files.shapes import is_items, is_table
from metier.files.text import visible
from metier.record.streams import chat_stream
from metier.secrets.storage import find_keyring
from metier.web import sse
from metier.web.endpoints import encode
from metier.web.pages.chat_list import beside
from metier.web.site import Site

if TYPE_CHECKING:
    from metier.web.api import Api

CARD_CHARACTERS: Final = 100_000
"""Characters of one text on a card. The activity page has all of them."""
LARGE_CHARACTERS: Final = 1_200
"""A longer resource is folded at first."""
ITEMS: Final = 300
"""The latest items, which the page shows at first."""
SUGGESTIONS: Final = 4

_LIMITS: Final = {"most": CARD_CHARACTERS, "large": LARGE_CHARACTERS}
_BLANK: Final[Mapping[str, object]] = dict.fromkeys(
    (
        *("text", "skill", "done", "cut", "superseded", "tool", "role", "args", "state", "code", "path", "truncated"),
        *("already_loaded", "hits", "exit_code", "stdout", "stderr", "rule", "event_seq", "digest", "why", "detail"),
        *(
            "command",
            "message",
            "retry",
            "question",
            "foreign",
            "name",
            "candidates",
            "chosen",
            "shown",
            "size",
            "made",
            "spent",
        ),
    )
)
"""Every field that some item has, for templates that fail on an undefined one."""


@dataclass(frozen=True)
class ChatPages:
    """The pages `/` and `/chat/{chat_id}`, and the stream of rendered cards."""

    site: Site
    api: "Api"
    search: ChatSearch

    async def new(self, request: Request) -> Response:
        answer = await run_in_threadpool(self._page, request, "")
        # In the background, so that the first search does not wait for it.
        asyncio.get_running_loop().run_in_executor(None, self.search.warm)
        return answer

    async def chat(self, request: Request) -> Response:
        return await run_in_threadpool(self._page, request, request.path_params["chat_id"])

    def _page(self, request: Request, chat_id: str) -> Response:
        chats = self.api.chats
        items: list[dict[str, object]] = []
        status, skills, title, earlier, pinned = "idle", list[str](), "", 0, False
        if chat_id:
            try:
                head, kept = chats.read(chat_id)
            except NoSuchChat as error:
                return self.site.error(request, 404, "Chat not found", str(error), "It may have been removed.")
            turn = chats.turn(chat_id)
            status = turn.status if turn is not None else head.shown_status
            skills, title = turn.skills if turn is not None else list(head.skills), head.title
            pinned = head.pinned
            earlier = 0 if "all" in request.query_params else max(0, len(kept) - ITEMS)
            items = [self._for_template(item.as_dict()) for item in kept[earlier:]]
        return self.site.page(
            request,
            "chat/index.html",
            chat_id=chat_id,
            title=title,
            state=status,
            skills=skills,
            items=items,
            earlier=earlier,
            pinned=pinned,
            removed=request.query_params.get("removed", "") if not chat_id else "",
            words="",
            beside=beside(self.search.find("")),
            model=chats.choice_of(chat_id).as_dict(),
            own_model=bool(chat_id and chats.store.label(chat_id).model),
            keyring=find_keyring().backend is not None,
            providers=PROVIDERS,
            suggestions=chats.commands("", SUGGESTIONS),
            found=len(self.site.skills()),
            **_LIMITS,
        )

    async def spent(self, request: Request) -> Response:
        """What the model of a chat took so far, as a part of the page."""

        def count() -> Response:
            try:
                _, kept = self.api.chats.read(request.path_params["chat_id"])
            except NoSuchChat:
                return Response(status_code=404)
            return self.site.page(request, "chat/spent.html", spent=of_chat(kept))

        return await run_in_threadpool(count)

    async def stream(self, request: Request) -> Response:
        chat_id = request.path_params["chat_id"]
        try:
            await run_in_threadpool(self.api.chats.store.head, chat_id)
        except NoSuchChat:
            return Response(status_code=404)
        source = functools.partial(self.api.chats.follow, chat_id)

        async def write(message: TurnMessage) -> bytes:
            data = message.data
            if message.event != "delta":
                data = await run_in_threadpool(self._rendered, message, chat_id)
            return sse.message(message.event, encode(self.site.hide_paths(data)))

        return sse.respond(self.api.feed.follow(chat_stream(chat_id), source, write))

    def _rendered(self, message: TurnMessage, chat_id: str) -> dict[str, object]:
        render, data = self.site.render, message.data
        if message.event == "end":
            listed = beside(self.search.find(""))
            return {
                "status": data["status"],
                "title": visible(self.api.chats.store.head(chat_id).title),
                "chips": render("chat/chips.html", skills=data["skills"]),
                "chats": render("chat/list.html", words="", beside=listed, chat_id=chat_id),
            }
        item = self._for_template(data)
        return {"id": data["id"], "html": render("chat/item.html", item=item, chat_id=chat_id, **_LIMITS)}

    def _for_template(self, item: Mapping[str, object]) -> dict[str, object]:
        keys = item.get("shown_at")
        shown = part_of(str(item.get("text", "")), [str(key) for key in keys] if is_items(keys) else ())
        kept = item.get("spent")
        spent = from_item(kept if is_table(kept) else None).words
        return {**_BLANK, **self.site.hide_paths({**item, "shown": shown, "spent": spent})}
