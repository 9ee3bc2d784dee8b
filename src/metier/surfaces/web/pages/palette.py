"""The command palette: chats, skills and actions for some words, and the page of shortcuts.

It only finds; what it offers are addresses of pages, and the names of actions that the page carries out.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from metier.files.text import visible
from metier.surfaces.web.endpoints import answer
from metier.surfaces.web.site import Site, segment

FOUND: Final = 8
"""Chats, and skills, that are offered at once."""

ACTIONS: Final = (
    ("New chat", "/", "begin start conversation"),
    ("All chats", "/chats", "history list search"),
    ("Skills", "/skills", "catalog list"),
    ("New skill", "/edit/new", "create write template author"),
    ("Import a skill", "/edit/new#import", "install archive zip folder"),
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
    edits = site.app.config.profile.policy.edits
    actions = [
        {"kind": "action", "title": title, "detail": "", "address": address}
        for title, address, more in ACTIONS
        if all(word in f"{title} {more}".casefold() for word in wanted) and (edits or "/edit" not in address)
    ]
    chats = [
        {
            "kind": "chat",
            "title": visible(one.head.title or "New chat"),
            "detail": visible(one.snippet),
            "address": f"/chat/{segment(one.id)}",
        }
        for one in site.search.find(words)[:FOUND]
    ]
    skills = site.skills()
    overview = site.overviews.of(skills)
    entries = overview.entries
    if words:
        page = site.overviews.page(skills, words, "", "", 1)
        entries = [one for one in page.entries if one.key not in page.weak]
    found = [
        {
            "kind": "skill",
            "title": visible(one.name),
            "detail": visible(one.description)[:160],
            "address": f"/skills/{segment(one.name)}" + (f"?key={one.key}" if overview.needs_key(one) else ""),
        }
        for one in entries[:FOUND]
        if one.kind != "left-out"
    ]
    listed = [*actions, *chats, *found] if wanted else [*chats[:4], *actions, *found[:4]]
    return answer({"found": site.hide_paths(listed)}, headers={"cache-control": "no-store"})


def shortcuts(site: Site, request: Request) -> Response:
    return site.page(request, "shortcuts.html")
