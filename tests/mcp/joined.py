"""A catalog that a source of other servers' skills is joined to, and sessions on it."""

from typing import Any

from metier import catalog, discover, roots, settings
from metier.catalog import Catalog
from metier.mcp.session import OriginSession
from metier.mcp.source import Source
from metier.skills import Skills
from metier.state import State
from worlds import World


class Joined(Skills):
    """`Skills` with a source, which adds to every scan."""

    def __init__(self, world: World, source: Source, profile: str = "standard", **given: Any) -> None:
        self.source = source
        config = settings.resolve(world.project, home=world.home, profile=profile, overrides=given or None)
        super().__init__(config)

    def _scan(self, progress: Any = None) -> Catalog:
        config = self.settings
        found_roots, notes = roots.resolve(config.profile, config.place, ())
        found, _ = discover.scan(config.profile, config.place, found_roots)
        self.source.extend(found, config.profile)
        state = State(config.config_folder, config.place.project)
        everywhere = (*found_roots, *self.source.roots)
        return catalog.build(config.profile, config.place, everywhere, found, state, notes)

    def session(self, **given: Any) -> OriginSession:
        return self.source.session(self, **given)
