"""`metier validate`: its output and its exit code."""

import pytest

from calling import Result, Run, narrow_terminal
from metier.surfaces.cli import output
from worlds import World

pytest_plugins = ["surfaces.cli.cli_fixtures"]

DIAGNOSTIC_KEYS = {"code", "severity", "path", "line", "column", "message", "hint"}


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


@pytest.mark.parametrize("column", [4, 60, 90, 400])
def test_the_caret_stands_under_the_same_character_in_a_long_line(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch, column: int
) -> None:
    narrow_terminal(monkeypatch)
    world.skill("bad", text=f"---\nname: bad\na: {'x' * (column - 6)}\x00{'y' * 300}\n---\n")
    result = run("validate", "bad")
    _, arrow, _, source, caret, *_ = result.out.splitlines()
    assert arrow.endswith(f":3:{max(4, column - 2)}")
    assert (source + " ")[caret.index("^")] == " "
    assert source[caret.index("^") - 1] == "x" if column > 6 else " "
    assert len(source) <= 80


def test_validate_counts_what_it_checked(world: World, run: Run) -> None:
    for name in ("one", "two"):
        world.skill(f"skills/{name}")
    assert run("validate", "skills") == Result(0, "2 checked, 0 invalid\n", "")
    world.skill("skills/three", text="")
    result = run("validate", "skills")
    assert (result.code, result.err) == (1, "3 checked, 1 invalid\n")


def test_validate_as_json_has_the_documented_shape(world: World, run: Run) -> None:
    world.skill("skills/good")
    world.skill("skills/bad", name="Bad")
    lenient, strict = run("validate", "skills", "--json"), run("validate", "--strict", "skills", "--json")
    assert (lenient.code, strict.code) == (0, 1)
    assert lenient.json["valid"] is True
    assert [(s["path"].split("/")[-2], s["valid"]) for s in strict.json["skills"]] == [("bad", False), ("good", True)]
    assert all(d.keys() == DIAGNOSTIC_KEYS for s in strict.json["skills"] for d in s["diagnostics"])


def test_validate_in_ascii_refuses_other_letters(world: World, run: Run) -> None:
    world.skill("größe")
    assert run("validate", "--strict", "größe").code == 0
    assert run("validate", "--strict", "--ascii", "größe").code == 1
    assert run("validate", "--ascii", "größe").code == 1


def test_validate_takes_a_file_a_folder_and_several_of_them(world: World, run: Run) -> None:
    world.skill("a")
    world.skill("b")
    assert run("validate", "a/SKILL.md", "b", "a").out == "2 checked, 0 invalid\n"


@pytest.mark.parametrize(("path", "code"), [("nowhere", 2), ("file.txt", 2), ("empty", 1)])
def test_validate_of_what_is_no_skill_says_so(world: World, run: Run, path: str, code: int) -> None:
    (world.project / "file.txt").write_text("x")
    (world.project / "empty").mkdir()
    result = run("validate", path)
    assert (result.code, result.out) == (code, "")
    assert path in result.err
