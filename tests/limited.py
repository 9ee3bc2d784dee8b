"""Python code in a process of its own: bounded in memory and work, or as another user; a crash of it is a result."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

NOBODY = 65534


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A temporary folder that every user may enter; those of pytest are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


_BOUNDS = """
import math, resource, time
pages = int(open("/proc/self/statm").read().split()[0])
size = pages * resource.getpagesize() + {megabytes} * 2**20
resource.setrlimit(resource.RLIMIT_AS, (size, size))
seconds = math.ceil(time.process_time()) + {seconds}
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
"""


def run_bounded(
    imports: str, code: str, data: bytes = b"", *, megabytes: int = 50, seconds: int = 1
) -> subprocess.CompletedProcess[bytes]:
    """Run `code` after `imports`, with so much memory and processor time above what the imports took."""
    script = "\n".join((imports, _BOUNDS.format(megabytes=megabytes, seconds=seconds), code))
    return subprocess.run([sys.executable, "-c", script], input=data, capture_output=True, check=False)


def run_as_nobody(code: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run `code` as a user without rights, with the modules that this process has. Without root, that is this user."""
    # The interpreter and the sources may lie where that user cannot look: import first, then give up the rights.
    script = (
        "import os, sys, encodings.idna, json, hashlib, difflib, tempfile, tomllib, ctypes, shutil\n"
        "import metier, metier.surfaces.cli, metier.search.finder, metier.session.session, metier.testing\n"
        f"if os.geteuid() == 0:\n    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n{code}"
    )
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, check=False, cwd="/", env={"HOME": "/"}
    )
