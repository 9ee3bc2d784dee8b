"""Codelia: a path in a message decides which skill is meant, and every mention reaches whoever asked."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from calling import Run, caller
from metier.app import App
from metier.replay import from_store, replay
from metier.surfaces.rpc import Dispatcher
from worlds import World

SPACED = "a place/.agents/skills/twin"


@pytest.fixture
def twins(world: World) -> list[Path]:
    """Three skills of one name, one of them in a folder with a space, and one of another name."""
    world.skill("a place/.agents/skills/solo", body="SOLO")
    return [
        world.skill(".agents/skills/twin", body="FIRST"),
        world.skill("~/.agents/skills/twin", body="SECOND"),
        world.skill(SPACED, body="THIRD"),
    ]


@pytest.fixture
def run(world: World, twins: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("HOME", str(world.home))
    called = caller(world, capsys, monkeypatch)
    monkeypatch.chdir(world.project / "a place")
    return called


def mentions(given: Any) -> list[str]:
    return [one["path"] for one in given["mentioned"]]


PATHS: dict[str, list[int]] = {
    "use $twin at {1}": [1],
    "use $twin at {0}.": [0],
    "use $twin at {1folder}/, please": [1],
    "[$twin]({0}) now": [0],
    "[$twin](<{2}>) now": [2],
    "$twin at ../.agents/skills/twin/SKILL.md": [0],
    "$twin at ../.agents/./skills/twin": [0],
    "don't guess: $twin is '~/.agents/skills/twin/SKILL.md'": [1],
    "$twin at `.agents/skills/twin`": [2],
    '$twin at "{2}"': [2],
    "don't use another $twin than '{2}'": [2],
    "Read {1} first, then {0}!": [1, 0],
    "follow ~/.agents/skills/twin": [1],
    "compare $twin at {0} with {1folder}": [0, 1],
}


@pytest.mark.behaviour("N-004", "N-005")
def test_a_path_decides_which_skill_is_meant(run: Run, twins: list[Path]) -> None:
    for text, meant in PATHS.items():
        message = text
        for number, path in enumerate(twins):
            message = message.replace(f"{{{number}folder}}", str(path.parent)).replace(f"{{{number}}}", str(path))
        shown = run("session", "invoke", message, "--profile", "codelia", "--json").json
        assert mentions(shown) == [str(twins[number]) for number in meant], message
        assert (shown["skill"], shown["message"]) == ("twin", message)
        assert (shown["ambiguous"], shown["choices"]) == ([], [])


@pytest.mark.behaviour("N-004", "N-005")
def test_a_path_of_anything_else_is_text_as_is_a_disabled_one(run: Run, world: World, twins: list[Path]) -> None:
    folder, off = str(twins[0].parent), world.skill("~/.agents/skills/off")
    assert run("disable", "off", "--profile", "codelia").code == 0
    for text in (
        "see /etc/passwd and https://example.org/twin and a/b, n/a, 1/2",
        f"what is in {folder}/references/a.md or {folder}s or {os.path.dirname(folder)}?",
        "SKILL.md, twin, ~, ~/, ., .., /, //",
        f"{folder}/../no-such/SKILL.md",
        f"use {off}",
    ):
        shown = run("session", "invoke", text, "--profile", "codelia")
        assert (shown.code, shown.err) == (1, "the message calls no skill\n"), text
    assert run("session", "invoke", f"use $twin at {off}", "--profile", "codelia").code == 1


@pytest.mark.behaviour("C-062", "N-006")
def test_an_ambiguous_name_is_never_guessed_and_every_caller_is_told(run: Run, world: World, twins: list[Path]) -> None:
    expected = [(str(path), scope) for path, scope in zip(twins, ("repo", "user", "repo"), strict=True)]
    app = App(world.project / "a place", home=world.home, profile="codelia", store="memory:")
    client = Dispatcher(app)

    def by_rpc(text: str) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": "session.invoke", "params": {"message": text}}
        return json.loads(client.handle(json.dumps(message)) or "")["result"]

    def by_command_line(text: str) -> Any:
        return run("session", "invoke", text, "--profile", "codelia", "--json").json

    for ask in (by_rpc, by_command_line):
        for text, clear in (("use $twin", []), ("use $twin and $solo, or $solo", ["solo"])):
            shown = ask(text)
            (choice,) = shown["choices"]
            assert choice["name"] == "twin"
            assert sorted((one["path"], one["scope"]) for one in choice["candidates"]) == sorted(expected)
            assert shown["ambiguous"] == [one["path"] for one in choice["candidates"]]
            assert [one["name"] for one in shown["mentioned"]] == clear
            assert (shown["skill"], shown["loaded"], shown["message"]) == (clear[0] if clear else None, None, text)
    several = by_rpc(f"$solo, then {twins[1]} and {twins[0]}")
    assert mentions(several) == [str(world.project / "a place/.agents/skills/solo/SKILL.md"), *map(str, twins[1::-1])]
    printed = run("session", "invoke", "use $twin", "--profile", "codelia")
    assert printed.code == 1
    assert printed.err.startswith("$twin is ambiguous; put one of these paths into the message:\n")
    for path, scope in expected:
        assert f"- {path} ({scope})\n" in printed.err
    assert replay(from_store(app.store, client.own or "")).identical


def test_under_another_profile_a_path_decides_only_beside_the_name(world: World, twins: list[Path]) -> None:
    opened = world.discover().session()
    shadowed = opened.invoke(f"use $twin at {twins[1]}")
    assert [skill.path for skill in shadowed.mentioned] == [str(twins[1])]
    assert shadowed.loaded is not None
    assert "SECOND" in shadowed.text
    assert opened.invoke(f"fix a word in {twins[1]}").skill is None
    clear = world.skill("~/.agents/skills/clear")
    opened.skills.refresh()
    assert [skill.name for skill in opened.invoke(f"$clear, and not {twins[1]}").mentioned] == ["clear"], clear
    both = world.discover(settings={"collisions": {"rule": "ambiguous"}}).session()
    assert both.invoke("/twin now").choices[0].name == "twin"
    called = both.invoke(f"/twin {twins[1]}")
    assert called.loaded is not None
    assert "SECOND" in called.text


@pytest.mark.behaviour("N-005")
def test_a_folder_is_known_by_its_real_path_and_by_the_way_it_was_found(world: World, tmp_path: Path) -> None:
    path = world.skill(".agents/skills/probe")
    way = tmp_path / "way"
    way.symlink_to(world.project)
    opened = world.discover("codelia", way).session()
    for folder in (path.parent, way / ".agents/skills/probe"):
        skill = opened.invoke(f"use {folder}").skill
        assert skill is not None, folder
