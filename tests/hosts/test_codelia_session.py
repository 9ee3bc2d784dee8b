"""Codelia: mentions, loading, reload suppression, refs and containment."""

import os
from pathlib import Path
from typing import Any

import pytest

from hosts.asking import metier
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
    return [
        world.skill(".agents/skills/twin", body="FIRST"),
        world.skill("~/.agents/skills/twin", body="SECOND"),
    ]


# --- naming a skill ---


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


@pytest.mark.behaviour("C-060", "C-061")
@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("$solo", "solo"),
        ("Please use $solo, then stop.", "solo"),
        ("($solo)", "solo"),
        ("first $PATH, then $solo", "solo"),
        ("It costs $5 and $PATH is set; $no-such-skill, $ , $$solo, \\$solo, US$solo, $solos, $solo-x, $Solo", None),
        ("/solo and solo and skill://solo", None),
        ("", None),
    ],
)
def test_a_dollar_names_a_skill_of_the_catalog_and_is_text_everywhere_else(
    world: World, twins: list[Path], message: str, found: str | None
) -> None:
    opened = session(world)
    invocation = opened.invoke(message)
    assert (invocation.skill.name if invocation.skill else None) == found
    assert (invocation.message, invocation.ambiguous) == (message, ())
    called = metier(world, "session", "invoke", message, "--profile", "codelia", code=0 if found else 1, output=True)
    assert called["skill"] == found


@pytest.mark.behaviour("C-032")
def test_an_explicit_request_means_the_same_skill_each_time(world: World, twins: list[Path]) -> None:
    def ids() -> list[str]:
        opened = session(world)
        mentioned = opened.invoke("$solo").skill
        assert mentioned is not None
        return [
            mentioned.id,
            load(opened, "solo")["metadata"]["skill_id"],
            *(load(opened, path=p)["metadata"]["skill_id"] for p in twins),
        ]

    first = ids()
    world.skill(".agents/skills/another")
    os.utime(twins[0])
    assert ids() == ids() == first
    assert first[0] == first[1]
    assert len(set(first)) == 3


# --- loading ---


@pytest.mark.behaviour("C-063", "C-065")
@pytest.mark.parametrize(
    "given", [{}, None, {"name": ""}, {"name": None}, {"name": 7}, {"path": ["x"]}, "solo", {"name": "absent"}]
)
def test_a_wrong_request_gives_an_error_and_no_exception(world: World, twins: list[Path], given: Any) -> None:
    result = answer(session(world), "skill_load", given)
    assert result["ok"] is False
    assert result["error"].strip()
    assert "content" not in result


@pytest.mark.behaviour("C-064")
@pytest.mark.parametrize("name", ["twin", "absent", "solo"])
def test_a_path_outranks_a_name(world: World, twins: list[Path], name: str) -> None:
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


@pytest.mark.behaviour("C-071")
def test_a_load_changes_no_system_prompt(world: World, twins: list[Path]) -> None:
    (world.project / "AGENTS.md").write_text("Be brief.")
    opened = session(world)
    before = opened.system_prompt("BASE")
    assert load(opened, "solo")["ok"]
    opened.invoke("$solo")
    assert opened.system_prompt("BASE") == before


# --- what is loaded stays loaded ---


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
@pytest.mark.parametrize("again", ["name", "path"])
def test_an_unchanged_skill_is_not_sent_twice_in_a_session(world: World, again: str, touched: bool) -> None:
    path = world.skill(".agents/skills/probe", body="BODY " * 500)
    opened = session(world)
    first = load(opened, "probe")
    if touched:
        os.utime(path, ns=(1, 1))
        opened.skills.refresh()
    second = load(opened, "probe") if again == "name" else load(opened, path=path)
    assert (second["ok"], second["already_loaded"]) == (True, True)
    assert "BODY" not in second["content"]
    assert len(second["content"]) < 300
    assert f"as ref {first['ref']}. Read it again with `tool_output_cache` and that ref." in second["content"]
    assert second["metadata"]["skill_id"] == first["metadata"]["skill_id"]
    assert opened.call("tool_output_cache", {"ref": second["ref"]}).data["content"] == first["content"]
    other = load(opened.skills.session(), "probe")
    assert "already_loaded" not in other
    assert "BODY" in other["content"]


# --- containment ---


@pytest.mark.behaviour("C-022", "C-077", "C-078")
def test_only_paths_of_the_catalog_are_served(world: World) -> None:
    good = world.skill(".agents/skills/good", files={"references/more.md": OUTSIDE})
    invalid = world.skill(".agents/skills/invalid", description="", body=OUTSIDE)
    unlisted = world.skill("elsewhere/unlisted", body=OUTSIDE)
    linked = world.project / ".agents/skills/linked/SKILL.md"
    linked.parent.mkdir()
    linked.symlink_to(unlisted)
    opened = session(world)
    refused = [
        "/etc/passwd",
        invalid,
        invalid.parent,
        unlisted,
        linked,
        f"{good.parent}/../../../elsewhere/unlisted/SKILL.md",
        f"{good.parent}/references/more.md",
        f"{good}/../references/more.md",
        f"{good}\0",
        f"file://{good}",
        "~/.agents",
        "/",
        ".",
    ]
    for path in refused:
        result = load(opened, path=path)
        assert result["ok"] is False, path
        assert result["error"]
        assert "content" not in result
        assert OUTSIDE not in str(result)
    for name in ("invalid", "linked", "unlisted", "../good"):
        assert load(opened, name)["ok"] is False
    assert opened.call("skill_search", {"query": "invalid"}).data["count"] == 0
    assert [skill.name for skill in opened.skills] == ["good"]
    assert "invalid" not in opened.prompt().text
    assert load(opened, path=".agents/skills/good/SKILL.md")["ok"] is True


@pytest.mark.behaviour("C-078")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_skill_that_became_a_link_after_the_scan_yields_no_outside_byte(world: World, what: str) -> None:
    path = world.skill(".agents/skills/probe")
    outside = world.skill("elsewhere/probe", body=OUTSIDE)
    opened = session(world)
    path.unlink()
    if what == "folder":
        path.parent.rmdir()
        path.parent.symlink_to(outside.parent)
    else:
        path.symlink_to(outside)
    assert OUTSIDE not in str(load(opened, "probe"))
    assert OUTSIDE not in str(load(opened, path=path))


@pytest.mark.behaviour("C-079")
def test_the_list_of_files_leaves_out_every_link(world: World) -> None:
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


@pytest.mark.behaviour("C-068")
def test_a_file_whose_name_is_no_text_spoils_no_load(world: World) -> None:
    path = world.skill(".agents/skills/probe", files={"plain.md": "x"})
    with open(os.fsencode(path.parent) + b"/\xff.md", "wb"):
        pass
    result = load(session(world), "probe")
    assert result["ok"] is True
    assert f"{path.parent}/plain.md" in result["files"]
