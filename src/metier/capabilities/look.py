"""Everything that a skill names, in one value."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from metier.capabilities import hosts, imports, programs, secrets
from metier.capabilities.sources import Named, sources
from metier.files.tree import SkillTree
from metier.model import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCapabilities:
    """What the files of a skill name, by kind."""

    imports: tuple[Named, ...]
    hosts: tuple[Named, ...]
    programs: tuple[Named, ...]
    files: tuple[Named, ...]
    secrets: tuple[Named, ...]
    commands: tuple[Named, ...]

    def of(self, kind: str) -> tuple[Named, ...]:
        """What is named of one kind, which is the name of a field."""
        return getattr(self, kind)

    def as_dict(self) -> JsonObject:
        return {item.name: [one.as_dict() for one in self.of(item.name)] for item in fields(self)}


def look(tree: SkillTree, frontmatter: Mapping[str, object]) -> NamedCapabilities:
    """Look at all files of a skill."""
    known = sources(tree)
    return NamedCapabilities(
        imports=imports.imports(known),
        hosts=hosts.hosts(known),
        programs=programs.programs(known, frontmatter),
        files=hosts.files(known),
        secrets=secrets.asked_for(known, frontmatter),
        commands=hosts.commands(known),
    )
