"""A script works in the folder of the user: it reads it at its own path, and what it writes stays in memory."""

import os
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from bench.attack.boxes import NOBODY, Box, Case, a_box
from metier.limits import MIB
from metier.running.sandbox import Job, Outcome, RunLimits
from metier.running.sandbox.bubblewrap import BubblewrapRunner
from metier.running.sandbox.changes import put_files

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
def box(identity: str) -> Generator[Box]:
    """A folder of the user who runs the script, which nobody else can read."""
    with a_box() as made:
        project = made.project
        (project / "sub").mkdir()
        (project / "data.csv").write_text("a,b\n")
        (project / "sub/same.txt").write_text("same\n")
        for path in (project, *project.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
            if identity == "nobody":
                os.chown(path, NOBODY, NOBODY)
        yield made


@pytest.mark.system
def test_a_script_inherits_no_descriptor(case: Case) -> None:
    text = "import os; print(sorted(n for n in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + n)))"
    outcome = case.run(text, project=str(case.box.project), cwd=str(case.box.project), files={"a": b"b"})
    assert outcome.stdout == b"['0', '1', '2']\n", outcome


def made(outcome: Outcome) -> dict[str, bytes]:
    return {file.path: file.data for file in outcome.files}


def work(case: Case, text: str = WORKS, *, write: Sequence[str] | None = None) -> Outcome:
    place = str(case.box.project)
    files = {"given.txt": b"given"}
    outcome = case.run(
        text, project=place, cwd=place, files=files, project_writable=write is not None, project_named=write or ()
    )
    assert outcome.exit_code == 0, outcome.stderr.decode()
    return outcome


@pytest.mark.system
def test_the_folder_is_read_at_its_own_path_and_new_files_are_collected(case: Case) -> None:
    before = case.box.fingerprint()
    outcome = work(case)
    names = [".git", "data.csv", "given.txt", "notes.txt", "sub"]
    first, *rest = outcome.stdout.decode().split("\n")
    assert first == f"{case.box.project} {case.box.project} {names}"
    assert rest[:2] == ["a,b", " given False ['project']"], "nothing beside the folder is there"
    assert made(outcome) == {
        "out.csv": b"made",
        "sub/inner.txt": b"inner",
        "WORK_DIR/out.csv": b"work",
        "other.txt": b"work",
    }
    assert outcome.left_out == ("link: a symbolic link",)
    assert outcome.refused == tuple(f"{name}: the run may only read this folder" for name in ("data.csv", "notes.txt"))
    assert outcome.changes == ()
    assert case.box.fingerprint() == before, "nothing reached the disk"
    assert "limit-work-size" in outcome.protections
    assert "no-host-paths" not in outcome.protections, "the script knows where its folder is"


@pytest.mark.system
def test_with_write_changes_come_back_and_given_files_do_not(case: Case) -> None:
    text = WORKS + 'open("given.txt", "a").write(" and changed")\n'
    outcome = work(case, text, write=["data.csv", "notes.txt", "sub/inner.txt"])
    kinds = {change.path: change.kind for change in outcome.changes}
    assert kinds == {"data.csv": "changed", "notes.txt": "deleted", "out.csv": "added", "sub/inner.txt": "added"}
    assert (case.box.project / "data.csv").read_text() == "a,b\nmore"
    assert not (case.box.project / "given.txt").exists()
    assert made(outcome)["given.txt"] == b"given and changed"
    assert made(outcome)["out.csv"] == b"work", "what is in the work folder is not part of the project"


@pytest.mark.system
def test_without_a_folder_given_files_are_in_the_work_folder(case: Case) -> None:
    text = "import os\nprint(os.getcwd(), os.listdir('.'))\nopen('b', 'a').write('x')\nopen('c', 'w').write('c')"
    outcome = case.run(text, files={"a": b"a", "b": b"b"})
    assert outcome.stdout == b"/work ['b', 'a']\n" or outcome.stdout == b"/work ['a', 'b']\n", outcome
    assert made(outcome) == {"b": b"bx", "c": b"c"}


@pytest.mark.system
def test_a_folder_inside_the_project_can_be_the_current_one(case: Case) -> None:
    text = "import os\nprint(os.getcwd(), open('../data.csv').read().strip(), open('g').read())\nopen('n', 'w')"
    place = str(case.box.project)
    outcome = case.run(text, project=place, cwd=f"{place}/sub", files={"g": b"!"})
    assert outcome.stdout.decode() == f"{place}/sub a,b !\n", outcome.stderr
    assert made(outcome) == {"sub/n": b""}


@pytest.mark.system
def test_the_layer_has_the_limits_of_the_work_folder(case: Case) -> None:
    place = str(case.box.project)
    text = "with open('big', 'wb', buffering=0) as f:\n    for _ in range(40): f.write(b'x' * (1 << 20))"
    small = RunLimits(work_bytes=8 * MIB)
    outcome = case.run(text, project=place, cwd=place, limits=small)
    assert outcome.exit_code != 0
    assert b"No space left" in outcome.stderr


@pytest.mark.system
@pytest.mark.parametrize("place", ["/work", "/work/inner"])
def test_a_folder_at_the_place_of_the_work_folder_moves_it(sandbox: BubblewrapRunner, place: str) -> None:
    """Containers often have the user's folder at /work. Only what bubblewrap is told is looked at here."""
    from metier.running.sandbox.mounts import work_place, writable_places

    job = Job("/", "x", project=place, cwd=place)
    assert work_place(job) == "/metier-work"
    assert "/work" not in writable_places(job)
    assert work_place(Job("/", "x", project="/workshop", cwd="/workshop")) == "/work"


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
