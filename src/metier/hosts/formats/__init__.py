"""The shapes of a host: how it lists skills, wraps a loaded one, defines its tools and answers a call.

`HostFormats` is the protocol. Each module in this package implements it for one host, and a profile chooses by name:
`prompt.format` for the listing, `load.wrap` for the wrapper, `tools.shape` for definitions and results. A package of
yours joins through the entry point group `metier.hosts`. Formats are pure: they get values and return values.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, Protocol, cast

from metier.errors import BadArguments, ConfigError, MetierError
from metier.files.plugins import find as find_installed
from metier.files.plugins import installed
from metier.files.shapes import is_list
from metier.values.results import Loaded, Prompt, ToolResult
from metier.values.skill import JsonObject, Role, Skill
from metier.values.value import Value, field

if TYPE_CHECKING:
    from metier.hosts.schema import Profile

Offered = Mapping[Role, str]
"""The tools that the model really has: role to name."""

Aspect = Literal["format", "wrap", "shape"]
"""What a profile chooses separately: `prompt.format`, `load.wrap`, `tools.shape`."""

NOTHING: Final = Prompt("", 0, 0, False)
"""The prompt of a catalog without skills."""

_MODULES: Final = ("standard", "codelia", "omp", "mycodeagent", "remcochat")
_BUILT_IN: Final[Mapping[Aspect, Mapping[str, str]]] = {
    "format": dict(zip(("xml", "codelia", "list", "tool", "json"), _MODULES, strict=True)),
    "wrap": dict(zip(("standard", "codelia", "raw", "base-directory", "body"), _MODULES, strict=True)),
    "shape": dict(zip(("metier", "codelia", "omp", "envelope", "remcochat"), _MODULES, strict=True)),
}
"""The names that profiles know the built-in formats by, and the module of each."""


class CatalogView(Value, kw_only=True):
    """The catalog as a prompt should show it: the most important skill first. `budget` is in characters of text."""

    skills: Sequence[Skill]
    profile: "Profile"
    offered: Offered
    budget: int | None = None
    fields: Callable[[Skill], Sequence[str]] | None = None
    """The fields of a skill that policy shows besides name and description. `None` means those of the profile."""
    others: Sequence[Skill] = ()
    """The skills of the catalog that are known to have no room. They are counted, and the first are named."""
    chosen: Sequence[Skill] = ()
    """Those of `others` that messages brought in. They follow all others, as far as there is room."""
    named: int = 0
    """How many of `others` are named, in formats that name skills without a description."""

    @property
    def entries(self) -> list[Skill]:
        """The skills to show with a description, in order."""
        return [*self.skills, *self.chosen]

    @property
    def total(self) -> int:
        """The number of all skills of the catalog."""
        return len(self.skills) + len(self.others)


class Activation(Value, kw_only=True):
    """A skill that is being loaded: `loaded` has its parts, `head` is the frontmatter as it stands in the file.

    `command` says that a user called the skill by a slash command.
    """

    loaded: Loaded
    head: str
    profile: "Profile"
    offered: Offered
    arguments: str = ""
    command: bool = False


class Surroundings(Value, kw_only=True):
    """What a tool's definition or result may speak of: the profile, the visible skills, and where the session works.

    For a definition, `visible` is in the order of the prompt, and `offered` and `budget` are those of the prompt.
    """

    profile: "Profile"
    visible: Sequence[Skill]
    scopes: Sequence[str]
    cwd: str
    project: str
    parameters: Mapping[str, Mapping[str, object]]
    """What a model may give to the tool that is being defined: each with its JSON schema."""
    offered: Offered = field(default_factory=dict[Role, str])
    budget: int | None = None


class Definition(Value):
    """A tool's description and JSON schema; its name comes from the profile."""

    description: str
    schema: JsonObject


class Answer(Protocol):
    """What an operation returned: text for the model, and data."""

    @property
    def text(self) -> str: ...

    def as_dict(self) -> JsonObject: ...


class Text(Value):
    """An answer that is text alone."""

    text: str


class Success(Value, kw_only=True):
    """A call that succeeded: what it was for, what the model sent, and what came of it."""

    role: Role
    given: JsonObject
    value: Answer
    time_ms: int
    surroundings: Surroundings


class Failure(Value, kw_only=True):
    """A call that failed. `message` is the error for a model, without paths where the host hides them."""

    role: Role | None
    given: JsonObject
    error: MetierError
    code: str
    message: str
    time_ms: int
    surroundings: Surroundings


class HostFormats(Protocol):
    """The contract of a host's formats. Subclass `metier.hosts.formats.standard.StandardFormats` to change a part.

    A tool whose role is not in `roles` is defined and answered by the standard's formats, so that a user can switch on
    a tool that the host does not have.
    """

    roles: frozenset[Role]
    """The tools that have a definition and a result in this host's shape."""
    needs: frozenset[Role]
    """The tools without which the listing makes no sense. A profile that lists skills so must name them."""
    fills_directory: bool
    """Whether a body's placeholders for the skill's folder are filled in."""

    def listing(self, listed: CatalogView) -> Prompt:
        """The part of the system prompt that shows the catalog. Called only where there is a skill to show."""
        ...

    def wrap(self, activation: Activation) -> str:
        """What the model gets when a skill is loaded."""
        ...

    def define(self, role: Role, surroundings: Surroundings) -> Definition:
        """The definition of a tool."""
        ...

    def fields(self, role: Role, given: "ToolArguments") -> JsonObject:
        """A model's arguments as fields of the operation of that role. Raises `BadArguments`."""
        ...

    def success(self, call: Success) -> ToolResult:
        """The result of a call that succeeded."""
        ...

    def failure(self, call: Failure) -> ToolResult:
        """The result of a call that failed."""
        ...


class ToolArguments:
    """The arguments of a model's call, read by name and checked by type. A wrong one raises `BadArguments`."""

    def __init__(self, given: Mapping[str, object], surroundings: Surroundings) -> None:
        self.given, self.surroundings = given, surroundings

    def text(self, key: str, *, required: bool = False) -> str:
        value = self.given.get(key)
        if value is None or value == "":
            if required:
                raise BadArguments(f"`{key}` is missing; give it as a string", field=key)
            return ""
        if not isinstance(value, str):
            raise BadArguments(f"`{key}` must be a string, not {type(value).__name__}", field=key)
        return value

    def number(self, key: str) -> int | None:
        value = self.given.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
            raise BadArguments(f"`{key}` must be a whole number", field=key)
        return int(value)

    def texts(self, key: str) -> list[str]:
        value = self.given.get(key, [])
        if not is_list(value) or not all(isinstance(item, str) for item in value):
            raise BadArguments(f"`{key}` must be a list of strings", field=key)
        return [str(item) for item in value]


# --- the registry ---


@functools.cache
def find(aspect: Aspect, name: str) -> HostFormats:
    """The formats that a profile names for an aspect. Raises `ConfigError` with the names that there are."""
    import importlib

    module = _BUILT_IN[aspect].get(name)
    if module is not None:
        return importlib.import_module(f"metier.hosts.formats.{module}").FORMATS
    formats = _plugin_formats(name) if name in plugins() else None
    if formats is None:
        raise ConfigError(f"there is no {aspect} {name!r}", key=aspect, hint=f"known: {', '.join(names_of(aspect))}")
    return formats


def exists(aspect: Aspect, name: str) -> bool:
    """Whether a profile may give this name for an aspect."""
    return name in _BUILT_IN[aspect] or name in names_of(aspect)


def names_of(aspect: Aspect) -> list[str]:
    """The names that a profile may give for an aspect: the built-in ones, and installed hosts with formats."""
    return [*_BUILT_IN[aspect], *(name for name in plugins() if _plugin_formats(name) is not None)]


def plugins() -> dict[str, str]:
    """The hosts of installed packages: name to module. It has a `profile.toml` beside it, and maybe `FORMATS`."""
    return installed("metier.hosts")


def plugin_profile(name: str) -> str:
    """The file of an installed host's profile."""
    import importlib.util
    import os

    module = plugins()[name]
    spec = importlib.util.find_spec(module)
    folder = os.path.dirname(spec.origin) if spec is not None and spec.origin else ""
    file = os.path.join(folder, "profile.toml")
    if not folder or not os.path.isfile(file):
        raise ConfigError(f"the host {name!r} has no profile: {module} needs a profile.toml beside it", key="profile")
    return file


def _plugin_formats(name: str) -> HostFormats | None:
    return cast("HostFormats | None", getattr(find_installed("metier.hosts", name), "FORMATS", None))


# --- by profile ---


def listing(listed: CatalogView) -> Prompt:
    """The part of the system prompt that shows the catalog; nothing where there are no skills."""
    return find("format", listed.profile.prompt.format).listing(listed) if listed.total else NOTHING


def wrapper(profile: "Profile") -> HostFormats:
    """The formats that wrap a loaded skill."""
    return find("wrap", profile.load.wrap)


def shapes(profile: "Profile", role: Role | None) -> HostFormats:
    """The formats that define and answer a tool: the host's own where it has one of that role."""
    own = find("shape", profile.tools.shape)
    return own if role is None or role in own.roles else find("shape", "metier")
