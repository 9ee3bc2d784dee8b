"""The record on the command line: events are shown, followed and moved, and sessions continue in other processes."""

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import forking
from metier.record.state import fold
from metier.record.store import Frame, canonical, open_store
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


# --- events ---


def test_the_trail_is_kept_in_the_data_folder_and_shown_as_json_lines(world: World, run: Run) -> None:
    run("load", "one")
    run("read", "one", "a.md")
    lines = run("events", "--json").stdout.splitlines()
    with open_store(str(default_store(world))) as store:
        assert lines == [canonical(frame) for frame in store.read()]
    kinds = [json.loads(line)["type"] for line in lines]
    assert kinds.count("session_started") == 2
    assert {json.loads(line)["surface"] for line in lines if "surface" in json.loads(line)} == {"cli"}


@pytest.mark.system
def test_the_data_folder_follows_the_desktop_standard(world: World, run: Run, tmp_path: Path) -> None:
    done = process(world, "load", "one", XDG_DATA_HOME=str(tmp_path / "data"))
    assert done.returncode == 0
    assert (tmp_path / "data/metier/metier.db").exists()
    assert not default_store(world).exists()


@pytest.mark.parametrize(
    ("filters", "kinds"),
    [
        (("--type", "skill_loaded"), ["skill_loaded"] * 2),
        (("--type", "skill_loaded", "--limit", "1"), ["skill_loaded"]),
        (("--type", "skill_loaded", "--type", "skill_resource_read"), ["skill_loaded", "skill_loaded"]),
        (
            ("--session", "s"),
            [
                "session_started",
                "skill_catalog_updated",
                "session_called",
                "skill_loaded",
                "skill_invoked",
                "session_returned",
            ],
        ),
        (("--session", "s", "--type", "skill_loaded"), ["skill_loaded"]),
        (("--type", "none"), []),
        (("--limit", "2"), ["skill_invoked", "session_returned"]),
    ],
)
def test_events_are_filtered_by_type_session_and_number(run: Run, filters: tuple[str, ...], kinds: list[str]) -> None:
    run("load", "two")
    run("load", "one", "--session", "s")
    lines = run("events", "--json", *filters).stdout.splitlines()
    assert [json.loads(line)["type"] for line in lines] == kinds


def test_people_see_a_line_for_each_event_without_digests(run: Run, world: World) -> None:
    run("load", "one", "--args", "\x1b[31mred " + "long " * 60, "--session", "s")
    run("read", "one", "../x", "--session", "s")
    shown = run("events").stdout
    lines = shown.splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d +\d+  \w|\d{4}-", line) for line in lines)
    assert "long " * 60 in shown, "a pipe gets everything"
    assert "\x1b" not in shown
    assert "sha256:" not in shown
    assert lines[0].endswith("session s")
    assert [line.split()[2] for line in lines[1:4]] == ["session_started", "skill_catalog_updated", "session_called"]
    assert any("skill_loaded           one, path=" in line for line in lines)
    assert any("skill_resource_refused one, path=../x, reason=traversal" in line for line in lines)
    assert len([line for line in lines if "session s" in line]) == 1


def test_an_empty_trail_says_so_beside_the_answer(run: Run) -> None:
    done = run("events")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "no events yet" in done.stderr
    assert run("events", "-q").stderr == ""


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


# --- sessions in several processes ---


@pytest.mark.system
@pytest.mark.behaviour("C-074", "C-076")
def test_a_session_goes_on_in_the_next_process(world: World, run: Run) -> None:
    answers = [json.loads(process(world, "load", "one", "--session", "s", "--json").stdout) for _ in range(2)]
    assert [answer["already_loaded"] for answer in answers] == [False, True]
    assert answers[0]["ref"] in answers[1]["text"]
    other = json.loads(process(world, "load", "one", "--session", "other", "--json").stdout)
    assert other["already_loaded"] is False
    text = json.loads(
        process(
            world,
            "session",
            "call",
            "skill_output",
            json.dumps({"ref": answers[0]["ref"]}),
            "--session",
            "s",
            "--json",
        ).stdout
    )
    assert text["text"] == answers[0]["text"]
    lines = run("events", "--session", "s", "--json").stdout.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(len(lines)))
    assert run("replay", "s").stdout.endswith("identical, byte for byte\n")


@pytest.mark.system
@pytest.mark.behaviour("K-059", "K-060", "K-063")
def test_the_names_of_activated_skills_survive_a_restart_in_order_without_bodies(world: World, run: Run) -> None:
    world.skill(".skills/b", body="BODY-MARKER")
    world.skill(".skills/a", body="BODY-MARKER")
    given = ("--profile", "remcochat", "--session", "chat")
    for name in ("b", "a", "b"):
        done = process(
            world,
            "session",
            "call",
            "skills.activate",
            json.dumps({"name": name}),
            *given,
            METIER_ENABLED="true",
        )
        assert done.returncode == 0, done.stderr
    with open_store(str(default_store(world))) as store:
        frames = store.read("chat")
    assert read_names(frames) == ["b", "a"]
    assert "BODY-MARKER" not in str(frames)
    prompt = process(world, "prompt", "--full", *given, METIER_ENABLED="true").stdout
    assert prompt.index("b") < prompt.rindex("a")
    fresh = process(world, "prompt", "--full", "--profile", "remcochat", METIER_ENABLED="true").stdout
    assert len(fresh) < len(prompt)


def read_names(frames: list[Frame]) -> list[str]:
    return list(fold(frames).activated)


# --- the store ---


def test_stats_count_and_list_the_latest_sessions(run: Run) -> None:
    run("load", "one", "--session", "a")
    run("load", "two", "--session", "b")
    stats = json.loads(run("session", "store", "stats", "--json").stdout)
    assert stats["sessions"] == 2
    assert stats["events"] == 12
    assert [one["id"] for one in stats["latest"]] == ["b", "a"]
    shown = run("session", "store", "stats").stdout
    assert all(len(line) <= 80 for line in shown.splitlines() if not line.startswith("location"))
    assert "SESSION" in shown


def test_export_and_import_move_a_session_whole(run: Run, tmp_path: Path) -> None:
    run("load", "one", "--session", "a")
    run("load", "two", "--session", "b")
    exported = run("session", "store", "export", "--session", "a").stdout
    there = ("--store", f"sqlite://{tmp_path}/other.db")
    first = json.loads(run("session", "store", "import", "--json", *there, input=exported).stdout)
    again = json.loads(run("session", "store", "import", "--json", *there, input=exported).stdout)
    assert (first["events"], again["events"]) == (6, 0)
    assert run("session", "store", "export", *there).stdout == exported
    assert run("replay", "a", *there).exit_code == 0
    assert run("events", "--session", "b", "--json", *there).stdout == ""


def test_an_import_of_a_broken_file_changes_nothing(run: Run, tmp_path: Path) -> None:
    run("load", "one", "--session", "a")
    lines = run("session", "store", "export").stdout.splitlines()
    there = ("--store", f"sqlite://{tmp_path}/other.db")
    done = run("session", "store", "import", *there, input="\n".join([*lines[:-2], "{"]))
    assert done.exit_code == 1
    assert json.loads(run("session", "store", "stats", "--json", *there).stdout)["events"] == 0


def test_prune_removes_old_sessions_whole_and_keeps_those_named(run: Run) -> None:
    for name in ("a", "b"):
        run("load", "one", "--session", name)
    kept = json.loads(run("session", "store", "prune", "--days", "1", "--json").stdout)
    assert kept["sessions"] == 0
    gone = json.loads(run("session", "store", "prune", "--days", "0", "--keep", "b", "--json").stdout)
    assert gone["sessions"] == 1
    assert [one["id"] for one in json.loads(run("session", "store", "stats", "--json").stdout)["latest"]] == ["b"]
    assert run("replay", "b").exit_code == 0


# --- a store that cannot be used ---


@pytest.fixture
def no_store(world: World, run: Run) -> World:
    """A home whose data folder is a file, so that the store cannot be opened."""
    (world.home / ".local").write_text("")
    return world


IN_A_SESSION = [
    ("load", "one"),
    ("read", "one", "a.md"),
    ("prompt",),
    (
        "session",
        "tools",
    ),
    ("session", "invoke", "/one"),
    ("session", "call", "skill_load", '{"name": "one"}'),
]


@pytest.mark.system
@pytest.mark.parametrize("arguments", IN_A_SESSION)
def test_where_a_setting_says_so_a_command_goes_on_with_a_warning(no_store: World, arguments: tuple[str, ...]) -> None:
    done = process(no_store, *arguments, METIER_STORE_REQUIRED="false")
    assert done.returncode == 0
    assert done.stdout
    assert done.stderr.startswith("warning: events are not kept: ")
    assert "Traceback" not in done.stderr


@pytest.mark.system
@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        *((arguments, {}) for arguments in IN_A_SESSION),
        (("load", "one", "--session", "s"), {"METIER_STORE_REQUIRED": "false"}),
        (("load", "one", "--store", "/dev/null/x.db"), {"METIER_STORE_REQUIRED": "false"}),
        (("run", "one", "scripts/x.sh", "--yes"), {}),
        (("events",), {}),
        (("replay",), {}),
        (("session", "store", "stats"), {}),
    ],
)
def test_what_needs_the_store_stops_with_one_line(
    no_store: World, arguments: tuple[str, ...], env: dict[str, str]
) -> None:
    done = process(no_store, *arguments, **env)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("metier: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.system
@pytest.mark.parametrize("arguments", [("list",), ("search", "one"), ("validate", "."), ("show", "one")])
def test_what_keeps_no_events_needs_no_store(no_store: World, arguments: tuple[str, ...]) -> None:
    done = process(no_store, *arguments)
    assert done.returncode == 0
    assert "events" not in done.stderr
