"""The requests and results of a session, as frozen values.

Policy decides on a `Request`. The results are a `Prompt` for the catalog, a `SearchResult` for a query, a `Loaded` for
a skill, a `Resource` for a file, a `RunResult` for a script, an `Invocation` for a user's message, and a `ToolResult`
for a model's tool call.
"""

import base64
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from metier.model import Fields, JsonObject, Skill
from metier.quick_dataclass import dataclass, field


@dataclass(frozen=True, slots=True)
class Request:
    """A request that policy decides on: a tool, and the skill, file or command that it is for."""

    tool: str
    skill_name: str = ""
    path: str = ""
    command: str = ""
    digest: str = ""
    """The digest of the content to run or load, so that an approval covers only this content."""
    detail: str = ""
    """That content as text, or its origin, to show to the person who is asked."""
    before: str = field(default="", compare=False)
    """The same text when it was last approved, so that the person sees what changed. Empty if that is not known."""
    arguments: tuple[str, ...] = ()
    """The arguments of a script, one by one. `command` joins them for rules."""
    grants: tuple[str, ...] = ()
    """What rules give the script besides its sandbox, such as `run_network`."""
    folder: str = ""
    """The real path of the skill's folder. Two skills of one name differ here."""
    scope: str = ""
    source: str = ""
    foreign: bool = False
    """Whether the skill belongs to a project that the user does not trust."""
    project: str = ""
    """The folder of the user that the script is shown."""
    hosts: tuple[str, ...] = ()
    """The only hosts that rules let the script connect to. One behind a `!` is refused, even if another covers it."""
    given: tuple[str, ...] = ()
    """What the run is given besides its own files, in words such as `reads /home/me/data`. An answer for good covers
    exactly this."""
    wants: tuple[str, ...] = ()
    """What of it no rule gives yet: only an answer about this request does."""
    files: tuple[str, ...] = ()
    """The names of the files that are put into the script's current folder."""
    name: str = ""
    """The name of the secret, for `run_secret`."""
    secrets: tuple[str, ...] = ()
    """The names of the secrets that rules give the script."""
    packages: str = ""
    """The packages that are installed for the script, in words, with versions and sizes."""


CHOICES: Final = ("once", "always", "no")
"""What a person can answer when policy asks."""


Reason = Literal["exact_path", "exact_name", "prefix", "token_overlap"]
"""Why a skill matches a query."""

Fit = Literal["strong", "weak", ""]
"""How much of a query a skill matches. Empty where a host counts words and judges nothing."""

WEAK_MATCHES: Final = "Weak matches; load one only if its description fits:"
"""What stands above the weak hits of a search."""


class LikeIt(NamedTuple):
    """A skill with the same description as a hit."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A skill that matches a query."""

    skill: Skill
    score: float
    reason: Reason
    matched: tuple[str, ...] = ()
    """The words of the query that the skill has; see `Skills.explain`."""
    fit: Fit = ""
    """Whether so much of the query was found that the skill is probably for it. A weak hit may still be right."""
    file: str = ""
    """The reference file that has more of the query than SKILL.md: the one to read after the skill is loaded."""
    shadowed_by: str = ""
    """The path of the skill that is offered instead, because it has the same name. Load this one by its path."""
    like: tuple[LikeIt, ...] = ()
    """Copies of the skill, which match as well and are not among the results."""

    @property
    def line(self) -> str:
        """The skill as a line of text."""
        return f"- {self.skill.name}: {' '.join(self.skill.description.split())}"

    @property
    def notes(self) -> tuple[str, ...]:
        """The lines below that line."""
        notes: list[str] = []
        if self.shadowed_by:
            notes.append("  shadowed by another skill of this name; load this one by its path")
        if self.file:
            notes.append(f"  found in its file {' '.join(self.file.split())}")
        if self.like:
            others = [name for name in dict.fromkeys(one.name for one in self.like) if name != self.skill.name]
            notes.append(f"  and {len(self.like):,} like it" + (f": {', '.join(others)}" if others else ""))
        return tuple(notes)

    def as_dict(self) -> JsonObject:
        return {"skill": self.skill.as_dict(), "score": self.score, "reason": self.reason, **self.details()}

    def details(self) -> JsonObject:
        """What is known besides score and reason. A host that only counts words knows nothing more."""
        like = [one._asdict() for one in self.like]
        known = {"fit": self.fit, "file": self.file, "shadowed_by": self.shadowed_by, "like": like}
        return {key: value for key, value in known.items() if value}


class IndexProgress(NamedTuple):
    """How many skills of a large catalog are in its index, while that is being built."""

    done: int
    total: int


MORE_MATCH: Final = "More skills match; ask more precisely or for more results."


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best hits first. `truncated` says that more skills match."""

    query: str
    count: int
    truncated: bool
    results: tuple[Hit, ...]
    indexing: IndexProgress | None = None
    """Set while the index is being built: then only names and descriptions were searched."""

    @property
    def text(self) -> str:
        """The result as one line for each skill, the weak ones below a line that says so."""
        if not self.results:
            return "\n".join([f"No skill matches {self.query!r}.", *self.closing])
        lines = [line for hit in self.results for line in (*self.heading(hit), hit.line, *hit.notes)]
        return "\n".join([*lines, *([MORE_MATCH] if self.truncated else []), *self.closing])

    @property
    def closing(self) -> tuple[str, ...]:
        """The line below all others: what was not searched yet."""
        if self.indexing is None:
            return ()
        done, total = self.indexing
        return (f"Only names and descriptions were searched: {done:,} of {total:,} skills are fully indexed so far.",)

    @property
    def weak(self) -> bool:
        """Whether there are hits and all of them are weak."""
        return bool(self.results) and all(hit.fit == "weak" for hit in self.results)

    def heading(self, hit: Hit) -> tuple[str, ...]:
        """The line above a hit: above the first weak one, what a weak match is."""
        first = next((one for one in self.results if one.fit == "weak"), None)
        return (WEAK_MATCHES,) if hit is first else ()

    def as_dict(self) -> JsonObject:
        return {
            "query": self.query,
            "count": self.count,
            "truncated": self.truncated,
            "results": [hit.as_dict() for hit in self.results],
        } | ({"indexing": self.indexing._asdict()} if self.indexing else {})


@dataclass(frozen=True, slots=True)
class Loaded:
    """An activated skill. `text` is for the model. The other fields are for hosts that build their own text."""

    skill: Skill
    text: str
    ref: str
    digest: str
    """The digest of SKILL.md as it is on disk."""
    files: tuple[str, ...]
    already_loaded: bool
    truncated: bool
    files_truncated: bool = False
    body: str = ""
    frontmatter: Fields = field(default_factory=dict[str, Any])
    left_out: int = 0
    """The number of bytes of SKILL.md that a limit cut off."""
    warnings: tuple[str, ...] = ()
    size: int = 0
    """The size of SKILL.md in bytes."""
    files_left_out: int = 0
    """The number of files that a limit left out of `files`. 0 if there are none, or if they were not counted."""
    body_digest: str = ""
    """The digest of the text without the list of files: what decides whether the same was given before."""

    def as_dict(self, skill: str = "") -> JsonObject:
        """The result as data. `skill` is a name, where that is enough and not everything about the skill is wanted."""
        return {
            "skill": skill or self.skill.as_dict(),
            "text": self.text,
            "ref": self.ref,
            "digest": self.digest,
            "files": list(self.files),
            "files_truncated": self.files_truncated,
            "files_left_out": self.files_left_out,
            "already_loaded": self.already_loaded,
            "truncated": self.truncated,
        }


@dataclass(frozen=True, slots=True)
class Resource:
    """A file of a skill, as text. `data` holds the bytes, if they were requested."""

    skill: Skill
    path: str
    text: str
    mime: str
    size: int
    truncated: bool
    digest: str = ""
    data: bytes | None = field(default=None, repr=False)

    def as_dict(self) -> JsonObject:
        shown: JsonObject = {
            "skill": self.skill.name,
            "path": self.path,
            "mime": self.mime,
            "size": self.size,
            "text": self.text,
            "truncated": self.truncated,
        }
        return shown if self.data is None else shown | {"base64": base64.b64encode(self.data).decode()}


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that a script made, stored under its digest."""

    path: str
    digest: str
    size: int
    data: bytes = field(default=b"", repr=False, compare=False)

    def as_dict(self) -> JsonObject:
        return {"path": self.path, "digest": self.digest, "size": self.size}


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file of the project that a script added, changed or deleted."""

    path: str
    kind: Literal["added", "changed", "deleted"]
    size: int = 0
    digest: str = ""
    """The digest of the new content. Empty for a deleted file."""

    def as_dict(self) -> JsonObject:
        return {"path": self.path, "kind": self.kind, "size": self.size, "digest": self.digest}


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of running a script of a skill."""

    skill: Skill
    script: str
    exit_code: int
    stdout: str
    stderr: str
    duration_ms: int
    artifacts: tuple[Artifact, ...] = ()
    ended: str = "exit"
    """`exit`, or the limit that ended the script."""
    protections: tuple[str, ...] = ()
    """The protections of the sandbox. Empty if policy let the script run without one."""
    notes: tuple[str, ...] = ()
    changes: tuple[ChangedFile, ...] = ()
    """The files of the project that the script changed, if a rule lets it."""

    @property
    def text(self) -> str:
        """The result as text for the model."""
        parts = [self.stdout.rstrip()] if self.stdout.strip() else []
        if self.stderr.strip():
            parts.append(f"[stderr]\n{self.stderr.rstrip()}")
        if self.exit_code or self.ended != "exit":
            how = "" if self.ended == "exit" else f", ended by its {self.ended}"
            parts.append(f"[exit code {self.exit_code}{how}]")
        parts += [f"[wrote {artifact.path}, {artifact.size} bytes]" for artifact in self.artifacts]
        parts += [f"[{change.kind} {change.path} in the project]" for change in self.changes]
        parts += [f"[note: {note}]" for note in self.notes]
        return "\n".join(parts) or "[no output]"

    def as_dict(self) -> JsonObject:
        return {
            "skill": self.skill.name,
            "script": self.script,
            "exit_code": self.exit_code,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "duration_ms": self.duration_ms,
            "ended": self.ended,
            "artifacts": [artifact.as_dict() for artifact in self.artifacts],
            "protections": list(self.protections),
            "notes": list(self.notes),
            "changes": [change.as_dict() for change in self.changes],
        }


@dataclass(frozen=True, slots=True)
class AmbiguousMention:
    """A name in a user's message that several skills bear. A path in the message decides between them."""

    name: str
    candidates: tuple[Skill, ...]

    def as_dict(self) -> JsonObject:
        return {"name": self.name, "candidates": [_mentioned(skill) for skill in self.candidates]}


def _mentioned(skill: Skill) -> JsonObject:
    return {"skill_id": skill.id, "name": skill.name, "path": skill.path, "scope": skill.scope}


@dataclass(frozen=True, slots=True)
class Invocation:
    """The skill that a user's message calls, the message for the model, and the loaded skill, if it was loaded."""

    skill: Skill | None
    message: str
    loaded: Loaded | None = None
    arguments: str = ""
    mentioned: tuple[Skill, ...] = ()
    """All skills that the message calls, in its order. `skill` is the first of them."""
    choices: tuple[AmbiguousMention, ...] = ()
    """The names in the message that leave a choice."""

    @property
    def ambiguous(self) -> tuple[str, ...]:
        """The paths of all skills that `choices` is about."""
        return tuple(skill.path for choice in self.choices for skill in choice.candidates)

    @property
    def text(self) -> str:
        """The text for the model: the skill if the host loads it, else the message."""
        return self.loaded.text if self.loaded else self.message

    def as_dict(self) -> JsonObject:
        return {
            "skill": self.skill.name if self.skill else None,
            "message": self.message,
            "loaded": self.loaded.as_dict() if self.loaded else None,
            "mentioned": [_mentioned(skill) for skill in self.mentioned],
            "ambiguous": list(self.ambiguous),
            "choices": [choice.as_dict() for choice in self.choices],
        }


@dataclass(frozen=True, slots=True)
class Compaction:
    """The text to restore after a host compacted its context: the newest skills in full, the others by reference."""

    text: str
    restored: tuple[str, ...]
    referenced: tuple[str, ...]

    def as_dict(self) -> JsonObject:
        return {"text": self.text, "restored": list(self.restored), "referenced": list(self.referenced)}


@dataclass(frozen=True, slots=True)
class Prompt:
    """The part of a system prompt that shows the catalog, and the number of skills it shows."""

    text: str
    shown: int
    total: int
    truncated: bool
    names: tuple[str, ...] = ()
    """The skills shown with a description."""
    more: tuple[str, ...] = ()
    """The skills shown by name only."""
    shortened: bool = False
    """Whether descriptions were shortened to fit."""
    stable: int = 0
    """The number of characters at the start of the text that no message of the session changes."""
    chosen: tuple[Skill, ...] = ()
    """The skills that the message brought in now; see `metier.session.listing`."""
    heading: str = ""
    """The title of the first heading, if the section below it joins the section of that title in a base prompt."""
    sizes: tuple[int, ...] = ()
    """The number of characters that each of `names` has in the text; empty if the host's formats do not say."""

    def as_dict(self) -> JsonObject:
        return {
            "text": self.text,
            "shown": self.shown,
            "total": self.total,
            "truncated": self.truncated,
            "stable": self.stable,
        }


@dataclass(frozen=True, slots=True)
class WholePrompt:
    """A whole system prompt. `stable` and `chosen` are as in `Prompt`."""

    text: str
    stable: int = 0
    chosen: tuple[Skill, ...] = ()
    listed: Prompt | None = None
    """The part that shows the catalog."""
    applied: tuple[tuple[str, int], ...] = ()
    """The skills that stand in every prompt with their whole text: the name and the number of characters of each."""

    def as_dict(self) -> JsonObject:
        return {"text": self.text, "stable": self.stable}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool definition for a model."""

    name: str
    description: str
    input_schema: Mapping[str, Any]

    def as_dict(self) -> JsonObject:
        return {"name": self.name, "description": self.description, "input_schema": dict(self.input_schema)}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The answer to a tool call: `data` in the host's shape, and `text` for the model's context."""

    data: Mapping[str, Any]
    text: str
    ok: bool = True
    code: str = ""
    """A stable word for the error, the same on every surface. Empty on success."""
    rule: str = ""
    """The policy rule that refused the call, if any."""
    shown_at: tuple[str, ...] = ()
    """Where `text` is JSON: the keys that lead to the part for people, such as a card shows. Empty: all of it."""

    def as_dict(self) -> JsonObject:
        return dict(self.data)
