"""`init`, `new` and `install`: what they create is valid, is named, and never replaces anything."""

import contextlib
import json
import os
import re
from pathlib import Path

import pytest

from bench.attack.hostile import zipped
from calling import Run
from metier import Skills
from metier.authoring import new
from metier.files import text
from metier.hosts import settings
from metier.hosts.profiles import BUILT_IN
from metier.sources.install.fetch import INDEX
from parts import needs
from sources.install.skillsite import Site
from terminals import Terminal
from worlds import World

pytest_plugins = ["sources.install.install_fixtures"]


def everything(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


# --- new --project


def test_a_project_gets_the_folder_and_a_configuration_once(world: World, run: Run) -> None:
    below = world.project / "a/b"
    below.mkdir(parents=True)
    result = run("new", "--project", "--cwd", str(below))
    assert result.code == 0
    made = [world.project / ".agents/skills", world.project / ".metier/config.toml"]
    assert [made[0].is_dir(), made[1].is_file(), (below / ".agents").exists()] == [True, True, False]
    assert settings.resolve(world.project, home=world.home).origins == {}, "every line is a comment"
    made[1].write_text("# mine\n")
    before = everything(world.project)
    shown = run("new", "--project", "--json").json
    assert everything(world.project) == before
    assert (shown["made"], shown["kept"]) == ([], [str(path) for path in made])


def test_a_project_prepared_for_a_host_has_the_folder_that_the_host_searches(world: World, run: Run) -> None:
    run("new", "--project", "--profile", "claude-code")
    assert (world.project / ".claude/skills").is_dir()
    assert settings.resolve(world.project, home=world.home).profile.name == "claude-code"


def test_every_line_of_the_configuration_holds_when_it_is_uncommented(world: World, run: Run) -> None:
    run("new", "--project")
    file = world.project / ".metier/config.toml"
    offered = re.findall(r"^# ((?:\w[\w.]* = |\[).*)$", file.read_text(), re.MULTILINE)
    assert len(offered) >= 5
    file.write_text("\n".join(offered))
    run("trust")
    found = settings.resolve(world.project, home=world.home)
    assert {"profile", "filters.ignore", "prompt.max_chars", "custom_directories", "permissions.deny"} <= set(
        found.origins
    )


# --- new


def test_a_new_skill_is_valid_but_for_its_description_and_is_found(world: World, run: Run) -> None:
    result = run("new", "pdf-report")
    assert result.code == 0
    assert "created .agents/skills/pdf-report/SKILL.md" in result.out
    shown = run("validate", "--strict", "--ascii", ".agents/skills/pdf-report", "--json").json["skills"][0]
    assert [d["code"] for d in shown["diagnostics"]] == ["description-placeholder"], "the author has one thing to write"
    skill = world.discover()["pdf-report"]
    session = Skills.discover(world.project, home=world.home).session()
    assert set(session.load("pdf-report").files) == {"references/guide.md", "scripts/example.py"}
    assert os.access(Path(skill.dir) / "scripts/example.py", os.X_OK)
    assert run("check", ".agents/skills/pdf-report", "--json").code == 0, "no host rejects it"


def test_a_new_skill_lies_where_the_host_finds_it(world: World, run: Run) -> None:
    for number, host in enumerate(name for name in BUILT_IN if name != "remcochat"):
        run("new", f"one-{number}", "--profile", host)
        assert f"one-{number}" in [skill.name for skill in world.discover(host)], host
    run("new", "one", "--user", "--home", str(world.home))
    assert (world.home / ".agents/skills/one/SKILL.md").is_file()
    result = run("new", "one", "--user", "--profile", "mycodeagent")
    assert (result.code, "--in DIR" in result.err) == (2, True)


def test_a_description_of_any_kind_is_kept_and_valid(world: World, run: Run) -> None:
    for number, description in enumerate(
        ('Says "quoted": # and: more', "- a list?", "日本語 \u202e hidden \x1b[31m", "{a: b}", "@x *y &z")
    ):
        name = f"one-{number}"
        assert run("new", name, "--description", description).code == 0
        found = run("validate", "--strict", f".agents/skills/{name}", "--json").json["skills"][0]["diagnostics"]
        assert [d["code"] for d in found if d["severity"] == "error"] == [], description
        assert world.discover()[name].description == " ".join(text.remove_invisible(description).split())


def test_a_bad_name_is_refused_with_a_better_one(world: World, run: Run) -> None:
    before = everything(world.project.parent)
    for name, says in {
        "PDF Report": "try pdf-report",
        "a--b": "try a-b",
        "-x-": "try x",
        "../evil": "try evil",
        "größe": "try groe",
        "x" * 65: "try " + "x" * 64,
        "": "such as",
        "日本": "such as",
        ".": "such as",
        "a\x1b[31m": "try a-31m",
    }.items():
        result = run("new", "--", name)
        assert (result.code, result.out, says in result.err, "\x1b" in result.err) == (2, "", True, False), name
    assert everything(world.project.parent) == before


def test_nothing_that_is_there_is_overwritten(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    world.skill(".agents/skills/one", body="mine\n")
    (world.project / ".agents/skills/two").symlink_to("/nowhere")
    (world.project / "file").write_text("x")
    before = everything(world.project)
    for line, code in (("one", 1), ("two", 1), ("three --in file", 2)):
        result = run("new", *line.split())
        assert (result.code, result.out, result.err.count("\n")) == (code, "", 1), line
    monkeypatch.setattr(new.os.path, "lexists", lambda path: False)  # it looked before another one created it
    late = run("new", "one")
    monkeypatch.undo()
    assert (late.code, "already exists; nothing was changed" in late.err) == (1, True)
    assert everything(world.project) == before


# --- install ---


@pytest.mark.system
@pytest.mark.behaviour("R-051", "N-085")
def test_the_command_refuses_too_whatever_was_answered_beforehand(world: World, run: Run, site: Site) -> None:
    site.offer("probe", zipped())
    shown = run("install", site.url, "probe", "--yes")
    assert (shown.code, 'tool = "install"' in shown.err) == (3, True)
    world.configure('[permissions]\nallow = [{ tool = "install" }]\n', trusted=False)
    assert run("trust").code == 0
    assert run("install", site.url, "probe", "--yes").code == 3, "a project cannot open installs for its user"
    assert site.connections == 0
    assert not (world.home / ".agents").exists()


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


def test_verify_looks_at_the_skills_of_the_user_and_of_the_project(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mine", "ours"):
        world.skill(name, files={"a.md": "a", "b.md": "b"})
    assert run("install", "./mine", "--yes").code == 0
    assert run("install", "./ours", "--yes", "--project").code == 0
    assert run("install", "--verify").code == 0
    (world.project / ".agents/skills/ours/a.md").write_text("changed")
    told = "project: ours: a.md was changed\n"
    of_user, of_project = "user: 1 in the lock file, 0 changed\n", "project: 1 in the lock file, 1 changed\n"
    assert run("install", "--verify") == (1, told, of_user + of_project)
    assert run("install", "--verify", "--project") == (1, told, of_project)
    assert run("install", "--verify", "--user")[:2] == (0, of_user)
    as_json = run("install", "--verify", "--json")
    listed = [(skill["scope"], skill["name"], skill["unchanged"]) for skill in as_json.json["skills"]]
    assert (as_json.code, listed) == (1, [("user", "mine", True), ("project", "ours", False)])
    (world.home / ".agents/skills/mine/a.md").write_text("changed")
    monkeypatch.chdir(world.home)  # a project in the home folder names each skill once
    assert run("install", "--verify").out == "user: mine: a.md was changed\n"


def test_the_command_says_what_it_leaves_out_and_without_anyone_to_ask_does_nothing(world: World, run: Run) -> None:
    world.skill("probe", files={"lib/a.py": "a = 1", "lib/__pycache__/a.cpython-311.pyc": "x"})
    for line, code in (("./probe", 2), ("", 2), ("./nothing --yes", 1), ("./probe --digest md5:1 --yes", 2)):
        assert run("install", *line.split()).code == code, line
    assert not (world.home / ".agents").exists()
    assert "not installed: lib/__pycache__\n" in run("install", "./probe", "--yes").out


@pytest.mark.system
@needs("tmux")
@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 3)])
def test_on_a_terminal_the_command_asks_before_it_connects_and_before_it_installs(
    world: World, site: Site, tmp_path: Path, answer: str, code: int
) -> None:
    site.offer("probe", zipped())
    world.configure_user('[permissions]\nask = [{ tool = "install" }]\n')
    with contextlib.closing(Terminal(world, tmp_path / "tmux")) as terminal:
        terminal.run(f"metier install {site.url} probe; echo exit-$?", columns=120, rows=50)
        shown = terminal.until("[n]:")
        assert f"Connect to {site.url}{INDEX} to install the skill probe?" in shown
        assert "a = always" not in shown
        terminal.keys("a", "Enter")  # a network is asked for with yes and no only
        terminal.until("[n]: a\nAllow it?")
        terminal.keys("y", "Enter")
        terminal.until("Install this skill?")
        terminal.keys(answer, "Enter")
        terminal.until(f"exit-{code}")
    assert (world.home / ".agents/skills/probe").exists() is (answer == "y")
