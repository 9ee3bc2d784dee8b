"""A model never gets more of a SKILL.md than a limit, under any host, and is told how to get more of it."""

import os

import pytest

from metier import limits
from metier.session.arguments import expand
from metier.skills import Skills
from worlds import World

BODY = "word " * (1 << 20)
MOST = limits.LOADED_BYTES + 2_000
"""The limit, with room for what a host puts around the text."""


def opened(world: World, **settings: object) -> Skills:
    world.skill(".agents/skills/probe", body=BODY)
    return Skills.discover(world.project, home=world.home, settings=settings)


@pytest.mark.parametrize("profile", ["standard", "codelia", "omp", "claude-code", "gemini-cli", "mycodeagent", "rip"])
def test_every_host_gives_at_most_the_limit(world: World, profile: str) -> None:
    for folder in (".agents/skills", ".claude/skills", ".gemini/skills", "skills", ".omp/skills", ".rip/skills"):
        world.skill(f"{folder}/probe", body=BODY)
    skills = Skills.discover(world.project, home=world.home, profile=profile)
    loaded = skills.session(store="memory:").load(path=next(iter(skills)).path)
    assert len(loaded.text) < MOST
    assert loaded.truncated
    by_setting = "the user can raise load.max_bytes in ~/.config/metier/config.toml]" in loaded.text
    assert by_setting is not ("; `" in loaded.text.partition("[truncated: ")[2])
    if by_setting:
        world.configure_user("[load]\nmax_bytes = 50000000\n")
        after = Skills.discover(world.project, home=world.home, profile=profile)
        assert not after.session(store="memory:").load(path=next(iter(after)).path).truncated


def test_the_text_says_how_much_is_missing_and_how_to_get_it(world: World) -> None:
    skills = opened(world)
    size = os.path.getsize(next(iter(skills)).path)
    for text in (
        skills.session(store="memory:").load("probe").text,
        skills.session(store="memory:").call("skill_load", {"name": "probe"}).text,
        skills.session(store="memory:", preload=["probe"]).system_prompt(),
    ):
        assert len(text) < MOST + 5_000
        assert f"bytes of SKILL.md are left out of {size}; `skill_read` with the path SKILL.md gives its first" in text
    more = skills.session(store="memory:").call("skill_read", {"name": "probe", "path": "SKILL.md"}).text
    assert 1_900_000 < len(more) < 2_010_000


def test_a_body_that_repeats_a_placeholder_cannot_multiply_the_arguments() -> None:
    arguments = "x" * 1_000_000
    text = expand("$ARGUMENTS " * 10_000, arguments, {})
    assert len(text) < 3 * limits.EXPANDED_CHARACTERS
    assert text.startswith(arguments)
    assert text.endswith("$ARGUMENTS ")
    assert len(expand("$1 " * 10_000, arguments, {"argument-hint": "x"})) < 3 * limits.EXPANDED_CHARACTERS
    assert expand("<$ARGUMENTS>", "y" * 8_000_000, {}) == f"<{'y' * 8_000_000}>"
