"""Merge defaults, files, environment and flags into one frozen `Settings`, and track the origin of each value.

Lowest to highest: the profile, `~/.config/metier/config.toml`, `<project>/.metier/config.toml`, `[tool.metier]` in the
project's pyproject.toml, the environment (`METIER_*` and the host's own variables), the caller. A key is either one of
`RUNTIME_KEYS`, or a setting of the profile that it overrides. A table `[profile.NAME]` applies to one profile only.
What the files of a project may set is in `metier.hosts.project_files`. Settings that wait for trust are checked like
all others, and have no effect. Rules of the user are read with the names of tools that the user's own settings give
them, so that no project changes what they mean.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from metier.errors import ConfigError
from metier.hosts import profiles
from metier.hosts.profiles import Profile
from metier.hosts.project_files import RESTRICTING, USERS_ALONE, ProjectFile, is_file, project_files
from metier.hosts.removed import setting_removed
from metier.hosts.roots import Place, locate, project_of
from metier.hosts.schema import McpSettings, RuntimeSettings
from metier.hosts.trust import trusted_settings
from metier.values.skill import Diagnostic
from metier.values.value import Value, field, replace

RUNTIME_KEYS: Final = RuntimeSettings.__struct_fields__
"""The keys that are not settings of a profile."""
_SCALARS: Final = ("profile", "cache", "store", "store_required", "store_days", "store_megabytes", "telemetry")
"""Those with one value. Each has a variable `METIER_*`, and so has `enabled`."""
REMEMBERED: Final = "permissions.toml"
CONFIG: Final = "config.toml"


class Settings(Value):
    """The whole configuration for one place."""

    profile: Profile
    own_profile: Profile
    """The profile without what a project sets in it, so that rules of the user mean what they mean elsewhere."""
    place: Place
    config_folder: str
    cache_folder: str
    """Empty if scans are not cached."""
    store: str
    """The URL of the event store. By default, one SQLite file in the user's data folder."""
    store_required: bool
    permissions: Mapping[str, Any]
    origins: Mapping[str, str]
    """The file, variable or argument that set each key. Defaults are not listed."""
    diagnostics: tuple[Diagnostic, ...] = ()
    mcp: McpSettings = field(default_factory=McpSettings)
    telemetry: bool = False
    model: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rule_origins: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """The file or argument of each rule in the lists of `permissions`."""
    store_days: int = 90
    store_megabytes: int = 2048
    check_hosts: tuple[str, ...] = ()
    """The profiles that `metier check` checks if none is named."""
    data_folder: str = ""
    """The user's data folder, with the locks of packages. Empty in a replay."""

    @property
    def answers_file(self) -> str:
        """The user's file of remembered answers. Empty if there is no folder for it."""
        return os.path.join(self.config_folder, REMEMBERED) if self.config_folder else ""

    def names_for(self, origin: str) -> Profile:
        """The profile whose names for tools a rule is written in. A project names tools in its own rules only."""
        own_file = os.path.join(self.config_folder, CONFIG)
        return self.profile if os.path.isabs(origin) and origin != own_file else self.own_profile


def resolve(
    cwd: str | os.PathLike[str] | None = None,
    *,
    home: str | os.PathLike[str] | None = None,
    profile: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> Settings:
    """The settings for a working directory."""
    environment = os.environ if env is None else env
    where = _folder(cwd)
    own_home = os.path.abspath(
        os.path.expanduser(str(os.fspath(home)) if home is not None else environment.get("HOME", "~"))
    )
    config_folder = _user_folder(environment, home, own_home, "XDG_CONFIG_HOME", ".config")
    given = {**({"profile": os.fspath(profile)} if profile is not None else {}), **(overrides or {})}
    own_file = os.path.join(config_folder, CONFIG)
    below = [_layer(own_file, profiles.read_toml(own_file))] if os.path.isfile(own_file) else []
    above = [
        _layer("environment", {k: v for k in (*_SCALARS, "enabled") if (v := environment.get(f"METIER_{k.upper()}"))}),
        _layer("argument", given),
    ]
    files = tuple(project_files(project_of(where)))
    theirs = [_layer(file.path, file.values) for file in files]
    own = applied = _applied([*below, *above], environment)
    if files:
        applied = _with_project([*below, *theirs, *above], own, environment, {file.path for file in files}, own_file)
    waits = _waiting(files, trusted_settings(config_folder, project_of(where))) if files else None
    if waits is not None:
        theirs = [_layer(file.path, file.narrowing) for file in files]
        applied = own._replace(notes=[*own.notes, *(note for note in applied.notes if note.code == waits.code), waits])
    layers, notes = [*below, *theirs, *above], [*applied.notes]
    runtime, origins = applied.runtime, dict(applied.origins)
    data_folder = _user_folder(environment, home, own_home, "XDG_DATA_HOME", ".local/share")
    sources: dict[str, list[str]] = {}
    permissions = _permissions(layers, own_file, origins, sources, notes)
    mcp = _mcp(layers, own_file, notes, origins)
    model = _model(layers, own_file, notes, origins)
    raw, own_raw = applied.raw, own.raw
    if runtime.profile != own.runtime.profile and not is_file(runtime.profile):
        own_raw = _overridden(runtime.profile, [*below, *above], environment, [], {})
    if "trust" in permissions:
        asked = {"policy.trust": permissions.pop("trust")}
        origin = f"permissions.trust, set by {origins['permissions.trust']}"
        raw, own_raw = (profiles.override(one, asked, origin=origin).raw for one in (raw, own_raw))
    built, own_profile = profiles.build(raw), profiles.build(own_raw)
    place, diagnostics = locate(built, where, own_home, environment)
    check_hosts = _check_hosts(layers, origins)
    cache_folder = _user_folder(environment, home, own_home, "XDG_CACHE_HOME", ".cache")
    return Settings(
        profile=built,
        own_profile=own_profile,
        place=place,
        config_folder=config_folder,
        cache_folder=cache_folder if runtime.cache else "",
        store=runtime.store if "store" in origins else os.path.join(data_folder, "metier.db"),
        store_required=runtime.store_required,
        store_days=runtime.store_days,
        store_megabytes=runtime.store_megabytes,
        permissions=permissions,
        rule_origins=sources,
        origins=origins,
        diagnostics=(*notes, *diagnostics),
        mcp=mcp,
        telemetry=runtime.telemetry,
        model=model,
        check_hosts=check_hosts,
        data_folder=data_folder,
    )


# --- layers ---


class Layer(Value):
    """The settings of one file, the environment or the caller. `scoped` maps profile names to their own settings."""

    origin: str
    values: Mapping[str, Any]
    scoped: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])

    @property
    def file(self) -> str:
        return self.origin if self.origin.endswith(".toml") else ""


class _Applied(NamedTuple):
    """What layers make of the keys with one value, and of a profile."""

    runtime: RuntimeSettings
    raw: profiles.Raw
    origins: Mapping[str, str]
    notes: list[Diagnostic]


def _layer(origin: str, values: Mapping[str, Any]) -> Layer:
    """A layer that separates the tables of single profiles from the settings for all profiles."""
    chosen: object = values.get("profile")
    if not isinstance(chosen, Mapping):
        return Layer(origin, values)
    table = dict(cast("Mapping[str, Any]", chosen))
    rest = {key: value for key, value in values.items() if key != "profile"}
    if "use" in table:
        rest["profile"] = table.pop("use")
    file = origin if origin.endswith(".toml") else ""
    for name, settings in table.items():
        if not isinstance(settings, Mapping):
            hint = 'choose a profile with use = "NAME", and give settings in a table of its name'
            raise ConfigError(f"profile.{name} must be a table", file=file, key=f"profile.{name}", hint=hint)
    return Layer(origin, rest, table)


def _applied(layers: Sequence[Layer], environment: Mapping[str, str]) -> _Applied:
    notes: list[Diagnostic] = []
    origins: dict[str, str] = {}
    runtime = _runtime(layers, origins)
    return _Applied(runtime, _overridden(runtime.profile, layers, environment, notes, origins), origins, notes)


def _with_project(
    layers: Sequence[Layer], own: _Applied, environment: Mapping[str, str], theirs: Collection[str], own_file: str
) -> _Applied:
    """The same with the files of a project, which leave what is the user's alone as `own` has it."""
    found = _applied(layers, environment)
    runtime, raw, origins = found.runtime, found.raw, dict(found.origins)
    own_profile, profile = profiles.build(own.raw), profiles.build(raw)
    for key in USERS_ALONE:
        if key in RUNTIME_KEYS:
            value = getattr(own.runtime, key)
            changed = origins.get(key) in theirs
            runtime = replace(runtime, **{key: value}) if changed else runtime
        else:
            value = profiles.value(own_profile, key)
            changed = profiles.value(profile, key) != value
            raw = profiles.with_value(raw, key, value) if changed else raw
        if changed:
            origin = origins.pop(key, "") or origins.get("profile", "")
            found.notes.append(_only_by_user(key, origin, own_file))
            origins |= {key: own.origins[key]} if key in own.origins else {}
    return _Applied(runtime, raw, origins, found.notes)


def _waiting(files: Sequence[ProjectFile], trusted: Mapping[str, str] | None) -> Diagnostic | None:
    """What waits for trust in the files of a project. `trusted` has the settings that the user trusted."""
    waiting = {key: value for file in files for key, value in file.waiting.items()}
    if not waiting or waiting == trusted:
        return None
    if trusted is None:
        message = f"these settings wait until you trust the project: {_few(list(waiting))}"
    else:
        different = _few(changes(trusted, waiting))
        message = f"the settings of the project wait, because they changed since you trusted it: {different}"
    file = next(file.path for file in files if file.waiting)
    return Diagnostic("untrusted", "warning", message, file, hint="run `metier trust` to trust it")


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is different in the settings of a project."""
    removed = [f"- {key} = {_short(value)}" for key, value in before.items() if now.get(key) != value]
    return [*removed, *(f"+ {key} = {_short(value)}" for key, value in now.items() if before.get(key) != value)]


def _short(value: str) -> str:
    return value if len(value) <= 200 else f"{value[:199]}…"


def _few(items: Sequence[str]) -> str:
    more = len(items) - 20
    return ", ".join((*items[:20], *((f"and {more:,} more",) if more > 0 else ())))


def _runtime(layers: Sequence[Layer], origins: dict[str, str]) -> RuntimeSettings:
    """The keys with one value that are not settings of a profile. The highest layer wins."""
    found: dict[str, Any] = {}
    for layer in layers:
        for key in (key for key in _SCALARS if key in layer.values):
            found[key] = _value(key, layer)
            origins[key] = layer.origin
    return RuntimeSettings(**found)


def _value(key: str, layer: Layer) -> Any:
    value = profiles.runtime_value(key, layer.values[key], layer.file)
    _check_number(value, key, layer.file)
    return value


def _check_number(value: object, key: str, file: str) -> None:
    if isinstance(value, int) and not 0 <= value < 10**9:
        raise ConfigError(f"{key} must be a whole number, 0 or more", file=file, key=key)


def _check_hosts(layers: Sequence[Layer], origins: dict[str, str]) -> tuple[str, ...]:
    """The hosts that `metier check` requires."""
    chosen: tuple[str, ...] = ()
    for layer in layers:
        if "check" in layer.values:
            chosen = profiles.runtime_value("check", layer.values["check"], layer.file).hosts
            origins["check"] = layer.origin
    return chosen


def _overridden(
    name: str,
    layers: Sequence[Layer],
    environment: Mapping[str, str],
    notes: list[Diagnostic],
    origins: dict[str, str],
) -> profiles.Raw:
    """The values of a profile with the settings of all layers. In a layer, settings for this profile only come last."""
    raw = profiles.load(name)
    if is_file(name):
        file = profiles.find(name)
        notes += (
            setting_removed(key, file, profiles.locate(file, key)) for key in profiles.gone(profiles.read_toml(file))
        )
    for layer in layers:
        own = {key: value for key, value in layer.values.items() if key not in RUNTIME_KEYS}
        if layer.origin == "environment":
            listed = cast("dict[str, str]", raw.get("environment", {}))
            own.update((setting, environment[name]) for name, setting in listed.items() if environment.get(name))
        for scoped in layer.scoped:
            _check_profile_name(scoped, raw, layer)
        for settings in (own, layer.scoped.get(str(raw["name"]), {})):
            if not settings:
                continue
            done = profiles.override(
                raw, settings, file=layer.file, origin="" if layer.file else f"set by {layer.origin}"
            )
            raw = done.raw
            origins.update(dict.fromkeys(done.names, layer.origin))
            notes += (_elsewhere(key, layer) for key in done.elsewhere)
            notes += (setting_removed(key, layer.file, profiles.locate(layer.file, key)) for key in done.gone)
    return raw


def _check_profile_name(name: str, raw: profiles.Raw, layer: Layer) -> None:
    if name != raw["name"] and name not in profiles.BUILT_IN and name not in profiles.names():
        hint = f"known: {', '.join(profiles.names())}"
        raise ConfigError(f"there is no profile {name!r}", file=layer.file, key=f"profile.{name}", hint=hint)


def _elsewhere(key: str, layer: Layer) -> Diagnostic:
    message = f"{key} is a setting of another host and has no effect in this profile"
    hint = f"put it into a table [profile.NAME] of {layer.origin}" if layer.file else ""
    return Diagnostic("setting-elsewhere", "info", message, layer.file, hint=hint)


# --- permissions, servers, the model ---


def _permissions(
    layers: Sequence[Layer],
    own_file: str,
    origins: dict[str, str],
    sources: dict[str, list[str]],
    notes: list[Diagnostic],
) -> dict[str, Any]:
    """The rules of all layers. A project's files can only narrow: of theirs, only deny and ask rules count."""
    merged: dict[str, Any] = {}
    for layer in layers:
        origin, given = layer.origin, layer.values.get("permissions", {})
        if not isinstance(given, Mapping):
            raise ConfigError("permissions must be a table", file=origin, key="permissions")
        narrowing = origin.endswith(".toml") and origin != own_file
        for key, value in cast("Mapping[str, Any]", given).items():
            if narrowing and key not in RESTRICTING:
                notes.append(_only_by_user(f"permissions.{key}", origin, own_file))
                continue
            joined = isinstance(value, list) and isinstance(merged.get(key), list)
            merged[key] = [*merged[key], *cast("list[Any]", value)] if joined else value
            origins[f"permissions.{key}"] = origin
            if isinstance(value, list):
                sources[key] = [*(sources[key] if joined else ()), *([origin] * len(cast("list[Any]", value)))]
    return merged


def _only_by_user(key: str, origin: str, own_file: str) -> Diagnostic:
    message = f"{key} does not count, because only the user may set it"
    hint = f"put it into {own_file}" if own_file != origin else ""
    return Diagnostic("untrusted", "warning", message, origin, hint=hint)


def _own(key: str, layers: Sequence[Layer], own_file: str, notes: list[Diagnostic]) -> Iterator[tuple[str, Any]]:
    """The values of a key in the user's own layers. Values in other layers are reported and ignored."""
    for layer in layers:
        given: Any = layer.values.get(key)
        if given is not None and layer.origin in (own_file, "argument"):
            yield layer.origin, given
        elif given is not None:
            notes.append(_only_by_user(key, layer.origin, own_file))


def _mcp(layers: Sequence[Layer], own_file: str, notes: list[Diagnostic], origins: dict[str, str]) -> McpSettings:
    """The user's MCP servers. A project cannot add any, trusted or not, because they start programs."""
    merged: dict[str, Any] = {}
    for origin, given in _own("mcp", layers, own_file, notes):
        if not given:
            raise ConfigError("mcp must be a table with servers or limits", file=origin, key="mcp")
        table = profiles.build_table(McpSettings, given, "mcp", origin)
        for key in ("instructions_chars", "description_chars"):
            _check_number(getattr(table, key), f"mcp.{key}", origin)
        merged |= {key: getattr(table, key) for key in given} | {"servers": merged.get("servers", {}) | table.servers}
        origins["mcp"] = origin
    return McpSettings(**merged)


def _model(layers: Sequence[Layer], own_file: str, notes: list[Diagnostic], origins: dict[str, str]) -> dict[str, Any]:
    """The model of the chat. A project cannot choose it, trusted or not, because it receives the conversation."""
    chosen: dict[str, Any] = {}
    for origin, given in _own("model", layers, own_file, notes):
        if not isinstance(given, Mapping):
            raise ConfigError("model must be a table", file=origin if origin == own_file else "", key="model")
        chosen.update(cast("Mapping[str, Any]", given))
        origins["model"] = origin
    return chosen


def _folder(cwd: str | os.PathLike[str] | None) -> str:
    try:
        path = os.path.abspath(os.path.expanduser(str(os.fspath(cwd)))) if cwd is not None else os.getcwd()
    except FileNotFoundError as error:
        raise ConfigError("the working directory does not exist any more", key="cwd") from error
    if not os.path.isdir(path):
        raise ConfigError(f"the working directory {path} does not exist", key="cwd")
    return path


def _user_folder(env: Mapping[str, str], given: object, home: str, variable: str, below: str) -> str:
    """Metier's config, data or cache folder: below `home` if one was given, else as the XDG standard says."""
    base = env.get(variable, "") if given is None else ""
    return os.path.join(base if os.path.isabs(base) else os.path.join(home, below), "metier")
