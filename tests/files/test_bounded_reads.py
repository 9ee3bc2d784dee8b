"""No file and no input that a project, a skill or a client brings is read as a whole, however large it is."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forking
from limited import run_bounded
from metier.files.beneath import read_opened
from worlds import World

GIB = 1 << 30


def sparse(path: Path, size: int, start: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(start)
    os.truncate(path, size)
    return path


HUGE = {
    "pyproject.toml": b"[project]\n",
    "pyproject.toml with a table": b"[tool.metier]\nprofile = 'standard'\n",
    ".metier/config.toml": b"profile = 'standard'\n",
    "~/.config/metier/config.toml": b"profile = 'standard'\n",
    "~/.config/metier/trust.json": b"{",
    "~/.config/metier/permissions.toml": b"",
    "~/.config/metier/skills.json": b"{",
    ".metier/skills.json": b"{",
    "~/.agents/skills.lock.json": b"{",
    "~/.claude/plugins/installed_plugins.json": b"{",
}
SKILLS = {
    ".agents/skills/probe/SKILL.md": b"---\nname: probe\ndescription: x\n---\n",
    ".agents/skills/one-line/SKILL.md": b"x",
    ".agents/skills/open/SKILL.md": b"---\nname: open\n",
    "AGENTS.md": b"x",
}
COMMANDS = (
    ("list",),
    ("validate", "."),
    ("validate", "--strict", "--diff", "."),
    ("check", "."),
    ("doctor",),
    ("search", "probe"),
    ("load", "probe"),
    ("prompt",),
    ("install", "--verify"),
    ("install", "./.agents/skills/probe", "--yes"),
    ("trust",),
)


@pytest.mark.system
@pytest.mark.parametrize("name", [*HUGE, "skills"])
def test_a_file_of_gigabytes_costs_no_command_more_memory_or_time(world: World, name: str) -> None:
    world.skill(".agents/skills/good")
    for spelled, start in SKILLS.items() if name == "skills" else [(name, HUGE[name])]:
        file = spelled.partition(" ")[0]
        place = world.home / file[2:] if file.startswith("~/") else world.project / file
        sparse(place, 2 * GIB, start)
    commands = [
        ["metier", *command, "--profile", profile, "--home", str(world.home)]
        for profile in (("standard", "claude-code") if "plugins" in name else ("standard",))
        for command in COMMANDS
    ]
    code = f"""
import os, sys
from metier.surfaces.cli import main
os.chdir({str(world.project)!r})
for arguments in {commands!r}:
    child = os.fork()
    if not child:
        sys.argv = arguments
        main()
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), arguments[1], flush=True)
"""
    imports = "import metier.surfaces.cli, metier.session.session, metier.sources.install, metier.search.finder"
    done = run_bounded(imports, code, megabytes=1_200, seconds=8)
    ended = [line.split() for line in done.stdout.splitlines() if line.startswith(b"ended ")]
    assert len(ended) == len(commands), done.stderr[-3000:]
    assert {int(code) for _, code, _ in ended} <= {0, 1, 2, 3}, (ended, done.stderr[-3000:])
    assert b"this is a bug" not in done.stderr, done.stderr[-3000:]


ENDLESS = """
import sys
piece = b"x" * (1 << 20)
try:
    while True:
        sys.stdout.buffer.write(piece)
except BrokenPipeError:
    pass
"""


@pytest.mark.system
@pytest.mark.parametrize(
    "command",
    [
        ("session", "call", "skill_load", "-"),
        ("session", "invoke", "-"),
        ("run", "good", "x.sh", "--stdin"),
    ],
)
def test_an_endless_input_is_refused_after_what_an_operation_can_have(world: World, command: tuple[str, ...]) -> None:
    world.skill(".agents/skills/good")
    with subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as source:
        done = forking.run(
            [*forking.METIER, *command, "--home", str(world.home)],
            cwd=world.project,
            stdin=source.stdout,
            capture_output=True,
            check=False,
        )
        source.kill()
    assert done.returncode != 0
    assert b"standard input has more than" in done.stderr, done.stderr


@pytest.mark.system
@pytest.mark.parametrize("server", ["rpc", "mcp"])
def test_a_line_without_end_is_refused_and_the_next_one_is_answered(world: World, server: str) -> None:
    world.skill(".agents/skills/good")
    imports = "metier.surfaces.cli, metier.surfaces.rpc.pipe, metier.surfaces.mcp.server"
    code = (
        f"import os, sys; os.chdir({str(world.project)!r})\n"
        f"sys.argv = ['metier', {server!r}, '--home', {str(world.home)!r}]\n"
        "from metier.surfaces.cli import main\nmain()"
    )
    ping = {"jsonrpc": "2.0", "id": 7, "method": "ping" if server == "mcp" else "skills.list", "params": {}}
    initialize = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }
    first = [json.dumps(initialize).encode()] if server == "mcp" else []
    bound = """
import resource
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (700 << 20)
resource.setrlimit(resource.RLIMIT_AS, (size, size))
"""
    script = f"import {imports}\n{bound}\n{code}"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in first:
            process.stdin.write(line + b"\n")
        process.stdin.write(b'{"x": "')
        for _ in range(1_024):
            process.stdin.write(b"y" * (1 << 20))
        process.stdin.write(b"\n" + json.dumps(ping).encode() + b"\n")
        process.stdin.flush()
        answers: list[dict[str, Any]] = []
        while not answers or answers[-1].get("id") != 7:
            answers.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        assert process.wait() == 0
    assert any("larger than" in answer.get("error", {}).get("message", "") for answer in answers), answers


@pytest.mark.parametrize("size", [0, 1, 4_000])
@pytest.mark.parametrize("limit", [1, 3_000, 5_000, 1 << 24])
def test_a_file_that_grows_while_it_is_read_is_read_up_to_the_limit(tmp_path: Path, size: int, limit: int) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"a" * size)
    with file.open("rb") as stream:
        status = os.fstat(stream.fileno())
        with file.open("ab") as growing:
            growing.write(b"b" * 3_000_000)
        content = read_opened(stream.fileno(), "file", limit, status)
    assert content.data == (b"a" * size + b"b" * 3_000_000)[:limit]
