"""A full disk: the message says so, which file, and what to do; nothing is damaged, and the command works with room."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import parts
from calling import Run
from forking import METIER
from store_trouble import fill
from worlds import World

pytest_plugins = ["store_fixtures"]

pytestmark = pytest.mark.system


@pytest.fixture
def world(world: World) -> World:
    world.skill(".agents/skills/pdf", files={"scripts/say.sh": "#!/bin/sh\necho said\n"})
    return world


def test_commands_say_that_the_disk_is_full_and_work_again_with_room(
    world: World, run: Run, small: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home = small / "home"
    home.mkdir()
    assert run("load", "pdf", "--session", "before", "--home", str(home)).code == 0
    fill(small)
    cases = {
        "load pdf --session before": ".local/share/metier/metier.db",
        "load pdf": ".local/share/metier/metier.db",
        "run --yes pdf scripts/say.sh": ".local/share/metier/metier.db",
        "new first --user": ".agents/skills/first/SKILL.md",
        "install .agents/skills/pdf --yes --store memory:": ".agents/skills/pdf",
        "disable pdf": ".config/metier/skills.json",
        "trust": ".config/metier/trust.json",
        "serve --port 0 --store memory:": ".config/metier/token",
    }
    for line, file in cases.items():
        said = run(*line.split(), "--home", str(home))
        path = str(home / file)
        told = f"metier: the disk is full: {path} cannot be written; free some space, then run the command again\n"
        assert (said.code, said.err) == (4, told), line
        (text,) = run(*line.split(), "--home", str(home), "--json").err.splitlines()
        assert json.loads(text)["error"] == {
            "code": "DISK_FULL",
            "message": told.removeprefix("metier: ").rstrip("\n"),
            "exit_code": 4,
            "path": path,
        }
    monkeypatch.setenv("METIER_STORE_REQUIRED", "false")
    assert run("load", "pdf", "--home", str(home)).code == 0, "where a setting says so, it goes on"
    assert "events are not kept" in caplog.text
    monkeypatch.delenv("METIER_STORE_REQUIRED")
    left = [file for _, _, files in os.walk(home) for file in files if file.startswith(".metier-")]
    assert left == [], "no temporary file is left"
    (small / "filler").unlink()
    for line in cases:
        can_run = not line.startswith("run") or not parts.no_sandbox()
        if can_run and not line.startswith("serve"):
            assert run(*line.split(), "--home", str(home)).code == 0, line
    assert run("replay", "before", "--home", str(home)).code == 0
    assert run("events", "--session", "before", "--home", str(home)).code == 0


def test_output_that_cannot_be_written_is_said(world: World, run: Run) -> None:
    run("load", "pdf")
    told = "the disk is full: standard output cannot be written; free some space, then run the command again"
    env = {"HOME": str(world.home), "PYTHONPATH": ":".join(sys.path)}
    for line in ("list", "list --json", "--help", "--json --version", "session store export"):
        with open("/dev/full", "w") as full:
            done = subprocess.run([*METIER, *line.split()], stdout=full, stderr=subprocess.PIPE, text=True, env=env)
        assert done.returncode == 4, line
        as_json = "--json" in line
        assert json.loads(done.stderr)["error"]["message"] == told if as_json else done.stderr == f"metier: {told}\n"


def test_closed_streams_are_no_error(world: World) -> None:
    metier = " ".join(f"'{part}'" for part in METIER)
    env = {"HOME": str(world.home), "PYTHONPATH": ":".join(sys.path), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["sh", "-c", f"{metier} load pdf <&- >&- 2>&-; {metier} events --json"],
        cwd=world.project,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "skill_loaded" in done.stdout
