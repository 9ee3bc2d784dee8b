"""JSON-RPC over pipes: a client that stays is told what changes, and sees it on its next call."""

import json
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from metier.rpc import METHODS
from metier.session.operation import parameters, schema_of
from metier.session.operations import OPERATIONS
from worlds import World


@pytest.fixture
def pipe(world: World) -> Generator[subprocess.Popen[str], None, None]:
    world.skill(".agents/skills/one")
    line = [sys.executable, "-c", "from metier.cli import main; main()", "rpc", "--store", "memory:"]
    line += ["--cwd", str(world.project), "--home", str(world.home)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0


def send(pipe: subprocess.Popen[str], method: str) -> None:
    assert pipe.stdin is not None
    pipe.stdin.write(json.dumps({"jsonrpc": "2.0", "id": method, "method": method}) + "\n")
    pipe.stdin.flush()


def receive(pipe: subprocess.Popen[str], key: str) -> dict[str, Any]:
    """The next message that has the key; others are passed over."""
    assert pipe.stdout is not None
    while key not in (message := json.loads(pipe.stdout.readline())):
        pass
    return message


def test_a_client_is_told_what_was_added_removed_and_changed(world: World, pipe: subprocess.Popen[str]) -> None:
    send(pipe, "skills.list")
    assert [skill["name"] for skill in receive(pipe, "result")["result"]["skills"]] == ["one"]
    world.skill(".agents/skills/two")
    told = receive(pipe, "method")
    assert told == {
        "jsonrpc": "2.0",
        "method": "skills.changed",
        "params": {"added": ["two"], "removed": [], "changed": []},
    }
    send(pipe, "skills.list")
    assert [skill["name"] for skill in receive(pipe, "result")["result"]["skills"]] == ["one", "two"]
    (world.project / ".agents/skills/one/SKILL.md").unlink()
    assert receive(pipe, "method")["params"] == {"added": [], "removed": ["one"], "changed": []}


def test_every_method_is_on_the_page_and_no_other() -> None:
    page = (Path(__file__).parents[1] / "docs" / "rpc.md").read_text()
    assert set(re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \|", page, re.MULTILINE)) == set(METHODS)
    for name, kind in OPERATIONS.items():
        (row,) = re.findall(rf"^\| `session\.{name}` \| (.*)\|$", page, re.MULTILINE)
        named = re.findall(r"`(\w+)(\??)`", row.split("(or")[0] + row.partition(")")[2])
        required = schema_of(kind)["required"]
        expected = {"args" if key == "arguments" and name == "call" else key for key in parameters(kind)}
        assert {key for key, _ in named} == expected, name
        assert {key for key, maybe in named if not maybe} == set(required), name
