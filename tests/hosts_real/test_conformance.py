"""The official conformance suite of MCP: every scenario that a server or a host of skills can be tested by.

Left out are scenarios that call tools, prompts or resources which the suite expects a server to have for the test, such
as `test_simple_text`, and those of parts of the protocol that Metier does not have, such as tasks. The suite is
installed into the folder that `METIER_TEST_HOSTS` names.
"""

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from metier.app import App
from metier.surfaces.mcp.http import http_app
from npm_packages import install
from watching import wait_for
from worlds import World

PLACE = Path(os.environ["METIER_TEST_HOSTS"]) / "conformance"
PACKAGE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
NODE = 22
EXAMPLES = Path(__file__).parents[2] / "examples/skills"

SERVER = {
    "server-initialize": 3,
    "server-session-lifecycle": 3,
    "server-sse-multiple-streams": 2,
    "ping": 2,
    "completion-complete": 2,
    "tools-list": 3,
    "resources-list": 2,
    "prompts-list": 2,
    "dns-rebinding-protection": 2,
    "caching": 8,
    "http-header-validation": 14,
    "sep-2164-resource-not-found": 4,
    "sep-2640-skills-directory": 7,
    "sep-2640-skills-enumeration": 32,
    "sep-2640-skills-manifest": 6,
}
"""The scenarios for servers, and how many checks each makes. 92 together; docs/mcp.md has the number."""

CLIENT = {
    "sep-2640-client-no-prefetch": 1,
    "sep-2640-client-verify-digest": 1,
    "sep-2640-client-verify-size": 1,
    "sep-2640-client-verify-frontmatter": 1,
}
"""The same for hosts, with each of two versions of the protocol, which extensions do not name. 8 together."""


@pytest.fixture(scope="module", autouse=True)
def suite() -> None:
    if why := install(PLACE, [PACKAGE], NODE):
        pytest.skip(f"the conformance suite cannot run here: {why}")


@pytest.fixture
def url(world: World) -> Generator[str]:
    app = App(world.project, home=world.home, roots=[EXAMPLES], store="memory:", surface="mcp")
    config = uvicorn.Config(http_app(app, watch=False), "127.0.0.1", 0, log_level="error", ws="none")
    config.timeout_graceful_shutdown = 1
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started, "the start of the server")
        (socket,) = server.servers[0].sockets
        yield f"http://127.0.0.1:{socket.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        thread.join()


def checks(world: World, scenario: str, arguments: Sequence[str]) -> list[tuple[str, str, str]]:
    """Run a scenario. Returns the id, the status and the message of each check."""
    results = world.home / scenario
    env = {
        "PATH": f"{PLACE / 'node_modules/.bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(world.home),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    line = ["conformance", *arguments, "--scenario", scenario, "-o", str(results), "--timeout", "120000"]
    done = subprocess.run(line, env=env, cwd=world.project, capture_output=True, text=True)
    files = list(results.rglob("checks.json"))
    assert len(files) == 1, done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads(files[0].read_text())
    return [(one["id"], one["status"], one.get("errorMessage", "")) for one in found]


def verdicts(world: World, scenarios: Sequence[str], arguments: Sequence[str]) -> tuple[dict[str, int], list[object]]:
    """How many checks of each scenario succeeded, and the others."""
    with ThreadPoolExecutor(4) as pool:
        found = dict(zip(scenarios, pool.map(lambda name: checks(world, name, arguments), scenarios), strict=True))
    passed = {name: len([one for one in made if one[1] == "SUCCESS"]) for name, made in found.items()}
    return passed, [(name, *one) for name, made in found.items() for one in made if one[1] != "SUCCESS"]


def test_the_server_passes_every_check(world: World, url: str) -> None:
    passed, others = verdicts(world, list(SERVER), ["server", "--url", url])
    assert others == []
    assert passed == SERVER
    assert sum(passed.values()) == 92


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_the_host_passes_every_check(world: World, version: str) -> None:
    program = shlex.join([sys.executable, str(Path(__file__).with_name("conformance_client.py"))])
    passed, others = verdicts(
        world, list(CLIENT), ["client", "--spec-version", version, "--force", "--command", program]
    )
    assert others == []
    assert passed == CLIENT
    assert sum(passed.values()) == 4
