"""`.ci/run`: every step runs, what each printed is one block in a fixed order, and any failure fails the run."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / ".ci" / "run"
STEPS = [
    *("lint", "test", "bare", "test-oldest", "test-install", "attack", "walk"),
    *("test-hosts", "test-conformance"),
]

# The lane of the attacks ends last. The tests with real hosts fail if they do not have the machine for themselves.
MAKE = """#!/bin/sh
for word in "$@"; do
    if [ "$word" = attack ]; then while [ ! -e {folder}/lint ]; do sleep 0.05; done; fi
    if [ "$word" = test-hosts ] && [ ! -e {folder}/bare ]; then exit 4; fi
done
echo "$1 says so"
echo "SKIPPED [1] for a reason"
touch {folder}/$(basename $1)
for broken in $BROKEN; do [ $broken = $1 ] && exit 3; done
exit 0
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the real `.ci/run`, and a `make` that only speaks."""
    root = tmp_path / "checkout"
    for folder in (".ci", "setup", "bin", "done"):
        (root / folder).mkdir(parents=True)
    shutil.copy(RUN, root / ".ci/run")
    (root / "setup/prepare.py").write_text("")
    (root / ".ci/bare").write_text(f"#!/bin/sh\necho bare says so\nsleep 0.5\ntouch {root / 'done/bare'}\n")
    (root / "bin/make").write_text(MAKE.format(folder=root / "done"))
    for program in (".ci/bare", "bin/make"):
        (root / program).chmod(0o755)
    return root


def ran(checkout: Path, broken: str = "") -> tuple[int, list[str]]:
    path = f"{checkout / 'bin'}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "BROKEN": broken, "TMPDIR": str(checkout)}
    done = subprocess.run([checkout / ".ci/run"], env=env, capture_output=True, text=True)
    assert done.stderr == ""
    assert list(checkout.glob("tmp.*")) == [], "it leaves nothing behind"
    return done.returncode, done.stdout.splitlines()


def test_every_step_is_one_block_in_a_fixed_order(checkout: Path) -> None:
    code, said = ran(checkout)
    assert code == 0
    assert [line for line in said if line.startswith("== ") and ":" not in line and "after" not in line] == [
        f"== {step}" for step in STEPS
    ]
    for step in STEPS:
        assert said[said.index(f"== {step}") + 1] == f"{step} says so"
    assert "after" in said[-1]
    assert said[-1].startswith("== all passed")


def test_a_failure_fails_the_run_at_its_end_and_names_the_step(checkout: Path) -> None:
    code, said = ran(checkout, broken="test-oldest test .venv/.missing")
    assert code == 1
    assert {path.name for path in (checkout / "done").iterdir()} > set(STEPS), "all others ran"
    assert [line.rsplit(" after ", 1)[0] for line in said if "FAILED" in line] == [
        "== test: FAILED with status 3",
        "== test-oldest: FAILED with status 3",
    ]
    again = said.index("== the end of test")
    assert said[again:-1] == ["== the end of test", "test says so", "== the end of test-oldest", "test-oldest says so"]
    assert said[-1].startswith("== failed after")
    assert said[-1].endswith(": test test-oldest")


def test_nothing_runs_if_the_environment_cannot_be_made(checkout: Path) -> None:
    code, said = ran(checkout, broken=".venv/.installed")
    assert (code, said) == (1, [".venv/.installed says so", "SKIPPED [1] for a reason"])
