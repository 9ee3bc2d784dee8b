"""The MCP Inspector, the official tool, lists our skills, reads every file and compares every digest.

It is installed once, into the system's temporary folder. Without npm or a registry, these tests are skipped; in CI they
fail.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from clients import command

import parts
from npm_packages import install
from worlds import World

VERSION = "2.12.0"
NODE = 22
SKILLS = ".agents/skills"
pytestmark = [pytest.mark.system, pytest.mark.xdist_group("inspector")]


@pytest.fixture(scope="session")
def inspector() -> Path:
    """The folder with the programs of the Inspector and a recent version of Node."""
    place = Path(tempfile.gettempdir()) / f"metier-inspector-{VERSION}-{os.getuid()}"
    if why := install(place, [f"@modelcontextprotocol/inspector@{VERSION}"], NODE):
        parts.missing("node", why)
    return place / "node_modules/.bin"


def inspect(programs: Path, home: Path, era: str, server: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home)}
    line = [str(programs / "mcp-inspector"), "--cli", "--protocol-era", era, "--method", "skills/list", "--verify"]
    line += ["--connect-timeout", "60000"]
    return subprocess.run([*line, *options, "--", *server], env=env, capture_output=True, text=True)


@pytest.fixture
def library(world: World) -> World:
    files: dict[str, str | bytes] = {
        "references/a b.md": "é",
        "assets/x.bin": bytes(range(256)),
        "scripts/a.py": "pass",
    }
    world.skill(f"{SKILLS}/pdf", files=files, license="MIT", metadata={"version": "1.10"}, allowed_tools="Read")
    world.skill(f"{SKILLS}/csv", description="日本語: “quoted” # not a comment")
    world.skill(f"{SKILLS}/hidden", disable_model_invocation=True)
    return world


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_verifies_every_skill(library: World, inspector: Path, era: str) -> None:
    done = inspect(inspector, library.home, era, command(library), "--require-digests")
    assert done.returncode == 0, done.stdout + done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {report["name"]: len(report["files"]) for report in reports} == {"csv": 1, "pdf": 4}
    assert all(file["status"] == "verified" for report in reports for file in report["files"])
    assert not any(report["conformance"] or report["frontmatter"] for report in reports)
