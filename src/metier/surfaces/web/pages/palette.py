"""The command palette: chats, skills and actions for some words, and the page of shortcuts.

It only finds; what it offers are addresses of pages, and the names of actions that the page carries out.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from metier.files.text import visible
from metier.surfaces.web.endpoints import answer
from metier.surfaces.web.overview import OverviewEntry
from metier.surfaces.web.site import Site, segment

FOUND: Final = 8
"""Chats, and skills, that are offered at once."""

ACTIONS: Final = (
    ("New chat", "/", "begin start conversation"),
    ("All chats", "/chats", "history list search"),
    ("Skills", "/skills", "catalog list"),
    ("Rules", "/rules", "policy permissions allow deny answers revoke explain"),
    ("Usage", "/usage", "tokens context offered loaded"),
    ("Prompt", "/prompt", "system list budget"),
    ("Activity", "/activity", "sessions events record replay"),
    ("Model", "action:model", "provider key openai anthropic ollama settings"),
    ("Light or dark", "action:theme", "theme colour color night"),
    ("Keyboard shortcuts", "/shortcuts", "keys help"),
)


def find(site: Site, request: Request) -> Response:
    words = request.query_params.get("q", "").strip()[:200]
    wanted = words.casefold().split()
    actions = [
        _entry("action", title, "", address)
        for title, address, more in ACTIONS
        if all(word in f"{title} {more}".casefold() for word in wanted)
    ]
    chats = [
        _entry("chat", one.head.title or "New chat", visible(one.snippet), f"/chat/{segment(one.id)}")
        for one in site.search.find(words)[:FOUND]
    ]
    skills = site.skills()
    overview = site.overviews.of(skills)
    entries = overview.entries
    if words:
        page = site.overviews.page(skills, words, "", "", 1)
        entries = [one for one in page.entries if one.key not in page.weak]

    def key(entry: OverviewEntry) -> str:
        return f"?key={entry.key}" if overview.needs_key(entry) else ""

    found = [
        _entry("skill", one.name, visible(one.description)[:160], f"/skills/{segment(one.name)}{key(one)}")
        for one in entries[:FOUND]
        if one.kind != "left-out"
    ]
    listed = [*actions, *chats, *found] if wanted else [*chats[:4], *actions, *found[:4]]
    return answer({"found": site.hide_paths(listed)}, headers={"cache-control": "no-store"})


def _entry(kind: str, title: str, detail: str, address: str) -> dict[str, str]:
    return {"kind": kind, "title": visible(title), "detail": detail, "address": address}


def shortcuts(site: Site, request: Request) -> Response:
    return site.page(request, "shortcuts.html")
