"""Packages of a Node script, from a registry that the test serves."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from registries import Registry, serving, use

import parts
from bench.attack.listeners import listening
from metier.values.results import Request, RunResult
from worlds import World

pytestmark = [parts.needs("node"), pytest.mark.system]
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


def run(world: World, **rows: dict[str, object]) -> tuple[RunResult, str]:
    """What a script gets that imports `tiny`, and what the person was told about its packages.

    `rows` are those of a lock, where the skill has one.
    """
    files = {"package.json": MANIFEST, "scripts/a.mjs": IMPORTS}
    if rows:
        packages = {"": {"dependencies": {"tiny": "^1.0.0"}}, **{f"node_modules/{name}": rows[name] for name in rows}}
        files["package-lock.json"] = json.dumps({"name": "x", "lockfileVersion": 3, "packages": packages})
    world.skill("~/.agents/skills/tool", files=files)
    told: list[str] = []

    def approve(request: Request) -> str:
        told.append(str(request.as_dict()["packages"]))
        return "once"

    result = world.discover().session(approve=approve).run("tool", "scripts/a.mjs")
    return result, " ".join(told)


def row(integrity: str, version: str = "1.2.0", **more: object) -> dict[str, object]:
    return {"version": version, "integrity": integrity, **more}


def environments(world: World) -> Path:
    return world.home / ".cache/metier/environments"


def test_a_node_script_gets_its_packages_and_no_script_of_them_runs(world: World, registry: Registry) -> None:
    seen: set[tuple[int, int]] = set()

    def look() -> None:
        places = environments(world).glob(".building-*")
        seen.update((one.stat().st_mode & 0o777, (one / "home/.npmrc").stat().st_mode & 0o777) for one in places)

    registry.at_request = look
    files = {"package.json": MANIFEST, "scripts/a.mjs": IMPORTS, "scripts/b.cjs": "console.log(require('tiny'))\n"}
    folder = world.skill("~/.agents/skills/tool", files=files).parent
    session = world.discover().session()
    result = session.run("tool", "scripts/a.mjs")
    assert result.stdout == "tiny 1.2.0\n", result
    assert result.notes == ("installed 1 package, declared in package.json: tiny 1.2.0",)
    assert session.run("tool", "scripts/b.cjs").stdout == "tiny 1.2.0\n"
    assert not list(world.home.rglob("trace")), "an install script ran"
    assert sorted(one.name for one in folder.iterdir()) == ["SKILL.md", "package.json", "scripts"]
    assert seen == {(0o700, 0o600)}, "npm runs in a folder of the user alone"
    assert not list(environments(world).glob(".building-*"))
    assert not list((world.home / ".cache/metier").rglob(".npmrc")), "a password would be left there"


def test_the_question_names_exactly_what_a_lock_installs(world: World, registry: Registry) -> None:
    tiny = registry.add("tiny", dependencies={"@scope/inner": "latest"}, optionalDependencies={"elsewhere": "*"})
    inner, other = registry.add("@scope/inner", "2.0.0"), registry.add("elsewhere", cpu=[CPU])
    rows = {
        "tiny": row(tiny, dependencies={"@scope/inner": "latest"}, optionalDependencies={"elsewhere": "*"}),
        "@scope/inner": row(inner, "2.0.0", dev=True),  # a lie: it is needed
        "elsewhere": row(other, optional=True, cpu=[CPU]),
        "tool-of-developers": row(other, dev=True),
    }
    result, told = run(world, **rows)
    assert result.stdout == "tiny 1.2.0\n", result
    assert told == "2 packages, declared in package.json: @scope/inner 2.0.0, tiny 1.2.0"
    (modules,) = environments(world).glob("*/node_modules")
    assert sorted(one.parent.name for one in modules.rglob("package.json")) == ["inner", "tiny"]
    assert not any(path.startswith("/tool-of-developers") for path in registry.asked)


def test_a_name_that_a_package_has_for_another_is_shown_as_the_other(world: World, registry: Registry) -> None:
    registry.add("real", "3.0.0")
    registry.add("tiny", dependencies={"other-name": "npm:real@^3.0.0"})
    assert run(world)[1].endswith(": real 3.0.0, tiny 1.2.0")


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
    result, _ = run(world, tiny=row(integrity))
    assert "Cannot find package 'tiny'" in result.stderr
    (note,) = result.notes
    assert ("EINTEGRITY" if kind == "another file" else "installed something else than was asked for") in note
    assert not [one for one in environments(world).iterdir() if one.is_dir()], "nothing is left"


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


def test_files_above_the_folder_of_npm_or_in_the_skill_do_not_count(
    world: World, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "shared"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "shared"))
    above = (tmp_path / "shared", world.home / ".cache", environments(world), world.home / ".agents/skills/tool")
    with listening() as stranger:
        for folder in above:
            (folder / "node_modules").mkdir(parents=True, exist_ok=True)
            (folder / "package.json").write_text('{"name": "root", "version": "1.0.0", "workspaces": ["*", "*/*"]}')
            (folder / ".npmrc").write_text(f"registry=http://127.0.0.1:{stranger.port}/\n")
        result, told = run(world)
    assert stranger.heard == []
    assert (result.stdout, told) == ("tiny 1.2.0\n", "1 package, declared in package.json: tiny 1.2.0")
    assert "/tiny" in registry.asked


def test_npm_gets_the_registry_and_the_passwords_of_the_user_and_nothing_that_runs(
    world: World, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.token = "a-token-of-the-test"
    trace = world.home / "trace.cjs"
    trace.write_text(f"require('fs').writeFileSync({str(world.home / 'ran')!r}, '')\n")
    token = f"{registry.address.removeprefix('http:')}/:_authToken=${{TOKEN_OF_THE_TEST}}"
    lines = (token, f"node-options=--require={trace}", "ignore-scripts=false", "workspaces=true")
    use(monkeypatch, registry, world.home, *lines)
    monkeypatch.setenv("TOKEN_OF_THE_TEST", "another")
    assert "dependencies not installed" in str(run(world)[0].notes)
    monkeypatch.setenv("TOKEN_OF_THE_TEST", registry.token)
    assert run(world)[0].stdout == "tiny 1.2.0\n"
    assert not (world.home / "ran").exists()


@pytest.mark.usefixtures("registry")
def test_settings_and_folders_that_others_can_write_to_are_named(world: World) -> None:
    for path, mode, good in ((world.home / ".npmrc", 0o606, 0o600), (world.home, 0o777, 0o755)):
        path.chmod(mode)
        notes = str(run(world)[0].notes)
        assert str(path) in notes
        assert "belongs to another user or can be written by others" in notes
        path.chmod(good)
    assert run(world)[0].stdout == "tiny 1.2.0\n"
