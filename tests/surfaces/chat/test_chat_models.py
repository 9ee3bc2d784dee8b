"""The model of a chat: listed, tested and confirmed before it is used, for one chat or all, and kept over restarts."""

import json
from pathlib import Path

import keyring
import pytest
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from metier.surfaces.chat.items import spent_on
from surfaces.chat.openai_server import ModelServer, chunk, raw, status, text
from surfaces.chat.serving import Chatting, app_of, serving
from worlds import World

KEY = "sk-a-key-of-the-tests-0123456789"


class Kept:
    """A keyring that lives as long as the test. The library would offer every subclass of its own to other tests."""

    priority = 5

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.values.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.values[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.values[service, username]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    made = Kept()
    monkeypatch.setattr(keyring, "get_keyring", lambda: made)
    return made


def choose(chatting: Chatting, **given: object) -> tuple[int, dict[str, object]]:
    answer = chatting.http.put("/api/model", json={"provider": "openai", **given})
    return answer.status_code, answer.json()


@pytest.mark.system
def test_a_local_address_is_used_only_after_a_confirmation(world: World, model: ModelServer) -> None:
    given = {"provider": "openai", "model": "scripted", "base_url": model.url, "api_key": KEY}
    with serving(app_of(world)) as chatting:
        for method, path in (("PUT", "/api/model"), ("POST", "/api/model/list"), ("POST", "/api/model/test")):
            answer = chatting.http.request(method, path, json=given)
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "CONFIRM"), path
            assert "on this machine" in answer.json()["error"]["message"]
        assert (model.requests, model.listed) == ([], []), "nothing was sent before somebody confirmed it"
        assert choose(chatting, **given, confirmed=True)[0] == 200
        assert choose(chatting, model="other-model", base_url=model.url)[0] == 200, "the address in use is known"


@pytest.mark.system
def test_models_are_listed_and_tested_with_the_key_of_their_address(world: World, model: ModelServer) -> None:
    with serving(app_of(world)) as chatting:
        given = {"provider": "openai", "base_url": model.url, "confirmed": True, "api_key": KEY}
        listed = chatting.http.post("/api/model/list", json=given)
        assert listed.json() == {"models": ["other-model", "scripted"]}
        assert model.listed[0]["authorization"] == f"Bearer {KEY}"
        tested = chatting.http.post("/api/model/test", json={**given, "model": "scripted"})
        assert tested.json()["message"].startswith("scripted answered in")
        model.plays(status(401, f"wrong key {KEY}"))
        refused = chatting.http.post("/api/model/test", json={**given, "model": "scripted"})
        assert refused.status_code == 422
        assert "refuses the key" in refused.json()["error"]["message"]
        assert KEY not in refused.text
        gone = chatting.http.post("/api/model/list", json={**given, "base_url": "http://127.0.0.1:1/v1"})
        assert "failed or was cut off" in gone.json()["error"]["message"]
        wrong = chatting.http.post("/api/model/list", json={**given, "base_url": model.url.replace("/v1", "/v2")})
        assert "HTTP 404" in wrong.json()["error"]["message"]
        assert chatting.http.get("/api/model").json()["offline"] is True, "asking chooses nothing"


@pytest.mark.system
def test_a_choice_for_one_chat_and_for_all_is_kept_over_a_restart_and_the_key_is_in_the_keyring(
    world: World, model: ModelServer, tmp_path: Path, kept: Kept
) -> None:
    url = f"sqlite://{tmp_path}/chats.db"
    with serving(app_of(world, url)) as chatting, ModelServer(text("Mine.")) as other:
        assert choose(chatting, model="scripted", base_url=model.url, api_key=KEY, confirmed=True)[0] == 200
        own, usual = chatting.chat(), chatting.chat()
        code, chosen = choose(chatting, model="big", base_url=other.url, confirmed=True, chat=own)
        assert (code, chosen["has_key"]) == (200, False), "the key of another address does not follow"
        assert chatting.say(own, "hi")[-1]["text"] == "Mine."
        assert chatting.say(usual, "hi")[-1]["text"] == "Hello."
        assert other.requests[0]["model"] == "big"
        assert KEY not in json.dumps(other.headers)
        with serving(app_of(world, url)) as second:
            assert second.http.get("/api/model").json()["model"] == "scripted", "every server on the store knows it"
            choose(second, model="other-model", base_url=model.url)
        assert chatting.http.get("/api/model").json()["model"] == "other-model"
        choose(chatting, model="scripted", base_url=model.url)
    with serving(app_of(world, url)) as chatting:
        assert chatting.http.get("/api/model").json()["model"] == "scripted"
        assert chatting.http.get("/api/model", params={"chat": own}).json()["model"] == "big"
        assert chatting.say(usual, "again")[-1]["text"] == "Hello."
        assert model.headers[-1]["authorization"] == f"Bearer {KEY}"
    assert list(kept.values.values()) == [KEY]
    for file in (*tmp_path.rglob("*"), *world.home.rglob("*")):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), file
    # The owner configures another model: that one answers.
    with serving(app_of(world, url, provider="openai", name="set", base_url=model.url)) as chatting:
        assert chatting.http.get("/api/model").json()["model"] == "set"


@pytest.mark.system
def test_without_a_keyring_the_key_is_only_in_memory(
    world: World, model: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    monkeypatch.setattr(keyring, "get_keyring", lambda: pytest.importorskip("keyring.backends.null").Keyring())
    url = f"sqlite://{tmp_path}/chats.db"
    with serving(app_of(world, url)) as chatting:
        assert choose(chatting, model="scripted", base_url=model.url, api_key=KEY, confirmed=True)[1]["has_key"]
    with serving(app_of(world, url)) as chatting:
        shown = chatting.http.get("/api/model").json()
        assert (shown["model"], shown["has_key"]) == ("scripted", False)
    for file in (*tmp_path.rglob("*"), *world.home.rglob("*")):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), file


def counted(words: str, sent: int, received: int, name: str) -> str:
    usage = {"prompt_tokens": sent, "completion_tokens": received, "total_tokens": sent + received}
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": name, "choices": [], "usage": usage}
    first = chunk({"role": "assistant", "content": words}).replace('"scripted"', f'"{name}"')
    return first + chunk({}, "stop") + f"data: {json.dumps(body)}\n\n" + "data: [DONE]\n\n"


@pytest.mark.system
def test_tokens_are_counted_where_the_provider_tells_and_priced_where_the_price_is_known(
    world: World, model: ModelServer
) -> None:
    model.plays(raw(counted("One.", 1000, 20, "nobody-knows")), raw(counted("Two.", 2000, 10, "nobody-knows")))
    with serving(app_of(world, provider="openai", name="nobody-knows", base_url=model.url)) as chatting:
        chat = chatting.chat()
        assert chatting.say(chat, "hi")[-1]["spent"] == {"input": 1000, "output": 20, "cost": None}
        chatting.say(chat, "more")
        page = chatting.http.get(f"/chat/{chat}/spent").text
        assert "3,030 tokens" in page
        assert "the price is not known" in page
        assert "1,020 tokens" in chatting.http.get(f"/chat/{chat}", headers={"accept": "text/html"}).text
        model.plays(text("No numbers."))
        assert "spent" not in chatting.say(chat, "hi")[-1]


def test_a_known_model_has_a_price_and_an_unknown_one_none() -> None:
    used = RequestUsage(input_tokens=1_000_000, output_tokens=1000)
    known, unknown = (
        spent_on(ModelResponse(parts=[], usage=used, model_name=name, provider_name="openai"))
        for name in ("gpt-4o", "nobody-knows")
    )
    assert (known.priced, known.words.startswith("1,001,000 tokens · $")) == (True, True)
    assert (unknown.words, (known + unknown).priced) == ("1,001,000 tokens", False)
