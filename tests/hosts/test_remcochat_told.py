"""RemcoChat: what people are told about switched off skills, missing folders and a catalog that is read once."""

import json
import logging
import os
import re

import pytest
from click.testing import CliRunner, Result
from starlette.testclient import TestClient

from metier.app import App
from metier.surfaces.cli import cli, doctor
from metier.surfaces.web.api import build
from worlds import World

OFF = (
    "skills are switched off in the profile remcochat; "
    "set app.skills.enabled = true in .metier/config.toml, run `metier trust` and start again"
)
HOST = "http://localhost"


def ask(world: World, *arguments: str) -> Result:
    """A command in the project."""
    return CliRunner().invoke(cli, [*arguments, "--cwd", str(world.project), "--home", str(world.home)])


def configure(world: World, text: str) -> None:
    world.configure(f'profile = "remcochat"\n{text}')


@pytest.mark.behaviour("K-001", "N-107")
def test_the_command_line_says_that_skills_are_off_and_what_it_says_switches_them_on(world: World) -> None:
    world.skill(".skills/probe")
    configure(world, "")
    for command in (("list",), ("show", "probe"), ("session", "tools")):
        assert OFF in ask(world, *command).stderr
    assert ask(world, "list", "--quiet").output == ""
    listed = ask(world, "list", "--json")
    assert [d["code"] for d in json.loads(listed.stdout)["diagnostics"]] == ["switched-off"]
    configure(world, "app.skills.enabled = true\n")
    switched_on = ask(world, "list")
    assert "switched off" not in switched_on.stderr
    assert "probe" in switched_on.stdout


@pytest.mark.behaviour("K-009", "N-108")
def test_a_missing_folder_is_named_once_in_the_list_the_report_the_page_and_the_log(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.skill("second/probe")
    configure(world, '[app.skills]\nenabled = true\ndirectories = ["./first", "./second", "~/third"]\n')
    missing = [str(world.project / "first"), str(world.home / "third")]
    said = ask(world, "list").stderr
    for path in missing:
        assert said.count(f"warning: {path}: the folder does not exist and was skipped") == 1
    monkeypatch.setattr(doctor, "_sandbox", lambda _: (doctor.Part("sandbox", False, "not tried"), []))
    report = re.findall(r"root-missing\]: .*\n  --> (.*)\n", ask(world, "doctor").stdout)
    assert sorted(os.path.join(world.project, path) for path in report) == sorted(missing)
    with caplog.at_level(logging.WARNING, "metier"):
        app = App(world.project, home=world.home, store="memory:")
        with TestClient(build(app, watch=False), base_url=HOST) as client:
            pages = [client.get("/skills").text for _ in range(3)]
            app.session().system_prompt()
        app.close()
    for shown in pages:
        assert shown.count("the folder does not exist and was skipped") == 2
        assert "<bdi>first</bdi>" in shown
        assert "<bdi>~/third</bdi>" in shown
    logged = [line for line in caplog.messages if "root-missing" in line]
    assert sorted(line.split(": ")[0] for line in logged) == sorted(missing)


@pytest.mark.behaviour("K-007", "K-008", "N-109")
def test_the_page_says_that_skills_are_read_once_where_another_host_has_a_button(world: World) -> None:
    world.skill(".skills/probe")
    world.skill(".skills/broken", text="no frontmatter")
    world.skill(".agents/skills/other")

    def pages(profile: str) -> str:
        app = App(world.project, home=world.home, profile=profile, settings={"enabled": True}, store="memory:")
        with TestClient(build(app, watch=False), base_url=HOST, follow_redirects=True) as client:
            shown = client.get("/skills").text + client.get("/skills/broken").text
            world.skill(f".skills/late-{profile}")
            after = client.post("/skills/refresh", content="").text
        app.close()
        assert "late-remcochat" not in after
        return shown

    once = "This host reads its skills once, when it starts. Restart it to see changes."
    shown = pages("remcochat")
    assert once in shown
    assert "restart: this host reads its skills once" in shown
    assert "rescan" not in shown.lower()
    assert once not in pages("standard")
    assert ">Rescan</button>" in pages("standard")


@pytest.mark.behaviour("K-022", "N-111")
def test_the_listing_names_the_folder_that_a_skill_was_found_in(world: World) -> None:
    world.skill(".skills/one")
    world.skill("~/.remcochat/skills/two")
    world.skill("~/.remcochat/skills/one")
    configure(world, "[app.skills]\nenabled = true\n")
    listed = json.loads(ask(world, "list", "--json").stdout)
    folders = {skill["name"]: skill["source_dir"] for skill in listed["skills"]}
    home = str(world.home / ".remcochat/skills")
    assert folders == {"one": str(world.project / ".skills"), "two": home}
    assert [lost["source_dir"] for lost in listed["shadowed"]] == [home]
    app = App(world.project, home=world.home, store="memory:")
    with TestClient(build(app, watch=False), base_url=HOST) as client:
        seen = {skill["name"]: skill["source_dir"] for skill in client.get("/api/skills").json()["skills"]}
        collision = re.sub(r"<[^>]+>", "", client.get("/skills?kind=shadowed").text)
    app.close()
    assert seen == {"one": ".skills", "two": "~/.remcochat/skills"}, "a browser is shown no path of the host"
    assert ".skills/one/SKILL.md" in collision
    assert "~/.remcochat/skills/one/SKILL.md" in collision


@pytest.mark.behaviour("K-013", "K-021")
def test_collisions_and_invalid_skills_are_logged_and_listed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    winner = world.skill(".skills/pdf", description="The one that counts.")
    loser = world.skill(".agents/skills/pdf", description="The other one.")
    broken = world.skill(".skills/broken", name="Not_This")
    configure(world, "[app.skills]\nenabled = true\n")
    with caplog.at_level(logging.WARNING, "metier"):
        skills = App(world.project, home=world.home, store="memory:").skills()
    assert [skill.name for skill in skills] == ["pdf"]
    assert any(str(winner) in line and str(loser) in line for line in caplog.messages)
    assert any(str(broken) in line and "name" in line for line in caplog.messages)
    listed = json.loads(ask(world, "list", "--json").stdout)
    assert [(s["name"], s["path"], s["shadowed_by"]) for s in listed["shadowed"]] == [("pdf", str(loser), str(winner))]
    assert {d["path"] for d in listed["diagnostics"] if d["severity"] == "error"} == {str(broken)}
