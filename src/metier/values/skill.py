"""The frozen values that make up a catalog.

A `Root` is a folder that a profile searches. Each SKILL.md in it becomes a `Skill`, a `Shadowed` skill that lost its
name to another, a `Skipped` one that a rule left out, or an error among the `Diagnostic`s. `Counts` counts these four,
and they add up to the files found. The results of a session are in `metier.values.results`.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, cast

from metier.values.value import Count, JsonObject, Value

Fields = Mapping[str, Any]
"""The fields of a frontmatter, as parsed from YAML."""

Severity = Literal["error", "warning", "info"]

Mode = Literal["pinned", "auto", "name-only", "manual", "off"]
"""How a skill is offered: always shown, shown if relevant, by name only, to the user only, not at all."""

MODES: Final[tuple[Mode, ...]] = ("pinned", "auto", "name-only", "manual", "off")

SKILL_FILE: Final = "SKILL.md"

REMOTE: Final = "mcp"
"""The scope of skills that an MCP server offers."""

STANDARD_KEYS: Final = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
"""The keys of the Agent Skills standard. Every other key of a frontmatter is in `extra`."""

SCOPE_ORDER: Final[Mapping[str, int]] = {"extra": 0, "repo": 1, "project": 1, "user": 2}
"""The order of scopes if all else is equal: explicitly named folders, the project's, the user's."""

SCOPES: Final = ("extra", "repo", "user", "admin", REMOTE)
"""The scopes that rules can name under every profile. A profile can have further ones, and its own word for `repo`."""

NO_FIELDS: Final[Fields] = MappingProxyType({})


class Diagnostic(Value, gc=False):
    """A finding about a file: a stable code, a severity, a location, and a hint."""

    json_keys = ("code", "severity", "path", "line|null", "column|null", "message", "hint|null")

    code: str
    severity: Severity
    message: str
    path: str = ""
    line: int = 0
    column: int = 0
    hint: str = ""
    reason: str = ""
    """`permission` if the operating system refused access."""


class Root(Value, gc=False):
    """A folder to search, and how to search it. Its skills have its scope and source."""

    path: str
    scope: str
    source: str
    priority: int = 0
    require_description: bool = True
    depth: int = 0
    """How many levels of folders below the root may be skills. 0 means any."""
    explicit: bool = False
    """Whether the user named the folder. If so, it is an error if it is missing."""
    foreign: bool = False
    """Whether it belongs to a project that the user does not trust, whatever the policy requires."""


class Skill(Value, gc=False):
    """One usable skill: its frontmatter, its location, and who may call it.

    `path` is the path of the SKILL.md as it was found, and `real_path` is the same without symbolic links. The two are
    one string if there are no links. The body is not included: it is read on activation and never before.
    """

    unhashed = ("frontmatter",)
    json_keys = (
        "id", "name", "description", "path", "dir", "base_dir", "scope", "source", "source_dir=root.path",
        "mtime", "mtime_ms", "version", "license", "compatibility", "metadata", "allowed_tools", "extra",
        "enabled", "mode", "trusted", "model_invocable", "user_invocable",
    )  # fmt: skip

    name: str
    description: str
    path: str
    real_path: str
    root: Root
    mtime_ns: int
    size: int
    frontmatter: Fields
    model_invocable: bool = True
    user_invocable: bool = True
    mode: Mode = "auto"
    trusted: bool = True
    """False for a skill of an untrusted project, if trust is required."""
    linked_folder: str = ""
    """The real path of its folder, if that is not the folder of `real_path`: SKILL.md itself is a link."""
    inner: tuple[str, ...] = ()
    """The folders of other skills inside this skill's folder, relative to it. Their files belong to those skills."""

    @property
    def id(self) -> str:
        """A stable id: the same for the same file in every call and process."""
        import hashlib  # the import takes longer than the scan of a small catalog, and ids are rarely needed

        return hashlib.sha256(self.real_path.encode("utf-8", "surrogateescape")).hexdigest()[:24]

    @property
    def dir(self) -> str:
        return self.path[: -len(SKILL_FILE) - 1] or "/"

    @property
    def base_dir(self) -> str:
        """The same as `dir`: hosts have either name for it."""
        return self.dir

    @property
    def folder(self) -> str:
        """The real path of its folder when it was found. Two skills of one name differ here."""
        return self.linked_folder or self.real_path[: -len(SKILL_FILE) - 1] or "/"

    @property
    def foreign(self) -> bool:
        return self.root.foreign

    @property
    def scope(self) -> str:
        return self.root.scope

    @property
    def source(self) -> str:
        return self.root.source

    @property
    def mtime_ms(self) -> int:
        return self.mtime_ns // 1_000_000

    @property
    def mtime(self) -> float:
        """When SKILL.md was last changed, in seconds since 1970."""
        return self.mtime_ns / 1_000_000_000

    @property
    def enabled(self) -> bool:
        return self.mode != "off"

    @property
    def visible(self) -> bool:
        """Whether the model may see and load the skill."""
        return self.model_invocable and self.trusted and self.mode not in ("off", "manual")

    @property
    def version(self) -> str | None:
        """The `version` of the frontmatter. It is no key of the standard, so some hosts ignore it."""
        return as_text(self.frontmatter.get("version"))

    @property
    def license(self) -> str | None:
        return as_text(self.frontmatter.get("license"))

    @property
    def compatibility(self) -> str | None:
        return as_text(self.frontmatter.get("compatibility"))

    @property
    def metadata(self) -> Fields:
        return metadata_of(self.frontmatter)

    @property
    def allowed_tools(self) -> tuple[str, ...] | None:
        """The tools that it lists: `None` if it gives no list, and none if nothing in it is well-formed."""
        value = self.frontmatter.get("allowed-tools")
        return None if value is None else split_tools(value)[0]

    @property
    def extra(self) -> JsonObject:
        return {key: value for key, value in self.frontmatter.items() if key not in STANDARD_KEYS}


STAMP: Final = struct.Struct("<qqqQ")
"""What changes whenever a file does: its modification time, change time, size and inode."""


class Shadowed(Value, gc=False):
    """A valid skill that is not offered because another one has its name. It can still be loaded by its path."""

    json_keys = ("*skill", "shadowed_by=winner.path", "identical")

    skill: Skill
    winner: Skill
    identical: bool = False
    """Whether the two files are the same, byte for byte."""


class Skipped(Value, gc=False):
    """A SKILL.md that a rule of the profile left out, and the rule that did."""

    json_keys = ("path", "reason", "detail")

    path: str
    reason: str
    detail: str = ""
    name: str = ""


class Counts(Value):
    """The counts of a catalog. Always, `found == loaded + shadowed + skipped + errors`."""

    json_keys = ("found", "loaded", "shadowed", "skipped", "errors")

    loaded: Count = 0
    shadowed: Count = 0
    skipped: Count = 0
    errors: Count = 0

    @property
    def found(self) -> Count:
        return self.loaded + self.shadowed + self.skipped + self.errors


class FileError(Value):
    """Why a file is no skill."""

    path: str
    message: str


class Changes(Value):
    """The changes that a refresh found, as sorted lists of skill names."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @classmethod
    def together(cls, several: "Sequence[Changes]") -> "Changes":
        """The changes of several catalogs."""
        kinds = ([name for one in several for name in getattr(one, kind)] for kind in cls.__struct_fields__)
        return cls(*(tuple(sorted(set(names))) for names in kinds))

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def __str__(self) -> str:
        return f"+{len(self.added)} / -{len(self.removed)} / ~{len(self.changed)}"


Role = Literal["load", "search", "read", "output", "run", "unload"]
"""The purpose of a tool. Each host has its own names for its tools."""

ROLES: Final[tuple[Role, ...]] = ("load", "search", "read", "output", "run", "unload")


def wire_name(tool: str) -> str:
    """A tool's name in characters that every provider accepts. OpenAI and Anthropic refuse a dot, among others."""
    return "".join(one if one.isascii() and (one.isalnum() or one in "_-") else "_" for one in tool)[:64]


def metadata_of(fields: Fields) -> Fields:
    """The `metadata` of a frontmatter. Scalars become text, as the standard requires. Other values are kept."""
    found = fields.get("metadata")
    if not isinstance(found, Mapping):
        return NO_FIELDS
    return {key: as_text(value) or value for key, value in cast("Fields", found).items()}


def as_text(value: object) -> str | None:
    """A scalar as text. `None` if the value is absent or not a scalar."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else None


def split_tools(value: object) -> tuple[tuple[str, ...], tuple[object, ...]]:
    """The entries of `allowed-tools`, and what is malformed in it. Lists of such texts are accepted."""
    entries: list[str] = []
    malformed: list[object] = []
    for item in cast("Sequence[object]", value) if isinstance(value, (list, tuple)) else (value,):
        written = _split(item) if isinstance(item, str) else ()
        for entry in written:
            (entries if _ENTRY.fullmatch(entry) and entry.count("(") == entry.count(")") else malformed).append(entry)
        if not written:
            malformed.append(item)
    return tuple(entries), tuple(malformed)


_ENTRY: Final = re.compile(r"[^()]+(?:\(.+\))?", re.DOTALL)


def _split(value: str) -> tuple[str, ...]:
    """The parts of a text, separated by whitespace or commas outside parentheses."""
    entries: list[str] = []
    current: list[str] = []
    depth = 0
    for char in value:
        depth += (char == "(") - (char == ")" and depth > 0)
        if depth == 0 and (char.isspace() or char == ","):
            entries.append("".join(current))
            current.clear()
        else:
            current.append(char)
    entries.append("".join(current))
    return tuple(entry for entry in entries if entry)
