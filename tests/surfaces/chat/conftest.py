"""Fixtures of the chat: a scripted model server, a skill with a script, and a runner that runs nothing."""

from collections.abc import Iterator

import pytest

from metier.running.sandbox.fake import FakeRunner
from surfaces.chat.openai_server import ModelServer, text
from surfaces.chat.turns import printing
from worlds import World


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(text("Hello.")) as server:
        yield server


@pytest.fixture
def skilled(world: World) -> World:
    world.skill(".agents/skills/notes", files={"scripts/echo.sh": "#!/bin/sh\necho ran\n"})
    return world


@pytest.fixture
def runner() -> FakeRunner:
    return printing(b"ran\n")
