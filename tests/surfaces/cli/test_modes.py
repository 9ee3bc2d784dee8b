"""`metier enable`, `disable` and `mode`: what they save and what they print."""

import json
import re

import pytest

from calling import Run
from worlds import World

pytest_plugins = ["surfaces.cli.cli_fixtures"]

SKILLS = ".agents/skills"


@pytest.fixture
def shelf(world: World) -> World:
    world.skill(f"{SKILLS}/release-notes", description="Drafts release notes.")
    world.skill(f"{SKILLS}/csv-profile", description="Profiles a CSV file.")
    return world


def test_enable_and_disable_last(mixed: World, run: Run) -> None:
    assert run("disable", "xlsx").out == "xlsx is off for you\n"
    assert "xlsx (off)" in run("list").out
    assert run("enable", "xlsx", "--json").json == {
        "name": "xlsx",
        "path": str(mixed.home / ".agents/skills/xlsx/SKILL.md"),
        "enabled": True,
        "mode": "auto",
        "level": "user",
    }
    assert "takes its place" in run("disable", "pdf", "--project").out
    assert run("show", "pdf", "--json").json["description"] == "The user's."
    assert (mixed.project / ".metier/skills.json").is_file()
    assert run("disable", "nothing").code == 1


@pytest.mark.parametrize("mode", ["pinned", "auto", "name-only", "manual", "off"])
@pytest.mark.parametrize("where", ["user", "project"])
def test_a_mode_is_set_and_lasts(run: Run, shelf: World, mode: str, where: str) -> None:
    project = ("--project",) if where == "project" else ()
    said = json.loads(run("mode", "csv-profile", mode, *project, "--json").out)
    assert (said["name"], said["mode"], said["enabled"], said["level"]) == ("csv-profile", mode, mode != "off", where)
    assert shelf.discover().at(said["path"]).mode == mode


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("pinned", "csv-profile is pinned for you: it comes first in every prompt\n"),
        ("name-only", "csv-profile is name-only for you: the model sees its name without its description\n"),
        ("manual", "csv-profile is manual for you: it is hidden from the model, and people call it by name\n"),
        ("off", "csv-profile is off for you\n"),
        ("auto", "csv-profile is on for you\n"),
    ],
)
def test_the_new_mode_is_printed(run: Run, shelf: World, mode: str, message: str) -> None:
    assert run("mode", "csv-profile", mode).out == message


def test_a_pinned_skill_is_first_in_the_prompt_of_the_command_line(run: Run, shelf: World) -> None:
    run("mode", "release-notes", "pinned")
    assert re.findall(r"<name>(.*?)</name>", run("prompt").out)[0] == "release-notes"
    run("mode", "release-notes", "manual")
    assert "release-notes" not in run("prompt").out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("csv-profile", "loud"), 2, "'loud' is not one of"),
        (("csv-profile",), 2, "Missing argument"),
        (("no-such-skill", "pinned"), 1, "no-such-skill"),
    ],
)
def test_a_wrong_mode_or_name_is_said_with_its_exit_code(
    run: Run, shelf: World, arguments: tuple[str, ...], code: int, said: str
) -> None:
    result = run("mode", *arguments)
    assert result.code == code
    assert said in result.err
    assert result.out == ""
