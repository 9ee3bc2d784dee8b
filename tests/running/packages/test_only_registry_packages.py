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
from metier.errors import PolicyDenied, ScriptRefused
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


# --- at the far end ---


@pytest.mark.system
def test_a_fresh_clone_contacts_nobody_before_the_answer(world: World, stranger: Listener, run: Run) -> None:
    parts.require_sandbox()
    parts.require("node")
    world.skill(".agents/skills/tool", files=manifest({"left-pad": f"git+http://127.0.0.1:{stranger.port}/x.git"}))
    result = run("run", "tool", "scripts/a.mjs", "--yes")
    assert (result.code, stranger.heard) == (1, [])
    assert "scripts/a.mjs: package.json asks for 'left-pad@git+http://127.0.0.1" in result.err
    assert "only names and versions of packages of a registry are installed" in result.err


LOCKED: dict[str, dict[str, Any]] = {
    "a row for developers": {"resolved": "git+http://127.0.0.1:{}/x.git", "dev": True},
    "no hash": {"resolved": "http://127.0.0.1:{}/left-pad/-/left-pad-1.0.0.tgz", "integrity": ""},
    "an address": {"resolved": "http://127.0.0.1:{}/x.tgz", "integrity": HASH},
    "a dependency": {"integrity": HASH, "dependencies": {"y": "git+http://127.0.0.1:{}/y.git"}},
}
PYTHON = {
    "header": ("# /// script\n# dependencies = ['{}']\n# ///\nprint('ran')\n", "git+http://127.0.0.1:{}/x.git"),
    "requirements.txt": ("{}\n", "x @ http://127.0.0.1:{}/x-1.0-py3-none-any.whl"),
    "pyproject.toml": ("[project]\ndependencies = ['{}']\n", "git+http://127.0.0.1:{}/x.git"),
}


@pytest.mark.system
@pytest.mark.parametrize("kind", [*LOCKED, *PYTHON])
def test_an_address_in_a_skill_contacts_nobody_and_nobody_is_asked(
    world: World, stranger: Listener, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.require_sandbox()
    indexes.use(monkeypatch, tmp_path / "index", tmp_path / "cache")
    if kind in LOCKED:
        parts.require("node")
        row = json.loads(json.dumps({"version": "1.0.0", **LOCKED[kind]}).replace("{}", str(stranger.port)))
        rows = {"": {"dependencies": {"left-pad": "1.0.0"}}, "node_modules/left-pad": row}
        lock = json.dumps({"name": "x", "lockfileVersion": 3, "packages": rows})
        script, said = "scripts/a.mjs", "package-lock.json: node_modules/left-pad"
        files = {**manifest({"left-pad": "1.0.0"}), "package-lock.json": lock}
    else:
        text, entry = PYTHON[kind]
        entry = entry.format(stranger.port)
        script, said = "scripts/a.py", f"asks for '{entry[:20]}"
        files = {script: "print('ran')\n", script if kind == "header" else kind: text.format(entry)}
    world.skill(".agents/skills/tool", files=files)
    store, person = MemoryStore(), Person("once")
    session = world.discover().session(id="s", store=store, approve=person)
    with pytest.raises(ScriptRefused) as error:
        session.run("tool", script)
    assert (error.value.reason, person.asked, stranger.heard) == ("packages-refused", [], [])
    assert said in str(error.value)
    assert replay(from_store(store, "s")).differences == []


NEEDS = {
    "evilpkg @ http://127.0.0.1:{port}/evil.tar.gz": "tinypack asks for evilpkg at an address",
    "evilpkg @ git+http://127.0.0.1:{port}/x.git": "tinypack asks for evilpkg at an address",
    "evilpkg @ file://{index}/evilpkg-1.0.tar.gz": "tinypack asks for evilpkg at an address",
    "evilpkg": "no usable wheels",
    "static": "no usable wheels",
}
"""What a wheel in the index needs, and why it cannot be had."""


@pytest.mark.system
@pytest.mark.parametrize("needs", NEEDS)
def test_a_package_of_the_index_contacts_nobody_and_is_not_built(
    world: World, stranger: Listener, needs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    person = Person("no")
    session = world.discover().session(approve=person)
    for name, person.answer in (("imports", "once"), ("declares", "no")):
        session.load(name)
        with suppress(PolicyDenied):
            session.run(name, "scripts/a.py", by="model")
    assert (len(person.asked), stranger.heard, built.exists()) == (2, [], False)
    assert "Needs   dependencies not installed: tinypack (" in person.shown
    assert NEEDS[needs] in person.shown


@pytest.mark.system
def test_no_package_is_built_though_the_settings_of_uv_say_so(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.require_sandbox()
    index, built, settings = tmp_path / "index", tmp_path / "built", tmp_path / "uv.toml"
    indexes.use(monkeypatch, index, tmp_path / "cache")
    indexes.wheel(index, "tinypack")
    indexes.sdist(index, "tinypack", "2.0", code=f"open({str(built)!r}, 'w')\n")
    world.skill(".agents/skills/tool", files={"scripts/a.py": "import tinypack\nprint(tinypack.version)\n"})
    session = world.discover().session(approve=lambda _: "once")
    monkeypatch.setenv("UV_CONFIG_FILE", str(settings))
    for text in ('no-binary-package = ["tinypack"]\n', '[pip]\nno-binary = ["tinypack"]\n'):
        settings.write_text(f'no-index = true\nfind-links = ["{index}"]\n{text}')
        (note,) = session.run("tool", "scripts/a.py").notes
        assert f"{settings} has no-binary, with which uv builds packages, and none is built" in note
    monkeypatch.setenv("UV_CONFIG_FILE", "/dev/null")
    assert session.run("tool", "scripts/a.py").stdout == "1.0\n", "a wheel comes before a newer one to build"
    assert not built.exists()


@pytest.mark.system
def test_a_model_reads_what_is_refused_and_a_user_can_do_without(
    world: World, programs_started: list[str], run: Run
) -> None:
    parts.require_sandbox()
    parts.require("node")
    world.skill(".agents/skills/tool", files=manifest({"good": "^1", "evil": "npm:other@1"}))
    session = world.discover(settings={"permissions": {"allow": [{"tool": "skill_run"}]}}).session()
    session.load("tool")
    said = session.call("skill_run", {"name": "tool", "script": "scripts/a.mjs"}).text
    assert "package.json asks for 'evil@npm:other@1'" in said
    assert ("good" in said, "run.packages" in said) == (False, True)
    never = world.discover(settings={"run.packages": "never"}).session().run("tool", "scripts/a.mjs")
    assert never.stdout == "ran\n"
    for words in (("env", "show", "tool"), ("env", "lock", "tool")):
        result = run(*words)
        assert (result.code, "asks for 'evil@npm:other@1'" in result.out + result.err) == (0, True)
    assert programs_started == []


# --- each entry ---

ROW: dict[str, Any] = {"version": "1.0.0", "integrity": HASH}
BOUNDS = (
    *("git+http://x/y.git", "GIT+HTTP://x/y", "git://x", "http://x/a.tgz", "HTTPS://x/a", "catalog:", "%2e", "-x"),
    *("user/repo", "github:user/repo", "u/r#semver:^1", "git@x.y:z", "file:../x", "FILE:x", "link:x", "./x", "~/x"),
    *("/x", "C:x", "x.tgz", "1.0.0-x.TGZ", "1.0.0+x.tar.gz", "npm:b@1", "NPM:b", "workspace:*", "latest && x"),
    *("$(x)", "a\nb", "1.0.0\n", "é", "a" * 600, "1  " * 70 + "!", "||  " * 50 + "!", 1, None, ["1"], {"a": "1"}),
)
NAMES = (
    *("../a", "a/b", "@a", "@a/b/c", ".a", "_a", "-a", "a b", "a@b", "é", "", "a" * 300, "__proto__", "node_modules"),
    *("a.tgz", "a\n", "@a/../b", "a:b", "a%2fb"),
)
ROWS: tuple[tuple[str, Any], ...] = (
    ("node_modules/b", {**ROW, "integrity": "", "dev": True}),
    ("node_modules/b", {**ROW, "integrity": "sha512-x"}),
    ("node_modules/b", {**ROW, "resolved": "git+ssh://git@x/y.git#1", "dev": True}),
    ("node_modules/b", {**ROW, "resolved": "GIT+http://x/b/y"}),
    ("node_modules/b", {**ROW, "resolved": "../b"}),
    ("node_modules/b", {**ROW, "link": True}),
    ("node_modules/b", {**ROW, "inBundle": True}),
    ("node_modules/b", {**ROW, "bundleDependencies": ["c"]}),
    ("node_modules/b", {**ROW, "name": "evil"}),
    ("node_modules/b", {**ROW, "version": "git+http://x/y"}),
    ("node_modules/b", {**ROW, "version": "^1.0.0"}),
    ("node_modules/b", {**ROW, "peerDependencies": {"c": "NPM:d@1"}, "dev": True}),
    ("node_modules/b", {**ROW, "optionalDependencies": {"../c": "1"}}),
    ("node_modules/b", "1.0.0"),
    ("../b", ROW),
    ("node_modules/../../b", ROW),
    ("", {"workspaces": ["packages/*"]}),
    ("", {"devDependencies": {"b": "github:u/r"}}),
)
LOCKS = (
    *("{", "[]", '{"lockfileVersion": 1, "packages": {"": {}}}', '{"lockfileVersion": 3, "packages": []}'),
    *("[" * 100_000, '{"lockfileVersion": 3, "packages": {"": {' + " " * (4 << 20) + "}}}"),
)
LINES = (
    *("a @ https://x/a.whl", "a@https://x", "git+https://x/y", "GIT+ssh://x", "file:///x", "./x", "../x", "/x", "x/"),
    *("a.whl", "a==1.zip", "A.TAR.GZ", "-e .", "--editable=x", "-r https://x/r.txt", "a --index-url http://x"),
    *("a; x -r y", "${A}", "a\u00e9", "a,b", "--requirement /etc/x", "-r requirements.txt"),
)
TAKEN = ("", "*", "1.2.x", "^1.2.3", "~> 1.2", ">= 1.2 < 2.0.0", "1.2.3 - 2.3.4", "^1 || ^2.0.0||3.x", "1.0.0-rc.1+b.5")


def refused(files: dict[str, str], script: str = "scripts/a.mjs") -> tuple[str, ...]:
    found = declared(SkillTree(tuple(TreeFile(path, text.encode()) for path, text in sorted(files.items()))), script)
    assert found is not None
    return found.refused


def test_what_an_installer_could_take_for_more_than_a_package_of_a_registry_is_refused() -> None:
    wrong: list[object] = []

    def check(given: object, files: dict[str, str], start: str, script: str = "scripts/a.mjs") -> None:
        entries = refused(files, script)
        if not entries or any(not entry.startswith(start) for entry in entries):
            wrong.append((given, entries))

    for name, bound in [*(("a", bound) for bound in BOUNDS), *((name, "1") for name in NAMES)]:
        start = f"package.json asks for {f'{name}@{bound}'[:80]!r}"[:60]
        check((name, bound), manifest({"good": "^1.0.0", name: bound}), start)
    for place, row in ROWS:
        rows = {"": {"dependencies": {"a": "^1.0.0"}}, "node_modules/a": ROW, place: row}
        lock = json.dumps({"lockfileVersion": 3, "packages": rows})
        check((place, row), {**manifest({"a": "^1.0.0"}), "package-lock.json": lock}, "package-lock.json: ")
    for text in LOCKS:
        check(text[:80], {**manifest({"a": "^1.0.0"}), "package-lock.json": text}, "package-lock.json: it ")
    for line in LINES:
        files = {"scripts/a.py": "", "requirements.txt": f"good>=1\n{line}\n"}
        check(line, files, f"requirements.txt asks for {line!r}", "scripts/a.py")
    assert wrong == []
    for bound in TAKEN:
        assert refused(manifest({"tiny": bound, "@scope/tiny.js": bound})) == ()
