"""The schema of a profile: one frozen table per subject, one field per rule, with its default and its meaning.

These are the settings that users see. The reference page is generated from the text below each field. Profiles differ
by their fingerprint, so tables compare by identity, and can be keys of a cache. What the files of a project may set is
decided in `metier.hosts.project_files`.
"""

import functools
from typing import Any, Final, Literal

from metier import limits
from metier.values.skill import ROLES, Role
from metier.values.value import Value, field

CATALOG_CHARS: Final = 2_000
"""How long a text that describes the catalog may be. Some hosts cut such texts of servers, at 2 KiB or more."""
CONTAINER_IMAGE: Final = "docker.io/library/python:3.13-slim"
SANDBOXES: Final = ("bubblewrap", "container")
"""The built-in runners with a sandbox. Packages bring further ones."""

Breach = Literal["error", "warn", "ignore"]
Unknown = Literal["keep", "ignore", "warn", "error"]
Pattern = Literal["unicode", "ascii", "any"]
Unasked = Literal["refuse", "loads", "allow"]
AgentsFiles = Literal["project", "ancestors", "none"]

_HOST_TOOLS: Final = ("Bash", "Read", "Write", "Edit", "Glob", "Grep", "WebFetch", "WebSearch")


class Rules(Value):
    """How strictly frontmatter is validated. The defaults follow the standard, leniently."""

    name_pattern: Pattern = "unicode"
    """Characters a name may have: `unicode` (the standard), `ascii`, or `any`."""
    name_length: int = limits.NAME_LENGTH
    """Longest name, in characters. 0 means no limit."""
    name_breach: Breach = "warn"
    """Severity when a name breaks the pattern or length rule: `error`, `warn` or `ignore`."""
    name_source: Literal["frontmatter", "folder"] = "frontmatter"
    """What a skill is called by: `name` in its frontmatter, or its folder. By the folder, `name` is only a label."""
    name_mismatch: Breach = "warn"
    """Severity when the name differs from the folder's name."""
    name_missing: Literal["folder", "error"] = "folder"
    """What happens without a name: use the `folder`'s name, or report an `error`."""
    description_length: int = limits.DESCRIPTION_LENGTH
    """Longest description, in characters. 0 means no limit."""
    description_breach: Breach = "warn"
    """Severity when a description is too long."""
    description_missing: Literal["error", "ignore", "body"] = "error"
    """What happens without a description: `error`, `ignore`, or `body` for hosts that show the first paragraph
    of the body instead."""
    optional_breach: Breach = "warn"
    """Severity when an optional field breaks its rule."""
    unknown_keys: Unknown = "keep"
    """What happens to keys outside the standard: `keep`, `ignore`, `warn` or `error`."""
    known_keys: tuple[str, ...] = ()
    """Keys outside the standard that the host knows. They are kept and not reported."""
    list_fields: tuple[str, ...] = ()
    """Keys that the host knows and that hold a list of strings. Other values are reported."""
    flag_fields: tuple[str, ...] = ()
    """Keys that the host knows and that hold `true` or `false`. Other values are reported."""
    allowed_tools_forms: bool = True
    """Whether commas and lists are accepted in `allowed-tools`."""
    repair: bool = True
    """Whether broken YAML is repaired where possible. Every repair is reported."""
    simple_lines: bool = False
    """Whether broken YAML is repaired at least where every line is a simple `key: value`, even without `repair`. Such
    a value may contain a colon, as in `description: Use this when: ...`."""
    frontmatter_required: bool = True
    """Whether a file without frontmatter is an error."""
    frontmatter_broken: Literal["error", "empty"] = "error"
    """What happens to frontmatter that cannot be read: `error`, or `empty` to read the file as if it had none."""

    @property
    def own_keys(self) -> tuple[str, ...]:
        """All keys outside the standard that the host knows."""
        return (*self.known_keys, *self.list_fields, *self.flag_fields)


class ProjectRules(Value, eq=False):
    """Where the project begins. The folders from its root down to the working directory are searched."""

    markers: tuple[str, ...] = (".git",)
    """Files or folders that mark the project's root."""
    markers_env: str = ""
    """The environment variable with a comma-separated list that replaces the markers."""
    root_env: str = ""
    """The environment variable that names the project's root."""


class RootRules(Value):
    """One place to search, before it is resolved against a working directory and a home folder."""

    path: str
    """The folder, relative to the place named by `at`."""
    at: Literal["ancestors", "project", "cwd", "home", "system"]
    """Where the path starts: each of the `ancestors` up to the project's root, the `project`, the working directory,
    the home folder, or the `system`."""
    scope: str
    """The scope of the skills found there."""
    source: str
    """The source of the skills found there."""
    priority: int = 0
    """Roots with a higher priority come first."""
    toggle: str = ""
    """The switch that turns this root off. `any` keeps it on while any switch is on."""
    require_description: bool = True
    """Whether skills there need a description."""
    skip_home: bool = False
    """For `ancestors`: whether the home folder is left out. Its skills belong to the user, not to the project."""
    registry: bool = False
    """Whether `path` is a JSON file that lists installed plugins. The `skills` folder of each is searched."""
    on_demand: bool = False
    """Whether the host also uses this folder below the working directory once it works on files there. Only
    `metier check` takes this into account."""


class DiscoveryRules(Value, eq=False):
    """How a root is searched."""

    depth: int = 0
    """Levels of folders below a root that may be skills. 0 means any."""
    nested: bool = False
    """Whether folders inside a skill are searched for further skills."""
    folder_links: Literal["follow", "inside", "never"] = "follow"
    """Whether links to folders are followed: always, only to folders `inside` the project or the roots, or never."""
    file_links: Literal["follow", "inside", "never"] = "follow"
    """The same for a SKILL.md that is a link."""
    hidden: bool = True
    """Whether folders whose names start with a dot are searched."""
    root_is_skill: bool = True
    """Whether a SKILL.md directly in a root makes the root itself a skill."""
    ignore: tuple[str, ...] = (".git", "node_modules", "__pycache__", "dist", "build")
    """Names of folders that are not searched. Directly in a root, one such as `build` with a SKILL.md is a skill."""
    max_depth: int = limits.WALK_DEPTH
    """Deepest level of folders that is searched."""
    max_directories: int = limits.WALK_DIRECTORIES
    """Most folders that one root may have."""
    max_linked_directories: int = limits.LINKED_DIRECTORIES
    """Most folders behind one link."""
    max_skills: int = limits.ROOT_SKILLS
    """Most skills that are taken from one root."""
    missing_root: Literal["ignore", "warn"] = "ignore"
    """What happens when a root does not exist: `ignore` or `warn`."""


class CollisionRules(Value, eq=False):
    """What happens when two skills have the same name."""

    rule: Literal["precedence", "first", "last", "ambiguous"] = "precedence"
    """Which skill is used: by `precedence` of the roots, the `first`, the `last`, or none (`ambiguous`)."""
    copies: Literal["real-path", "content"] = "content"
    """When two files are one skill: if they are one file (`real-path`), or also if their `content` is equal."""
    switched_off: Literal["ignore", "count"] = "ignore"
    """Whether skills of roots that a switch turns off `count` when names are settled. If they do, such a skill is not
    used, and neither is one of the same name in a later root. Custom directories come after that."""


class FilterRules(Value, eq=False):
    """Globs on names. `*`, `?`, `[a-z]` and alternatives such as `git-{log,blame}` are understood."""

    include: tuple[str, ...] = ()
    """Only skills whose names match one of these globs. Empty means all."""
    ignore: tuple[str, ...] = ()
    """Skills whose names match one of these globs are left out."""


class CatalogRules(Value, eq=False):
    """What the catalog contains, and in which order."""

    order: Literal["name", "folded-name", "found"] = "name"
    """By `name`, by name without regard to case, or as `found`."""
    max_skills: int = 0
    """Most skills in the catalog. 0 means no limit."""
    honours: tuple[str, ...] = ()
    """Extension keys of the frontmatter that have an effect."""
    reads: tuple[str, ...] = ()
    """All keys of the frontmatter that the host gives a meaning. `metier check` reports others as ignored. Empty means
    those of the standard and those in `honours`."""
    flag_words: bool = False
    """Whether `yes`, `on`, `1` and their opposites count as true and false in such keys."""
    policy_file: str = ""
    """A YAML file of a skill. `allow_implicit_invocation: false` in its `policy` hides the skill from the model."""
    refresh: Literal["stale", "call", "request", "start"] = "stale"
    """When changes on disk are noticed: when a needed file is `stale`, on each tool `call`, on `request`, or at the
    next `start`."""


class PromptRules(Value, eq=False):
    """What the model sees of the catalog."""

    format: str = "xml"
    """The format of the listing: `xml`, `codelia`, `list`, `tool`, `json`, or the name of an installed host."""
    max_entries: int = 0
    """Most skills in the listing. 0 means no limit."""
    max_bytes: int = 0
    """Largest listing, in bytes. 0 means no limit."""
    max_chars: int = 0
    """Largest listing, in characters. For 0, see `zero_chars`."""
    zero_chars: Literal["unlimited", "nothing"] = "unlimited"
    """What `max_chars = 0` means: no limit of the host, or that no skill is listed and the listing only says how many
    there are. Where a host sets no limit at all, a prompt has 50,000 characters at most, unless its caller names
    another budget."""
    order: Literal["stable", "catalog", "relevance"] = "stable"
    """`catalog` keeps the catalog's order, whatever the message. `stable` does the same, but where the listing is cut,
    it keeps an eighth of the room for skills that messages add. `relevance` sorts the listing for each message, so that
    it changes with every turn."""
    needs_read_tool: bool = False
    """Whether only a model that can read files sees the listing."""
    preloaded_replace: bool = False
    """Whether preloaded skills replace the listing instead of joining it."""
    fields: tuple[str, ...] = ()
    """Further fields of each entry, such as `compatibility`, `allowed-tools` and `metadata`. A rule of the policy about
    the tool `catalog_field` outranks this list."""
    description_fields: tuple[str, ...] = ()
    """Fields of the frontmatter that are appended to the description. Those of the standard are shown by `fields`."""
    description_chars: int = 0
    """Characters of a description, including appended fields, before it is cut. 0 means no limit."""

    @property
    def char_limit(self) -> int | None:
        """The largest listing in characters; `None` if the host has no such limit."""
        return self.max_chars if self.max_chars or self.zero_chars == "nothing" else None


class ContextRules(Value, eq=False):
    """The instruction files that come before the skills in the system prompt."""

    agents_files: AgentsFiles = "project"
    """Which AGENTS.md files apply: those of the `project`, of all `ancestors`, or `none`."""
    max_levels: int = 20
    """For `ancestors`: how many levels up."""
    activated: bool = False
    """Whether the names of activated skills are listed."""


class InvocationRules(Value, eq=False):
    """How a user's message calls a skill."""

    forms: tuple[str, ...] = ("/name", "/skill:name", "$name", "skill://name")
    """The accepted forms: `/name`, `/skill:name`, `$name`, `@name`, `skill://name`, and `path`, a path of a skill."""
    commands: bool = True
    """Whether slash commands are offered."""
    loads: bool = True
    """Whether the host loads the skill itself. Otherwise the skill is only named, and the model loads it."""


class LoadRules(Value, eq=False):
    """What loading a skill returns."""

    wrap: str = "standard"
    """How the text is wrapped: `standard`, `codelia`, `base-directory`, `raw`, `body`, or an installed host."""
    reload: Literal["remind", "again"] = "remind"
    """What loading an unchanged skill again returns: a reminder, or the text `again`. Other files in its folder do
    not change it."""
    max_bytes: int = 0
    """Bytes of SKILL.md before it is cut, at most 50 MiB. 0 means 200,000."""
    max_files: int = limits.LISTED_FILES
    """Most files in the list of a skill's files."""
    max_file_bytes: int = limits.LISTED_BYTES
    """Total size of the listed files, in bytes. A file that does not fit is left out, and those after it are not."""
    arguments: Literal["indexed", "whole", "appended", "none"] = "indexed"
    """Which placeholders arguments fill: `indexed` for all of them, `whole` for `$ARGUMENTS` only, or `none`. Where
    there is nothing to fill, they are appended. `appended` fills `$ARGUMENTS` and appends them, too."""
    refresh_on_call: bool = True
    """Whether the disk is scanned on each call, if `catalog.refresh` is `call`."""


class ResourceRules(Value, eq=False):
    """How files of a skill are read."""

    max_bytes: int = 2_000_000
    """Bytes of a file before it is cut. 0 means only the hard limit."""
    parents: Literal["refuse", "normalise"] = "refuse"
    """What happens to `..` in a path: `refuse`, or `normalise` if the result stays inside the skill."""
    hide_paths: bool = False
    """Whether messages to the model and the browser never contain an absolute path."""


class SearchRules(Value, eq=False):
    """How a search ranks, and how many results it returns."""

    default_limit: int = 8
    """Results if the caller names no limit."""
    max_limit: int = 50
    """Most results."""
    scoring: Literal["ranked", "overlap"] = "ranked"
    """`ranked` uses the search index. `overlap` counts the words that a query shares with a name and description."""
    expand: bool = True
    """Whether a ranked search also finds other words for the same thing, such as `golang` for `go`."""
    synonyms: tuple[str, ...] = ()
    """Your own words for the same thing, such as `["crm, salesforce", "okr, objectives"]`."""


class ToolRules(Value, eq=False):
    """The tools that the model gets. An empty name means that the host does not have the tool."""

    load: str = "skill_load"
    """The tool that loads a skill."""
    search: str = "skill_search"
    """The tool that searches."""
    read: str = "skill_read"
    """The tool that reads a file of a skill."""
    output: str = "skill_output"
    """The tool that returns an earlier result."""
    run: str = "skill_run"
    """The tool that runs a script."""
    unload: str = "skill_unload"
    """The tool that takes a loaded skill out of the session. Without it, `/unload NAME` is plain text."""
    shape: str = "metier"
    """How tools are defined and answered: `metier`, `codelia`, `omp`, `envelope`, `remcochat`, or an installed host."""
    host_read: bool = False
    """Whether the read tool belongs to the host, and is offered only where the host has it."""
    enumerate_names: bool = True
    """Whether the schema lists the names of skills, as long as they are few."""
    host: tuple[str, ...] = _HOST_TOOLS
    """Tools of the host itself, which rules of the policy can be about."""

    def by_role(self) -> dict[Role, str]:
        """The host's tools: role to name."""
        return _by_role(self).copy()


@functools.lru_cache(maxsize=32)
def _by_role(tools: ToolRules) -> dict[Role, str]:
    """Cached, because every call of a tool asks for its role."""
    return {role: name for role in ROLES if (name := getattr(tools, role))}


class RunRules(Value, eq=False):
    """Which scripts of a skill run, and within which limits."""

    folders: tuple[str, ...] = ("scripts",)
    """Folders of a skill whose files may run."""
    seconds: int = 60
    """Longest run, in seconds."""
    memory_mib: int = 1024
    """Memory of a run, in MiB."""
    processes: int = 64
    """Processes of a run."""
    output_bytes: int = limits.MIB
    """Output of a run, in bytes."""
    work_mib: int = 128
    """Size of the work folder, in MiB."""
    folder: Literal["read", "none"] = "read"
    """Whether a script runs in the working folder and can read it, or in an empty folder. Rules that allow
    `run_project` show the whole project in any case."""
    env: tuple[str, ...] = ("LANG", "LC_ALL", "TZ")
    """Environment variables of the host that a script sees."""
    sandbox: tuple[str, ...] = ("bubblewrap",)
    """Sandboxes to try, best first: `bubblewrap`, `container`, which needs Docker or Podman, or one of a package."""
    image: str = CONTAINER_IMAGE
    """Image for `container`. It is never downloaded."""
    private_hosts: bool = False
    """Whether the hosts that a rule gives a script may have addresses outside of the public internet."""
    packages: Literal["ask", "never"] = "ask"
    """What happens to packages that a script needs: they are part of the question before a run (`ask`), or `never`
    installed."""


class PolicyRules(Value, eq=False):
    """What the host does where no rule of the policy applies."""

    confirm_loads: bool = False
    """Whether a load that no rule covers must be confirmed."""
    unasked: Unasked = "refuse"
    """A model's call that must be confirmed where nobody can be asked: `refuse` it, let `loads` and reads of skills
    through, or `allow` scripts, too. Skills of MCP servers need a rule in any case."""
    enforce_hints: bool = True
    """Whether a skill's `allowed-tools` narrows what may be used while it is active."""
    trust: Literal["ignore", "required"] = "ignore"
    """With `required`, the model does not see a project's skills and AGENTS.md until the user trusts the project."""
    exact_names: bool = False
    """Whether the `skill_name` of a rule is one name. A rule with another value is dropped with a warning. Otherwise it
    may be a glob."""


class DocumentationTable(Value, eq=False):
    """Where the rules of a profile come from. It is no part of the rules, see `metier.hosts.documentation`."""

    page: str
    """The main source: an address, or the title of a document."""
    version: str
    """The version or date of that page, as far as it is known."""
    tested: str = ""
    """The page that lists every behaviour with its tests. Rules without a source of their own then count as tested."""
    sources: dict[str, str] = field(default_factory=dict[str, str])
    """The address of the page or file that a rule comes from, by the name of a setting or its table."""
    assumed: dict[str, str] = field(default_factory=dict[str, str])
    """Why a rule that no source states is as it is, by the name of a setting or its table."""


class Profile(Value, eq=False):
    """The rules of one host."""

    name: str
    """The name of the profile."""
    summary: str
    """One line for `metier profiles`."""
    enabled: bool = True
    """Whether the host uses skills at all."""
    directories: tuple[str, ...] = ()
    """Folders that are searched instead of the roots, in this order, relative to the project's root."""
    custom_directories: tuple[str, ...] = ()
    """Folders that are searched after the roots."""
    custom_toggle: str = ""
    """The switch that turns custom directories off. `any` keeps them on while any switch is on."""
    extra_scope: str = "extra"
    """The scope of skills in folders that the caller names."""
    custom_scope: str = "extra"
    """The scope of skills in custom directories."""
    project: ProjectRules = field(default_factory=ProjectRules)
    roots: tuple[RootRules, ...] = ()
    """The folders to search."""
    toggles: dict[str, bool] = field(default_factory=dict[str, bool])
    """Switches that turn roots on and off."""
    discovery: DiscoveryRules = field(default_factory=DiscoveryRules)
    validation: Rules = field(default_factory=Rules)
    collisions: CollisionRules = field(default_factory=CollisionRules)
    filters: FilterRules = field(default_factory=FilterRules)
    catalog: CatalogRules = field(default_factory=CatalogRules)
    prompt: PromptRules = field(default_factory=PromptRules)
    context: ContextRules = field(default_factory=ContextRules)
    invocation: InvocationRules = field(default_factory=InvocationRules)
    load: LoadRules = field(default_factory=LoadRules)
    resources: ResourceRules = field(default_factory=ResourceRules)
    search: SearchRules = field(default_factory=SearchRules)
    tools: ToolRules = field(default_factory=ToolRules)
    run: RunRules = field(default_factory=RunRules)
    policy: PolicyRules = field(default_factory=PolicyRules)
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    """The host's own names for settings, and ours."""
    environment: dict[str, str] = field(default_factory=dict[str, str])
    """Environment variables of the host, and the settings they set."""
    ranges: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """The lowest and highest value of a setting."""
    fingerprint: str = ""
    """Equal for equal values. Part of the name of a cache."""

    @property
    def off_message(self) -> str:
        """What to say while the host uses no skills."""
        return f"skills are switched off in the profile {self.name}; {self.off_hint}"

    @property
    def off_hint(self) -> str:
        """How to switch skills on, in the host's own name for the setting."""
        key = next((alias for alias, setting in self.aliases.items() if setting == "enabled"), "enabled")
        return f"set {key} = true in .metier/config.toml, run `metier trust` and start again"


class McpSettings(Value):
    """The table `mcp`: servers whose skills join the catalog, and limits for our own server."""

    servers: dict[str, Any] = field(default_factory=dict[str, Any])
    """Unchecked. See `metier.sources.mcp_servers.servers`."""
    instructions_chars: int = CATALOG_CHARS
    """For the instructions of Metier's server. 0 leaves the catalog out of them."""
    description_chars: int = CATALOG_CHARS
    """For the description of its load tool. 0 leaves the catalog out of it."""


class CheckSettings(Value):
    """The table `check`."""

    hosts: tuple[str, ...] = ()
    """Names or files of profiles."""


class RuntimeSettings(Value):
    """The keys of a configuration that are not settings of a profile."""

    profile: str = "standard"  # by its name; a file needs trust
    """The host whose rules apply. As a table: `use` names that host, and `NAME` has settings for one host."""
    cache: bool = True
    """Whether scans are cached on disk."""
    store: str = ""
    """Where events are stored: `memory:`, a path, `sqlite:///path`, or `postgresql://...`."""
    store_required: bool = True
    """Whether a call is refused if its events cannot be stored. `false`: servers and commands warn and continue.
    Default: true."""
    store_days: int = 90  # it deletes the records of other projects, too
    """Sessions without an event for this many days are deleted from the store. 0 keeps them. Default: 90."""
    store_megabytes: int = 2048
    """The oldest sessions are deleted while the store has more content, in MiB. 0 means no limit. Default: 2048."""
    telemetry: bool = False
    """Whether servers trace with OpenTelemetry. Needs the extra `otel`."""
    model: dict[str, Any] = field(default_factory=dict[str, Any])  # it receives the conversation
    """The model of the chat: `provider`, `name`, `base_url`, `tools`, `images`, `timeout`. Only in the user's own
    file."""
    mcp: McpSettings = field(default_factory=McpSettings)  # servers are programs that are started
    """`servers.NAME` with a `command` or a `url`: MCP servers whose skills join the catalog. `instructions_chars`,
    `description_chars`: how many characters of its instructions and of its load tool's description Metier's own server
    uses for the catalog, 2000 each. Only in the user's own file."""
    check: CheckSettings = field(default_factory=CheckSettings)  # by names; a file needs trust
    """`hosts`: the profiles that `metier check` checks unless others are named. It exits with 1 if one of them does not
    find or not show a skill. A file needs trust."""
    permissions: dict[str, Any] = field(default_factory=dict[str, Any])
    """The policy: `profile`, the lists `allow`, `deny` and `ask`, `unasked`, `redact`, and `trust = "required"`."""
