"""A folder of modules as scripts see it, in the sandbox and without one. No installer is needed."""

import os
import sys
from itertools import islice
from pathlib import Path

import pytest

import parts
from metier.running.packages import Environment
from metier.running.packages.interpreters import probe
from metier.running.sandbox import Job
from metier.running.sandbox.interpreter import usual_python
from metier.running.sandbox.runners import choose

pytestmark = pytest.mark.system

SCRIPT = """
import json, os, sys, subprocess
import tinypack
print(tinypack.word, hasattr(json, "dumps"), sys.prefix != sys.base_prefix)
print(subprocess.run(["tiny-program"], capture_output=True, text=True).stdout.strip())
print(subprocess.run([sys.executable, "-c", "import tinypack; print('child', tinypack.word)"], capture_output=True,
    text=True).stdout.strip())
print("tinypack-folder" in open("/proc/self/mountinfo").read())
try:
    open(tinypack.__file__, "a")
except OSError as error:
    print(error.strerror)
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    folder = tmp_path / "tinypack-folder"
    (folder / "bin").mkdir(parents=True)
    (folder / "tinypack.py").write_text("word = 'found'\n")
    (folder / "json.py").write_text("'a package must not take the place of the standard library'\n")
    (folder / "bin/tiny-program").write_text(
        "#!/usr/bin/env python3\nimport tinypack\nprint('program', tinypack.word)\n"
    )
    (folder / "bin/tiny-program").chmod(0o755)
    return folder


def pythons() -> list[str]:
    """The interpreter of the system, and one that lies outside of the system's folders, if there is one."""
    own = Path(sys.base_prefix)
    paths = (str(path) for path in (own / "bin/python3", *sorted(own.parent.glob("3.1*/bin/python3"))))
    others = (path for path in paths if probe(path) is not None and not os.path.realpath(path).startswith("/usr/"))
    return [usual_python(), *islice(others, 1)]


@pytest.mark.parametrize("runner", ["bubblewrap", "none"])
def test_a_script_imports_its_packages_after_the_standard_library(tmp_path: Path, modules: Path, runner: str) -> None:
    if runner == "bubblewrap":
        parts.require_sandbox()
    skill = tmp_path / "skill"
    (skill / "scripts").mkdir(parents=True)
    (skill / "scripts/a.py").write_text(SCRIPT)
    (skill / "scripts/b.py").write_text("from scripts import helper\nprint(helper.word)\n")
    (skill / "scripts/helper.py").write_text("word = 'from the root'\n")
    for python in pythons():
        interpreter = probe(python)
        assert interpreter is not None
        environment = Environment("python", str(modules), python, interpreter.short, root=True)
        outcome = choose([runner]).run(Job(str(skill), "scripts/a.py", packages=environment))
        lines = outcome.stdout.decode().splitlines()
        assert lines[:3] == ["found True True", "program found", "child found"], outcome
        if runner == "bubblewrap":
            assert lines[3:] == ["False", "Read-only file system"], "neither the path of the host nor a way to write"
        outcome = choose([runner]).run(Job(str(skill), "scripts/b.py", packages=environment))
        assert outcome.stdout == b"from the root\n", outcome
        bare = Environment("python", "", python, interpreter.short)
        outcome = choose([runner]).run(Job(str(skill), "scripts/a.py", packages=bare))
        assert b"ModuleNotFoundError: No module named 'tinypack'" in outcome.stderr
