"""The archives of the corpus, unpacked once for all workers of a test run."""

import fcntl
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def unpacked(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Unpacks an archive once for all workers of a run."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base

    def unpack(name: str) -> Path:
        folder = shared / f"corpus-{name}"
        with open(f"{folder}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                with tarfile.open(corpus / f"{name}.tar.xz") as content:
                    # Python 3.11.4 and later have filters.
                    content.extraction_filter = getattr(tarfile, "data_filter", None)
                    content.extractall(f"{folder}.part")
                os.rename(f"{folder}.part", folder)
        return folder

    return unpack
