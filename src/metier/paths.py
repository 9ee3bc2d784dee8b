"""Files of a skill: which there are. Links are never listed, and a listing is the same every time."""

import os
from typing import NamedTuple

from metier.model import SKILL_FILE

_SKIPPED = frozenset((".git", "__pycache__", "node_modules"))


class Listing(NamedTuple):
    """Paths relative to the skill's folder, sorted; cut at a limit when `truncated`."""

    files: tuple[str, ...]
    truncated: bool


def list_files(folder: str, max_files: int, max_bytes: int) -> Listing:
    """The regular files of a skill but its SKILL.md, sorted before any cut, within a number and a total size."""
    sizes: dict[str, int] = {}
    bound = max_files * 50  # what one skill may cost; a folder with more is cut, and says so
    pending = [""]
    overflow = False
    while pending and not overflow:
        below = pending.pop()
        try:
            with os.scandir(os.path.join(folder, below)) as entries:
                for entry in entries:
                    path = f"{below}{entry.name}"
                    if entry.is_symlink():
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in _SKIPPED:
                            pending.append(path + "/")
                    elif entry.is_file(follow_symlinks=False) and path != SKILL_FILE:
                        sizes[path] = entry.stat(follow_symlinks=False).st_size
                    if len(sizes) + len(pending) > bound:
                        overflow = True
                        break
        except OSError:
            continue
    chosen: list[str] = []
    total = 0
    for path in sorted(sizes):
        total += sizes[path]
        if len(chosen) == max_files or total > max_bytes:
            return Listing(tuple(chosen), True)
        chosen.append(path)
    return Listing(tuple(chosen), overflow)
