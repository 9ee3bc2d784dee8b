"""What clients do with the server: tools, prompts, completion, a session for each client, and notifications."""

import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import httpx2
import mcp_types as types
import pytest
from clients import BOTH_ERAS, ERAS, EVERYWHERE, HOSTS, all_pages, ask, connected, open_app, serve_http
from mcp import Client
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError

from metier.app import App
from metier.surfaces.mcp.clients import SESSION_KEY
from metier.surfaces.mcp.handlers import RESULT_KEY
from metier.surfaces.mcp.http import http_app
from metier.surfaces.mcp.server import McpServer
from patience import PATIENCE
from worlds import World

SKILLS = ".agents/skills"
Target = McpServer | Transport


@pytest.fixture
def library(world: World) -> World:
    world.skill(f"{SKILLS}/pdf", body="Fill $ARGUMENTS.", files={"references/forms.md": "x", "references/faq.md": "x"})
    world.skill(f"{SKILLS}/pdf-split", argument_hint="[pages]")
    world.skill(f"{SKILLS}/quiet", user_invocable=False)
    return world


def text_of(result: types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


def prompt_text(result: types.GetPromptResult) -> str:
    (message,) = result.messages
    assert isinstance(message.content, types.TextContent)
    return message.content.text


# --- tools and prompts ---


@BOTH_ERAS
@pytest.mark.parametrize("profile", HOSTS)
async def test_tools_and_prompts_are_those_of_the_profile_and_answer_as_its_session_does(
    world: World, era: str, profile: str
) -> None:
    for base in EVERYWHERE:
        world.skill(f"{base}/pdf", body="MARKER")
    app = open_app(world, profile=profile, settings={"enabled": True})
    other = open_app(world, profile=profile, settings={"enabled": True}).session()
    offered = other.offered(wire=True)
    name = offered.get("load") or offered["read"]
    right, wrong = ({"path": "skill://pdf"}, {"path": "skill://nobody"})
    if profile != "omp":
        right, wrong = {"name": "pdf"}, {"name": "nobody"}
    async with connected(world, "memory", era, app) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == [tool.name for tool in other.tools(wire=True)]
        result, expected = await client.call_tool(name, right), other.call(name, right)
        untimed = [re.sub(r'"time_ms": \d+', "", text) for text in (text_of(result), expected.text)]
        assert untimed[0] == untimed[1]
        assert "MARKER" in untimed[0]
        # Claude Code, Codex and OpenCode show a model structured content instead of the text.
        assert result.structured_content is None
        data = (result.meta or {})[RESULT_KEY]
        assert data
        assert "MARKER" not in str(data)
        assert set(data) <= set(expected.as_dict())
        assert not result.is_error
        refused = await client.call_tool(name, wrong)
        assert (refused.is_error, "nobody" in text_of(refused)) == (True, True)
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["pdf"]
        assert "MARKER" in prompt_text(await client.get_prompt("pdf", {"arguments": "x"}))


@pytest.mark.system
async def test_looking_leaves_no_trace(library: World) -> None:
    app = open_app(library)
    async with connected(library, "http", "2026", app) as client:
        for kind in ("skills", "resources", "tools"):
            assert await all_pages(client, f"{kind}/list", kind)
    assert app.store.read() == []


@BOTH_ERAS
async def test_a_prompt_is_the_users_command(library: World, era: str) -> None:
    async with connected(library, "memory", era) as client:
        prompts = (await client.list_prompts()).prompts
        assert [prompt.name for prompt in prompts] == ["pdf", "pdf-split"]
        (argument,) = prompts[1].arguments or []
        assert (argument.name, argument.description, argument.required) == ("arguments", "[pages]", False)
        expected = open_app(library).session().invoke("/pdf a  b.pdf\nand $HOME").loaded
        assert expected is not None
        got = await client.get_prompt("pdf", {"arguments": "a  b.pdf\nand $HOME"})
        assert prompt_text(got) == expected.text
        assert "Fill a  b.pdf\nand $HOME." in expected.text
        assert prompt_text(await client.get_prompt("/pdf-split")).startswith("<skill_content")
        for name in ("quiet", "nobody", ""):
            with pytest.raises(MCPError) as caught:
                await client.get_prompt(name)
            assert caught.value.code == types.INVALID_PARAMS


@BOTH_ERAS
async def test_names_and_files_are_completed(library: World, era: str) -> None:
    template = types.ResourceTemplateReference(uri="skill://{name}/{+path}")
    prompt = types.PromptReference(name="pdf")
    files = ["references/faq.md", "references/forms.md"]
    async with connected(library, "memory", era) as client:
        for ref, name, value, given, expected in (
            (template, "name", "", None, ["pdf", "pdf-split", "quiet"]),
            (template, "name", "pdf-", None, ["pdf-split"]),
            (template, "path", "references/f", {"name": "pdf"}, files),
            (template, "path", "", {"name": "nobody"}, []),
            (prompt, "arguments", "pdf-", None, ["pdf-split"]),
        ):
            found = (await client.complete(ref, {"name": name, "value": value}, given)).completion
            assert (found.values, found.total) == (expected, len(expected))
    for number in range(120):
        library.skill(f"{SKILLS}/s-{number:03}")
    async with connected(library, "memory", era) as client:
        found = (await client.complete(template, {"name": "name", "value": "s-"})).completion
        assert (len(found.values), found.total, found.has_more) == (100, 120, True)


# --- each client for itself ---


@asynccontextmanager
async def serving(app: App, transport: str, *, watch: bool = False) -> AsyncGenerator[Callable[[], Target], None]:
    """What clients connect to: one server in memory, or its address."""
    if transport == "memory":
        server = McpServer(app, watch=watch)
        yield lambda: server
        return
    async with serve_http(http_app(app, watch=watch)) as url:
        yield lambda: streamable_http_client(url)


@pytest.mark.system
@pytest.mark.parametrize("transport", ["memory", "http"])
@BOTH_ERAS
async def test_what_one_client_loaded_is_new_to_another(library: World, transport: str, era: str) -> None:
    app = open_app(library)
    mode = ERAS[era][0]
    async with (
        serving(app, transport) as target,
        Client(target(), mode=mode, cache=None) as one,
        Client(target(), mode=mode, cache=None) as two,
    ):

        async def load(client: Client, session: str = "") -> types.CallToolResult:
            meta: types.RequestParamsMeta | None = {SESSION_KEY: session} if session else None
            return await client.call_tool("skill_load", {"name": "pdf"}, meta=meta)

        first = await load(one)
        named = (first.meta or {}).get(SESSION_KEY, "")
        assert "already loaded" in text_of(await load(one, named))
        assert text_of(await load(two)) == text_of(first)
        if named and transport == "http":  # a call without a session id gets a new session
            app.session("demo").load("pdf")
            for foreign in ("", "of-nobody", "mcp-nobody", "demo"):
                assert text_of(await load(one, foreign)) == text_of(first)
    frames = app.store.read()
    assert len({frame["session_id"] for frame in frames if frame["type"] == "skill_loaded"}) >= 2
    assert {frame["surface"] for frame in frames if frame["type"] == "session_started"} == {"mcp"}


# --- news ---


@pytest.mark.system
@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_clients_of_2025_are_told_when_a_file_changes(library: World, transport: str) -> None:
    told: set[str] = set()
    complete = anyio.Event()
    kinds = ("tools", "resources", "prompts")
    wanted = {f"notifications/{kind}/list_changed" for kind in kinds}

    async def hear(message: object) -> None:
        told.add(str(getattr(message, "method", "")))
        if wanted <= told:
            complete.set()

    async with (
        serving(open_app(library), transport, watch=True) as target,
        Client(target(), mode="legacy", message_handler=hear, cache=None) as client,
    ):
        capabilities = client.server_capabilities
        assert capabilities.tools is not None
        assert capabilities.tools.list_changed
        assert len((await client.list_prompts()).prompts) == 2
        written = 0
        while not complete.is_set():  # over HTTP, changes are missed until the stream for notifications is open
            library.skill(f"{SKILLS}/new-{written}")
            written += 1
            with anyio.move_on_after(0.2):
                await complete.wait()
        assert (await client.list_prompts()).prompts[0].name == "new-0"


@pytest.mark.system
@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_clients_of_2026_hear_what_they_subscribed_to(library: World, transport: str) -> None:
    async with serving(open_app(library), transport, watch=True) as target, Client(target(), cache=None) as client:
        assert len((await client.list_prompts()).prompts) == 2
        wanted = client.listen(tools_list_changed=True, resources_list_changed=True, prompts_list_changed=True)
        async with wanted as events:
            path = library.project / SKILLS / "pdf/SKILL.md"
            path.write_text(path.read_text().replace("Does one thing", "Does another thing"))
            heard = [type(await anext(aiter(events))) for _ in range(3)]
            assert heard == [ToolsListChanged, ResourcesListChanged, PromptsListChanged]
            before = await ask(client, "skills/get", uri="skill://pdf/SKILL.md")
            (path.parent / "references/forms.md").write_text("a change to another file is news, too")
            while type(await anext(aiter(events))) is not ResourcesListChanged:
                pass
            assert (await ask(client, "skills/get", uri="skill://pdf/SKILL.md"))["skill"] != before["skill"]
        about = {prompt.name: prompt.description for prompt in (await client.list_prompts()).prompts}
        assert about["pdf"] == "Does another thing, for a test."


# --- who may ask ---


META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
OF_2026 = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}
LIST: dict[str, object] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
HELLO: dict[str, object] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "0"},
}


@pytest.mark.system
@BOTH_ERAS
async def test_requests_under_a_strange_name_are_turned_away(library: World, era: str) -> None:
    body = LIST if era == "2026" else {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    given = JSON | (OF_2026 if era == "2026" else {})
    async with (
        serve_http(http_app(open_app(library), watch=False)) as url,
        httpx2.AsyncClient(timeout=PATIENCE) as client,
    ):
        for headers, status in (
            ({"host": "evil.example"}, 421),
            ({"host": "127.0.0.1.evil.example:80"}, 421),
            ({"origin": "https://evil.example"}, 403),
            ({"origin": "null"}, 403),
            ({"content-type": "text/plain"}, 400),
            ({}, 200),
            ({"origin": "http://localhost:3000"}, 200),
        ):
            answer = await client.post(url, json=body, headers=given | headers)
            assert answer.status_code == status, headers


async def test_spaces_around_the_value_of_a_header_are_no_part_of_it(library: World) -> None:
    """Some servers hand them on. The clients of these tests cannot send them."""
    given = {name: f" {value}\t" for name, value in {**JSON, **OF_2026, "host": "localhost"}.items()}
    app = http_app(open_app(library), watch=False)
    transport = httpx2.ASGITransport(app)
    async with app.lifespan(), httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.post("/mcp", json=LIST, headers=given)
    assert (answer.status_code, "skill_load" in answer.text) == (200, True), answer.text


# --- without the SDK ---


@pytest.mark.system
def test_without_the_extra_the_command_says_how_to_install_it() -> None:
    code = "import sys; sys.modules['mcp'] = None; from metier.surfaces.cli import main; sys.argv[1:] = ['mcp']; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 4
    assert done.stderr == "metier: MCP needs an optional dependency; install it with: pip install 'metier[mcp]'\n"
