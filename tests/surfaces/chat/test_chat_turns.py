"""Turns: questions and answers, stopping, leaving and joining, one turn at a time, and restarts."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import parts
from metier.hosts.schema import RunRules
from metier.record.events import ChatTurnStarted
from metier.record.store import open_store
from metier.running import scripts
from metier.running.sandbox.fake import FakeRunner
from metier.surfaces.chat import chat_store, engine, items, turn
from surfaces.chat.openai_server import ModelServer, calls, held, text
from surfaces.chat.serving import Chatting, JsonItem, kinds, serving, until
from surfaces.chat.turns import LOAD, RUN, answer, app_with
from worlds import World

pytestmark = pytest.mark.system


@pytest.fixture
def chatting(skilled: World, model: ModelServer, runner: FakeRunner) -> Iterator[Chatting]:
    with serving(app_with(skilled, model, runner)) as made:
        yield made


def test_once_asks_again_always_does_not_and_no_refuses_with_the_rule(
    chatting: Chatting, model: ModelServer, runner: FakeRunner
) -> None:
    chat = chatting.chat()

    def ran(said: str | None) -> list[JsonItem]:
        model.plays(calls(LOAD, RUN), text("Well."))
        with chatting.saying(chat, "run it") as shown:
            if said is not None:
                ask, before = chatting.waiting(chat), len(runner.jobs)
                assert (ask["tool"], ask["skill"], ask["path"]) == ("skill_run", "notes", "scripts/echo.sh")
                assert (ask["command"], "echo ran" in ask["detail"]) == ("scripts/echo.sh one", True)
                assert ask["digest"].startswith("sha256:")
                assert (chatting.read(chat)["status"], len(runner.jobs)) == ("waiting", before)
                assert answer(chatting, chat, ask["id"], said) == 204
                assert answer(chatting, chat, ask["id"], said) == 409, "it is over"
        return shown

    _, _, refused, ask, _ = ran("no")
    assert (refused["state"], refused["code"], refused["rule"]) == ("refused", "ACCESS_DENIED", "the answer was no")
    assert (ask["state"], runner.jobs) == ("no", [])
    for said in ("once", "always"):
        _, _, run, ask, _ = ran(said)
        assert (run["role"], run["state"], run["exit_code"], run["stdout"]) == ("run", "done", 0, "ran\n")
        assert ask["state"] == said
    assert kinds(ran(None)) == ["user", "tool", "tool", "text"]
    assert len(runner.jobs) == 3


def test_always_answers_the_same_question_of_every_other_chat_with_one_rule(
    chatting: Chatting, model: ModelServer, runner: FakeRunner, skilled: World
) -> None:
    chats = [chatting.chat() for _ in range(3)]
    with ExitStack() as stack:
        turns: list[list[JsonItem]] = []
        for chat in chats:
            model.plays(calls(LOAD, RUN), text("Well."))
            turns.append(stack.enter_context(chatting.saying(chat, "run it")))
            chatting.waiting(chat)
        assert answer(chatting, chats[0], chatting.waiting(chats[0])["id"], "always") == 204
    for shown in turns:
        assert [item["state"] for item in shown if item["type"] == "ask"] == ["always"]
        assert next(item for item in shown if item.get("role") == "run")["state"] == "done"
    assert len(runner.jobs) == 3
    rules = (skilled.home / ".config/metier/permissions.toml").read_text()
    assert rules.count("[[allow]]") == 1
    model.plays(calls(LOAD, RUN), text("Well."))
    assert "ask" not in kinds(chatting.say(chatting.chat(), "run it")), "nor does a new chat ask"


def test_a_question_nobody_answers_or_nobody_can_be_asked_is_a_no(
    chatting: Chatting, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "ASK_SECONDS", 0.1)
    model.plays(calls(LOAD, RUN), text("Nobody there."))
    chat = chatting.chat()
    shown = chatting.say(chat, "run it")
    assert [item["state"] for item in shown if item["type"] == "ask"] == ["no"]
    call = {"tool": RUN[0], "args": RUN[1]}  # over HTTP
    assert chatting.http.post(f"/api/sessions/{chat}/call", json=call).json()["code"] == "ACCESS_DENIED"


def test_stop_ends_a_script_that_runs(world: World, model: ModelServer) -> None:
    sandbox = scripts.default_runner(RunRules())
    if sandbox is None or sandbox.problem() is not None:
        parts.missing("bwrap", "no sandbox works here")
    world.skill(".agents/skills/notes", files={"scripts/echo.sh": "#!/bin/sh\necho begun\nsleep 600\n"})
    with serving(app_with(world, model, None)) as chatting:
        chat = chatting.chat()
        model.plays(calls(LOAD, RUN), text("Never said."))
        for event, item in chatting.messages("POST", f"/api/chats/{chat}/messages", {"text": "run it"}):
            if event == "item" and item["type"] == "ask" and item["state"] == "waiting":
                answer(chatting, chat, item["id"], "once")
            if event == "item" and item.get("stdout") == "begun\n" and item["state"] == "running":
                chatting.http.post(f"/api/chats/{chat}/stop")
        loaded, stopped = chatting.items(chat, "tool")
        assert (loaded["state"], stopped["state"]) == ("done", "failed")
        assert (stopped["stdout"], stopped["code"]) == ("begun\n", "STOPPED")
        failed = [frame for frame in chatting.app.store.read(chat) if frame["type"] == "tool_failed"]
        assert [frame["reason"] for frame in failed] == ["stopped"]


def test_stop_ends_the_answer_keeps_what_there_is_and_answers_an_open_question_with_no(
    chatting: Chatting, model: ModelServer, runner: FakeRunner
) -> None:
    chat = chatting.chat()
    model.plays(held(threading.Event(), "The beginning"))
    with chatting.saying(chat, "go on") as shown:
        until(lambda: chatting.items(chat, "text"))
        assert chatting.http.post(f"/api/chats/{chat}/stop").status_code == 204
    assert [item["text"] for item in shown] == ["go on", "The beginning", "Stopped."]
    assert chatting.read(chat)["status"] == "idle"
    model.plays(calls(LOAD, RUN), text("Never said."))
    chat = chatting.chat()
    with chatting.saying(chat, "run it") as shown:
        chatting.waiting(chat)
        chatting.http.post(f"/api/chats/{chat}/stop")
    states = {item["type"]: item["state"] for item in shown if item["type"] in ("ask", "tool")}
    assert states == {"ask": "no", "tool": "failed"}
    assert runner.jobs == []
    model.plays(text("Fine."))
    chatting.say(chat, "never mind")
    assert [one["role"] for one in model.messages()] == ["user", "assistant", "tool", "tool", "user"]


def test_a_turn_goes_on_when_nobody_watches_and_can_be_joined(chatting: Chatting, model: ModelServer) -> None:
    chat, gate = chatting.chat(), threading.Event()
    model.plays(held(gate, "The beginning, "))
    heard = chatting.messages("POST", f"/api/chats/{chat}/messages", {"text": "go on"})
    for event, item in heard:
        if event == "item" and item["type"] == "text":
            break
    heard.close()
    assert chatting.read(chat)["status"] == "running"
    joined = chatting.messages("GET", f"/api/chats/{chat}/stream")
    shown: dict[str, JsonItem] = {}
    for event, data in joined:
        if event == "item":
            shown[data["id"]] = data
            gate.set()
        elif event == "delta":
            shown[data["id"]]["text"] += data["text"]
    assert [item["text"] for item in shown.values()] == ["go on", "The beginning, the end"]
    assert [event for event, _ in chatting.messages("GET", f"/api/chats/{chat}/stream")][-1] == "end"


def test_one_turn_at_a_time_and_a_bounded_number_of_them(
    chatting: Chatting, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "TURNS", 1)
    chat, other, gate = chatting.chat(), chatting.chat(), threading.Event()
    model.plays(held(gate, "wait"))
    with chatting.saying(chat, "go on"):
        until(lambda: chatting.read(chat)["status"] == "running")
        monkeypatch.setattr(engine, "TURNS", 2)
        second = chatting.http.post(f"/api/chats/{chat}/messages", json={"text": "me too"})
        assert (second.status_code, second.json()["error"]["code"]) == (409, "CONFLICT")
        assert chatting.http.delete(f"/api/chats/{chat}").status_code == 409
        monkeypatch.setattr(engine, "TURNS", 1)
        busy = chatting.http.post(f"/api/chats/{other}/messages", json={"text": "me too"})
        assert (busy.status_code, busy.json()["error"]["code"]) == (503, "BUSY")
        gate.set()


def test_retry_after_a_whole_answer_makes_another_one(chatting: Chatting, model: ModelServer) -> None:
    chat = chatting.chat()
    assert chatting.retry(chat)[-1]["message"] == "There is no message to answer."
    model.plays(calls(LOAD), text("One."))
    chatting.say(chat, "go")
    model.plays(text("Two."))
    chatting.retry(chat)
    texts = [(item["text"], item.get("superseded")) for item in chatting.items(chat, "text")]
    assert texts == [("One.", True), ("Two.", None)]
    assert [one["role"] for one in model.messages()] == ["user", "assistant", "tool"]


def test_a_message_that_replaces_another_sets_aside_what_followed_and_keeps_the_skills(
    chatting: Chatting, model: ModelServer
) -> None:
    chat = chatting.chat()
    model.plays(text("Zero."))
    chatting.say(chat, "the beginning")
    model.plays(calls(LOAD), text("One."))
    first = chatting.say(chat, "with a typo")[0]
    model.plays(text("Two."))
    sent = {"text": "without", "replaces": first["id"]}
    chatting.stream("POST", f"/api/chats/{chat}/messages", sent)
    beginning, _, last = model.messages()
    assert "the beginning" in beginning["content"]
    assert "# " in beginning["content"], "the instructions of the loaded skill are there still"
    assert (last["role"], last["content"]) == ("user", "without")
    assert [item["text"] for item in chatting.items(chat, "text")] == ["Zero.", "One.", "Two."], "nothing is lost"
    wrong = chatting.http.post(f"/api/chats/{chat}/messages", json=sent)
    assert wrong.status_code == 422, "it is set aside already"


def test_a_server_that_ends_in_the_middle_leaves_a_chat_that_can_go_on(
    skilled: World, model: ModelServer, tmp_path: Path
) -> None:
    url = f"sqlite://{tmp_path}/chats.db"
    model.plays(calls(LOAD), held(threading.Event(), "The beginning"))
    with serving(app_with(skilled, model, None, url)) as chatting:
        chat = chatting.chat()
        heard = chatting.messages("POST", f"/api/chats/{chat}/messages", {"text": "go on"})
        while next(heard)[1].get("text") != "The beginning":
            pass
        heard.close()
    model.plays(text("And the rest."))
    with serving(app_with(skilled, model, None, url)) as chatting:
        shown = chatting.read(chat)
        assert (shown["status"], kinds(shown["items"])) == ("idle", ["user", "tool", "text", "error"])
        assert (shown["items"][2]["text"], shown["skills"]) == ("The beginning", ["notes"])
        assert chatting.retry(chat)[-1]["text"] == "And the rest."


def test_a_process_that_died_blocks_nobody_for_long(
    skilled: World, model: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim expires. Its items are closed, and an error says what happened."""
    url = f"sqlite://{tmp_path}/chats.db"
    with open_store(url) as store:
        dead = chat_store.ChatStore(store)
        chat = dead.create()
        monkeypatch.setattr(chat_store, "LEASE_MS", 0)
        dead.claim(chat, dead.head(chat), ChatTurnStarted("t", "openai", "openai:m", True), "hello")
        card = items.ToolItem(tool="skill_load", role="load", args={}, step=0, call="c")
        dead.keep(chat, [items.UserItem(text="hello"), items.TextItem(step=0), card])
    monkeypatch.undo()
    with serving(app_with(skilled, model, None, url)) as chatting:
        shown = chatting.read(chat)
        assert (shown["status"], kinds(shown["items"])) == ("idle", ["user", "text", "tool", "error"])
        assert (shown["items"][1]["done"], shown["items"][2]["code"]) == (True, "STOPPED")
        assert chatting.say(chat, "go on")[-1]["text"] == "Hello."


def test_a_message_unloads_a_skill_and_the_model_is_told(chatting: Chatting, model: ModelServer) -> None:
    chat = chatting.chat()
    model.plays(calls(LOAD), text("Read."), text("Good."), calls(LOAD), text("Again."))
    chatting.say(chat, "use the notes")
    chatting.say(chat, "/unload notes")
    assert model.messages()[-1]["content"] == "The skill notes is unloaded. Do not follow its instructions any more."
    assert [item["text"] for item in chatting.items(chat, "user")] == ["use the notes", "/unload notes"]
    again = chatting.say(chat, "use them after all")
    assert "already loaded" not in str(model.messages()[-1])
    assert kinds(again) == ["user", "tool", "text"]
    assert "it is not loaded; loaded: notes" in str(chatting.say(chat, "/unload no-such"))
