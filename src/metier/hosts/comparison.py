"""The rules of a host in one short row, so that many hosts can be compared at a glance."""

from typing import NamedTuple

from metier.hosts import roots
from metier.hosts.documentation import Documentation
from metier.hosts.profiles import Profile


class Row(NamedTuple):
    """One host. Every value is short text, for a table."""

    host: str
    folder: str
    """The first folder of a project that is searched."""
    home: str
    """The first folder of the home that is searched."""
    depth: str
    """Levels of folders below such a folder, or `any`."""
    name: str
    """`=folder` if a skill's name must be that of its folder, `label` if it is only a label, else `free`."""
    wins: str
    """Whose skill is used if two have one name: the `project`'s, the `user`'s, the `last` one, or `both`."""
    called: str
    """How a message calls a skill, or `-`."""
    sure: str
    """How many of the rules that the profile sets have a source."""


COLUMNS = Row._fields
NARROW = tuple(column for column in COLUMNS if column != "home")
"""The columns that fit into a line of 80 characters."""


def row(profile: Profile, documentation: Documentation | None) -> Row:
    """The row of one host."""
    project, home = roots.usual(profile)
    rules, forms, rule = profile.validation, profile.invocation.forms, profile.collisions.rule
    named = "label" if rules.name_source == "folder" else "=folder" if rules.name_mismatch == "error" else "free"
    wins = "user" if profile.roots and roots.by_priority(profile)[0].at == "home" else "project"
    counts = documentation.counts() if documentation is not None else {}
    total = sum(counts.values())
    return Row(
        host=profile.name,
        folder=project or "-",
        home=home or "-",
        depth=str(profile.discovery.depth or "any"),
        name=named,
        wins={"last": "last", "ambiguous": "both"}.get(rule, wins),
        called=forms[0] if forms else "-",
        sure=f"{total - counts.get('assumed', 0)}/{total}" if documentation is not None else "-",
    )
