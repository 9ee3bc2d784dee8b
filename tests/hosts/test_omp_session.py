"""oh-my-pi: the list in the prompt, preloaded skills, `/skill:name`, `skill://` URLs and AGENTS.md files."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, types

from hosts.asking import metier
from metier import SkillNotFound
from metier.app import App
from metier.record.store.memory import MemoryStore
from metier.session.session import Session
from metier.surfaces.mcp.server import McpServer
from worlds import World

BODY = "BODY-MARKER\n\nDo it, $ARGUMENTS and $1.\n"
OUTSIDE = "OUTSIDE-MARKER"


def session(world: World, settings: dict[str, Any] | None = None, **given: Any) -> Session:
    return world.discover("omp", settings={"skills": settings or {}}).session(**given)


def read(opened: Session, url: str) -> Any:
    """The data of a result, whose content or error is what the model reads."""
    result = opened.call("read", {"path": url})
    assert result.text == result.data["content" if result.ok else "error"]
    return result.data


@pytest.mark.behaviour("O-032", "O-033", "O-034")
def test_the_prompt_lists_names_and_descriptions_where_the_model_can_read(world: World) -> None:
    world.skill(".omp/skills/pdf", description="Fills\n forms.", body=BODY)
    world.skill("~/.claude/skills/undescribed", description=None, body=BODY)
    opened = session(world, has_read_tool=True)
    text = opened.system_prompt("BASE")
    assert text.startswith("BASE\n\n# Skills\n")
    assert "`read` at skill://<name>" in text
    assert text.splitlines()[5:6] == ["- pdf: Fills forms."]
    assert "\n- undescribed:" in text
    for hidden in ("MARKER", str(world.project), str(world.home)):
        assert hidden not in text
    cut = opened.prompt(budget=len("- pdf: Fills forms.") + 1).text
    assert "\n- pdf: Fills forms.\n(1 more is not shown. " in cut
    without = session(world, has_read_tool=False)
    assert (without.system_prompt("BASE"), without.tools()) == ("BASE", [])


@pytest.mark.behaviour("O-035", "O-037")
@pytest.mark.parametrize("has_read_tool", [True, False])
def test_preloaded_skills_stand_whole_in_the_prompt_instead_of_the_list(world: World, has_read_tool: bool) -> None:
    for name in ("one", "two", "three"):
        world.skill(f".omp/skills/{name}", description=f"About {name}.", body=f"BODY of {name}\n")
    prompt = session(world, preload=["two", "one"], has_read_tool=has_read_tool).system_prompt("BASE")
    block = prompt[prompt.index("<preloaded_skills>") : prompt.index("</preloaded_skills>")]
    texts = {name: (world.project / f".omp/skills/{name}/SKILL.md").read_text().strip() for name in ("two", "one")}
    whole = [f'<skill name="{name}">\n{text}\n</skill>' for name, text in texts.items()]
    assert block == "<preloaded_skills>\n" + "\n".join(whole) + "\n"
    assert "three" not in prompt
    assert "- one: About one." not in prompt


@pytest.mark.behaviour("O-036", "O-037")
def test_pinning_an_unknown_skill_is_an_error_that_lists_the_names_and_starts_nothing(world: World) -> None:
    for name in ("pdf", "postgres", "ignored"):
        world.skill(f".omp/skills/{name}", body=BODY)
    store = MemoryStore()
    for wanted in (["absent"], ["pdf", "absent"], ["PDF"], ["pd"], ["ignored"], ["pdf", ""]):
        with pytest.raises(SkillNotFound, match="pdf, postgres") as refused:
            session(world, {"ignoredSkills": ["ign*"]}, preload=wanted, store=store)
        assert (refused.value.wanted, refused.value.available) == (wanted[-1], ("pdf", "postgres"))
        assert store.read() == []


@pytest.mark.behaviour("O-038", "O-039")
@pytest.mark.parametrize("enabled", [True, False])
def test_commands_are_offered_one_a_skill_or_are_plain_text(world: World, enabled: bool) -> None:
    for name in ("pdf", "My_Skill"):
        world.skill(f".omp/skills/{name}", body=BODY)
    opened = session(world, {"enableSkillCommands": enabled})
    assert opened.commands() == (["/skill:My_Skill", "/skill:pdf"] if enabled else [])
    invocation = opened.invoke("/skill:pdf now")
    assert (invocation.skill is not None, invocation.loaded is not None) == (enabled, enabled)
    assert invocation.message == ("now" if enabled else "/skill:pdf now")


@pytest.mark.behaviour("O-041", "O-042")
def test_a_command_injects_the_body_the_path_and_what_the_user_said(world: World) -> None:
    path = world.skill(".omp/skills/pdf", description="Forms.", body=BODY)
    opened = session(world)
    before = opened.system_prompt("BASE")
    for message, said in {
        "/skill:pdf": "",
        "/skill:pdf  \n": "",
        "/skill:pdf fill a.pdf": "\nUser: fill a.pdf",
        "/skill:pdf  two\nlines ": "\nUser: two\nlines",
    }.items():
        loaded = session(world).invoke(message).loaded
        assert loaded is not None
        assert loaded.text == f"{BODY.strip()}\n\nSkill: {path}{said}"
        assert metier(world, "session", "invoke", message, "--profile", "omp")["loaded"]["text"] == loaded.text
    opened.invoke("/skill:pdf now")
    assert opened.system_prompt("BASE") == before


@pytest.mark.behaviour("O-040", "O-043")
def test_a_command_reads_the_file_at_call_time_and_discovers_nothing(world: World) -> None:
    path = world.skill(".omp/skills/pdf", body="OLD")
    opened = session(world)
    before = [skill.as_dict() for skill in opened.skills]
    path.write_text("---\nname: renamed\ndescription: Other.\n---\nNEW")
    world.skill(".omp/skills/late", body=BODY)
    loaded = opened.invoke("/skill:pdf").loaded
    assert loaded is not None
    assert loaded.text.startswith("NEW\n\nSkill: ")
    assert opened.invoke("/skill:late").skill is None
    assert opened.invoke("/skill:renamed").skill is None
    assert [skill.as_dict() for skill in opened.skills] == before


RAW = "\ufeff---\r\nname: pdf\r\ndescription: Forms.\r\n---\r\n\r\nBody  \r\n$ARGUMENTS é\r\n\r\n"


@pytest.fixture
def pdf(world: World) -> Path:
    """A skill with files of many names, and the things around it that must stay out of reach."""
    files: dict[str, str | bytes] = {
        "references/tables.md": "TABLES",
        "my file.md": "BLANK",
        "a%20b.md": "PERCENT",
        "a b.md": "WRONG",
        "data.json": "{}",
        "scripts/run.sh": "#!/bin/sh\n",
        "LICENSE": "MIT",
        "notes.markdown": "plain",
        "READ.MD": "shouted",
        "..odd/x..md": "ODD",
        "references/only-here.md": "DEEP",
    }
    path = world.skill(".omp/skills/pdf", text=RAW.encode(), files=files)
    world.skill(".omp/skills/other", files={"only-other.md": OUTSIDE})
    (world.project / "secret.md").write_text(OUTSIDE)
    (path.parent / "out.md").symlink_to(world.project / "secret.md")
    (path.parent / "out").symlink_to(world.project)
    (path.parent / "up.md").symlink_to("../other/only-other.md")
    (path.parent / "in.md").symlink_to("references/tables.md")
    return path


@pytest.mark.behaviour("O-044", "O-046")
def test_a_skills_url_gives_its_file_as_it_lies_there_and_a_name_must_match_exactly(world: World, pdf: Path) -> None:
    opened = session(world)
    for url in ("skill://pdf", "skill://pdf/", "skill://pdf/SKILL.md"):
        for _ in range(2):
            assert (read(opened, url)["content"], read(opened, url)["contentType"]) == (RAW, "text/markdown")
        resource = metier(world, "read", url, "--profile", "omp")
        assert (resource["text"], resource["mime"], resource["size"]) == (RAW, "text/markdown", len(RAW.encode()))
    for name in ("PDF", "Pdf", "pd", "pdf2", "absent", "", "pdf%20", "%2e%2e", ".."):
        result = read(opened, f"skill://{name}/data.json")
        assert ("content" in result, bool(result["error"])) == (False, True), name


SERVED: dict[str, tuple[str, str]] = {
    "references/tables.md": ("TABLES", "text/markdown"),
    "./references//tables.md": ("TABLES", "text/markdown"),
    "references%2Ftables.md": ("TABLES", "text/markdown"),
    "my%20file.md": ("BLANK", "text/markdown"),
    "my file.md": ("BLANK", "text/markdown"),
    "a%2520b.md": ("PERCENT", "text/markdown"),
    "data.json": ("{}", "text/plain"),
    "scripts/run.sh": ("#!/bin/sh\n", "text/plain"),
    "LICENSE": ("MIT", "text/plain"),
    "notes.markdown": ("plain", "text/plain"),
    "READ.MD": ("shouted", "text/plain"),
    "..odd/x..md": ("ODD", "text/markdown"),
    "in.md": ("TABLES", "text/markdown"),
}


@pytest.mark.behaviour("O-045", "O-047", "O-054", "N-035")
def test_a_url_with_a_path_is_decoded_once_and_gives_that_file(world: World, pdf: Path) -> None:
    results = {path: read(session(world), f"skill://pdf/{path}") for path in SERVED}
    assert {path: (one.get("content"), one.get("contentType")) for path, one in results.items()} == SERVED


@pytest.mark.behaviour("N-034")
def test_the_name_in_a_url_is_decoded_exactly_once_on_every_way_in(world: World, pdf: Path) -> None:
    world.skill(".omp/skills/percent", "p%64f", files={"data.json": "[]"})
    opened = session(world)
    assert opened.call("read", {"path": "skill://p%64f"}).text == RAW
    assert opened.call("read", {"path": "skill://p%64f/data.json"}).text == "{}"
    assert opened.call("read", {"path": "skill://p%2564f/data.json"}).text == "[]"
    refused = opened.call("read", {"path": "skill://p%252564f"})
    assert (refused.ok, "'p%2564f'" in refused.text) == (False, True)
    shown = metier(world, "read", "skill://p%64f/READ.MD", "--profile", "omp")
    assert (shown["text"], shown["mime"]) == ("shouted", "text/plain")
    app = App(world.project, home=world.home, profile="omp", store="memory:")

    async def contents(*urls: str) -> list[str]:
        async with Client(McpServer(app, watch=False)) as client:
            read = [(await client.read_resource(url)).contents[0] for url in urls]
            return [one.text for one in read if isinstance(one, types.TextResourceContents)]

    assert asyncio.run(contents("skill://p%64f/data.json", "skill://p%2564f/data.json")) == ["{}", "[]"]
    app.close()


REFUSED = {
    "absolute": ["/etc/passwd", "%2Fetc/passwd", "//etc/passwd", "%2F%2Fetc%2Fpasswd", "C:%5Cx", "~%2Fx"],
    "traversal": [
        *("..", "../other/only-other.md", "references/../../other/only-other.md", "references/../data.json"),
        *("%2e%2e/other/only-other.md", ".%2e/other/only-other.md", "%2E./other/only-other.md"),
        *("%2e%2e%5cother%5conly-other.md", "%2e%2e%2fother%2fonly-other.md"),
    ],
    "link": ["out.md", "out/secret.md", "up.md"],
    "File not found": [
        *("absent.md", "tables.md", "only-here.md", "only-other.md", "secret.md", "data.json/x", "%252e%252e/x")
    ],
}


@pytest.mark.behaviour("O-048", "O-049", "O-050", "O-051", "O-052", "O-053")
def test_what_leads_outside_or_is_not_there_is_refused_each_with_its_own_message(world: World, pdf: Path) -> None:
    opened = world.discover("omp", world.project).session()
    for word, paths in REFUSED.items():
        for path in paths:
            result = opened.call("read", {"path": f"skill://pdf/{path}"})
            assert (result.ok, [other for other in REFUSED if other in result.text]) == (False, [word]), path
            assert OUTSIDE not in str(result)
        assert word in metier(world, "read", f"skill://pdf/{paths[0]}", "--profile", "omp", code=1)


@pytest.mark.behaviour("O-055", "O-056", "O-057")
def test_instructions_of_twenty_ancestors_stand_before_the_skills_the_outermost_first(world: World) -> None:
    levels = [world.project]
    for number in range(1, 27):
        levels.append(levels[-1] / f"d{number}")
    hidden = [levels[-1] / ".hidden", levels[-1] / ".hidden/b"]
    hidden[-1].mkdir(parents=True)
    for number, folder in enumerate((*levels, *hidden)):
        (folder / "AGENTS.md").write_text(f"LEVEL-{26 - number}.")
    world.skill(".omp/skills/pdf", body=BODY)
    opened = world.discover("omp", levels[-1]).session()
    text = opened.system_prompt("BASE")
    found = [number for number in range(-2, 27) if f"LEVEL-{number}." in text]
    assert found == list(range(21))
    places = [text.index(word) for word in ("BASE", *(f"LEVEL-{n}." for n in reversed(found)), "- pdf:")]
    assert places == sorted(places)
    assert opened.activated == []
    below = world.discover("omp", hidden[-1], settings={"skills.enabled": False}).session(has_read_tool=False)
    text = below.system_prompt()
    assert [number for number in range(-2, 3) if f"LEVEL-{number}." in text] == [0, 1, 2], "no hidden folder"


@pytest.mark.behaviour("O-059")
def test_skills_add_no_tools(world: World) -> None:
    world.skill(".omp/skills/first")
    before = [tool.as_dict() for tool in session(world).tools()]
    assert [(tool["name"], tool["description"]) for tool in before] == [
        ("read", "Reads a skill at skill://<name>, or one of its files at skill://<name>/<path>.")
    ]
    for number in range(100):
        world.skill(f".omp/skills/skill-{number}", tools=["Launch"], allowed_tools="Launch")
    opened = session(world)
    opened.invoke("/skill:skill-7")
    assert [tool.as_dict() for tool in opened.tools()] == before
