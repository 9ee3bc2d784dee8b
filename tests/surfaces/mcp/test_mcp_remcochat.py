"""RemcoChat over MCP: names that every client can pass on, results as JSON, and a server that says it is off."""

import json
import re

import mcp_types as types
import pytest
from clients import ERAS, connected, open_app, run

from worlds import World

BOTH_ERAS = pytest.mark.parametrize("era", list(ERAS))


def text_of(result: types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


@BOTH_ERAS
@pytest.mark.behaviour("N-101", "N-102", "N-104")
def test_tools_have_names_that_every_client_can_pass_on_and_answer_in_json(world: World, era: str) -> None:
    world.skill(".skills/probe", body="BODY-MARKER, Größe\n")
    app = open_app(world, profile="remcochat", settings={"enabled": True})

    async def check() -> None:
        async with connected(world, "memory", era, app) as client:
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == ["skills_activate", "skills_readResource"]
            told = f"{client.instructions} {[tool.description for tool in tools]}"
            assert not re.search(r"skills\.(activate|readResource)", told)
            for name in ("skills_activate", "skills.activate"):
                seen = json.loads(text_of(await client.call_tool(name, {"name": "probe"})))
                assert list(seen) == ["name", "frontmatter", "body", "truncated"]
                assert seen["body"] == "BODY-MARKER, Größe\n"
            failed = await client.call_tool("skills_readResource", {"name": "probe", "path": "no.md"})
            assert failed.is_error
            assert json.loads(text_of(failed))["error"]["code"] == "NOT_FOUND"

    run(check)


@BOTH_ERAS
@pytest.mark.behaviour("K-002", "N-107")
def test_while_off_the_server_says_so_and_offers_nothing(world: World, era: str) -> None:
    world.skill(".skills/probe")
    app = open_app(world, profile="remcochat")

    async def check() -> None:
        async with connected(world, "memory", era, app) as client:
            assert (await client.list_tools()).tools == []
            assert "skills are switched off in the profile remcochat; set app.skills.enabled = true" in str(
                client.instructions
            )

    run(check)
