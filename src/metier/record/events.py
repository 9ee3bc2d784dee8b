"""The events of a record: one frozen class for each type of event.

A recorder gives an event an id and a time, the id of the operation that caused it (`op`), and a hash that depends on
all frames before it (`chain`). A store numbers it and keeps it as a frame. Every surface sees the same frames. Frames
have a version, so that a replay of an old record can write the frames of then.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar, Final, Literal

from metier.model import JsonObject

VERSION: Final = 6
"""Version 1 (Metier 0.1) had no `op`, no `chain`, and not the fields that are marked as new here. In version 2, the
digest of an approval was that of the script alone. In version 3, models got other texts under some hosts, a new file in
a skill's folder sent its text again, a message could not name a skill by its path, and skills that are left out had no
warning. In version 4, refusals and notices of what was cut did not say how to allow it, or how to get the rest. In
version 5, a script saw the user's folder only by a rule, and was given no packages, hosts or secrets."""

_NEW: Final = {"since": 2}
_SINCE_3: Final = {"since": 3}
_SINCE_4: Final = {"since": 4}
_SINCE_6: Final = {"since": 6}

INSTALLS: Final = "installs"
"""The stream of install events. It belongs to no session."""


@dataclass(frozen=True, slots=True)
class Event:
    """The base class of all events. Fields that are `None` or empty are left out of the frame."""

    type: ClassVar[str] = ""
    since: ClassVar[int] = 1
    """The version of the frames that has this type first."""

    def data(self, version: int = VERSION) -> JsonObject:
        values: JsonObject = {}
        for name in _names(type(self), version):
            value = getattr(self, name)
            if value is not None and value not in ((), ""):
                values[name] = value
        return values


@functools.cache
def _names(kind: type[Event], version: int) -> tuple[str, ...]:
    """The fields of an event in a version. Cached, because every event needs them."""
    return tuple(item.name for item in fields(kind) if item.metadata.get("since", 1) <= version)


@dataclass(frozen=True, slots=True)
class SessionStarted(Event):
    """A session started, or continued after a restart. Holds the session's options, so that it can be replayed."""

    type: ClassVar[str] = "session_started"
    profile: str
    surface: str
    """Python, the command line, the picker (`tui`), JSON-RPC, HTTP, MCP or the chat. This field differs between
    surfaces, and so does `asks`, because not all of them can ask a person."""
    tools: bool
    asks: bool
    has_read_tool: bool
    runs: bool
    policy: Mapping[str, object]
    only: tuple[str, ...] | None = None
    state: Mapping[str, object] | None = None
    """What the session knows from elsewhere: a host gave it, or version 0.1 had stored it."""
    version: int = VERSION
    cwd: str | None = field(default=None, metadata=_NEW)
    """The session's own working directory, if it was given one."""


@dataclass(frozen=True, slots=True)
class SkillCatalogUpdated(Event):
    """The catalog was built or rebuilt. `collisions` lists names shared by several skills, with winner and losers.

    Lists that would be long are cut: the artifact has everything.
    """

    type: ClassVar[str] = "skill_catalog_updated"
    count: int
    roots: tuple[str, ...]
    profile: str = "standard"
    collisions: tuple[Mapping[str, object], ...] = ()
    snapshot: str = ""
    """The artifact with the whole catalog, for a replay."""
    collided: int | None = field(default=None, metadata=_SINCE_3)
    """How many names are shared, if `collisions` does not list all of them."""


@dataclass(frozen=True, slots=True)
class SkillLoaded(Event):
    """A SKILL.md was read for activation. `digest` is that of the file, `output` that of the text for the model."""

    type: ClassVar[str] = "skill_loaded"
    name: str
    path: str
    digest: str
    frontmatter: Mapping[str, object]
    directory: str
    output: str
    files: tuple[str, ...] = ()
    files_truncated: bool = False
    size: int = 0
    already_loaded: bool = False
    truncated: bool = False
    warnings: tuple[str, ...] = ()
    arguments: str = field(default="", metadata=_NEW)
    """What it was loaded with, unless that is long."""
    window: tuple[str, ...] | None = field(default=None, metadata=_NEW)
    """The skill's own `allowed-tools`, where they limit what may be used until the turn ends."""
    preloaded: bool | None = field(default=None, metadata=_NEW)
    injected: bool | None = field(default=None, metadata=_NEW)
    body: str = field(default="", metadata=_SINCE_4)
    """The digest of the text without the list of files. The same text is not given twice."""
    files_left_out: int | None = field(default=None, metadata=_SINCE_4)
    """How many files a limit left out of `files`, if they were counted."""
    mtime_ns: int | None = field(default=None, metadata=_SINCE_4)
    """When the file that was read had last been changed, in nanoseconds."""

    def data(self, version: int = VERSION) -> JsonObject:
        # Keep an empty window: it has no limits of its own, but rules about the skill hold in it.
        values = super(SkillLoaded, self).data(version)
        return values if self.window is None or version < 2 else {**values, "window": self.window}


@dataclass(frozen=True, slots=True)
class SkillInvoked(Event):
    """A skill was called by a user (`manual`) or by the model (`auto`)."""

    type: ClassVar[str] = "skill_invoked"
    name: str
    mode: Literal["manual", "auto"]
    args: str | None = None
    effective_allowed_tools: tuple[str, ...] | None = None
    parent: str | None = None
    activated: bool | None = field(default=None, metadata=_NEW)
    """Whether the skill became active without being loaded."""

    def data(self, version: int = VERSION) -> JsonObject:
        # Keep an empty list of tools: it means that no tool may be used.
        values = super(SkillInvoked, self).data(version)
        if self.effective_allowed_tools is not None:
            values["effective_allowed_tools"] = self.effective_allowed_tools
        return values


@dataclass(frozen=True, slots=True)
class SkillWarning(Event):
    """A warning. `kind` is a stable word: `collision`, `truncated`, `ambiguous`, `policy` for a dropped rule, `invalid`
    for a file that is no valid skill, `excluded` for a skill that a rule, a limit or a person leaves out.

    At most a hundred skills that are left out have a warning of their own, and one more counts the rest.
    """

    type: ClassVar[str] = "skill_warning"
    kind: str
    detail: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ResourceRead(Event):
    """A file of a skill was read. `digest` names the artifact with its bytes."""

    type: ClassVar[str] = "skill_resource_read"
    name: str
    path: str
    digest: str
    size: int
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class ResourceRefused(Event):
    """A file of a skill was refused. `reason` is the stable word of the error."""

    type: ClassVar[str] = "skill_resource_refused"
    name: str
    path: str
    reason: str
    detail: str
    digest: str = ""
    """The digest of a SKILL.md that was read but is no longer valid."""


@dataclass(frozen=True, slots=True)
class SkillsSearched(Event):
    """The catalog was searched. `hits` names the artifact with paths, scores and reasons."""

    type: ClassVar[str] = "skills_searched"
    query: str
    count: int
    hits: str
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class SkillsChosen(Event):
    """A message brought skills into a prompt that cannot show the whole catalog. The session shows them from now on.

    `skills` lists the name and the path of each.
    """

    type: ClassVar[str] = "skills_chosen"
    since: ClassVar[int] = 4
    skills: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True)
class SkillsOffered(Event):
    """A model was shown a list of skills. These events have their own stream, of the kind `offers`.

    Each list is recorded once in a session, however often it is shown. `digest` names the artifact with the skills:
    the name of each, the number of its characters in the list, and whether the list has its description, only its
    name, or the whole skill.
    """

    type: ClassVar[str] = "skills_offered"
    place: str
    """Where the list stood: `prompt`, or `instructions` or `tools` of the MCP server."""
    count: int
    """How many skills the list has."""
    total: int
    """How many skills there were to show."""
    characters: int
    """The length of the list."""
    digest: str


@dataclass(frozen=True, slots=True)
class ToolStarted(Event):
    """A script started. `digest` is that of the script, `sandbox` names the runner, `grants` is what policy added.

    `tree` is the digest of all files of the skill. It names the artifact with their list: each path, the digest of the
    file, and whether it is executable.
    """

    type: ClassVar[str] = "tool_started"
    tool: str
    name: str
    script: str
    digest: str
    sandbox: str
    args: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()
    protections: tuple[str, ...] = ()
    process: str = field(default="", metadata=_NEW)
    """The process of Metier that runs it; see `metier.record.process`."""
    tree: str = field(default="", metadata=_SINCE_3)
    hosts: tuple[str, ...] = field(default=(), metadata=_SINCE_6)
    """The only hosts that it may connect to, if it has no whole network. Those behind a `!` are denied."""
    folder: str = field(default="", metadata=_SINCE_6)
    """The folder of the user that the script is shown. Empty if it runs in an empty folder."""
    cwd: str = field(default="", metadata=_SINCE_6)
    """The current folder, which is that folder or lies in it."""
    files: tuple[Mapping[str, object], ...] = field(default=(), metadata=_SINCE_6)
    """The files that were put into the current folder: name, digest and size."""
    secrets: tuple[str, ...] = field(default=(), metadata=_SINCE_6)
    """The names of the secrets that rules give it. Their values are nowhere in a record."""
    packages: str = field(default="", metadata=_SINCE_6)
    """The digest of the lock with the packages that it may import. It names the artifact."""


@dataclass(frozen=True, slots=True)
class ToolStdout(Event):
    """A chunk of a script's standard output, as it was received."""

    type: ClassVar[str] = "tool_stdout"
    text: str


@dataclass(frozen=True, slots=True)
class ToolStderr(Event):
    """A chunk of a script's standard error, as it was received."""

    type: ClassVar[str] = "tool_stderr"
    text: str


@dataclass(frozen=True, slots=True)
class ToolNetwork(Event):
    """A script tried to connect to a host that it may or may not use. `reason` says why no connection was made.

    It is a stable word: `not-listed`, `denied`, `private-address`, `other-host`, `not-tls` and `bad-request` where the
    attempt was refused, `unresolved` and `unreachable` where it was allowed.
    """

    type: ClassVar[str] = "tool_network"
    since: ClassVar[int] = 6
    host: str
    port: int
    allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ToolEnded(Event):
    """A script ended by itself. `stdout` and `stderr` name the artifacts with all the output that was kept."""

    type: ClassVar[str] = "tool_ended"
    exit_code: int
    duration_ms: int
    artifacts: tuple[Mapping[str, object], ...]
    stdout: str
    stderr: str
    ended: str = "exit"
    protections: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    changes: tuple[Mapping[str, object], ...] = field(default=(), metadata=_SINCE_3)
    """The files of the project that were added, changed or deleted. Their content is not kept."""
    attempts_left_out: int | None = field(default=None, metadata=_SINCE_6)
    """How many attempts to connect to a host have no `tool_network`, because there were too many."""

    def data(self, version: int = VERSION) -> JsonObject:
        # The frame always has `artifacts`, even if there are none.
        return {**super(ToolEnded, self).data(version), "artifacts": self.artifacts}


@dataclass(frozen=True, slots=True)
class ToolFailed(Event):
    """A script did not start, or a limit ended it."""

    type: ClassVar[str] = "tool_failed"
    tool: str
    name: str
    script: str
    reason: str
    detail: str
    digest: str = ""
    """The digest of the script, if it was read before it was refused."""
    tree: str = field(default="", metadata=_SINCE_3)
    """The digest of all files of the skill, as in `tool_started`."""
    folder: str = field(default="", metadata=_SINCE_6)
    cwd: str = field(default="", metadata=_SINCE_6)
    """The folders that it would have been shown, as in `tool_started`."""
    secrets: tuple[str, ...] = field(default=(), metadata=_SINCE_6)
    """The names of the secrets that rules give it."""
    packages: str = field(default="", metadata=_SINCE_6)
    """The digest of the lock with the packages that it would have had."""


@dataclass(frozen=True, slots=True)
class OverrideProposed(Event):
    """A skill proposed a model, tool defaults or a scope, and policy accepted or refused it."""

    type: ClassVar[str] = "skill_override_proposed"
    name: str
    key: str
    value: object
    granted: bool
    rule: str


@dataclass(frozen=True, slots=True)
class PolicyChosen(Event):
    """The session has a policy other than the default."""

    type: ClassVar[str] = "policy_chosen"
    policy: str


@dataclass(frozen=True, slots=True)
class PolicyChanged(Event):
    """Another policy is in force: someone answered "always", here or elsewhere, or an answer was taken back."""

    type: ClassVar[str] = "policy_changed"
    since: ClassVar[int] = 2
    policy: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class PolicyAsked(Event):
    """A person was asked for approval and answered `once`, `always` or `no`.

    The answer is `nobody` where nobody could be asked, and `declined`, `cancelled` or `unanswered` where a host was
    asked and no person said no.
    """

    type: ClassVar[str] = "policy_asked"
    tool: str
    answer: str
    name: str | None = None
    digest: str | None = None
    for_session: bool | None = field(default=None, metadata=_NEW)
    """Whether a yes holds for this file as long as the session."""
    path: str | None = field(default=None, metadata=_NEW)


@dataclass(frozen=True, slots=True)
class SessionCalled(Event):
    """An operation of the session started: `call` for a model's tool call, otherwise the method's name."""

    type: ClassVar[str] = "session_called"
    operation: str
    args: Mapping[str, object]
    life: str = field(default="", metadata=_NEW)
    """The id of the `session_started` with the options and the policy under which it runs."""


@dataclass(frozen=True, slots=True)
class SessionReturned(Event):
    """The operation ended. `output` names the artifact with the text it returned, or the text of its error.

    `code` is the class of an error. For a tool call, it is the code that the model was given. The status `lost` says
    that its process ended first, and that nobody got an answer.
    """

    type: ClassVar[str] = "session_returned"
    operation: str
    status: Literal["ok", "error", "lost"]
    output: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class SkillInstalled(Event):
    """A skill was installed. Installs have their own stream, `installs`, of the kind `install`.

    `tree` is the digest of its files as in the lock file, `artifact` that of the archive, `replaced` the previous tree.
    """

    type: ClassVar[str] = "skill_installed"
    name: str
    source: str
    path: str
    tree: str
    by: str
    files: int
    artifact: str = ""
    replaced: str = ""


@dataclass(frozen=True, slots=True)
class InstallRefused(Event):
    """A skill was not installed: policy, a check or the person asked refused it. `reason` is a stable word."""

    type: ClassVar[str] = "skill_install_refused"
    source: str
    reason: str
    detail: str
    by: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class SessionsPruned(Event):
    """Sessions were deleted. These events have their own stream, `retention`, of the kind `retention`.

    `reason` is `age` or `size` if the store reached its bound, and `command` if a person asked for it. `sessions` lists
    the ids, at most a thousand, and `count` says how many there were.
    """

    type: ClassVar[str] = "sessions_pruned"
    reason: str
    sessions: tuple[str, ...]
    count: int
    events: int
    artifacts: int
    artifact_bytes: int


@dataclass(frozen=True, slots=True)
class ChatTurnStarted(Event):
    """A chat started to answer. Chat events have their own stream, of the kind `chat`."""

    type: ClassVar[str] = "chat_turn_started"
    turn: str
    provider: str
    model: str
    tools: bool


@dataclass(frozen=True, slots=True)
class ChatItem(Event):
    """An item of a chat as a person sees it, recorded at every change. The last frame of an `item` is current.

    `texts` names the artifacts with its long texts. The frame never holds the body of a skill.
    """

    type: ClassVar[str] = "chat_item"
    item: str
    kind: Literal["user", "file", "text", "reasoning", "tool", "ask", "choice", "notice", "error"]
    at_ms: int
    content: Mapping[str, object]
    texts: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class ChatTurnEnded(Event):
    """The answer ended: `done`, `failed`, `stopped`, or `lost` if its process died."""

    type: ClassVar[str] = "chat_turn_ended"
    turn: str
    outcome: str


TYPES: Final[tuple[type[Event], ...]] = (
    SessionStarted,
    SkillCatalogUpdated,
    SkillLoaded,
    SkillInvoked,
    SkillWarning,
    ResourceRead,
    ResourceRefused,
    SkillsSearched,
    SkillsChosen,
    SkillsOffered,
    ToolStarted,
    ToolStdout,
    ToolStderr,
    ToolNetwork,
    ToolEnded,
    ToolFailed,
    OverrideProposed,
    PolicyChosen,
    PolicyChanged,
    PolicyAsked,
    SessionCalled,
    SessionReturned,
    SkillInstalled,
    InstallRefused,
    SessionsPruned,
    ChatTurnStarted,
    ChatItem,
    ChatTurnEnded,
)
