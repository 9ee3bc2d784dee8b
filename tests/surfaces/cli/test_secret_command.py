"""`metier secret`: values come from a prompt or standard input, and are never shown."""

import contextlib
import io
import json
import sys

import pytest

from calling import Run
from parts import needs
from terminals import Terminal
from worlds import World

VALUE = "ghp_0123456789abcdef"


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{VALUE}\r\n".encode())))


@pytest.mark.system
@pytest.mark.usefixtures("pipe")
def test_a_value_is_read_from_standard_input_and_never_shown(world: World, run: Run) -> None:
    result = run("secret", "set", "GITHUB_TOKEN", "--json")
    assert result.code == 0
    assert {key: type(value) for key, value in result.json.items()} == dict.fromkeys(
        ("name", "place", "where", "why"), str
    )
    assert result.json["place"] == "file"
    folder = world.home / ".config/metier/secrets"
    assert (folder / "GITHUB_TOKEN.secret").read_text() == VALUE
    for line in (["secret", "list"], ["secret", "list", "--json"], ["policy", "list"], ["doctor"]):
        shown = run(*line)
        assert VALUE not in shown.out + shown.err
    assert "GITHUB_TOKEN  file     no skill" in run("secret", "list").out
    assert f"new secrets are kept in {folder}, because" in run("secret", "list").out


def test_a_value_on_the_command_line_is_refused_and_not_repeated(run: Run) -> None:
    for line in (["GITHUB_TOKEN", VALUE], [VALUE + "-x"], ["GITHUB_TOKEN", VALUE, "--json"]):
        result = run("secret", "set", *line)
        assert (result.code, result.out) == (2, "")
        assert VALUE not in result.err
    assert "`metier secret set GITHUB_TOKEN`, which asks for it" in run("secret", "set", "GITHUB_TOKEN", VALUE).err


@pytest.mark.system
@needs("tmux")
def test_a_prompt_does_not_echo(world: World) -> None:
    with contextlib.closing(Terminal(world, world.home / "tmux")) as terminal:
        terminal.run("metier secret set GITHUB_TOKEN --in-file; echo ended $?")
        terminal.until("Value of GITHUB_TOKEN")
        terminal.keys(VALUE, "Enter")
        assert VALUE not in terminal.until("ended 0")
    assert (world.home / ".config/metier/secrets/GITHUB_TOKEN.secret").read_text() == VALUE


@pytest.mark.usefixtures("pipe")
def test_the_list_says_who_may_use_a_secret_and_whether_that_still_holds(world: World, run: Run) -> None:
    path = world.skill(".agents/skills/gh", files={"scripts/a.py": ""})
    unset = run("secret", "allow", "GITHUB_TOKEN", "gh")
    assert "GITHUB_TOKEN is not set yet; `metier secret set GITHUB_TOKEN` sets it" in unset.err
    assert "GITHUB_TOKEN  not set  gh" in run("secret", "list").out
    run("secret", "set", "GITHUB_TOKEN")
    assert run("secret", "list", "--json").json["secrets"] == [
        {"name": "GITHUB_TOKEN", "place": "file", "users": [{"skill": "gh", "holds": True, "why": ""}]}
    ]
    assert run("policy", "explain", "run_secret", "--skill", "gh", "--name", "GITHUB_TOKEN").out.startswith("allow:")
    assert run("policy", "explain", "run_secret", "--skill", "gh", "--name", "OTHER_KEY").code == 3
    (path.parent / "new.txt").write_text("x")
    assert "GITHUB_TOKEN  file     gh (its files changed since)" in run("secret", "list").out
    assert run("secret", "remove", "GITHUB_TOKEN", "--json").json == {
        "name": "GITHUB_TOKEN", "removed": True, "revoked": 1,
    }  # fmt: skip
    assert run("secret", "list", "--json").json["secrets"] == []
    assert run("secret", "allow", "GITHUB_TOKEN", "nobody").code == 1
    assert json.loads(run("policy", "list", "--json").out)["rules"] == []
