"""Names of earlier versions in files of users and on command lines: a warning or an error with what to do instead."""

import json
from pathlib import Path

import pytest

from calling import Run, caller
from metier.hosts.removed import removed
from worlds import World


@pytest.fixture
def run(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    world.skill(".agents/skills/one", body="BODY")
    return caller(world, capsys, monkeypatch)


def write(world: World, text: str, name: str = "config.toml") -> Path:
    file = world.home / ".config/metier" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def toml(key: str) -> str:
    table, _, last = key.rpartition(".")
    return f"[{table}]\n{last} = true\n" if table else f"{last} = true\n"


@pytest.mark.parametrize("key", removed("settings"))
def test_a_setting_that_is_gone_is_a_warning_and_the_rest_of_the_file_holds(world: World, run: Run, key: str) -> None:
    file = write(world, f"store_days = 7\n{toml(key)}")
    listed = run("list", "--json")
    (note,) = (one for one in listed.json["diagnostics"] if one["code"] == "setting-removed")
    assert (listed.code, note["severity"], note["path"], note["line"]) == (0, "warning", str(file), 3)
    assert (key in note["message"], note["hint"]) == (True, removed("settings")[key])
    assert world.discover().settings.store_days == 7
    assert "BODY" in run("load", "one").out


@pytest.mark.parametrize("key", removed("settings"))
def test_also_in_a_profile_and_in_a_table_for_one(world: World, run: Run, key: str) -> None:
    profile = write(world, f'extends = "standard"\n{toml(key)}', "own.toml")
    notes = run("list", "--json", "--profile", str(profile)).json["diagnostics"]
    assert [one["path"] for one in notes if one["code"] == "setting-removed"] == [str(profile)]
    config = write(world, f"[profile.standard.{toml(key)[1:]}")
    notes = run("list", "--json").json["diagnostics"]
    assert [one["path"] for one in notes if one["code"] == "setting-removed"] == [str(config)]


@pytest.mark.parametrize("tool", removed("tools"))
@pytest.mark.parametrize("file", ["config.toml", "permissions.toml"])
def test_a_rule_about_a_tool_that_is_gone_is_dropped_and_the_others_hold(
    world: World, run: Run, tool: str, file: str
) -> None:
    rules = f'deny = [{{tool = "{tool}"}}, {{tool = "skill_load", skill_name = "one"}}]\n'
    write(world, rules if file == "permissions.toml" else f"[permissions]\n{rules}", file)
    done = run("load", "one")
    assert (done.code, "BODY" in done.out) == (3, False)
    notes = run("list", "--json").json["diagnostics"]
    (note,) = (one for one in notes if one["code"] == "rule-dropped")
    assert removed("tools")[tool] in note["message"]
    assert tool in note["message"]


@pytest.mark.parametrize("command", removed("commands"))
def test_a_command_that_is_gone_names_what_to_use(run: Run, command: str) -> None:
    done = run(*command.split()[1:], "x")
    assert (done.code, done.out) == (2, "")
    said = f"Error: there is no command {command.split()[-1]!r} any more: {removed('commands')[command]}.\n"
    assert done.err.endswith(said)


@pytest.mark.parametrize("option", removed("options"))
def test_an_option_that_is_gone_names_what_to_use(run: Run, option: str) -> None:
    done = run(*option.split()[1:])
    assert (done.code, done.out) == (2, "")
    said = f"there is no option {option.split()[-1]} any more: {removed('options')[option]}."
    assert done.err.endswith(f"Error: {said}\n")
    (line,) = run(*option.split()[1:], "--json").err.splitlines()
    assert json.loads(line)["error"]["message"] == said
