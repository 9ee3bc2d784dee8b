"""A skill names packages of a registry and nothing else. Another entry is refused by name before any program starts."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import indexes
import pytest

import parts
from bench.attack.listeners import Listener, listening
from calling import Run
from metier.errors import MetierError, PolicyDenied, ScriptRefused
from metier.files.tree import SkillTree, TreeFile
from metier.record.store.memory import MemoryStore
from metier.replay.record import from_store
from metier.replay.run import replay
from metier.running.packages import programs
from metier.running.packages.declared import declared
from people import Person
from worlds import World

pytest_plugins = ["surfaces.cli.cli_fixtures"]

HASH = "sha512-" + "A" * 86 + "=="


@pytest.fixture
def stranger() -> Iterator[Listener]:
    with listening() as listener:
        yield listener


@pytest.fixture
def programs_started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The installers that were started. None should be."""
    started: list[str] = []

    def call(command: Any, **_: object) -> str:
        started.append(" ".join(command))
        return ""

    monkeypatch.setattr(programs, "call", call)
    return started


def manifest(dependencies: object) -> dict[str, str]:
    return {"package.json": json.dumps({"dependencies": dependencies}), "scripts/a.mjs": "console.log('ran')\n"}


def refused(files: dict[str, str], script: str = "scripts/a.mjs") -> tuple[str, ...]:
    found = declared(SkillTree(tuple(TreeFile(path, text.encode()) for path, text in sorted(files.items()))), script)
    assert found is not None
    return found.refused


# --- at the far end ---


@pytest.mark.system
@pytest.mark.parametrize("door", ["command", "python"])
def test_a_fresh_clone_contacts_nobody_before_the_answer(world: World, stranger: Listener, door: str, run: Run) -> None:
    parts.require_sandbox()
    parts.require("node")
    world.skill(".agents/skills/tool", files=manifest({"left-pad": f"git+http://127.0.0.1:{stranger.port}/x.git"}))
    if door == "command":
        result = run("run", "tool", "scripts/a.mjs", "--yes")
        assert result.code == 1
        said = result.err
    else:
        session = world.discover().session(approve=lambda _: "no")
        with pytest.raises(MetierError) as error:
            session.run("tool", "scripts/a.mjs")
        said = str(error.value)
    assert stranger.heard == []
    assert "scripts/a.mjs: package.json asks for 'left-pad@git+http://127.0.0.1" in said
    assert "only names and versions of packages of a registry are installed" in said


LOCKED = {
    "a row for developers": {"resolved": "git+http://127.0.0.1:{}/x.git", "dev": True},
    "no hash": {"resolved": "http://127.0.0.1:{}/left-pad/-/left-pad-1.0.0.tgz", "integrity": ""},
    "another case": {"resolved": "GIT+http://127.0.0.1:{}/x.git", "integrity": HASH},
    "an address": {"resolved": "http://127.0.0.1:{}/x.tgz", "integrity": HASH},
    "a version": {"version": "git+http://127.0.0.1:{}/x.git", "integrity": HASH},
    "a dependency": {"integrity": HASH, "dependencies": {"y": "git+http://127.0.0.1:{}/y.git"}},
}


@pytest.mark.system
@pytest.mark.parametrize("kind", LOCKED)
def test_a_lock_of_the_skill_contacts_nobody_whatever_the_answer(world: World, stranger: Listener, kind: str) -> None:
    parts.require_sandbox()
    parts.require("node")
    row = json.loads(json.dumps({"version": "1.0.0", **LOCKED[kind]}).replace("{}", str(stranger.port)))
    rows = {"": {"dependencies": {"left-pad": "1.0.0"}}, "node_modules/left-pad": row}
    lock = json.dumps({"name": "x", "lockfileVersion": 3, "packages": rows})
    world.skill(".agents/skills/tool", files={**manifest({"left-pad": "1.0.0"}), "package-lock.json": lock})
    asked: list[object] = []

    def approve(request: object) -> str:
        asked.append(request)
        return "once"

    said = ""
    try:
        world.discover().session(approve=approve).run("tool", "scripts/a.mjs")
    except ScriptRefused as error:
        said = str(error)
    assert (stranger.heard, asked) == ([], [])
    assert "scripts/a.mjs: package-lock.json: node_modules/left-pad" in said


PYTHON = {
    "header": "# /// script\n# dependencies = ['{}']\n# ///\nprint('ran')\n",
    "requirements.txt": "{}\n",
    "pyproject.toml": "[project]\ndependencies = ['{}']\n",
}


@pytest.mark.system
@pytest.mark.parametrize("place", PYTHON)
@pytest.mark.parametrize("entry", ["x @ http://127.0.0.1:{}/x-1.0-py3-none-any.whl", "git+http://127.0.0.1:{}/x.git"])
def test_a_python_script_contacts_nobody_either(
    world: World,
    stranger: Listener,
    place: str,
    entry: str,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts.require_sandbox()
    indexes.use(monkeypatch, tmp_path / "index", tmp_path / "cache")
    text = PYTHON[place].format(entry.format(stranger.port))
    files = {"scripts/a.py": text} if place == "header" else {"scripts/a.py": "print('ran')\n", place: text}
    world.skill(".agents/skills/tool", files=files)
    store, asked = MemoryStore(), list[object]()

    def approve(request: object) -> str:
        asked.append(request)
        return "once"

    session = world.discover().session(id="s", store=store, approve=approve)
    with pytest.raises(ScriptRefused) as error:
        session.run("tool", "scripts/a.py")
    assert (error.value.reason, asked, stranger.heard) == ("packages-refused", [], [])
    assert f"asks for '{entry.format(stranger.port)[:20]}" in str(error.value)
    assert replay(from_store(store, "s")).differences == []


NO_WHEEL = "no usable wheels"
NEEDS = {
    "evilpkg @ http://127.0.0.1:{port}/evil.tar.gz": "tinypack asks for evilpkg at an address",
    "evilpkg @ http://127.0.0.1:{port}/evilpkg-1.0-py3-none-any.whl": "tinypack asks for evilpkg at an address",
    "evilpkg @ git+http://127.0.0.1:{port}/x.git": "tinypack asks for evilpkg at an address",
    "evilpkg @ file://{index}/evilpkg-1.0.tar.gz": "tinypack asks for evilpkg at an address",
    "evilpkg": NO_WHEEL,
    "static": NO_WHEEL,
}
"""What a wheel in the index needs, and why it cannot be had."""


@pytest.mark.system
@pytest.mark.parametrize("answer", ["no", "once"])
@pytest.mark.parametrize("needs", NEEDS)
def test_a_package_of_the_index_contacts_nobody_and_is_not_built(
    world: World, stranger: Listener, needs: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.require_sandbox()
    index, built = tmp_path / "index", tmp_path / "built"
    indexes.use(monkeypatch, index, tmp_path / "cache")
    code = f"open({str(built)!r}, 'w')\n"
    indexes.sdist(index, "evilpkg", code=code)
    indexes.sdist(index, "static", code=code, needs="evilpkg", static=True)
    indexes.wheel(index, "tinypack", needs=needs.format(port=stranger.port, index=index))
    header = "# /// script\n# dependencies = ['tinypack']\n# ///\n"
    world.skill(".agents/skills/declares", files={"scripts/a.py": f"{header}print('ran')\n"})
    world.skill(".agents/skills/imports", files={"scripts/a.py": "import tinypack\n"})
    person = Person(answer)
    session = world.discover().session(approve=person)
    for name in ("imports", "declares"):
        session.load(name)
        with suppress(PolicyDenied):
            session.run(name, "scripts/a.py", by="model")
    assert len(person.asked) == 2
    assert (stranger.heard, built.exists()) == ([], False)
    assert "Needs   dependencies not installed: tinypack (" in person.shown
    assert NEEDS[needs] in person.shown
    assert "Consider adding" not in person.shown


@pytest.mark.system
@pytest.mark.parametrize("text", ['no-binary-package = ["tinypack"]\n', '[pip]\nno-binary = ["tinypack"]\n'])
def test_settings_of_uv_with_which_it_builds_in_any_case_are_named(
    world: World, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.require_sandbox()
    index, built, settings = tmp_path / "index", tmp_path / "built", tmp_path / "uv.toml"
    indexes.use(monkeypatch, index, tmp_path / "cache")
    indexes.sdist(index, "tinypack", code=f"open({str(built)!r}, 'w')\n")
    settings.write_text(f'no-index = true\nfind-links = ["{index}"]\n{text}')
    monkeypatch.setenv("UV_CONFIG_FILE", str(settings))
    world.skill(".agents/skills/tool", files={"scripts/a.py": "import tinypack\n"})
    (note,) = world.discover().session(approve=lambda _: "once").run("tool", "scripts/a.py").notes
    assert not built.exists()
    assert f"{settings} has no-binary, with which uv builds packages, and none is built" in note


@pytest.mark.system
def test_a_version_with_a_wheel_is_taken_before_a_newer_one_that_must_be_built(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.require_sandbox()
    index, built = tmp_path / "index", tmp_path / "built"
    indexes.use(monkeypatch, index, tmp_path / "cache")
    indexes.wheel(index, "tinypack")
    indexes.sdist(index, "tinypack", "2.0", code=f"open({str(built)!r}, 'w')\n")
    world.skill(".agents/skills/tool", files={"scripts/a.py": "import tinypack\nprint(tinypack.version)\n"})
    assert world.discover().session(approve=lambda _: "once").run("tool", "scripts/a.py").stdout == "1.0\n"
    assert not built.exists()


@pytest.mark.system
def test_a_model_reads_what_is_refused_and_a_user_can_do_without(world: World, programs_started: list[str]) -> None:
    parts.require_sandbox()
    parts.require("node")
    world.skill(".agents/skills/tool", files=manifest({"good": "^1", "evil": "npm:other@1"}))
    session = world.discover(settings={"permissions": {"allow": [{"tool": "skill_run"}]}}).session()
    session.load("tool")
    said = session.call("skill_run", {"name": "tool", "script": "scripts/a.mjs"}).text
    assert "package.json asks for 'evil@npm:other@1'" in said
    assert "good" not in said
    assert "run.packages" in said
    never = world.discover(settings={"run.packages": "never"}).session().run("tool", "scripts/a.mjs")
    assert never.stdout == "ran\n"
    assert programs_started == []


def test_env_shows_what_is_refused(world: World, run: Run, programs_started: list[str]) -> None:
    world.skill(".agents/skills/tool", files=manifest({"evil": "file:../x"}))
    for words in (("env", "show", "tool"), ("env", "lock", "tool")):
        result = run(*words)
        assert result.code == 0
        assert "package.json asks for 'evil@file:../x'" in result.out + result.err
    assert programs_started == []


# --- each entry ---


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        *(("a", bound) for bound in ("git+http://x/y.git", "GIT+HTTP://x/y", "git://x", "http://x/a.tgz")),
        *(("a", bound) for bound in ("HTTPS://x/a", "catalog:", "%2e", "-x")),
        *(("a", bound) for bound in ("user/repo", "github:user/repo", "gitlab:u/r", "u/r#semver:^1", "git@x.y:z")),
        *(("a", bound) for bound in ("file:../x", "FILE:x", "link:x", "./x", "../x", "~/x", "/x", "C:x", "x.tgz")),
        *(("a", bound) for bound in ("1.0.0-x.TGZ", "x.tar", "1.0.0+x.tar.gz", "npm:b@1", "NPM:b", "workspace:*")),
        *(("a", bound) for bound in ("latest && x", "$(x)", "a\nb", "1.0.0\n", "é", "a" * 600)),
        *(("a", bound) for bound in (1, None, ["1"], {"a": "1"}, True)),
        *((name, "1") for name in ("../a", "a/b", "@a", "@a/b/c", ".a", "_a", "-a", "a b", "a@b", "é", "", "a" * 300)),
        *((name, "1") for name in ("__proto__", "node_modules", "a.tgz", "a\n", "@./a", "@a/../b", "a:b", "a%2fb")),
    ],
)
def test_what_npm_could_take_for_more_than_a_package_of_a_registry_is_refused(name: str, bound: object) -> None:
    entries = refused(manifest({"good": "^1.0.0", name: bound}))
    assert len(entries) == 1
    assert entries[0].startswith(f"package.json asks for {f'{name}@{bound}'[:80]!r}"[:60])


ROW: dict[str, Any] = {"version": "1.0.0", "integrity": HASH}


@pytest.mark.parametrize(
    ("place", "row", "why"),
    [
        ("node_modules/b", {**ROW, "integrity": ""}, "has no hash"),
        ("node_modules/b", {**ROW, "integrity": "", "dev": True}, "has no hash"),
        ("node_modules/b", {**ROW, "integrity": "sha512-x"}, "has no hash"),
        ("node_modules/b", {"version": "1.0.0", "dev": True}, "has no hash"),
        ("node_modules/b", {**ROW, "resolved": "git+ssh://git@x/y.git#1", "dev": True}, "is not from a registry"),
        ("node_modules/b", {**ROW, "resolved": "GIT+http://x/b/y"}, "is not from a registry"),
        ("node_modules/b", {**ROW, "resolved": "http://127.0.0.1:9/x.tgz"}, "is not from a registry"),
        ("node_modules/b", {**ROW, "resolved": "file:../b"}, "is not from a registry"),
        ("node_modules/b", {**ROW, "resolved": "../b"}, "is not from a registry"),
        ("node_modules/b", {**ROW, "link": True}, "has link"),
        ("node_modules/b", {"resolved": "../b", "link": True}, "has link"),
        ("node_modules/b", {**ROW, "inBundle": True}, "has inBundle"),
        ("node_modules/b", {**ROW, "bundleDependencies": ["c"]}, "has bundleDependencies"),
        ("node_modules/b", {**ROW, "name": "evil"}, "is not the place of a package with its name, 'evil'"),
        ("node_modules/b", {**ROW, "version": "git+http://x/y"}, "has no exact version"),
        ("node_modules/b", {**ROW, "version": "file:../x"}, "has no exact version"),
        ("node_modules/b", {**ROW, "version": "1.0.0-x.tgz"}, "has no exact version"),
        ("node_modules/b", {**ROW, "version": "^1.0.0"}, "has no exact version"),
        ("node_modules/b", {**ROW, "version": 1}, "has no exact version"),
        ("node_modules/b", {**ROW, "dependencies": {"c": "git+http://x/y"}}, "asks for 'c@git+http://x/y'"),
        ("node_modules/b", {**ROW, "peerDependencies": {"c": "NPM:d@1"}, "dev": True}, "asks for 'c@NPM:d@1'"),
        ("node_modules/b", {**ROW, "optionalDependencies": {"../c": "1"}}, "asks for '../c@1'"),
        ("node_modules/b", "1.0.0", "is not a table"),
        ("packages/b", {**ROW, "name": "b"}, "is not the place of a package"),
        ("../b", ROW, "is not the place of a package"),
        ("node_modules/../../b", ROW, "is not the place of a package"),
        ("", {"workspaces": ["packages/*"]}, "its root has workspaces"),
        ("", {"devDependencies": {"b": "github:u/r"}}, "its root asks for 'b@github:u/r'"),
    ],
)
def test_every_row_of_a_lock_counts(place: str, row: Any, why: str) -> None:
    rows = {"": {"dependencies": {"a": "^1.0.0"}}, "node_modules/a": ROW, place: row}
    lock = {"lockfileVersion": 3, "packages": rows}
    entry, *_ = refused({**manifest({"a": "^1.0.0"}), "package-lock.json": json.dumps(lock)})
    assert entry.startswith(f"package-lock.json: {place}")
    assert why in entry


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"lockfileVersion": 1, "dependencies": {"a": {"version": "git+http://x"}}}',
        '{"lockfileVersion": 1, "packages": {"": {}}}',
        '{"lockfileVersion": 3, "packages": []}',
        "[" * 100_000,
        '{"lockfileVersion": 3, "packages": {"": {' + " " * 4 * 1024 * 1024 + "}}}",
        json.dumps({"lockfileVersion": 3, "packages": {f"node_modules/a{n}": ROW for n in range(10_001)}}),
    ],
    ids=["no JSON", "a list", "version 1", "version 1 with rows", "no table", "deep", "large", "many"],
)
def test_a_lock_that_cannot_be_read_is_refused(text: str) -> None:
    (entry,) = refused({**manifest({"a": "^1.0.0"}), "package-lock.json": text})
    assert entry.startswith("package-lock.json: it ")


@pytest.mark.parametrize(
    "line",
    [
        *(
            "a @ https://x/a.whl",
            "a@https://x",
            "git+https://x/y",
            "GIT+ssh://x",
            "file:///x",
            "./x",
            "../x",
            "/x",
            "x/",
        ),
        *("a.whl", "a.zip", "a==1.zip", "A.TAR.GZ", "-e .", "-e git+http://x", "--editable=x", "-r https://x/r.txt"),
        *("a --index-url http://x", "a; x -r y", "${A}", "a\u00e9", "a,b", "--requirement /etc/x"),
        "-r requirements.txt",
    ],
)
def test_each_line_that_is_no_name_with_versions_is_refused(line: str) -> None:
    entries = refused({"scripts/a.py": "", "requirements.txt": f"good>=1\n{line}\n"}, "scripts/a.py")
    assert set(entries) == {f"requirements.txt asks for {line!r}"}
