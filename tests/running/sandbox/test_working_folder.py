"""A script works in the folder of the user: it reads it at its own path, and what it writes stays in memory."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from bench.attack.boxes import Box, Case, a_box
from metier.limits import MIB
from metier.running.sandbox import Job, Outcome, RunLimits
from metier.running.sandbox.changes import put_files
from metier.running.sandbox.mounts import work_place

pytest_plugins = ["running.sandbox.sandbox_fixtures"]

WORKS = """
import os
print(os.getcwd(), os.environ["PROJECT_DIR"], sorted(os.listdir(".")))
print(open("data.csv").read(), open("given.txt").read(), os.path.exists("../secret.txt"), os.listdir(".."))
open("out.csv", "w").write("made"); open("sub/inner.txt", "w").write("inner")
open("data.csv", "a").write("more"); os.utime("given.txt"); os.unlink("notes.txt"); os.symlink("/etc/passwd", "link")
open("sub/same.txt", "r+").close(); os.utime("sub/same.txt")
for name in ("out.csv", "other.txt"): open(os.environ["WORK_DIR"] + "/" + name, "w").write("work")
"""


@pytest.fixture
def box() -> Generator[Box]:
    with a_box() as made:
        (made.project / "sub").mkdir()
        (made.project / "data.csv").write_text("a,b\n")
        (made.project / "sub/same.txt").write_text("same\n")
        for path in (made.project, *made.project.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
        yield made


def made(outcome: Outcome) -> dict[str, bytes]:
    return {file.path: file.data for file in outcome.files}


@pytest.mark.system
def test_the_folder_is_read_at_its_own_path_and_new_files_are_collected(case: Case) -> None:
    before, place = case.box.fingerprint(), str(case.box.project)
    outcome = case.run(WORKS, project=place, cwd=place, files={"given.txt": b"given"})
    names = [".git", "data.csv", "given.txt", "notes.txt", "sub"]
    first, *rest = outcome.stdout.decode().split("\n")
    assert first == f"{case.box.project} {case.box.project} {names}"
    assert rest[:2] == ["a,b", " given False ['project']"], "nothing beside the folder is there"
    of_work = {"WORK_DIR/out.csv": b"work", "other.txt": b"work"}
    assert made(outcome) == {"out.csv": b"made", "sub/inner.txt": b"inner", **of_work}
    assert outcome.left_out == ("link: a symbolic link",)
    assert outcome.refused == tuple(f"{name}: the run may only read this folder" for name in ("data.csv", "notes.txt"))
    assert (outcome.exit_code, outcome.changes) == (0, ())
    assert case.box.fingerprint() == before, "nothing reached the disk"
    assert "limit-work-size" in outcome.protections
    assert "no-host-paths" not in outcome.protections, "the script knows where its folder is"
    text = WORKS + 'open("given.txt", "a").write(" and changed")\n'
    named = ["data.csv", "notes.txt", "sub/inner.txt"]
    files = {"given.txt": b"given"}
    outcome = case.run(text, project=place, cwd=place, files=files, project_writable=True, project_named=named)
    kinds = {change.path: change.kind for change in outcome.changes}
    assert kinds == {"data.csv": "changed", "notes.txt": "deleted", "out.csv": "added", "sub/inner.txt": "added"}
    assert not (case.box.project / "given.txt").exists()
    assert made(outcome)["given.txt"] == b"given and changed"
    assert made(outcome)["out.csv"] == b"work", "what is in the work folder is not part of the project"


@pytest.mark.system
def test_the_current_folder_is_the_work_folder_or_one_inside_the_project(case: Case) -> None:
    text = (
        "import os\nprint(os.getcwd(), sorted(os.listdir('.')))\nopen('b', 'a').write('x')\nopen('c', 'w').write('c')"
    )
    outcome = case.run(text, files={"a": b"a", "b": b"b"})
    assert outcome.stdout == b"/work ['a', 'b']\n", outcome
    assert made(outcome) == {"b": b"bx", "c": b"c"}
    text = "import os\nprint(os.getcwd(), open('../data.csv').read().strip(), open('g').read())\nopen('n', 'w')"
    place = str(case.box.project)
    outcome = case.run(text, project=place, cwd=f"{place}/sub", files={"g": b"!"})
    assert outcome.stdout.decode() == f"{place}/sub a,b !\n", outcome.stderr
    assert made(outcome) == {"sub/n": b""}
    text = "with open('big', 'wb', buffering=0) as f:\n    for _ in range(40): f.write(b'x' * (1 << 20))"
    outcome = case.run(text, project=place, cwd=place, limits=RunLimits(work_bytes=8 * MIB))
    assert (outcome.exit_code != 0, b"No space left" in outcome.stderr) == (True, True)


def test_a_folder_at_the_place_of_the_work_folder_moves_it() -> None:
    """Containers often have the user's folder at /work. Only what bubblewrap is told is looked at here."""
    for place, moved in (("/work", "/metier-work"), ("/work/inner", "/metier-work"), ("/workshop", "/work")):
        assert work_place(Job("/", "x", project=place, cwd=place)) == moved


def test_made_files_are_written_only_below_the_folder_and_over_nothing(tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("mine")
    (tmp_path / "away").symlink_to(tmp_path.parent)
    (tmp_path / "link.csv").symlink_to(tmp_path.parent / "outside.txt")
    names = [
        *("ok.csv", "deep/er/ok.csv", "there.csv", "away/x.csv", "link.csv", "../x.csv", "/x.csv", "a//b.csv"),
        *(".git/hooks/pre-commit", ".git/a.csv", "sub/AGENTS.md", "new/x.py", "THERE.CSV", "b.csv ", "\u200b.x/b.csv"),
    ]
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        refused = put_files(folder, dict.fromkeys(names, b"new"), replaces=False)
        assert set(names) - set(refused) == {"ok.csv", "deep/er/ok.csv"}, refused
        assert (tmp_path / "there.csv").read_text() == "mine"
        again = put_files(folder, {"there.csv": b"new", "link.csv": b"new"}, replaces=True)
        assert put_files(folder, {"new/x.py": b"new", "x.py": b"new"}, replaces=False, named=["new/*"]).keys() == {
            "x.py"
        }
    finally:
        os.close(folder)
    assert set(again) == {"link.csv"}
    assert (tmp_path / "there.csv").read_text() == "new"
    found = {
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()
    }
    assert found == {"there.csv", "ok.csv", "deep/er/ok.csv", "new/x.py"}
    assert not (tmp_path.parent / "outside.txt").exists()
    assert not (tmp_path.parent / "x.csv").exists()
