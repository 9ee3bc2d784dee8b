"""What `make check` runs: formatting, style, types of the changed files, and the in-process tests of their folders.

A folder of `src/metier` has its tests below the folder of the same name in `tests`. A change of anything else that
tests use, such as `tests/worlds.py`, is left to `make test`.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


def changed() -> list[Path]:
    """The Python files that differ from the last commit, or that git does not know yet."""
    names: list[str] = []
    for command in ("diff --name-only --diff-filter=d HEAD", "ls-files --others --exclude-standard"):
        done = subprocess.run(["git", *command.split()], cwd=ROOT, capture_output=True, text=True, check=True)
        names += done.stdout.splitlines()
    return [Path(name) for name in names if name.endswith(".py")]


def tests_of(file: Path) -> Path | None:
    """The test file itself, or the folder with the tests of a module."""
    if file.parts[0] == "tests":
        return file if file.name.startswith("test_") else None
    if file.parts[:2] != ("src", "metier"):
        return None
    folder = Path("tests", *file.parts[2:-1])
    while not (ROOT / folder).is_dir():
        folder = folder.parent
    if folder == Path("tests"):
        return Path("tests", f"test_{file.name}") if (ROOT / "tests" / f"test_{file.name}").exists() else None
    return folder


def main() -> int:
    files = changed()
    commands = [[str(BIN / "ruff"), "format", "--check", "."], [str(BIN / "ruff"), "check", "."]]
    if files:
        commands.append([str(BIN / "pyright"), *map(str, files)])
    if tests := sorted({str(place) for file in files if (place := tests_of(file)) is not None}):
        commands.append([sys.executable, "-m", "pytest", "-n", "auto", "-m", "in_process", *tests])
    for command in commands:
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        if code not in (0, 5):  # 5: no test of these folders is in this lane
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
