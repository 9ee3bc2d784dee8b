"""`metier install` as a user calls it."""

import json
import shutil
from pathlib import Path

import pytest

from bench.attack.hostile import tarred, zipped
from calling import Run, caller
from metier.sources.install.fetch import INDEX
from parts import needs
from sources.install.skillsite import Site
from terminals import Terminal
from worlds import World

pytest_plugins = ["sources.install.install_fixtures"]


@pytest.fixture
def run(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return caller(world, capsys, monkeypatch)


@pytest.mark.behaviour("R-051", "N-085")
def test_the_command_refuses_too_whatever_was_answered_beforehand(world: World, run: Run, site: Site) -> None:
    site.offer("probe", zipped())
    shown = run("install", site.url, "probe", "--yes")
    assert (shown.code, site.connections) == (3, 0)
    assert 'tool = "install"' in shown.err
    assert not (world.home / ".agents").exists()


def test_a_project_cannot_open_installs_for_its_user(world: World, run: Run, site: Site) -> None:
    site.offer("probe", zipped())
    (world.project / ".metier").mkdir()
    (world.project / ".metier/config.toml").write_text('[permissions]\nallow = [{ tool = "install" }]\n')
    assert run("trust").code == 0
    assert (run("install", site.url, "probe", "--yes").code, site.connections) == (3, 0)


def test_the_command_shows_what_it_is_installs_and_verifies(world: World, run: Run) -> None:
    world.skill("probe", description="Probes.", files={"scripts/x.sh": "x"})
    shown = run("install", "./probe", "--yes")
    assert shown.code == 0
    for part in ("Probes.", "scripts/x.sh  (executable)", "sha256:", "installed probe in"):
        assert part in shown.out
    unchanged = "user: 1 in the lock file, 0 changed\nproject: 0 in the lock file, 0 changed\n"
    assert run("install", "--verify").out == unchanged
    (world.home / ".agents/skills/probe/new.md").write_text("x")
    changed = run("install", "--verify")
    assert (changed.code, changed.out) == (1, "user: probe: new.md was added\n")
    assert json.loads(run("install", "--verify", "--json").out)["unchanged"] is False
    assert run("install", "./probe", "--yes").code == 1
    told = json.loads(run("install", "./probe", "--yes", "--replace", "--json").out)
    assert (told["name"], told["replaced"]) == ("probe", True)
    assert told["left_out"] == []
    assert "skill_installed" in run("events", "--session", "installs").out
    assert run("replay").code == 2, "an install is not a session that can be replayed"


def test_verify_looks_at_the_skills_of_the_user_and_of_the_project(world: World, run: Run) -> None:
    for name in ("mine", "ours"):
        world.skill(name, files={"a.md": "a", "b.md": "b"})
    assert run("install", "./mine", "--yes").code == 0
    assert run("install", "./ours", "--yes", "--project").code == 0
    assert run("install", "--verify").code == 0

    shared = world.project / ".agents/skills/ours"
    (shared / "a.md").write_text("changed")
    (shared / "b.md").unlink()
    (shared / "c.md").write_text("new")
    of_project = "".join(
        f"project: ours: {told}\n" for told in ("a.md was changed", "b.md is missing", "c.md was added")
    )
    found = run("install", "--verify")
    assert (found.code, found.out) == (1, of_project)
    assert found.err == "user: 1 in the lock file, 0 changed\nproject: 1 in the lock file, 1 changed\n"
    only = run("install", "--verify", "--project")
    assert (only.code, only.out, only.err) == (1, of_project, "project: 1 in the lock file, 1 changed\n")
    only = run("install", "--verify", "--user")
    assert (only.code, only.out) == (0, "user: 1 in the lock file, 0 changed\n")

    (world.home / ".agents/skills/mine/a.md").write_text("changed")
    assert run("install", "--verify").out == f"user: mine: a.md was changed\n{of_project}"
    told = run("install", "--verify", "--json")
    assert (told.code, told.json["unchanged"]) == (1, False)
    listed = [(skill["scope"], skill["name"], skill["unchanged"]) for skill in told.json["skills"]]
    assert listed == [("user", "mine", False), ("project", "ours", False)]
    shutil.rmtree(shared)
    assert "project: ours: its folder is missing" in run("install", "--verify").out


def test_verify_of_a_project_in_the_home_folder_names_each_skill_once(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.skill("probe")
    assert run("install", "./probe", "--yes").code == 0
    (world.home / ".agents/skills/probe/new.md").write_text("x")
    monkeypatch.chdir(world.home)
    assert run("install", "--verify").out == "user: probe: new.md was added\n"


def test_the_command_says_what_it_leaves_out(world: World, run: Run) -> None:
    world.skill("probe", files={"lib/a.py": "a = 1", "lib/__pycache__/a.cpython-311.pyc": "x"})
    assert "not installed: lib/__pycache__\n" in run("install", "./probe", "--yes").out


def test_the_command_asks_and_without_anyone_to_ask_does_nothing(world: World, run: Run) -> None:
    world.skill("probe")
    assert run("install", "./probe").code == 2
    assert run("install").code == 2
    assert run("install", "./nothing", "--yes").code == 1
    assert run("install", "./probe", "--digest", "md5:1", "--yes").code == 2
    assert not (world.home / ".agents").exists()


@needs("tmux")
@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 3)])
def test_on_a_terminal_the_command_asks_before_it_connects_and_before_it_installs(
    world: World, site: Site, tmp_path: Path, answer: str, code: int
) -> None:
    site.offer("probe", zipped())
    config = world.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[permissions]\nask = [{ tool = "install" }]\n')
    terminal = Terminal(world, tmp_path / "tmux")
    try:
        terminal.run(f"metier install {site.url} probe; echo exit-$?", columns=120, rows=50)
        assert f"Connect to {site.url}{INDEX} to install the skill probe?" in terminal.until("[n]:")
        terminal.keys("y", "Enter")
        terminal.until("Install this skill?")
        terminal.keys(answer, "Enter")
        terminal.until(f"exit-{code}")
    finally:
        terminal.close()
    assert (world.home / ".agents/skills/probe").exists() is (answer == "y")


def test_a_site_works_from_the_command_where_a_rule_opens_it(world: World, run: Run, site: Site) -> None:
    site.offer("probe", tarred())
    config = world.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[permissions]\nallow = [{{ tool = "install", path = "{site.url}/*" }}]\n')
    assert run("install", site.url, "probe", "--yes", "-q").code == 0
    assert "probe" in run("list").out
