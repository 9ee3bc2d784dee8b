"""What the models of real hosts read of skills that only `metier mcp` gives them, from the first request to a refusal.

The hosts are programs from npm, in the folder that `METIER_TEST_HOSTS` names. They talk to a model on a loopback port,
which calls the tools by a script: search, load, read a file, run a script. A host that cannot be installed is skipped.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hosts_real.hosts import HOSTS, Host, Workplace
from loopback_model import ENDED, LoopbackModel, Request, Step
from npm_packages import install
from worlds import World

PLACE = Path(os.environ["METIER_TEST_HOSTS"])
"""For one run of a host, which takes ten seconds on an idle machine."""

ABOUT = 'Converts "knots" & leagues, whichever <unit> the sailor names.'
BODY = '# Knots\n\n1. Ask for the "unit" & <wait>.\n2. Multiply:\n\n\t1 knot = 1.852 km/h\n'
TABLE = 'league\t"5.556" km\n<fathom>\t1.8288 m\n'
SCRIPT = "#!/bin/sh\necho RAN-$((6 * 7))\n"
NAME = "sailing-units-of-long-ago"


@pytest.fixture(params=HOSTS.values(), ids=list(HOSTS))
def host(request: pytest.FixtureRequest) -> Host:
    host: Host = request.param
    if why := install(PLACE / host.program, [host.package]):
        pytest.skip(f"{host.program} cannot run here: {why}")
    return host


OWN_COMMANDS = {
    # the file that the host writes, and whether it takes the server out again
    "claude-code": (".claude.json", True),
    "codex": (".codex/config.toml", True),
    "gemini-cli": (".gemini/settings.json", True),
    "opencode": (".config/opencode", False),
}


@pytest.mark.parametrize("name", OWN_COMMANDS)
def test_a_host_adds_and_removes_the_server_by_its_own_command(
    name: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = HOSTS[name]
    if why := install(PLACE / host.program, [host.package]):
        pytest.skip(f"{host.program} cannot run here: {why}")
    place, takes_out = OWN_COMMANDS[name]
    programs = PLACE / host.program / "node_modules/.bin"
    own = Path(sys.executable).parent
    env = {**os.environ, "HOME": str(world.home), "PATH": f"{programs}:{own}:{os.environ['PATH']}"}

    def metier(*words: str) -> str:
        line = ["metier", "mcp", *words, "--yes"]
        return subprocess.run(line, cwd=world.project, env=env, capture_output=True, text=True, check=True).stdout

    def written() -> str:
        file = world.home / place
        return "".join(one.read_text() for one in file.glob("opencode.json*")) if file.is_dir() else file.read_text()

    metier("add", name, "--name", "sailing", "--profile", "codex")
    for word in ("sailing", "mcp", "--profile", "codex"):
        assert f'"{word}"' in written() or f"mcp_servers.{word}" in written()
    said = metier("remove", name, "--name", "sailing")
    assert "sailing" not in written() if takes_out else said.startswith("Delete mcp.sailing from ")


def folder(world: World, count: int) -> Path:
    """A folder of skills, of which one is right and not general at all."""
    world.skill(f"library/{NAME}", description=ABOUT, body=BODY, files={"table.md": TABLE, "scripts/x.sh": SCRIPT})
    for number in range(count - 1):
        world.skill(f"library/case-{number:04}", description=f"Handles case {number:04} of many special cases.")
    return world.project / "library"


def play(world: World, host: Host, count: int) -> list[Request]:
    """Run the host with a script of calls. Returns the requests of its model."""
    script = [
        Step("skill_search", {"query": "knots and leagues of a sailor"}),
        Step("skill_load", {"name": NAME}),
        Step("skill_read", {"name": NAME, "path": "table.md"}),
        Step("skill_run", {"name": NAME, "script": "scripts/x.sh"}),
    ]
    metier = [sys.executable, "-c", "from metier.surfaces.cli import main; main()", "mcp"]
    where = ["--cwd", world.project, "--home", world.home, "--store", "memory:", "--skills", folder(world, count)]
    with LoopbackModel(script).serving() as model:
        programs = PLACE / host.program / "node_modules/.bin"
        server = [*metier, *map(str, where)]
        run = host.prepare(Workplace(programs, world.home, world.project, model.url, server))
        done = subprocess.run(
            run.command,
            env=run.env,
            cwd=world.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        requests = model.conversation()
    assert done.returncode == 0, done.stdout + done.stderr
    assert ENDED in done.stdout
    return requests


@pytest.mark.parametrize("count", [6, 2_000])
def test_a_model_finds_loads_and_reads_a_skill_and_is_refused_a_script(world: World, host: Host, count: int) -> None:
    first, *_, last = requests = play(world, host, count)

    # Before any call: which skill is for what, or how to find out.
    assert first.shows("skill_load")
    if count == 6:
        assert first.shows(f"- {NAME}: {ABOUT}")
    else:
        assert not first.shows(ABOUT)
        assert first.shows("of 2,000 skills")
        assert first.shows("call `skill_search`")
    found = next(request for request in requests if request.shows(ABOUT))
    assert not found.shows("1 knot = 1.852")

    # Bodies and files are plain text, character by character, and never JSON in a text.
    for text in (BODY.strip(), TABLE.strip()):
        assert last.shows(text)
        assert not last.shows(json.dumps(text)[1:-1])

    # The script did not run, and the model knows why, and what its user can do.
    assert not last.shows("RAN-42")
    assert any("policy refuses skill_run for" in text and "with allow = [{ tool" in text for text in last.texts())
