"""One profile of each kind. Hosts of one kind differ in where they look and what they accept, not in their texts.

Tests of texts run over the kinds, so that a further host of a known kind costs no time.
"""

from typing import Final

from metier.hosts import profiles


def _kinds() -> list[str]:
    found: dict[object, str] = {}
    for name in profiles.BUILT_IN:
        profile = profiles.build(profiles.load(name))
        prompt = profile.prompt
        kind = (prompt.format, profile.load.wrap, profile.tools.shape, prompt.description_fields)
        found.setdefault(kind, name)
    return list(found.values())


KINDS: Final = _kinds()
