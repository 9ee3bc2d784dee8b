"""The web app with 1,000 chats and a large catalog: first byte, bytes of a page, and search as one types.

The server has run for a minute: the catalog is found. A page is counted with all
that it loads, compressed, as a browser does at its first visit.
"""

import re
import statistics
import time

from starlette.testclient import TestClient

from metier.app import App
from metier.surfaces.chat.chat_store import ChatStore
from metier.surfaces.chat.items import TextItem, UserItem
from metier.surfaces.web.api import build

from ..measure import Row
from ..options import Options, scan_arguments

CHATS = 1_000
MESSAGES = 6
_WORDS = ("report", "invoice", "table", "review", "deploy", "chart", "weather", "holiday")
_PACKED = {"accept-encoding": "gzip"}


def run(options: Options) -> list[Row]:
    size = 10_000
    given = scan_arguments(options.workspace, options.workspace.tree(size).path, cache=True)
    database = f"sqlite://{options.workspace.folder('browser')}/chats.db"
    app = App(**{key: value for key, value in given.items() if key != "env"}, store=database)
    _fill(ChatStore(app.store))
    what = f"{CHATS:,} chats, {size:,} skills"
    rows: list[Row] = []
    typed = [word[: length + 1] for word in _WORDS for length in range(len(word))]
    with TestClient(build(app, watch=False), base_url="http://localhost") as client:
        client.get("/skills?q=warm&part=list")
        for path in ("/", "/chats", "/skills"):
            times = [_ask(client, path)[0] for _ in range(max(options.rounds * 3, 9))]
            rows.append(Row(what, f"first byte of {path}", statistics.median(times), "ms", at_most=20))
            rows.append(
                Row(what, f"page {path} with all that it loads", float(_whole(client, path)), "B", at_most=100_000)
            )
        times = [_ask(client, f"/skills?part=list&q={text}")[0] for text in typed]
        note = f"slowest of {len(typed)} beginnings of words: {max(times):.1f} ms"
        rows.append(Row(what, "search of skills, 95 %", _high(times), "ms", at_most=50, note=note))
    app.close()
    return rows


def _fill(store: ChatStore) -> None:
    if len(store.chats()) >= CHATS:
        return
    for number in range(CHATS):
        chat = store.create()
        store.change(chat, title=f"{_WORDS[number % len(_WORDS)].capitalize()} {number}")
        words = " ".join(_WORDS[(number + at) % len(_WORDS)] for at in range(5))
        for _ in range(MESSAGES):
            store.keep(chat, [UserItem(text=f"{words} {number}"), TextItem(text=f"{words} " * 40, done=True, step=0)])


def _high(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.95)]


def _ask(client: TestClient, address: str) -> tuple[float, int]:
    """Milliseconds of work until the answer begins, of client and server together, and its bytes."""
    began = time.process_time()
    with client.stream("GET", address, headers=_PACKED) as answer:
        took = (time.process_time() - began) * 1e3
        size = sum(len(part) for part in answer.iter_raw())
    assert answer.status_code == 200, address
    return took, size


def _whole(client: TestClient, path: str) -> int:
    """The bytes of a page, and of the scripts, styles and pictures that it names, also indirectly."""
    page = client.get(path, headers=_PACKED).text
    wanted = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page))
    total, seen = _ask(client, path)[1], set[str]()
    while wanted - seen:
        address = (wanted - seen).pop()
        seen.add(address)
        total += _ask(client, address)[1]
        if address.endswith(".js"):
            below = re.findall(r'from "\./([\w-]+\.js)"', client.get(address).text)
            wanted.update(f"{address.rpartition('/')[0]}/{name}" for name in below)
    return total
