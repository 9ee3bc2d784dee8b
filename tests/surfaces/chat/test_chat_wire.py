"""The chat with a model server that uses OpenAI's wire protocol: the requests it gets, and its answers."""

import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from metier import Skills
from metier.app import App
from metier.surfaces.chat import turn
from surfaces.chat.openai_server import JsonObject, ModelServer, Reply, calls, chunk, cut, held, raw, status, text
from surfaces.chat.serving import Chatting, app_of, kinds, serving
from worlds import World

pytestmark = pytest.mark.system

BODY = "# Steps\n\nBODY-MARKER: do this first.\n"
KEY = "sk-test-0123456789-SECRET"


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(text("Hello", " there.")) as server:
        yield server


@pytest.fixture
def skilled(world: World) -> World:
    world.skill(".agents/skills/notes", body=BODY, files={"references/a.md": "REFERENCE-MARKER"})
    return world


def with_model(
    world: World, model: ModelServer, *, store: str = "memory:", profile: str | None = None, **given: object
) -> AbstractContextManager[Chatting]:
    return serving(app_of(world, store, profile, provider="openai", name="scripted", base_url=model.url, **given))


@pytest.fixture
def chatting(skilled: World, model: ModelServer) -> Iterator[Chatting]:
    with with_model(skilled, model) as made:
        yield made


def test_an_answer_comes_in_pieces_and_is_kept_whole(chatting: Chatting) -> None:
    chat = chatting.chat()
    heard = list(chatting.messages("POST", f"/api/chats/{chat}/messages", {"text": "Hi"}))
    assert [event for event, _ in heard[:3]] == ["item", "item", "delta"]
    assert (heard[1][1]["text"], heard[1][1]["done"]) == ("Hello", False)
    shown = chatting.read(chat)
    assert [(one["type"], one["text"]) for one in shown["items"]] == [("user", "Hi"), ("text", "Hello there.")]
    assert (shown["title"], shown["model"], shown["status"]) == ("Hi", "openai:scripted", "idle")


def test_a_skill_is_loaded_and_its_resource_read_with_cards_and_the_results_go_back(
    chatting: Chatting, model: ModelServer
) -> None:
    model.plays(
        calls(("skill_load", {"name": "notes"}), say="Let me look."),
        calls(("skill_read", {"name": "notes", "path": "references/a.md"})),
        text("Done."),
    )
    shown = chatting.say(chatting.chat(), "take notes")
    assert kinds(shown) == ["user", "text", "tool", "tool", "text"]
    load, read = shown[2], shown[3]
    assert (load["role"], load["skill"], load["state"], load["truncated"]) == ("load", "notes", "done", False)
    assert "BODY-MARKER" in load["text"]
    assert (read["role"], read["path"], read["text"]) == ("read", "references/a.md", "REFERENCE-MARKER")
    told = model.messages()
    assert [one["role"] for one in told] == ["user", "assistant", "tool", "assistant", "tool"]
    assert told[1]["content"] == "Let me look."
    assert told[3]["content"] == "", "some servers refuse null, and some that there is none"
    assert told[2]["content"] == load["text"]
    assert told[4]["content"] == "REFERENCE-MARKER"
    assert {"skill_load", "skill_search", "skill_read"} <= set(model.tools(0))


def test_the_events_of_the_session_are_those_of_the_plain_library(
    skilled: World, chatting: Chatting, model: ModelServer
) -> None:
    load, read = ("skill_load", {"name": "notes"}), ("skill_read", {"name": "notes", "path": "references/a.md"})
    model.plays(calls(load, read, ("skill_load", {"name": "nope"})), text("Done."))
    chat = chatting.chat()
    chatting.say(chat, "take notes")
    there = chatting.http.get(f"/api/sessions/{chat}/events").json()
    session = Skills.discover(skilled.project, home=skilled.home).session(approve=lambda _: "no")
    session.invoke("take notes")
    for tool, arguments in (load, read, ("skill_load", {"name": "nope"})):
        session.call(tool, arguments)
    ids = {"id", "session_id", "stream_id", "op", "life", "chain", "process"}
    own = {*ids, "timestamp_ms", "surface", "snapshot", "roots", "policy"}

    def plain(frames: list[JsonObject]) -> list[JsonObject]:
        return [{key: value for key, value in frame.items() if key not in own} for frame in frames]

    assert plain(there) == plain(session.events)
    trail = chatting.app.store.read(chat)
    assert {frame["stream_kind"] for frame in trail} == {"session", "chat", "offers"}


def test_a_models_mistakes_are_failed_cards_and_go_back_to_it(chatting: Chatting, model: ModelServer) -> None:
    mistakes: list[tuple[tuple[str, object], str, str]] = [
        (("made_up", {}), "INVALID_PARAM", "there is no tool 'made_up'"),
        (("skill_load", '{"name": "no'), "INVALID_PARAM", "must be a JSON object"),
        (("skill_load", "[1]"), "INVALID_PARAM", "must be a JSON object"),
        (("skill_load", {"name": "nope"}), "NOT_FOUND", "there is no skill 'nope'"),
    ]
    model.plays(calls(*(call for call, _, _ in mistakes)), text("I see."))
    _, *cards, answer = chatting.say(chatting.chat(), "go")
    assert answer["text"] == "I see."
    asked, *results = model.messages()[-5:]
    for card, result, call, (_, code, says) in zip(cards, results, asked["tool_calls"], mistakes, strict=True):
        assert (card["state"], card["code"]) == ("failed", code)
        assert says in card["text"]
        assert (result["role"], says in result["content"]) == ("tool", True)
        json.loads(call["function"]["arguments"])


def test_calls_and_words_without_end_are_cut_and_can_be_tried_again(
    chatting: Chatting, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "ROUNDS", 3)
    monkeypatch.setattr(turn, "CALLS", 2)
    monkeypatch.setattr(turn, "CHARACTERS", 1_000)
    search = ("skill_search", {"query": "notes"})
    model.plays(calls(search))
    chat = chatting.chat()
    shown = chatting.say(chat, "go")
    assert kinds(shown) == ["user", "tool", "tool", "tool", "error"]
    assert "without an answer" in shown[-1]["message"]
    model.plays(text("Now I am done."))
    assert chatting.retry(chat)[-1]["text"] == "Now I am done."
    model.plays(calls(search, search, search), text("Fine."))
    shown = chatting.say(chatting.chat(), "go")
    assert [item["code"] for item in shown if item["type"] == "tool"] == [None, None, "TOO_MANY"]
    model.plays(text(*["many words "] * 1_000))
    shown = chatting.say(chatting.chat(), "go on and on")
    assert kinds(shown) == ["user", "text", "error"]
    assert len(shown[1]["text"]) < 1_100


FAILURES: list[tuple[Reply, str]] = [
    (status(401, "Incorrect API key provided"), "refuses the key"),
    (status(404), "does not know this model"),
    (status(429), "is overloaded"),
    (status(500, "the disk is full"), "It says: the disk is full"),
    (status(302, headers={"location": "http://127.0.0.1:1/v1"}), "not followed"),
    (cut("Half an ans"), "cut off"),
    (raw("data: {no json\n\n", "data: [DONE]\n\n"), "an invalid answer"),
    (text(), "an empty answer"),
]


def test_an_error_of_the_server_is_an_item_and_nothing_is_lost(chatting: Chatting, model: ModelServer) -> None:
    for reply, says in FAILURES:
        chat = chatting.chat()
        model.plays(text("Hello."))
        chatting.say(chat, "first")
        model.plays(calls(("skill_load", {"name": "notes"})), reply)
        shown = chatting.say(chat, "second")
        assert kinds(shown)[:2] == ["user", "tool"]
        assert (shown[-1]["type"], shown[-1]["retry"]) == ("error", True), says
        assert says in shown[-1]["message"]
        model.plays(text("Better now."))
        assert chatting.retry(chat)[-1]["text"] == "Better now."
        told = model.messages()
        assert [one["role"] for one in told] == ["user", "assistant", "user", "assistant", "tool"], says
        assert "BODY-MARKER" in told[-1]["content"]
        kept = [item for item in chatting.items(chat) if not item.get("superseded")]
        assert kinds(kept) == ["user", "text", "user", "tool", "text"], says


def test_a_server_that_falls_silent_or_is_gone_is_given_up_and_its_words_stay(
    skilled: World, model: ModelServer
) -> None:
    model.plays(held(threading.Event(), "The beginning"))
    with with_model(skilled, model, timeout=6) as chatting:
        shown = chatting.say(chatting.chat(), "hello?")
        assert kinds(shown) == ["user", "text", "error"]
        assert (shown[1]["text"], shown[1]["done"], shown[1]["cut"]) == ("The beginning", True, True)
        assert "silent for too long" in shown[2]["message"]
    with serving(app_of(skilled, provider="openai", name="none", base_url="http://127.0.0.1:1/v1")) as chatting:
        assert "failed or was cut off" in chatting.say(chatting.chat(), "hello?")[-1]["message"]


def test_an_answer_that_is_not_whole_says_so(chatting: Chatting, model: ModelServer) -> None:
    for finish, says in (("length", "length limit"), (None, "may have been cut off")):
        model.plays(text("As far as I", finish=finish))
        shown = chatting.say(chatting.chat(), "go")
        assert kinds(shown) == ["user", "text", "notice"]
        assert says in shown[-1]["text"]


def test_the_next_turn_has_the_earlier_ones_with_their_results_and_no_body_twice(
    chatting: Chatting, model: ModelServer
) -> None:
    chat = chatting.chat()
    for words in ("load it", "load it again"):
        model.plays(calls(("skill_load", {"name": "notes"})), text("Loaded."))
        shown = chatting.say(chat, words)
    assert shown[1]["already_loaded"] is True
    assert json.dumps(model.messages()).count("BODY-MARKER") == 1
    roles = ["user", "assistant", "tool", "assistant", "user", "assistant", "tool"]
    assert [one["role"] for one in model.messages()] == roles
    assert "Skills activated in this conversation: notes" in model.system()


def test_the_model_is_told_the_same_after_a_restart(skilled: World, model: ModelServer, tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/chats.db"
    told: list[tuple[str, list[JsonObject]]] = []
    with with_model(skilled, model, store=url) as chatting:
        chat = chatting.chat()
        model.plays(calls(("skill_load", {"name": "notes"}), ("made_up", {}), say="First."), text("Loaded."))
        chatting.say(chat, "load it")
        model.plays(text("Cats."))
        chatting.say(chat, "/notes cats")
        chatting.say(chat, "and?")
        told.append((model.system(), model.messages()))
        before = chatting.read(chat)
    with with_model(skilled, model, store=url) as chatting:
        assert chatting.read(chat) == before
        assert [one["id"] for one in chatting.http.get("/api/chats").json()["chats"]] == [chat]
        chatting.retry(chat)
        told.append((model.system(), model.messages()))
    assert told[0] == told[1]
    system, messages = told[0]
    roles = ["user", "assistant", "tool", "tool", "assistant", "user", "assistant", "user"]
    assert [one["role"] for one in messages] == roles
    assert "Skills activated in this conversation: notes" in system
    assert json.dumps(messages).count("BODY-MARKER") == 2  # once as loaded, once with the command


@pytest.mark.parametrize("profile", [None, "remcochat"])
def test_a_model_without_tools_gets_what_the_user_names_for_that_request_only(
    world: World, model: ModelServer, profile: str | None
) -> None:
    world.skill(".skills/probe" if profile else ".agents/skills/probe", body=BODY)
    with with_model(world, model, profile=profile, tools=False) as chatting:
        chat = chatting.chat()
        assert kinds(chatting.say(chat, "/probe it")) == ["user", "tool", "text"]
        assert model.tools() == []
        assert "BODY-MARKER" in (model.system() if profile else model.messages()[0]["content"])
        chatting.say(chat, "and now?")
        assert "BODY-MARKER" not in model.system()
        assert ("BODY-MARKER" in json.dumps(model.messages())) is not bool(profile)
        assert chatting.read(chat)["skills"] == ["probe"]


def test_every_provider_is_asked_at_its_address_and_its_refusal_is_told(
    skilled: World, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.plays(status(401, "who are you?"))
    for provider in ("openai", "anthropic", "google", "ollama"):
        app = app_of(skilled, provider=provider, name="some-model", base_url=model.url.removesuffix("/v1"))
        with serving(app) as chatting:
            shown = chatting.say(chatting.chat(), "hi")
            assert f"{provider}:some-model refuses the key" in shown[-1]["message"]
            assert "some-model" in model.paths[-1] + json.dumps(model.requests[-1])
            assert "skill_load" in json.dumps(model.requests[-1])
    monkeypatch.delitem(sys.modules, "pydantic_ai.models.google", raising=False)
    monkeypatch.setitem(sys.modules, "google.genai", None)
    with serving(app_of(skilled, provider="google", name="some-model")) as chatting:
        shown = chatting.say(chatting.chat(), "hi")
        assert "pip install 'metier[models]'" in shown[-1]["message"]


def test_odd_chunks_of_a_server_are_understood(chatting: Chatting, model: ModelServer) -> None:
    def piece(arguments: str) -> str:
        call = {"index": 0, "id": "call-1", "function": {"name": "skill_load", "arguments": arguments}}
        return chunk({"tool_calls": [call]})

    repeated = [piece(one) for one in ('{"na', 'me": "no', 'tes"}')]
    empty = 'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[]}\n\n'
    half = chunk({"content": "x"}).replace('"x"', '"\\ud83d"')
    ends = "data: [DONE]\n\n"
    model.plays(
        raw(*repeated, chunk({}, "tool_calls"), ends),
        raw(empty, half, chunk({"content": " fine"}), chunk({}, "stop"), ends),
    )
    chat = chatting.chat()
    shown = chatting.say(chat, "load it")
    assert (shown[1]["tool"], shown[1]["state"], shown[1]["skill"]) == ("skill_load", "done", "notes")
    assert model.messages()[1]["tool_calls"][0]["function"]["name"] == "skill_load"
    assert chatting.items(chat, "text")[0]["text"].endswith(" fine")


def test_a_key_is_sent_to_its_server_and_is_nowhere_else(
    skilled: World, model: ModelServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite://{tmp_path}/chats.db"
    with caplog.at_level(logging.DEBUG), serving(app_of(skilled, url)) as chatting:
        given = {"provider": "openai", "model": "scripted", "base_url": model.url, "api_key": KEY, "confirmed": True}
        answers = [chatting.http.put("/api/model", json=given).text, chatting.http.get("/api/model").text]
        chat = chatting.chat()
        model.plays(text("Hello."), status(401, f"Incorrect API key provided: {KEY}."), status(500, KEY))
        answers += [json.dumps(chatting.say(chat, "hi")) for _ in range(3)]
        answers += [chatting.http.get(path).text for path in (f"/api/chats/{chat}", "/api/chats", "/openapi.json")]
    assert model.headers[0]["authorization"] == f"Bearer {KEY}"
    assert KEY not in "".join(answers)
    assert "[key]" in answers[3]
    assert KEY not in caplog.text
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes(), file


def test_what_policy_redacts_is_not_in_the_record_of_a_chat(skilled: World, model: ModelServer, tmp_path: Path) -> None:
    about = {"provider": "openai", "name": "m", "base_url": model.url}
    settings = {"model": about, "permissions": {"redact": True}}
    app = App(skilled.project, home=skilled.home, settings=settings, store=f"sqlite://{tmp_path}/chats.db")
    model.plays(calls(("skill_load", {"name": "notes"})), text("SAID-BY-MODEL"))
    with serving(app) as chatting:
        assert chatting.say(chatting.chat(), "SAID-BY-USER")[-1]["text"] == "SAID-BY-MODEL"
    data = b"".join(file.read_bytes() for file in tmp_path.rglob("chats.db*"))
    assert b"SAID-BY" not in data
    assert b"BODY-MARKER" not in data


def test_no_body_of_a_skill_is_in_the_record_of_a_chat(chatting: Chatting, model: ModelServer) -> None:
    model.plays(calls(("skill_load", {"name": "notes"})), text("Loaded."))
    chat = chatting.chat()
    chatting.say(chat, "load it")
    chatting.say(chat, "/notes again")
    store = chatting.app.store
    frames = [frame for frame in store.read(chat) if frame["stream_kind"] == "chat"]
    assert {frame["type"] for frame in frames} == {"chat_turn_started", "chat_item", "chat_turn_ended"}
    assert "BODY-MARKER" not in json.dumps(frames)
    assert "BODY-MARKER" not in json.dumps([document.value for _, document in store.states(chat)])
    assert "BODY-MARKER" in json.dumps(chatting.items(chat))
