"""A scan of any files and folders: every SKILL.md is found once and accounted for, and nothing is changed."""

import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from limited import open_folder, run_as_nobody, run_bounded
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


def test_a_file_reached_by_two_ways_is_met_once(world: World, root: Path) -> None:
    (root / "again").symlink_to("good")
    skills = world.discover()
    assert names(skills) == ["good"]
    assert reasons(skills) == [("same-file", "again")]
    assert skills.counts.found == 2


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


def test_a_loop_of_links_ends(world: World, root: Path) -> None:
    (root / "up").symlink_to("..")
    (root / "self").symlink_to("self")
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    (root / "deep").mkdir()
    (root / "deep" / "back").symlink_to(world.project)
    assert names(world.discover()) == ["good"]


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


def test_a_link_into_a_huge_tree_stops_at_its_own_bound(world: World, root: Path, tmp_path: Path) -> None:
    world.trust()  # its links lead out of the project
    for number in range(40):
        (tmp_path / "huge" / f"d{number}").mkdir(parents=True)
    (root / "huge").symlink_to(tmp_path / "huge")
    skills = world.discover(settings={"discovery": {"max_linked_directories": 5}})
    assert names(skills) == ["good"]
    assert {d.code for d in skills.diagnostics} == {"bound-reached"}
    assert "5 folders behind a link" in skills.diagnostics[0].message


def test_one_bound_that_is_hit_is_reported_once(world: World, root: Path, tmp_path: Path) -> None:
    world.trust()  # its links lead out of the project
    for number in range(40):
        (tmp_path / "huge" / f"d{number}").mkdir(parents=True)
    (root / "huge").symlink_to(tmp_path / "huge")
    for settings in ({"max_linked_directories": 5}, {"max_directories": 5}):
        skills = world.discover(settings={"discovery": settings})
        assert [d.code for d in skills.diagnostics] == ["bound-reached"]


# --- things named SKILL.md that are no files


def make_folder(path: Path) -> None:
    path.mkdir()


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"/proc/self/fd/{folder}/SKILL.md")
    server.close()
    os.close(folder)


def make_device(path: Path) -> None:
    try:
        os.mknod(path, 0o020666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root can make a device")


@pytest.mark.system
@pytest.mark.parametrize(
    ("make", "code"),
    [(make_folder, "not-a-file"), (make_fifo, "not-a-file"), (make_socket, "unreadable"), (make_device, "not-a-file")],
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


@pytest.mark.system
def test_a_file_of_100_megabytes_costs_no_more_than_its_head(world: World, root: Path) -> None:
    for name, start in (("large", b"---\nname: large\ndescription: x\n---\n"), ("endless", b"---\nname: endless\n")):
        (root / name).mkdir()
        with (root / name / "SKILL.md").open("wb") as stream:
            stream.write(start)
            stream.truncate(100 * 2**20)
    code = f"skills = Skills.discover({str(world.project)!r}, home={str(world.home)!r})\n"
    code += "print(json.dumps([[s.name for s in skills], [d.code for d in skills.diagnostics]]))"
    done = run_bounded("import json\nfrom metier import Skills", code, megabytes=20)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["good", "large"], ["frontmatter-too-large"]]


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


def test_a_bound_on_folders_is_reported_where_the_search_stopped(world: World, root: Path) -> None:
    for number in range(20):
        (root / f"x{number:02}" / "y").mkdir(parents=True)
    skills = world.discover(settings={"discovery": {"max_directories": 4}})
    assert names(skills) == ["good"]
    assert {d.code for d in skills.diagnostics} == {"bound-reached"}


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
    write_skill(root / folder)
    skills = world.discover()
    assert names(skills) == ["good"]
    assert reasons(skills) == [("ignored-folder", folder)]


def test_folders_inside_a_skill_are_not_searched(world: World, root: Path) -> None:
    write_skill(root / "good" / "inner")
    write_skill(root / "group" / "outer")
    assert names(world.discover()) == ["good", "outer"]


# --- roots


def test_a_root_that_is_a_file_is_an_error_and_the_rest_loads(world: World) -> None:
    world.skill("~/.agents/skills/good")
    (world.project / ".agents").mkdir()
    (world.project / SKILLS).write_text("x")
    skills = world.discover()
    assert names(skills) == ["good"]
    assert [(d.code, d.severity, d.path) for d in skills.diagnostics] == [
        ("root-not-folder", "error", str(world.project / SKILLS))
    ]


@pytest.mark.parametrize(("made", "says"), [(False, "does not exist"), (True, "is not a folder")])
def test_an_explicit_root_must_be_there(world: World, root: Path, made: bool, says: str) -> None:
    if made:
        (world.project / "mine").write_text("x")
    with pytest.raises(ConfigError, match=f"{world.project}/mine {says}"):
        world.discover(roots=["mine"])


def test_a_missing_default_root_is_a_matter_of_course(world: World) -> None:
    skills = world.discover()
    assert (len(skills), skills.diagnostics) == (0, ())


def test_explicit_roots_come_first_and_are_relative_to_the_working_directory(world: World, root: Path) -> None:
    world.skill("mine/good", description="mine")
    world.skill("mine/other")
    skills = world.discover(roots=["mine"])
    assert [(s.name, s.scope) for s in skills] == [("good", "extra"), ("other", "extra")]
    assert skills["good"].description == "mine"


def test_a_root_that_is_itself_a_skill_is_found(world: World) -> None:
    world.skill("alone")
    assert names(world.discover(roots=["alone"])) == ["alone"]


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


# --- the same disk, the same result; and nothing changes on it

TREE = {
    "b/SKILL.md": "---\nname: b\ndescription: x\n---\n",
    "a/SKILL.md": "---\nname: a\ndescription: x\n---\n",
    "group/a/SKILL.md": "---\nname: a\ndescription: other\n---\n",
    "z/SKILL.md": "broken",
    "group/zz/a/SKILL.md": "---\nname: a\ndescription: third\n---\n",
    "c/skill.md": "",
    "build/SKILL.md": "",
}


def test_the_result_does_not_depend_on_the_order_in_which_files_were_made(world: World) -> None:
    seen: list[object] = []
    for order in (list(TREE), list(reversed(TREE)), sorted(TREE)):
        shutil.rmtree(world.project / SKILLS, ignore_errors=True)
        for path in order:
            file = world.project / SKILLS / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(TREE[path])
            os.utime(file, ns=(10**18, 10**18))
        found = world.discover(settings={"cache": False}).catalog
        seen.append(
            (
                [s.as_dict() for s in found.skills],
                [s.as_dict() for s in found.shadowed],
                [s.as_dict() for s in found.skipped],
                [d.as_dict() for d in found.diagnostics],
            )
        )
    assert seen[0] == seen[1] == seen[2]


def snapshot(folder: Path) -> dict[str, tuple[int, ...]]:
    paths = [folder, *folder.rglob("*")]
    stats = {str(path): path.lstat() for path in paths}
    return {path: (s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_size, s.st_mode) for path, s in stats.items()}


def test_nothing_is_written_beside_skills_and_nothing_is_executed(world: World, root: Path) -> None:
    trap = f"#!/bin/sh\ntouch {world.home}/executed\n"
    files: dict[str, str | bytes] = {
        "scripts/run.sh": trap,
        "conftest.py": trap,
        "__init__.py": f"open('{world.home}/executed', 'w')",
    }
    world.skill(f"{SKILLS}/trap", files=files, hooks={"load": f"touch {world.home}/executed"}, body=f"!`{trap}`")
    before = snapshot(world.project)
    world.discover()
    world.discover().refresh()
    assert snapshot(world.project) == before
    assert not (world.home / "executed").exists()
