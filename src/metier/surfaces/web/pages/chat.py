"""The chat page, the list of chats, and a chat as a file.

Messages go to the HTTP API, and items come back as rendered blocks. The stream of a page stays open as long as the
page is seen, so that every page of a chat shows the same, whichever page or server a message was sent through.
"""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final
from urllib.parse import quote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from metier.files.text import fenced, utf8, visible
from metier.record.events import chat_stream
from metier.record.writer import system_clock
from metier.running.secrets.storage import find_keyring
from metier.surfaces.chat.chat_store import LABEL_CHARACTERS, Head, NoSuchChat
from metier.surfaces.chat.engine import MESSAGE_CHARACTERS
from metier.surfaces.chat.items import ErrorItem, FileItem, Item, NoticeItem, TextItem, ToolItem, UserItem, spent_in
from metier.surfaces.chat.live import TurnMessage
from metier.surfaces.chat.model_choice import PROVIDERS
from metier.surfaces.web import sse
from metier.surfaces.web.cards import Cards, CardStream, of_page
from metier.surfaces.web.site import Form, Site, back_to, clock, encode, see_other, whole

PER_PAGE: Final = 50
BESIDE: Final = 40
"""Chats beside the chat that is open."""
ITEMS: Final = 300
"""The latest items, which the page shows at first."""
SUGGESTIONS: Final = 4

OUTPUT_CHARACTERS: Final = 20_000
"""Characters of one output in exported Markdown and HTML. JSON has all of them."""
_EXPORTS: Final = {"md": "text/markdown", "json": "application/json", "html": "text/html"}

KnownChat = tuple[str, Head]
"""The id and the head of a chat."""

PACE_SECONDS: Final = 0.05
"""How long the pieces of a growing answer are collected before the page gets them."""


def chat(site: Site, request: Request) -> Response:
    chat_id: str = request.path_params.get("chat_id", "")
    chats = site.chats
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
        items = Cards(site, chat_id).page([one.as_dict() for one in kept[earlier:]], idle=status == "idle")
    return site.page(
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
        beside=beside(site.known_chats.all()),
        model=chats.choice_of(chat_id).as_dict(),
        own_model=bool(chat_id and chats.store.head(chat_id).own_model),
        keyring=find_keyring().backend is not None,
        providers=PROVIDERS,
        suggestions=chats.commands("", SUGGESTIONS),
        found=len(site.skills()),
    )


def spent(site: Site, request: Request) -> Response:
    """What the model of a chat took so far, as a part of the page."""
    _, kept = site.chats.read(request.path_params["chat_id"])
    return site.page(request, "chat/spent.html", spent=spent_in(kept))


def stream(site: Site, request: Request) -> Response:
    chat_id = request.path_params["chat_id"]
    chats = site.chats
    _, kept = chats.read(chat_id)
    stream = CardStream(Cards(site, chat_id), [item.as_dict() for item in kept])
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
            told.append((message.event, await run_in_threadpool(_around, site, message, chat_id)))
        hidden = ((event, site.hide_paths(data)) for event, data in told)
        return b"".join(sse.message(event, encode(data)) for event, data in hidden)

    return sse.respond(site.feed.follow(chat_stream(chat_id), source, write))


def _around(site: Site, message: TurnMessage, chat_id: str) -> dict[str, object]:
    """What surrounds the items, after a turn: the title, the skills and the list of chats."""
    try:
        title = visible(site.chats.store.head(chat_id).title)
    except NoSuchChat:
        title = ""
    listed = beside(site.known_chats.all())
    return {
        "status": message.data["status"],
        "title": title,
        "chips": site.render("chat/chips.html", skills=message.data["skills"]),
        "chats": site.render("chat/list.html", beside=listed, chat_id=chat_id),
    }


# --- the list of chats ---
# A removed chat is only hidden, so it can be put back as it was. Everything is a form, which works without scripts.


@dataclass(frozen=True, slots=True)
class DatedChats:
    """Chats of one time, such as today."""

    label: str
    chats: Sequence[KnownChat]


@dataclass(frozen=True, slots=True)
class ChatsBeside:
    """What the list beside a chat shows, and how many chats it does not."""

    groups: Sequence[DatedChats]
    more: int


def beside(found: Sequence[KnownChat]) -> ChatsBeside:
    return ChatsBeside(list(dated(found[:BESIDE])), max(0, len(found) - BESIDE))


def dated(found: Sequence[KnownChat], today: date | None = None) -> Iterator[DatedChats]:
    """Chats by their time, in the order in which they are given."""
    now = today or date.today()  # noqa: DTZ011 - the days of the person, who is mostly at this machine
    by_time = itertools.groupby(found, lambda one: "Pinned" if one[1].pinned else _day(one[1].updated_ms, now))
    return (DatedChats(label, list(chats)) for label, chats in by_time)


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


def index(site: Site, request: Request) -> Response:
    found = site.known_chats.all()
    if request.query_params.get("part", "") == "beside":
        current = request.query_params.get("chat", "")
        return site.page(request, "chat/list.html", beside=beside(found), chat_id=current)
    last = max(1, -(-len(found) // PER_PAGE))
    number = min(whole(request.query_params.get("page"), 1, 1), last)
    return site.page(
        request,
        "chats/index.html",
        groups=list(dated(found[(number - 1) * PER_PAGE : number * PER_PAGE])),
        total=len(found),
        number=number,
        last=last,
        removed=request.query_params.get("removed", ""),
    )


def change(site: Site, request: Request, given: Form) -> Response:
    """Rename, pin, remove or put back a chat, and return to the page that asked."""
    chat_id = request.path_params["chat_id"]
    store, back = site.chats.store, back_to(given.get("back", ""), "/chats")
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


# --- a chat as a file ---
# The HTML page needs nothing else and runs nothing. It has no script, loads nothing, and says so in its own
# Content-Security-Policy, since it will be opened without the headers of this server.


def export(site: Site, request: Request) -> Response:
    chat_id, kind = request.path_params["chat_id"], request.path_params["kind"]
    if kind not in _EXPORTS:
        return site.error(request, 404, "Not found", "A chat can be exported as md, json or html.")
    head, items = site.chats.read(chat_id)
    if kind == "md":
        text = site.hide_paths(markdown(head, items))
    elif kind == "json":
        data = {"id": chat_id, **head.data(), "items": [item.as_dict() for item in items]}
        text = json.dumps(site.hide_paths(data), ensure_ascii=False, indent=2, default=str)
    else:
        lines = [_line(item) for item in items if not getattr(item, "superseded", False)]
        text = site.hide_paths(site.render("chats/export.html", head=head, lines=lines))
    name = quote(f"{_file_name(head.title)}.{kind}", safe="")
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
        "content-security-policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
        "cache-control": "private, no-store",
    }
    return Response(utf8(text), headers=headers, media_type=_EXPORTS[kind])


def _file_name(title: str) -> str:
    return re.sub(r"[^\w.-]+", "-", visible(title))[:60].strip("-.") or "chat"


@dataclass(frozen=True, slots=True)
class ExportedLine:
    """One item of an exported chat: who or what it is by, its words, and the text that belongs to it."""

    kind: str
    heading: str
    text: str
    output: str = ""


def _line(item: Item) -> ExportedLine:
    if isinstance(item, UserItem):
        return ExportedLine("user", "You", item.text)
    if isinstance(item, TextItem):
        return ExportedLine("answer", "Answer", item.text)
    if isinstance(item, FileItem):
        return ExportedLine("file", "File", f"{item.name}, {item.size:,} bytes")
    if isinstance(item, ToolItem):
        what = " ".join(filter(None, (item.role or item.tool, item.skill, item.path)))
        shown = "".join(filter(None, (item.stdout, item.stderr)))
        return ExportedLine("tool", what, item.state, shown[:OUTPUT_CHARACTERS])
    text = item.text if isinstance(item, NoticeItem) else item.message if isinstance(item, ErrorItem) else ""
    return ExportedLine("note", item.type, text)


def markdown(head: Head, items: Sequence[Item]) -> str:
    """A chat as Markdown. Output of scripts is in fences that it cannot close."""
    return "\n\n".join(_paragraphs(head, items)) + "\n"


def _paragraphs(head: Head, items: Sequence[Item]) -> Iterator[str]:
    yield f"# {visible(head.title) or 'Chat'}"
    yield f"{clock(head.created_ms)}{f', {visible(head.model)}' if head.model else ''}"
    for item in items:
        if getattr(item, "superseded", False):
            continue
        line = _line(item)
        if line.kind in ("user", "answer"):
            yield f"## {line.heading}"
            yield visible(line.text, lines=True)
        elif line.text:
            yield f"> {visible(line.heading)}: {visible(line.text)}"
        if line.output:
            yield fenced(visible(line.output, lines=True).rstrip())
