"""Paths and skill:// URLs that try to leave the folder of a skill, through Python, JSON-RPC, MCP and HTTP."""

import os
import random
import urllib.parse
from collections.abc import Callable
from typing import Any

from metier.errors import MetierError
from metier.hosts import profiles

from .boxes import as_user
from .place import Place, home_roots, lines, web
from .rounds import Round

_STEPS = (
    *("..", "..", "..", ".", "", "references", "references", "link", "folder", "up", "deep", "chain", "loop", "a.md"),
    *("SKILL.md", "%2e%2e", "%2E.", "..%2f", "%252e%252e", "..;", "...", "....", ".. ", "..\\", "..%5c", "\u2025"),
    *("\uff0e\uff0e", "\u2024\u2024", "%c0%ae%c0%ae", "..\0", "%00", "~", "~root", "C:", "\\\\?\\", "fd", "self"),
    *("\u202e..", "..\u200b", "x" * 255, "x" * 300, "environ", "pipe", "proc", "\ud800", "notes", "other", "*", "?"),
)


def make(round_: Round, profile: str = "standard") -> Place:
    """A skill with links of every kind out of it, and secrets in all the places they lead to."""
    place = Place(round_)
    root = home_roots(profile)[0]
    skill = place.skill(f"~/{root}/notes", files={"references/a.md": "the reference\n", "scripts/x.sh": "x"})
    place.skill(f"~/{root}/other", files={"a.md": "nothing to hide\n"})
    (place.home / root / "secret.txt").write_text(round_.token)
    references = skill / "references"
    links = {
        "link": place.secrets[0],
        "folder": place.base / "outside",
        "up": "../../..",
        "deep": "../" * 30 + str(place.secrets[0]),
        "chain": "folder/a.md",
        "loop": "loop",
        "proc": "/proc/self",
        "root": "/",
        "beside": "../secret.txt",
    }
    for folder in (skill, references):
        for name, target in links.items():
            (folder / name).symlink_to(target)
        os.mkfifo(folder / "pipe")
    place.hand_over()
    return place


def path(place: Place, chance: random.Random) -> str:
    """One path. Most have a piece that leads out, and a file with a secret at the end."""
    ends = ["secret.txt", ".ssh/id", "outside/a.md", "a.md", "environ", "link", "beside", "proc/environ", ""]
    secret = str(chance.choice(place.secrets))
    kind = chance.randrange(8)
    if kind == 0:
        text = chance.choice(("", "/", "//", "references/", "./", "file://", "folder/../")) + secret
    elif kind == 1:
        text = "../" * chance.randint(1, 12) + chance.choice(ends)
    elif kind == 2:
        text = os.path.relpath(secret, place.home / ".agents" / "skills" / "notes")
    elif kind == 3:
        text = chance.choice(("proc/environ", "root", "/proc/self/root", "proc/root", "proc/cwd/..")) + secret
    else:
        steps = [chance.choice(_STEPS) for _ in range(chance.randint(1, 8))]
        text = chance.choice(("/", "/", "//", "\\", "%2f")).join([*steps, chance.choice(ends)])
    if chance.random() < 0.25:
        text = urllib.parse.quote(text, safe=chance.choice(("", "/", ".")), errors="surrogatepass")
    if chance.random() < 0.1:
        text = urllib.parse.quote(text, safe="", errors="surrogatepass")
    if chance.random() < 0.02:
        text = "a/../" * 900 + text
    return text


def url(place: Place, chance: random.Random) -> str:
    host = chance.choice(
        (
            "notes",
            "notes",
            "notes",
            "notes/references",
            "..",
            ".",
            "",
            "notes%2f..",
            "notes@x",
            "NOTES",
            "other/../notes",
        )
    )
    return f"{chance.choice(('skill://', 'skill://', 'SKILL://', 'skill:/', 'file://'))}{host}/{path(place, chance)}"


def attack(round_: Round) -> None:
    door = (_python, _rpc, _python, _mcp, _python, _http)[round_.turn % 6]
    profile = (
        round_.chance.choice([name for name in profiles.names() if home_roots(name)]) if door is _python else "standard"
    )
    door(round_, make(round_, profile), profile)


def _python(round_: Round, place: Place, profile: str) -> None:
    """Most of the paths, because a call in this process costs the least."""

    def work() -> tuple[int, list[str]]:
        chance, found, tried = round_.chance, list[str](), 0
        os.chdir(place.project)
        session = place.discover(profile, settings={"enabled": True}).session()
        if not session.read("notes", "references/a.md").text:
            raise AssertionError("the skill cannot be read at all, so nothing is proved")
        tools = [tool.name for tool in session.tools()]
        while round_.goes_on() and not found:
            for _ in range(200):
                wanted, address = path(place, chance), url(place, chance)
                calls: list[tuple[str, Callable[[], Any]]] = [
                    (f"read({wanted!r})", lambda wanted=wanted: session.read("notes", wanted).as_dict()),
                    (f"read({address!r})", lambda address=address: session.read(address, raw=True).as_dict()),
                ]
                for tool in tools:
                    given = {"name": "notes", "path": wanted} if chance.random() < 0.5 else {"name": address}
                    if chance.random() < 0.2:
                        given = {"name": wanted, "path": address}
                    calls.append(
                        (f"{tool}({given!r})", lambda tool=tool, given=given: session.call(tool, given).as_dict())
                    )
                for shown, call in calls:
                    tried += 1
                    try:
                        answer = str(call())
                    except MetierError as error:
                        answer = str(error)
                    if round_.token in answer:
                        found.append(f"{session.profile.name}: {shown}")
        return tried, found

    tried, found = as_user(round_.identity, work)
    round_.tried(tried)
    for one in found:
        round_.escape(f"a secret came back through Python: {one}")


def _rpc(round_: Round, place: Place, profile: str) -> None:
    with lines(place, "rpc") as server:
        session = server.ask("session.create", {})["result"]["session_id"]
        while round_.goes_on():
            params: dict[str, Any] = {"session_id": session, "name": "notes", "path": path(place, round_.chance)}
            if round_.chance.random() < 0.5:
                params = {"session_id": session, "name": url(place, round_.chance)}
            if round_.chance.random() < 0.3:
                params["raw"] = True
            round_.tried()
            if round_.secret_in("JSON-RPC", str(server.ask("session.read", params)), repr(params)):
                return


def _mcp(round_: Round, place: Place, profile: str) -> None:
    with lines(place, "mcp") as server:
        while round_.goes_on():
            address = url(place, round_.chance)
            calls: list[tuple[str, dict[str, Any]]] = [
                ("resources/read", {"uri": address}),
                (
                    "tools/call",
                    {"name": "skill_read", "arguments": {"name": "notes", "path": path(place, round_.chance)}},
                ),
                ("resources/directory/read", {"uri": address}),
                ("skills/get", {"uri": address}),
                ("prompts/get", {"name": address}),
            ]
            method, params = round_.chance.choice(calls)
            round_.tried()
            if round_.secret_in("MCP", str(server.ask(method, params)), repr((method, params))):
                return


def _http(round_: Round, place: Place, profile: str) -> None:
    with web(place) as server:
        session = server.json("POST", "/api/sessions", {})["session_id"]
        while round_.goes_on():
            wanted = path(place, round_.chance)
            quoted = urllib.parse.quote(wanted, safe=round_.chance.choice(("", "/", "/%.")), errors="surrogatepass")
            method, target, body = round_.chance.choice(
                [
                    ("POST", f"/api/sessions/{session}/read", {"name": "notes", "path": wanted}),
                    ("POST", f"/api/sessions/{session}/read", {"name": url(place, round_.chance), "raw": True}),
                    ("GET", f"/skills/{quoted[:3_000]}", None),
                    ("GET", f"/api/skills/{quoted[:3_000]}", None),
                    ("GET", f"/static/{quoted[:3_000]}", None),
                ]
            )
            round_.tried()
            status, content = server.request(method, target, body)
            if round_.secret_in("HTTP", content, repr((method, target, body))):
                return
            if status >= 500:
                round_.escape(f"status {status}: {content[:300]!r}", repr((method, target, body)))
                return
