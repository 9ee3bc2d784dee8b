"""Several servers of one store: a chat is continued, followed, answered and stopped through any of them."""

import contextlib
import json
import queue
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import parts
from metier.app import App
from metier.files.digests import digest_of
from metier.record.store import Draft, Frame
from metier.running.sandbox import Job, OnOutput, Outcome, WrittenFile
from metier.running.sandbox.fake import FakeRunner
from metier.surfaces.web import sse
from patience import PATIENCE
from record.store.server import PostgresServer, programs
from surfaces.chat.openai_server import ModelServer, calls, held, text
from surfaces.chat.serving import Chatting, JsonItem, serving, until
from surfaces.chat.turns import LOAD, RUN, answer, app_with
from worlds import World

pytestmark = pytest.mark.system

"""A heartbeat that no test waits for."""


class Follower:
    """A client that reads a stream of server-sent events in a thread."""

    def __init__(self, chatting: Chatting, path: str) -> None:
        self._messages: queue.Queue[tuple[str, JsonItem]] = queue.Queue()
        self._thread = threading.Thread(target=self._read, args=(chatting, path), daemon=True)
        self._ended = False
        self._thread.start()

    def _read(self, chatting: Chatting, path: str) -> None:
        with contextlib.suppress(httpx2.TransportError):
            for message in chatting.messages("GET", path):
                self._messages.put(message)
            self._ended = True

    def until(self, event: str, words: str = "") -> None:
        """Read messages up to the first of this kind that contains the words."""
        while True:
            name, data = self._messages.get()
            if name == event and words in json.dumps(data, ensure_ascii=False):
                return

    def ended(self) -> bool:
        """Whether the server ended the stream in an orderly way."""
        self._thread.join()
        return self._ended


@pytest.mark.parametrize("path", ["/api/chats/{chat}/stream", "/chat/{chat}/stream"])
def test_a_turn_is_followed_through_another_server_until_that_one_ends(
    skilled: World, model: ModelServer, runner: FakeRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 600.0)  # no test waits for one
    store = f"sqlite://{tmp_path}/chats.db"
    with serving(app_with(skilled, model, runner, store)) as one:
        with serving(app_with(skilled, model, runner, store)) as other:
            chat = one.chat()
            model.plays(calls(LOAD, RUN), text("All of it ran."))
            with one.saying(chat, "run it"):
                ask = one.waiting(chat)
                follower = Follower(other, path.format(chat=chat))
                follower.until("item", "scripts/echo.sh one")
                answer(one, chat, ask["id"], "once")
                follower.until("item", "ran\\n")
                follower.until("item", "All of it ran.")
                follower.until("end")
            if path.startswith("/api"):
                assert follower.ended()
            else:  # a page follows the next turn, too
                model.plays(text("And again."))
                one.say(chat, "once more")
                follower.until("item", "And again.")
                follower.until("end")
        model.plays(calls(LOAD, RUN), text("All of it ran."))
        with one.saying(chat, "run it"):
            ask = one.waiting(chat)
            with serving(app_with(skilled, model, runner, store)) as other:
                client = Chatting(other.app, str(other.http.base_url))  # one that is still open when the server ends
                follower = Follower(client, path.format(chat=chat))
                follower.until("item", ask["id"])
            assert follower.ended()
            client.http.close()
            answer(one, chat, ask["id"], "once")


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite://{tmp_path}/chats.db"
        return
    if not programs():
        parts.missing("postgres")
    with PostgresServer(durable=False) as server:
        yield server.url


def test_a_chat_goes_on_and_is_watched_asked_and_stopped_through_another_server(
    skilled: World, model: ModelServer, runner: FakeRunner, shared: str
) -> None:
    with (
        serving(app_with(skilled, model, runner, shared)) as one,
        serving(app_with(skilled, model, runner, shared)) as other,
    ):
        chat = one.chat()
        model.plays(calls(LOAD), text("Loaded."))
        one.say(chat, "load it")
        assert other.read(chat) == one.read(chat)
        model.plays(calls(LOAD), text("Known."))
        assert other.say(chat, "again")[1]["already_loaded"] is True
        asked = len(model.requests)
        model.plays(calls(RUN), held(threading.Event(), "Now for the"))
        with one.saying(chat, "run it") as shown:
            ask = other.waiting(chat)
            busy = other.http.post(f"/api/chats/{chat}/messages", json={"text": "me too"})
            assert busy.status_code == 409
            watched: list[tuple[str, JsonItem]] = []
            watching = threading.Thread(
                target=lambda: watched.extend(other.messages("GET", f"/api/chats/{chat}/stream"))
            )
            watching.start()
            assert answer(other, chat, ask["id"], "once") == 204
            until(lambda: len(model.requests) == asked + 2)
            assert other.http.post(f"/api/chats/{chat}/stop").status_code == 204
        watching.join()
        assert (len(runner.jobs), shown[-1]["text"]) == (1, "Stopped.")
        last = {data["id"]: data for event, data in watched if event == "item"}
        assert [item["type"] for item in last.values()][-1] == "notice"
        assert watched[-1][0] == "end"


def test_a_card_shows_its_own_call_while_another_process_calls_the_same_tool(
    world: World, model: ModelServer, tmp_path: Path
) -> None:
    """The question stands between the start of a call and its operation: what others do meanwhile comes first."""
    for name in ("hello", "other"):
        files = {"notes.md": f"notes of {name}", "scripts/say.sh": f"#!/bin/sh\necho {name}\n"}
        world.skill(f".agents/skills/{name}", body=f"# {name}", files=files)
    wanted = {"skill_load": {}, "skill_read": {"path": "notes.md"}, "skill_run": {"script": "scripts/say.sh"}}
    about = {"provider": "openai", "name": "scripted", "base_url": model.url}
    settings = {"model": about, "permissions": {"ask": [{"tool": tool} for tool in wanted]}}
    store = f"sqlite://{tmp_path}/chats.db"
    here, elsewhere = (App(world.project, home=world.home, settings=settings, store=store) for _ in range(2))
    runner = MakingRunner()
    here.runner = elsewhere.runner = runner
    with serving(here) as chatting:
        chat = chatting.chat()
        stranger = elsewhere.session(chat, approve=lambda _: "once")
        model.plays(*(calls((tool, {"name": "hello", **more})) for tool, more in wanted.items()), text("Done."))
        printed: list[str] = []
        for event, item in chatting.messages("POST", f"/api/chats/{chat}/messages", {"text": "go"}):
            if event == "item" and item["type"] == "ask" and item["state"] == "waiting":
                assert stranger.call(item["tool"], {"name": "other", **wanted[item["tool"]]}).ok
                assert answer(chatting, chat, item["id"], "once") == 204
            if event == "item" and item.get("role") == "run" and item["stdout"]:
                printed.append(item["stdout"])
                runner.gate.set()
        cards = chatting.items(chat, "tool")
        frames = {frame["seq"]: frame for frame in here.store.read(chat, chat)}
    elsewhere.close()
    load, read, run = cards
    assert (load["already_loaded"], "# hello" in load["text"]) == (False, True)
    assert (read["path"], read["text"]) == ("notes.md", "notes of hello")
    assert [made["path"] for made in run["made"]] == ["hello.txt"]
    assert printed[0] == "I am hello\n", "while it ran"
    assert [frames[card["event_seq"]]["args"]["arguments"]["name"] for card in cards] == ["hello"] * 3


def test_the_card_of_a_called_skill_is_its_own_though_another_process_writes_first(
    world: World, model: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("hello", "other"):
        world.skill(f".agents/skills/{name}", body=f"# {name}")
    here, elsewhere = (app_with(world, model, None, f"sqlite://{tmp_path}/chats.db") for _ in range(2))
    with serving(here) as chatting:
        chat = chatting.chat()
        stranger, append, overtaken = elsewhere.session(chat), here.store.append, list[str]()

        def late(
            session_id: str, kind: str, stream: str, drafts: Iterable[Draft], *more: Any, **named: Any
        ) -> list[Frame]:
            """Let the other process write just before the message's own operation does, once."""
            written = list(drafts)
            if not overtaken and any(draft.data.get("operation") == "invoke" for draft in written):
                overtaken.append(stranger.load("other").skill.name)
            return append(session_id, kind, stream, written, *more, **named)

        monkeypatch.setattr(here.store, "append", late)
        shown = chatting.say(chat, "/hello")
        calls_of = {frame["seq"]: frame["operation"] for frame in here.store.read(chat, chat, ("session_called",))}
    elsewhere.close()
    card = next(item for item in shown if item["type"] == "tool")
    assert overtaken == ["other"]
    assert (card["by"], card["skill"], "# hello" in card["text"]) == ("user", "hello", True)
    assert calls_of[card["event_seq"]] == "invoke"


class MakingRunner(FakeRunner):
    """Prints a line with the skill's name and makes a file of that name. The script of `hello` waits for the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        name = Path(job.skill_dir).name
        job.started(())
        assert on_output is not None
        on_output("stdout", f"I am {name}\n".encode())
        if name == "hello":
            assert self.gate.wait(PATIENCE)
        data = name.encode()
        made = WrittenFile(f"{name}.txt", len(data), digest_of(data), data)
        return Outcome(exit_code=0, ended="exit", duration_ms=5, stdout=f"I am {name}\n".encode(), files=(made,))
