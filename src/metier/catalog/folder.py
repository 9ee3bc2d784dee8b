"""Lists one folder for a scan: what may be skills or lead to them, in an order that does not depend on the disk."""

import os

from metier.model import SKILL_FILE


def read_folder(path: str, *, hidden: bool) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Return the sorted names of folders and links, and a file named like SKILL.md in another case, if any."""
    folders: list[str] = []
    links: list[str] = []
    odd = ""
    has_skill = False
    with os.scandir(path) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(".") and not hidden:
                continue
            if entry.is_symlink():
                links.append(name)
            elif entry.is_dir(follow_symlinks=False):
                folders.append(name)
            elif len(name) == 8 and name.lower() == "skill.md":
                has_skill = has_skill or name == SKILL_FILE
                odd = max(odd, name) if name != SKILL_FILE else odd
    folders.sort()
    links.sort()
    return tuple(folders), tuple(links), "" if has_skill else odd
