"""Hostile archives: each is refused with its own reason and leaves nothing behind."""

import os
import stat
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


ATTACKS: dict[str, tuple[str, Callable[[], bytes]]] = {
    **{f"{name}.zip": attack for name, attack in hostile.ZIPS.items()},
    **{f"{name}.tar.gz": attack for name, attack in hostile.TARS.items()},
    "no archive.zip": ("not-an-archive", lambda: b"\x7fELF"),
    "crowded.zip": ("too-many-files", hostile.crowded_directory),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_archive_is_refused_and_leaves_nothing(world: World, tmp_path: Path, name: str) -> None:
    reason, build = ATTACKS[name]
    assert refused(world, build(), tmp_path, f"x.{name.partition('.')[2]}") == reason


@pytest.mark.parametrize("attack", hostile.SKILLS)
def test_an_invalid_skill_is_refused_and_leaves_nothing(world: World, tmp_path: Path, attack: str) -> None:
    reason, text = hostile.SKILLS[attack]
    for packed in (zipped, tarred):
        assert refused(world, packed(skill=text), tmp_path, "x.skill") == reason


def test_a_folder_with_a_link_or_a_pipe_is_refused(world: World) -> None:
    folder = world.skill("probe").parent
    (folder / "a").symlink_to("/etc/passwd")
    for reason in ("link", "not-a-file"):
        with pytest.raises(InstallError) as error:
            attempt(world, folder)
        assert error.value.reason == reason
        (folder / "a").unlink()
        os.mkfifo(folder / "a")
    assert not (world.home / ".agents").exists()


@pytest.mark.parametrize("packed", [zipped, tarred], ids=["zip", "tar"])
@pytest.mark.parametrize("wrapper", ["", "probe/", "probe-main/"])
def test_a_good_archive_comes_out_as_it_went_in(
    world: World, tmp_path: Path, packed: Callable[..., bytes], wrapper: str
) -> None:
    long = "references/" + "x" * 120 + ".md"
    runs: object = stat.S_IFREG | 0o755 if packed is zipped else {"mode": 0o755}
    files = [("SKILL.md", SKILL), ("scripts/a.sh", b"#!/bin/sh\n", runs), (long, b"y" * 2000), ("a/\u00e9.md", b"z")]
    of_a_desktop = () if wrapper else (("__MACOSX/._SKILL.md", b"x"), (".DS_Store", b"x"), ("a/.DS_Store", b"x"))
    source = tmp_path / "probe.skill"
    source.write_bytes(packed(*((wrapper + name, *rest) for name, *rest in (*files, *of_a_desktop)), skill=None))
    attempt(world, source)
    installed = world.home / ".agents/skills/probe"
    found = {str(path.relative_to(installed)): path.read_bytes() for path in installed.rglob("*") if path.is_file()}
    assert found == {name: data for name, data, *_ in files}
    assert os.access(installed / "scripts/a.sh", os.X_OK)
    assert not os.access(installed / long, os.X_OK)
    assert [skill.name for skill in world.discover()] == ["probe"]


def test_odd_archives_of_honest_programs_are_good() -> None:
    data = bytearray(hostile.streamed(("a.md", b"a"), ("b.md", b"b" * 5000)))
    assert [entry.path for entry in archive.unpack(bytes(data))] == ["SKILL.md", "a.md", "b.md"]
    data[-2:] = b"\x05\x00hello"  # a comment
    assert len(archive.unpack(bytes(data))) == 3
    note = b"20 comment=0123456\n\x00"
    tar = hostile.raw_tar(hostile.header(b"g", b"%011o\x00" % 20, b"g"), note.ljust(512, b"\x00"))
    assert [(entry.path, entry.data) for entry in archive.unpack(tar)] == [("SKILL.md", SKILL)]


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
