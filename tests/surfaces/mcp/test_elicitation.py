"""Clients that show forms are asked what policy wants to have confirmed, on every transport and in both protocols."""

import json
import subprocess
from typing import Any

import anyio
import mcp_types as types
import pytest
from clients import BOTH_ERAS, CONNECTIONS, ask, command, connected, open_app
from mcp import Client
from mcp.shared.exceptions import MCPError

from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from worlds import World

SCRIPT = "#!/bin/sh\necho RAN\n"


@pytest.fixture
def library(world: World) -> World:
    world.skill(".agents/skills/one", body="BODY", files={"a.md": "TEXT", "scripts/x.sh": SCRIPT})
    world.configure_user('[permissions]\nask = [{ tool = "skill_load" }, { tool = "skill_read" }]\n')
    return world


class Person:
    """Answers the forms of a client, in order: with a button, or with Accept and a word in the field."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked = list(answers), list[types.ElicitRequestFormParams]()

    async def __call__(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.asked.append(params)
        answer = self.answers.pop(0)
        if answer in ("accept", "decline", "cancel"):
            return types.ElicitResult(action=answer)
        return types.ElicitResult(action="accept", content={"answer": answer})

    @property
    def questions(self) -> list[str]:
        return [params.message.splitlines()[0] for params in self.asked]


async def load(client: Client) -> bool:
    result = await client.call_tool("skill_load", {"name": "one"})
    return not result.is_error


@pytest.mark.system
@CONNECTIONS
async def test_a_client_that_shows_forms_is_asked_and_its_answer_decides(
    library: World, transport: str, era: str
) -> None:
    person = Person("no", "decline", "once", "no", "decline", "cancel", "once", "always")
    async with connected(library, transport, era, asked=person) as client:
        for why in ("the answer was no", "nobody approved it: the host declined the question"):
            with pytest.raises(MCPError, match=why):
                await client.get_prompt("one", {"arguments": "now"})
        assert "BODY" in str((await client.get_prompt("one")).messages)
        assert [await load(client) for _ in range(6)] == [False, False, False, True, True, True]
    assert person.questions == ["Load the skill one?"] * 8
    answers = library.home / ".config/metier/permissions.toml"
    assert answers.read_text().count("[[allow]]") == 1
    answers.unlink()
    async with connected(library, transport, era) as client:  # it shows no forms
        with pytest.raises(MCPError, match="nobody can be asked here"):
            await client.get_prompt("one")
        (content,) = (await client.call_tool("skill_load", {"name": "one"})).content
        assert isinstance(content, types.TextContent)
        assert "nobody can be asked here" in content.text
        assert 'tool = "skill_load", skill_name = "one"' in content.text


NOTHING = object()
ANSWERED: tuple[tuple[Any, Any, bool], ...] = (
    *(("accept", given, True) for given in (NOTHING, None, "", "once")),
    *(("accept", given, False) for given in ("no", "ALWAYS", "remember", True, False, 0, [], ["always"])),
    *(("decline", given, False) for given in (NOTHING, "always")),
    ("cancel", NOTHING, False),
)


@BOTH_ERAS
async def test_accept_is_the_yes_for_this_time_and_nothing_widens_it(library: World, era: str) -> None:
    given = iter(ANSWERED * 2)

    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        action, answer, _ = next(given)
        return types.ElicitResult(action=action, content=None if answer is NOTHING else {"answer": answer})

    async with connected(library, "memory", era, asked=person) as client:
        for action, answer, runs in ANSWERED * 2:
            assert await load(client) is runs, (action, answer)
    assert next(given, None) is None, "no answer was remembered"
    assert not (library.home / ".config/metier/permissions.toml").exists()


@BOTH_ERAS
async def test_the_form_can_be_accepted_as_it_is_and_says_what_accept_does(library: World, era: str) -> None:
    person = Person("accept", "always")
    async with connected(library, "memory", era, asked=person) as client:
        assert [await load(client) for _ in range(3)] == [True, True, True]
    assert len(person.asked) == 2, "the second answer was for good"
    schema, message = person.asked[0].requested_schema, person.asked[0].message
    assert not schema.get("required")
    assert {name: (field["enum"], field["default"]) for name, field in schema["properties"].items()} == {
        "answer": (["once", "always"], "once")
    }
    assert message.endswith("Accept allows it once, or always if you choose that. Decline is the no.")


@BOTH_ERAS
async def test_resources_prompts_and_operations_ask_too(library: World, era: str) -> None:
    person = Person("once", "no", "once", "once")
    async with connected(library, "memory", era, asked=person) as client:
        (content,) = (await client.read_resource("skill://one/a.md")).contents
        assert isinstance(content, types.TextResourceContents)
        assert content.text == "TEXT"
        with pytest.raises(MCPError, match="the answer was no"):
            await client.read_resource("skill://one/a.md")
        prompt = await client.get_prompt("one", {"arguments": "now"})
        assert "BODY" in str(prompt.messages)
    assert person.questions[:2] == ["Read a.md of the skill one?"] * 2


async def test_an_operation_over_2026_returns_its_questions_and_takes_the_answers(library: World) -> None:
    async with connected(library, "memory", "2026", asked=Person()) as client:
        first = await ask(client, "metier/load", name="one")
        assert first["resultType"] == "input_required"
        (key,) = first["inputRequests"]
        answers = {key: {"action": "accept", "content": {"answer": "once"}}}
        done = await ask(client, "metier/load", name="one", inputResponses=answers)
        assert "BODY" in done["text"]


@BOTH_ERAS
async def test_an_answer_is_for_the_script_that_was_shown(library: World, era: str) -> None:
    script = library.project / ".agents/skills/one/scripts/x.sh"
    runner = FakeRunner(default=Outcome(0, "exit", 1, b"RAN"))
    app = open_app(library)
    app.runner = runner
    call = ("skill_run", {"name": "one", "script": "scripts/x.sh"})

    class Editor(Person):
        async def __call__(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
            said = await super().__call__(context, params)
            if len(self.asked) == 2:
                script.write_text("#!/bin/sh\necho EVIL\n")
            return said

    person = Editor("always", "once", "no")
    async with connected(library, "memory", era, app, asked=person) as client:
        assert await load(client)
        result = await client.call_tool(*call)
        assert result.is_error is (era == "2026")  # the question came back, and was asked once more
    ran = [file.data for job in runner.jobs if job.tree for file in job.tree.files if file.path == job.script]
    assert ran == ([SCRIPT.encode()] if era == "2025" else [])
    shown = person.asked[1].message
    assert "Command scripts/x.sh" in shown
    assert all(f"    | {line}\n" in shown for line in SCRIPT.splitlines())


@pytest.mark.system
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_other_calls_are_answered_while_a_person_thinks(library: World, transport: str) -> None:
    asked, may_answer = anyio.Event(), anyio.Event()
    loaded: list[bool] = []

    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.set()
        await may_answer.wait()
        return types.ElicitResult(action="accept")

    async with connected(library, transport, "2025", asked=person) as client, anyio.create_task_group() as tasks:

        async def loading() -> None:
            loaded.append(await load(client))

        tasks.start_soon(loading)
        await asked.wait()
        assert not (await client.call_tool("skill_search", {"query": "one"})).is_error
        assert loaded == []
        may_answer.set()
    assert loaded == [True]


@pytest.mark.system
def test_a_client_that_leaves_with_an_open_question_ends_the_server(library: World) -> None:
    with subprocess.Popen(command(library), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        hello = {"protocolVersion": "2025-06-18", "clientInfo": {"name": "test", "version": "1"}}
        for message in (
            {"id": 1, "method": "initialize", "params": {**hello, "capabilities": {"elicitation": {}}}},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": {"name": "skill_load", "arguments": {"name": "one"}}},
        ):
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            server.stdin.flush()
        while json.loads(server.stdout.readline()).get("method") != "elicitation/create":
            pass
        server.stdin.close()
        server.stdout.read()
        assert server.wait() == 0
