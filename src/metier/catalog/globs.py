"""Globs on names: `*`, `?`, `[a-z]` and alternatives in braces, such as `git-{log,blame}`. Case matters."""

import functools
from fnmatch import fnmatchcase
from typing import Final

from metier.errors import ConfigError

MOST: Final = 1000
"""Characters of one glob, and its alternatives. Each pair of braces multiplies them."""


def matches(name: str, glob: str) -> bool:
    """Whether a name matches a glob. Raises `ConfigError` for a glob with too many alternatives."""
    return any(fnmatchcase(name, one) for one in alternatives(glob))


@functools.lru_cache(maxsize=256)
def alternatives(glob: str) -> tuple[str, ...]:
    """The globs without braces that a glob stands for. Braces without a comma or a partner are ordinary characters."""
    if len(glob) > MOST:
        raise ConfigError(f"the glob {glob[:60]!r} has more than {MOST:,} characters", key="filters")
    done: list[str] = []
    waiting = [glob]
    while waiting:
        one = waiting.pop()
        group = _first_group(one)
        if group is None:
            done.append(one)
            continue
        start, end, parts = group
        waiting += (one[:start] + part + one[end:] for part in reversed(parts))
        if len(done) + len(waiting) > MOST:
            raise ConfigError(f"the glob {glob[:60]!r} has more than {MOST:,} alternatives", key="filters")
    return tuple(done)


def _first_group(glob: str) -> tuple[int, int, list[str]] | None:
    """The first braces with a comma: where they start and end, and what is between the commas."""
    start = glob.find("{")
    while start >= 0:
        depth, parts, begin = 0, list[str](), start + 1
        for at in range(start, len(glob)):
            depth += (glob[at] == "{") - (glob[at] == "}")
            if depth == 0 or (depth == 1 and glob[at] == ","):
                parts.append(glob[begin:at])
                begin = at + 1
            if depth == 0:
                break
        if depth == 0 and len(parts) > 1:
            return start, begin, parts
        start = glob.find("{", start + 1)
    return None
