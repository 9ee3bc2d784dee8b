"""What a session has loaded: which skills, as what text, and in which order.

Skills are compared by content: a skill is loaded if the text that would be given now is the text that was given before.
As data this is names, paths and digests, never bodies.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from metier import limits
from metier.errors import InvocationError
from metier.files.digests import digits
from metier.model import JsonObject, Skill


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSkill:
    """A skill that was loaded. `rendered` is the digest of the text that was given, `ref` its short name."""

    name: str
    path: str
    digest: str
    rendered: str
    ref: str
    arguments: str


class LoadedSkills:
    """The skills of one session, by path, in the order in which they were last given whole."""

    def __init__(self, state: Mapping[str, object]) -> None:
        self.activated: list[str] = []
        """Names in order of their first activation."""
        self.texts: dict[str, str] = {}
        """What this process gave, by ref."""
        self._loaded: dict[str, LoadedSkill] = {}
        self._chains: dict[str, tuple[str, ...]] = {}
        self.merge(state)
        chains = cast("Mapping[str, list[str]]", state.get("chains", {}))
        self._chains = {name: tuple(chain) for name, chain in chains.items()}

    def merge(self, state: Mapping[str, object]) -> None:
        """Take in what another process knows besides."""
        for name in cast("list[str]", state.get("activated_skill_names", ())):
            self.activate(name)
        for one in cast("list[dict[str, str]]", state.get("loaded", ())):
            skill = LoadedSkill(**{key: one[key] for key in LoadedSkill.__slots__})
            self._loaded.setdefault(skill.path, skill)

    def __contains__(self, path: object) -> bool:
        return path in self._loaded

    def __iter__(self) -> Iterator[LoadedSkill]:
        return iter(self._loaded.values())

    def newest_first(self) -> Iterator[LoadedSkill]:
        return reversed(list(self._loaded.values()))

    def at(self, path: str) -> LoadedSkill | None:
        return self._loaded.get(path)

    def by_ref(self, ref: str) -> LoadedSkill | None:
        return next((loaded for loaded in self if loaded.ref == ref), None)

    def keep(self, skill: Skill, *, digest: str, rendered: str, text: str, arguments: str) -> str:
        """Remember a text as given now; the ref to find it by."""
        ref = f"skill-{digits(rendered)[:12]}"
        self.texts[ref] = text
        self._loaded.pop(skill.path, None)
        self._loaded[skill.path] = LoadedSkill(
            name=skill.name, path=skill.path, digest=digest, rendered=rendered, ref=ref, arguments=arguments
        )
        return ref

    def activate(self, name: str) -> None:
        if name not in self.activated:
            self.activated.append(name)

    # --- skills that load skills ---

    def chain(self, name: str, parent: str | None) -> tuple[str, ...]:
        """The chain of skills that leads to this one. A cycle, or too long a chain, raises `InvocationError`."""
        if parent is None:
            return (name,)
        chain = (*self._chains.get(parent, (parent,)), name)
        if name in chain[:-1]:
            raise InvocationError("skills call each other in a cycle", chain)
        if len(chain) > limits.CALL_DEPTH:
            raise InvocationError(f"skills call each other more than {limits.CALL_DEPTH} deep", chain)
        return chain

    def follow(self, chain: tuple[str, ...]) -> None:
        self._chains[chain[-1]] = chain

    # --- as data ---

    def state(self, redact: bool = False) -> JsonObject:
        """Everything that another process needs to go on with the session, as data."""
        shown = [replace(one, arguments="[redacted]") if redact and one.arguments else one for one in self]
        # The parent of a chain is whatever somebody said it was, so it goes where arguments go.
        chains = {name: list(chain) for name, chain in self._chains.items() if len(chain) > 1 and not redact}
        known: JsonObject = {"activated_skill_names": list(self.activated), "loaded": [_as_dict(one) for one in shown]}
        return known | ({"chains": chains} if chains else {})


def _as_dict(loaded: LoadedSkill) -> dict[str, str]:
    return {key: getattr(loaded, key) for key in LoadedSkill.__slots__}
