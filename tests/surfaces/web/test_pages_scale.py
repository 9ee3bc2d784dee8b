"""Pages stay small with a thousand chats and thousands of skills: what is sent, and what is asked of the store."""

import re

from starlette.testclient import TestClient

from metier.app import App
from metier.record.events import ChatTurnStarted
from metier.record.store.memory import MemoryStore
from metier.surfaces.chat.chat_store import ChatStore
from metier.surfaces.chat.items import UserItem
from metier.surfaces.chat.known_chats import KnownChats
from metier.surfaces.web.api import build
from surfaces.web.browser import SKILLS
from worlds import World

PACKED = {"accept-encoding": "gzip"}
MOST = 100_000
"""Bytes of a page with its scripts, styles and pictures, as a browser gets them at its first visit."""


def sent(client: TestClient, path: str) -> int:
    with client.stream("GET", path, headers=PACKED) as answer:
        assert answer.status_code == 200, path
        return sum(len(part) for part in answer.iter_raw())


def with_all(client: TestClient, path: str) -> int:
    wanted = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', client.get(path).text))
    names = {name for address in wanted for name in re.findall(r'from "\./([\w-]+\.js)"', client.get(address).text)}
    wanted |= {f"{next(iter(wanted)).rpartition('/')[0]}/{name}" for name in names}
    return sent(client, path) + sum(sent(client, address) for address in wanted)


def test_a_page_is_small_and_a_list_reads_no_chat_again(world: World) -> None:
    for number in range(300):
        world.skill(f"{SKILLS}/skill-{number}", description=f"Does thing {number}. " * 20)
    app = App(world.project, home=world.home, store="memory:", surface="http")
    store = ChatStore(app.store)
    for number in range(1_000):
        made = store.create()
        store.change(made, title=f"A chat with a title of some length, number {number} <b>&amp;")
        store.keep(made, [UserItem(text=f"word{number}")])
    with TestClient(build(app, watch=False), base_url="http://localhost") as client:
        for path in ("/", "/chats", "/skills", "/rules", "/usage", "/shortcuts"):
            assert with_all(client, path) < MOST, path
            assert len(client.get(path).content) < MOST, f"{path} as it is, not compressed"
        real, asked = app.store.read, list[object]()

        def read(*given: object, **named: object) -> object:
            asked.append(given)
            return real(*given, **named)  # type: ignore[arg-type]

        app.store.read = read  # type: ignore[method-assign,assignment]
        for path in ("/chats", "/chats?page=3", "/chats?part=beside"):
            assert sent(client, path) < 30_000, path
        assert asked == []
    app.close()


def test_a_list_shows_what_changed_in_another_process() -> None:
    stored = MemoryStore()
    here, elsewhere = ChatStore(stored), ChatStore(stored)
    ids = [here.create() for _ in range(10)]
    known = KnownChats(here)

    def listed() -> list[str]:
        return [chat_id for chat_id, _ in known.all()]

    assert set(listed()) == set(ids)
    turn = ChatTurnStarted("t", "offline", "offline guide", True)
    head = elsewhere.claim(ids[5], elsewhere.head(ids[5]), turn, "A title")
    assert [chat_id for chat_id, one in known.all() if one.busy and one.title == "A title"] == [ids[5]]
    elsewhere.release(ids[5], head, [], "done")
    assert not dict(known.all())[ids[5]].busy
    elsewhere.change(ids[8], title="Renamed", pinned=True)
    assert (listed()[0], dict(known.all())[ids[8]].title) == (ids[8], "Renamed")
    elsewhere.hide(ids[6])
    assert ids[6] not in listed()
    elsewhere.unhide(ids[6])
    assert ids[6] in listed()
    assert elsewhere.create() in listed()
