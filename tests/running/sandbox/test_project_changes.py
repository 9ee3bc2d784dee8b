"""What a script writes to a project comes back as plain files: new data by itself, all else where it was named."""

import os
import stat
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import pytest

from bench.attack.boxes import Box, Case, a_box
from metier.running.sandbox import Outcome, RunLimits
from metier.running.sandbox.changes import bring_back

pytest_plugins = ["running.sandbox.sandbox_fixtures"]

Write = Callable[..., Outcome]


@pytest.fixture
def box() -> Generator[Box]:
    """A project with folders, a program and a link."""
    with a_box() as made:
        project = made.project
        (project / "docs/old").mkdir(parents=True)
        for path in ("docs/guide.md", "docs/old/a.txt", "docs/old/b.txt", "tool.sh"):
            (project / path).write_text("old\n")
        (project / "tool.sh").chmod(0o755)
        (project / "link.txt").symlink_to("docs/guide.md")
        yield made


@pytest.fixture
def write(case: Case) -> Write:
    def run(text: str, *named: str) -> Outcome:
        prelude = "import os, shutil\nos.chdir('/project')\n"
        place = str(case.box.project)
        outcome = case.run(prelude + text, project=place, project_writable=True, project_named=named)
        assert outcome.exit_code == 0, outcome.stderr.decode()
        return outcome

    return run


def listed(outcome: Outcome) -> dict[str, str]:
    return {change.path: change.kind for change in outcome.changes}


def content(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else ""
        for path in sorted(folder.rglob("*"))
        if not path.is_dir()
    }


@pytest.mark.system
def test_files_are_added_changed_and_deleted_and_the_list_says_so(write: Write, box: Box) -> None:
    project = box.project
    before = (project / "notes.txt").stat()
    outcome = write(
        "open('notes.txt', 'a').write('more\\n'); open('new.txt', 'w').write('new\\n')\n"
        "os.makedirs('deep/er'); open('deep/er/file', 'w').write('x'); os.unlink('docs/guide.md')\n"
        "shutil.rmtree('docs/old'); os.chmod('tool.sh', 0o644); os.utime('link.txt', follow_symlinks=False)\n",
        "**",
    )
    kinds = {
        "added": ("new.txt", "deep/er/file"),
        "changed": ("notes.txt", "tool.sh"),
        "deleted": ("docs/guide.md", "docs/old/a.txt", "docs/old/b.txt"),
    }
    assert listed(outcome) == {path: kind for kind, paths in kinds.items() for path in paths}
    assert outcome.refused == ()
    assert (project / "notes.txt").read_text().endswith("more\n")
    assert ((project / "new.txt").read_text(), (project / "deep/er/file").read_text()) == ("new\n", "x")
    assert not (project / "docs/old").exists()
    assert (project / "docs").is_dir(), "the script emptied it, and did not delete it"
    assert not (project / "tool.sh").stat().st_mode & 0o111
    for path in ("new.txt", "deep", "deep/er/file", "notes.txt"):
        owner = (project / path).stat()
        assert (owner.st_uid, owner.st_gid) == (before.st_uid, before.st_gid), path
    assert stat.S_IMODE((project / "notes.txt").stat().st_mode) == stat.S_IMODE(before.st_mode)
    assert not list(project.rglob("*.tmp"))


@pytest.mark.system
def test_folders_and_files_can_take_each_others_place(write: Write, box: Box) -> None:
    change = "shutil.rmtree('docs/old'); os.mkdir('docs/old'); open('docs/old/c.txt', 'w').write('c')\n"
    listing = listed(write(change, "docs/old/*"))
    assert listing == {"docs/old/a.txt": "deleted", "docs/old/b.txt": "deleted", "docs/old/c.txt": "added"}
    assert os.listdir(box.project / "docs/old") == ["c.txt"], "a folder that was replaced keeps nothing"
    outcome = write(
        "shutil.rmtree('docs'); open('docs', 'w').write('one file')\n"
        "os.unlink('notes.txt'); os.mkdir('notes.txt'); open('notes.txt/a', 'w').write('a')\n"
        "os.makedirs('a/b'); open('a/b/c', 'w').write('c'); os.chmod('a/b/c', 0); os.chmod('a/b', 0); os.chmod('a', 0)",
        *("docs/**", "docs", "notes.txt", "notes.txt/*", "a/b/c"),
    )
    assert (box.project / "docs").read_text() == "one file"
    assert (box.project / "notes.txt/a").read_text() == "a"
    assert (box.project / "a/b/c").read_text() == "c", "though the script locked it"
    assert listed(outcome)["docs/guide.md"] == "deleted"
    assert outcome.refused == ()


@pytest.mark.system
def test_only_plain_files_come_back(write: Write, box: Box) -> None:
    outcome = write(
        "os.symlink('/etc/passwd', 'out'); os.symlink('docs', 'in'); os.mkfifo('pipe')\n"
        "os.unlink('link.txt'); os.symlink('.git/config', 'link.txt')\n"
        "open('shell', 'w').write('#!/bin/sh\\n'); os.chmod('shell', 0o6755)\n"
        "os.mkdir('empty'); os.chmod('empty', 0o7777)\n"
        "open('open', 'w').write('x'); os.chmod('open', 0o7666)\n"
        "os.link('shell', 'twin')\n",
        "**",
    )
    assert listed(outcome) == {"shell": "added", "open": "added", "twin": "added"}
    assert stat.S_IMODE((box.project / "shell").lstat().st_mode) == 0o755
    assert stat.S_IMODE((box.project / "open").lstat().st_mode) == 0o644
    assert (box.project / "twin").stat().st_nlink == 1
    for name in ("out", "in", "pipe", "empty"):
        assert not os.path.lexists(box.project / name)
    assert os.readlink(box.project / "link.txt") == "docs/guide.md"
    reasons = {why.split(": ")[0]: why.split(": ")[1] for why in outcome.refused}
    assert reasons == dict.fromkeys(("in", "link.txt", "out"), "a symbolic link") | {"pipe": "not a regular file"}


@pytest.mark.system
def test_a_file_that_the_user_edits_meanwhile_is_not_overwritten(case: Case) -> None:
    text = """
        import sys, time
        open("/project/notes.txt", "w").write("of the script"); open("/project/mine.txt", "w").write("of the script")
        print("written", flush=True); sys.stdin.readline(); time.sleep(1)
    """
    project = case.box.project
    job = case.box.job(
        case.box.script("run.py", text), project=str(project), project_writable=True, project_named=["*.txt"]
    )

    def edit(stream: str, data: bytes) -> None:
        time.sleep(0.05)  # the clock of the file system is coarse
        for name in ("notes.txt", "mine.txt"):
            (project / name).write_text("of the user")

    outcome = case.runner.run(job, edit)
    assert (project / "notes.txt").read_text() == (project / "mine.txt").read_text() == "of the user"
    assert outcome.changes == ()
    assert [why.split(": ")[0] for why in outcome.refused] == ["mine.txt", "notes.txt"]


@pytest.mark.system
def test_a_script_that_is_ended_or_may_not_write_changes_nothing(case: Case) -> None:
    before = content(case.box.project)
    text = "open('/project/half.csv', 'w').write('x')\nwhile True: pass"
    outcome = case.run(text, project=str(case.box.project), project_writable=True, limits=RunLimits(seconds=0.5))
    assert outcome.ended == "timeout"
    assert "none of its changes was applied" in outcome.refused[0]
    outcome = case.run("open('/project/x', 'w')", project=str(case.box.project))
    assert b"Read-only file system" in outcome.stderr
    assert content(case.box.project) == before


# --- the step itself, with layers that no kernel would write ---


def test_more_changes_than_the_limit_are_not_applied_at_all(tmp_path: Path) -> None:
    layer, project = tmp_path / "layer", tmp_path / "project"
    layer.mkdir()
    project.mkdir()
    for number in range(11):
        (layer / str(number)).write_text("x")
    assert applied(layer, project, most=10) == (
        [],
        [".: more than 10 files changed, so none of the changes was applied"],
    )
    assert len(applied(layer, project, most=11)[0]) == 11


def test_a_link_in_the_project_is_never_followed(tmp_path: Path) -> None:
    layer, project, outside = tmp_path / "layer", tmp_path / "project", tmp_path / "outside"
    for folder in (layer / "a/b", project, outside):
        folder.mkdir(parents=True)
    (layer / "a/b/evil.csv").write_text("x")
    (project / "a").symlink_to(outside)
    done, refused = applied(layer, project, named=[])
    assert (done, len(refused)) == ([], 2)
    assert (project / "a").is_symlink()
    done, _ = applied(layer, project)
    assert list(outside.iterdir()) == []
    assert done == ["a", "a/b/evil.csv"], "the link was replaced by a folder"
    assert not (project / "a").is_symlink()


def applied(
    layer: Path, project: Path, most: int = 1000, named: Sequence[str] = ("**",)
) -> tuple[list[str], list[str]]:
    descriptors = [os.open(path, os.O_RDONLY) for path in (layer, project)]
    try:
        found = bring_back(descriptors[0], descriptors[1], named=named, most=most)
        return [change.path for change in found.applied], found.refused
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
