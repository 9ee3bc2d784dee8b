"""What `check` says of one skill in one host: the verdict, the findings that follow from it, and how sure it is."""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from metier.catalog.certainty import Assumption
from metier.hosts.documentation import Certainty
from metier.model import Diagnostic, JsonObject, Severity
from metier.quick_dataclass import dataclass, field

Status = Literal["offered", "later", "shadowed", "left-out", "elsewhere", "invalid"]
"""How a host treats a skill.

- `offered`: it is in the host's catalog.
- `later`: the host finds it once it uses files beside it.
- `shadowed`: another skill of the same name is used instead.
- `left-out`: a rule of the host excludes it.
- `elsewhere`: it is not in a folder that the host searches.
- `invalid`: the host does not accept it as a skill.
"""


class HostFinding(NamedTuple):
    """Something to know about a skill in a host. `code` is one of `check.FINDINGS`."""

    code: str
    severity: Severity
    message: str
    line: int = 1
    key: str = ""
    """The field of the frontmatter that it is about, if it is about one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostVerdict:
    """What one host does with one skill. If the host does not find it, the other fields say what it would do."""

    profile: str
    path: str
    """The SKILL.md, as the caller named it."""
    status: Status
    why: str = ""
    """A sentence that explains any status but `offered`."""
    put: tuple[str, ...] = ()
    """Folders where the host would find the skill. `~` is the home folder."""
    name: str = ""
    description: str = ""
    """As the host shows it."""
    root: str = ""
    """The folder in which the host finds it."""
    model: bool = False
    """Whether the model sees it."""
    user: bool = False
    """Whether the user can call it."""
    called: str = ""
    """What a user types to call it; empty if the host has no way to."""
    listed: bool = True
    """Whether the limits of the host's listing leave room for it, if the model may see it."""
    cuts: tuple[str, ...] = ()
    """What the host truncates, and where."""
    ignored: tuple[str, ...] = ()
    """The fields of the frontmatter that the host ignores."""
    notes: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    """The diagnostics of the file under the host's rules."""
    lines: Mapping[str, int] = field(default_factory=dict[str, int])
    """The line of each field in the file."""
    certainty: Certainty | None = None
    """How sure the least sure rule is that the verdict rests on; `None` if the profile names no sources."""
    assumed: tuple[Assumption, ...] = ()
    """The rules behind the verdict that no source states."""

    @property
    def found(self) -> bool:
        return self.status == "offered"

    @property
    def valid(self) -> bool:
        return self.status != "invalid"

    @property
    def shown(self) -> bool:
        """Whether the host finds the skill and shows it: to the model, or to the user if its author wants that."""
        return self.status in ("offered", "later") and (self.listed if self.model else self.user)

    def findings(self) -> Iterator[HostFinding]:
        """Everything to know about the skill in this host, apart from the diagnostics of the file."""
        if self.status not in ("offered", "invalid"):
            serious: Severity = "warning" if self.status in ("shadowed", "left-out") else "info"
            yield HostFinding(f"host-{self.status}", serious, self.why)
        hidden = [who for who, may in (("model", self.model), ("user", self.user or not self.called)) if not may]
        if hidden and self.status in ("offered", "later", "elsewhere"):
            yield HostFinding("host-hidden", "info", f"it is not shown to the {' or the '.join(hidden)}")
        for cut in self.cuts:
            yield HostFinding("host-cut", "warning", cut, self.lines.get("description", 1))
        for key in self.ignored:
            yield HostFinding("host-ignores", "info", f"`{key}` is ignored", self.lines.get(key, 1), key)
        for note in self.notes:
            yield HostFinding("host-note", "info", note)
        for rule, why in self.assumed:
            yield HostFinding("host-assumed", "info", f"assumed: {why} (`{rule}`)")

    def as_dict(self) -> JsonObject:
        return {
            "profile": self.profile,
            "path": self.path,
            "status": self.status,
            "found": self.found,
            "shown": self.shown,
            "why": self.why or None,
            "put": list(self.put),
            "name": self.name,
            "description": self.description,
            "root": self.root or None,
            "model": self.model,
            "user": self.user,
            "called": self.called or None,
            "cuts": list(self.cuts),
            "ignored": list(self.ignored),
            "notes": list(self.notes),
            "diagnostics": [diagnostic.as_dict() for diagnostic in self.diagnostics],
            "certainty": self.certainty,
            "assumed": [{"rule": rule, "why": why} for rule, why in self.assumed],
        }
