"""The schema of a profile: one frozen table per subject, one field per rule, with its default and its meaning.

These are the settings that users see. The reference page is generated from the text below each field. Profiles differ
by their fingerprint, so tables compare by identity, and can be keys of a cache. A setting's type
names who may set it; see `metier.hosts.authority`.
"""

import functools
from typing import Annotated, Any, Final, Literal

from metier import limits
from metier.hosts import authority as by
from metier.values.skill import Role
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

    name_pattern: Annotated[Pattern, by.project(by.towards("any", "unicode", "ascii"))] = "unicode"
    """Characters a name may have: `unicode` (the standard), `ascii`, or `any`."""
    name_length: Annotated[int, by.project(by.lower_limit)] = limits.NAME_LENGTH
    """Longest name, in characters. 0 means no limit."""
    name_breach: Annotated[Breach, by.project(by.BREACH)] = "warn"
    """Severity when a name breaks the pattern or length rule: `error`, `warn` or `ignore`."""
    name_source: Annotated[Literal["frontmatter", "folder"], by.PROJECT] = "frontmatter"
    """What a skill is called by: `name` in its frontmatter, or its folder. By the folder, `name` is only a label."""
    name_mismatch: Annotated[Breach, by.project(by.BREACH)] = "warn"
    """Severity when the name differs from the folder's name."""
    name_missing: Annotated[Literal["folder", "error"], by.project(by.only("error"))] = "folder"
    """What happens without a name: use the `folder`'s name, or report an `error`."""
    description_length: Annotated[int, by.project(by.lower_limit)] = limits.DESCRIPTION_LENGTH
    """Longest description, in characters. 0 means no limit."""
    description_breach: Annotated[Breach, by.project(by.BREACH)] = "warn"
    """Severity when a description is too long."""
    description_missing: Annotated[Literal["error", "ignore", "body"], by.project(by.only("error"))] = "error"
    """What happens without a description: `error`, `ignore`, or `body` for hosts that show the first paragraph
    of the body instead."""
    optional_breach: Annotated[Breach, by.project(by.BREACH)] = "warn"
    """Severity when an optional field breaks its rule."""
    unknown_keys: Annotated[Unknown, by.project(by.only("error"))] = "keep"
    """What happens to keys outside the standard: `keep`, `ignore`, `warn` or `error`."""
    known_keys: Annotated[tuple[str, ...], by.project(by.fewer)] = ()
    """Keys outside the standard that the host knows. They are kept and not reported."""
    list_fields: Annotated[tuple[str, ...], by.PROJECT] = ()
    """Keys that the host knows and that hold a list of strings. Other values are reported."""
    flag_fields: Annotated[tuple[str, ...], by.PROJECT] = ()
    """Keys that the host knows and that hold `true` or `false`. Other values are reported."""
    allowed_tools_forms: Annotated[bool, by.PROJECT] = True
    """Whether commas and lists are accepted in `allowed-tools`."""
    repair: Annotated[bool, by.project(by.off)] = True
    """Whether broken YAML is repaired where possible. Every repair is reported."""
    simple_lines: Annotated[bool, by.project(by.off)] = False
    """Whether broken YAML is repaired at least where every line is a simple `key: value`, even without `repair`. Such
    a value may contain a colon, as in `description: Use this when: ...`."""
    frontmatter_required: Annotated[bool, by.project(by.on)] = True
    """Whether a file without frontmatter is an error."""
    frontmatter_broken: Annotated[Literal["error", "empty"], by.project(by.only("error"))] = "error"
    """What happens to frontmatter that cannot be read: `error`, or `empty` to read the file as if it had none."""

    @property
    def own_keys(self) -> tuple[str, ...]:
        """All keys outside the standard that the host knows."""
        return (*self.known_keys, *self.list_fields, *self.flag_fields)


class ProjectRules(Value, eq=False):
    """Where the project begins. The folders from its root down to the working directory are searched."""

    markers: Annotated[tuple[str, ...], by.PROJECT] = (".git",)
    """Files or folders that mark the project's root."""
    markers_env: Annotated[str, by.PROJECT] = ""
    """The environment variable with a comma-separated list that replaces the markers."""
    root_env: Annotated[str, by.PROJECT] = ""
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

    depth: Annotated[int, by.project(by.lower_limit)] = 0
    """Levels of folders below a root that may be skills. 0 means any."""
    nested: Annotated[bool, by.project(by.off)] = False
    """Whether folders inside a skill are searched for further skills."""
    folder_links: Annotated[Literal["follow", "inside", "never"], by.trusted(by.LINKS)] = "follow"
    """Whether links to folders are followed: always, only to folders `inside` the project or the roots, or never."""
    file_links: Annotated[Literal["follow", "inside", "never"], by.trusted(by.LINKS)] = "follow"
    """The same for a SKILL.md that is a link."""
    hidden: Annotated[bool, by.project(by.off)] = True
    """Whether folders whose names start with a dot are searched."""
    root_is_skill: Annotated[bool, by.project(by.off)] = True
    """Whether a SKILL.md directly in a root makes the root itself a skill."""
    ignore: Annotated[tuple[str, ...], by.project(by.more)] = (".git", "node_modules", "__pycache__", "dist", "build")
    """Names of folders that are never searched."""
    max_depth: Annotated[int, by.trusted(by.lower)] = limits.WALK_DEPTH
    """Deepest level of folders that is searched."""
    max_directories: Annotated[int, by.trusted(by.lower)] = limits.WALK_DIRECTORIES
    """Most folders that one root may have."""
    max_linked_directories: Annotated[int, by.trusted(by.lower)] = limits.LINKED_DIRECTORIES
    """Most folders behind one link."""
    max_skills: Annotated[int, by.trusted(by.lower)] = limits.ROOT_SKILLS
    """Most skills that are taken from one root."""
    missing_root: Annotated[Literal["ignore", "warn"], by.ANY] = "ignore"
    """What happens when a root does not exist: `ignore` or `warn`."""


class CollisionRules(Value, eq=False):
    """What happens when two skills have the same name."""

    rule: Annotated[Literal["precedence", "first", "last", "ambiguous"], by.PROJECT] = "precedence"
    """Which skill is used: by `precedence` of the roots, the `first`, the `last`, or none (`ambiguous`)."""
    copies: Annotated[Literal["real-path", "content"], by.PROJECT] = "content"
    """When two files are one skill: if they are one file (`real-path`), or also if their `content` is equal."""
    switched_off: Annotated[Literal["ignore", "count"], by.project(by.only("count"))] = "ignore"
    """Whether skills of roots that a switch turns off `count` when names are settled. If they do, such a skill is not
    used, and neither is one of the same name in a later root. Custom directories come after that."""


class FilterRules(Value, eq=False):
    """Globs on names. `*`, `?`, `[a-z]` and alternatives such as `git-{log,blame}` are understood."""

    include: Annotated[tuple[str, ...], by.project(by.fewer_than_all)] = ()
    """Only skills whose names match one of these globs. Empty means all."""
    ignore: Annotated[tuple[str, ...], by.project(by.more)] = ()
    """Skills whose names match one of these globs are left out."""


class CatalogRules(Value, eq=False):
    """What the catalog contains, and in which order."""

    order: Annotated[Literal["name", "folded-name", "found"], by.ANY] = "name"
    """By `name`, by name without regard to case, or as `found`."""
    max_skills: Annotated[int, by.project(by.lower_limit)] = 0
    """Most skills in the catalog. 0 means no limit."""
    honours: Annotated[tuple[str, ...], by.project(by.hides_more)] = ()
    """Extension keys of the frontmatter that have an effect."""
    reads: Annotated[tuple[str, ...], by.ANY] = ()
    """All keys of the frontmatter that the host gives a meaning. `metier check` reports others as ignored. Empty means
    those of the standard and those in `honours`."""
    flag_words: Annotated[bool, by.project(by.on)] = False
    """Whether `yes`, `on`, `1` and their opposites count as true and false in such keys."""
    policy_file: Annotated[str, by.PROJECT] = ""
    """A YAML file of a skill. `allow_implicit_invocation: false` in its `policy` hides the skill from the model."""
    refresh: Annotated[Literal["stale", "call", "request", "start"], by.PROJECT] = "stale"
    """When changes on disk are noticed: when a needed file is `stale`, on each tool `call`, on `request`, or at the
    next `start`."""


class PromptRules(Value, eq=False):
    """What the model sees of the catalog."""

    format: Annotated[str, by.PROJECT] = "xml"
    """The format of the listing: `xml`, `codelia`, `list`, `tool`, `json`, or the name of an installed host."""
    max_entries: Annotated[int, by.project(by.lower_limit)] = 0
    """Most skills in the listing. 0 means no limit."""
    max_bytes: Annotated[int, by.project(by.lower_limit)] = 0
    """Largest listing, in bytes. 0 means no limit."""
    max_chars: Annotated[int, by.project(by.lower_limit)] = 0
    """Largest listing, in characters. For 0, see `zero_chars`."""
    zero_chars: Annotated[Literal["unlimited", "nothing"], by.project(by.only("nothing"))] = "unlimited"
    """What `max_chars = 0` means: no limit of the host, or that no skill is listed and the listing only says how many
    there are. Where a host sets no limit at all, a prompt has 50,000 characters at most, unless its caller names
    another budget."""
    order: Annotated[Literal["stable", "catalog", "relevance"], by.ANY] = "stable"
    """`catalog` keeps the catalog's order, whatever the message. `stable` does the same, but where the listing is cut,
    it keeps an eighth of the room for skills that messages add. `relevance` sorts the listing for each message, so that
    it changes with every turn."""
    needs_read_tool: Annotated[bool, by.project(by.on)] = False
    """Whether only a model that can read files sees the listing."""
    preloaded_replace: Annotated[bool, by.PROJECT] = False
    """Whether preloaded skills replace the listing instead of joining it."""
    fields: Annotated[tuple[str, ...], by.trusted(by.fewer)] = ()
    """Further fields of each entry, such as `compatibility`, `allowed-tools` and `metadata`. A rule of the policy about
    the tool `catalog_field` outranks this list."""
    description_fields: Annotated[tuple[str, ...], by.project(by.fewer)] = ()
    """Fields of the frontmatter that are appended to the description. Those of the standard are shown by `fields`."""
    description_chars: Annotated[int, by.project(by.lower_limit)] = 0
    """Characters of a description, including appended fields, before it is cut. 0 means no limit."""

    @property
    def char_limit(self) -> int | None:
        """The largest listing in characters; `None` if the host has no such limit."""
        return self.max_chars if self.max_chars or self.zero_chars == "nothing" else None


class ContextRules(Value, eq=False):
    """The instruction files that come before the skills in the system prompt."""

    agents_files: Annotated[AgentsFiles, by.project(by.towards("ancestors", "project", "none"))] = "project"
    """Which AGENTS.md files apply: those of the `project`, of all `ancestors`, or `none`."""
    max_levels: Annotated[int, by.project(by.lower)] = 20
    """For `ancestors`: how many levels up."""
    activated: Annotated[bool, by.project(by.off)] = False
    """Whether the names of activated skills are listed."""


class InvocationRules(Value, eq=False):
    """How a user's message calls a skill."""

    forms: Annotated[tuple[str, ...], by.project(by.fewer)] = ("/name", "/skill:name", "$name", "skill://name")
    """The accepted forms: `/name`, `/skill:name`, `$name`, `@name`, `skill://name`, and `path`, a path of a skill."""
    commands: Annotated[bool, by.project(by.off)] = True
    """Whether slash commands are offered."""
    loads: Annotated[bool, by.PROJECT] = True
    """Whether the host loads the skill itself. Otherwise the skill is only named, and the model loads it."""


class LoadRules(Value, eq=False):
    """What loading a skill returns."""

    wrap: Annotated[str, by.PROJECT] = "standard"
    """How the text is wrapped: `standard`, `codelia`, `base-directory`, `raw`, `body`, or an installed host."""
    reload: Annotated[Literal["remind", "again"], by.PROJECT] = "remind"
    """What loading an unchanged skill again returns: a reminder, or the text `again`. Other files in its folder do
    not change it."""
    max_bytes: Annotated[int, by.project(by.lower_limit)] = 0
    """Bytes of SKILL.md before it is cut, at most 50 MiB. 0 means 200,000."""
    max_files: Annotated[int, by.project(by.lower)] = limits.LISTED_FILES
    """Most files in the list of a skill's files."""
    max_file_bytes: Annotated[int, by.project(by.lower)] = limits.LISTED_BYTES
    """Total size of the listed files, in bytes. A file that does not fit is left out, and those after it are not."""
    arguments: Annotated[Literal["indexed", "whole", "appended", "none"], by.PROJECT] = "indexed"
    """Which placeholders arguments fill: `indexed` for all of them, `whole` for `$ARGUMENTS` only, or `none`. Where
    there is nothing to fill, they are appended. `appended` fills `$ARGUMENTS` and appends them, too."""
    refresh_on_call: Annotated[bool, by.PROJECT] = True
    """Whether the disk is scanned on each call, if `catalog.refresh` is `call`."""


class ResourceRules(Value, eq=False):
    """How files of a skill are read."""

    max_bytes: Annotated[int, by.project(by.lower_limit)] = 2_000_000
    """Bytes of a file before it is cut. 0 means only the hard limit."""
    parents: Annotated[Literal["refuse", "normalise"], by.project(by.towards("normalise", "refuse"))] = "refuse"
    """What happens to `..` in a path: `refuse`, or `normalise` if the result stays inside the skill."""
    hide_paths: Annotated[bool, by.project(by.on)] = False
    """Whether messages to the model and the browser never contain an absolute path."""


class SearchRules(Value, eq=False):
    """How a search ranks, and how many results it returns."""

    default_limit: Annotated[int, by.project(by.lower)] = 8
    """Results if the caller names no limit."""
    max_limit: Annotated[int, by.project(by.lower)] = 50
    """Most results."""
    scoring: Annotated[Literal["ranked", "overlap"], by.ANY] = "ranked"
    """`ranked` uses the search index. `overlap` counts the words that a query shares with a name and description."""
    expand: Annotated[bool, by.ANY] = True
    """Whether a ranked search also finds other words for the same thing, such as `golang` for `go`."""
    synonyms: Annotated[tuple[str, ...], by.ANY] = ()
    """Your own words for the same thing, such as `["crm, salesforce", "okr, objectives"]`."""


class ToolRules(Value, eq=False):
    """The tools that the model gets. An empty name means that the host does not have the tool."""

    load: Annotated[str, by.PROJECT] = "skill_load"
    """The tool that loads a skill."""
    search: Annotated[str, by.project(by.only(""))] = "skill_search"
    """The tool that searches."""
    read: Annotated[str, by.project(by.only(""))] = "skill_read"
    """The tool that reads a file of a skill."""
    output: Annotated[str, by.project(by.only(""))] = "skill_output"
    """The tool that returns an earlier result."""
    run: Annotated[str, by.project(by.only(""))] = "skill_run"
    """The tool that runs a script."""
    shape: Annotated[str, by.PROJECT] = "metier"
    """How tools are defined and answered: `metier`, `codelia`, `omp`, `envelope`, `remcochat`, or an installed host."""
    host_read: Annotated[bool, by.project(by.on)] = False
    """Whether the read tool belongs to the host, and is offered only where the host has it."""
    enumerate_names: Annotated[bool, by.ANY] = True
    """Whether the schema lists the names of skills, as long as they are few."""
    host: Annotated[tuple[str, ...], by.trusted(by.more)] = _HOST_TOOLS
    """Tools of the host itself, which rules of the policy can be about."""

    def by_role(self) -> dict[Role, str]:
        """The host's tools: role to name."""
        return _by_role(self).copy()


@functools.lru_cache(maxsize=32)
def _by_role(tools: ToolRules) -> dict[Role, str]:
    """Cached, because every call of a tool asks for its role."""
    named: dict[Role, str] = {
        "load": tools.load,
        "search": tools.search,
        "read": tools.read,
        "output": tools.output,
        "run": tools.run,
    }
    return {role: name for role, name in named.items() if name}


class RunRules(Value, eq=False):
    """Which scripts of a skill run, and within which limits."""

    folders: Annotated[tuple[str, ...], by.trusted(by.fewer)] = ("scripts",)
    """Folders of a skill whose files may run."""
    seconds: Annotated[int, by.trusted(by.lower)] = 60
    """Longest run, in seconds."""
    memory_mib: Annotated[int, by.trusted(by.lower)] = 1024
    """Memory of a run, in MiB."""
    processes: Annotated[int, by.trusted(by.lower)] = 64
    """Processes of a run."""
    output_bytes: Annotated[int, by.trusted(by.lower)] = limits.MIB
    """Output of a run, in bytes."""
    work_mib: Annotated[int, by.trusted(by.lower)] = 128
    """Size of the work folder, in MiB."""
    folder: Annotated[Literal["read", "none"], by.trusted(by.towards("read", "none"))] = "read"
    """Whether a script runs in the working folder and can read it, or in an empty folder. Rules that allow
    `run_project` show the whole project in any case."""
    env: Annotated[tuple[str, ...], by.trusted(by.fewer)] = ("LANG", "LC_ALL", "TZ")
    """Environment variables of the host that a script sees."""
    sandbox: Annotated[tuple[str, ...], by.Authority("user", by.fewer)] = ("bubblewrap",)
    """Sandboxes to try, best first: `bubblewrap`, `container`, which needs Docker or Podman, or one of a package."""
    image: Annotated[str, by.USER] = CONTAINER_IMAGE
    """Image for `container`. It is never downloaded."""
    private_hosts: Annotated[bool, by.trusted(by.off)] = False
    """Whether the hosts that a rule gives a script may have addresses outside of the public internet."""
    packages: Annotated[Literal["ask", "never"], by.trusted(by.only("never"))] = "ask"
    """What happens to packages that a script needs: they are part of the question before a run (`ask`), or `never`
    installed."""
    build_packages: Annotated[bool, by.trusted(by.off)] = False
    """Whether packages without a wheel are built. That runs their code on the host, with all rights of the user."""


class PolicyRules(Value, eq=False):
    """What the host does where no rule of the policy applies."""

    confirm_loads: Annotated[bool, by.trusted(by.on)] = False
    """Whether a load that no rule covers must be confirmed."""
    unasked: Annotated[Unasked, by.trusted(by.towards("allow", "loads", "refuse"))] = "refuse"
    """A model's call that must be confirmed where nobody can be asked: `refuse` it, let `loads` and reads of skills
    through, or `allow` scripts, too. Skills of MCP servers need a rule in any case."""
    enforce_hints: Annotated[bool, by.trusted(by.on)] = True
    """Whether a skill's `allowed-tools` narrows what may be used while it is active."""
    trust: Annotated[Literal["ignore", "required"], by.trusted(by.only("required"))] = "ignore"
    """With `required`, the model does not see a project's skills and AGENTS.md until the user trusts the project."""
    edits: Annotated[bool, by.trusted(by.off)] = True
    """Whether people can write, import and remove skills in the web app."""


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

    name: Annotated[str, by.TRUSTED]
    """The name of the profile."""
    summary: Annotated[str, by.ANY]
    """One line for `metier profiles`."""
    enabled: Annotated[bool, by.project(by.off)] = True
    """Whether the host uses skills at all."""
    directories: Annotated[tuple[str, ...], by.project(by.fewer_but_some)] = ()
    """Folders that are searched instead of the roots, in this order, relative to the project's root."""
    custom_directories: Annotated[tuple[str, ...], by.project(by.fewer)] = ()
    """Folders that are searched after the roots."""
    custom_toggle: Annotated[str, by.PROJECT] = ""
    """The switch that turns custom directories off. `any` keeps them on while any switch is on."""
    extra_scope: Annotated[str, by.PROJECT] = "extra"
    """The scope of skills in folders that the caller names."""
    custom_scope: Annotated[str, by.PROJECT] = "extra"
    """The scope of skills in custom directories."""
    project: ProjectRules = field(default_factory=ProjectRules)
    roots: Annotated[tuple[RootRules, ...], by.project(by.fewer)] = ()
    """The folders to search."""
    toggles: Annotated[dict[str, bool], by.project(by.off)] = field(default_factory=dict[str, bool])
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
        return f"set {key} = true in .metier/config.toml and start again"


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

    profile: Annotated[str, by.PROJECT] = "standard"  # by its name; a file needs trust
    """The host whose rules apply. As a table: `use` names that host, and `NAME` has settings for one host."""
    cache: Annotated[bool, by.project(by.off)] = True
    """Whether scans are cached on disk."""
    store: Annotated[str, by.TRUSTED] = ""
    """Where events are stored: `memory:`, a path, `sqlite:///path`, or `postgresql://...`."""
    store_required: Annotated[bool, by.TRUSTED] = True
    """Whether a call is refused if its events cannot be stored. `false`: servers and commands warn and continue.
    Default: true."""
    store_days: Annotated[int, by.USER] = 90  # it deletes the records of other projects, too
    """Sessions without an event for this many days are deleted from the store. 0 keeps them. Default: 90."""
    store_megabytes: Annotated[int, by.USER] = 2048
    """The oldest sessions are deleted while the store has more content, in MiB. 0 means no limit. Default: 2048."""
    telemetry: Annotated[bool, by.TRUSTED] = False
    """Whether servers trace with OpenTelemetry. Needs the extra `otel`."""
    model: Annotated[dict[str, Any], by.USER] = field(default_factory=dict[str, Any])  # it receives the conversation
    """The model of the chat: `provider`, `name`, `base_url`, `tools`, `images`, `timeout`. Only in the user's own
    file."""
    mcp: Annotated[McpSettings, by.USER] = field(default_factory=McpSettings)  # servers are programs that are started
    """`servers.NAME` with a `command` or a `url`: MCP servers whose skills join the catalog. `instructions_chars`,
    `description_chars`: how many characters of its instructions and of its load tool's description Metier's own server
    uses for the catalog, 2000 each. Only in the user's own file."""
    check: Annotated[CheckSettings, by.ANY] = field(default_factory=CheckSettings)  # by names; a file needs trust
    """`hosts`: the profiles that `metier check` checks unless others are named. It exits with 1 if one of them does not
    find or not show a skill. A file needs trust."""
    permissions: Annotated[dict[str, Any], by.Authority("user", by.restricts)] = field(default_factory=dict[str, Any])
    """The policy: `profile`, the lists `allow`, `deny` and `ask`, `unasked`, `redact`, and `trust = "required"`."""
