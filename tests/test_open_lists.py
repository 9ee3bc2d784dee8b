"""Runners, stores, sources and commands that strangers install as packages are chosen by their names, as built-in ones.

The contracts of runners and stores are tested with these packages, too: see `test_sandbox_contract` and the tests of
stores. Hosts are in `tests/hosts/test_plugins.py`.
"""

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import metier
from metier import ConfigError, open_store
from metier.errors import InstallError, PolicyDenied
from metier.hosts.settings import resolve
from metier.running.sandbox.runners import choose
from metier.sources.install import Installer, InstallRequest
from packages_of_others import install
from parts import needs
from worlds import World

RUNNER = (Path(__file__).parent / "running/sandbox/strangers_runner.py").read_text()
SOURCE = """
import io, zipfile


def bring(address, name):
    if address.endswith("/gone"):
        raise OSError("there is no such shelf")
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("SKILL.md", f"---\\nname: {name}\\ndescription: From the shelf.\\n---\\n# {name}\\n")
    return data.getvalue()
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def configured(world: World, text: str) -> None:
    config = world.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(text)


def command(world: World, site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join((str(site), str(Path(metier.__file__).parents[1])))
    return subprocess.run(
        [sys.executable, "-m", "metier", *arguments],
        cwd=world.project,
        env={**os.environ, "HOME": str(world.home), "PYTHONPATH": paths, "JOURNAL": str(world.home / "journal")},
        capture_output=True,
        text=True,
        check=False,
    )


# --- runners ---


@pytest.mark.system
@needs("bwrap")
def test_the_command_line_runs_a_script_in_the_runner_that_the_settings_name(world: World, site: Path) -> None:
    install(site, "journal_runner", RUNNER, "metier.runners", "journal = journal_runner:JournalRunner")
    world.skill(".agents/skills/probe", files={"scripts/say.sh": "#!/bin/sh\necho ran\nexit 3\n"})
    configured(world, '[run]\nsandbox = ["journal"]\n')
    ran = command(world, site, "run", "probe", "scripts/say.sh", "--yes", "--json")
    result = json.loads(ran.stdout)
    assert (result["exit_code"], result["stdout"], ran.stderr) == (3, "ran\n", "")
    assert "no-network" in result["protections"]
    assert (world.home / "journal").read_text() == "scripts/say.sh 3\n"
    configured(world, '[run]\nsandbox = ["jornal"]\n')
    wrong = command(world, site, "run", "probe", "scripts/say.sh", "--yes")
    assert wrong.returncode == 2
    assert "'jornal', which is no sandbox" in wrong.stderr
    assert "journal" in wrong.stderr


@pytest.mark.parametrize("name", ["none", "bubblewrap"])
def test_a_package_cannot_take_a_built_in_name(world: World, site: Path, name: str) -> None:
    install(site, "impostor", "raise AssertionError", "metier.runners", f"{name} = impostor:Runner")
    assert type(choose(["none"])).__module__ == "metier.running.sandbox.unsandboxed"
    configured(world, '[run]\nsandbox = ["none"]\n')
    with pytest.raises(ConfigError, match="'none', which is no sandbox"):
        world.discover()


def test_a_package_that_cannot_be_imported_is_an_error_that_names_it(site: Path) -> None:
    install(site, "broken_runner", "import there_is_no_such_module", "metier.runners", "broken = broken_runner:Runner")
    with pytest.raises(ConfigError, match=r"broken_runner:Runner.* cannot be loaded: .*there_is_no_such_module"):
        choose(["broken"])


@pytest.mark.system
def test_built_in_names_look_at_no_package(world: World, site: Path) -> None:
    """Looking at the installed packages takes as long as a scan."""
    code = (
        "import sys; from metier import Skills, open_store; from metier.running.sandbox.runners import choose;"
        "Skills.discover().session(); choose(['none']); open_store('memory:'); open_store('here.db').close();"
        "print('importlib.metadata' in sys.modules)"
    )
    paths = os.pathsep.join((str(site), str(Path(metier.__file__).parents[1])))
    environment = {**os.environ, "HOME": str(world.home), "PYTHONPATH": paths}
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=world.project, env=environment, capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "False"


# --- stores ---


@pytest.mark.system
def test_the_command_line_keeps_its_record_in_the_store_that_the_settings_name(world: World, site: Path) -> None:
    source = (
        "from metier.record.store.sqlite import SqliteStore\n\n\n"
        "def opened(url, *, on_trouble, patience, outage):\n"
        "    return SqliteStore(url.removeprefix('shelf://') + '.shelf', patience=patience)\n"
    )
    install(site, "shelf_store", source, "metier.stores", "shelf = shelf_store:opened")
    world.skill(".agents/skills/probe")
    configured(world, f'store = "shelf://{world.home}/record"\n')
    assert command(world, site, "load", "probe").returncode == 0
    assert (world.home / "record.shelf").is_file()
    with open_store(f"shelf://{world.home}/record") as store:
        assert "skill_loaded" in [frame["type"] for frame in store.read()]
    with pytest.raises(ConfigError, match="is not a store"):
        open_store("shelves://here")


# --- sources ---


def test_a_skill_is_installed_from_a_source_of_a_package_and_policy_is_asked_first(world: World, site: Path) -> None:
    install(site, "shelf_source", SOURCE, "metier.sources", "shelf = shelf_source:bring")
    request = InstallRequest("shelf://user:password@top/row", name="tea")

    def installer() -> Installer:
        return Installer(resolve(world.project, home=world.home), open_store("memory:"))

    with pytest.raises(PolicyDenied, match="no rule"):
        installer().install(request, lambda offer: True)
    configured(world, '[permissions]\nallow = [{ tool = "install", path = "shelf://top/*" }]\n')
    offer = installer().install(request, lambda offer: True)
    assert (offer.name, offer.source, offer.description) == ("tea", "shelf://top/row", "From the shelf.")
    assert Path(offer.target, "SKILL.md").is_file()
    with pytest.raises(InstallError, match="there is no such shelf") as gone:
        installer().install(InstallRequest("shelf://top/gone", name="tea"), lambda offer: True)
    assert gone.value.reason == "unreachable"
    with pytest.raises(InstallError, match="only https"):
        installer().install(InstallRequest("shelves://top/row", name="tea"), lambda offer: True)


def test_what_a_source_brings_is_untrusted_and_compared_with_its_digest(world: World, site: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("../SKILL.md", "---\nname: tea\ndescription: Out of its folder.\n---\n")
    source = f"def bring(address, name):\n    return {data.getvalue()!r}\n"
    install(site, "bad_source", source, "metier.sources", "bad = bad_source:bring")
    configured(world, '[permissions]\nallow = [{ tool = "install", path = "bad://*" }]\n')
    made = Installer(resolve(world.project, home=world.home), open_store("memory:"))
    with pytest.raises(InstallError):
        made.install(InstallRequest("bad://x"), lambda offer: True)
    with pytest.raises(InstallError, match="digest"):
        made.install(InstallRequest("bad://x", digest=f"sha256:{'0' * 64}"), lambda offer: True)


COMMANDS = """
import click


@click.command()
@click.argument("whom")
@click.pass_obj
def hello(context, whom):
    click.echo(f"hello {whom} from {context.cwd}")


nothing = "not a command"
"""
ENTRIES = "hello = strangers:hello\nlist = strangers:hello\nnothing = strangers:nothing\ngone = strangers:gone"


@pytest.mark.system
def test_a_command_of_a_package_is_called_with_the_options_before_it(world: World, site: Path) -> None:
    install(site, "strangers", COMMANDS, "metier.commands", ENTRIES)
    done = command(world, site, "--cwd", "/somewhere", "hello", "you")
    assert (done.returncode, done.stdout) == (0, "hello you from /somewhere\n")
    assert "Did you mean hello?" in command(world, site, "hell").stderr, "it is suggested like a command of Metier"
    assert "List the skills" in command(world, site, "list", "--help").stdout, "it replaces none of Metier's"
    for name, why in (("nothing", "not a click.Command"), ("gone", "cannot be loaded")):
        wrong = command(world, site, name)
        assert (wrong.returncode, len(wrong.stderr.splitlines())) == (2, 1)
        assert why in wrong.stderr
