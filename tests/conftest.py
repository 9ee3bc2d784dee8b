"""Every test has a home, a project and an environment of its own; nothing of the machine's leaks in."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from metier import Skills
from metier.testing import write_skill

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for variable in list(os.environ):
        if variable.startswith(("METIER_", "XDG_", "CODELIA_", "SKILLS_")):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NO_COLOR", "1")


@dataclass
class World:
    """A home and a project (with a `.git`) to put skills into, and the discovery that looks at them."""

    home: Path
    project: Path

    def skill(self, where: str, name: str | None = None, **given: Any) -> Path:
        """Write a skill at a path; `~/` is the home, anything else lies in the project."""
        base = self.home / where[2:] if where.startswith("~/") else self.project / where
        return Path(write_skill(base, name, **given))

    def discover(self, profile: str = "standard", cwd: Path | None = None, **given: Any) -> Skills:
        return Skills.discover(cwd or self.project, profile=profile, home=self.home, **given)


@pytest.fixture
def world(tmp_path: Path) -> World:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    return World(tmp_path / "home", project)


@pytest.fixture
def corpus() -> Path:
    """The folder with the archives of real skills; tests that use it are skipped where it is not, but never in CI."""
    if not CORPUS.is_dir():
        if os.environ.get("CI"):
            pytest.fail("the corpus must be there in CI")
        pytest.skip("the corpus of real skills is not here")
    return CORPUS


Discover = Callable[..., Skills]
