"""What a process loads before it can answer. Time differs from machine to machine, the names of modules do not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

HEAVY = (
    "asyncio",
    "bz2",
    "concurrent",
    "ctypes",
    "dataclasses",
    "email",
    "hashlib",
    "http",
    "importlib.metadata",
    "importlib.util",
    "json",
    "logging",
    "lzma",
    "pathlib",
    "random",
    "secrets",
    "shutil",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "tempfile",
    "urllib",
    "tantivy",
    "watchfiles",
    "yaml12",
    "metier.app",
    "metier.authoring.check",
    "metier.catalog.frontmatter",
    "metier.search",
    "metier.hosts.documentation",
    "metier.hosts.formats",
    "metier.surfaces.mcp",
    "metier.running.packages",
    "metier.record.events",
    "metier.record.store",
    "metier.values.results",
    "metier.running.sandbox",
    "metier.running.secrets",
    "metier.session",
)
"""Modules that cost more than a list of six skills. Whoever needs one imports it where it is used."""

COMMAND = """
import sys
from metier.surfaces.cli import main
sys.argv = ["metier", *{arguments!r}]
try:
    main()
except SystemExit as stop:
    assert not stop.code
"""


def loaded(code: str, folder: Path) -> set[str]:
    """The modules of a new interpreter after some code, and the packages that they are in."""
    shown = f"{code}\nimport sys\nprint(*sys.modules, file=sys.stderr)"
    env = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", shown], cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    return {*done.stderr.split("\n")[-2].split()}


@pytest.fixture
def six_skills(tmp_path: Path) -> Path:
    for number in range(6):
        skill = tmp_path / ".agents" / "skills" / f"skill-{number}"
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text(f"---\nname: skill-{number}\ndescription: Does a thing.\n---\nBody.\n")
    return tmp_path


def test_the_catalog_of_the_library_loads_nothing_heavy(six_skills: Path) -> None:
    found = loaded("from metier import Skills", six_skills)
    assert "metier.skills" in found
    assert sorted(found.intersection((*HEAVY, "click", "tomllib", "zipfile"))) == []


def test_help_and_a_list_of_known_skills_load_nothing_heavy(six_skills: Path) -> None:
    at_help = loaded(COMMAND.format(arguments=["--help"]), six_skills)
    assert "click" in at_help
    assert "metier.skills" not in at_help
    assert sorted(at_help.intersection(HEAVY)) == []
    first = loaded(COMMAND.format(arguments=["list"]), six_skills)
    assert "metier.catalog.frontmatter" in first, "the first list reads the files"
    again = loaded(COMMAND.format(arguments=["list"]), six_skills)
    assert "metier.skills" in again
    assert sorted(again.intersection(HEAVY)) == []
