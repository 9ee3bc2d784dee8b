"""The MCP Inspector, the official tool, lists our skills, reads every file and compares every digest.

It is installed once, into the system's temporary folder. Without npm or a registry, these tests are skipped; in CI they
fail.
"""

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from clients import command

from worlds import World

VERSION = "2.12.0"
NODE = 22
SKILLS = ".agents/skills"
pytestmark = pytest.mark.xdist_group("inspector")


def missing(why: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"the MCP Inspector must run in CI: {why}")
    pytest.skip(f"the MCP Inspector cannot run here: {why}")


def node_version() -> int:
    try:
        shown = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
        return int(shown.strip().lstrip("v").split(".")[0])
    except (OSError, ValueError, subprocess.CalledProcessError):
        return 0


@pytest.fixture(scope="session")
def inspector() -> Path:
    """The folder with the programs of the Inspector and a recent version of Node."""
    npm = shutil.which("npm")
    if npm is None:
        missing("npm is not installed")
    place = Path(tempfile.gettempdir()) / f"metier-inspector-{VERSION}-{os.getuid()}"
    programs = place / "node_modules/.bin"
    if (programs / "mcp-inspector").exists():
        return programs
    building = Path(tempfile.mkdtemp(prefix="metier-inspector-"))
    (building / "package.json").write_text('{"private": true}')
    packages = [f"@modelcontextprotocol/inspector@{VERSION}"]
    if node_version() < NODE:
        packages.append(f"node@{NODE}")
    line = [str(npm), "install", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=1", *packages]
    env = {**os.environ, "HOME": pwd.getpwuid(os.getuid()).pw_dir}
    try:
        done = subprocess.run(line, cwd=building, env=env, capture_output=True, text=True, timeout=300)
        why = done.stderr.strip().splitlines()[-1:] if done.returncode else []
    except subprocess.TimeoutExpired:
        why = ["it took too long"]
    if why:
        shutil.rmtree(building, ignore_errors=True)
        missing(f"npm could not install it: {why[0]}")
    try:
        building.rename(place)
    except OSError:  # another process was faster
        shutil.rmtree(building, ignore_errors=True)
    return programs


def inspect(programs: Path, home: Path, era: str, server: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home)}
    line = [str(programs / "mcp-inspector"), "--cli", "--protocol-era", era, "--method", "skills/list", "--verify"]
    return subprocess.run([*line, *options, "--", *server], env=env, capture_output=True, text=True, timeout=60)


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


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("path", ["SKILL.md", "references/a b.md"])
def test_the_inspector_notices_a_file_that_was_tampered_with(
    library: World, inspector: Path, era: str, path: str
) -> None:
    script = Path(__file__).with_name("tampering.py")
    victim = library.project / SKILLS / "pdf" / path
    server = [sys.executable, str(script), str(library.project), str(library.home), str(victim)]
    done = inspect(inspector, library.home, era, server)
    assert done.returncode == 7, done.stdout + done.stderr
