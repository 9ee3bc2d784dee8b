"""What a client's model knows before it calls a tool: the server's instructions and the descriptions of its tools."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from clients import BOTH_ERAS, ERAS, EVERYWHERE, HOSTS, ask, connected, open_app
from mcp import Client

from metier.errors import ConfigError
from metier.skills import Skills
from metier.surfaces.mcp.server import McpServer
from parts import needs
from terminals import Terminal
from watching import wait_for
from worlds import World

SKILLS = ".agents/skills"
LIMIT = 2_000
"""What Metier uses of either text, by default."""


async def texts(client: Client) -> tuple[str, dict[str, str]]:
    """The instructions of the server, and the description of each tool."""
    return client.instructions or "", {tool.name: tool.description or "" for tool in (await client.list_tools()).tools}


def lines(text: str) -> list[str]:
    """The skills that a text names, in its order."""
    return [line[2:].partition(":")[0] for line in text.splitlines() if line.startswith("- ")]


def many(world: World, count: int = 150) -> None:
    """A catalog that does not fit: many special skills of the user, and few general ones."""
    for number in range(count):
        about = f"Handles case {number} of a long list of special cases, e.g. a rare one. Use it never."
        world.skill(f"~/.agents/skills/special-case-{number:03}", description=about)
    about = "Fills PDF forms. Use it for forms, whatever the user calls them, and whoever has sent them."
    world.skill("~/.agents/skills/pdf", description=about)
    world.skill(f"{SKILLS}/house-style-of-this-project", description="Writes as this project does.")


@BOTH_ERAS
async def test_a_model_reads_what_each_skill_is_for_before_it_calls_anything(world: World, era: str) -> None:
    for name in ("pdf", "csv", "log", "xml", "git", "sql"):
        world.skill(f"{SKILLS}/{name}", description=f"Works on\n{name} files. Use it when {name} is mentioned.")
    async with connected(world, "memory", era) as client:
        instructions, tools = await texts(client)
        assert "`skill_load`" in instructions
        assert "`skill_read`" in instructions
        for text in (instructions, tools["skill_load"]):
            assert len(lines(text)) == 6
            assert "- csv: Works on csv files. Use it when csv is mentioned." in text
            assert "of 6 skills" not in text
        assert not any(lines(text) for name, text in tools.items() if name != "skill_load")


@BOTH_ERAS
async def test_beyond_the_limit_the_general_skills_come_first_and_the_rest_is_counted(world: World, era: str) -> None:
    many(world)
    world.discover().set_mode("special-case-117", "pinned")
    async with connected(world, "memory", era) as client:
        instructions, tools = await texts(client)
        for text in (instructions, tools["skill_load"]):
            assert LIMIT - 200 < len(text) <= LIMIT
            shown = lines(text)
            assert shown[:4] == ["special-case-117", "house-style-of-this-project", "pdf", "special-case-000"]
            assert "- pdf: Fills PDF forms. Use it for forms, whatever" in text  # one sentence would say too little
            assert "- special-case-000: Handles case 0 of a long list of special cases, e.g. a rare one.\n" in text
            heading = f"{len(shown)} of 152 skills, the most general first. If none of these fits the task, call "
            assert text.index(f"{heading}`skill_search` with what it is about:") < text.index("- pdf")


async def test_descriptions_are_shortened_before_a_skill_is_left_out_and_each_text_has_its_limit(world: World) -> None:
    for number in range(15):
        world.skill(f"{SKILLS}/skill-{number:02}", description=f"Does {number}, " + "and again " * 30 + "and ends.")
    async with connected(world, "memory", "2026") as client:
        instructions, tools = await texts(client)
        for text in (instructions, tools["skill_load"]):
            assert (len(lines(text)), len(text) <= LIMIT, text[-10:]) == (15, True, "and again…")
    many(world)
    for limits, of_instructions, of_description in (
        ({"instructions_chars": 6_000, "description_chars": 0}, range(5_800, 6_001), range(LIMIT)),
        ({"instructions_chars": 0}, range(LIMIT), range(LIMIT - 200, LIMIT + 1)),
    ):
        async with connected(world, "memory", "2026", open_app(world, settings={"mcp": limits})) as client:
            instructions, tools = await texts(client)
        assert "`skill_load`" in instructions
        assert len(instructions) in of_instructions
        assert len(tools["skill_load"]) in of_description
        assert bool(lines(instructions)) == bool(limits["instructions_chars"])
        assert bool(lines(tools["skill_load"])) == bool(limits.get("description_chars", LIMIT))


def test_a_wrong_limit_is_an_error_that_names_it(world: World) -> None:
    for given in ({"instructions_chars": -1}, {"description_chars": "many"}, {"chars": 1}, {}):
        with pytest.raises(ConfigError) as caught:
            open_app(world, settings={"mcp": given})
        assert caught.value.key.startswith("mcp"), given


@BOTH_ERAS
async def test_a_change_of_the_catalog_changes_both_texts(world: World, era: str) -> None:
    world.skill(f"{SKILLS}/pdf")
    app = open_app(world)
    server = McpServer(app, watch=False)
    async with Client(server, mode=ERAS[era][0], cache=None) as client:
        assert lines((await texts(client))[1]["skill_load"]) == ["pdf"]
        world.skill(f"{SKILLS}/csv", description="Reads tables.")
        app.refresh()
        assert lines((await texts(client))[1]["skill_load"]) == ["csv", "pdf"]
        if era == "2026":  # a client of 2025 asks for the instructions when it connects
            assert "- csv: Reads tables." in (await ask(client, "server/discover"))["instructions"]
    async with Client(server, mode=ERAS[era][0], cache=None) as client:
        assert "- csv: Reads tables." in (client.instructions or "")


async def test_every_host_says_how_to_load_and_mentions_nothing_that_a_client_lacks(world: World) -> None:
    for base in EVERYWHERE:
        world.skill(f"{base}/pdf", description="Fills <forms>.")
    for profile in HOSTS:
        app = open_app(world, profile=profile, settings={"enabled": True})
        async with connected(world, "memory", "2026", app) as client:
            instructions, tools = await texts(client)
        loads = next(iter(tools))
        urls = "skill://<name> and follow what it says. Its other files are at skill://<name>/<path>."
        how = urls if profile == "omp" else "its name and follow what it says."
        assert f"Before a task that fits a skill, call `{loads}` with {how}" in instructions, profile
        assert [text.count("- pdf: Fills <forms>.") for text in (instructions, tools[loads])] == [1, 1], profile
        everything = " ".join((instructions, *tools.values()))
        assert "prompt" not in everything
        named = {word.strip("`.,") for word in everything.split() if word.startswith("`")}
        assert not {name for name in named if "skill" in name} - set(tools), profile


async def test_a_session_of_some_skills_shows_no_others_and_without_skills_the_instructions_say_so(
    world: World,
) -> None:
    async with connected(world, "memory", "2026") as client:
        assert (await texts(client))[0].endswith("There is no skill at present.")
    world.skill(f"{SKILLS}/pdf")
    world.skill(f"{SKILLS}/csv")
    app = open_app(world)
    app.defaults["only"] = ["csv"]
    async with connected(world, "memory", "2026", app) as client:
        instructions, tools = await texts(client)
        assert lines(instructions) == lines(tools["skill_load"]) == ["csv"]


async def test_a_client_connects_even_if_the_catalog_cannot_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise ConfigError("broken")

    app = open_app(world)
    monkeypatch.setattr(Skills, "discover", fail)
    async with connected(world, "memory", "2025", app) as client:
        assert client.instructions is None


@pytest.mark.system
@needs("tmux")
@pytest.mark.parametrize("key", ["C-d", "C-c"])
def test_a_person_who_starts_it_reads_what_it_is_for_and_can_end_it(world: World, tmp_path: Path, key: str) -> None:
    answers = world.project / "answers"
    with contextlib.closing(Terminal(world, tmp_path / "tmux")) as terminal:
        terminal.run("trap true INT; metier mcp >answers; echo ended-$?", columns=120)
        assert "metier mcp add claude-code\n" in terminal.until("ends it.")
        assert answers.read_text() == ""
        terminal.keys("-l", "no message")
        terminal.keys("Enter")
        wait_for(lambda: "the message is not JSON" in answers.read_text(), "an answer: it reads the terminal now")
        terminal.keys(key)
        terminal.until("ended-")
