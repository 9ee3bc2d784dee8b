"""A chat that is longer than its model takes goes on: the model gets the newest part, and the page keeps all of it."""

import json
import re
from collections.abc import Iterator

import pytest

from metier import replay
from metier.app import App
from metier.surfaces.chat import history
from metier.surfaces.chat.items import TextItem, ToolItem, UserItem
from surfaces.chat.openai_server import Handler, ModelServer, Reply, calls, status, text
from surfaces.chat.serving import Chatting, kinds, serving
from surfaces.chat.turns import LOAD, RUN, answer, app_with, printing
from worlds import World

REFUSALS = [
    (400, "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."),
    (400, "prompt is too long: 210000 tokens > 200000 maximum"),
    (413, "Request Entity Too Large"),
]


def taking(most: int, reply: Reply, code: int = 400, message: str = REFUSALS[0][1]) -> Reply:
    """The reply of a server that refuses conversations of more characters than its model takes."""

    def answer_or_refuse(handler: Handler) -> None:
        sent = handler.owner.requests[-1]["messages"][1:]  # without the system prompt
        too_long = len(json.dumps(sent)) > most
        if too_long:
            handler.owner.plays(taking(most, reply, code, message))
        (status(code, message) if too_long else reply)(handler)

    return answer_or_refuse


@pytest.fixture
def chatting(skilled: World, model: ModelServer) -> Iterator[Chatting]:
    with serving(app_with(skilled, model, printing(b"line of output\n" * 60_000))) as made:
        yield made


@pytest.mark.system
@pytest.mark.parametrize(("code", "message"), REFUSALS)
def test_a_chat_that_is_too_long_goes_on_with_its_newest_part(
    chatting: Chatting, model: ModelServer, code: int, message: str
) -> None:
    chat = chatting.chat()
    for number in range(6):
        model.plays(text(f"Answer {number}."))
        chatting.say(chat, f"Message {number} " + "word " * 800)
    model.plays(taking(14_000, text("It fits."), code, message))
    shown = chatting.say(chat, "Message 6")
    assert [item["text"] for item in shown[1:]] == [history.SHORTENED, "It fits."]
    sent = json.dumps(model.messages())
    for words, there in {"Message 6": True, "Message 5": True, "Message 0": False, "left out": True}.items():
        assert (words in sent) is there, words
    kept = [item["text"] for item in chatting.items(chat, "user")]
    assert [one.split()[1] for one in kept] == list("0123456"), "the page has all of it"

    asked = len(model.requests)
    model.plays(taking(14_000, text("Again."), code, message))
    assert kinds(chatting.say(chat, "Message 7")) == ["user", "text"]
    assert len(model.requests) == asked + 1, "what the model takes is known now"


@pytest.mark.system
def test_a_result_that_is_too_large_is_left_out_for_the_model_and_whole_on_the_page(
    chatting: Chatting, model: ModelServer
) -> None:
    chat = chatting.chat()
    model.plays(calls(LOAD, RUN), taking(100_000, text("It is long.")))
    with chatting.saying(chat, "run it") as shown:
        assert answer(chatting, chat, chatting.waiting(chat)["id"], "once") == 204
    assert shown[-1]["text"] == "It is long."
    loaded, result = (one["content"] for one in model.messages() if one["role"] == "tool")
    assert "left out" not in loaded, "what is large takes nothing from the others"
    assert re.match(r"\[left out: [\d,]+ characters; `skill_output` reads parts of them", result)
    (ref,) = re.findall(r'by the ref "([^"]+)"\]$', result)
    model.plays(calls(("skill_output", {"ref": ref, "start": 59_999})), text("I saw the end."))
    rest = next(item for item in chatting.say(chat, "and the end?") if item.get("role") == "output")
    assert (rest["state"], rest["text"].count("line of output")) == ("done", 2)
    assert replay.replay(replay.from_store(chatting.app.store, chat)).differences == []
    card = next(item for item in chatting.read(chat)["items"] if item.get("role") == "run")
    assert card["stdout"].count("line of output") == 60_000


LONG = "line of text\n" * 60_000
READS = {
    "remcochat": (".skills", "skills_readResource", "skills_activate"),
    "standard": (".agents/skills", "skill_read", "skill_load"),
}


@pytest.mark.system
@pytest.mark.parametrize("profile", READS)
def test_the_limits_of_the_profile_hold_and_every_result_is_whole(
    world: World, model: ModelServer, profile: str
) -> None:
    root, read, load = READS[profile]
    world.skill(f"{root}/big", body=LONG, files={"a.md": "SMALL", "b.md": LONG})
    about = {"provider": "openai", "name": "scripted", "base_url": model.url}
    limits = {"resources.max_bytes": 700_000, "load.max_bytes": 650_000}
    settings = {"model": about, "enabled": True, **limits}
    app = App(world.project, home=world.home, profile=profile, settings=settings, store="memory:")
    wanted = [(load, {"name": "big"}), *((read, {"name": "big", "path": path}) for path in ("a.md", "b.md"))]

    def sent() -> list[str]:
        results = [one["content"] for one in model.messages() if one["role"] == "tool"]
        if profile == "remcochat":
            assert all(isinstance(json.loads(one), dict) for one in results)
            assert not re.search(r"skill-[0-9a-f]{12}", json.dumps(model.messages())), "nothing resolves a ref here"
        return results

    with serving(app) as chatting:
        chat = chatting.chat()
        for call, least in zip(wanted, (600_000, 0, 690_000), strict=True):
            model.plays(calls(call), text("Done."))
            assert chatting.say(chat, "go on")[-1]["text"] == "Done."
            assert len(sent()[-1]) > least
            assert ("[truncated: " in sent()[-1]) == (least > 0)
        model.plays(taking(150_000, text("Shorter.")))
        assert chatting.say(chat, "go on")[-1]["text"] == "Shorter."
        body, small, file = sent()
        assert "SMALL" in small, "what is large takes nothing from the others"
        assert all("left out" in one and len(one) < 200 for one in (body, file))
        assert ("skill_output" in body) == (profile == "standard")


@pytest.mark.system
def test_a_message_that_never_fits_is_refused_and_so_is_what_is_no_matter_of_length(
    chatting: Chatting, model: ModelServer
) -> None:
    chat = chatting.chat()
    model.plays(status(400, "tool names must match a pattern"))
    assert kinds(chatting.say(chat, "hello")) == ["user", "error"]
    assert len(model.requests) == 1
    model.plays(taking(3_000, text("never")))
    shown = chatting.say(chat, "word " * 4_000)
    assert (shown[-1]["type"], "maximum context length" in shown[-1]["message"]) == ("error", True)
    model.plays(text("Fine."))
    assert chatting.say(chat, "a short one")[-1]["text"] == "Fine."


def test_a_result_that_is_shorter_than_its_notice_is_sent() -> None:
    small, large, newest = (
        ToolItem(tool="skill_read", role="read", args={}, state="done", text=text, step=0, call="1")
        for text in (json.dumps({"a": "s" * 62}), "l" * 700, "n" * 600)
    )
    fitted = history.fit([UserItem(text="go"), small, large, newest], 1_000, {})
    assert fitted.results == {small.id: small.text, large.id: history.LEFT_OUT, newest.id: newest.text}


def test_what_fits_is_the_newest_part_in_its_order() -> None:
    items = [
        UserItem(text="first " * 200),
        TextItem(text="old answer", step=0, done=True),
        UserItem(text="second"),
        ToolItem(
            tool="skill_load", role="load", args={}, state="done", text="b" * 900, step=0, call="1", ref="skill-1"
        ),
        ToolItem(tool="skill_run", role="run", args={}, state="done", text="r" * 9_000, step=1, call="2"),
    ]
    whole = history.fit(items, 100_000, {})
    assert (list(whole.items), whole.notice, whole.forgets_skills) == (items, "", False)
    without = history.fit(items, 4_000, {})
    assert without.results[items[4].id] == history.TOO_LARGE.format(characters=9_000)
    assert (without.results[items[3].id], without.forgets_skills) == ("b" * 900, False)
    guessed = history.fit(items, 4_000, {}, guessed=True)
    assert (guessed.results, guessed.shortened) == (whole.results, False)
    small = history.fit(items, 950, {})
    assert list(small.items) == items[2:]
    assert (small.results[items[3].id], small.forgets_skills) == (history.LEFT_OUT, True)
    assert small.notice == "[2 earlier messages of this chat left out to save room]"
