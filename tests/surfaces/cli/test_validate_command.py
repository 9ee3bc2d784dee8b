"""`metier validate`: its output, its exit code, and what --fix and --diff change."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from calling import Result, Run, narrow_terminal
from metier.sources.install import lock
from metier.surfaces.cli import output
from worlds import World


@pytest.mark.parametrize("column", [4, 90, 400])
def test_the_caret_stands_under_the_same_character_in_a_long_line(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch, column: int
) -> None:
    narrow_terminal(monkeypatch)
    world.skill("bad", text=f"---\nname: bad\na: {'x' * (column - 6)}\x00{'y' * 300}\n---\n")
    _, arrow, _, source, caret, *_ = run("validate", "bad").out.splitlines()
    assert arrow.endswith(f":3:{max(4, column - 2)}")
    assert (source + " ")[caret.index("^")] == " "
    assert source[caret.index("^") - 1] == "x" if column > 6 else " "
    assert len(source) <= 80


def test_validate_counts_what_it_checked_and_says_what_is_no_skill(world: World, run: Run) -> None:
    for name in ("one", "two", "größe"):
        world.skill(f"skills/{name}")
    (world.project / "file.txt").write_text("x")
    (world.project / "empty").mkdir()
    for line, result in {
        "skills": Result(0, "3 checked, 0 invalid\n", ""),
        "skills/one/SKILL.md skills/two skills/one": Result(0, "2 checked, 0 invalid\n", ""),
    }.items():
        assert run("validate", *line.split()) == result
    for line, code in {
        "--strict skills/größe": 0,
        "--strict --ascii skills/größe": 1,
        "--ascii skills/größe": 1,
    }.items():
        assert run("validate", *line.split()).code == code, line
    for path, code in {"nowhere": 2, "file.txt": 2, "empty": 1}.items():
        result = run("validate", path)
        assert (result.code, result.out, path in result.err) == (code, "", True)
    world.skill("skills/bad", name="Bad")
    lenient, strict = run("validate", "skills", "--json"), run("validate", "--strict", "skills", "--json")
    assert (lenient.code, lenient.json["valid"], strict.code) == (0, True, 1)
    assert [s["path"].split("/")[-2] for s in strict.json["skills"] if not s["valid"]] == ["bad"]
    world.skill("skills/three", text="")
    assert run("validate", "skills").err.startswith("5 checked, 1 invalid")


def test_validate_points_at_the_column_as_a_compiler_does(world: World, run: Run) -> None:
    world.skill("bad", text="---\nname: bad\ndescription:   日本 é: x: y  @\n---\n")
    result = run("validate", "--strict", "bad")
    assert result.code == 1
    error, arrow, _, source, caret, *_ = result.out.splitlines()
    assert error.startswith("error[yaml-invalid]: ")
    line, column = map(int, arrow.rsplit(":", 2)[1:])
    assert arrow == f"  --> bad/SKILL.md:{line}:{column}"
    written = (world.project / "bad/SKILL.md").read_text().split("\n")[line - 1]
    assert source == f" {line} | {written}"
    before = written[: column - 1]
    assert caret.index("^") == len(f" {line} | ") + output.cells(before)


BROKEN = (
    b"\xef\xbb\xbf---\r\ndescription: Fill forms: use when asked\r\nlicense:   MIT  # kept\r\n---\r\n"
    b"Body\xe2\x80\xae text\xe2\x80\x8b.  \r\n\tKept `a\xe2\x80\x8bb`.\n\nEnd"
)
FIXED = (
    b"---\r\nname: pdf\r\ndescription: 'Fill forms: use when asked'\r\nlicense:   MIT  # kept\r\n---\r\n"
    b"Body text.  \r\n\tKept `a\xe2\x80\x8bb`.\n\nEnd"
)


def test_fix_changes_what_is_safe_and_keeps_the_rest_byte_for_byte(world: World, run: Run) -> None:
    path = world.skill("pdf", text=BROKEN)
    path.chmod(0o640)
    diff = run("validate", "--diff", "pdf")
    assert path.read_bytes() == BROKEN, "--diff writes nothing"
    assert (diff.code, diff.err) == (1, "1 files to fix\n")
    assert "+name: pdf" in diff.out
    assert "-Body\\u202e text\\u200b." in diff.out, "what nobody sees is shown"

    fixed = run("validate", "--fix", "pdf")
    assert (fixed.code, path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (0, FIXED, 0o640)
    assert "fixed pdf/SKILL.md: removed the byte order mark, removed 2 characters that nobody sees, " in fixed.err
    assert os.listdir(path.parent) == ["SKILL.md"], "no file is left over"

    again = run("validate", "--fix", "pdf", "--json")
    assert (again.code, again.json["fixed"], path.read_bytes()) == (0, [], FIXED)
    assert run("validate", "--diff", "pdf").code == 0


REPAIRED = {
    "---\nname: pdf\nmetadata:\n\ta: b\n---\n": "---\nname: pdf\nmetadata:\n  a: b\n---\n",
    "---\nname: pdf\ndescription: x\n---# Title\n": "---\nname: pdf\ndescription: x\n---\n# Title\n",
    "\n\n---\nname: pdf\ndescription: x\n---\n": "---\nname: pdf\ndescription: x\n---\n",
    "---\nname: pdf\nargument-hint: [a] [b]\n---\n": "---\nname: pdf\nargument-hint: '[a] [b]'\n---\n",
}
LEFT = (
    "---\nname: Other\ndescription: x\n---\n",  # only the author knows which of the two names is right
    "# Notes\n---\nname: pdf\ndescription: x\n---\n",  # and where this heading belongs
    "---\nname: pdf\nmetadata:\n  a: 'tab\there'\n---\n\tcode\n",
    "---\nname: pdf\ndescription: x\n---\nmojibake â\x80\x99s\n",
    "---\nname: pdf\ndescription: x\n---\n```\nstrip('\u200b\u2060')\n```\n👨‍👩‍👧\n",
    "---\nname: pdf\r\ndescription: a: b\nlicense: x\r\n---\n",
    "no frontmatter\n",
    "---\n- a\nb: c\n---\n",
)


def test_what_is_safe_is_repaired_and_what_is_not_is_left_to_the_author(world: World, run: Run) -> None:
    for before, after in (*REPAIRED.items(), *((text, text) for text in LEFT)):
        path = world.skill("pdf", text=before)
        run("validate", "--fix", "pdf")
        assert path.read_bytes().decode() == after


def test_files_that_a_skill_leads_to_are_fixed_as_well(world: World, run: Run) -> None:
    world.skill("pdf", body="[a](references/a.md)", files={"references/a.md": "x\u202e", "lonely.md": "y\u202e"})
    assert "fixed pdf/references/a.md: removed a character that nobody sees" in run("validate", "--fix", "pdf").err
    assert (world.project / "pdf/references/a.md").read_text() == "x"
    assert (world.project / "pdf/lonely.md").read_text() == "y\u202e"


def linked_file(world: World) -> Path:
    outside = world.home / "SKILL.md"
    outside.parent.mkdir(exist_ok=True)
    outside.write_bytes(BROKEN)
    (world.project / "skills/pdf").mkdir(parents=True)
    (world.project / "skills/pdf/SKILL.md").symlink_to(outside)
    return outside


def linked_folder(world: World) -> Path:
    path = world.skill("elsewhere/pdf", text=BROKEN)
    (world.project / "skills").mkdir()
    (world.project / "skills/pdf").symlink_to(path.parent)
    return path


def linked_reference(world: World) -> Path:
    outside = world.project / "outside.md"
    outside.write_text("x\u202e")
    path = world.skill("skills/pdf", body="[a](a.md)")
    (path.parent / "a.md").symlink_to(outside)
    return outside


def read_only(world: World) -> Path:
    path = world.skill("skills/pdf", text=BROKEN)
    path.chmod(0o444)
    return path


def installed(world: World) -> Path:
    path = world.skill("skills/pdf", text=BROKEN)
    root = str(world.project / "skills")
    lock.write(root, {"pdf": lock.Locked(source="https://x.org/pdf", digest="sha256:0", files=())}, f"{root}.part")
    return path


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (linked_file, ""),
        (linked_folder, "a link leads to it from outside of the folder that was named"),
        (linked_reference, ""),
        (read_only, "it is read-only"),
        (installed, "it was installed from https://x.org/pdf, and has to be fixed there"),
    ],
)
def test_nothing_is_written_where_it_should_not_be(
    world: World, run: Run, build: Callable[[World], Path], why: str
) -> None:
    path = build(world)
    before = path.read_bytes()
    fixed = run("validate", "--fix", "skills")
    assert path.read_bytes() == before
    assert fixed.err.startswith(f"not fixed: {world.project}/skills/pdf/SKILL.md: {why}\n" if why else "")
    if why:
        asked = run("validate", "--fix", "skills", "--json").json
        assert [entry["reason"] for entry in asked["refused"]] == [why]
        assert run("validate", "--diff", "skills").code == 0, "there is nothing that would be written"
