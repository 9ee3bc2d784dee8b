"""The system prompts that the model of a chat gets over several turns, also from two servers on one store."""

from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from surfaces.chat.openai_server import ModelServer
from surfaces.chat.serving import app_of, serving
from worlds import World

pytestmark = pytest.mark.system

TOPICS = ("kettles", "anchors", "jewels")
TURNS = ("Kettles?", "Thank you, go on with that.", "Anchors?", "Jewels?")


def crowd(world: World, count: int) -> None:
    for number in range(count):
        description = f"Handles case {number} of an office, with much care and without any hurry at all."
        world.skill(f".agents/skills/a-filler-{number:03}", description=description)
    for topic in TOPICS:
        world.skill(f".agents/skills/z-{topic}", description=f"Knows {topic}.")


def system(model: ModelServer, number: int) -> str:
    """The one system message of a request."""
    (message,) = [one for one in model.requests[number]["messages"] if one["role"] == "system"]
    return message["content"]


def test_a_catalog_that_does_not_fit_only_grows_whichever_server_answers(
    world: World, model: ModelServer, tmp_path: Path
) -> None:
    crowd(world, 60)
    folder = world.home / ".config/metier"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text("[prompt]\nmax_chars = 3000\n")
    with ExitStack() as stack:
        given = {"provider": "openai", "name": "m", "base_url": model.url}
        apps = [app_of(world, f"sqlite://{tmp_path}/trail.db", **given) for _ in range(2)]
        servers = [stack.enter_context(serving(app)) for app in apps]
        chat = servers[0].chat()
        for number, message in enumerate(TURNS):
            servers[number % 2].say(chat, message)
    texts = [system(model, number) for number in range(len(TURNS))]
    assert texts[1] == texts[0]
    for before, after in pairwise(texts):
        assert after.startswith(before[: before.rindex("</skill>")])
    shown = [[f"<name>z-{topic}</name>" in one for topic in TOPICS] for one in texts]
    assert shown == [[True, False, False], [True, False, False], [True, True, False], [True, True, True]]
    assert max(map(len, texts)) < 4_000
