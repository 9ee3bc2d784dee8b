"""A home and a project for a test, and the discovery that looks at them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metier import Skills
from metier.hosts.trust import trust
from metier.testing import write_skill


@dataclass
class World:
    """A home and a project (with a `.git`) to put skills into, and the discovery that looks at them."""

    home: Path
    project: Path

    def skill(self, where: str, name: str | None = None, **given: Any) -> Path:
        """Write a skill at a path; `~/` is the home, anything else lies in the project."""
        base = self.home / where[2:] if where.startswith("~/") else self.project / where
        return Path(write_skill(base, name, **given))

    def trust(self) -> None:
        """Trust the project, as `metier trust` does."""
        trust(str(self.home / ".config/metier"), str(self.project))

    def configure(self, text: str, *, trusted: bool = True) -> Path:
        """Write the project's configuration, and trust it unless told otherwise."""
        file = self.project / ".metier/config.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        if trusted:
            self.trust()
        return file

    def configure_user(self, text: str) -> None:
        """Write the user's configuration."""
        file = self.home / ".config/metier/config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def discover(self, profile: str = "standard", cwd: Path | None = None, **given: Any) -> Skills:
        return Skills.discover(cwd or self.project, profile=profile, home=self.home, **given)
