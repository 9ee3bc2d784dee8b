"""What `check` says of one skill in one host: the verdict, the findings that follow from it, and how sure it is.

A verdict is as sure as the least sure of the rules that it rests on. Which rules these are depends on the skill. That a
host finds it rests on the host's folders, that another one of the same name is used rests on the rule for collisions,
and so on. A rule that plays no part in a verdict makes it no less sure.
"""

import pickle
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from types import TracebackType
from typing import IO, Final, Literal, NamedTuple, Self

from metier.hosts.documentation import Certainty, Documentation, weakest
from metier.hosts.profiles import HONOURED, Profile
from metier.values.skill import Diagnostic, Severity
from metier.values.value import Value, field

Status = Literal["offered", "later", "shadowed", "left-out", "elsewhere", "invalid"]
"""How a host treats a skill.

- `offered`: it is in the host's catalog.
- `later`: the host finds it once it uses files beside it.
- `shadowed`: another skill of the same name is used instead.
- `left-out`: a rule of the host excludes it.
- `elsewhere`: it is not in a folder that the host searches.
- `invalid`: the host does not accept it as a skill.
"""


class Assumption(NamedTuple):
    """A rule that no source states, and why it is as it is."""

    rule: str
    why: str


class Basis(NamedTuple):
    """What a verdict rests on."""

    certainty: Certainty
    assumed: tuple[Assumption, ...]


class HostVerdict(Value, kw_only=True):
    """What one host does with one skill. If the host does not find it, the other fields say what it would do."""

    json_keys = (
        "profile", "path", "status", "found", "shown", "why|null", "put", "name", "description", "root|null", "model",
        "user", "called|null", "cuts", "ignored", "notes", "diagnostics", "certainty", "assumed",
    )  # fmt: skip

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

    def findings(self) -> Iterator[Diagnostic]:
        """Everything to know about the skill in this host, apart from the diagnostics of the file."""

        def found(code: str, severity: Severity, message: str, key: str = "") -> Diagnostic:
            return Diagnostic(code, severity, message, self.path, self.lines.get(key, 1), 1)

        if self.status not in ("offered", "invalid"):
            yield found(
                f"host-{self.status}", "warning" if self.status in ("shadowed", "left-out") else "info", self.why
            )
        hidden = [who for who, may in (("model", self.model), ("user", self.user or not self.called)) if not may]
        if hidden and self.status in ("offered", "later", "elsewhere"):
            yield found("host-hidden", "info", f"it is not shown to the {' or the '.join(hidden)}")
        for cut in self.cuts:
            yield found("host-cut", "warning", cut, "description")
        for key in self.ignored:
            yield found("host-ignores", "info", f"`{key}` is ignored", key)
        for note in self.notes:
            yield found("host-note", "info", note)
        for rule, why in self.assumed:
            yield found("host-assumed", "info", f"assumed: {why} (`{rule}`)")


# --- how sure it is ---

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


def weigh(rules: Iterable[str], documentation: Documentation) -> Basis:
    """How sure a verdict is that rests on these rules."""
    sources = {rule: documentation.of(rule) for rule in rules}
    assumed = (Assumption(rule, source.why) for rule, source in sources.items() if source.certainty == "assumed")
    return Basis(weakest([source.certainty for source in sources.values()]), tuple(assumed))


def rules_of_errors(diagnostics: Iterable[Diagnostic]) -> Iterator[str]:
    """The rules that make a file invalid."""
    for diagnostic in diagnostics:
        if diagnostic.severity == "error":
            yield from _RULES.get(diagnostic.code, ())


def rules_of_showing(keys: Iterable[str]) -> Iterator[str]:
    """The rules that decide who sees a skill with these keys in its frontmatter, and who can call it."""
    yield "invocation.forms"
    if {*keys} & {*HONOURED}:
        yield "catalog.honours"


def rules_of_cuts(profile: Profile) -> Iterator[str]:
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


# --- until all hosts have judged ---

_IN_MEMORY: Final = 40_000
"""The verdicts that are kept in memory, which takes some 40 MB."""
_PART: Final = 500
"""The verdicts that are read back at once."""


class HeldVerdicts:
    """The verdicts of some hosts, each sorted by path. Use it in a `with` block.

    Hosts are judged one after the other, because a large catalog fills the memory once for each host. What they say is
    needed skill by skill. So the verdicts of many skills wait in a temporary file, which nobody else can open.
    """

    def __init__(self) -> None:
        self._hosts: list[Sequence[HostVerdict | int]] = []
        """Of each host, the verdicts, or where in the file some of them are."""
        self._count = 0
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, verdicts: Sequence[HostVerdict]) -> None:
        """Hold the verdicts of one more host."""
        self._count += len(verdicts)
        self._hosts.append(verdicts if self._count <= _IN_MEMORY else self._write(verdicts))

    def by_skill(self) -> Iterator[list[HostVerdict]]:
        """Yield the verdicts on each skill, in the order of the hosts. Skills are sorted by path."""
        each = (self._numbered(number) for number in range(len(self._hosts)))
        for _, group in groupby(merge(*each), key=lambda entry: entry[0]):
            yield [verdict for _, _, verdict in group]

    def _numbered(self, number: int) -> Iterator[tuple[str, int, HostVerdict]]:
        return ((verdict.path, number, verdict) for verdict in self._of_host(number))

    def _of_host(self, number: int) -> Iterator[HostVerdict]:
        for one in self._hosts[number]:
            if isinstance(one, int) and self._file is not None:
                self._file.seek(one)
                yield from pickle.load(self._file)  # noqa: S301 - nobody else can open the file
            elif not isinstance(one, int):
                yield one

    def _write(self, verdicts: Sequence[HostVerdict]) -> list[int]:
        """Write verdicts to the file. Returns where the parts are."""
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - `__exit__` closes it
        places: list[int] = []
        for start in range(0, len(verdicts), _PART):
            places.append(self._file.seek(0, 2))
            pickle.dump(verdicts[start : start + _PART], self._file)
        return places
