"""A scan of any files and folders: every SKILL.md is found once and accounted for, and nothing is changed."""

import json
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from limited import open_folder, run_as_nobody
from metier import ConfigError, Skills, limits
from metier.testing import write_skill
from worlds import World

SKILLS = ".agents/skills"
__all__ = ["open_folder"]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def root(world: World) -> Path:
    """The project's skills folder, with one good skill in it that every test must still find."""
    world.skill(f"{SKILLS}/good")
    return world.project / SKILLS


def said(skills: Skills) -> list[tuple[str, str]]:
    return [(d.code, os.path.basename(os.path.dirname(d.path))) for d in skills.diagnostics]


def reasons(skills: Skills) -> list[tuple[str, str]]:
    return [(s.reason, os.path.basename(os.path.dirname(s.path))) for s in skills.skipped]


def names(skills: Skills) -> list[str]:
    return [skill.name for skill in skills]


# --- links


def test_a_linked_folder_is_a_skill_under_the_name_of_the_link(world: World, root: Path, tmp_path: Path) -> None:
    world.trust()  # its links lead out of the project
    write_skill(tmp_path / "elsewhere" / "real", name="linked")
    (root / "linked").symlink_to(tmp_path / "elsewhere" / "real")
    skill = world.discover()["linked"]
    assert (skill.path, skill.real_path) == (
        str(root / "linked" / "SKILL.md"),
        str(tmp_path / "elsewhere" / "real" / "SKILL.md"),
    )


@pytest.mark.parametrize("roots", [["one", "two"], ["two", "one"], ["one", "links"], ["links", "one"]])
@pytest.mark.parametrize(("kind", "loaded", "errors"), [("good", 2, 0), ("broken", 1, 1), ("a folder", 1, 3)])
def test_a_file_in_two_roots_is_met_once(world: World, roots: list[str], kind: str, loaded: int, errors: int) -> None:
    """The ways to it are links to its root, to its folder, and two to itself, one before it and one after it.

    Another file has no links to itself.
    """
    one = world.project / "one"
    if kind == "a folder":
        (one / "b" / "SKILL.md").mkdir(parents=True)
    else:
        world.skill("one/b", **({"text": "no frontmatter"} if kind == "broken" else {}))
    (world.project / "two").symlink_to("one")
    (world.project / "links").mkdir()
    world.skill("one/d")
    for name in ("b", "d"):
        (world.project / "links" / name).symlink_to(one / name)
    for name in ("a", "c"):
        (one / name).mkdir()
        (one / name / "SKILL.md").symlink_to(one / "b" / "SKILL.md")
    time.sleep(limits.RACY_WINDOW_NS / 1e9 * 1.5)
    for _ in range(2):  # without a cache, then with one
        skills = world.discover(roots=roots)
        counts = skills.counts
        assert (counts.loaded, counts.shadowed, counts.errors) == (loaded, 0, errors)
        assert {reason for reason, _ in reasons(skills)} <= {"same-file"}
        assert counts.found == (4 if "two" in roots else 6)


def test_a_dangling_link_is_nothing(world: World, root: Path) -> None:
    (root / "gone").symlink_to("/nowhere/at/all")
    assert said(world.discover()) == []


def test_a_linked_skill_file_counts_if_it_leads_to_a_skill_file(world: World, root: Path, tmp_path: Path) -> None:
    world.trust()  # its links lead out of the project
    target = Path(write_skill(tmp_path / "other" / "real", name="linked"))
    (root / "linked").mkdir()
    (root / "linked" / "SKILL.md").symlink_to(target)
    skills = world.discover()
    assert names(skills) == ["good", "linked"]
    assert skills["linked"].real_path == str(target)


@pytest.mark.parametrize("target", ["/etc/passwd", "/dev/null", "/dev/zero", "../good", "notes.md"])
def test_a_linked_skill_file_never_shows_a_file_of_another_name(world: World, root: Path, target: str) -> None:
    (root / "bad").mkdir()
    (root / "bad" / "notes.md").write_text("---\nname: bad\ndescription: secret\n---\n")
    (root / "bad" / "SKILL.md").symlink_to(target)
    skills = world.discover()
    assert names(skills) == ["good"]
    assert reasons(skills) == [("link", "bad")]


@pytest.mark.parametrize("target", ["SKILL.md", "/nowhere/SKILL.md"])
def test_a_skill_file_that_links_to_nothing_is_an_error(world: World, root: Path, target: str) -> None:
    (root / "bad").mkdir()
    (root / "bad" / "SKILL.md").symlink_to(target)
    skills = world.discover()
    assert said(skills) == [("unreadable", "bad")]
    assert skills.counts.errors == 1


def test_one_bound_that_is_hit_is_reported_once(world: World, root: Path, tmp_path: Path) -> None:
    world.trust()  # its links lead out of the project
    for number in range(40):
        (tmp_path / "huge" / f"d{number}").mkdir(parents=True)
    (root / "huge").symlink_to(tmp_path / "huge")
    for settings in ({"max_linked_directories": 5}, {"max_directories": 5}):
        skills = world.discover(settings={"discovery": settings})
        assert [d.code for d in skills.diagnostics] == ["bound-reached"]


# --- things named SKILL.md that are no files


def make_socket(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{folder}/SKILL.md")
    os.close(folder)


def make_device(path: Path) -> None:
    try:
        os.mknod(path, 0o020666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root can make a device")


@pytest.mark.system
@pytest.mark.parametrize(
    ("make", "code"),
    [(Path.mkdir, "not-a-file"), (os.mkfifo, "not-a-file"), (make_socket, "unreadable"), (make_device, "not-a-file")],
)
def test_what_is_no_regular_file_is_an_error_and_never_read(
    world: World, root: Path, make: Callable[[Path], None], code: str
) -> None:
    (root / "bad").mkdir()
    make(root / "bad" / "SKILL.md")
    skills = world.discover()
    assert names(skills) == ["good"]
    assert said(skills) == [(code, "bad")]
    assert skills.counts.as_dict() == {"found": 2, "loaded": 1, "shadowed": 0, "skipped": 0, "errors": 1}


# --- sizes


@pytest.fixture
def abyss() -> Iterator[Path]:
    """Ten thousand nested folders: deeper than a path can be, and than Python's own rmtree can go."""
    memory = "/dev/shm"  # this is slow on a disk
    top = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
    here = os.open(top, os.O_RDONLY)
    for _ in range(10_000):
        os.mkdir("d", dir_fd=here)
        above, here = here, os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(above)
    yield top
    for _ in range(10_000):
        below, here = here, os.open("..", os.O_RDONLY, dir_fd=here)
        os.close(below)
        os.rmdir("d", dir_fd=here)
    os.close(here)
    top.rmdir()


def test_ten_thousand_levels_end_at_the_bound(world: World, root: Path, abyss: Path) -> None:
    world.trust()  # its links lead out of the project
    (root / "abyss").symlink_to(abyss)
    skills = world.discover()
    assert names(skills) == ["good"]
    (note,) = skills.diagnostics
    assert (note.code, note.severity) == ("bound-reached", "warning")
    assert "24 levels" in note.message


def test_links_cannot_multiply_the_bound_on_folders(world: World, root: Path, tmp_path: Path) -> None:
    world.trust()  # its links lead out of the project
    for number in range(9):
        for inner in range(9):
            (tmp_path / "huge" / f"d{number}" / f"e{inner}").mkdir(parents=True)
        (root / f"x{number}").symlink_to(tmp_path / "huge" / f"d{number}")
    skills = world.discover(settings={"discovery": {"max_linked_directories": 20, "max_directories": 50}})
    (note,) = skills.diagnostics
    assert "50 folders" in note.message


# --- names


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31mb", "a\tb", "a\\b", " a ", "a\u202eb", "ä\udcff", "..."])
def test_folders_with_odd_names_harm_nobody(world: World, root: Path, name: str) -> None:
    os.makedirs(root / name)
    write_skill(root / name, name=None, description="x", text="---\ndescription: x\n---\n")
    skills = world.discover()
    assert "good" in skills
    assert skills.counts.found == 2
    for skill in skills:
        assert not set(skill.name) & set("\n\x1b\t\\\u202e")
    json.dumps([skill.as_dict() for skill in skills])


@pytest.mark.parametrize("wrong", ["skill.md", "Skill.md", "SKILL.MD", "sKiLl.mD"])
def test_a_file_in_the_wrong_case_is_pointed_out(world: World, root: Path, wrong: str) -> None:
    (root / "bad").mkdir()
    (root / "bad" / wrong).write_text("---\nname: bad\ndescription: x\n---\n")
    skills = world.discover()
    assert names(skills) == ["good"]
    (note,) = skills.diagnostics
    assert (note.code, note.severity, note.path) == ("wrong-case", "warning", str(root / "bad" / wrong))


def test_the_wrong_case_beside_the_right_one_does_not_matter(world: World, root: Path) -> None:
    (root / "good" / "skill.md").write_text("x")
    assert said(world.discover()) == []


@pytest.mark.parametrize("folder", [".git", "node_modules", "__pycache__", "dist", "build"])
def test_folders_that_tools_fill_are_not_searched(world: World, root: Path, folder: str) -> None:
    write_skill(root / folder / "hidden")
    write_skill(root / "group" / folder)
    skills = world.discover()
    assert names(skills) == ["good"]
    assert ("ignored-folder", folder) in reasons(skills)


def test_a_skill_may_be_called_as_a_folder_that_tools_fill(world: World, root: Path) -> None:
    for name in ("build", "dist", "target"):
        write_skill(root / name)
        write_skill(root / name / "below")
    write_skill(root / "node_modules")
    assert names(world.discover()) == ["build", "dist", "good", "target"]
    assert names(world.discover()) == ["build", "dist", "good", "target"], "with what was kept of the last scan"


def test_folders_inside_a_skill_are_not_searched(world: World, root: Path) -> None:
    write_skill(root / "good" / "inner")
    write_skill(root / "group" / "outer")
    assert names(world.discover()) == ["good", "outer"]


# --- roots


@pytest.mark.parametrize(("made", "says"), [(False, "does not exist"), (True, "is not a folder")])
def test_an_explicit_root_must_be_there(world: World, root: Path, made: bool, says: str) -> None:
    if made:
        (world.project / "mine").write_text("x")
    with pytest.raises(ConfigError, match=f"{world.project}/mine {says}"):
        world.discover(roots=["mine"])


def test_explicit_roots_come_first_and_are_relative_to_the_working_directory(world: World, root: Path) -> None:
    world.skill("mine/good", description="mine")
    world.skill("mine/other")
    skills = world.discover(roots=["mine"])
    assert [(s.name, s.scope) for s in skills] == [("good", "extra"), ("other", "extra")]
    assert skills["good"].description == "mine"


def test_a_scan_writes_nothing_beside_skills(world: World, root: Path) -> None:
    def seen() -> dict[str, tuple[int, ...]]:
        paths = [world.project, *world.project.rglob("*")]
        return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_ctime_ns, path.lstat().st_ino) for path in paths}

    before = seen()
    world.discover().refresh()
    assert seen() == before


# --- permissions, as a real user without rights


@pytest.mark.system
@as_root
def test_unreadable_files_and_folders_are_errors_and_the_rest_loads(open_folder: Path) -> None:
    base = open_folder
    for name in ("good", "locked-file", "locked-folder", "no-search", "no-list/inner"):
        write_skill(base / "skills" / name)
    (base / "skills/locked-file/SKILL.md").chmod(0)
    (base / "skills/locked-folder").chmod(0)
    (base / "skills/no-search").chmod(0o644)
    (base / "skills/no-list").chmod(0o311)
    code = """
skills = metier.Skills.discover(sys.argv[1], roots=["skills"], home=sys.argv[1])
print(json.dumps([[s.name for s in skills], [[d.code, d.path] for d in skills.diagnostics], skills.counts.as_dict()]))
"""
    done = run_as_nobody(code, str(base))
    assert done.returncode == 0, done.stderr.decode()
    loaded, notes, counts = json.loads(done.stdout)
    assert loaded == ["good"]
    assert {code for code, _ in notes} == {"unreadable"}
    where = {os.path.relpath(path, base / "skills") for _, path in notes}
    assert where == {"locked-file/SKILL.md", "locked-folder/SKILL.md", "no-search/SKILL.md", "no-list"}
    assert counts == {"found": 4, "loaded": 1, "shadowed": 0, "skipped": 0, "errors": 3}


def test_a_scan_closes_what_it_opens(world: World, root: Path) -> None:
    for number in range(20):
        write_skill(root / f"s{number}")
    (root / "broken").mkdir()
    (root / "broken" / "SKILL.md").write_text("no frontmatter")
    world.discover()
    before = len(os.listdir("/proc/self/fd"))
    skills = world.discover()
    skills.refresh()
    assert len(os.listdir("/proc/self/fd")) == before


def test_as_many_skills_as_the_limit_says_are_found(world: World, root: Path) -> None:
    for name in ("a", "b", "c"):
        write_skill(root / name)
    for limit, told in ((4, False), (2, True)):
        skills = world.discover(settings={"discovery.max_skills": limit})
        assert len(skills) == limit
        assert any(note.code == "bound-reached" for note in skills.diagnostics) == told
