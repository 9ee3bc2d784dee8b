"""`metier env`: what the next process sees of locks and environments."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from indexes import use, wheel

import parts
from metier.surfaces.cli import cli
from worlds import World

pytestmark = pytest.mark.system

SCRIPT = "import tinypack\nprint(tinypack.version)\n"


def test_env_shows_locks_and_clears(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts.require_sandbox()
    index = tmp_path / "index"
    use(monkeypatch, index, tmp_path / "cache")
    monkeypatch.setenv("HOME", str(world.home))
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(world.project)
    wheel(index, "tinypack")
    folder = world.skill("~/.agents/skills/tool", files={"scripts/a.py": SCRIPT}).parent
    before = sorted(str(one) for one in folder.rglob("*"))

    def env(*words: str) -> str:
        result = CliRunner().invoke(cli, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    assert "not yet; `metier env lock` looks it up" in env("env", "show", "tool")
    assert env("env", "lock", "tool") == "scripts/a.py: tinypack 1.0\n"
    shown = env("env", "show", "tool")
    assert "imports of scripts/a.py, inferred" in shown
    assert "tinypack 1.0" in shown
    assert "not installed" in env("env", "show")
    assert env("run", "tool", "scripts/a.py", "--yes").startswith("1.0\n")
    listed = json.loads(env("env", "show", "--json"))
    assert listed["bytes"] > 0
    (lock,) = listed["locks"]
    assert Path(lock["folder"], "site-packages/tinypack.py").is_file()

    wheel(index, "tinypack", "2.0")
    assert env("env", "lock", "tool") == "scripts/a.py: tinypack 2.0\n"
    assert env("run", "tool", "scripts/a.py", "--yes").startswith("2.0\n")
    assert sorted(str(one) for one in folder.rglob("*")) == before, "nothing is written into the skill"
    assert env("env", "clear").startswith("2 environments")
    assert "0 environments, 0.0 MB" in env("env", "show")
