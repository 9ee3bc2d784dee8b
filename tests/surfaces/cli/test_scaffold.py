"""`init`, `new` and `install`: what they create is valid, is named, and never replaces anything."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from bench.attack.hostile import tarred, zipped
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


def test_a_project_gets_the_folder_and_a_configuration_and_says_so(world: World, run: Run) -> None:
    result = run("new", "--project")
    assert result.code == 0
    assert result.out.splitlines()[:2] == ["created .agents/skills", "created .metier/config.toml"]
    assert (world.project / ".agents/skills").is_dir()
    assert settings.resolve(world.project, home=world.home).origins == {}, "every line is a comment"


def test_preparing_a_project_again_changes_nothing(world: World, run: Run) -> None:
    run("new", "--project")
    (world.project / ".metier/config.toml").write_text("# mine\n")
    before = everything(world.project)
    shown = run("new", "--project", "--json").json
    assert everything(world.project) == before
    assert shown["made"] == []
    assert [os.path.relpath(path, world.project) for path in shown["kept"]] == [".agents/skills", ".metier/config.toml"]


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


def test_a_project_prepared_for_a_host_has_the_folder_that_the_host_searches(world: World, run: Run) -> None:
    run("new", "--project", "--profile", "claude-code")
    assert (world.project / ".claude/skills").is_dir()
    assert settings.resolve(world.project, home=world.home).profile.name == "claude-code"


def test_from_a_folder_below_the_project_is_prepared(world: World, run: Run) -> None:
    below = world.project / "a/b"
    below.mkdir(parents=True)
    run("new", "--project", "--cwd", str(below))
    assert (world.project / ".agents/skills").is_dir()
    assert not (below / ".agents").exists()


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


@pytest.mark.parametrize("host", [name for name in BUILT_IN if name != "remcochat"])
def test_a_new_skill_lies_where_the_host_finds_it(world: World, run: Run, host: str) -> None:
    run("new", "one", "--profile", host)
    assert [skill.name for skill in world.discover(host)] == ["one"]


def test_a_new_skill_for_the_user_lies_in_the_home(world: World, run: Run) -> None:
    run("new", "one", "--user", "--home", str(world.home))
    assert (world.home / ".agents/skills/one/SKILL.md").is_file()
    result = run("new", "one", "--user", "--profile", "mycodeagent")
    assert (result.code, "--in DIR" in result.err) == (2, True)


@pytest.mark.parametrize(
    "description",
    ["Plain words.", 'Says "quoted": # and: more', "- a list?", "日本語 \u202e hidden \x1b[31m", "{a: b}", "@x *y &z"],
)
def test_a_description_of_any_kind_is_kept_and_valid(world: World, run: Run, description: str) -> None:
    assert run("new", "one", "--description", description).code == 0
    found = run("validate", "--strict", ".agents/skills/one", "--json").json["skills"][0]["diagnostics"]
    assert [d["code"] for d in found if d["severity"] == "error"] == []
    expected = " ".join(text.remove_invisible(description).split())
    assert world.discover()["one"].description == expected


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("PDF Report", "try pdf-report"),
        ("a--b", "try a-b"),
        ("-x-", "try x"),
        ("../evil", "try evil"),
        ("größe", "try groe"),
        ("x" * 65, "try " + "x" * 64),
        ("", "such as"),
        ("日本", "such as"),
        (".", "such as"),
        ("a\x1b[31m", "try a-31m"),
    ],
)
def test_a_bad_name_is_refused_with_a_better_one(world: World, run: Run, name: str, says: str) -> None:
    before = everything(world.project.parent)
    result = run("new", "--", name)
    assert (result.code, result.out) == (2, "")
    assert says in result.err
    assert "\x1b" not in result.err
    assert everything(world.project.parent) == before


def test_nothing_that_is_there_is_overwritten(world: World, run: Run) -> None:
    world.skill(".agents/skills/one", body="mine\n")
    (world.project / ".agents/skills/two").symlink_to("/nowhere")
    before = everything(world.project)
    for name in ("one", "two"):
        result = run("new", name)
        assert (result.code, result.out) == (1, "")
        assert "nothing was changed" in result.err
    assert everything(world.project) == before


def test_a_folder_that_cannot_be_written_is_one_line(world: World, run: Run) -> None:
    (world.project / "file").write_text("x")
    result = run("new", "one", "--in", "file")
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert "cannot be written" in result.err


def test_the_template_has_no_sentence_left_to_fill_in_but_the_description() -> None:
    assert "TODO" not in "".join(new.template().values())


def test_two_new_skills_of_one_name_at_once_are_one(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("new", "one").code == 0
    file = world.project / ".agents/skills/one/SKILL.md"
    file.write_text("written by the other")
    monkeypatch.setattr(new.os.path, "lexists", lambda path: False)  # it looked before the other one created it
    late = run("new", "one")
    monkeypatch.undo()
    assert (late.code, late.out) == (1, "")
    assert "already exists; nothing was changed" in late.err
    assert file.read_text() == "written by the other"


# --- install ---


@pytest.mark.system
@pytest.mark.behaviour("R-051", "N-085")
def test_the_command_refuses_too_whatever_was_answered_beforehand(world: World, run: Run, site: Site) -> None:
    site.offer("probe", zipped())
    shown = run("install", site.url, "probe", "--yes")
    assert (shown.code, site.connections) == (3, 0)
    assert 'tool = "install"' in shown.err
    assert not (world.home / ".agents").exists()


@pytest.mark.system
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


@pytest.mark.system
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


@pytest.mark.system
def test_a_site_works_from_the_command_where_a_rule_opens_it(world: World, run: Run, site: Site) -> None:
    site.offer("probe", tarred())
    config = world.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[permissions]\nallow = [{{ tool = "install", path = "{site.url}/*" }}]\n')
    assert run("install", site.url, "probe", "--yes", "-q").code == 0
    assert "probe" in run("list").out
