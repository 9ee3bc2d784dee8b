"""Words for the same thing: a query that says `k8s` also finds what says Kubernetes.

The groups are data, in `aliases.toml`, each with its source. They are looked up by the terms of a query and are not
part of the index, so switching them off or adding some builds nothing anew.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from metier.search.words import terms

GROUP: Final = 8
"""The most words of a group."""
GROUPS: Final = 500
"""The most groups that a user may add."""

Aliases = Mapping[str, Mapping[str, str]]
"""For a term, the other terms of its groups, each with the word that it stands for."""

FILE: Final = os.path.join(os.path.dirname(__file__), "aliases.toml")


@lru_cache(maxsize=8)
def aliases(shipped: bool, own: tuple[str, ...]) -> Aliases:
    """The shipped groups, if they are wanted, and a user's own: the words of each separated by commas."""
    groups = [[word.strip() for word in group.split(",")] for group in own[:GROUPS]]
    return _by_term([*(_shipped() if shipped else ()), *groups])


def _shipped() -> Sequence[Sequence[str]]:
    with open(FILE, "rb") as file:
        return [group["words"] for group in tomllib.load(file)["group"]]


def _by_term(groups: Iterable[Sequence[str]]) -> Aliases:
    found: dict[str, dict[str, str]] = {}
    for group in groups:
        # A word that is split into several, such as `front-end`, cannot stand for one term.
        known = {term[0]: word for word in group[:GROUP] if len(term := terms(word)) == 1}
        for term in known:
            others = {other: word for other, word in known.items() if other != term}
            found[term] = dict([*(found.get(term, {}) | others).items()][:GROUP])
    return found
