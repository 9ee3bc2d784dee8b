"""The chat over HTTP: lists, refusals, the address of the model, and commands as you type."""

import socket
from collections.abc import Iterator

import pytest

from metier import ConfigError
from metier.surfaces.chat.model_choice import configured
from surfaces.chat.serving import Chatting, app_of, serving
from worlds import World

PUBLIC = "93.184.216.34"


@pytest.fixture
def chatting(world: World) -> Iterator[Chatting]:
    world.skill(".agents/skills/release-notes", description="Writes notes about a release.")
    world.skill(".agents/skills/read-csv", description="Reads tables.")
    world.skill(".agents/skills/hidden", description="Not for users.", user_invocable=False)
    with serving(app_of(world)) as made:
        yield made


@pytest.mark.system
def test_chats_are_listed_the_one_used_last_first_and_can_be_hidden(chatting: Chatting) -> None:
    one, two = chatting.chat(), chatting.chat()
    chatting.say(two, "the second")
    chatting.say(one, "the\n  first   " + "x" * 200)
    listed = chatting.http.get("/api/chats").json()["chats"]
    assert [chat["id"] for chat in listed] == [one, two]
    assert listed[0]["title"].startswith("the first x")
    assert len(listed[0]["title"]) == 80
    assert {"id", "title", "created_ms", "updated_ms", "skills", "model"} <= listed[0].keys()
    assert chatting.http.delete(f"/api/chats/{one}").status_code == 204
    assert [chat["id"] for chat in chatting.http.get("/api/chats").json()["chats"]] == [two]
    assert chatting.http.get(f"/api/chats/{one}").status_code == 404
    assert chatting.app.store.read(one), "hidden, not gone"


REFUSED: list[tuple[str, str, object, int]] = [
    ("GET", "/api/chats/nope", None, 404),
    ("DELETE", "/api/chats/nope", None, 404),
    ("POST", "/api/chats/nope/messages", {"text": "hi"}, 404),
    ("POST", "/api/chats/nope/retry", None, 404),
    ("POST", "/api/chats/nope/stop", None, 404),
    ("GET", "/api/chats/nope/stream", None, 404),
    ("POST", "/api/chats/nope/answers/x", {"answer": "no"}, 404),
    ("GET", "/api/chats/%00", None, 404),
    ("POST", "/api/chats/{chat}/messages", {"text": "  "}, 422),
    ("POST", "/api/chats/{chat}/messages", {"text": 5}, 400),
    ("POST", "/api/chats/{chat}/messages", {}, 400),
    ("POST", "/api/chats/{chat}/messages", {"text": "x" * 200_001}, 422),
    ("POST", "/api/chats/{chat}/answers/nope", {"answer": "once"}, 409),
    ("POST", "/api/chats/{chat}/answers/nope", {"answer": "perhaps"}, 400),
    ("PUT", "/api/model", {"provider": "nobody", "model": "x"}, 400),
    ("PUT", "/api/model", {"provider": "openai"}, 422),
    ("PUT", "/api/model", {"provider": "openai", "model": "a\nb"}, 422),
]


@pytest.mark.system
def test_what_cannot_be_done_has_its_status_and_says_why(chatting: Chatting) -> None:
    chat = chatting.chat()
    for method, path, body, status in REFUSED:
        answer = chatting.http.request(method, path.replace("{chat}", chat), json=body)
        assert answer.status_code == status, (path, answer.text)
        assert answer.json()["error"]["message"]


ADDRESSES = {
    "ftp://127.0.0.1/v1": "http",
    "file:///etc/passwd": "http",
    "http://user:pass@127.0.0.1/v1": "without a user name",
    "http://192.168.1.5/v1": "https",
    "http://metadata.internal/v1": "https",
    "http://example.com/v1": "https",
    "https://10.0.0.8/v1": "private network",
    "https://169.254.169.254/latest": "private network",
    "https://[fd00::1]/v1": "private network",
    "https://[::ffff:10.0.0.1]/v1": "private network",
    "https://0.0.0.0/v1": "private network",
    "http://127.0.0.1:99999/v1": "http",
    "https://private.example/v1": "private network",
    "https://public.example/v1": "",
    "http://127.0.0.1:8000/v1": "",
    "http://localhost:8000/v1": "",
    "http://[::1]:8000/v1": "",
}
"""What is said of an address that is refused."""


@pytest.mark.system
def test_a_page_may_name_this_machine_and_public_https_addresses_only(
    chatting: Chatting, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo
    names = {"private.example": "192.168.7.7", "public.example": PUBLIC}

    def known(host: str, port: int, family: int = 0, type: int = 0) -> object:  # noqa: A002 - the name in `socket`
        return real(names.get(host, host), port, family, type)

    monkeypatch.setattr(socket, "getaddrinfo", known)
    before = chatting.http.get("/api/model").json()
    for address, refused in ADDRESSES.items():
        given = {"provider": "openai", "model": "m", "base_url": address, "confirmed": True}
        answer = chatting.http.put("/api/model", json=given)
        if refused:
            assert (answer.status_code, refused in answer.json()["error"]["message"]) == (422, True), address
            assert chatting.http.get("/api/model").json() == before
        else:
            assert (answer.status_code, answer.json()["base_url"]) == (200, address)


@pytest.mark.system
def test_the_configuration_may_name_any_address_and_the_page_may_keep_it(world: World) -> None:
    given = {"provider": "openai", "name": "big", "base_url": "http://models.lan:8000/v1"}
    with serving(app_of(world, **given)) as chatting:
        shown = chatting.http.get("/api/model").json()
        assert (shown["base_url"], shown["model"], shown["offline"]) == (given["base_url"], "big", False)
        kept = chatting.http.put("/api/model", json={"provider": "openai", "model": "small"}).json()
        assert (kept["base_url"], kept["model"]) == (given["base_url"], "small")
        off = chatting.http.put("/api/model", json={"provider": "offline"}).json()
        assert (off["offline"], off["has_key"]) == (True, False)


def test_a_wrong_configuration_is_refused_with_the_key() -> None:
    model = {"provider": "openai", "name": "x"}
    for table, says in (
        ({"provider": "nobody", "name": "x"}, "there is no provider"),
        ({"provider": "openai"}, "needs a name"),
        ({**model, "key": "sk"}, "unknown key model.key"),
        ({**model, "tools": "yes"}, "true or false"),
        ({**model, "timeout": 0}, "number of seconds"),
        ({**model, "base_url": "models.lan"}, "http"),
    ):
        with pytest.raises(ConfigError, match=says):
            configured(table, {})


def test_a_key_of_a_provider_goes_only_to_the_providers_own_address() -> None:
    env = {"OPENAI_API_KEY": "sk-provider", "ANTHROPIC_API_KEY": "ak"}
    openai = {"provider": "openai", "name": "m"}
    elsewhere = {**openai, "base_url": "http://models.lan/v1"}
    assert configured(openai, env).key == "sk-provider"
    assert configured({"provider": "anthropic", "name": "m"}, env).key == "ak"
    assert configured(elsewhere, env).key == ""
    assert configured(elsewhere, {"METIER_MODEL_KEY": "k"}).key == "k"
    assert "sk-provider" not in repr(configured(openai, env))
    assert configured({"provider": "ollama", "name": "qwen3"}, {}).base_url == "http://127.0.0.1:11434/v1"


@pytest.mark.system
def test_commands_begin_with_what_was_typed_and_then_fit_it(chatting: Chatting) -> None:
    def named(typed: str) -> list[str]:
        found = chatting.http.get("/api/commands", params={"q": typed}).json()["commands"]
        return [one["name"] for one in found]

    both = ["read-csv", "release-notes"]
    wanted = {"": both, "/re": both, "rel": both[1:], "tables": both[:1], "zzz": []}
    assert {typed: named(typed) for typed in wanted} == wanted
    first = chatting.http.get("/api/commands", params={"q": "rel"}).json()["commands"][0]
    assert (first["command"], first["description"]) == ("/release-notes", "Writes notes about a release.")
