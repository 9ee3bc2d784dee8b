"""Leaves out what switched-off roots hide, for hosts that settle names first and look at the switches then.

In such a host the first root that has a name takes it, on or off. If it is off, the skills of that name in later roots
are not used either. Folders that the caller named and custom directories come after that and are not hidden.
"""

from typing import Final

from metier.catalog.discover import Found, scan
from metier.hosts import roots
from metier.hosts.profiles import Profile
from metier.hosts.roots import Place
from metier.values.skill import Diagnostic, Skill, Skipped

REASON: Final = "source-off"
"""Why a file is left out: its root is switched off, or the one that takes its name."""


def hide(found: Found, profile: Profile, place: Place, trusted: bool) -> None:
    """Move the skills that a switched-off root hides to the skipped ones, and add its own skills there, too."""
    left_out, order = roots.switched_off(profile, place)
    if not left_out:
        return
    off, _ = scan(profile, place, left_out, trusted=trusted)
    ranks = {path: rank for rank, path in enumerate(order)}
    first: dict[str, Skill] = {}
    for skill in sorted(filter(_takes_part, (*found.skills, *off.skills)), key=lambda one: ranks[one.root.path]):
        first.setdefault(skill.name, skill)
    unused = {skill.path for skill in off.skills}
    kept: list[Skill] = []
    for skill in found.skills:
        winner = first[skill.name] if _takes_part(skill) else skill
        if winner.path not in unused or winner is skill:
            kept.append(skill)
            continue
        message = f"{winner.path} has the same name, {skill.name!r}, and comes first, but its source is switched off"
        found.skipped.append(Skipped(skill.path, REASON, message, skill.name))
        hint = "switch its source on, or rename one of the two"
        found.diagnostics.append(Diagnostic("collision", "warning", message, path=skill.path, hint=hint))
    found.skills = kept
    known = {skill.real_path for skill in kept} | {entry.path for entry in found.skipped}
    for skill in off.skills:
        if not {skill.path, skill.real_path} & known:
            found.skipped.append(Skipped(skill.path, REASON, f"the source {skill.source} is switched off", skill.name))


def _takes_part(skill: Skill) -> bool:
    return not skill.root.explicit and skill.source != "custom"
