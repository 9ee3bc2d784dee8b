"""What tests of turns share: calls of a model, an app with a model and a runner, and answers to questions."""

from metier.app import App
from metier.running.sandbox import Outcome, Runner
from metier.running.sandbox.fake import FakeRunner
from surfaces.chat.openai_server import ModelServer
from surfaces.chat.serving import Chatting, app_of
from worlds import World

RUN = ("skill_run", {"name": "notes", "script": "scripts/echo.sh", "arguments": ["one"]})
LOAD = ("skill_load", {"name": "notes"})


def printing(text: bytes) -> FakeRunner:
    """A runner that runs nothing, and whose scripts print a text."""
    return FakeRunner(
        default=Outcome(exit_code=0, ended="exit", duration_ms=5, stdout=text, stderr=b"", protections=("fake",))
    )


def app_with(world: World, model: ModelServer, runner: Runner | None, store: str = "memory:") -> App:
    app = app_of(world, store, provider="openai", name="scripted", base_url=model.url)
    app.runner = runner
    return app


def answer(chatting: Chatting, chat: str, ask: str, given: str) -> int:
    """Answer a question; the status of the response."""
    return chatting.http.post(f"/api/chats/{chat}/answers/{ask}", json={"answer": given}).status_code
