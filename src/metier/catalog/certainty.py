"""How sure a verdict of `check` is: as sure as the least sure of the rules that it rests on.

Which rules these are depends on the skill. That a host finds it rests on the host's folders, that another one of the
same name is used rests on the rule for collisions, and so on. A rule that plays no part in a verdict makes it no less
sure.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from metier.hosts.documentation import Certainty, Documentation, weakest
from metier.hosts.profiles import HONOURED, Profile
from metier.model import Diagnostic

_RULES: Final[Mapping[str, tuple[str, ...]]] = {
    "frontmatter-missing": ("validation.frontmatter_required",),
    "yaml-invalid": ("validation.repair",),
    "name-missing": ("validation.name_missing",),
    "name-invalid": ("validation.name_pattern", "validation.name_breach"),
    "name-too-long": ("validation.name_length", "validation.name_breach"),
    "name-mismatch": ("validation.name_mismatch",),
    "description-missing": ("validation.description_missing",),
    "description-too-long": ("validation.description_length", "validation.description_breach"),
    "unknown-key": ("validation.unknown_keys",),
}
"""The rules behind a diagnostic of a file. Those that are not here hold for every host."""


class Assumption(NamedTuple):
    """A rule that no source states, and why it is as it is."""

    rule: str
    why: str


class Basis(NamedTuple):
    """What a verdict rests on."""

    certainty: Certainty
    assumed: tuple[Assumption, ...]


def weigh(rules: Iterable[str], documentation: Documentation) -> Basis:
    """How sure a verdict is that rests on these rules."""
    sources = {rule: documentation.of(rule) for rule in rules}
    assumed = (Assumption(rule, source.why) for rule, source in sources.items() if source.certainty == "assumed")
    return Basis(weakest([source.certainty for source in sources.values()]), tuple(assumed))


def behind(diagnostics: Iterable[Diagnostic]) -> Iterator[str]:
    """The rules that make a file invalid."""
    for diagnostic in diagnostics:
        if diagnostic.severity == "error":
            yield from _RULES.get(diagnostic.code, ())


def shown(keys: Iterable[str]) -> Iterator[str]:
    """The rules that decide who sees a skill with these keys in its frontmatter, and who can call it."""
    yield "invocation.forms"
    if {*keys} & {*HONOURED}:
        yield "catalog.honours"


def cut(profile: Profile) -> Iterator[str]:
    """The rules that limit what is shown of a skill."""
    prompt = profile.prompt
    limits = {
        "prompt.description_chars": prompt.description_chars,
        "prompt.max_chars": prompt.max_chars,
        "prompt.max_bytes": prompt.max_bytes,
        "prompt.max_entries": prompt.max_entries,
        "load.max_bytes": profile.load.max_bytes,
    }
    yield from (rule for rule, limit in limits.items() if limit)
