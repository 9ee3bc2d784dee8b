"""A script runs in the working folder: who is shown what, what a person is asked, and what an older answer covers."""

import base64
import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import parts
from calling import Run, caller
from metier.errors import BadArguments, ConfigError, PolicyDenied
from metier.record.store.memory import MemoryStore
from metier.replay import from_store, replay
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.session.operations import Run as RunOperation
from metier.session.session import Session
from people import Person
from worlds import World

OWN = "~/.agents/skills/maker"
SCRIPT = """
import os, sys
print(os.getcwd(), sorted(name for name in os.listdir(".") if not name.startswith(".")))
for name in sys.argv[1:]: print(open(name).read())
open("out.csv", "w").write("made\\n")
open("data.csv", "a").write("more\\n")
"""
FILES = {"scripts/make.py": SCRIPT}


@pytest.fixture
def run(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    parts.require("bwrap")
    monkeypatch.setenv("HOME", str(world.home))
    world.skill(OWN, files=FILES)
    (world.project / "data.csv").write_text("a,b\n")
    (world.project / "sub").mkdir()
    return caller(world, capsys, monkeypatch)


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.csv"))}


# --- the command line ---


@pytest.mark.system
def test_a_script_reads_the_current_folder_and_what_it_makes_is_fetched_by_the_next_command(
    world: World, run: Run, tmp_path: Path
) -> None:
    told = run("run", "maker", "scripts/make.py", "--yes", "data.csv")
    assert told.out == f"{world.project} ['data.csv', 'sub']\na,b\n\n"
    assert "made out.csv (5 bytes, sha256:" in told.err
    assert "not changed in the folder: data.csv" in told.err
    assert content(world.project) == {"data.csv": "a,b\n"}
    (listed,) = run("session", "artifacts", "--json").json
    assert (listed["path"], listed["size"], listed["skill"]) == ("out.csv", 5, "maker")
    for name in ("out.csv", listed["digest"][:15]):
        assert run("session", "artifacts", name).out == "made\n"
    assert run("session", "artifacts", "none.csv").code == 1
    target = tmp_path / "results"
    assert run("session", "artifacts", "--session", listed["session"], "--out", str(target)).code == 0
    assert content(target) == {"out.csv": "made\n"}
    again = run("session", "artifacts", "out.csv", "--out", str(target))
    assert (again.code, "--force" in again.err) == (1, True)


@pytest.mark.system
def test_write_brings_changes_back_and_out_takes_what_was_made(world: World, run: Run, tmp_path: Path) -> None:
    line, target = ("run", "maker", "scripts/make.py", "--yes"), tmp_path / "results"
    told = run(*line, "--write", "data.csv")
    assert content(world.project) == {"data.csv": "a,b\nmore\n", "out.csv": "made\n"}
    assert "changed data.csv\nadded out.csv\n" in told.err
    (world.project / "out.csv").unlink()
    assert run(*line, "--out", str(target), "--json").json["written"] == [f"{target}/out.csv"]
    (target / "out.csv").write_text("mine")
    assert (run(*line, "--out", str(target)).code, content(target)) == (1, {"out.csv": "mine"})
    assert run(*line, "--out", str(target), "--force").code == 0
    assert content(target) == {"out.csv": "made\n"}
    assert content(world.project) == {"data.csv": "a,b\nmore\n"}


PLANTS = (
    *(".venv/lib/site-packages/x.pth", "__pycache__/make.cpython-313.pyc", "hooks/pre-commit", "json.py"),
    *(".git/hooks/x", ".git/x.csv", ".envrc", ".hidden.csv", "deep/.vscode/r.csv", "Makefile", "package.json"),
    *("conftest.py", "sitecustomize.py", "AGENTS.md", "CLAUDE.md", "SKILL.md", "sub/SKILL.md", "requirements.txt"),
    *("CMakeLists.txt", "mkdocs.yml", "docker-compose.yml", "setup.cfg", "pyproject.toml", "page.html", "a.svg"),
    *("r.csv ", "r.csv.", "r.csv.py", "csv", "r.py\u200b.csv", "r\n.csv", "\u202egpj.csv", "\uff0egit/r.csv"),
    *("DATA.CSV", "data.csv", "SUB/r.csv", "link/r.csv", "tool", "gone/r.csv", "r\udcff.csv", "x.ｃｓｖ"),
)
PLANTER = f"""
import os, shutil
def put(path, text="id"):
    if os.path.dirname(path): os.makedirs(os.path.dirname(path), exist_ok=True)
    open(os.fsencode(path), "w").write(text)
os.unlink("link"); os.unlink("gone"); os.unlink("notes.md")
for path in {PLANTS!r}: put(path)
os.symlink("/etc/passwd", "l.csv"); os.makedirs("f.csv", exist_ok=True); os.mkfifo("p.csv")
for path in ("good.csv", "new/Good.PNG", "f.csv/good.xlsx"): put(path, "good"); os.chmod(path, 0o777)
"""


@pytest.mark.system
def test_only_new_data_and_what_was_named_are_in_the_project_afterwards(world: World, run: Run, tmp_path: Path) -> None:
    project, outside = world.project, tmp_path / "outside"
    outside.mkdir()
    world.skill("~/.agents/skills/planter", files={"scripts/plant.py": PLANTER})
    for name in ("link", "gone"):
        (project / name).symlink_to(outside)
    (project / "notes.md").write_text("mine")

    def there() -> dict[str, str]:
        paths = [path for path in project.rglob("*") if path.is_symlink() or not path.is_dir()]
        return {
            str(path.relative_to(project)): os.readlink(path) if path.is_symlink() else path.read_text()
            for path in paths
        }

    before, line = there(), ("run", "planter", "scripts/plant.py", "--yes", "--write")
    told = run(*line)
    good = {"good.csv": "good", "new/Good.PNG": "good", "f.csv/good.xlsx": "good"}
    assert there() == before | good, told.err
    assert list(outside.iterdir()) == []
    assert not (project / "good.csv").stat().st_mode & 0o111
    for path in good:
        (project / path).unlink()
    named = run(*line, "data.csv", "--write", "*.py", "--write", "notes.md", "--write", ".envrc")
    more = dict.fromkeys(("data.csv", "json.py", "conftest.py", "sitecustomize.py", "r.csv.py", ".envrc"), "id")
    kept = {path: text for path, text in (before | good | more).items() if path != "notes.md"}
    assert there() == kept, named.err
    # What did not come back is kept, and the command that is printed fetches all of it.
    (command,) = [text for text in told.err.split("`") if text.startswith("metier session artifacts --session")]
    words = [str(tmp_path / "fetched") if word == "DIR" else word for word in shlex.split(command)[1:]]
    assert run(*words).code == 0
    fetched = {
        str(path.relative_to(tmp_path / "fetched")) for path in (tmp_path / "fetched").rglob("*") if path.is_file()
    }
    assert fetched == {path.replace("\udcff", "\\udcff") for path in PLANTS}
    for wrong in ("/etc/*", "../x.py", "a//b", "~/x"):
        refused = run(*line, wrong)
        assert (refused.code, "without .." in refused.err) == (2, True)


@pytest.mark.system
def test_the_current_folder_may_be_inside_the_project_and_a_given_file_may_come_from_anywhere(
    world: World, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, sub = tmp_path / "elsewhere.txt", world.project / "sub"
    elsewhere.write_text("from elsewhere")
    monkeypatch.chdir(sub)
    told = run("run", "maker", "scripts/make.py", "--yes", "--file", str(elsewhere), "elsewhere.txt")
    assert told.out == f"{sub} ['elsewhere.txt']\nfrom elsewhere\n"
    assert os.listdir(sub) == []
    record = run("events", "--json").out
    assert "from elsewhere" not in record.replace("from elsewhere\\n", ""), "the record names it by its digest"
    frames = [json.loads(line) for line in record.splitlines()]
    (grants,) = (frame["grants"] for frame in frames if frame["type"] == "tool_started")
    assert (grants["folder"]["path"], grants["folder"]["cwd"]) == (str(sub), str(sub))
    (given,) = grants["files"]["files"]
    assert (given["path"], given["size"]) == ("elsewhere.txt", 14)
    (called,) = (frame["args"] for frame in frames if frame["type"] == "session_called")
    assert called["files"] == {"elsewhere.txt": given["digest"]}
    for wrong in (str(tmp_path), "/dev/zero"):
        assert run("run", "maker", "scripts/make.py", "--yes", "--file", wrong).code == 2


@pytest.mark.system
def test_no_private_folder_is_shown_whoever_asks(
    world: World, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = world.home
    for name in ("cache", "data"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / "xdg" / name))
    monkeypatch.setenv("HOME", str(home))
    for path in (
        "home/.ssh",
        "home/.local/deep",
        "home/code/x/.venv",
        "xdg/data/metier",
        "xdg/cache/metier/x",
        "dots/a",
    ):
        (tmp_path / path).mkdir(parents=True)
    (home / ".dots").symlink_to(tmp_path / "dots")
    link, deep = tmp_path / "code-link", tmp_path / "xdg/cache/metier/x"
    link.symlink_to(home / ".ssh")
    (home / ".config/metier").mkdir(parents=True, exist_ok=True)
    rules = home / ".config/metier/config.toml"
    private = {
        **dict.fromkeys((home, home.parent), "home folder"),
        Path("/"): "system",
        **dict.fromkeys((home / ".ssh", home / ".local/deep", tmp_path / "dots/a", link), "hidden folder"),
        **dict.fromkeys((home / ".config", home / ".config/metier", tmp_path / "xdg", deep), "folder of Metier"),
    }
    line = ("run", "maker", "scripts/make.py", "--yes")
    for rule in ("", '[permissions]\nallow = [{ tool = "run_project" }, { tool = "run_project_write" }]\n'):
        rules.write_text(rule)
        for folder, why in private.items():
            monkeypatch.chdir(folder)
            for more in ((), ("--folder", str(folder))):
                told = run(*line, *more)
                assert told.out == "/work []\n", (folder, more)
                assert f"note: it ran in an empty folder: {os.path.realpath(folder)} " in told.err
                assert why in told.err
        for folder in (home / "code/x", home / "code/x/.venv", home / "code"):
            monkeypatch.chdir(folder)
            assert run(*line).out.startswith(f"{folder} ["), folder
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("HOME", str(own))  # that of the user is private where another one is given, too
    assert run(*line, "--home", str(home), "--folder", str(own)).out == "/work []\n"
    monkeypatch.setenv("HOME", str(home))
    for text in ('[run]\nfolder = "none"\n', '[permissions]\ndeny = [{ tool = "run_project" }]\n'):
        rules.write_text(text)
        assert run(*line).out == "/work []\n", "the user wants no folder to be shown"


# --- policy ---


def opened(world: World, person: Person | None = None, **given: Any) -> tuple[Session, FakeRunner]:
    runner = FakeRunner(default=Outcome(0, "exit", 1))
    return world.discover().session(approve=person, runner=runner, **given), runner


def shown(runner: FakeRunner) -> list[tuple[str | None, bool]]:
    return [(job.project, job.project_writable) for job in runner.jobs]


def test_an_answer_from_before_asks_again_once_and_then_covers_this_folder_alone(world: World) -> None:
    world.skill(OWN, files=FILES)
    opened(world, Person("always"))[0].run("maker", "scripts/make.py")
    file = world.home / ".config/metier/permissions.toml"
    assert f'given = {{ reads = "{world.project}" }}\n' in file.read_text()
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if not line.startswith("given")))
    again = Person("always")
    for _ in range(2):
        opened(world, again)[0].run("maker", "scripts/make.py")
    assert [one.as_dict()["project"] for one in again.asked] == [str(world.project)], "the older one was without it"
    other, runner = Person("no"), FakeRunner(default=Outcome(0, "exit", 1))
    (world.project / "sub").mkdir()
    elsewhere = world.discover(cwd=world.project / "sub").session(approve=other, runner=runner)
    for session, write in ((elsewhere, False), (opened(world, other)[0], True)):
        with pytest.raises(PolicyDenied):
            session.run("maker", "scripts/make.py", write=write)
    given = [one.given for one in other.asked]
    assert given == [(("reads", f"{world.project}/sub"),), (("writes", str(world.project)),)]
    without = Person("no")
    world.discover(settings={"run.folder": "none"}).session(approve=without, runner=runner).run(
        "maker", "scripts/make.py"
    )
    assert without.asked == [], "the older answer still covers what it was about"


def test_a_rule_of_the_user_covers_reading_and_no_more(world: World) -> None:
    world.skill(OWN, files=FILES)
    rules: Mapping[str, Any] = {"allow": [{"tool": "skill_run"}, {"tool": "skill_load"}]}
    session, runner = opened(world, policy=rules)
    session.load("maker")
    session.run("maker", "scripts/make.py", by="model")
    with pytest.raises(PolicyDenied, match="given = "):
        session.run("maker", "scripts/make.py", write=True, by="model")
    with pytest.raises(PolicyDenied):
        session.run("maker", "scripts/make.py", files={"a": b"a"}, by="model")
    session.run("maker", "scripts/make.py", write=True)  # what the user asks for by name is the user's own yes
    assert shown(runner) == [(str(world.project), False), (str(world.project), True)]
    more, runner = opened(world, policy={"allow": [*rules["allow"], {"tool": "run_project_write"}]})
    more.load("maker")
    more.run("maker", "scripts/make.py", by="model")
    assert shown(runner) == [(str(world.project), True)]
    denied, runner = opened(world, policy={**rules, "deny": [{"tool": "run_project_write"}]})
    with pytest.raises(PolicyDenied):
        denied.run("maker", "scripts/make.py", write=True)
    assert shown(runner) == []


def test_what_the_user_names_must_be_answered_and_what_a_rule_names_is_given(world: World) -> None:
    world.skill(OWN, files=FILES)
    (world.project / "sub").mkdir()
    rules = [{"tool": "skill_run"}, {"tool": "run_project_write", "path": "docs/**"}]
    person = Person("always")

    def run(*named: str) -> tuple[str, ...]:
        runner = FakeRunner(default=Outcome(0, "exit", 1))
        found = world.discover(cwd=world.project / "sub")
        session = found.session(approve=person, runner=runner, policy={"allow": rules})
        session.run("maker", "scripts/make.py", write_paths=named)
        return tuple(runner.jobs[0].project_named)

    assert run() == ("docs/**",)
    assert person.asked == []
    for _ in range(2):
        assert run("*.py") == ("docs/**", "sub/*.py"), "a name is relative to the current folder"
    (asked,) = person.asked
    assert asked.given == (("changes", ("docs/**", "sub/*.py")), ("writes", str(world.project)))
    assert run("*.py", ".envrc") == ("docs/**", "sub/*.py", "sub/.envrc")
    assert len(person.asked) == 2, "an answer covers what it named"
    with pytest.raises(ConfigError, match="without"):
        opened(world, policy={"allow": [{"tool": "run_project_write", "path": "../x"}]})


FILES_FROM_OUTSIDE: list[tuple[dict[str, str], str]] = [
    *(({name: "YQ=="}, "name of a file") for name in ("../x", "a/b", "", "a\nb")),
    ({"a": "not base64!"}, "base64"),
    ({f"{n}": "YQ==" for n in range(65)}, "at most 64"),
]


def test_files_from_outside_are_checked_first_and_a_model_gives_none(world: World) -> None:
    world.skill(OWN, files=FILES)
    session, runner = opened(world, policy={"allow": [{"tool": "skill_run"}, {"tool": "skill_load"}]})
    for files, words in FILES_FROM_OUTSIDE:
        operation = RunOperation.from_dict({"name": "maker", "script": "scripts/make.py", "files": files})
        with pytest.raises(BadArguments, match=words):
            session.perform(operation)
    assert runner.jobs == []
    assert [frame["type"] for frame in session.events if frame["type"].startswith("tool_")] == []
    session.call("skill_load", {"name": "maker"})
    given = {"name": "maker", "script": "scripts/make.py", "write": True, "write_paths": ["*"], "files": {"a": "YQ=="}}
    session.call("skill_run", given)
    assert all(not job.project_writable and not job.files for job in runner.jobs)


# --- the record ---


@pytest.mark.system
def test_a_run_in_a_folder_replays_without_the_folder_and_its_files(world: World) -> None:
    parts.require("bwrap")
    world.skill(OWN, files=FILES)
    (world.project / "data.csv").write_text("a,b\n")
    store = MemoryStore()
    session = world.discover().session(store=store, approve=Person("once"))
    content = base64.b64encode(b"given").decode()
    operation = {"name": "maker", "script": "scripts/make.py", "arguments": ["given.txt"]}
    result = session.perform(RunOperation.from_dict(operation | {"files": {"given.txt": content}}))
    assert "given" in result.stdout
    written = session.run("maker", "scripts/make.py", write=True)
    assert [(one.path, one.kind) for one in written.changes] == [("out.csv", "added")]
    ended = [frame for frame in session.events if frame["type"] == "tool_ended"][-1]
    assert ended["changes"] == [one.as_dict() for one in written.changes]
    refuses = world.discover().session(store=store, approve=Person("no"))
    with pytest.raises(PolicyDenied):
        refuses.run("maker", "scripts/make.py", write=True)
    for path in (*world.project.glob("*.csv"), *(world.home / ".agents").rglob("*.py")):
        path.unlink()
    world.project.rename(world.project.with_name("moved"))
    for one in (session, refuses):
        again = replay(from_store(store, one.id))
        assert again.identical, again.differences[:2]
    kept = {one.path: store.get_artifact(one.digest) for one in result.artifacts}
    assert kept == {"out.csv": b"made\n"}
