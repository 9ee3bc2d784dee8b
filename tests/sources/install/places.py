"""A home in which tests install skills, with its record and its folder of skills."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypedDict, Unpack

import pytest

from metier.errors import InstallError, PolicyDenied
from metier.hosts.settings import resolve
from metier.policy.decide import Request
from metier.record.store import Frame, Store
from metier.record.store.memory import MemoryStore
from metier.sources.install import Installer, InstallRequest, Offer
from worlds import World

OPEN: Final = {"allow": [{"tool": "install"}]}
NO_DIGEST: Final = f"sha256:{'0' * 64}"
"""A digest that no content has."""


class Options(TypedDict, total=False):
    """The options of an `InstallRequest`."""

    digest: str
    project: bool
    replace: bool
    lenient: bool


class Place(NamedTuple):
    """An installer, where its record goes, and the folder of skills."""

    installer: Installer
    sink: Store
    skills: Path

    def take(self, source: object, name: str = "", **options: Unpack[Options]) -> Offer:
        return self.installer.install(InstallRequest(str(source), name, **options), lambda _: True)

    def refused(self, source: object, name: str = "", **options: Unpack[Options]) -> str:
        """The reason for which a source is refused. Nothing of it is left on disk."""
        before = self._paths()
        with pytest.raises((InstallError, PolicyDenied)) as error:
            self.take(source, name, **options)
        assert self._paths() == before
        assert self.record()[-1]["type"] == "skill_install_refused"
        return getattr(error.value, "reason", "denied")

    def record(self) -> list[Frame]:
        return self.sink.read("installs")

    def _paths(self) -> list[Path]:
        return sorted(self.skills.parent.rglob("*")) if self.skills.parent.exists() else []


def place(
    world: World,
    permissions: Mapping[str, object] | None = None,
    approve: Callable[[Request], bool] | None = None,
    sink: Store | None = None,
) -> Place:
    kept = sink or MemoryStore()
    config = resolve(world.project, home=world.home, overrides={"permissions": permissions or {}})
    return Place(Installer(config, kept, approve=approve), kept, world.home / ".agents/skills")
