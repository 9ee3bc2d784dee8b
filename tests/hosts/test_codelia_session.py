"""Codelia: mentions, loading, reload suppression, refs and containment."""

import os
from pathlib import Path
from typing import Any

import pytest

from metier import AmbiguousSkill
from metier.session.session import Session
from worlds import World

OUTSIDE = "OUTSIDE-MARKER"


def session(world: World, **given: Any) -> Session:
    return world.discover("codelia").session(**given)


def answer(opened: Session, tool: str, given: Any) -> Any:
    """The data of a result, whose content or error is what the model reads."""
    result = opened.call(tool, given)
    assert result.text == result.data["content" if result.ok else "error"]
    return result.data


def load(opened: Session, name: str | None = None, path: object = None) -> Any:
    given = {"name": name, "path": None if path is None else str(path)}
    return answer(opened, "skill_load", {key: value for key, value in given.items() if value is not None})


@pytest.fixture
def twins(world: World) -> list[Path]:
    """Two skills of one name, and one of another."""
    world.skill(".agents/skills/solo", body="SOLO")
    return [world.skill(".agents/skills/twin", body="FIRST"), world.skill("~/.agents/skills/twin", body="SECOND")]


@pytest.mark.behaviour("C-030", "C-031", "C-070")
def test_a_name_that_two_skills_bear_is_refused_and_a_path_decides(world: World, twins: list[Path]) -> None:
    opened = session(world)
    result = load(opened, "twin")
    assert result["ok"] is False
    assert result["ambiguous_paths"] == [str(path) for path in twins]
    assert result["error"]
    assert set(result) == {"ok", "error", "ambiguous_paths"}
    for path, own, other in ((twins[0], "FIRST", "SECOND"), (twins[1], "SECOND", "FIRST")):
        loaded = load(opened, path=path)
        assert (loaded["ok"], loaded["skill"]["path"]) == (True, str(path))
        assert own in loaded["content"]
        assert other not in loaded["content"]
    with pytest.raises(AmbiguousSkill) as refused:
        opened.load("twin")
    assert refused.value.candidates == tuple(str(path) for path in twins)


@pytest.mark.behaviour("C-032", "C-071")
def test_an_explicit_request_means_the_same_skill_and_changes_no_prompt(world: World, twins: list[Path]) -> None:
    (world.project / "AGENTS.md").write_text("Be brief.")

    def ids() -> list[str]:
        opened = session(world)
        before = opened.system_prompt("BASE")
        mentioned = opened.invoke("$solo").skill
        assert mentioned is not None
        loads = [load(opened, "solo"), *(load(opened, path=path) for path in twins)]
        assert opened.system_prompt("BASE") == before
        return [mentioned.id, *(one["metadata"]["skill_id"] for one in loads)]

    first = ids()
    world.skill(".agents/skills/another")
    os.utime(twins[0])
    again = ids()
    assert (again, first[0], len(set(first))) == (first, first[1], 3)


@pytest.mark.behaviour("C-063", "C-064", "C-065")
def test_a_wrong_request_gives_an_error_and_a_path_outranks_a_name(world: World, twins: list[Path]) -> None:
    wrong: list[Any] = [
        {},
        None,
        {"name": ""},
        {"name": None},
        {"name": 7},
        {"path": ["x"]},
        "solo",
        {"name": "absent"},
    ]
    for given in wrong:
        result = answer(session(world), "skill_load", given)
        assert (result["ok"], bool(result["error"].strip()), "content" in result) == (False, True, False), given
    for name in ("twin", "absent", "solo"):
        assert load(session(world), name, twins[1])["skill"]["path"] == str(twins[1])


@pytest.mark.behaviour("C-065", "C-066", "C-067", "C-068", "C-069", "C-070")
def test_a_load_is_the_whole_file_its_base_directory_and_its_further_files(world: World) -> None:
    head = "---\nname: repo-review\ndescription: Review <all> & more\nlicense: MIT\n---\n"
    text = f"{head}\n# Review\n\nUse `a < b` & $1, $ARGUMENTS.\n"
    files = {"references/check list.md": "x", "scripts/run.sh": "#!/bin/sh\n", "a<b.txt": ""}
    path = world.skill("a dir/.agents/skills/repo-review", text=text, files=files)
    opened = world.discover("codelia", world.project / "a dir").session()
    result = load(opened, "repo-review")
    folder = str(path.parent)
    listed = [f"{folder}/{file}" for file in sorted(files)]
    assert result["content"] == (
        f'<skill_context name="repo-review" path="{path}">\n{text}\n'
        f"Base directory: file://{folder.replace(' ', '%20')}/\n"
        "Relative paths in this skill are resolved from this directory.\n<skill_files>\n"
        + "".join(f"<file>{file.replace('<', '&lt;')}</file>\n" for file in listed)
        + "</skill_files>\n</skill_context>"
    )
    (entry,) = opened.skills
    assert result["metadata"] == {
        "skill_id": entry.id,
        "name": "repo-review",
        "path": str(path),
        "dir": folder,
        "mtime_ms": entry.mtime_ms,
    }
    assert (result["ok"], result["files"], result["files_truncated"]) == (True, listed, False)
    assert result["skill"] == entry.as_dict()
    assert "already_loaded" not in result
    assert "error" not in result


@pytest.mark.behaviour("C-072")
def test_an_output_comes_back_by_its_ref_whole_by_lines_and_by_grep(world: World) -> None:
    world.skill(".agents/skills/probe", body="one\nTwo needles\nthree\nanother Needle\n")
    opened = session(world)
    loaded = load(opened, "probe")
    lines = loaded["content"].split("\n")

    def cached(**given: Any) -> Any:
        return answer(opened, "tool_output_cache", {"ref": loaded["ref"], **given})["content"]

    assert cached() == loaded["content"]
    assert cached(start=2, end=4) == "\n".join(lines[1:4])
    assert cached(start=3) == "\n".join(lines[2:])
    assert cached(start=len(lines) + 5) == ""
    assert cached(grep="needle") == "\n".join(f"{n}: {line}" for n, line in enumerate(lines, 1) if "eedle" in line)
    assert opened.call("tool_output_cache", {"ref": "skill-000000000000"}).data["ok"] is False
    assert "tool_output_cache" in [tool.name for tool in opened.tools()]


@pytest.mark.behaviour("C-074", "C-076")
@pytest.mark.parametrize("touched", [False, True])
def test_an_unchanged_skill_is_not_sent_twice_in_a_session(world: World, touched: bool) -> None:
    path = world.skill(".agents/skills/probe", body="BODY " * 500)
    opened = session(world)
    first = load(opened, "probe")
    if touched:
        os.utime(path, ns=(1, 1))
        opened.skills.refresh()
    for second in (load(opened, "probe"), load(opened, path=path)):
        assert (second["ok"], second["already_loaded"]) == (True, True)
        assert "BODY" not in second["content"]
        assert len(second["content"]) < 300
        assert f"as ref {first['ref']}. Read it again with `tool_output_cache` and that ref." in second["content"]
        assert second["metadata"]["skill_id"] == first["metadata"]["skill_id"]
        assert opened.call("tool_output_cache", {"ref": second["ref"]}).data["content"] == first["content"]
    other = load(opened.skills.session(), "probe")
    assert ("already_loaded" in other, "BODY" in other["content"]) == (False, True)


@pytest.mark.behaviour("C-022", "C-077", "C-078")
def test_only_paths_of_the_catalog_are_served(world: World) -> None:
    good = world.skill(".agents/skills/good", files={"references/more.md": OUTSIDE})
    invalid = world.skill(".agents/skills/invalid", description="", body=OUTSIDE)
    unlisted = world.skill("elsewhere/unlisted", body=OUTSIDE)
    linked = world.project / ".agents/skills/linked/SKILL.md"
    linked.parent.mkdir()
    linked.symlink_to(unlisted)
    later = [world.skill(f".agents/skills/{name}") for name in ("later-file", "later-folder")]
    opened = session(world)
    later[0].unlink()
    later[0].symlink_to(unlisted)
    later[1].unlink()
    later[1].parent.rmdir()
    later[1].parent.symlink_to(unlisted.parent)
    refused = [
        *("/etc/passwd", "~/.agents", "/", ".", f"{good}\0", f"file://{good}"),
        *(invalid, invalid.parent, unlisted, linked, *later),
        f"{good.parent}/../../../elsewhere/unlisted/SKILL.md",
        f"{good.parent}/references/more.md",
        f"{good}/../references/more.md",
    ]
    names = ("invalid", "linked", "unlisted", "../good", "later-file", "later-folder")
    for result in (*(load(opened, path=path) for path in refused), *(load(opened, name) for name in names)):
        assert (result["ok"], bool(result["error"])) == (False, True)
        assert "content" not in result
        assert OUTSIDE not in str(result)
    assert opened.call("skill_search", {"query": "invalid"}).data["count"] == 0
    assert "good" in [skill.name for skill in opened.skills]
    assert "invalid" not in opened.prompt().text
    assert load(opened, path=".agents/skills/good/SKILL.md")["ok"] is True


@pytest.mark.behaviour("C-068", "C-079")
def test_the_list_of_files_leaves_out_every_link_and_harms_no_odd_name(world: World) -> None:
    path = world.skill(".agents/skills/probe", files={"real/file.md": "x", "z.md": "x"})
    (world.project / "outside").mkdir()
    (world.project / "outside/secret.md").write_text(OUTSIDE)
    for name, target in {
        "to-file": path.parent / "z.md",
        "to-folder": path.parent / "real",
        "out-file": world.project / "outside/secret.md",
        "out-folder": world.project / "outside",
        "real/loop": path.parent,
        "dangling": "nowhere",
    }.items():
        (path.parent / name).symlink_to(target)
    assert load(session(world), "probe")["files"] == [f"{path.parent}/real/file.md", f"{path.parent}/z.md"]
    with open(os.fsencode(path.parent) + b"/\xff.md", "wb"):
        pass
    assert f"{path.parent}/z.md" in load(session(world), "probe")["files"]
