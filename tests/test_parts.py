"""Where a program of others is missing, a test is skipped; in CI it fails, unless the program was hidden on purpose."""

import os
import sys
from pathlib import Path

import pytest

import forking
import optional
import parts

HIDES = """
import os, shutil, sys
import parts
parts.hide()
print(parts.found("git"), shutil.which("git"), bool(shutil.which("sh")), parts.found("bash") is not None)
print(os.environ["PATH"])
"""


def test_a_hidden_program_is_found_by_no_process_and_all_others_are() -> None:
    env = {**os.environ, "METIER_TEST_HIDE": "git postgres", "PYTHONPATH": str(Path(__file__).parent)}
    done = forking.run([sys.executable, "-c", HIDES], env=env, capture_output=True, text=True)
    said, path = done.stdout.splitlines()
    assert said == "None None True True", done.stderr
    assert not os.path.exists(path), "it is removed at the end"
    done = forking.run([sys.executable, "-c", HIDES], env=env | {"METIER_TEST_HIDE": "gti"}, capture_output=True)
    assert b"there are no parts gti" in done.stderr


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("in_ci", [False, True])
def test_a_missing_part_skips_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch, hidden: bool, in_ci: bool) -> None:
    monkeypatch.setenv("CI", "true" if in_ci else "")
    monkeypatch.setattr(parts, "HIDDEN", frozenset({"fish"} if hidden else ()))
    monkeypatch.setenv("PATH", "/nowhere")
    expected = pytest.fail.Exception if in_ci and not hidden else pytest.skip.Exception
    with pytest.raises(expected, match="fish"):
        parts.require("fish")


def test_a_module_that_starts_an_optional_program_must_be_one_that_runs_without_it_as_well(tmp_path: Path) -> None:
    program = tmp_path / "psql"
    program.write_text("#!/bin/sh\necho started\n")
    program.chmod(0o755)
    root = Path(__file__).parents[1]
    here, chosen = str(Path(__file__).relative_to(root)), optional.modules()
    others = (str(path.relative_to(root)) for path in root.glob("tests/hosts/test_*.py"))
    other = next(module for module in others if module not in chosen)

    def started(module: str) -> str:
        done = forking.run(
            [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1])", str(program)],
            env={**os.environ, "PYTEST_CURRENT_TEST": f"{module}::test_it (call)"},
            capture_output=True,
            text=True,
        )
        return done.stdout + done.stderr

    assert here in chosen
    assert started(here) == "started\n"
    assert f"{other} starts psql" in started(other)


def test_the_word_all_hides_whatever_the_setup_installs() -> None:
    code = "import optional, parts; print(parts.HIDDEN == set(optional.OPTIONAL), 'bwrap' in parts.HIDDEN)"
    env = {**os.environ, "METIER_TEST_HIDE": "all", "PYTHONPATH": str(Path(__file__).parent)}
    assert forking.run([sys.executable, "-c", code], env=env, capture_output=True, text=True).stdout == "True True\n"
