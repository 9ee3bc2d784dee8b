"""A sandbox in a container, where no other process has the numbers that a new namespace counts from."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from metier.running.sandbox import cgroup
from metier.running.sandbox.bubblewrap import BubblewrapRunner

pytest_plugins = ["running.sandbox.sandbox_fixtures"]

pytestmark = pytest.mark.system

EXAMPLES = Path(__file__).parents[3] / "examples" / "skills"

# The first process of the namespace starts others until the low numbers are used up, and only then becomes Metier. This
# is what a server that has run for a while in a container looks like.
CONTAINER = 'for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done; exec "$@"'


def test_a_script_runs_where_few_processes_can_be_seen(sandbox: BubblewrapRunner) -> None:
    line = [sys.executable, "-m", "metier", "--skills", str(EXAMPLES)]
    line += ["run", "skills-system-validation", "scripts/echo.sh", "--yes", "--", "hello"]
    users = [] if os.geteuid() == 0 else ["--user", "--map-current-user"]
    namespace = ["unshare", *users, "--pid", "--fork", "--mount-proc", "sh", "-c", CONTAINER, "sh"]
    done = subprocess.run([*namespace, *line], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "argument: [hello]" in done.stdout


def test_the_groups_of_another_container_stay(tmp_path: Path) -> None:
    """A host that starts in a container cannot see whether the owners of other groups live."""
    folder = tmp_path / "group"
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    here = os.stat("/proc/self/ns/pid").st_ino
    left = [
        f"metier-{here}-{dead.stdout.strip()}-1",
        f"metier-{here + 1}-{dead.stdout.strip()}-1",
        f"metier-{here}-1-1",
    ]
    for name in left:
        (folder / name).mkdir(parents=True)
    cgroup._sweep(cgroup.Group(str(folder), str(folder), 1))
    assert sorted(path.name for path in folder.iterdir()) == sorted(left[1:])
