"""The hosts that are described from public pages and source: their folders in their order, and what they accept."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from metier.authoring import check
from metier.authoring.check import HostVerdict
from worlds import World

DATA = json.loads(Path(__file__).with_name("public_hosts.json").read_text())
FOLDERS: dict[str, list[str]] = DATA["folders"]


@pytest.mark.parametrize("host", FOLDERS)
def test_the_folders_of_a_host_count_in_the_order_that_its_sources_give(world: World, host: str) -> None:
    files = [world.skill(f"{folder}/x", description=f"From {folder}.") for folder in FOLDERS[host]]
    for folder in ("skills", ".other/skills", "~/skills"):
        world.skill(f"{folder}/elsewhere")
    while files:
        found = check.examine([world.project, world.home], [host], world.project, world.home)
        of_x = {verdict.path: verdict.status for verdict in found if verdict.name == "x"}
        assert of_x == {str(file): "shadowed" if file is not files[0] else "offered" for file in files}
        assert [verdict.status for verdict in found if verdict.name == "elsewhere"] == ["elsewhere"] * 3
        files.pop(0).unlink()


@dataclass(frozen=True)
class Case:
    """A skill at a place, and what a host does: status, name, M for the model, U for the user."""

    host: str
    reason: str
    at: str
    expected: str
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    cwd: str = ""
    says: str = ""


CASES = [Case(**one) for one in DATA["cases"]]
REQUIRED = ("cursor", "windsurf", "goose", "kiro", "cline", "roo", "zed")


def asked(world: World, host: str, at: str, cwd: str = "", **fields: Any) -> HostVerdict:
    where = world.project / cwd
    where.mkdir(parents=True, exist_ok=True)
    (verdict,) = check.verdicts(world.skill(at, **fields), [host], cwd=where, home=world.home)
    return verdict


@pytest.mark.parametrize("one", CASES, ids=lambda one: f"{one.host}: {one.reason}")
def test_the_verdict_is_what_the_sources_of_the_host_say(world: World, one: Case) -> None:
    if "outer" in one.at:
        world.skill(f"{one.at.split('/outer')[0]}/outer")
    verdict = asked(world, one.host, one.at, one.cwd, **one.fields)
    seen = "M" * verdict.model + "U" * verdict.user
    assert f"{verdict.status} {verdict.name} {seen}".strip() == one.expected
    assert one.says in f"{verdict.why} {' '.join(verdict.notes)}"
    assert not (one.at.startswith("~") and verdict.notes)


@pytest.mark.parametrize("host", REQUIRED)
def test_name_and_description_are_required_where_the_sources_ask_for_them(world: World, host: str) -> None:
    folder = next(folder for folder in FOLDERS[host] if not folder.startswith("~"))
    nameless = asked(world, host, f"{folder}/a", text="---\ndescription: Does one thing.\n---\nbody\n")
    mute = asked(world, host, f"{folder}/b", description=None)
    assert (nameless.status, mute.status) == ("invalid", "invalid")


def test_fields_that_a_host_does_not_know_are_reported(world: World) -> None:
    fields = "license: MIT\nallowed-tools: Read\nmetadata:\n  a: b\nicon: bug\nmodeSlugs: [code]\ndisabled: false"
    text = f"---\nname: x\ndescription: d\n{fields}\nzap: 1\n---\n"
    ignored = {host: asked(world, host, ".agents/skills/x", text=text).ignored for host in FOLDERS}
    everything = ("license", "allowed-tools", "metadata", "icon", "modeSlugs", "disabled", "zap")

    def without(*known: str) -> tuple[str, ...]:
        return tuple(key for key in everything if key not in known)

    assert ignored == {
        "cursor": without("metadata", "icon"),
        "windsurf": everything,
        "goose": without("metadata"),
        "amp": everything,
        "kiro": without("license", "metadata"),
        "cline": without("disabled"),
        "roo": without("modeSlugs"),
        "zed": everything,
    }


# --- what sessions do with these rules


def test_a_skill_is_called_with_an_at_sign_in_windsurf(world: World) -> None:
    world.skill(".windsurf/skills/x", body="The body of x.")
    session = world.discover("windsurf").session()

    def called(message: str) -> list[str]:
        return [skill.name for skill in session.invoke(message).mentioned]

    assert called("please use @x, now") == ["x"]
    assert called("@x") == ["x"]
    assert called("mail me@x.org or @@x or \\@x or @y or /x") == []


def test_claudes_folders_count_in_windsurf_once_they_are_switched_on(world: World) -> None:
    world.skill(".claude/skills/x")
    assert [skill.name for skill in world.discover("windsurf")] == []
    assert [skill.name for skill in world.discover("windsurf", settings={"toggles.claude_code": True})] == ["x"]


def test_the_folder_of_the_mode_comes_first_in_roo(world: World) -> None:
    world.skill(".roo/skills/x", description="For all modes.")
    world.skill(".roo/skills-code/x", description="For code.")
    world.skill("~/.roo/skills-code/x", description="The user's.")
    assert world.discover("roo")["x"].description == "For all modes."
    assert world.discover("roo", settings={"toggles.mode_code": True})["x"].description == "For code."


def test_a_skill_that_is_switched_off_in_its_file_is_not_shown_in_cline(world: World) -> None:
    world.skill(".cline/skills/on")
    world.skill(".cline/skills/off", disabled=True)
    shown = world.discover("cline").prompt().text
    assert "<name>on</name>" in shown
    assert "off" not in shown


def test_zed_shows_the_skills_of_a_project_once_it_is_trusted_and_asks_before_it_loads(world: World) -> None:
    world.skill(".agents/skills/x", description="The project's.")
    assert "The project's." not in world.discover("zed").session().system_prompt("Base.")
    world.trust()
    skills = world.discover("zed")
    assert "The project's." in skills.session().system_prompt("Base.")
    refused = skills.session().call("skill", {"name": "x"})
    assert not refused.ok
    assert "confirm" in refused.text
