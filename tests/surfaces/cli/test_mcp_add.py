"""`metier mcp add` and `remove`: what they show, what is in the client's file then, and what is left of it."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from calling import Run
from metier.surfaces.clients import changes
from metier.surfaces.clients.changes import FileChanged, plan_add, write
from metier.surfaces.clients.programs import CLIENTS, place_of
from parts import needs
from terminals import Terminal
from worlds import World

STDIO = {"type": "stdio", "command": "metier", "args": ["mcp"]}
BARE = {"command": "metier", "args": ["mcp"]}
LOCAL = {"type": "local", "command": ["metier", "mcp"], "enabled": True}
CODE = "Library/Application Support" if sys.platform == "darwin" else ".config"
HOSTS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    # the user's file, the project's, the key of the servers, the entry
    "claude-code": (".claude.json", ".mcp.json", "mcpServers", STDIO),
    "codex": (".codex/config.toml", ".codex/config.toml", "mcp_servers", BARE),
    "gemini-cli": (".gemini/settings.json", ".gemini/settings.json", "mcpServers", BARE),
    "opencode": (".config/opencode/opencode.json", "opencode.json", "mcp", LOCAL),
    "vscode": (f"{CODE}/Code/User/mcp.json", ".vscode/mcp.json", "servers", STDIO),
    "cursor": (".cursor/mcp.json", ".cursor/mcp.json", "mcpServers", STDIO),
}


@pytest.fixture(autouse=True)
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `metier` on PATH, and no variable of a client."""
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "VIRTUAL_ENV"):
        monkeypatch.delenv(variable, raising=False)
    program = tmp_path / "bin/metier"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return program


def data_of(file: Path) -> Any:
    text = file.read_text("utf-8-sig")
    return tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)


def everything(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder below a folder, without Metier's own."""
    found = {str(one.relative_to(folder)): one.read_bytes() if one.is_file() else None for one in folder.rglob("*")}
    return {name: data for name, data in found.items() if name != ".config" and not name.startswith(".config/metier")}


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_gets_its_entry_and_nothing_is_left_after_its_removal(host: str, world: World, run: Run) -> None:
    user, project, section, entry = HOSTS[host]
    for file, options in ((world.home / user, []), (world.project / project, ["--project"])):
        before = everything(world.home), everything(world.project)
        asked = run("mcp", "add", host, *options)
        assert asked.code == 2
        assert "nothing was written: there is no terminal to ask for confirmation (pass --yes)" in asked.err
        assert (everything(world.home), everything(world.project)) == before
        assert f"{file} (new file):" in asked.out

        expected = json.loads(json.dumps(entry))
        if options and host in ("vscode", "cursor"):
            expected["args"] += ["--cwd", "${workspaceFolder}"]
        added = run("mcp", "add", host, *options, "--yes")
        assert added.code == 0
        assert added.out.startswith(asked.out)
        assert f"`{' '.join(['metier mcp remove', host, *options])}` undoes it" in added.out
        assert data_of(file) == {section: {"skills": expected}}
        shown = [line[3:] for line in asked.out.splitlines() if line.startswith("  +")]
        assert shown == file.read_text().splitlines()
        assert file.stat().st_mode & 0o777 == (0o644 if options else 0o600)

        written = file.read_bytes()
        again = run("mcp", "add", host, *options, "--json")
        assert (again.code, again.json["action"], again.json["written"]) == (0, "none", False)
        assert file.read_bytes() == written

        kept = run("mcp", "remove", host, *options)
        assert (kept.code, file.read_bytes()) == (2, written)
        removed = run("mcp", "remove", host, *options, "--yes")
        assert (removed.code, removed.out.splitlines()[-1]) == (0, "removed; the file was deleted")
        assert (everything(world.home), everything(world.project)) == before
        nothing = run("mcp", "remove", host, *options)
        assert (nothing.code, nothing.out) == (0, f"nothing to remove: {file} has no server skills\n")
    assert not (world.home / ".config/metier/mcp-clients.json").exists()


JSON_TEXTS = [
    b"",
    b"\n",
    b"{}",
    b"{ }\n",
    b"{\n}\n",
    b'{"a":1}',
    b'{"a": [1, {"mcpServers": 3}], "mcpServers": {}}',
    b'{\n  "mcpServers": {},\n  "b": 1.50e3\n}\n',
    b'{\n  "mcpServers": {\n  },\n  "b": "\\u00e4\\/"\n}',
    b'{\n\t"z": null,\n\t"mcpServers": {\n\t\t"git": {"command": "x", "env": {"KEY": "}\\"{"}}\n\t},\n\t"a": 1\n}\n',
    b'{\r\n    "mcpServers": {\r\n        "git": {\r\n            "url": "u"\r\n        }\r\n    }\r\n}\r\n',
    b'\xef\xbb\xbf{\n   "a": "\xc3\xa4"\n}\n',
    b'   {"mcpServers" : {"git" : {} } }  ',
]


@pytest.mark.parametrize("text", JSON_TEXTS)
def test_the_rest_of_a_json_file_stays_byte_for_byte(text: bytes, world: World, run: Run) -> None:
    file = world.home / ".claude.json"
    file.write_bytes(text)
    file.chmod(0o640)
    assert run("mcp", "add", "claude-code", "--yes").code == 0
    before = json.loads(text.decode("utf-8-sig")) if text.strip() else {}
    expected = {**before, "mcpServers": {**before.get("mcpServers", {}), "skills": STDIO}}
    assert json.dumps(data_of(file)) == json.dumps(expected)  # also in the same order
    written = file.read_bytes()
    assert b"\r\n" not in text or written.count(b"\n") == written.count(b"\r\n")
    assert not text.strip() or (b"\n\t" in text) == (b'\n\t\t"skills": {\n\t\t\t"type"' in written)
    assert file.stat().st_mode & 0o777 == 0o640
    assert run("mcp", "remove", "claude-code", "--yes").code == 0
    assert file.read_bytes() == text
    assert file.stat().st_mode & 0o777 == 0o640


TOML_TEXTS = [
    b"",
    b'model = "gpt-5" # mine',
    b"# only a comment\n\n\n",
    b'model = "gpt-5"\r\n[mcp_servers.git]\r\nurl = "u"\r\n',
    b'[mcp_servers]\n[mcp_servers.git]\ncommand = "x"\n\n# the end\n[projects."/p"]\ntrust_level = "trusted"\n',
    b'text = """\n[mcp_servers.skills]\ncommand = 1\n"""\n',
]


@pytest.mark.parametrize("text", TOML_TEXTS)
def test_the_rest_of_a_toml_file_stays_byte_for_byte(text: bytes, world: World, run: Run) -> None:
    file = world.home / ".codex/config.toml"
    file.parent.mkdir()
    file.write_bytes(text)
    assert run("mcp", "add", "codex", "--yes").code == 0
    assert file.read_bytes().startswith(text)
    before = tomllib.loads(text.decode())
    assert data_of(file) == {**before, "mcp_servers": {**before.get("mcp_servers", {}), "skills": BARE}}
    if b'"""' in text:
        refused = run("mcp", "remove", "codex", "--yes")
        assert refused.code == 2
        assert "cannot be changed safely; the file was left as it is" in refused.err
        return
    added = file.read_bytes()
    assert b"\r\n" not in text or added.count(b"\n") == added.count(b"\r\n")
    assert run("mcp", "remove", "codex", "--yes").code == 0
    assert file.read_bytes() == text
    more = b'[mcp_servers.skills.env]\nA = "1"\n\n# next\n[tui]\nx = 1\n'
    file.write_bytes(added + b"\n" + more)
    assert run("mcp", "remove", "codex", "--yes").code == 0
    assert file.read_bytes().replace(b"\r\n", b"\n").split() == (text + b"\n# next\n[tui]\nx = 1\n").split()


def test_two_names_in_one_file_leave_nothing_in_either_order(world: World, run: Run) -> None:
    cursor = world.home / ".cursor/mcp.json"
    for host, text in (("cursor", None), ("codex", None), ("cursor", "{ }\n")):
        if text is not None:
            cursor.parent.mkdir()
            cursor.write_text(text)
        before = everything(world.home)
        for order in (["skills", "more"], ["more", "skills"]):
            for name in ("skills", "more"):
                assert run("mcp", "add", host, "--name", name, "--yes").code == 0
            for name in order:
                assert run("mcp", "remove", host, "--name", name, "--yes").code == 0
            assert everything(world.home) == before


def test_what_others_put_into_a_new_file_stays(world: World, run: Run) -> None:
    run("mcp", "add", "cursor", "--yes")
    file = world.home / ".cursor/mcp.json"
    file.write_text(json.dumps({"theme": 1, **data_of(file)}))
    assert run("mcp", "remove", "cursor", "--yes").out.splitlines()[-1] == "removed"
    assert data_of(file) == {"theme": 1}


def test_an_entry_that_a_person_wrote_by_hand_is_removed_alone(world: World, run: Run) -> None:
    file = world.project / ".mcp.json"
    file.write_text('{"mcpServers": {"skills": {"command": "/opt/metier", "args": ["mcp"]}}}')
    assert run("mcp", "remove", "claude-code", "--project", "--yes").code == 0
    assert file.read_text() == '{"mcpServers": {}}'


NOT_EDITED = [
    ("vscode", '// mine\n{"servers": {}}', "has comments or trailing commas", ""),
    ("opencode", '{"mcp": {"x": {"a": "// no"},}}', "has comments or trailing commas", ""),
    ("cursor", '{\n  "mcpServers": {\n', "is not JSON: ", ":3: "),
    ("gemini-cli", "[]", "the file is not an object", ""),
    ("gemini-cli", '{"mcpServers": []}', "`mcpServers` is not an object", ""),
    ("gemini-cli", '{"mcpServers": {"skills": 1}}', "`mcpServers.skills` is not an object", ""),
    ("claude-code", '{"mcpServers": {}, "mcpServers": {}}', "the key 'mcpServers' is there 2 times", ""),
    ("claude-code", "[" * 100_000, "nests without end", ""),
    ("claude-code", "\udcff", "is not UTF-8", ""),
    ("codex", "a = [\n", "is not TOML: ", ""),
    ("codex", "mcp_servers = {git = {}}\n", "`mcp_servers` is written in a form that cannot be changed safely", ""),
]


@pytest.mark.parametrize(("host", "text", "why", "line"), NOT_EDITED)
def test_a_file_that_cannot_be_changed_safely_is_left_and_a_person_is_told(
    host: str, text: str, why: str, line: str, world: World, run: Run
) -> None:
    file = world.home / HOSTS[host][0]
    if host == "opencode":
        file = file.with_suffix(".jsonc")  # the other name of the file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(os.fsencode(text))
    refused = run("mcp", "add", host, "--yes")
    assert refused.code == 2
    assert f"{file}{line or ': '}" in refused.err
    assert why in refused.err
    assert "left as it is" in refused.err
    assert f"Add this to {file} by hand:" in refused.out
    assert '"mcp"' in refused.out
    assert file.read_bytes() == os.fsencode(text)
    assert sorted(os.listdir(file.parent)) == [file.name]


def test_a_commented_file_is_read_nevertheless(world: World, run: Run) -> None:
    file = world.project / ".vscode/mcp.json"
    file.parent.mkdir()
    entry = {**STDIO, "args": ["mcp", "--cwd", "${workspaceFolder}"]}
    file.write_text(f'{{"servers": {{"skills": {json.dumps(entry)}, /* x */}}}}')
    assert "VS Code has it already" in run("mcp", "add", "vscode", "--project").out
    assert "has comments" in run("mcp", "remove", "vscode", "--project", "--yes").err
    assert "nothing to remove" in run("mcp", "remove", "vscode", "--project", "--name", "other").out


@pytest.mark.parametrize("host", ["codex", "opencode"])
def test_a_server_of_that_name_that_is_not_metier_is_only_replaced_on_request(
    host: str, world: World, run: Run
) -> None:
    file, _, section, entry = HOSTS[host]
    path = world.home / file
    path.parent.mkdir(parents=True)
    text = '{"mcp": {"skills": {"url": "u"}}}' if host == "opencode" else '[mcp_servers.skills]\nurl = "u"\n'
    path.write_text(text)
    for command in ("add", "remove"):
        refused = run("mcp", command, host, "--yes")
        assert refused.code == 2
        assert f"{path}: `{section}.skills` is there and does not start `metier mcp` (use another --name" in refused.err
        assert path.read_text() == text
    assert run("mcp", "add", host, "--name", "metier", "--yes").code == 0
    assert data_of(path)[section] == {"skills": {"url": "u"}, "metier": entry}
    forced = run("mcp", "add", host, "--force", "--yes")
    assert forced.code == 0
    assert [line for line in forced.out.splitlines() if line.startswith("  -") and "url" in line]
    assert data_of(path)[section] == {"skills": entry, "metier": entry}
    assert "is not a name for a server" in run("mcp", "add", host, "--name", "a.b").err


def test_what_a_person_added_to_the_entry_stays_when_its_options_change(world: World, run: Run) -> None:
    codex, cursor = world.home / ".codex/config.toml", world.home / ".cursor/mcp.json"
    codex.parent.mkdir()
    codex.write_text(
        '[mcp_servers.skills]\n# slow\nstartup_timeout_sec = 9\nargs = [\n  "mcp", # a\n]\ncommand = "/old/metier"\n'
        '\n[mcp_servers.skills.env]\nA = "1"\n'
    )
    cursor.parent.mkdir()
    cursor.write_text(json.dumps({"mcpServers": {"skills": {**STDIO, "env": {"A": "1"}}, "git": {}}}))
    for host in ("codex", "cursor"):
        assert run("mcp", "add", host, "--profile", "omp", "--yes").code == 0
    assert codex.read_text() == (
        '[mcp_servers.skills]\n# slow\nstartup_timeout_sec = 9\nargs = ["mcp", "--profile", "omp"]\n'
        'command = "metier"\n\n[mcp_servers.skills.env]\nA = "1"\n'
    )
    entry = {**STDIO, "args": ["mcp", "--profile", "omp"], "env": {"A": "1"}}
    assert data_of(cursor) == {"mcpServers": {"skills": entry, "git": {}}}


def test_the_options_of_the_server_are_written_with_paths_that_last(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world.project / "sub/more").mkdir(parents=True)
    (world.project / "own.toml").write_text('extends = "omp"\n')
    limits = ["--instructions-chars", "8000"]
    given = ["--skills", "more", "mcp", *limits, "--only", "a", "add", "opencode", "--cwd", "sub", "--only", "b"]
    done = run(*given, "--profile", "./own.toml", "--no-read-tool", "--yes", "--json")
    assert done.code == 0
    sub = f"{world.project}/sub"
    command = done.json["entry"]["command"]
    pairs = [("--cwd", sub), ("--profile", f"{world.project}/own.toml"), ("--skills", f"{sub}/more")]
    pairs += [("--only", "a"), ("--only", "b"), ("--instructions-chars", "8000")]
    assert command[:2] == ["metier", "mcp"]
    assert sorted(command[2:]) == sorted([*(word for pair in pairs for word in pair), "--no-read-tool"])
    for option, value in pairs:
        assert value in [command[at + 1] for at, word in enumerate(command) if word == option]
    assert run("mcp", "add", "cursor", "--cwd", "nowhere", "--yes").code == 2
    variable = run("mcp", "add", "vscode", "--cwd", "${workspaceFolder}/a", "--project", "--yes")
    assert "paths of this machine" not in variable.err
    assert data_of(world.project / ".vscode/mcp.json")["servers"]["skills"]["args"][-1] == "${workspaceFolder}/a"


def test_the_command_is_a_path_where_a_search_would_not_find_it(
    world: World, run: Run, on_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command() -> str:
        return run("mcp", "add", "cursor", "--project", "--json").json["entry"]["command"]

    assert command() == "metier"
    monkeypatch.setenv("VIRTUAL_ENV", str(on_path.parents[1]))  # active here, but not where Cursor starts
    assert command() == str(on_path)
    assert "paths of this machine" in run("mcp", "add", "cursor", "--project", "--yes").err
    monkeypatch.setenv("PATH", "/nowhere")
    own = Path(sys.executable).parent / "metier"
    assert command() == str(own)


def test_a_variable_of_the_client_names_its_folder_unless_a_home_is_given(
    world: World, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "elsewhere"
    expected = {
        "claude-code": ("CLAUDE_CONFIG_DIR", ".claude.json"),
        "codex": ("CODEX_HOME", "config.toml"),
        "gemini-cli": ("GEMINI_CLI_HOME", ".gemini/settings.json"),
        "opencode": ("XDG_CONFIG_HOME", "opencode/opencode.json"),
    }
    for host, (variable, file) in expected.items():
        monkeypatch.setenv(variable, str(folder))
        assert run("mcp", "add", host, "--json").json["file"] == str(folder / file)
        given = run("mcp", "add", host, "--home", str(tmp_path / "other"), "--json").json["file"]
        assert given == str(tmp_path / "other" / HOSTS[host][0])
        monkeypatch.delenv(variable)


def test_a_link_stays_a_link_and_never_leads_out_of_the_home_or_the_project(
    world: World, run: Run, tmp_path: Path
) -> None:
    real, outside = world.home / "dotfiles/claude.json", tmp_path / "outside.json"
    real.parent.mkdir()
    for file in (real, outside):
        file.write_text("{}\n")
        file.chmod(0o604)
    link = world.home / ".claude.json"
    link.symlink_to(real)
    added = run("mcp", "add", "claude-code", "--yes")
    assert f"{link} (a link to {real}):" in added.out
    assert link.is_symlink()
    assert data_of(real) == {"mcpServers": {"skills": STDIO}}
    assert real.stat().st_mode & 0o777 == 0o604
    run("mcp", "remove", "claude-code", "--yes")
    assert (link.is_symlink(), real.read_text()) == (True, "{}\n")

    (world.home / ".cursor").mkdir()
    for link, options in ((world.home / ".cursor/mcp.json", []), (world.project / ".cursor", ["--project"])):
        link.symlink_to(outside if not options else tmp_path)
        refused = run("mcp", "add", "cursor", *options, "--yes")
        assert refused.code == 2
        assert "is a link out of" in refused.err
    assert outside.read_text() == "{}\n"
    assert not (tmp_path / "mcp.json").exists()


AT_ONCE = """
import os, sys
from metier.surfaces.cli import main
import metier.surfaces.clients.changes, metier.surfaces.cli.mcp  # what is imported now does not set the children apart

waits, starts = os.pipe()
children = []
for name in sys.argv[2:]:
    child = os.fork()
    if not child:
        os.close(starts)
        os.read(waits, 1)
        sys.argv = ["metier", "mcp", sys.argv[1], "cursor", "--name", name, "--yes", "--quiet"]
        main()
    children.append(child)
os.close(starts)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


def test_processes_at_once_all_get_their_entry(world: World) -> None:
    names = [f"s{number}" for number in range(8)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    def together(command: str) -> None:
        line = [sys.executable, "-c", AT_ONCE, command, *names]
        done = subprocess.run(line, cwd=world.project, env=env, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    together("add")
    file = world.home / ".cursor/mcp.json"
    assert sorted(data_of(file)["mcpServers"]) == names
    assert os.listdir(file.parent) == [file.name]
    together("remove")
    assert everything(world.home) == {}


def test_a_file_that_changed_since_it_was_shown_is_not_overwritten(world: World) -> None:
    place = place_of(CLIENTS["cursor"], home=str(world.home), project=None, env={})
    change = plan_add(place, "skills", BARE)
    file = world.home / ".cursor/mcp.json"
    file.parent.mkdir()
    file.write_text('{"mcpServers": {"new": {}}}')
    with pytest.raises(FileChanged, match="was changed by another program, and nothing was written"):
        write(change, str(world.home / ".config/metier"))
    assert file.read_text() == '{"mcpServers": {"new": {}}}'


def test_a_folder_that_one_process_made_for_the_file_of_another_goes_with_the_file(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = changes._make_folders

    def overtaken(folder: str, change: changes.Change) -> tuple[str, ...]:
        made = make(folder, change)
        monkeypatch.setattr(changes, "_make_folders", make)
        assert run("mcp", "add", "cursor", "--name", "faster", "--yes").code == 0
        return made

    monkeypatch.setattr(changes, "_make_folders", overtaken)
    assert run("mcp", "add", "cursor", "--yes").code == 0
    for name in ("skills", "faster"):
        assert run("mcp", "remove", "cursor", "--name", name, "--yes").code == 0
    assert everything(world.home) == {}


def test_a_file_that_cannot_be_written_is_named(world: World, run: Run) -> None:
    (world.home / ".cursor").write_text("")
    refused = run("mcp", "add", "cursor", "--yes")
    assert refused.code == 2
    assert f"{world.home}/.cursor/mcp.json: cannot be " in refused.err


def test_the_entry_starts_a_server_with_its_options(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    world.skill(".agents/skills/release-notes", description="Writes release notes.")
    world.skill(".agents/skills/hidden", description="Is not offered.")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert run("mcp", "add", "claude-code", "--cwd", ".", "--only", "release-notes", "--yes").code == 0
    entry = data_of(world.home / ".claude.json")["mcpServers"]["skills"]
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    done = subprocess.run(
        [entry["command"], *entry["args"]],
        input=json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}) + "\n",
        cwd=world.home,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
    )
    instructions = json.loads(done.stdout.splitlines()[0])["result"]["instructions"]
    assert "Writes release notes." in instructions
    assert "Is not offered." not in instructions


@pytest.fixture
def terminal(world: World, tmp_path: Path) -> Generator[Terminal]:
    terminal = Terminal(world, tmp_path / "tmux")
    yield terminal
    terminal.close()


@needs("tmux")
def test_on_a_terminal_it_asks_and_only_a_yes_writes(terminal: Terminal) -> None:
    file = terminal.world.home / ".cursor/mcp.json"
    terminal.run("metier mcp add cursor; echo exit-$?; metier mcp add cursor; echo end-$?", rows=60)
    shown = terminal.until("Write it? [y/N]:")
    assert f"{file} (new file):" in shown.replace("\n", "")
    assert '+    "skills": {' in shown
    terminal.keys("Enter")
    shown = terminal.until("exit-1")
    assert "nothing was written" in shown
    assert not file.parent.exists()
    terminal.until("exit-1\n" + shown.splitlines()[0][:10])
    terminal.keys("-l", "y")
    terminal.keys("Enter")
    terminal.until("end-0")
    assert "skills" in data_of(file)["mcpServers"]
