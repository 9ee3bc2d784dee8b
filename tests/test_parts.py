"""Where a program of others is missing, a test is skipped; in CI it fails, unless the program was hidden on purpose."""

import os
import sys
from pathlib import Path

import pytest

import forking
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
