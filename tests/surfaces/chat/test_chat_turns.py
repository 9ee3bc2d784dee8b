"""Turns: questions and answers, stopping, leaving and joining, one turn at a time, and restarts."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import parts
from metier import replay
from metier.app import App
from metier.hosts.schema import RunRules
from metier.record.events import ChatTurnStarted
from metier.record.store import open_store
from metier.running import scripts
from metier.running.sandbox import Job, OnOutput, Outcome
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


# --- questions ---


def test_a_script_runs_after_a_yes_and_the_question_says_what_would_run(
    chatting: Chatting, model: ModelServer, runner: FakeRunner
) -> None:
    model.plays(calls(LOAD, RUN), text("It ran."))
    chat = chatting.chat()
    with chatting.saying(chat, "run it") as shown:
        ask = chatting.waiting(chat)
        assert (ask["tool"], ask["skill"], ask["path"]) == ("skill_run", "notes", "scripts/echo.sh")
        assert ask["digest"].startswith("sha256:")
        assert (ask["command"], "echo ran" in ask["detail"]) == ("scripts/echo.sh one", True)
        assert chatting.read(chat)["status"] == "waiting"
        assert runner.jobs == []
        assert answer(chatting, chat, ask["id"], "once") == 204
    assert kinds(shown) == ["user", "tool", "tool", "ask", "text"]
    run = shown[2]
    assert (run["role"], run["state"], run["exit_code"], run["stdout"]) == ("run", "done", 0, "ran\n")
    assert shown[3]["state"] == "once"
    assert answer(chatting, chat, ask["id"], "once") == 409


def test_once_asks_again_always_does_not_and_no_refuses_with_the_rule(
    chatting: Chatting, model: ModelServer, runner: FakeRunner
) -> None:
    chat = chatting.chat()

    def ran(said: str | None) -> JsonItem:
        model.plays(calls(LOAD, RUN), text("Well."))
        with chatting.saying(chat, "run it") as shown:
            if said is not None:
                assert answer(chatting, chat, chatting.waiting(chat)["id"], said) == 204
        return next(item for item in shown if item.get("role") == "run")

    refused = ran("no")
    assert (refused["state"], refused["code"], refused["rule"]) == ("refused", "ACCESS_DENIED", "the answer was no")
    assert runner.jobs == []
    assert ran("once")["state"] == "done"
    assert ran("always")["state"] == "done"
    assert ran(None)["state"] == "done"
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


def test_a_rule_that_denies_shows_on_the_card(skilled: World, model: ModelServer, runner: FakeRunner) -> None:
    settings = {
        "model": {"provider": "openai", "name": "m", "base_url": model.url},
        "permissions": {"deny": [{"tool": "skill_run", "skill_name": "notes"}]},
    }
    app = App(skilled.project, home=skilled.home, settings=settings, store="memory:")
    app.runner = runner
    model.plays(calls(LOAD, RUN), text("Refused."))
    with serving(app) as chatting:
        shown = chatting.say(chatting.chat(), "run it")
        assert (shown[2]["state"], "deny rule" in shown[2]["rule"]) == ("refused", True)


def test_a_question_nobody_answers_is_a_no(
    chatting: Chatting, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "ASK_SECONDS", 0.1)
    model.plays(calls(LOAD, RUN), text("Nobody there."))
    shown = chatting.say(chatting.chat(), "run it")
    assert [item["state"] for item in shown if item["type"] == "ask"] == ["no"]


def test_a_call_over_http_on_the_session_of_a_chat_is_refused_where_nobody_can_be_asked(
    chatting: Chatting, model: ModelServer
) -> None:
    chat = chatting.chat()
    model.plays(calls(LOAD), text("Loaded."))
    chatting.say(chat, "load it")
    call = {"tool": RUN[0], "args": RUN[1]}
    assert chatting.http.post(f"/api/sessions/{chat}/call", json=call).json()["code"] == "ACCESS_DENIED"


class SteppedRunner(FakeRunner):
    """Prints a line, waits, prints another."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        job.started(())
        assert on_output is not None
        on_output("stdout", b"first\n")
        self.gate.wait()
        on_output("stdout", b"second\n")
        return Outcome(exit_code=0, ended="exit", duration_ms=5, stdout=b"first\nsecond\n")


def test_the_output_of_a_script_shows_while_it_runs(skilled: World, model: ModelServer) -> None:
    runner = SteppedRunner()
    with serving(app_with(skilled, model, runner)) as chatting:
        chat = chatting.chat()
        model.plays(calls(LOAD, RUN), text("It ran."))
        heard = chatting.messages("POST", f"/api/chats/{chat}/messages", {"text": "run it"})
        live: list[str] = []
        for event, item in heard:
            if event == "item" and item["type"] == "ask" and item["state"] == "waiting":
                assert answer(chatting, chat, item["id"], "once") == 204
            if event == "item" and item.get("role") == "run":
                live.append(item["stdout"])
                if item["stdout"] == "first\n":
                    runner.gate.set()
        assert "first\n" in live
        assert live[-1] == "first\nsecond\n"


@pytest.fixture
def sandboxed() -> None:
    sandbox = scripts.default_runner(RunRules())
    if sandbox is None or sandbox.problem() is not None:
        parts.missing("bwrap", "no sandbox works here")


@pytest.mark.usefixtures("sandboxed")
def test_a_script_really_runs_in_the_sandbox(skilled: World, model: ModelServer) -> None:
    with serving(app_with(skilled, model, None)) as chatting:
        chat = chatting.chat()
        model.plays(calls(LOAD, RUN), text("It ran."))
        with chatting.saying(chat, "run it") as shown:
            answer(chatting, chat, chatting.waiting(chat)["id"], "once")
        assert (shown[2]["exit_code"], shown[2]["stdout"]) == (0, "ran\n")


@pytest.mark.usefixtures("sandboxed")
def test_stop_ends_a_script_that_runs(world: World, model: ModelServer) -> None:
    world.skill(".agents/skills/notes", files={"scripts/echo.sh": "#!/bin/sh\necho begun\nsleep 600\n"})
    with serving(app_with(world, model, None)) as chatting:
        chat = chatting.chat()
        model.plays(calls(LOAD, RUN), text("Never said."))
        for event, item in chatting.messages("POST", f"/api/chats/{chat}/messages", {"text": "run it"}):
            if event == "item" and item["type"] == "ask" and item["state"] == "waiting":
                answer(chatting, chat, item["id"], "once")
            if event == "item" and item.get("stdout") == "begun\n" and item["state"] == "running":
                chatting.http.post(f"/api/chats/{chat}/stop")
        assert [item["state"] for item in chatting.items(chat, "tool")] == ["done", "failed"]
        stopped = chatting.items(chat, "tool")[1]
        assert (stopped["stdout"], stopped["code"]) == ("begun\n", "STOPPED")
        model.plays(text("Free again."))
        assert chatting.say(chat, "and now?")[-1]["text"] == "Free again."
        failed = [frame for frame in chatting.app.store.read(chat) if frame["type"] == "tool_failed"]
        assert [frame["reason"] for frame in failed] == ["stopped"]


def test_the_session_of_a_chat_can_be_run_again_from_its_record(
    chatting: Chatting, model: ModelServer, tmp_path: Path
) -> None:
    chat = chatting.chat()
    model.plays(calls(LOAD, RUN, ("made_up", {})), text("It ran."))
    with chatting.saying(chat, "run it"):
        answer(chatting, chat, chatting.waiting(chat)["id"], "once")
    chatting.http.put("/api/model", json={"provider": "openai", "model": "other", "tools": False})
    chatting.say(chat, "/notes again")
    store = chatting.app.store
    done = replay.replay(replay.from_store(store, chat))
    assert (done.differences, len(done.frames) > 10) == ([], True)
    file = tmp_path / "chat.jsonl"
    file.write_text("\n".join(store.export_lines(chat)))
    assert replay.replay(replay.from_file(str(file))).identical


# --- stop, leave, join ---


def test_stop_ends_the_answer_and_keeps_what_there_is(chatting: Chatting, model: ModelServer) -> None:
    chat = chatting.chat()
    model.plays(held(threading.Event(), "The beginning"))
    with chatting.saying(chat, "go on") as shown:
        until(lambda: len(model.requests) == 1)
        until(lambda: chatting.items(chat, "user"))
        assert chatting.http.post(f"/api/chats/{chat}/stop").status_code == 204
    assert shown[-1] == {**shown[-1], "type": "notice", "text": "Stopped."}
    assert chatting.read(chat)["status"] == "idle"
    model.plays(text("A new one."))
    assert chatting.say(chat, "something else")[-1]["text"] == "A new one."


def test_stop_answers_an_open_question_with_no(chatting: Chatting, model: ModelServer, runner: FakeRunner) -> None:
    chat = chatting.chat()
    model.plays(calls(LOAD, RUN), text("Never said."))
    with chatting.saying(chat, "run it") as shown:
        chatting.waiting(chat)
        chatting.http.post(f"/api/chats/{chat}/stop")
    states = {item["type"]: item["state"] for item in shown if item["type"] in ("ask", "tool")}
    assert states == {"ask": "no", "tool": "failed"}
    assert runner.jobs == []
    model.plays(text("Fine."))
    chatting.say(chat, "never mind")
    roles = [one["role"] for one in model.messages()]
    assert roles == ["user", "assistant", "tool", "tool", "user"]


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
    model.plays(calls(LOAD), text("One."))
    chatting.say(chat, "go")
    model.plays(text("Two."))
    chatting.retry(chat)
    assert [(item["text"], item.get("superseded")) for item in chatting.items(chat, "text")] == [
        ("One.", True),
        ("Two.", None),
    ]
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
    told = model.messages()
    assert [one["role"] for one in told] == ["user", "assistant", "user"]
    assert "the beginning" in told[0]["content"]
    assert "# " in told[0]["content"], "the instructions of the loaded skill are there still"
    assert told[2]["content"] == "without"
    assert [item["text"] for item in chatting.items(chat, "text")] == ["Zero.", "One.", "Two."], "nothing is lost"
    wrong = chatting.http.post(f"/api/chats/{chat}/messages", json=sent)
    assert wrong.status_code == 422, "it is set aside already"


def test_retry_of_an_empty_chat_says_that_there_is_nothing(chatting: Chatting) -> None:
    assert chatting.retry(chatting.chat())[-1]["message"] == "There is no message to answer."


# --- restarts ---


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
