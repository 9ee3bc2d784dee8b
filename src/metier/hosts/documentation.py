"""Where the rules of a host come from, and how sure each of them is.

A profile's table `[documentation]` names a source for every rule that the profile sets, or says why it is assumed. It
is not part of the rules: no session reads it, no record has it, and a profile does not inherit it from the one that it
extends, because a rule that was changed no longer comes from there.
"""

from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

from metier.errors import ConfigError
from metier.hosts import profiles
from metier.hosts.schema import DocumentationTable
from metier.values.value import Value

Certainty = Literal["tested", "documented", "source", "assumed"]

CERTAINTIES: Final[Mapping[Certainty, str]] = {
    "tested": "Every behaviour in the host's document is listed, and has a test.",
    "documented": "The host's public documentation says so.",
    "source": "Read from the host's public source code.",
    "assumed": "No source says so. Where no reason is given, the rule is that of the Agent Skills standard.",
}
"""How sure a rule is, the surest first."""

_RANK: Final = {certainty: rank for rank, certainty in enumerate(CERTAINTIES)}
_PAGES: Final = (".md", ".mdx")


class Source(Value):
    """Where a rule comes from."""

    json_keys = ("certainty", "at|null", "why|null")

    certainty: Certainty
    at: str = ""
    """The address of the page or file; empty if the rule is assumed."""
    why: str = ""
    """Why the rule is assumed."""


STANDARD: Final = Source("assumed", why="as in the Agent Skills standard")
"""The source of a rule that a profile does not set."""


class Documentation(Value):
    """The sources of a profile's rules."""

    json_keys = ("page", "version", "rules")

    page: str
    """The main source: an address, or the title of a document."""
    version: str
    """The version or date of the page, as far as it is known."""
    rules: Mapping[str, Source]
    """The source of each rule that the profile sets, by the name of the setting."""
    others: Source = STANDARD
    """The source of the rules that it does not set."""

    def of(self, rule: str) -> Source:
        """The source of a rule."""
        return self.rules.get(rule, self.others)

    def counts(self) -> dict[Certainty, int]:
        """How many rules there are of each certainty, the surest first."""
        found = [source.certainty for source in self.rules.values()]
        return {certainty: found.count(certainty) for certainty in CERTAINTIES if certainty in found}


def weakest(certainties: list[Certainty]) -> Certainty:
    """The least sure of these."""
    return max(certainties, key=_RANK.__getitem__)


def load(name: str) -> Documentation | None:
    """The sources of a profile's rules, by its name or file; `None` if it names none."""
    file = profiles.find(name)
    raw = profiles.read_toml(file)
    table = raw.pop("documentation", None)
    if table is None:
        return None
    told = profiles.build_table(DocumentationTable, table, "documentation", file)
    known = profiles.rules()
    for rule in (*told.sources, *told.assumed):
        if rule not in known and not any(name.startswith(f"{rule}.") for name in known):
            raise ConfigError(f"documentation names {rule}, which is no rule of a profile", file=file, key=rule)
    rules = profiles.given(raw) if "extends" in raw else known
    others = Source("tested", told.tested) if told.tested else STANDARD
    sources = {rule: _source(rule, told) or others for rule in rules if rule in known}
    return Documentation(told.page, told.version, sources, others)


def _source(rule: str, told: DocumentationTable) -> Source | None:
    """The source of one rule. What is said of the rule itself counts before what is said of its table."""
    for name in (rule, rule.split(".")[0]):
        if name in told.assumed:
            return Source("assumed", why=told.assumed[name])
        if name in told.sources:
            return Source(_certainty(told.sources[name]), told.sources[name])
    return None


def _certainty(address: str) -> Certainty:
    """Code in a public repository is source. A page is documentation, also if a repository has it."""
    parts = urlsplit(address)
    in_repository = parts.netloc == "github.com" and "/blob/" in parts.path
    return "source" if in_repository and not parts.path.endswith(_PAGES) else "documented"
