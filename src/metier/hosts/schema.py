"""What a profile can say: one frozen table per subject, one field per rule, with its default and its meaning.

These are the settings that users see; the reference page is made from the text below each field. Profiles differ
by their fingerprint, so the tables compare by identity: making comparisons for each would cost a third of the import.
"""

from dataclasses import dataclass, field
from typing import Literal

from metier import limits
from metier.model import Role

Breach = Literal["error", "warn", "ignore"]
Unknown = Literal["keep", "ignore", "warn", "error"]
Pattern = Literal["unicode", "ascii", "any"]


@dataclass(frozen=True, slots=True)
class Rules:
    """How strictly the fields are judged. The defaults are the standard, leniently."""

    name_pattern: Pattern = "unicode"
    name_length: int = limits.NAME_LENGTH
    """0 means no limit."""
    name_breach: Breach = "warn"
    """What a name does that breaks pattern or length."""
    name_source: Literal["frontmatter", "folder"] = "frontmatter"
    """Which of the two the skill is called by; by the folder, `name` in the frontmatter is only a label."""
    name_mismatch: Breach = "warn"
    name_missing: Literal["folder", "error"] = "folder"
    description_length: int = limits.DESCRIPTION_LENGTH
    description_breach: Breach = "warn"
    description_missing: Literal["error", "ignore", "body"] = "error"
    """`body`: the host shows the first paragraph of the body instead, as `metier check` says; here there is none."""
    optional_breach: Breach = "warn"
    unknown_keys: Unknown = "keep"
    allowed_tools_forms: bool = True
    """Commas and lists are accepted in `allowed-tools`."""
    repair: bool = True
    frontmatter_required: bool = True
    frontmatter_broken: Literal["error", "empty"] = "error"
    """`empty`: a file whose frontmatter cannot be read is taken as one that says nothing about itself."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ProjectRules:
    """Where the project begins: the chain of folders that is searched runs from there down to the working directory."""

    markers: tuple[str, ...] = (".git",)
    markers_env: str = ""
    """The environment variable with a comma list that replaces the markers."""
    root_env: str = ""
    """The environment variable that names the root outright."""


@dataclass(frozen=True, slots=True)
class RootRules:
    """One place to search, before it is resolved against a working directory and a home."""

    path: str
    at: Literal["ancestors", "project", "cwd", "home", "system"]
    scope: str
    source: str
    priority: int = 0
    toggle: str = ""
    """The switch that turns it off; `any` means: on while any switch is on."""
    require_description: bool = True
    skip_home: bool = False
    """Ancestors: leave out the home folder, whose skills are the user's and not the project's."""
    registry: bool = False
    """`path` is a JSON file that lists installed plugins; the `skills` folder of each is searched."""
    on_demand: bool = False
    """The host also takes this folder below the working directory, once it works on files there; of that only
    `metier check` knows."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class DiscoveryRules:
    """How a root is searched."""

    depth: int = 0
    """Levels of folders below a root that may be skills; 0 means any."""
    nested: bool = False
    """Whether folders inside a skill are searched for further skills."""
    folder_links: Literal["follow", "inside", "never"] = "follow"
    file_links: Literal["follow", "inside", "never"] = "follow"
    """A SKILL.md that is a symbolic link: followed to any other, to one inside the project or the roots, or never."""
    hidden: bool = True
    """Whether folders whose name begins with a dot are searched."""
    root_is_skill: bool = True
    """Whether a SKILL.md directly in a root makes the root itself a skill."""
    ignore: tuple[str, ...] = (".git", "node_modules", "__pycache__", "dist", "build")
    max_depth: int = limits.WALK_DEPTH
    max_directories: int = limits.WALK_DIRECTORIES
    max_linked_directories: int = limits.LINKED_DIRECTORIES
    missing_root: Literal["ignore", "warn"] = "ignore"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class CollisionRules:
    """What happens when two skills bear one name."""

    rule: Literal["precedence", "first", "last", "ambiguous"] = "precedence"
    copies: Literal["real-path", "content"] = "content"
    """What counts as the same skill met twice: one file reached by two ways, or also two equal files."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FilterRules:
    """Globs on names."""

    include: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class CatalogRules:
    """What the catalog holds, and in which order."""

    order: Literal["name", "folded-name", "found"] = "name"
    max_skills: int = 0
    """0 means no limit."""
    honours: tuple[str, ...] = ()
    """The extension keys of a frontmatter that have an effect."""
    reads: tuple[str, ...] = ()
    """Every key of a frontmatter that the host gives a meaning; `metier check` calls the others ignored. Empty: those
    of the standard, and those that it honours."""
    flag_words: bool = False
    """Whether `yes`, `on`, 1 and their opposites are as good as true and false where such a key is a switch."""
    policy_file: str = ""
    """A YAML file of a skill whose `policy` hides it from the model by `allow_implicit_invocation: false`."""
    refresh: Literal["stale", "call", "request", "start"] = "stale"
    """When changes on disk are noticed: when a file that is needed differs, on every tool call, on request, at the next
    start."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PromptRules:
    """What the model is shown of the catalog."""

    format: str = "xml"
    """The host whose format the listing has: `xml`, `codelia`, `list`, `tool`, `json`, or an installed host."""
    max_entries: int = 0
    max_bytes: int = 0
    max_chars: int = 0
    """0 means no limit."""
    needs_read_tool: bool = False
    """The listing is shown only to a model that can read files."""
    preloaded_replace: bool = False
    """Preloaded skills stand instead of the listing, not beside it."""
    fields: tuple[str, ...] = ()
    """Further fields of each entry: compatibility, allowed-tools."""
    description_fields: tuple[str, ...] = ()
    """Fields of the frontmatter that are joined to the description."""
    description_chars: int = 0
    """Characters of a description, with what is joined to it, before it is cut; 0 means no limit."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ContextRules:
    """The files of instructions that stand in the system prompt before the skills."""

    agents_files: Literal["project", "ancestors", "none"] = "project"
    max_levels: int = 20
    activated: bool = False
    """Whether the names of skills already activated are listed."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class InvocationRules:
    """How a user's message calls a skill."""

    forms: tuple[str, ...] = ("/name", "/skill:name", "$name", "skill://name")
    commands: bool = True
    """Whether slash commands are offered at all."""
    loads: bool = True
    """Whether the host loads the skill itself; else it is only named, and the model loads it."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LoadRules:
    """What an activation returns."""

    wrap: str = "standard"
    """How a loaded skill is wrapped: `standard`, `codelia`, `base-directory`, `raw`, `body`, or an installed host."""
    reload: Literal["remind", "again"] = "remind"
    max_bytes: int = 0
    """Bytes of SKILL.md before it is cut; 0 means only the hard limit."""
    max_files: int = limits.LISTED_FILES
    max_file_bytes: int = limits.LISTED_BYTES
    arguments: Literal["indexed", "whole", "none"] = "indexed"
    """Which placeholders of a body they fill: all of them, only `$ARGUMENTS`, none."""
    refresh_on_call: bool = True


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ResourceRules:
    """How files of a skill are read."""

    max_bytes: int = 2_000_000
    parents: Literal["refuse", "normalise"] = "refuse"
    hide_paths: bool = False
    """No message to the model or the browser contains an absolute path."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SearchRules:
    """How many results a search returns."""

    default_limit: int = 8
    max_limit: int = 50
    scoring: Literal["ranked", "overlap"] = "ranked"
    """`ranked` uses the search index; `overlap` counts the words that a query shares with a name and description."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ToolRules:
    """The tools that the model is given; an empty name means that the host has no such tool."""

    load: str = "skill_load"
    search: str = "skill_search"
    read: str = "skill_read"
    output: str = "skill_output"
    run: str = "skill_run"
    shape: str = "metier"
    """How tools are defined and answered: `metier`, `codelia`, `omp`, `envelope`, `remcochat`, or an installed host."""
    host_read: bool = False
    """Whether the read tool is the host's own, and so is offered only where the host has one."""
    enumerate_names: bool = True
    """Whether the names are listed in the schema, while they are few."""

    def by_role(self) -> dict[Role, str]:
        """The host's tools: role to name."""
        named: dict[Role, str] = {
            "load": self.load,
            "search": self.search,
            "read": self.read,
            "output": self.output,
            "run": self.run,
        }
        return {role: name for role, name in named.items() if name}


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RunRules:
    """Which scripts of a skill run, and within which limits."""

    folders: tuple[str, ...] = ("scripts",)
    """Folders of a skill whose files may run."""
    seconds: int = 60
    memory_mib: int = 1024
    processes: int = 64
    output_bytes: int = limits.MIB
    work_mib: int = 128
    env: tuple[str, ...] = ("LANG", "LC_ALL", "TZ")
    """The variables of the host that a script may see."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PolicyRules:
    """What the host's own habits are where no rule of a policy holds."""

    confirm_loads: bool = False
    """A load that no rule covers is confirmed, where somebody can be asked."""
    enforce_hints: bool = True
    """Whether a skill's `allowed-tools` narrows what may be used while it is active."""
    trust: Literal["ignore", "required"] = "ignore"
    """Whether the skills of a project are hidden from the model until `metier trust` has been said of it."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Profile:
    """The rules of one host."""

    name: str
    summary: str
    documented: str = ""
    enabled: bool = True
    directories: tuple[str, ...] = ()
    """Searched instead of the roots, in this order; relative to the project's root."""
    custom_directories: tuple[str, ...] = ()
    """Searched after the roots."""
    extra_scope: str = "extra"
    custom_scope: str = "extra"
    project: ProjectRules = field(default_factory=ProjectRules)
    roots: tuple[RootRules, ...] = ()
    toggles: dict[str, bool] = field(default_factory=dict[str, bool], hash=False)
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
    aliases: dict[str, str] = field(default_factory=dict[str, str], hash=False)
    """The host's own names for settings, and ours."""
    environment: dict[str, str] = field(default_factory=dict[str, str], hash=False)
    """Environment variables of the host, and the settings they set."""
    ranges: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]], hash=False)
    """The lowest and highest value of a setting."""
    documentation: dict[str, str] = field(default_factory=dict[str, str], hash=False)
    """The public page that a rule comes from, by the name of a setting or of its table."""
    fingerprint: str = ""
    """Equal for equal values; part of the name of a cache."""
