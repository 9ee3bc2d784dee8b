"""The secrets that a skill asks for: variables whose names look like secrets, in its scripts and in SKILL.md.

A skill can also declare them in the frontmatter, as `env` in a table `requires` of its metadata, which some hosts read.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from metier.files.shapes import is_items, is_object
from metier.running.capabilities.sources import Language, Named, SourceFile, collected
from metier.values.skill import SKILL_FILE

_WORDS: Final = (
    "KEY", "KEYS", "TOKEN", "TOKENS", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL",
    "CREDENTIALS", "APIKEY", "PAT", "AUTH", "DSN",
)  # fmt: skip
_NAME: Final = r"([A-Z][A-Z0-9_]*)"
_READ: Final[Mapping[Language, tuple[re.Pattern[str], ...]]] = {
    "python": (re.compile(rf"""(?:environ(?:\.get\(|\.pop\(|\[)|getenv\()\s*["']{_NAME}["']"""),),
    "node": (
        re.compile(rf"process\.env\.{_NAME}"),
        re.compile(rf"""process\.env\[\s*["'`]{_NAME}["'`]"""),
    ),
    "shell": (re.compile(rf"\$\{{?{_NAME}"),),
    "markdown": (re.compile(r"(?<![A-Za-z0-9_])([A-Z][A-Z0-9]*_[A-Z0-9_]+)(?![A-Za-z0-9_])"),),
}
_TAKEN_APART: Final = re.compile(r"\{([^{}]*)\}\s*=\s*process\.env")
_ASSIGNED: Final = re.compile(
    rf"(?:^|[\s;&|(]){_NAME}=(?P<value>[^\n;]*)|\b(?:read|for|local)\s+(?:-\w+\s+)*(?P<own>[A-Z]\w*)"
)


def looks_secret(name: str) -> bool:
    """Whether the name of a variable is that of a secret, such as `GITHUB_TOKEN` or `OPENAI_API_KEY`."""
    parts = name.split("_")
    return any(part in _WORDS for part in parts) or name.endswith(("APIKEY", "TOKEN", "SECRET", "PASSWORD"))


def asked_for(sources: Iterable[SourceFile], frontmatter: Mapping[str, object] | None = None) -> tuple[Named, ...]:
    """The secrets that some sources of a skill, and its frontmatter, ask for. The kind is `declared` or `named`."""
    declared = {name: (name, SKILL_FILE, "declared") for name in declared_in(frontmatter or {}, "env")}
    found = [
        (name, source.path, "declared" if name in declared else "named") for source in sources for name in _read(source)
    ]
    return collected([*declared.values(), *found])


def asked_for_by(script: str, sources: Sequence[SourceFile], frontmatter: Mapping[str, object]) -> tuple[Named, ...]:
    """The secrets that one script asks for: itself, in a module that it names, or in SKILL.md.

    What SKILL.md names belongs to another script if that one reads it.
    """
    text = next((source.text for source in sources if source.path == script), "")
    stems = set(re.findall(r"[\w-]+", text))
    parts = [
        one for one in sources if one.path == script or posixpath.splitext(posixpath.basename(one.path))[0] in stems
    ]
    others = {name for one in sources if one not in parts and one.path != SKILL_FILE for name in _read(one)}
    about = asked_for((one for one in sources if one in parts or one.path == SKILL_FILE), frontmatter)
    return tuple(one for one in about if one.where != (SKILL_FILE,) or one.name not in others)


def declared_in(frontmatter: Mapping[str, object], what: str) -> tuple[str, ...]:
    """What the tables `requires` of the frontmatter list: `env` for variables, `bins` for programs."""
    found: dict[str, None] = {}
    tables: list[object] = [frontmatter]
    while tables:
        table = tables.pop()
        for key, value in table.items() if is_object(table) else ():
            listed = value.get(what) if key == "requires" and is_object(value) else None
            found |= dict.fromkeys(str(name) for name in (listed if is_items(listed) else ()))
            tables.append(value)
    return tuple(found)


def _read(source: SourceFile) -> Iterator[str]:
    names = [found[1] for pattern in _READ[source.language] for found in pattern.finditer(source.text)]
    if source.language == "node":
        names += (name for found in _TAKEN_APART.finditer(source.text) for name in re.findall(_NAME, found[1]))
    own = _own(source.text) if source.language == "shell" else frozenset[str]()
    yield from (name for name in dict.fromkeys(names) if looks_secret(name) and name not in own)


def _own(text: str) -> frozenset[str]:
    """The variables that a shell script sets itself. One with a default, as in `X=${X:-}`, still asks for it."""
    own: set[str] = set()
    asked: set[str] = set()
    for found in _ASSIGNED.finditer(text):
        name = found[1] or found["own"]
        itself = re.search(rf"\$\{{?{re.escape(name)}\b", found["value"] or "")
        (asked if itself else own).add(name)
    return frozenset(own - asked)
