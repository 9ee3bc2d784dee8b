"""Messages that no client should send, over every door. The process lives, answers each, and the next call works.

And results of any size and form for the model of a chat: each is sent whole or not at all.
"""

import contextlib
import json

from metier.record.store.memory import MemoryStore
from metier.replay import from_store, replay
from metier.surfaces.chat import history
from metier.surfaces.chat.items import Item, ToolItem, UserItem

from . import probes
from .boxes import as_user
from .nasty import Nasty, as_python, http_request, mcp_message, rpc_message
from .place import Lines, Place, lines, tracebacks, web
from .rounds import Round

_INTERNAL = -32603
_BATCH = 10


def make(round_: Round) -> Place:
    place = Place(round_)
    files: dict[str, str | bytes] = {"references/a.md": "the reference", "scripts/say.sh": "#!/bin/sh\necho said\n"}
    place.skill("~/.agents/skills/notes", files=files)
    place.config('[permissions]\nprofile = "full-auto"\n')
    place.hand_over()
    return place


def attack(round_: Round) -> None:
    place = make(round_)
    nasty = Nasty(round_.chance.randrange(1 << 30))
    _chat(round_)
    (_rpc, _mcp, _http, _python)[round_.turn % 4](round_, place, nasty)


def _rpc(round_: Round, place: Place, nasty: Nasty) -> None:
    with lines(place, "rpc") as server:
        session = server.ask("session.create", {})["result"]["session_id"]
        number = 1_000
        while round_.goes_on():
            for _ in range(_BATCH):
                number += 1
                message = rpc_message(nasty, number, session)
                round_.tried()
                server.send(message + b"\n")
                _foreseen(round_, server, message)
            _works(round_, server, "session.load", {"session_id": session, "name": "notes"})
    tracebacks(round_, server.errors, "metier rpc")


def _mcp(round_: Round, place: Place, nasty: Nasty) -> None:
    with lines(place, "mcp") as server:
        number = 1_000
        while round_.goes_on():
            for _ in range(_BATCH):
                number += 1
                message = mcp_message(nasty, number)
                round_.tried()
                server.send(message + b"\n")
                _foreseen(round_, server, message)
            _works(round_, server, "tools/call", {"name": "skill_load", "arguments": {"name": "notes"}})
    tracebacks(round_, server.errors, "metier mcp")


def _chat(round_: Round) -> None:
    """What a chat sends of the results of many turns, for rooms of any size."""
    chance = round_.chance

    def result(number: int) -> ToolItem:
        letters = "".join(chance.choices('ab {}[]":,\\\n\t\u00e9\u202e\U0001f600', k=50))
        content = letters * (int(10 ** chance.uniform(0, 4)) + 1)
        kinds = (content, json.dumps({"a": content, "b": [1]}), json.dumps([content]), "{" + content, f'"{content}"')
        text, ref = chance.choice(kinds), chance.choice(("", "skill-0a1b2c3d4e5f"))
        return ToolItem(
            tool="skill_read", role="read", args={}, state="done", text=text, step=number, call="c", ref=ref
        )

    items: list[Item] = []
    for number in range(chance.randint(1, 8)):
        items += [UserItem(text="go on"), *(result(number) for _ in range(chance.randint(0, 3)))]
    output = chance.choice(("", "skill_output"))
    for _ in range(10):
        room = int(10 ** chance.uniform(2, 6))
        fitted = history.fit(items, room, {}, output=output, guessed=chance.random() < 0.5)
        for item in fitted.items:
            if isinstance(item, ToolItem) and (sent := fitted.results[item.id]) != item.text:
                wrong = ""
                if len(sent) > 500 or item.text[:40] in sent:
                    wrong = "a result was sent in part"
                elif item.text.startswith("{") and _is_json(item.text) and not _is_json(sent):
                    wrong = "the model got JSON that is none"
                elif item.ref and not output and item.ref in sent:
                    wrong = "a ref was named that no tool takes"
                if wrong:
                    round_.escape(f"{wrong}, with room for {room}: {sent[:200]!r}", item.text[:2_000])
        round_.tried()


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _foreseen(round_: Round, server: Lines, message: bytes) -> None:
    """Take the answer to a message, passing over notifications. A batch without calls has none."""
    while True:
        answer = server.receive()
        if isinstance(answer, dict) and "method" in answer:
            continue
        for one in answer if isinstance(answer, list) else [answer]:
            if isinstance(one, dict) and isinstance(error := one.get("error"), dict) and error.get("code") == _INTERNAL:
                round_.escape(f"an error that nobody foresaw: {error}", repr(message[:2_000]))
        return


def _works(round_: Round, server: Lines, method: str, params: object) -> None:
    answer = server.ask(method, params)
    if "error" in answer:
        round_.escape(f"a good call fails after nasty ones: {answer}")


def _http(round_: Round, place: Place, nasty: Nasty) -> None:
    with web(place) as server:
        session = server.json("POST", "/api/sessions", {})["session_id"]
        chat = server.json("POST", "/api/chats", {})["id"]
        while round_.goes_on():
            for _ in range(_BATCH):
                method, path, body = http_request(nasty, session, chat)
                round_.tried()
                with contextlib.suppress(ConnectionError):  # a body that is too long is refused before it was sent
                    status, content = server.request(method, path, body)
                    if status >= 500:
                        round_.escape(f"status {status}: {content[:300]!r}", repr((method, path[:300], body[:2_000])))
            good = {"tool": "skill_load", "args": {"name": "notes"}}
            status, content = server.request("POST", f"/api/sessions/{session}/call", good)
            if status != 200 or b'"ok":true' not in content.replace(b" ", b""):
                round_.escape(f"a good call fails after nasty ones: {status} {content[:300]!r}")
    tracebacks(round_, server.errors, "metier serve")


def _python(round_: Round, place: Place, nasty: Nasty) -> None:
    """Tool calls of a model, with a real sandbox, whose record must replay."""

    def work() -> tuple[int, list[str]]:
        store, tried, wrong = MemoryStore(), 0, list[str]()
        session = place.discover().session(store=store, runner=probes.runner())
        while round_.goes_on() and tried < 400:
            tried += 1
            tool, arguments = nasty.call()
            name = tool if isinstance(tool, str) else nasty.text()
            try:
                result = session.call(name, as_python(arguments))  # type: ignore[arg-type]
                json.dumps(result.as_dict(), ensure_ascii=False).encode()
                if not result.ok and not result.text:
                    wrong.append(f"{name}({str(arguments)[:500]}) is refused without a reason")
            except Exception as error:
                wrong.append(f"{name}({str(arguments)[:500]}) raised {error!r}")
        again = replay(from_store(store, session.id))
        wrong += [f"the record does not replay: {one.detail}" for one in again.differences[:1]]
        return tried, wrong

    tried, wrong = as_user(round_.identity, work)
    round_.tried(tried)
    for one in wrong[:5]:
        round_.escape(one)
