"""The scan cache: a warm scan reads nothing, a change is always noticed, and a bad cache does no harm."""

import ast
import marshal
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limited import NOBODY, open_folder, run_as_nobody
from metier import Skills, limits
from metier.catalog import discover, scan_cache
from metier.testing import write_skill
from worlds import World

SKILLS = ".agents/skills"
__all__ = ["open_folder"]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can do this")


def settle() -> None:
    """Wait until a file that was just written is older than one tick of the clock."""
    time.sleep(limits.RACY_WINDOW_NS / 1e9 * 1.5)


@pytest.fixture
def warm(world: World) -> World:
    """Five skills with a cached scan."""
    for number in range(5):
        world.skill(f"{SKILLS}/s{number}", description=f"number {number}")
    settle()
    assert world.discover().parsed == 5
    return world


def cache_file(world: World) -> Path:
    (file,) = (world.home / ".cache" / "metier").glob("scan-*")
    return file


def described(skills: Skills) -> dict[str, str]:
    return {skill.name: skill.description for skill in skills}


# --- what a warm scan costs


def test_a_warm_scan_opens_no_skill_and_lists_no_folder(warm: World, monkeypatch: pytest.MonkeyPatch) -> None:
    touched: list[str] = []

    def spy(name: str) -> Callable[..., object]:
        real: Callable[..., object] = getattr(os, name)

        def call(path: object, *more: object, **given: object) -> object:
            result = real(path, *more, **given)  # a file that does not exist is not opened
            touched.append(str(path))
            return result

        return call

    for name in ("open", "scandir", "listdir"):
        monkeypatch.setattr(discover.os, name, spy(name))
    skills = warm.discover()
    assert (skills.parsed, len(skills)) == (0, 5)
    assert [path for path in touched if str(warm.project) in path] == []


def test_a_scan_without_changes_does_not_write_the_cache(warm: World) -> None:
    before = cache_file(warm).stat()
    warm.discover()
    after = cache_file(warm).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_folder_that_comes_or_goes_costs_no_reading_of_its_neighbours(warm: World) -> None:
    root = warm.project / SKILLS
    warm.skill(f"{SKILLS}/a", description="first")
    (root / "s2" / "empty").mkdir()
    settle()
    skills = warm.discover()
    assert (skills.parsed, skills["a"].description, skills["s4"].description) == (1, "first", "number 4")
    shutil.rmtree(root / "s1")
    skills = warm.discover()
    assert (skills.parsed, [skill.description for skill in skills][-2:]) == (0, ["number 3", "number 4"])


def test_a_root_that_is_a_skill_and_a_linked_one_are_remembered(world: World) -> None:
    world.skill("root", description="the root")
    world.skill("far/away", description="linked")
    (world.project / "root" / "away").symlink_to(world.project / "far" / "away")
    settle()
    given: dict[str, Any] = {"roots": ["root"], "settings": {"discovery": {"root_is_skill": True, "nested": True}}}
    for parsed in (2, 0):
        skills = world.discover(**given)
        assert (skills.parsed, described(skills)) == (parsed, {"root": "the root", "away": "linked"})


def test_a_search_that_stopped_early_remembers_what_it_read(warm: World) -> None:
    given: dict[str, Any] = {"settings": {"discovery": {"max_skills": 3}}}
    for parsed in (3, 0):
        skills = warm.discover(**given)
        assert (skills.parsed, set(described(skills))) == (parsed, {"s0", "s1", "s2"})


def test_each_profile_and_root_set_has_a_cache_of_its_own(warm: World) -> None:
    assert warm.discover(settings={"catalog": {"max_skills": 3}}).parsed == 5
    warm.skill("mine/x")
    assert warm.discover(roots=["mine"]).parsed == 6
    assert warm.discover().parsed == 0


def test_the_cache_can_be_switched_off(warm: World) -> None:
    assert warm.discover(settings={"cache": False}).parsed == 5


# --- what is seen


def replace_file(path: Path, text: str) -> None:
    other = path.with_name("new")
    other.write_text(text)
    other.rename(path)


def rewrite_with_old_times(path: Path, text: str) -> None:
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("edit", [Path.write_text, replace_file, rewrite_with_old_times])
@pytest.mark.parametrize("waits", [False, True])
def test_an_edit_of_the_same_size_is_seen_however_soon(
    world: World, edit: Callable[[Path, str], object], waits: bool
) -> None:
    text = "---\nname: a\ndescription: {:04}\n---\n"
    path = Path(world.skill(f"{SKILLS}/a", text=text.format(0)))
    for number in range(1, 12):
        assert world.discover()["a"].description == f"{number - 1:04}"
        if waits:
            settle()
            world.discover()
        edit(path, text.format(number))
    assert world.discover()["a"].description == "0011"


def test_a_skill_that_becomes_a_link_or_a_folder_is_seen(warm: World) -> None:
    root = warm.project / SKILLS
    (root / "s0" / "SKILL.md").unlink()
    (root / "s0" / "SKILL.md").symlink_to("/etc/hostname")
    (root / "s1" / "SKILL.md").unlink()
    (root / "s1" / "SKILL.md").mkdir()
    skills = warm.discover()
    assert set(described(skills)) == {"s2", "s3", "s4"}
    assert skills.counts.as_dict() == {"found": 5, "loaded": 3, "shadowed": 0, "skipped": 1, "errors": 1}


def test_a_change_behind_a_link_is_seen(world: World, tmp_path: Path) -> None:
    world.trust()  # its links lead out of the project
    for name in ("file", "folder"):
        write_skill(tmp_path / "far" / name, description="old")
    root = world.project / SKILLS
    (root / "file").mkdir(parents=True)
    (root / "file" / "SKILL.md").symlink_to(tmp_path / "far" / "file" / "SKILL.md")
    (root / "folder").symlink_to(tmp_path / "far" / "folder")
    settle()
    assert described(world.discover()) == {"file": "old", "folder": "old"}
    for name in ("file", "folder"):
        write_skill(tmp_path / "far" / name, description="new")
    assert described(world.discover()) == {"file": "new", "folder": "new"}


# --- caches that are not to be trusted


def flip(position: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:position] + bytes([data[position] ^ 0x40]) + data[position + 1 :]


def forge(content: Any) -> Callable[[bytes], bytes]:
    body = marshal.dumps(content)
    return lambda data: struct.pack("<4sIQ", data[:4], zlib.crc32(body), len(body)) + body


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "a header alone": lambda data: data[:16],
    "cut short": lambda data: data[:-7],
    "grown": lambda data: data + b"x",
    "another version": lambda data: b"MTR9" + data[4:],
    "a wrong checksum": flip(5),
    "a wrong length": flip(9),
    "a flipped bit at the start": flip(20),
    "a flipped bit at the end": flip(-2),
    "text": lambda data: b"this is no cache\n" * 40,
    "other content": forge("words"),
    "other tables": forge(([], (), (), "now")),
    "unloadable": lambda data: struct.pack("<4sIQ", data[:4], zlib.crc32(b"\xff"), 1) + b"\xff",
}


def test_a_cache_in_several_parts_is_whole_or_not_used(warm: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_cache, "_PART", 2)
    cache_file(warm).unlink()
    assert warm.discover().parsed == 5
    again = warm.discover()
    assert (again.parsed, len(again)) == (0, 5)
    file = cache_file(warm)
    data = file.read_bytes()
    checksum_and_length = 12
    (length,) = struct.unpack_from("<Q", data, 8)
    for end in (4, 4 + checksum_and_length, 4 + checksum_and_length + length):
        file.write_bytes(data[:end])
        part = warm.discover()
        assert (part.parsed, len(part)) == (5, 5)


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_cache_is_the_same_as_none(warm: World, kind: str) -> None:
    file = cache_file(warm)
    file.write_bytes(DAMAGE[kind](file.read_bytes()))
    skills = warm.discover()
    assert (skills.parsed, len(skills), skills.diagnostics) == (5, 5, ())
    settle()
    warm.discover()
    assert warm.discover().parsed == 0


@as_root
def test_a_cache_of_another_user_is_not_read(warm: World) -> None:
    os.chown(cache_file(warm), NOBODY, NOBODY)
    assert warm.discover().parsed == 5


def test_a_linked_cache_is_neither_read_nor_written_through(warm: World, tmp_path: Path) -> None:
    file, away = cache_file(warm), tmp_path / "away.bin"
    file.rename(away)
    file.symlink_to(away)
    content = away.read_bytes()
    assert warm.discover().parsed == 5
    assert away.read_bytes() == content
    assert not file.is_symlink()


@pytest.mark.system
@as_root
def test_a_read_only_cache_folder_is_simply_not_used(open_folder: Path) -> None:
    write_skill(open_folder / "p" / "skills" / "a")
    (open_folder / "h" / ".cache" / "metier").mkdir(parents=True)
    code = """
for _ in range(2):
    skills = metier.Skills.discover(sys.argv[1] + "/p", roots=["skills"], home=sys.argv[1] + "/h")
    print(len(skills), skills.parsed, len(skills.diagnostics))
"""
    done = run_as_nobody(code, str(open_folder))
    assert (done.stdout, done.stderr) == (b"1 1 0\n1 1 0\n", b"")


def test_a_full_disk_is_no_reason_to_fail(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.skill(f"{SKILLS}/a")
    real = tempfile.mkstemp

    def on_a_full_disk(**given: Any) -> tuple[int, str]:
        descriptor, path = real(**given)
        os.close(descriptor)
        return os.open("/dev/full", os.O_WRONLY), path

    monkeypatch.setattr(tempfile, "mkstemp", on_a_full_disk)
    assert len(world.discover()) == 1
    assert list((world.home / ".cache" / "metier").iterdir()) == []


def test_a_cache_folder_that_is_a_file_is_no_reason_to_fail(world: World) -> None:
    world.skill(f"{SKILLS}/a")
    (world.home / ".cache").write_text("x")
    assert len(world.discover()) == 1


@pytest.mark.system
def test_two_writers_never_mix(tmp_path: Path) -> None:
    file = tmp_path / "scan-x"
    code = """
import sys
from metier.catalog import scan_cache as cache
letter, file = sys.argv[1:]
for _ in range(150):
    memory = cache.Memory({f"/{letter}{n}": [(letter * 50,)] for n in range(200)}, read_ns=1)
    assert cache.write(file, memory)
    assert len({path[1] for path in cache.read(file).files}) == 1, "two writers were mixed"
"""
    writers = [subprocess.Popen([sys.executable, "-c", code, letter, str(file)]) for letter in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert len(scan_cache.read(str(file)).files) == 200
    assert [path.name for path in tmp_path.glob("*scan-*")] == [file.name]


def test_caches_that_nobody_used_for_a_month_are_dropped(warm: World) -> None:
    old = cache_file(warm).with_name("scan-old")
    old.write_bytes(b"x")
    foreign = old.with_name("notes.txt")
    foreign.write_text("mine")
    for path in (old, foreign):
        os.utime(path, (1, 1))
    warm.skill(f"{SKILLS}/s9")
    warm.discover()
    assert not old.exists()
    assert foreign.exists()


# --- warm is cold, whatever happened in between

TEXTS = [
    "---\nname: n{}\ndescription: {}\n---\n",
    "---\ndescription: {1}{0}\n---\n",
    "broken {} {}",
    "---\nname: {}: {}\n---",
]
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "delete", "move", "link", "folder", "touch", "chmod", "look"]),
        st.sampled_from(["a", "b", "c/d", "c/e", "c"]),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    max_size=14,
)


def apply(root: Path, what: str, where: str, one: int, other: int) -> None:
    folder = root / where
    file = folder / "SKILL.md"
    try:
        if what == "write":
            folder.mkdir(parents=True, exist_ok=True)
            file.write_text(TEXTS[one].format(one, other))
        elif what == "delete":
            file.unlink()
        elif what == "move":
            folder.rename(root / f"m{one}")
        elif what == "link":
            folder.symlink_to(root / f"m{one}" if other % 2 else root / "a")
        elif what == "folder":
            file.mkdir(parents=True)
        elif what == "touch":
            os.utime(file, (one, other))
        elif what == "chmod":
            file.chmod(0o600 + one)
    except OSError:
        pass


def facts(skills: Skills) -> tuple[object, ...]:
    found = skills.catalog
    return (found.skills, found.shadowed, found.skipped, found.failed, found.diagnostics, found.per_root)


@settings(max_examples=40)
@given(EDITS)
def test_a_warm_scan_equals_a_cold_one(edits: list[tuple[str, str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "skills")
        root.mkdir()
        kept = Skills.discover(folder, roots=["skills"], home=folder)
        for edit in edits:
            apply(root, *edit)
            warm = Skills.discover(folder, roots=["skills"], home=folder)
            cold = Skills.discover(folder, roots=["skills"], home=folder, settings={"cache": False})
            kept.refresh()
            assert facts(warm) == facts(cold) == facts(kept)


# --- a process that scans again


def listed_elsewhere(world: World) -> dict[str, str]:
    """What the next process finds with the cache of this one."""
    code = "import sys; from metier import Skills; skills = Skills.discover(sys.argv[1], home=sys.argv[2])"
    show = "print({skill.name: skill.description for skill in skills})"
    call = [sys.executable, "-c", f"{code}\n{show}", str(world.project), str(world.home)]
    return ast.literal_eval(subprocess.run(call, capture_output=True, text=True, check=True).stdout)


@pytest.mark.system
def test_a_rescan_of_a_few_changes_leaves_the_cache_alone_and_the_next_process_is_right(warm: World) -> None:
    skills = warm.discover()
    before = cache_file(warm).read_bytes()
    warm.skill(f"{SKILLS}/fresh", description="new")
    warm.skill(f"{SKILLS}/s0", description="changed")
    shutil.rmtree(warm.project / SKILLS / "s1")
    assert skills.refresh().added == ("fresh",)
    assert cache_file(warm).read_bytes() == before, "a write would cost more than the next process saves by it"
    expected = described(skills)
    assert (expected["fresh"], expected["s0"], "s1" in expected) == ("new", "changed", False)
    assert listed_elsewhere(warm) == expected
    assert cache_file(warm).read_bytes() != before, "its first scan wrote what it read"
