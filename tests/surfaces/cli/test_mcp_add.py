"""`metier mcp add` and `remove`: the client's own command, or the entry and its file for a person."""

import contextlib
import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from calling import Run
from parts import needs
from terminals import Terminal
from worlds import World

LINE = ["metier", "mcp", "--profile", "codex"]
OWN: dict[str, tuple[str, list[str], list[str]]] = {
    # the program, and its words to add and to remove the server
    "claude-code": (
        "claude",
        ["mcp", "add", "--scope", "user", "skills", "--", *LINE],
        ["mcp", "remove", "--scope", "user", "skills"],
    ),
    "codex": ("codex", ["mcp", "add", "skills", "--", *LINE], ["mcp", "remove", "skills"]),
    "gemini-cli": (
        "gemini",
        ["mcp", "add", "--scope", "user", "skills", "metier", "--", *LINE[1:]],
        ["mcp", "remove", "--scope", "user", "skills"],
    ),
    "opencode": ("opencode", ["mcp", "add", "skills", "--", *LINE], []),
    "vscode": ("code", ["--add-mcp", json.dumps({"name": "skills", "command": "metier", "args": LINE[1:]})], []),
}
STDIO = {"type": "stdio", "command": "metier", "args": LINE[1:]}
BARE = {"command": "metier", "args": LINE[1:]}
BY_HAND: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    # the user's file, the project's, the key of the servers, the entry
    "claude-code": (".claude.json", ".mcp.json", "mcpServers", STDIO),
    "codex": (".codex/config.toml", ".codex/config.toml", "mcp_servers", BARE),
    "gemini-cli": (".gemini/settings.json", ".gemini/settings.json", "mcpServers", BARE),
    "opencode": (
        ".config/opencode/opencode.json",
        "opencode.json",
        "mcp",
        {"type": "local", "command": LINE, "enabled": True},
    ),
    "vscode": (".config/Code/User/mcp.json", ".vscode/mcp.json", "servers", STDIO),
    "cursor": (".cursor/mcp.json", ".cursor/mcp.json", "mcpServers", STDIO),
}


class Bin:
    """The only folder on PATH, with a `metier` and clients that write down how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        folder.mkdir()
        self.program("metier", "exit 0")

    def program(self, name: str, then: str = "exit 0") -> Path:
        file = self.folder / name
        file.write_text(f'#!/bin/sh\n{{ printf "%s\\0" "$PWD" "$HOME" "$@"; }} >"{self.log}"\n{then}\n')
        file.chmod(0o755)
        return file

    @property
    def heard(self) -> list[str]:
        """Where the client worked, its home and its words."""
        return self.log.read_text().split("\0")[:-1]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bin:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    made = Bin(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(made.folder))
    return made


@pytest.mark.system
def test_the_clients_own_command_is_run(world: World, run: Run, programs: Bin) -> None:
    for host, (program, added, removed) in OWN.items():
        file = programs.program(program, "echo it says so")
        done = run("mcp", "add", host, "--profile", "codex", "--yes")
        assert (done.code, programs.heard[2:]) == (0, added), host
        assert f"does this itself: {file} " in done.out
        shown = run("mcp", "add", host, "--profile", "codex", "--yes", "--json").json
        assert (shown["command"], shown["ran"]) == ([str(file), *added], True)
        programs.log.unlink()
        done = run("mcp", "remove", host, "--yes")
        assert done.code == 0
        if removed:
            assert programs.heard[2:] == removed
        else:
            own, _, section, _ = BY_HAND[host]
            assert done.out == f"Delete {section}.skills from {world.home / own}.\n"
            assert not programs.log.exists()


@pytest.mark.parametrize("project", [False, True])
def test_without_it_a_person_gets_the_entry_and_its_file(project: bool, world: World, run: Run, programs: Bin) -> None:
    given = ["--project"] if project else []
    for host, (own, theirs, section, entry) in BY_HAND.items():
        shown = run("mcp", "add", host, "--profile", "codex", "--cwd", str(world.project), *given, "--json").json
        assert (shown["command"], shown["ran"]) == ([], False), host
        assert shown["file"] == str(world.project / theirs if project else world.home / own)
        found = (tomllib.loads if own.endswith(".toml") else json.loads)(shown["snippet"])[section]["skills"]
        line = found["command"] if host == "opencode" else [found["command"], *found["args"]]
        at = line.index("--cwd")
        assert line[at + 1] == str(world.project)
        assert (line[:2], sorted([*line[:at], *line[at + 2 :]])) == (LINE[:2], sorted(LINE))
        assert {**found, "command": "", "args": ""} == {**entry, "command": "", "args": ""}
        done = run("mcp", "add", host, "--profile", "codex", *given)
        assert (done.code, done.out.startswith(f"Put this into {shown['file']}:\n\n")) == (0, True)
        assert not Path(shown["file"]).exists()


@pytest.mark.system
def test_the_client_works_in_the_project_with_the_home_that_is_given(
    world: World, run: Run, programs: Bin, tmp_path: Path
) -> None:
    programs.program("claude")
    (world.project / "sub").mkdir()
    assert (run("mcp", "add", "claude-code").code, programs.log.exists()) == (2, False), "only --yes runs it"
    line = ("mcp", "add", "claude-code", "--project", "--name", "mine", "--yes", "--cwd", "sub")
    done = run(*line, "--home", str(tmp_path / "other"))
    assert done.code == 0
    assert programs.heard[:2] == [str(world.project), str(tmp_path / "other")]
    assert programs.heard[2:7] == ["mcp", "add", "--scope", "project", "mine"]
    assert "Claude Code asks you" in done.out
    assert "paths of this machine" in done.err
    programs.program("claude", "echo it is there already >&2; exit 7")
    assert run(*line).code == 1
    assert run(*line, "--json").json["ran"] is False


def test_a_program_of_the_folder_one_is_in_is_not_run(
    world: World, run: Run, programs: Bin, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = world.project / "claude"
    evil.write_text("#!/bin/sh\ntouch evil\n")
    evil.chmod(0o755)
    for path in (f".{os.pathsep}{programs.folder}", f"{os.pathsep}{programs.folder}"):
        monkeypatch.setenv("PATH", path)
        assert "Put this into" in run("mcp", "add", "claude-code", "--yes").out
    assert not (world.project / "evil").exists()


def test_a_name_that_is_none_is_refused(run: Run, programs: Bin) -> None:
    programs.program("claude")
    for name in ("", "-x", "a b", "a;b", "../a", "x" * 65, "a\n"):
        assert run("mcp", "add", "claude-code", "--yes", "--name", name).code == 2, name
    assert not programs.log.exists()


def test_the_options_of_the_server_are_passed_on_with_paths_that_last(world: World, run: Run, programs: Bin) -> None:
    (world.project / "sub/more").mkdir(parents=True)
    (world.project / "own.toml").write_text('extends = "omp"\n')
    limits = ["--instructions-chars", "8000"]
    given = ["--skills", "more", "mcp", *limits, "--only", "a", "add", "opencode", "--cwd", "sub", "--only", "b"]
    done = run(*given, "--profile", "./own.toml", "--no-read-tool", "--json")
    sub = f"{world.project}/sub"
    command = json.loads(done.json["snippet"])["mcp"]["skills"]["command"]
    pairs = [("--cwd", sub), ("--profile", f"{world.project}/own.toml"), ("--skills", f"{sub}/more")]
    pairs += [("--only", "a"), ("--only", "b"), ("--instructions-chars", "8000")]
    assert command[:2] == ["metier", "mcp"]
    assert sorted(command[2:]) == sorted([*(word for pair in pairs for word in pair), "--no-read-tool"])
    for option, value in pairs:
        assert value in [command[at + 1] for at, word in enumerate(command) if word == option]
    assert run("mcp", "add", "cursor", "--cwd", "nowhere").code == 2
    variable = run("mcp", "add", "vscode", "--cwd", "${workspaceFolder}/a", "--project", "--json").json["snippet"]
    assert json.loads(variable)["servers"]["skills"]["args"][-1] == "${workspaceFolder}/a"


def test_the_command_is_a_path_where_a_search_would_not_find_it(
    run: Run, programs: Bin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command() -> str:
        shown = run("mcp", "add", "claude-code", "--json").json["snippet"]
        return json.loads(shown)["mcpServers"]["skills"]["command"]

    assert command() == "metier"
    monkeypatch.setenv("VIRTUAL_ENV", str(programs.folder.parent))  # active here, but not where the client starts
    assert command() == str(programs.folder / "metier")
    monkeypatch.setenv("PATH", "/nowhere")
    assert command() == str(Path(sys.executable).parent / "metier")


@pytest.mark.system
@needs("tmux")
def test_on_a_terminal_it_asks_and_only_a_yes_runs_it(world: World, tmp_path: Path) -> None:
    programs = Bin(tmp_path / "bin")
    programs.program("codex", "echo added here")
    line = f"PATH={programs.folder}:$PATH"
    with contextlib.closing(Terminal(world, tmp_path / "tmux")) as terminal:
        terminal.run(f"{line} metier mcp add codex; echo exit-$?; {line} metier mcp add codex; echo end-$?", rows=60)
        assert "Codex does this itself:" in terminal.until("Run it? [y/N]:")
        terminal.keys("Enter")
        assert "nothing was run" in terminal.until("exit-1\nCodex does")
        assert not programs.log.exists()
        terminal.keys("-l", "y")
        terminal.keys("Enter")
        assert "added here" in terminal.until("end-0")
