"""The walk that the conformance skill describes, step by step as its SKILL.md has it, through a host's tools alone."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from metier.files.json_text import part_of
from metier.session.session import Session
from metier.session.tools import ToolResult
from worlds import World

FIXTURE = Path(__file__).parents[2] / "examples/skills/skills-system-validation"
NAME = FIXTURE.name
BODY = "METIER-VALIDATION-BODY-7Q2K"
METADATA = "METIER-VALIDATION-METADATA-5H8W"
REFERENCE = "METIER-VALIDATION-REFERENCE-3M9T"
ASSET = "METIER-VALIDATION-ASSET-8D4R"
SCRIPT = "METIER-VALIDATION-SCRIPT-6J1X"
SECRET = "SECRET-MARKER of the folder above"


@dataclass(frozen=True)
class Host:
    """Where a host looks, and how its model activates a skill and reads a file of one (`None`: it cannot)."""

    folder: str
    activate: Callable[[Session, str], ToolResult]
    read: Callable[[Session, str], ToolResult] | None
    settings: dict[str, Any]
    shows_frontmatter: bool = False


def by(tool: str, **more: Any) -> Callable[[Session, str], ToolResult]:
    return lambda session, name: session.call(tool, {"name": name, **more})


def reader(tool: str) -> Callable[[Session, str], ToolResult]:
    return lambda session, path: session.call(tool, {"name": NAME, "path": path})


HOSTS = {
    "standard": Host(".agents/skills", by("skill_load"), reader("skill_read"), {}),
    "codelia": Host(".agents/skills", by("skill_load"), None, {}, shows_frontmatter=True),
    "omp": Host(
        ".omp/skills",
        lambda session, name: session.call("read", {"path": f"skill://{name}"}),
        lambda session, path: session.call("read", {"path": f"skill://{NAME}/{path}"}),
        {},
        shows_frontmatter=True,
    ),
    "mycodeagent": Host("skills", by("Skill"), None, {}),
    "rip": Host(".rip/skills", by("skill_load"), reader("skill_read"), {}),
    "remcochat": Host(
        ".skills", by("skills.activate"), reader("skills.readResource"), {"enabled": True}, shows_frontmatter=True
    ),
}


@pytest.fixture(params=HOSTS)
def walk(request: pytest.FixtureRequest, world: World) -> tuple[Host, Session]:
    """A session of each host, with the conformance skill where it looks and a secret two folders above it."""
    host = HOSTS[request.param]
    shutil.copytree(FIXTURE, world.project / host.folder / NAME)
    (world.project / "x").write_text(SECRET)
    return host, world.discover(request.param, settings=host.settings).session()


def disclosed(session: Session) -> str:
    """All that a model has before it calls anything."""
    tools = json.dumps([tool.as_dict() for tool in session.tools()], ensure_ascii=False)
    return session.system_prompt("BASE") + tools


def documented(step: str) -> list[tuple[str, str]]:
    """The rows of the table of a step in the fixture's own SKILL.md."""
    text = (FIXTURE / "SKILL.md").read_text()
    section = text.split(f"## {step}")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \| (.+?) \|$", section, re.MULTILINE)


@pytest.mark.behaviour("K-077", "K-078")
def test_step_1_the_catalog_discloses_name_and_description_and_no_marker(walk: tuple[Host, Session]) -> None:
    _, session = walk
    skill = session.skills[NAME]
    shown = disclosed(session)
    assert NAME in shown
    assert skill.description.split(" - ")[0] in shown
    assert "METIER-VALIDATION" not in shown
    assert skill.metadata.get("fixture-version") == "1.10"
    if session.profile.resources.hide_paths:
        assert str(session.skills.settings.place.project) not in shown


@pytest.mark.behaviour("K-078", "K-082")
def test_step_2_activation_returns_the_whole_body_and_an_unknown_name_an_error(walk: tuple[Host, Session]) -> None:
    host, session = walk
    result = host.activate(session, NAME)
    assert result.ok
    assert BODY in result.text
    assert "every tool name that differed from the ones above." in result.text, "the last line"
    assert "[truncated" not in result.text
    given = f"{result.text}{result.data}"
    assert (METADATA in given and "1.10" in given) is host.shows_frontmatter
    assert not {REFERENCE, ASSET, SCRIPT} & set(re.findall(r"METIER-VALIDATION-[A-Z0-9-]+", given))
    unknown = host.activate(session, NAME[:-1])
    assert not unknown.ok
    assert NAME[:-1] in unknown.text
    assert BODY not in str(unknown)


@pytest.mark.behaviour("K-079", "K-082")
def test_steps_3_and_4_reference_and_asset_return_their_markers_unharmed(walk: tuple[Host, Session]) -> None:
    host, session = walk
    host.activate(session, NAME)
    if host.read is None:
        assert {"skill_read", "read", "skills.readResource"}.isdisjoint(tool.name for tool in session.tools())
        return
    reference = host.read(session, "references/REFERENCE.md")
    assert REFERENCE in reference.text
    assert "Grüße, Ελληνικά, हिन्दी, 日本語, العربية, 🧭" in reference.text
    result = host.read(session, "assets/fixture.json")
    asset = json.loads(part_of(result.text, result.shown_at))
    assert (asset["marker"], asset["text"]) == (ASSET, "Grüße")


@pytest.mark.behaviour("K-080", "K-082")
def test_step_5_every_listed_path_is_refused_with_a_message_and_no_content(walk: tuple[Host, Session]) -> None:
    host, session = walk
    host.activate(session, NAME)
    rows = documented("Step 5")
    assert len(rows) == 6
    if host.read is None:
        return
    messages: dict[str, str] = {}
    for path, _ in rows:
        result = host.read(session, path)
        assert not result.ok
        assert result.text
        assert "root:" not in str(result)
        assert "SECRET" not in str(result)
        messages[path] = result.text.replace(path, "")
        if session.profile.resources.hide_paths:
            assert str(session.skills.settings.place.project) not in result.text
    assert messages["references/MISSING.md"] not in (messages["../../x"], messages["/etc/passwd"])


@pytest.mark.behaviour("K-082")
def test_the_skill_describes_the_walk_in_steps_that_name_every_file_of_the_fixture() -> None:
    text = (FIXTURE / "SKILL.md").read_text()
    assert re.findall(r"^## Step (\d)", text, re.MULTILINE) == list("123456")
    for file in FIXTURE.rglob("*"):
        if file.is_file() and file.name != "SKILL.md":
            assert f"`{file.relative_to(FIXTURE)}`" in text
    for tool in ("skill_load", "skills.activate", "Skill", "skill_read", "skills.readResource"):
        assert f"`{tool}`" in text
