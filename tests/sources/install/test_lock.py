"""The lock file: the changes that it detects, and its digests."""

import json
import os
import shutil

import pytest

from metier.errors import ConfigError
from metier.files.tree import TreeFile
from metier.sources.install import lock
from sources.install.places import NO_DIGEST, place
from worlds import World


def test_verify_names_each_thing_that_changed(world: World) -> None:
    world.skill("probe", files={"a.md": "a", "b.md": "b", "scripts/x.sh": "x"})
    here = place(world)
    here.take(world.project / "probe")
    assert [finding.problems for finding in here.installer.verify()] == [()]
    folder = here.skills / "probe"
    (folder / "a.md").write_text("A")
    (folder / "b.md").unlink()
    (folder / "c.md").write_text("c")
    (folder / "scripts/x.sh").chmod(0o644)
    wanted = ("a.md was changed", "b.md is missing", "c.md was added", "scripts/x.sh is no longer executable")
    assert [finding.problems for finding in here.installer.verify()] == [wanted]
    (folder / "c.md").unlink()
    (folder / "c.md").symlink_to("/etc/passwd")
    assert "c.md was added and is a link" in here.installer.verify()[0].problems
    shutil.rmtree(folder)
    assert "folder is missing" in here.installer.verify()[0].problems[0]
    folder.symlink_to(world.project / "probe")
    assert "is a link" in here.installer.verify()[0].problems[0]


def test_verify_leaves_nothing_out(world: World) -> None:
    world.skill("probe", files={"lib/a.py": "a = 1", "b.md": "b", "c.md": "c", "d.md": "d", "huge.md": "x"})
    here = place(world)
    here.take(world.project / "probe")
    folder = here.skills / "probe"
    os.truncate(folder / "huge.md", 1 << 40)  # of which it reads no more than a skill can have
    (folder / "lib/__pycache__").mkdir()
    (folder / "lib/__pycache__/a.cpython-311.pyc").write_bytes(b"planted")
    (folder / ".hidden").write_text("x")
    (folder / ".git").mkdir()
    (folder / "node_modules/x").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "b.md").chmod(0o666)
    (folder / "c.md").chmod(0o4644)
    (folder / "d.md").unlink()
    (folder / "d.md").symlink_to("c.md")
    os.mkfifo(folder / "pipe")
    (folder / "lib").chmod(0o777)
    assert here.installer.verify()[0].problems == (
        ".git/ was added",
        ".hidden was added",
        "b.md can be written by every user: -rw-rw-rw-",
        "c.md has a special mode: -rwSr--r--",
        "d.md is no longer a file and is a link",
        "empty/ was added",
        "huge.md was changed",
        "lib can be written by every user: drwxrwxrwx",
        "lib/__pycache__/ was added",
        "lib/__pycache__/a.cpython-311.pyc was added",
        "node_modules/ was added",
        "node_modules/x/ was added",
        "pipe was added and is neither a file nor a folder",
    )


def test_a_lock_file_that_was_tampered_with_is_noticed(world: World) -> None:
    world.skill("probe")
    here = place(world)
    here.take(world.project / "probe")
    file = world.home / ".agents/skills.lock.json"
    text = file.read_text()
    document = json.loads(text)
    document["skills"]["probe"]["files"][0][1] = NO_DIGEST
    file.write_text(json.dumps(document))
    assert "inconsistent" in here.installer.verify()[0].problems[0]
    shutil.copytree(here.skills / "probe", world.home / ".agents/other")
    document["skills"] = {"../other": json.loads(text)["skills"]["probe"]}
    file.write_text(json.dumps(document))
    assert "folder is missing" in here.installer.verify()[0].problems[0]
    for broken in ("{", "[]", '{"version": 2, "skills": {}}', '{"version": 1, "skills": {"a": {"files": [1]}}}'):
        file.write_text(broken)
        with pytest.raises(ConfigError, match="lock file cannot be read"):
            here.installer.verify()
    world.skill("second")
    with pytest.raises(ConfigError, match="lock file cannot be read"):
        here.take(world.project / "second")
    assert not (here.skills / "second").exists()


def test_two_trees_never_share_a_digest_by_how_they_are_written_down() -> None:
    def digest(*files: tuple[str, bytes]) -> str:
        return lock.tree_digest(lock.rows(TreeFile(path, data) for path, data in files))

    trees = [
        (("a", b"bc"),),
        (("ab", b"c"),),
        (("a", b"b"), ("c", b"")),
        (("a", b""), ("b", b"c")),
        (('a","x', b""),),
        (("a\n", b"b"),),
        (("a", b"b"),),
        (("a", b"b"), ("A", b"b")),
    ]
    assert len({digest(*tree) for tree in trees}) == len(trees)
    assert digest(("a", b"1"), ("b", b"2")) == digest(("b", b"2"), ("a", b"1"))
    plain = TreeFile("a", b"x")
    runs = TreeFile("a", b"x", executable=True)
    assert lock.tree_digest(lock.rows([plain])) != lock.tree_digest(lock.rows([runs]))
