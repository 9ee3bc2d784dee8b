"""The record on the command line: events are shown, followed and moved, and sessions continue in other processes."""

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import forking
from calling import caller
from metier.record.store import canonical, open_store
from metier.surfaces.cli import cli
from worlds import World

Run = Callable[..., Result]


@pytest.fixture
def run(world: World) -> Run:
    """Run the command in this process. Tests that need isolation use `process`."""
    world.skill(".agents/skills/one", body="# One\n", files={"a.md": "a reference"})
    world.skill(".agents/skills/two", body="# Two\n")

    def call(*arguments: str, input: str | None = None) -> Result:  # noqa: A002 - click's name
        given = [*arguments, "--cwd", str(world.project), "--home", str(world.home)]
        return CliRunner().invoke(cli, given, input=input)

    return call


def process(world: World, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, "HOME": str(world.home), **env}
    command = [*forking.METIER, *arguments]
    return forking.run(command, cwd=world.project, env=surroundings, capture_output=True, text=True)


def default_store(world: World) -> Path:
    return world.home / ".local/share/metier/metier.db"


def test_the_trail_is_kept_in_the_data_folder_and_shown_as_json_lines(world: World, run: Run) -> None:
    run("load", "one")
    run("read", "one", "a.md")
    lines = run("events", "--json").stdout.splitlines()
    with open_store(str(default_store(world))) as store:
        assert lines == [canonical(frame) for frame in store.read()]
    kinds = [json.loads(line)["type"] for line in lines]
    assert kinds.count("session_started") == 2
    assert {json.loads(line)["surface"] for line in lines if "surface" in json.loads(line)} == {"cli"}


def test_the_data_folder_follows_the_desktop_standard(
    world: World, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(world.project)
    assert CliRunner().invoke(cli, ["load", "one"]).exit_code == 0
    assert (tmp_path / "data/metier/metier.db").exists()
    assert not default_store(world).exists()


def test_events_are_filtered_by_type_session_and_number(run: Run) -> None:
    run("load", "two")
    run("load", "one", "--session", "s")
    of_one = "session_started skill_catalog_updated session_called skill_loaded skill_invoked session_returned"
    for filters, kinds in {
        "--type skill_loaded": "skill_loaded skill_loaded",
        "--type skill_loaded --limit 1": "skill_loaded",
        "--type skill_loaded --type skill_invoked --session s": "skill_loaded skill_invoked",
        "--session s": of_one,
        "--type none": "",
        "--limit 2": "skill_invoked session_returned",
    }.items():
        lines = run("events", "--json", *filters.split()).stdout.splitlines()
        assert [json.loads(line)["type"] for line in lines] == kinds.split(), filters


def test_people_see_a_line_for_each_event_without_digests(run: Run, world: World) -> None:
    empty = run("events")
    assert (empty.exit_code, empty.stdout, "no events yet" in empty.stderr) == (0, "", True)
    assert run("events", "-q").stderr == ""
    run("load", "one", "--args", "\x1b[31mred " + "long " * 60, "--session", "s")
    run("read", "one", "../x", "--session", "s")
    shown = run("events").stdout
    lines = shown.splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d +\d+  \w|\d{4}-", line) for line in lines)
    assert "long " * 60 in shown, "a pipe gets everything"
    assert not any(hidden in shown for hidden in ("\x1b", "sha256:"))
    assert [line.endswith("session s") for line in lines].count(True) == 1
    assert any("skill_resource_refused one, path=../x, reason=traversal" in line for line in lines)


@pytest.mark.system
def test_following_shows_every_event_of_another_process_once(world: World, run: Run) -> None:
    run("load", "one", "--session", "before")
    follower = forking.start(
        [*forking.METIER, "events", "--follow", "--json"],
        cwd=world.project,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(world.home)},
    )
    stop = threading.Timer(60, follower.kill)  # a follower that prints too little must not block the tests
    stop.start()
    try:
        assert follower.stdout is not None
        seen = [json.loads(follower.stdout.readline()) for _ in range(6)]
        for name in ("one", "two"):
            assert process(world, "load", name, "--session", "during").returncode == 0
        while len([frame for frame in seen if frame["type"] == "session_returned"]) < 3:
            seen.append(json.loads(follower.stdout.readline()))
    finally:
        follower.kill()
        follower.communicate()
        stop.cancel()
    with open_store(str(default_store(world))) as store:
        assert seen == store.read()


# --- the store ---


def test_sessions_are_counted_moved_and_pruned_whole(run: Run, tmp_path: Path) -> None:
    def stats(*place: str) -> dict[str, Any]:
        return json.loads(run("session", "store", "stats", "--json", *place).stdout)

    run("load", "one", "--session", "a")
    run("load", "two", "--session", "b")
    assert (stats()["sessions"], stats()["events"], [one["id"] for one in stats()["latest"]]) == (2, 12, ["b", "a"])
    shown = run("session", "store", "stats").stdout
    assert all(len(line) <= 80 for line in shown.splitlines() if not line.startswith("location"))

    exported = run("session", "store", "export", "--session", "a").stdout
    there = ("--store", f"sqlite://{tmp_path}/other.db")
    broken = "\n".join([*exported.splitlines()[:-2], "{"])
    assert run("session", "store", "import", *there, input=broken).exit_code == 1
    assert stats(*there)["events"] == 0
    for events in (6, 0):
        done = run("session", "store", "import", "--json", *there, input=exported).stdout
        assert json.loads(done)["events"] == events
    assert run("session", "store", "export", *there).stdout == exported
    assert run("replay", "a", *there).exit_code == 0
    assert run("events", "--session", "b", "--json", *there).stdout == ""

    for options, gone in (("--days 1", 0), ("--days 0 --keep b", 1)):
        assert json.loads(run("session", "store", "prune", *options.split(), "--json").stdout)["sessions"] == gone
    assert [one["id"] for one in stats()["latest"]] == ["b"]
    assert run("replay", "b").exit_code == 0


IN_A_SESSION = (
    "load one",
    "read one a.md",
    "prompt",
    "session tools",
    "session invoke /one",
    'session call skill_load {"name":"one"}',
)
NAMED = ("load one --session s", "load one --store /dev/null/x.db")
"""What the user names is never left out."""
OF_THE_STORE = ("events", "replay", "session store stats", "run one scripts/x.sh --yes")
WITHOUT = ("list", "search one", "validate .", "show one")


def test_a_store_that_cannot_be_used_stops_what_needs_it_unless_a_setting_says_otherwise(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (world.home / ".local").write_text("the data folder cannot be created")
    metier = caller(world, capsys, monkeypatch)
    for required, stopped, going_on in (
        ("true", (*IN_A_SESSION, *OF_THE_STORE), WITHOUT),
        ("false", (*NAMED, *OF_THE_STORE[:3]), (*IN_A_SESSION, *WITHOUT)),
    ):
        monkeypatch.setenv("METIER_STORE_REQUIRED", required)
        for line in stopped:
            done = metier(*line.split())
            assert (done.code, done.out, done.err.count("\n")) == (4, "", 1), line
            assert done.err.startswith("metier: "), line
        for line in going_on:
            done = metier(*line.split())
            assert (done.code, bool(done.out)) == (0, True), line
            assert done.err.startswith("warning: events are not kept: ") == (line not in WITHOUT), line
