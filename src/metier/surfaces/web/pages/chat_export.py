"""A chat as a file: Markdown, JSON, or one HTML page that needs nothing else and runs nothing.

The page has no script, loads nothing, and says so in its own Content-Security-Policy, since it will be opened without
the headers of this server.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from metier.files.text import utf8, visible
from metier.surfaces.chat.chat_store import Head
from metier.surfaces.chat.items import ErrorItem, FileItem, Item, NoticeItem, TextItem, ToolItem, UserItem
from metier.surfaces.web.site import Site, clock

OUTPUT_CHARACTERS: Final = 20_000
"""Characters of one output in Markdown and HTML. JSON has all of them."""

_TYPES: Final = {"md": "text/markdown", "json": "application/json", "html": "text/html"}


def file(site: Site, request: Request) -> Response:
    chat_id, kind = request.path_params["chat_id"], request.path_params["kind"]
    if kind not in _TYPES:
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
    return Response(utf8(text), headers=headers, media_type=_TYPES[kind])


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
            longest = max((len(run) for run in re.findall(r"`+", line.output)), default=0)
            fence = "`" * max(3, longest + 1)
            yield f"{fence}\n{visible(line.output, lines=True).rstrip()}\n{fence}"
