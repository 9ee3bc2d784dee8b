"""fastmcp's client, another implementation of the protocol and of the extension, works with our server."""

import base64
from typing import Any

import pytest
from clients import command, digest

from worlds import World

pytestmark = pytest.mark.system

fastmcp = pytest.importorskip("fastmcp", reason="fastmcp is not installed")

from fastmcp.client.transports import StdioTransport  # noqa: E402
from fastmcp.skills import SkillsClientExtension  # noqa: E402

SKILLS = ".agents/skills"
FILES: dict[str, str | bytes] = {"references/a b.md": "é", "assets/x.bin": bytes(range(256)), "scripts/a.py": "print()"}


def client_of(world: World, **given: Any) -> Any:
    first, *rest = command(world)
    return fastmcp.Client(StdioTransport(first, rest), **given)


def content_of(contents: list[Any]) -> bytes:
    (content,) = contents
    return content.text.encode() if hasattr(content, "text") else base64.b64decode(content.blob)


async def test_its_skills_client_walks_every_skill_and_checks_every_digest(world: World) -> None:
    for name in ("csv", "pdf"):
        world.skill(f"{SKILLS}/{name}", files=FILES, license="MIT", metadata={"version": "1.0"})
    world.skill(f"{SKILLS}/hidden", disable_model_invocation=True)
    async with client_of(world, extensions=[SkillsClientExtension()]) as client:
        skills = await client.list_skills()
        assert [skill.uri for skill in skills] == ["skill://csv/SKILL.md", "skill://pdf/SKILL.md"]
        for skill in skills:
            assert isinstance(skill.resources, list)
            assert len(skill.resources) == 4
            for file in skill.resources:
                data = content_of(await client.read_resource(file.uri))
                assert (digest(data), len(data)) == (file.digest, file.size)
