"""The lock file: the changes that it detects, and its digests."""

import json
import shutil

import pytest

from install.places import NO_DIGEST, place
from metier.errors import ConfigError
from metier.install import lock
from metier.install.archive import ArchiveEntry
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
    assert "link" in here.installer.verify()[0].problems[0]
    shutil.rmtree(folder)
    assert "folder is missing" in here.installer.verify()[0].problems[0]
    folder.symlink_to(world.project / "probe")
    assert "is a link" in here.installer.verify()[0].problems[0]


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
        return lock.tree_digest(lock.rows(ArchiveEntry(path, data) for path, data in files))

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
    plain = ArchiveEntry("a", b"x")
    runs = ArchiveEntry("a", b"x", executable=True)
    assert lock.tree_digest(lock.rows([plain])) != lock.tree_digest(lock.rows([runs]))
