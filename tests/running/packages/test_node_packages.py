"""Packages of a Node script, from a registry that the test serves."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from registries import Registry, serving, use

import parts
from bench.attack.listeners import listening
from metier.running.packages import node
from metier.values.results import Request, RunResult
from worlds import World

pytestmark = parts.needs("node")
MANIFEST = json.dumps({"name": "x", "version": "1.0.0", "dependencies": {"tiny": "^1.0.0"}})
IMPORTS = "import tiny from 'tiny'\nconsole.log(tiny)\n"
CPU = "arm64" if os.uname().machine == "x86_64" else "x64"


@pytest.fixture
def registry(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    parts.require_sandbox()
    with serving() as registry:
        use(monkeypatch, registry, world.home)
        registry.add("tiny", scripts={"install": "echo ran > ../../trace"})
        yield registry


def run(world: World, lock: object = None, dependencies: object = None) -> tuple[RunResult, str]:
    """What a script gets that imports `tiny`, and what the person was told about its packages."""
    files = {"package.json": MANIFEST, "scripts/a.mjs": IMPORTS}
    if dependencies is not None:
        files["package.json"] = json.dumps({"dependencies": dependencies})
    if lock is not None:
        files["package-lock.json"] = json.dumps(lock)
    world.skill("~/.agents/skills/tool", files=files)
    told: list[str] = []

    def approve(request: Request) -> str:
        told.append(str(request.as_dict()["packages"]))
        return "once"

    result = world.discover().session(approve=approve).run("tool", "scripts/a.mjs")
    return result, " ".join(told)


def row(integrity: str, version: str = "1.2.0", **more: object) -> dict[str, object]:
    return {"version": version, "integrity": integrity, **more}


def locked(rows: dict[str, dict[str, object]], version: int = 3) -> dict[str, object]:
    packages = {"": {"dependencies": {"tiny": "^1.0.0"}}, **{f"node_modules/{place}": rows[place] for place in rows}}
    return {"name": "x", "lockfileVersion": version, "packages": packages}


@pytest.mark.system
@pytest.mark.usefixtures("registry")
def test_a_node_script_gets_its_packages_and_no_script_of_them_runs(world: World) -> None:
    files = {
        "package.json": MANIFEST,
        "scripts/a.mjs": IMPORTS,
        "scripts/b.cjs": "console.log(require('tiny'))\n",
    }
    folder = world.skill("~/.agents/skills/tool", files=files).parent
    session = world.discover().session()
    result = session.run("tool", "scripts/a.mjs")
    assert result.stdout == "tiny 1.2.0\n", result
    assert result.notes == ("installed 1 package, declared in package.json: tiny 1.2.0",)
    assert session.run("tool", "scripts/b.cjs").stdout == "tiny 1.2.0\n"
    assert not list(world.home.rglob("trace")), "an install script ran"
    assert sorted(one.name for one in folder.iterdir()) == ["SKILL.md", "package.json", "scripts"]


@pytest.mark.system
def test_the_question_names_exactly_what_a_lock_installs(world: World, registry: Registry) -> None:
    tiny = registry.add("tiny", dependencies={"@scope/inner": "latest"}, optionalDependencies={"elsewhere": "*"})
    inner, other = registry.add("@scope/inner", "2.0.0"), registry.add("elsewhere", cpu=[CPU])
    rows = {
        "tiny": row(tiny, dependencies={"@scope/inner": "latest"}, optionalDependencies={"elsewhere": "*"}),
        "@scope/inner": row(inner, "2.0.0", dev=True),  # a lie: it is needed
        "elsewhere": row(other, optional=True, cpu=[CPU]),
        "tool-of-developers": row(other, dev=True),
    }
    result, told = run(world, locked(rows, version=2))
    assert result.stdout == "tiny 1.2.0\n", result
    assert told == "2 packages, declared in package.json: @scope/inner 2.0.0, tiny 1.2.0"
    (modules,) = (world.home / ".cache/metier/environments").glob("*/node_modules")
    assert sorted(one.parent.name for one in modules.rglob("package.json")) == ["inner", "tiny"]
    assert not any(path.startswith("/tool-of-developers") for path in registry.asked)


@pytest.mark.system
def test_a_name_that_a_package_of_the_registry_has_for_another_is_shown_as_the_other(
    world: World, registry: Registry
) -> None:
    registry.add("real", "3.0.0")
    registry.add("tiny", dependencies={"other-name": "npm:real@^3.0.0"})
    result, told = run(world)
    assert result.stdout == "tiny 1.2.0\n", result
    assert told.endswith(": real 3.0.0, tiny 1.2.0")


@pytest.mark.system
@pytest.mark.parametrize("kind", ["another version", "another name", "a package inside", "another file"])
def test_what_is_not_what_was_asked_for_is_not_used(world: World, registry: Registry, kind: str) -> None:
    wrong = {
        "another version": {"package.json": '{"name": "tiny", "version": "6.6.6", "main": "index.js"}'},
        "another name": {"package.json": '{"name": "evil", "version": "1.2.0", "main": "index.js"}'},
        "a package inside": {"node_modules/evil/package.json": '{"name": "evil", "version": "1.0.0"}'},
    }
    integrity = registry.add("tiny", inside=wrong.get(kind))
    if kind == "another file":
        registry.add("tiny", inside={"index.js": "module.exports = 'another file'\n"})
    result, _ = run(world, locked({"tiny": row(integrity)}))
    assert "Cannot find package 'tiny'" in result.stderr
    (note,) = result.notes
    assert "EINTEGRITY" in note if kind == "another file" else "npm installed something else than was asked for" in note
    environments = world.home / ".cache/metier/environments"
    assert not [one for one in environments.iterdir() if one.is_dir()], "nothing is left"


@pytest.mark.system
@pytest.mark.parametrize("kind", ["git+http://127.0.0.1:{}/x.git", "git://127.0.0.1:{}/x.git", "http://127.0.0.1:{}/x"])
def test_a_package_of_the_registry_that_asks_for_an_address_contacts_nobody(
    world: World, registry: Registry, kind: str
) -> None:
    with listening() as stranger:
        registry.add("tiny", dependencies={"evil": kind.format(stranger.port)})
        result, told = run(world)
    assert stranger.heard == []
    assert "Cannot find package 'tiny'" in result.stderr
    assert told.startswith("dependencies not installed: tiny@^1.0.0")


# --- whose settings count ---


def hostile(folder: Path, port: int) -> None:
    """Files that npm finds in a folder above the one where it runs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"name": "root", "version": "1.0.0", "workspaces": ["*", "*/*", "*/*/*"]}')
    (folder / ".npmrc").write_text(f"registry=http://127.0.0.1:{port}/\n")
    (folder / "node_modules").mkdir()


@pytest.mark.system
def test_files_above_the_folder_of_npm_or_in_the_skill_do_not_count(
    world: World, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening() as stranger:
        hostile(tmp_path / "shared", stranger.port)
        hostile(world.home / ".cache", stranger.port)
        hostile(world.home / ".cache/metier/environments", stranger.port)
        hostile(world.home / ".agents/skills/tool", stranger.port)
        monkeypatch.setenv("TMPDIR", str(tmp_path / "shared"))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "shared"))
        result, told = run(world)
    assert stranger.heard == []
    assert (result.stdout, told) == ("tiny 1.2.0\n", "1 package, declared in package.json: tiny 1.2.0")
    assert "/tiny" in registry.asked


@pytest.mark.system
def test_npm_runs_in_a_folder_of_the_user_alone_with_settings_of_its_own(world: World, registry: Registry) -> None:
    seen: list[tuple[int, int]] = []

    def look() -> None:
        places = (world.home / ".cache/metier/environments").glob(".building-*")
        seen.extend((one.stat().st_mode & 0o777, (one / "home/.npmrc").stat().st_mode & 0o777) for one in places)

    registry.at_request = look
    assert run(world)[0].stdout == "tiny 1.2.0\n"
    assert set(seen) == {(0o700, 0o600)}
    assert not [one for one in (world.home / ".cache/metier/environments").iterdir() if one.name.startswith(".build")]
    assert not list((world.home / ".cache/metier").rglob(".npmrc")), "a password would be left there"


@pytest.mark.system
def test_npm_gets_the_registry_and_the_passwords_of_the_user_and_nothing_that_runs(
    world: World, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.token = "a-token-of-the-test"
    host = registry.address.removeprefix("http:")
    trace = world.home / "trace.cjs"
    trace.write_text(f"require('fs').writeFileSync({str(world.home / 'ran')!r}, '')\n")
    use(
        monkeypatch,
        registry,
        world.home,
        f"{host}/:_authToken=${{TOKEN_OF_THE_TEST}}",
        f"node-options=--require={trace}",
        "ignore-scripts=false",
        "workspaces=true",
    )
    monkeypatch.setenv("TOKEN_OF_THE_TEST", registry.token)
    assert run(world)[0].stdout == "tiny 1.2.0\n"
    assert not (world.home / "ran").exists()
    monkeypatch.setenv("TOKEN_OF_THE_TEST", "another")
    result, _ = run(world, dependencies={"tiny": "1.2.0"})
    assert "dependencies not installed" in str(result.notes)


@pytest.mark.system
@pytest.mark.usefixtures("registry")
def test_settings_and_folders_that_others_can_write_to_are_named(world: World) -> None:
    (world.home / ".npmrc").chmod(0o606)
    result, _ = run(world)
    assert f"{world.home}/.npmrc belongs to another user or can be written by others" in str(result.notes)
    (world.home / ".npmrc").chmod(0o600)
    world.home.chmod(0o777)
    result, _ = run(world)
    assert f"is below {world.home}, which belongs to another user or can be written by others" in str(result.notes)
    world.home.chmod(0o755)
    assert run(world)[0].stdout == "tiny 1.2.0\n"


# --- names and bounds ---


@pytest.mark.parametrize(
    "bound",
    [
        *("", "*", "x", "1", "v1.2.3", "1.2.x", "^1.2.3", "~1.2", "~> 1.2", ">=1.2.3 <2", ">= 1.2 < 2.0.0", ">1<2"),
        *("1.2.3 - 2.3.4", "^1 || ^2.0.0||3.x", "1.0.0-rc.1+build.5", "=1.0.0", "<=2", "latest", "next-14", "|| 1"),
    ],
)
def test_versions_of_a_registry_are_taken_as_npm_takes_them(bound: str) -> None:
    assert node.is_registry_package("tiny", bound)
    assert node.is_registry_package("@scope/tiny.js", bound)


def test_a_long_bound_is_refused_at_once() -> None:
    for text in ("1  " * 70 + "!", "||  " * 50 + "!", "1-" * 100 + "!", "9" * 213 + "!", ">" * 200):
        assert not node.is_registry_package("tiny", text)
