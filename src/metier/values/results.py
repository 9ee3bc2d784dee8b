"""The requests and results of a session, as frozen values.

Policy decides on a `Request`. The results are a `Prompt` for the catalog, a `SearchResult` for a query, a `Loaded` for
a skill, a `Resource` for a file, a `RunResult` for a script, an `Invocation` for a user's message, and a `ToolResult`
for a model's tool call.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypedDict

from metier.values.grants import Covered, Grant, covered_by
from metier.values.skill import Fields, Skill
from metier.values.value import Count, JsonObject, Value, field


class Request(Value):
    """A request that policy decides on: a tool, and the skill, file or command that it is for."""

    uncompared = ("before",)

    tool: str
    skill_name: str = ""
    path: str = ""
    command: str = ""
    digest: str = ""
    """The digest of the content to run or load, so that an approval covers only this content."""
    detail: str = ""
    """That content as text, or its origin, to show to the person who is asked."""
    before: str = ""
    """The same text when it was last approved, so that the person sees what changed. Empty if that is not known."""
    arguments: tuple[str, ...] = ()
    """The arguments of a script, one by one. `command` joins them for rules."""
    grants: tuple[Grant, ...] = ()
    """What the script is given besides its sandbox: one value of each kind."""
    folder: str = ""
    """The real path of the skill's folder. Two skills of one name differ here."""
    scope: str = ""
    source: str = ""
    foreign: bool = False
    """Whether the skill belongs to a project that the user does not trust."""
    name: str = ""
    """The name of the secret, for `run_secret`."""

    @property
    def given(self) -> Covered:
        """What the run is given, as a rule has it. An answer for good covers exactly this."""
        return covered_by(self.grants)

    @property
    def wants(self) -> tuple[Grant, ...]:
        """What of it no rule gives yet: only an answer about this request does."""
        return tuple(grant for grant in self.grants if grant.asked) if self.grants else ()

    def as_dict(self) -> JsonObject:
        """The request as data. Fields that are empty are left out."""
        shown: JsonObject = {key: getattr(self, key) for key in _TEXTS}
        shown |= {"arguments": self.arguments, "grants": [tool for grant in self.grants for tool in grant.tools]}
        shown |= {"given": dict(self.given), "wants": dict(covered_by(self.wants))}
        shown |= {key: value for grant in self.grants for key, value in grant.shown().items()}
        return {key: value for key, value in shown.items() if value}


_TEXTS: Final = (
    *("tool", "skill_name", "path", "command", "digest", "detail", "before", "folder", "scope", "source", "foreign"),
    "name",
)


Choice = Literal["once", "always", "no"]
CHOICES: Final[tuple[Choice, ...]] = ("once", "always", "no")
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


class Hit(Value):
    """A skill that matches a query."""

    json_keys = ("skill", "score", "reason", "fit?", "file?", "shadowed_by?", "like?")

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

    def details(self) -> JsonObject:
        """What is known besides score and reason. A host that only counts words knows nothing more."""
        return {key: value for key, value in self.as_dict().items() if key not in ("skill", "score", "reason")}


class IndexProgress(NamedTuple):
    """How many skills of a large catalog are in its index, while that is being built."""

    done: Count
    total: Count


_MORE_MATCH: Final = "More skills match; ask more precisely or for more results."


class SearchResult(Value):
    """The best hits first. `truncated` says that more skills match."""

    json_keys = ("query", "count", "truncated", "results", "indexing?")

    query: str
    count: Count
    truncated: bool
    results: tuple[Hit, ...]
    indexing: IndexProgress | None = None
    """Set while the index is being built: then only names and descriptions were searched."""

    def recorded(self) -> JsonObject:
        """The result for a record, so that a replay shows what was found then without searching again."""
        hits = [[hit.skill.path, hit.score, hit.reason, list(hit.matched), hit.details()] for hit in self.results]
        found: JsonObject = {"truncated": self.truncated, "hits": hits}
        return found | ({"indexing": list(self.indexing)} if self.indexing else {})

    @classmethod
    def restored(cls, query: str, data: Mapping[str, Any], find: Callable[[str], Skill]) -> "SearchResult":
        """The result of such data. `find` gives the skill at a path."""
        hits: list[Hit] = []
        for path, score, reason, matched, details in data["hits"]:
            like = tuple(LikeIt(**one) for one in details.pop("like", ()))
            hits.append(Hit(find(path), score, reason, tuple(matched), like=like, **details))
        indexing = IndexProgress(*data["indexing"]) if "indexing" in data else None
        return cls(query, len(hits), data["truncated"], tuple(hits), indexing)

    @property
    def text(self) -> str:
        """The result as one line for each skill, the weak ones below a line that says so."""
        if not self.results:
            return "\n".join([f"No skill matches {self.query!r}.", *self.closing])
        lines = [line for hit in self.results for line in (*self.heading(hit), hit.line, *hit.notes)]
        return "\n".join([*lines, *([_MORE_MATCH] if self.truncated else []), *self.closing])

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


class Loaded(Value):
    """An activated skill. `text` is for the model. The other fields are for hosts that build their own text."""

    json_keys = (
        "skill", "text", "ref", "digest", "files", "files_truncated", "files_left_out", "already_loaded", "truncated",
    )  # fmt: skip

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
    size: Count = 0
    """The size of SKILL.md in bytes."""
    files_left_out: Count = 0
    """The number of files that a limit left out of `files`. 0 if there are none, or if they were not counted."""
    body_digest: str = ""
    """The digest of the text without the list of files: what decides whether the same was given before."""


class Resource(Value):
    """A file of a skill, as text. `data` holds the bytes, if they were requested."""

    json_keys = ("skill=skill.name", "path", "mime", "size", "text", "truncated", "base64?=data")
    unshown = ("data",)

    skill: Skill
    path: str
    text: str
    mime: str
    size: Count
    truncated: bool
    digest: str = ""
    data: bytes | None = None


class Artifact(Value):
    """A file that a script made, stored under its digest."""

    json_keys = ("path", "digest", "size")
    unshown = ("data",)
    uncompared = ("data",)

    path: str
    digest: str
    size: Count
    data: bytes = b""


class ChangedFile(Value):
    """A file of the project that a script added, changed or deleted."""

    path: str
    kind: Literal["added", "changed", "deleted"]
    size: Count = 0
    digest: str = ""
    """The digest of the new content. Empty for a deleted file."""


class RunResult(Value):
    """The result of running a script of a skill."""

    json_keys = (
        "skill=skill.name", "script", "exit_code", "stdout", "stderr", "duration_ms", "ended", "artifacts",
        "protections", "notes", "changes",
    )  # fmt: skip

    skill: Skill
    script: str
    exit_code: int
    stdout: str
    stderr: str
    duration_ms: Count
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


class MentionedSkill(Value):
    """A skill that a message names, in a few words."""

    skill_id: str
    name: str
    path: str
    scope: str

    @classmethod
    def of(cls, skill: Skill) -> "MentionedSkill":
        return cls(skill_id=skill.id, name=skill.name, path=skill.path, scope=skill.scope)


class AmbiguousMention(Value):
    """A name in a user's message that several skills bear. A path in the message decides between them."""

    json_keys = ("name", "candidates=_candidates")

    name: str
    candidates: tuple[Skill, ...]

    @property
    def _candidates(self) -> list[MentionedSkill]:
        return [MentionedSkill.of(skill) for skill in self.candidates]


UNLOADED: Final = "The skill {name} is unloaded. Do not follow its instructions any more."
"""What a model is told of a skill that was taken out."""


class Unloaded(Value):
    """A skill that was taken out of a session, and the paths under which it was loaded."""

    name: str
    paths: tuple[str, ...]

    @property
    def text(self) -> str:
        return UNLOADED.format(name=self.name)


class Invocation(Value):
    """The skill that a user's message calls, the message for the model, and the loaded skill, if it was loaded."""

    json_keys = ("skill=_skill_name", "message", "loaded", "mentioned=_mentioned", "ambiguous", "choices", "unloaded?")

    skill: Skill | None
    message: str
    loaded: Loaded | None = None
    arguments: str = ""
    mentioned: tuple[Skill, ...] = ()
    """All skills that the message calls, in its order. `skill` is the first of them."""
    choices: tuple[AmbiguousMention, ...] = ()
    """The names in the message that leave a choice."""
    unloaded: Unloaded | None = None
    """The skill that an `/unload` takes out. The message for the model then says so."""

    @property
    def _skill_name(self) -> str | None:
        return self.skill.name if self.skill else None

    @property
    def _mentioned(self) -> list[MentionedSkill]:
        return [MentionedSkill.of(skill) for skill in self.mentioned]

    @property
    def ambiguous(self) -> tuple[str, ...]:
        """The paths of all skills that `choices` is about."""
        return tuple(skill.path for choice in self.choices for skill in choice.candidates)

    @property
    def text(self) -> str:
        """The text for the model: the skill if the host loads it, else the message."""
        return self.loaded.text if self.loaded else self.message


class Compaction(Value):
    """The text to restore after a host compacted its context: the newest skills in full, the others by reference, and
    those without room by name."""

    text: str
    restored: tuple[str, ...]
    referenced: tuple[str, ...]
    """The skills of which the text has only the ref."""
    left_out: tuple[str, ...] = ()
    """The skills for which the budget has no room at all."""


class Prompt(Value):
    """The part of a system prompt that shows the catalog, and the number of skills it shows."""

    json_keys = ("text", "shown", "total", "truncated", "stable")

    text: str
    shown: Count
    total: Count
    truncated: bool
    names: tuple[str, ...] = ()
    """The skills shown with a description."""
    more: tuple[str, ...] = ()
    """The skills shown by name only."""
    shortened: bool = False
    """Whether descriptions were shortened to fit."""
    stable: Count = 0
    """The number of characters at the start of the text that no message of the session changes."""
    chosen: tuple[Skill, ...] = ()
    """The skills that the message brought in now; see `metier.session.listing`."""
    replaces: bool = False
    """Whether they take the place of those that messages brought in before."""
    heading: str = ""
    """The title of the first heading, if the section below it joins the section of that title in a base prompt."""
    sizes: tuple[int, ...] = ()
    """The number of characters that each of `names` has in the text; empty if the host's formats do not say."""


class WholePrompt(Value):
    """A whole system prompt. `stable` is as in `Prompt`."""

    json_keys = ("text", "stable")

    text: str
    stable: Count = 0
    listed: Prompt | None = None
    """The part that shows the catalog."""
    applied: tuple[tuple[str, int], ...] = ()
    """The skills that stand in every prompt with their whole text: the name and the number of characters of each."""


class FrameShown(TypedDict):
    """A frame of a record as JSON. What else it has depends on its type."""

    type: str
    seq: Count
    id: str
    session_id: str
    timestamp_ms: int


class Tool(Value):
    """A tool definition for a model."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


class ToolResult(Value):
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
