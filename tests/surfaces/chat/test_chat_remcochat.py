"""RemcoChat in the chat: what its model is sent turn after turn, and what the page shows of it."""

import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from metier.app import App
from metier.surfaces.chat.chat_store import ChatStore
from metier.surfaces.chat.items import ToolItem, UserItem
from surfaces.chat.openai_server import ModelServer, calls, text
from surfaces.chat.serving import Chatting, app_of, serving
from worlds import World

pytestmark = pytest.mark.system

BODY = "# Steps\n\nBODY-MARKER: do this first.\n\n1. Größe prüfen\n"
ACTIVATE = ("skills_activate", {"name": "probe"})
READ = ("skills_readResource", {"name": "probe", "path": "references/a.md"})


@pytest.fixture
def skilled(world: World) -> World:
    world.skill(".skills/probe", description="Probes things.", body=BODY, files={"references/a.md": "REFERENCE-MARKER"})
    world.skill(".skills/brew", description="Brews coffee and tea.")
    world.skill(".agents/skills/zip", description="Packs files into archives.")
    return world


def with_model(world: World, model: ModelServer) -> AbstractContextManager[Chatting]:
    return serving(app_of(world, profile="remcochat", provider="openai", name="scripted", base_url=model.url))


@pytest.fixture
def chatting(skilled: World, model: ModelServer) -> Iterator[Chatting]:
    with with_model(skilled, model) as made:
        yield made


def results(model: ModelServer) -> list[str]:
    return [one["content"] for one in model.messages() if one["role"] == "tool"]


@pytest.mark.behaviour("K-023", "N-100")
def test_the_system_prompt_has_the_same_bytes_turn_after_turn(chatting: Chatting, model: ModelServer) -> None:
    chat = chatting.chat()
    for message in ("brew some tea", "pack the archives, zip them", "thanks"):
        chatting.say(chat, message)
    assert len({model.system(number) for number in range(3)}) == 1
    assert re.findall(r'"name": "(\w+)"', model.system(0)) == ["brew", "probe", "zip"]
    assert len(model.system(0)) < 1_500

    model.plays(calls(ACTIVATE), text("Done."))
    chatting.say(chat, "/probe it")
    model.plays(calls(ACTIVATE), text("Done."))
    for message in ("/probe again", "zip it"):
        chatting.say(chat, message)
    given = [model.system(number) for number in range(4, len(model.requests))]
    assert len(given) == 4
    assert set(given) == {model.system(0) + "\n\nSkills activated in this conversation: probe"}
    assert {json.dumps(one["tools"]) for one in model.requests} == {json.dumps(model.requests[0]["tools"])}


@pytest.mark.behaviour("K-062", "N-105", "N-106")
def test_a_skill_that_a_message_calls_counts_as_activated_once_the_model_has_it(
    chatting: Chatting, model: ModelServer
) -> None:
    chat = chatting.chat()
    model.plays(text("I will not."))
    chatting.say(chat, "/probe it")
    called = 'it\n\nThe user calls the skill "probe" explicitly. Call `skills_activate` for it before you answer.'
    assert model.messages()[0]["content"] == called
    assert "activated" not in model.system()
    assert "probe" not in chips(chatting, chat)
    assert chatting.read(chat)["skills"] == []
    assert chatting.app.session(chat).state()["activated_skill_names"] == ["probe"]
    chatting.retry(chat)
    assert [one["content"] for one in model.messages()] == [called], "once, also when it is tried again"

    model.plays(calls(("skills_activate", {"name": "nothing"})), text("No."))
    chatting.say(chat, "go on")
    assert model.messages()[0]["content"] == called, "the conversation so far stays as it was"
    assert "activated" not in model.system()
    model.plays(calls(ACTIVATE), text("Done."))
    chatting.say(chat, "do it")
    assert model.system().endswith("Skills activated in this conversation: probe")
    assert "BODY-MARKER" not in model.system()
    assert "probe" in chips(chatting, chat)
    assert chatting.read(chat)["skills"] == ["probe"]


def chips(chatting: Chatting, chat: str) -> str:
    """The list of activated skills at the top of the page."""
    found = re.search(r"<ul class=\"chips\".*?</ul>", page(chatting, chat), re.DOTALL)
    assert found
    return found[0]


def page(chatting: Chatting, chat: str) -> str:
    return chatting.http.get(f"/chat/{chat}").text


@pytest.mark.behaviour("K-044", "K-046", "K-050", "K-056", "N-102", "N-103", "N-104")
def test_the_model_reads_json_and_the_page_shows_what_is_in_it(skilled: World, model: ModelServer) -> None:
    (skilled.project / ".skills/probe/nul.bin").write_bytes(b"\0")
    denied: tuple[str, dict[str, object]] = ("skills_readResource", {"name": "zip", "path": "a.md"})
    missing: tuple[str, dict[str, object]] = ("skills_activate", {"name": "nothing"})
    wrong: list[tuple[str, dict[str, object]]] = [
        ("skills_readResource", {"name": "probe", "path": path}) for path in ("nul.bin", "/etc/passwd", "no.md")
    ]
    skilled.configure_user('[permissions]\ndeny = [{ tool = "skill_read", skill_name = "zip" }]\n')
    model.plays(calls(ACTIVATE, READ, missing, *wrong, ("skills_activate", {}), denied), text("Done."))
    with with_model(skilled, model) as chatting:
        chat = chatting.chat()
        chatting.say(chat, "probe it")
        loaded, read, *failed = [json.loads(one) for one in results(model)]
        assert loaded == {
            "name": "probe",
            "frontmatter": {"name": "probe", "description": "Probes things."},
            "body": BODY,
            "truncated": False,
        }
        assert "Größe prüfen" in results(model)[0]
        assert read == {"name": "probe", "path": "references/a.md", "content": "REFERENCE-MARKER", "truncated": False}
        assert [(list(one), list(one["error"])) for one in failed] == [(["error"], ["code", "message"])] * 6
        codes = ["NOT_FOUND", "BINARY_FILE", "ACCESS_DENIED", "NOT_FOUND", "INVALID_PARAM", "ACCESS_DENIED"]
        assert [one["error"]["code"] for one in failed] == codes
        sent = results(model)
        shown = page(chatting, chat)
        model.plays(text("Again."))
        chatting.say(chat, "and?")
        assert results(model) == sent, "a later turn sends the same"
    assert "# Steps\n\nBODY-MARKER: do this first.\n\n1. Größe prüfen\n" in shown
    assert ">REFERENCE-MARKER</pre>" in shown
    for one in failed[:5]:
        assert one["error"]["message"].replace("'", "&#39;") in shown
    for raw in ("frontmatter&#34;", "&#34;body&#34;", "&#34;content&#34;", "&#34;error&#34;", "\\n"):
        assert raw not in shown


@pytest.mark.behaviour("N-103")
def test_a_card_that_was_recorded_before_shows_its_text_as_it_is(chatting: Chatting) -> None:
    """Results were not JSON then. A file that is JSON itself must not be taken apart."""
    chat = chatting.chat()
    kept = '{"content": "INNER", "body": "OTHER"}'
    card = ToolItem(tool="skills.readResource", role="read", args={}, step=0, call="c", state="done", text=kept)
    ChatStore(chatting.app.store).keep(chat, [UserItem(text="read it"), card])
    assert kept.replace('"', "&#34;") in page(chatting, chat)


@pytest.mark.behaviour("K-065", "K-067", "K-072", "N-104")
def test_a_cut_is_seen_by_the_model_and_on_the_card(world: World, model: ModelServer) -> None:
    world.skill(".skills/probe", body="x" * 2_000, files={"references/a.md": "y" * 2_000})
    model.plays(calls(ACTIVATE, READ), text("Done."))
    limits = {"load": {"max_bytes": 1_000}, "resources": {"max_bytes": 1_000}, "enabled": True}
    settings = {**limits, "model": {"provider": "openai", "name": "scripted", "base_url": model.url}}
    app = App(world.project, home=world.home, profile="remcochat", settings=settings, store="memory:")
    with serving(app) as chatting:
        chat = chatting.chat()
        chatting.say(chat, "probe it")
        loaded, read = (json.loads(one) for one in results(model))
        assert (loaded["truncated"], read["truncated"]) == (True, True)
        way = "the user can raise {} in ~/.config/metier/config.toml]"
        assert loaded["body"].endswith(way.format("load.max_bytes"))
        notice = "[truncated: 1000 bytes of references/a.md are left out of 2000; "
        assert read["content"].endswith(notice + way.format("resources.max_bytes"))
        shown = page(chatting, chat)
        assert shown.count(">truncated<") == 2
        assert "bytes of references/a.md are left out of 2000; " in shown


@pytest.mark.behaviour("K-001", "K-002", "N-107")
def test_while_off_the_pages_the_guide_and_the_model_are_told_so(skilled: World, model: ModelServer) -> None:
    app = App(skilled.project, home=skilled.home, profile="remcochat", store="memory:")
    hint = "set app.skills.enabled = true in .metier/config.toml, run `metier trust` and start again"
    with serving(app) as chatting:
        for path in ("/", "/skills", "/prompt"):
            shown = chatting.http.get(path).text
            assert "Skills are switched off in the profile remcochat" in shown, path
            assert hint in shown, path
            assert "rescan" not in shown.lower(), path
            assert "No skills yet" not in shown
        answer = chatting.say(chatting.chat(), "probe it")[-1]["text"]
        assert f"Skills are switched off in the profile remcochat: {hint}." in answer
        chosen = {"provider": "openai", "model": "scripted", "base_url": model.url, "confirmed": True}
        chatting.http.put("/api/model", json=chosen)
        chatting.say(chatting.chat(), "/probe it")
        assert "tools" not in model.requests[-1]
        assert "skill-name" not in model.system()
        assert model.messages()[-1]["content"] == "/probe it"
