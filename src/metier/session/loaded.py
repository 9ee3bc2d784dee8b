"""What a session has already seen: which skills it loaded, as what, and in which order.

Kept by content: a skill is known if the text that would be given now is the text that was given before. As data it is
names, paths and digests, never bodies.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from metier import limits
from metier.errors import InvocationError
from metier.model import Skill


@dataclass(frozen=True, slots=True)
class Seen:
    """A skill that was loaded. `rendered` is the digest of the text that was given, `ref` the name it was given."""

    name: str
    path: str
    digest: str
    rendered: str
    ref: str
    arguments: str


class Recollection:
    """The skills of one session, by path, in the order in which they were last given whole."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self.activated: list[str] = []
        """Names in order of their first activation."""
        self.texts: dict[str, str] = {}
        """What was given in this life of the session, by ref."""
        self._seen: dict[str, Seen] = {}
        self._chains: dict[str, tuple[str, ...]] = {}
        if state:
            self.merge(state)
            self._chains = {name: tuple(chain) for name, chain in state.get("chains", {}).items()}

    def merge(self, state: Mapping[str, Any]) -> None:
        """Take in what another life of the session knows besides."""
        for name in state.get("activated_skill_names", ()):
            self.activate(str(name))
        for one in state.get("loaded", ()):
            seen = Seen(**{key: str(one[key]) for key in Seen.__slots__})
            self._seen.setdefault(seen.path, seen)

    def __contains__(self, path: object) -> bool:
        return path in self._seen

    def __iter__(self) -> Iterator[Seen]:
        return iter(self._seen.values())

    def newest_first(self) -> Iterator[Seen]:
        return reversed(list(self._seen.values()))

    def of(self, path: str) -> Seen | None:
        return self._seen.get(path)

    def by_ref(self, ref: str) -> Seen | None:
        return next((seen for seen in self if seen.ref == ref), None)

    def keep(self, skill: Skill, digest: str, rendered: str, text: str, arguments: str) -> str:
        """Remember a text as given now; the ref to find it by."""
        ref = f"skill-{rendered[7:19]}"
        self.texts[ref] = text
        self._seen.pop(skill.path, None)
        self._seen[skill.path] = Seen(skill.name, skill.path, digest, rendered, ref, arguments)
        return ref

    def activate(self, name: str) -> None:
        if name not in self.activated:
            self.activated.append(name)

    def chain(self, name: str, parent: str | None) -> tuple[str, ...]:
        """The way to a skill that is loaded on behalf of another; a circle, or too long a way, is refused."""
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

    def state(self, redact: bool = False) -> dict[str, Any]:
        """Everything that another life of the session needs, as data."""
        hidden = [replace(seen, arguments="[redacted]") if redact and seen.arguments else seen for seen in self]
        # The parent of a chain is whatever somebody said it was, so it goes where arguments go.
        chains = {name: list(chain) for name, chain in self._chains.items() if len(chain) > 1 and not redact}
        loaded = [{key: getattr(seen, key) for key in Seen.__slots__} for seen in hidden]
        known: dict[str, Any] = {"activated_skill_names": list(self.activated), "loaded": loaded}
        return known | ({"chains": chains} if chains else {})
