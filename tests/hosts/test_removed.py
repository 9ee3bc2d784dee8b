"""Names of earlier versions in files of users and on command lines: a warning or an error with what to do instead."""

import json
from pathlib import Path
from typing import Any

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


def test_a_setting_that_is_gone_is_a_warning_and_the_rest_of_the_file_holds(world: World, run: Run) -> None:
    def warned(*arguments: str) -> list[dict[str, Any]]:
        diagnostics = run("list", "--json", *arguments).json["diagnostics"]
        return [one for one in diagnostics if one["code"] == "setting-removed"]

    for key, hint in removed("settings").items():
        file = write(world, f"store_days = 7\n{toml(key)}")
        (note,) = warned()
        assert (note["severity"], note["path"], note["line"]) == ("warning", str(file), 3)
        assert (key in note["message"], note["hint"]) == (True, hint)
        assert world.discover().settings.store_days == 7
        assert "BODY" in run("load", "one").out
        write(world, f"[profile.standard.{toml(key)[1:]}")
        assert [one["path"] for one in warned()] == [str(file)]
        file.unlink()
        profile = write(world, f'extends = "standard"\n{toml(key)}', "own.toml")
        assert [one["path"] for one in warned("--profile", str(profile))] == [str(profile)]


@pytest.mark.parametrize("tool", removed("tools"))
@pytest.mark.parametrize("file", ["config.toml", "permissions.toml"])
def test_a_rule_about_a_removed_tool_is_dropped_and_others_hold(world: World, run: Run, tool: str, file: str) -> None:
    rules = f'deny = [{{tool = "{tool}"}}, {{tool = "skill_load", skill_name = "one"}}]\n'
    write(world, rules if file == "permissions.toml" else f"[permissions]\n{rules}", file)
    done = run("load", "one")
    assert (done.code, "BODY" in done.out) == (3, False)
    notes = run("list", "--json").json["diagnostics"]
    (note,) = (one for one in notes if one["code"] == "rule-dropped")
    assert removed("tools")[tool] in note["message"]
    assert tool in note["message"]


def test_a_command_and_an_option_that_are_gone_name_what_to_use(run: Run) -> None:
    for kind in ("commands", "options"):
        for name, instead in removed(kind).items():
            words = name.split()
            done = run(*words[1:], *(["x"] if kind == "commands" else []))
            assert (done.code, done.out) == (2, "")
            assert done.err.rstrip().endswith(f"any more: {instead}.")
            assert words[-1] in done.err
            if kind == "options":
                (line,) = run(*words[1:], "--json").err.splitlines()
                assert json.loads(line)["error"]["message"].endswith(f"any more: {instead}.")
