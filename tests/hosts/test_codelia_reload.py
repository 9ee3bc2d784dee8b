"""Codelia: what the model reads of a skill's files, when it gets a text again, and refs that last."""

import os
from pathlib import Path
from typing import Any

import pytest

import forking
from metier import replay
from metier.record.store import open_store
from metier.session.session import Session
from worlds import World

LOAD = ("skill_load", {"name": "probe"})
KIB = 1024


def session(world: World, **given: Any) -> Session:
    return world.discover("codelia").session(**given)


def read(opened: Session) -> str:
    """What the model reads when it loads the skill."""
    return opened.call(*LOAD).text


def printed(world: World, store: Path, *arguments: str) -> str:
    """What the command prints in a process of its own, in the session `kept`."""
    command = [*forking.METIER, *arguments]
    command += ["--profile", "codelia", "--store", str(store), "--session", "kept"]
    env = {**os.environ, "HOME": str(world.home)}
    done = forking.run(command, cwd=world.project, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def listed(text: str) -> list[str]:
    """The names of the files that a text lists."""
    return [line[len("<file>") : -len("</file>")].rpartition("/")[2] for line in text.split("\n") if "<file>" in line]


SIZES: dict[str, tuple[dict[str, int], list[str]]] = {
    "200": ({f"f{number:03}": 1 for number in range(200)}, []),
    "203": ({f"f{number:03}": 1 for number in range(203)}, ["f200", "f201", "f202"]),
    "512 KiB": ({"a": 256 * KIB, "b": 256 * KIB}, []),
    "full": ({"a": 256 * KIB, "b": 256 * KIB, "c": 1, "d": 0}, ["c"]),
    "one too big": ({"a": 1, "big": 512 * KIB + 1, "c": 1}, ["big"]),
    "first fit": ({"a": 200 * KIB, "b": 400 * KIB, "c": 300 * KIB, "d": 13 * KIB}, ["b", "d"]),
    "only one": ({"big": 512 * KIB + 1}, ["big"]),
}


@pytest.mark.behaviour("C-080", "C-081", "N-015", "N-016")
@pytest.mark.parametrize("case", SIZES)
def test_files_that_do_not_fit_are_left_out_and_counted(world: World, case: str) -> None:
    sizes, left_out = SIZES[case]
    folder = world.skill(".agents/skills/probe").parent
    for name in reversed(sizes):
        (folder / name).write_bytes(b"x" * sizes[name])
    opened = session(world)
    text = read(opened)
    assert listed(text) == [name for name in sorted(sizes) if name not in left_out]
    note = text.partition("</skill_files>\n")[2].removesuffix("</skill_context>")
    assert note.startswith(f"{len(left_out)} more file") if left_out else note == ""
    assert read(session(world)) == text
    data = opened.skills.session().call(*LOAD).data
    assert (data["files_truncated"], data["files_left_out"]) == (bool(left_out), len(left_out))
    if case == "203":  # too many to count
        cut = world.discover("codelia", settings={"load.max_files": 1}).session().call(*LOAD).text
        assert "</skill_files>\nMore files of this skill are not listed here." in cut


@pytest.mark.behaviour("C-074", "C-075", "N-020")
@pytest.mark.parametrize("profile", ["codelia", "standard"])
def test_a_new_file_sends_no_text_again_and_a_changed_one_all_of_it(world: World, tmp_path: Path, profile: str) -> None:
    path = world.skill(".agents/skills/probe", body="BODY", license="MIT", files={"references/a.md": "x"})
    folder, before = path.parent, path.stat()
    with open_store(str(tmp_path / "events.db")) as store:
        first = world.discover(profile).session(store=store, id="kept")
        given = read(first)
        assert "BODY" in given
        (folder / "references/b.md").write_text("new")
        (folder / "references/a.md").unlink()
        later = world.discover(profile).session(store=store, id="kept")  # as another process opens it
        for opened in (first, later):
            again = read(opened)
            assert ("BODY" in again, "already loaded" in again) == (False, True)
            assert opened.output(opened.state()["loaded"][0]["ref"]) == given
        assert "already loaded" in read(later.skills.session(state=first.state()))
        changes = [("BODY", "NEWS", True), ("NEWS", "LAST", False), ("MIT", "BSD", True)]
        for old, new, same_time in changes if profile == "codelia" else changes[:2]:  # the other one shows no license
            path.write_text(path.read_text().replace(old, new))
            if same_time:  # neither its size nor its time shows the change
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            text = read(later)
            assert text == read(world.discover(profile).session()), "the same as for a session that sees it first"
            assert (new in text, old in text) == (True, False)
            assert "already loaded" in read(later)
        outcome = replay.replay(replay.from_store(store, "kept"))
        assert outcome.identical, outcome.differences


@pytest.mark.system
@pytest.mark.behaviour("C-073", "N-024")
def test_after_a_compaction_a_ref_gives_the_whole_text_in_other_processes_too(world: World, tmp_path: Path) -> None:
    store = tmp_path / "events.db"
    paths = [world.skill(f".agents/skills/{name}", body=f"BODY of {name}\n" * 90) for name in ("old", "new")]
    opened = session(world, store=str(store), id="kept")
    texts = {name: opened.call("skill_load", {"name": name}).text for name in ("old", "new")}
    assert all(text.count(f"BODY of {name}") == 90 for name, text in texts.items())
    compacted = printed(world, store, "session", "compact", "--budget", "600")
    assert "BODY" not in compacted
    refs = {one["name"]: one["ref"] for one in opened.state()["loaded"]}
    assert all(f"as ref {refs[name]}. Read it again with `tool_output_cache`" in compacted for name in texts)
    paths[0].unlink()
    paths[1].write_text("---\nname: new\ndescription: Changed.\n---\nOTHER")
    for name, text in texts.items():
        assert printed(world, store, "session", "output", refs[name]).rstrip("\n") == text
    assert opened.compact(100_000).text == f"{texts['new']}\n\n{texts['old']}"
