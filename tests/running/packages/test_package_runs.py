"""Packages of a script at the far end: what is asked, what the script imports, what the next session finds."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from indexes import use, wheel

import parts
from bench.attack.listeners import listening
from metier.errors import PolicyDenied
from metier.record.store.memory import MemoryStore
from metier.replay.record import from_store
from metier.replay.run import replay
from metier.running.packages import programs
from metier.surfaces.cli import cli
from metier.values.grants import recorded_tools
from metier.values.results import Request, RunResult
from people import Person
from worlds import World

pytestmark = pytest.mark.system
SHOWS = "import tinypack\nprint('has', tinypack.version)\n"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def prepared(world: World, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A skill with a script that imports a package, and an index that has it."""
    parts.require_sandbox()
    use(monkeypatch, index, tmp_path / "cache")
    wheel(index, "tinypack")
    world.skill("~/.agents/skills/tool", files={"scripts/a.py": SHOWS})
    return world


Approve = Callable[[Request], "bool | str"]


def run(
    world: World,
    approve: Approve | None = None,
    store: MemoryStore | None = None,
    *,
    model: bool = False,
    **given: Any,
) -> RunResult:
    skills = world.discover(**given)
    session = skills.session(id="s", approve=approve, store=store or MemoryStore())
    if model:
        session.load("tool")
    return session.run("tool", "scripts/a.py", by="model" if model else "user")


def frames(store: MemoryStore, kind: str) -> list[dict[str, object]]:
    return [frame for frame in store.read("s") if frame["type"] == kind]


def test_packages_are_asked_about_once_and_imported_and_recorded(prepared: World, index: Path) -> None:
    wheel(index, "tinypack", needs="other-pack>=2", program="tiny-program", inside={"json.py": "1 / 0"})
    for version in ("1.0", "2.5"):
        wheel(index, "other-pack", version)
    script = SHOWS + "import json, other_pack, subprocess\nprint('and', other_pack.version)\n"
    script += "print(subprocess.run(['tiny-program'], capture_output=True, text=True).stdout)\n"
    script += "try: open(tinypack.__file__, 'a')\nexcept OSError as error: print(error.strerror)\n"
    prepared.skill("~/.agents/skills/tool", files={"scripts/a.py": script})
    person, store = Person("always"), MemoryStore()
    result = run(prepared, person, store)
    assert result.stdout.split("\n")[:3] == ["has 1.0", "and 2.5", "program 1.0"], result
    assert "Read-only file system" in result.stdout
    assert len(person.asked) == 1
    assert "Needs   2 packages, 2 kB, inferred from imports of scripts/a.py: other-pack 2.5" in person.shown
    assert "as long as no file of the skill and no package changes" in person.shown
    (note,) = result.notes
    assert note.startswith("installed 2 packages")

    # The next process asks nothing, looks nothing up and installs nothing.
    shutil.rmtree(index)
    again = run(prepared, person, MemoryStore())
    assert (again.stdout, again.notes, len(person.asked)) == (result.stdout, (), 1)

    # The record has the lock, and a replay needs neither lock nor environment nor index.
    grants: Any = frames(store, "tool_started")[0]["grants"]
    lock = json.loads(store.get_artifact(grants["packages"]["digest"]))
    assert [(one["name"], one["version"]) for one in lock["packages"]] == [("other-pack", "2.5"), ("tinypack", "1.0")]
    assert all(one["hashes"][0].startswith("sha256:") for one in lock["packages"])
    assert recorded_tools(grants) == ["run_packages"]
    shutil.rmtree(prepared.home / ".cache/metier")
    shutil.rmtree(prepared.home / ".local/share/metier/locks")
    assert replay(from_store(store, "s")).differences == []


def test_an_answer_covers_exactly_the_packages_that_were_shown(prepared: World, index: Path) -> None:
    person = Person("always")
    for _ in range(2):
        assert run(prepared, person).stdout == "has 1.0\n", "the lock holds until it is made anew"
        wheel(index, "tinypack", "2.0")
    assert len(person.asked) == 1
    shutil.rmtree(prepared.home / ".local/share/metier/locks")
    assert run(prepared, person).stdout == "has 2.0\n"
    assert len(person.asked) == 2
    assert "tinypack 2.0" in person.shown


def test_rules_give_packages_or_keep_them_away(prepared: World) -> None:
    def ran(*allow: str, deny: str = "Bash", person: Person | None = None, packages: str = "ask") -> RunResult:
        rules = {"allow": [{"tool": tool} for tool in allow], "deny": [{"tool": deny}]}
        return run(prepared, person, model=bool(allow), settings={"permissions": rules, "run.packages": packages})

    assert ran("skill_run", "run_packages").stdout == "has 1.0\n"
    for result in (ran("skill_run"), ran(deny="run_packages"), ran(packages="never")):
        assert "ModuleNotFoundError" in result.stderr
        assert any(note.startswith("dependencies not installed: tinypack") for note in result.notes), result.notes
    (note,) = ran("skill_run").notes
    assert 'allow = [{ tool = "run_packages", skill_name = "tool" }]' in note
    person = Person()
    assert ran("skill_run", person=person).stdout == "has 1.0\n"
    assert [request.tool for request in person.asked] == ["skill_run"], "a rule for the script alone still asks"


def test_nothing_is_looked_up_for_a_run_that_is_denied_or_needs_nothing(
    prepared: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def called(*_: object, **__: object) -> str:
        raise AssertionError("the installer was called")

    monkeypatch.setattr(programs, "call", called)
    with pytest.raises(Exception, match="deny rule"):
        run(prepared, settings={"permissions": {"deny": [{"tool": "skill_run"}]}})
    prepared.skill("~/.agents/skills/tool", files={"scripts/a.py": "import json, helper\nprint(helper.x)\n"})
    (prepared.home / ".agents/skills/tool/scripts/helper.py").write_text("x = 'own module'\n")
    assert run(prepared).stdout == "own module\n"


def test_what_is_on_no_index_is_left_out_if_inferred_and_a_problem_if_declared(prepared: World) -> None:
    optional = "try:\n    import no_such_tinypack\nexcept ImportError:\n    print('without')\n"
    prepared.skill("~/.agents/skills/tool", files={"scripts/a.py": optional + SHOWS})
    result = run(prepared)
    assert result.stdout == "without\nhas 1.0\n"
    assert any("no package for the import no_such_tinypack: it is on no index" in note for note in result.notes)
    header = "# /// script\n# dependencies = ['tinypack', 'no-such-pack>=2']\n# ///\n"
    prepared.skill("~/.agents/skills/tool", files={"scripts/a.py": header + "print('ran')\n"})
    result = run(prepared)
    assert result.stdout == "ran\n"
    assert result.notes[0].startswith("dependencies not installed: no-such-pack>=2, tinypack")


def test_a_python_that_is_not_here_is_named(prepared: World) -> None:
    header = "# /// script\n# requires-python = '>=3.99'\n# ///\n"
    prepared.skill("~/.agents/skills/tool", files={"scripts/a.py": header})
    store = MemoryStore()
    with pytest.raises(Exception, match=r"it needs Python >=3.99, and none is installed here \(found: 3\."):
        run(prepared, store=store)
    assert frames(store, "tool_failed")[0]["reason"] == "interpreter-missing"
    assert replay(from_store(store, "s")).differences == []


def test_without_uv_the_way_out_is_one_line_though_pip_is_here(
    prepared: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **given: None if name == "uv" else which(name, **given))
    person = Person("no")
    with pytest.raises(PolicyDenied):
        run(prepared, person, model=True)
    way_out = "uv is not installed here; it comes with: pip install 'metier[scripts]'"
    assert f"Needs   dependencies not installed: tinypack ({way_out})" in person.shown
    assert run(prepared).notes == (f"dependencies not installed: tinypack ({way_out})",)
    assert f"packages  NO     {way_out}" in CliRunner().invoke(cli, ["doctor"], catch_exceptions=False).output


# --- the environment ---


def test_a_wheel_that_brings_another_package_is_not_used(prepared: World, index: Path) -> None:
    hidden = "tinypack-1.0.data/purelib/evil-9.dist-info/METADATA"
    wheel(index, "tinypack", inside={hidden: "Metadata-Version: 2.1\nName: evil\nVersion: 9\n"})
    result = run(prepared)
    assert "ModuleNotFoundError" in result.stderr
    (note,) = result.notes
    assert "installed something else than was asked for: evil 9" in note
    assert not [one for one in (prepared.home / ".cache/metier/environments").iterdir() if one.is_dir()]


def test_the_commands_show_locks_and_clear_environments(
    prepared: World, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(prepared.home))
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(prepared.project)

    def metier(*words: str) -> str:
        result = CliRunner().invoke(cli, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    folder = prepared.home / ".agents/skills/tool"
    before = sorted(folder.rglob("*"))
    assert "not yet; `metier env lock` looks it up" in metier("env", "show", "tool")
    assert metier("env", "lock", "tool") == "scripts/a.py: tinypack 1.0\n"
    assert "tinypack 1.0" in metier("env", "show", "tool")
    assert "not installed" in metier("env", "show")
    assert metier("run", "tool", "scripts/a.py", "--yes").startswith("has 1.0\n")
    (lock,) = json.loads(metier("env", "show", "--json"))["locks"]
    assert Path(lock["folder"], "site-packages/tinypack.py").is_file()
    wheel(index, "tinypack", "2.0")
    assert metier("env", "lock", "tool") == "scripts/a.py: tinypack 2.0\n"
    assert metier("run", "tool", "scripts/a.py", "--yes").startswith("has 2.0\n")
    assert sorted(folder.rglob("*")) == before, "nothing is written into the skill"
    assert metier("env", "clear").startswith("2 environments")
    assert "0 environments, 0.0 MB" in metier("env", "show")


# --- whose settings count ---


def test_settings_above_the_folder_of_the_installer_do_not_count_and_those_of_the_user_do(
    prepared: World, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV_CONFIG_FILE")
    wheel(index, "tinypack", "2.0")
    shared, cache = tmp_path / "shared", prepared.home / ".cache"
    for folder in (shared, cache, cache / "metier/environments"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "uv.toml").write_text('resolution = "lowest"\n')
        (folder / "pyproject.toml").write_text('[tool.uv]\nresolution = "lowest"\n')
    monkeypatch.setenv("TMPDIR", str(shared))
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    monkeypatch.setenv("UV_RESOLUTION", "lowest")
    assert run(prepared).stdout == "has 2.0\n"
    settings = prepared.home / ".config/uv/uv.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'no-index = true\nfind-links = ["{index}"]\nresolution = "lowest"\n')
    monkeypatch.delenv("PIP_FIND_LINKS")  # uv is not given those of pip where it has settings
    for mode, said in ((0o600, "has 1.0\n"), (0o646, "belongs to another user or can be written by others")):
        settings.chmod(mode)
        shutil.rmtree(prepared.home / ".local/share/metier/locks")
        result = run(prepared)
        assert said in (result.stdout, *(said for note in result.notes if f"{settings} {said}" in note)), result


@pytest.mark.parametrize("variable", ["PIP_NO_INDEX", "UV_NO_INDEX"])
def test_no_index_is_asked_where_the_user_wants_none(
    prepared: World, index: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = variable.partition("_")[0]
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    with listening() as stranger:
        monkeypatch.setenv(f"{kind}_INDEX_URL", f"http://127.0.0.1:{stranger.port}/simple")
        monkeypatch.setenv(f"{kind}_FIND_LINKS", str(index))
        monkeypatch.setenv(variable, "1")
        assert run(prepared).stdout == "has 1.0\n"
        assert stranger.heard == []


def test_a_folder_that_others_could_have_changed_is_not_used(prepared: World) -> None:
    assert run(prepared).stdout == "has 1.0\n"
    folder = prepared.home / ".cache/metier/environments"
    assert folder.stat().st_mode & 0o777 == 0o700
    (place,) = (one for one in folder.iterdir() if one.is_dir())
    place.chmod(0o777)
    result = run(prepared)
    assert "ModuleNotFoundError" in result.stderr
    assert any("only this user can write to; `metier env clear` deletes it" in note for note in result.notes)


def test_runs_at_once_install_one_environment_of_the_files_of_the_lock(
    prepared: World, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(2) as pool:
        assert [one.stdout for one in pool.map(run, [prepared] * 2)] == ["has 1.0\n"] * 2
    folder = prepared.home / ".cache/metier/environments"
    assert len([one for one in folder.iterdir() if one.is_dir()]) == 1
    shutil.rmtree(folder)
    wheel(index, "tinypack", code="version = 'another file'\n")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))  # it may have the right file, and then takes that
    result = run(prepared)
    assert "ModuleNotFoundError" in result.stderr
    assert "hash" in str(result.notes).lower()
    assert [one for one in folder.iterdir() if one.is_dir()] == []
