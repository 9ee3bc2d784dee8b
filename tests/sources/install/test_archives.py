"""Hostile archives: each is refused with its own reason and leaves nothing behind."""

import gzip
import os
import random
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.attack import hostile
from bench.attack.hostile import SKILL, tarred, zipped
from metier.errors import InstallError, MetierError
from metier.hosts.settings import resolve
from metier.record.store.memory import MemoryStore
from metier.sources.install import Installer, InstallRequest, archive
from worlds import World


def attempt(world: World, source: Path) -> MemoryStore:
    store = MemoryStore()
    Installer(resolve(world.project, home=world.home), store).install(InstallRequest(str(source)), lambda _: True)
    return store


def everything(folder: Path) -> dict[str, object]:
    """Every path below a folder with its kind. Links are not followed."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        found[str(path)] = (stat.S_IFMT(status.st_mode), status.st_size if path.is_file() else 0)
    return found


def refused(world: World, data: bytes, tmp_path: Path, name: str) -> str:
    """The reason for which an archive is refused. Nothing of it is left on disk."""
    source = tmp_path / name
    source.write_bytes(data)
    outside = {path: os.path.lexists(path) for path in ("/tmp/evil", "/evil", os.path.expanduser("~/evil"))}
    before = everything(tmp_path)
    with pytest.raises(MetierError) as error:
        attempt(world, source)
    assert everything(tmp_path) == before
    assert {path: os.path.lexists(path) for path in outside} == outside
    return getattr(error.value, "reason", "") or type(error.value).__name__


@pytest.mark.parametrize(
    ("kind", "attack"), [*(("zip", name) for name in hostile.ZIPS), *(("tar.gz", name) for name in hostile.TARS)]
)
def test_a_hostile_archive_is_refused_and_leaves_nothing(world: World, tmp_path: Path, kind: str, attack: str) -> None:
    reason, build = (hostile.ZIPS if kind == "zip" else hostile.TARS)[attack]
    assert refused(world, build(), tmp_path, f"x.{kind}") == reason


@pytest.mark.parametrize("attack", hostile.SKILLS)
@pytest.mark.parametrize("packed", [zipped, tarred], ids=["zip", "tar"])
def test_an_invalid_skill_is_refused_and_leaves_nothing(
    world: World, tmp_path: Path, attack: str, packed: Callable[..., bytes]
) -> None:
    reason, text = hostile.SKILLS[attack]
    assert refused(world, packed(skill=text), tmp_path, "x.skill") == reason


def test_a_crowded_table_of_contents_is_refused_before_it_is_parsed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zipfile, "ZipFile", lambda *_: pytest.fail("it was parsed"))
    assert refused(world, hostile.crowded_directory(), tmp_path, "x.zip") == "too-many-files"


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_damage_of_any_kind_ends_in_a_refusal_or_in_files_with_checked_names(kind: str) -> None:
    chance = random.Random(7)
    files = [("a/b.md", b"hello" * 40), ("y" * 120, b"z"), ("scripts/x.sh", b"x" * 700)]
    good = zipped(*files) if kind == "zip" else hostile.plain_tar(*files)
    outcomes: set[str] = set()
    for _ in range(2_000):
        data = bytearray(good)
        for _ in range(chance.choice([1, 1, 2, 8])):
            place = chance.randrange(len(data))
            data[place : place + chance.randrange(3)] = chance.randbytes(chance.randrange(5))
        if kind == "tar":
            data = hostile.rightly_summed(data)
        try:
            entries = archive.unpack(bytes(data) if kind == "zip" else gzip.compress(bytes(data), 1))
        except InstallError as error:
            outcomes.add(error.reason)
            continue
        outcomes.add("unpacked")
        for entry in entries:
            assert os.path.normpath(entry.path) == entry.path
            assert not entry.path.startswith(("/", ".."))
    assert {"unpacked", "damaged"} <= outcomes


def test_what_is_no_archive_is_refused(world: World, tmp_path: Path) -> None:
    assert refused(world, b"\x7fELF", tmp_path, "x.zip") == "not-an-archive"


@pytest.mark.parametrize("trap", ["link", "pipe"])
def test_a_folder_with_a_link_or_a_pipe_is_refused(world: World, tmp_path: Path, trap: str) -> None:
    folder = tmp_path / "probe"
    folder.mkdir()
    (folder / "SKILL.md").write_bytes(SKILL)
    if trap == "link":
        (folder / "a").symlink_to("/etc/passwd")
    else:
        os.mkfifo(folder / "a")
    with pytest.raises(InstallError) as error:
        attempt(world, folder)
    assert error.value.reason == {"link": "link", "pipe": "not-a-file"}[trap]
    assert not (world.home / ".agents").exists()


@pytest.mark.parametrize("packed", [zipped, tarred], ids=["zip", "tar"])
@pytest.mark.parametrize("wrapper", ["", "probe/", "probe-main/"])
def test_a_good_archive_comes_out_as_it_went_in(
    world: World, tmp_path: Path, packed: Callable[..., bytes], wrapper: str
) -> None:
    long = "references/" + "x" * 120 + ".md"
    runs: object = stat.S_IFREG | 0o755 if packed is zipped else {"mode": 0o755}
    files = [("SKILL.md", SKILL), ("scripts/a.sh", b"#!/bin/sh\n", runs), (long, b"y" * 2000), ("a/\u00e9.md", b"z")]
    source = tmp_path / "probe.skill"
    source.write_bytes(packed(*((wrapper + name, *rest) for name, *rest in files), skill=None))
    attempt(world, source)
    installed = world.home / ".agents/skills/probe"
    found = {
        path.relative_to(installed).as_posix(): path.read_bytes() for path in installed.rglob("*") if path.is_file()
    }
    assert found == {name: data for name, data, *_ in files}
    assert os.access(installed / "scripts/a.sh", os.X_OK)
    assert not os.access(installed / long, os.X_OK)
    assert [skill.name for skill in world.discover()] == ["probe"]


def test_what_a_desktop_adds_is_left_out(world: World, tmp_path: Path) -> None:
    source = tmp_path / "probe.zip"
    source.write_bytes(zipped(("__MACOSX/._SKILL.md", b"x"), (".DS_Store", b"x"), ("a/.DS_Store", b"x")))
    attempt(world, source)
    assert os.listdir(world.home / ".agents/skills/probe") == ["SKILL.md"]


def test_a_folder_comes_without_its_repository_and_without_bytecode_and_says_so(world: World, tmp_path: Path) -> None:
    world.skill("probe", files={"a.md": "x", "lib/b.py": "b = 1", "lib/b.pyc": "x", "lib/c.pyo": "x"})
    for extra in (".git", "node_modules", "scripts/__pycache__"):
        (world.project / "probe" / extra).mkdir(parents=True)
        (world.project / "probe" / extra / "x").write_text("x")
    installer = Installer(resolve(world.project, home=world.home), MemoryStore())
    offer = installer.install(InstallRequest(str(world.project / "probe")), lambda _: True)
    assert sorted(offer.left_out) == [".git", "lib/b.pyc", "lib/c.pyo", "node_modules", "scripts/__pycache__"]
    installed = world.home / ".agents/skills/probe"
    found = sorted(path.relative_to(installed).as_posix() for path in installed.rglob("*"))
    assert found == ["SKILL.md", "a.md", "lib", "lib/b.py"]
    assert [finding.problems for finding in installer.verify()] == [()]


def test_a_refusal_of_bytecode_names_the_file(world: World, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(zipped(("lib/__pycache__/a.cpython-311.pyc", b"x")))
    with pytest.raises(InstallError, match=r"'lib/__pycache__/a\.cpython-311\.pyc'"):
        attempt(world, tmp_path / "x.zip")


def test_a_zip_that_was_written_to_a_pipe_or_has_a_comment_is_a_good_archive(world: World, tmp_path: Path) -> None:
    data = bytearray(hostile.streamed(("a.md", b"a"), ("b.md", b"b" * 5000)))
    assert [entry.path for entry in archive.unpack(bytes(data))] == ["SKILL.md", "a.md", "b.md"]
    data[-2:] = b"\x05\x00hello"
    assert len(archive.unpack(bytes(data))) == 3


def test_a_comment_about_the_whole_tar_is_no_obstacle(world: World, tmp_path: Path) -> None:
    source = tmp_path / "probe.tar.gz"
    note = b"20 comment=0123456\n\x00"
    source.write_bytes(hostile.raw_tar(hostile.header(b"g", b"%011o\x00" % 20, b"g"), note.ljust(512, b"\x00")))
    attempt(world, source)
    assert (world.home / ".agents/skills/probe/SKILL.md").read_bytes() == SKILL
