"""The events of a record: one frozen class for each type of event.

A recorder gives an event an id and a time, the id of the operation that caused it (`op`), and a hash that depends on
all frames before it (`chain`). A store numbers it and keeps it as a frame. Every surface sees the same frames.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from metier.errors import StoreError
from metier.values.skill import JsonObject
from metier.values.value import Value, field

VERSION: Final = 8
"""The version of the record. Any change of what a session writes raises it, since a replay compares bytes."""

# The streams that are not sessions. A session has the stream of its own id. An id that names one of these is therefore
# refused for a session: its events would mix with others, or the store would refuse one of the two.
INSTALLS: Final = "installs"
"""The stream of install events. It belongs to no session."""
RETENTION: Final = "retention"
"""The stream of what was deleted because the store reached its bound. It belongs to no session."""
CHAT: Final = "chat"
"""The kind of a chat's stream, and the end of its id."""
OFFERS: Final = "offers"
"""The kind of the stream with the lists of skills that the model of a session was shown, and the end of its id."""
_NAMED: Final = (INSTALLS, RETENTION)


def chat_stream(chat_id: str) -> str:
    """The stream that holds the events of a chat; the session of the chat has its own."""
    return f"{chat_id}/{CHAT}"


def offers_stream(session_id: str) -> str:
    """The stream that holds what the model of a session was offered."""
    return f"{session_id}/{OFFERS}"


def is_internal(stream_id: str) -> bool:
    """Whether a stream belongs to Metier itself, so that no session can have its id."""
    return stream_id in _NAMED or stream_id.endswith((f"/{CHAT}", f"/{OFFERS}"))


def check_session_id(session_id: str) -> str:
    """Return the id of a session. Raises `StoreError` (reason "invalid") if it names a stream of Metier itself."""
    if is_internal(session_id):
        hint = "choose another id; `metier events --session` shows the events of this one"
        raise StoreError(f"the session id {session_id!r} is reserved", reason="invalid", hint=hint)
    return session_id


class Event(Value):
    """The base class of all events. Fields that are `None` or empty are left out of the frame."""

    type: ClassVar[str] = ""
    """The `tag` of the class."""
    meaningful: ClassVar[tuple[str, ...]] = ()
    """The fields that are in the frame even if they are empty."""

    def data(self) -> JsonObject:
        values: JsonObject = {}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and (value not in ((), "") or name in self.meaningful):
                values[name] = value
        return values


class SessionStarted(Event, tag="session_started"):
    """A session started, or continued after a restart. Holds the session's options, so that it can be replayed."""

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
    """What the session knows from elsewhere, if a host gave it."""
    version: int = VERSION
    cwd: str | None = None
    """The session's own working directory, if it was given one."""


def check_version(frame: Mapping[str, object]) -> None:
    """Refuse a record of another version, which the beginnings of a session name."""
    version = frame.get("version")
    if frame["type"] == SessionStarted.type and version != VERSION:
        message = f"the record of session {frame['session_id']!r} has version {version}, not {VERSION}"
        hint = "the Metier that wrote it can run it; `metier replay --verify` checks it here"
        raise StoreError(message, reason="version", hint=hint)


class SkillCatalogUpdated(Event, tag="skill_catalog_updated"):
    """The catalog was built or rebuilt. `collisions` lists names shared by several skills, with winner and losers.

    Lists that would be long are cut: the artifact has everything.
    """

    count: int
    roots: tuple[str, ...]
    profile: str = "standard"
    collisions: tuple[Mapping[str, object], ...] = ()
    snapshot: str = ""
    """The artifact with the whole catalog, for a replay."""
    collided: int | None = None
    """How many names are shared, if `collisions` does not list all of them."""


class SkillLoaded(Event, tag="skill_loaded"):
    """A SKILL.md was read for activation. `digest` is that of the file, `output` that of the text for the model."""

    meaningful: ClassVar[tuple[str, ...]] = ("window",)  # rules about the skill hold in one without limits of its own
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
    arguments: str = ""
    """What it was loaded with, unless that is long."""
    window: tuple[str, ...] | None = None
    """The skill's own `allowed-tools`, where they limit what may be used until the turn ends. It has no entries where
    the skill gives no list, and an empty one where its list allows nothing."""
    preloaded: bool | None = None
    injected: bool | None = None
    body: str = ""
    """The digest of the text without the list of files. The same text is not given twice."""
    files_left_out: int | None = None
    """How many files a limit left out of `files`, if they were counted."""
    mtime_ns: int | None = None
    """When the file that was read had last been changed, in nanoseconds."""


class SkillUnloaded(Event, tag="skill_unloaded"):
    """A loaded skill was taken out: its text has no ref any more, is not put back, and its window is closed.

    There is no path where a message called the skill and nobody had loaded it."""

    name: str
    path: str = ""


class SkillInvoked(Event, tag="skill_invoked"):
    """A skill was called by a user (`manual`) or by the model (`auto`)."""

    meaningful: ClassVar[tuple[str, ...]] = ("effective_allowed_tools",)  # an empty list: no tool may be used
    name: str
    mode: Literal["manual", "auto"]
    args: str | None = None
    effective_allowed_tools: tuple[str, ...] | None = None
    parent: str | None = None
    activated: bool | None = None
    """Whether the skill became active without being loaded."""


class SkillWarning(Event, tag="skill_warning"):
    """A warning. `kind` is a stable word: `collision`, `truncated`, `ambiguous`, `policy` for a dropped rule, `invalid`
    for a file that is no valid skill, `excluded` for a skill that a rule, a limit or a person leaves out.

    At most a hundred skills that are left out have a warning of their own, and one more counts the rest.
    """

    kind: str
    detail: str
    name: str | None = None


class ResourceRead(Event, tag="skill_resource_read"):
    """A file of a skill was read. `digest` names the artifact with its bytes."""

    name: str
    path: str
    digest: str
    size: int
    truncated: bool = False


class ResourceRefused(Event, tag="skill_resource_refused"):
    """A file of a skill was refused. `reason` is the stable word of the error."""

    name: str
    path: str
    reason: str
    detail: str
    digest: str = ""
    """The digest of a SKILL.md that was read but is no longer valid."""


class SkillsSearched(Event, tag="skills_searched"):
    """The catalog was searched. `hits` names the artifact with paths, scores and reasons."""

    query: str
    count: int
    hits: str
    truncated: bool = False


class SkillsChosen(Event, tag="skills_chosen"):
    """A message brought skills into a prompt that cannot show the whole catalog. The session shows them from now on,
    until later ones take their place.

    `skills` lists the name and the path of each.
    """

    skills: tuple[Mapping[str, object], ...]
    replaces: bool | None = None
    """`true` if they take the place of all that messages brought in before."""


class SkillsOffered(Event, tag="skills_offered"):
    """A model was shown a list of skills. These events have their own stream, of the kind `offers`.

    Each list is recorded once in a session, however often it is shown. `digest` names the artifact with the skills:
    the name of each, the number of its characters in the list, and whether the list has its description, only its
    name, or the whole skill.
    """

    place: str
    """Where the list stood: `prompt`, or `instructions` or `tools` of the MCP server."""
    count: int
    """How many skills the list has."""
    total: int
    """How many skills there were to show."""
    characters: int
    """The length of the list."""
    digest: str


class ToolStarted(Event, tag="tool_started"):
    """A script started. `digest` is that of the script, `sandbox` names the runner.

    `tree` is the digest of all files of the skill. It names the artifact with their list: each path, the digest of the
    file, and whether it is executable.
    """

    tool: str
    name: str
    script: str
    digest: str
    sandbox: str
    args: tuple[str, ...] = ()
    grants: Mapping[str, Mapping[str, Any]] | None = None
    """What it was given besides its sandbox, by kind: `folder`, `files`, `secrets` by name, `network`, `packages` by
    the digest of their lock, and `unsandboxed`. In each, `tools` lists what rules name, and `asked` is true if only the
    answer gave it."""
    protections: tuple[str, ...] = ()
    process: str = ""
    """The process of Metier that runs it; see `metier.files.process`."""
    tree: str = ""


class ToolStdout(Event, tag="tool_stdout"):
    """A chunk of a script's standard output, as it was received."""

    text: str


class ToolStderr(Event, tag="tool_stderr"):
    """A chunk of a script's standard error, as it was received."""

    text: str


class ToolNetwork(Event, tag="tool_network"):
    """A script tried to connect to a host that it may or may not use. `reason` says why no connection was made.

    It is a stable word: `not-listed`, `denied`, `private-address`, `other-host`, `not-tls` and `bad-request` where the
    attempt was refused, `unresolved` and `unreachable` where it was allowed.
    """

    host: str
    port: int
    allowed: bool
    reason: str = ""


class ToolEnded(Event, tag="tool_ended"):
    """A script ended by itself. `stdout` and `stderr` name the artifacts with all the output that was kept."""

    meaningful: ClassVar[tuple[str, ...]] = ("artifacts",)
    exit_code: int
    duration_ms: int
    artifacts: tuple[Mapping[str, object], ...]
    stdout: str
    stderr: str
    ended: str = "exit"
    protections: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    changes: tuple[Mapping[str, object], ...] = ()
    """The files of the project that were added, changed or deleted. Their content is not kept."""
    attempts_left_out: int | None = None
    """How many attempts to connect to a host have no `tool_network`, because there were too many."""


class ToolFailed(Event, tag="tool_failed"):
    """A script did not start, or a limit ended it."""

    tool: str
    name: str
    script: str
    reason: str
    detail: str
    digest: str = ""
    """The digest of the script, if it was read before it was refused."""
    tree: str = ""
    """The digest of all files of the skill, as in `tool_started`."""
    grants: Mapping[str, Mapping[str, Any]] | None = None
    """What it would have been given, as in `tool_started`."""


class OverrideProposed(Event, tag="skill_override_proposed"):
    """A skill proposed a model, tool defaults or a scope, and policy accepted or refused it."""

    name: str
    key: str
    value: object
    granted: bool
    rule: str


class PolicyChosen(Event, tag="policy_chosen"):
    """The session has a policy other than the default."""

    policy: str


class PolicyChanged(Event, tag="policy_changed"):
    """Another policy is in force: someone answered "always", here or elsewhere, or an answer was taken back."""

    policy: Mapping[str, object]


class PolicyAsked(Event, tag="policy_asked"):
    """A person was asked for approval and answered `once`, `always` or `no`.

    The answer is `nobody` where nobody could be asked, and `declined`, `cancelled` or `unanswered` where a host was
    asked and no person said no.
    """

    tool: str
    answer: str
    name: str | None = None
    digest: str | None = None
    for_session: bool | None = None
    """Whether a yes holds for this file as long as the session."""
    path: str | None = None


class SessionCalled(Event, tag="session_called"):
    """An operation of the session started: `call` for a model's tool call, otherwise the method's name."""

    operation: str
    args: Mapping[str, object]
    life: str = ""
    """The id of the `session_started` with the options and the policy under which it runs."""


class SessionReturned(Event, tag="session_returned"):
    """The operation ended. `output` names the artifact with the text it returned, or the text of its error.

    `code` is the class of an error. For a tool call, it is the code that the model was given. The status `lost` says
    that its process ended first, and that nobody got an answer.
    """

    operation: str
    status: Literal["ok", "error", "lost"]
    output: str
    code: str | None = None


class SkillInstalled(Event, tag="skill_installed"):
    """A skill was installed. Installs have their own stream, `installs`, of the kind `install`.

    `tree` is the digest of its files as in the lock file, `artifact` that of the archive, `replaced` the previous tree.
    """

    name: str
    source: str
    path: str
    tree: str
    by: str
    files: int
    artifact: str = ""
    replaced: str = ""


class InstallRefused(Event, tag="skill_install_refused"):
    """A skill was not installed: policy, a check or the person asked refused it. `reason` is a stable word."""

    source: str
    reason: str
    detail: str
    by: str
    name: str = ""


class SessionsPruned(Event, tag="sessions_pruned"):
    """Sessions were deleted. These events have their own stream, `retention`, of the kind `retention`.

    `reason` is `age` or `size` if the store reached its bound, and `command` if a person asked for it. `sessions` lists
    the ids, at most a thousand, and `count` says how many there were.
    """

    reason: str
    sessions: tuple[str, ...]
    count: int
    events: int
    artifacts: int
    artifact_bytes: int


class ChatTurnStarted(Event, tag="chat_turn_started"):
    """A chat started to answer. Chat events have their own stream, of the kind `chat`."""

    turn: str
    provider: str
    model: str
    tools: bool


class ChatItem(Event, tag="chat_item"):
    """An item of a chat as a person sees it, recorded at every change. The last frame of an `item` is current.

    `texts` names the artifacts with its long texts. The frame never holds the body of a skill.
    """

    item: str
    kind: Literal["user", "file", "text", "reasoning", "tool", "ask", "choice", "notice", "error"]
    at_ms: int
    content: Mapping[str, object]
    texts: Mapping[str, str] = field(default_factory=dict[str, str])


class ChatTurnEnded(Event, tag="chat_turn_ended"):
    """The answer ended: `done`, `failed`, `stopped`, or `lost` if its process died."""

    turn: str
    outcome: str


TYPES: Final[tuple[type[Event], ...]] = tuple(Event.__subclasses__())
"""All events, in the order above."""
for _kind in TYPES:
    _kind.type = str(_kind.__struct_config__.tag)
