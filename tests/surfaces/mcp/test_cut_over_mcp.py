"""A client's model reads in the text of a result that it was cut, and how to get the rest."""

import mcp_types as types
from clients import connected, open_app, run

from worlds import World


def test_the_text_of_a_result_says_what_was_cut(world: World) -> None:
    world.skill(".agents/skills/knots", description="Ties knots.", files={"big.md": "word " * 1_000, "a.md": "A"})
    world.skill(".agents/skills/more", description="Ties knots, too.")
    app = open_app(world, settings={"resources.max_bytes": 1_000, "load.max_files": 1})

    async def check() -> None:
        texts: list[str] = []
        async with connected(world, "memory", "2025", app) as client:
            for tool, arguments in (
                ("skill_load", {"name": "knots"}),
                ("skill_read", {"name": "knots", "path": "big.md"}),
                ("skill_search", {"query": "knots", "limit": 1}),
            ):
                (content,) = (await client.call_tool(tool, arguments)).content
                assert isinstance(content, types.TextContent)
                texts.append(content.text)
        loaded, read, found = texts
        assert "1 more file of this skill is not listed here. `skill_read` reads any file by its path." in loaded
        way = "the user can raise resources.max_bytes in ~/.config/metier/config.toml"
        assert read.endswith(f"[truncated: 4000 bytes of big.md are left out of 5000; {way}]")
        assert found.endswith("match; ask more precisely, or for more results with `limit`, up to 50.")

    run(check)
