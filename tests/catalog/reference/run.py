"""Fetches the published source of the reference library and runs its own test cases against strict mode.

Run `python tests/catalog/reference/run.py` to print one line for each case.
"""

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path

SOURCE = "skills_ref-0.1.1.tar.gz"
DIGEST = "6b400ca6e0049be62dca0167ff943ba2745fd67efb37fbba4d0ee341fccd2695"
CASES = ("test_validator.py", "test_parser.py")


class Unreachable(Exception):
    """No package index has the source."""


def fetch(folder: Path) -> Path:
    """Download the source into a folder and unpack it. Returns the folder with its tests."""
    archive = folder / SOURCE
    index = (os.environ.get("PIP_INDEX_URL") or "https://pypi.org/simple").rstrip("/")
    try:
        with urllib.request.urlopen(f"{index}/skills-ref/", timeout=20) as page:
            link = re.search(rf'href="([^"#]*{re.escape(SOURCE)})', page.read().decode())
        if link is None:
            raise Unreachable(f"{index} has no {SOURCE}")
        with urllib.request.urlopen(urllib.parse.urljoin(f"{index}/skills-ref/", link[1]), timeout=20) as source:
            archive.write_bytes(source.read())
    except OSError as error:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            ":all:",
            "-d",
            str(folder),
        ]
        done = subprocess.run([*command, "skills-ref==0.1.1"], capture_output=True, check=False)
        if done.returncode or not archive.is_file():
            raise Unreachable(f"the source of skills-ref cannot be fetched: {error}") from error
    if hashlib.sha256(archive.read_bytes()).hexdigest() != DIGEST:
        raise Unreachable(f"{SOURCE} is not the file that was published")
    with tarfile.open(archive) as content:
        content.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later have filters
        content.extractall(folder)
    return folder / SOURCE.removesuffix(".tar.gz") / "tests"


def outcomes(tests: Path) -> dict[str, bool]:
    """Each case by name, and whether strict mode agrees with it."""
    search_path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    # `PYTEST_ADDOPTS` chooses among our own tests.
    environment = {**os.environ, "PYTHONPATH": search_path, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": ""}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rA",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-c",
        os.devnull,
    ]
    done = subprocess.run(
        [*command, *(str(tests / name) for name in CASES)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tests,
        env=environment,
    )
    found = re.findall(r"^(PASSED|FAILED|ERROR) \S*?(test_\w+)\.py::(\w+)", done.stdout, re.MULTILINE)
    return {f"{file}::{case}": outcome == "PASSED" for outcome, file, case in found}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for case, same in outcomes(fetch(Path(folder))).items():
            print("same     " if same else "differs  ", case)


if __name__ == "__main__":
    main()
