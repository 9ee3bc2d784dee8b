"""Merge defaults, files, environment and flags into one frozen `Settings`, and track the origin of each value.

Lowest to highest: the profile, `~/.config/metier/config.toml`, `<project>/.metier/config.toml`, `[tool.metier]` in the
project's pyproject.toml, the environment (`METIER_*` and the host's own variables), the caller. A key is either one of
`RUNTIME_KEYS`, or a setting of the profile that it overrides. A table `[profile.NAME]` applies to one profile only.
A project's files can only narrow what is allowed, unless the user trusts the project. `metier.hosts.authority` has the
rule for each setting; a value that does not count is reported.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from msgspec import Struct

from metier import limits
from metier.errors import ConfigError
from metier.files.beneath import read_regular
from metier.hosts import profiles
from metier.hosts.authority import authorities, authority
from metier.hosts.profiles import Profile
from metier.hosts.roots import Place, locate, project_of
from metier.hosts.schema import McpSettings, RuntimeSettings
from metier.hosts.trust import is_trusted
from metier.values.skill import Diagnostic
from metier.values.value import Value, field, replace

RUNTIME_KEYS: Final = RuntimeSettings.__struct_fields__
"""The keys that are not settings of a profile."""
_SCALARS: Final = ("profile", "cache", "store", "store_required", "store_days", "store_megabytes", "telemetry")
"""Those with one value. Each has a variable `METIER_*`, and so has `enabled`."""
REMEMBERED: Final = "permissions.toml"


class Settings(Value):
    """The whole configuration for one place."""

    profile: Profile
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
    notes: list[Diagnostic] = []
    given = {**({"profile": os.fspath(profile)} if profile is not None else {}), **(overrides or {})}
    layers = [
        *_files(where, config_folder),
        _layer("environment", {k: v for k in (*_SCALARS, "enabled") if (v := environment.get(f"METIER_{k.upper()}"))}),
        _layer("argument", given),
    ]
    origins: dict[str, str] = {}
    own_file = os.path.join(config_folder, "config.toml")
    user = None if all(layer.trusted for layer in layers) else _UserSettings.of(layers, own_file, environment)
    if user is not None:
        layers = [user.runtime_of(layer, notes) for layer in layers]
    runtime = _runtime(layers, own_file, notes, origins)
    data_folder = _user_folder(environment, home, own_home, "XDG_DATA_HOME", ".local/share")
    raw = _overridden(runtime.profile, layers, environment, notes, origins, user)
    sources: dict[str, list[str]] = {}
    permissions = _permissions(layers, own_file, origins, sources, notes)
    mcp = _mcp(layers, own_file, notes, origins)
    model = _model(layers, own_file, notes, origins)
    if "trust" in permissions:
        asked = {"policy.trust": permissions.pop("trust")}
        origin = f"permissions.trust, set by {origins['permissions.trust']}"
        raw = profiles.override(raw, asked, origin=origin).raw
    built = profiles.build(raw)
    place, diagnostics = locate(built, where, own_home, environment)
    check_hosts = _check_hosts(layers, notes, origins)
    cache_folder = _user_folder(environment, home, own_home, "XDG_CACHE_HOME", ".cache")
    return Settings(
        profile=built,
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
    trusted: bool = True

    @property
    def file(self) -> str:
        return self.origin if self.origin.endswith(".toml") else ""


def _layer(origin: str, values: Mapping[str, Any], *, trusted: bool = True) -> Layer:
    """A layer that separates the tables of single profiles from the settings for all profiles."""
    chosen: object = values.get("profile")
    if not isinstance(chosen, Mapping):
        return Layer(origin, values, trusted=trusted)
    table = dict(cast("Mapping[str, Any]", chosen))
    rest = {key: value for key, value in values.items() if key != "profile"}
    if "use" in table:
        rest["profile"] = table.pop("use")
    file = origin if origin.endswith(".toml") else ""
    for name, settings in table.items():
        if not isinstance(settings, Mapping):
            hint = 'choose a profile with use = "NAME", and give settings in a table of its name'
            raise ConfigError(f"profile.{name} must be a table", file=file, key=f"profile.{name}", hint=hint)
    return Layer(origin, rest, table, trusted)


def _runtime(
    layers: Sequence[Layer], own_file: str, notes: list[Diagnostic], origins: dict[str, str]
) -> RuntimeSettings:
    """The keys with one value that are not settings of a profile. The highest layer wins.

    How long the store keeps records is the user's alone: the store has those of other projects, too.
    """
    found: dict[str, Any] = {}
    for layer in layers:
        for key in (key for key in _SCALARS if key in layer.values):
            if key in ("store_days", "store_megabytes") and layer.file not in ("", own_file):
                notes.append(_only_by_user(key, layer.origin, own_file))
            else:
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


def _is_file(profile: str) -> bool:
    return os.sep in profile or profile.endswith(".toml")


def _check_hosts(layers: Sequence[Layer], notes: list[Diagnostic], origins: dict[str, str]) -> tuple[str, ...]:
    """The hosts that `metier check` requires. A project that is not trusted can name hosts, but no files."""
    chosen: tuple[str, ...] = ()
    for layer in layers:
        if "check" in layer.values:
            hosts = profiles.runtime_value("check", layer.values["check"], layer.file).hosts
            chosen = tuple(host for host in hosts if layer.trusted or not _is_file(host))
            if chosen != hosts:
                notes.append(_does_not_count("check.hosts", layer))
            origins["check"] = layer.origin
    return chosen


def _overridden(
    name: str,
    layers: Sequence[Layer],
    environment: Mapping[str, str],
    notes: list[Diagnostic],
    origins: dict[str, str],
    user: "_UserSettings | None" = None,
) -> profiles.Raw:
    """The values of a profile with the settings of all layers. In a layer, settings for this profile only come last.

    `user` decides about the settings of a project that is not trusted.
    """
    raw = profiles.load(name) if user is None else user.profile_of(name)
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
            if user is not None and not layer.trusted:
                settings = user.settings_of(layer, settings, raw, notes)
            done = profiles.override(
                raw, settings, file=layer.file, origin="" if layer.file else f"set by {layer.origin}"
            )
            raw = done.raw
            if user is not None and layer.origin == user.file:
                user.names.update(done.names)
            origins.update(dict.fromkeys(done.names, layer.origin))
            notes += (_elsewhere(key, layer) for key in done.elsewhere)
    return raw


def _check_profile_name(name: str, raw: profiles.Raw, layer: Layer) -> None:
    if name != raw["name"] and name not in profiles.BUILT_IN and name not in profiles.names():
        hint = f"known: {', '.join(profiles.names())}"
        raise ConfigError(f"there is no profile {name!r}", file=layer.file, key=f"profile.{name}", hint=hint)


def _elsewhere(key: str, layer: Layer) -> Diagnostic:
    message = f"{key} is a setting of another host and has no effect in this profile"
    hint = f"put it into a table [profile.NAME] of {layer.origin}" if layer.file else ""
    return Diagnostic("setting-elsewhere", "info", message, layer.file, hint=hint)


# --- the files of a project that is not trusted ---


class _UserSettings(Struct):
    """What holds without the files of an untrusted project, and so what these can only narrow."""

    file: str
    profile: str
    """The profile that the user, the environment or the caller chose."""
    required: bool
    """Whether the user requires trust."""
    names: set[str]
    """The settings in the user's own file."""

    @classmethod
    def of(cls, layers: Sequence[Layer], file: str, environment: Mapping[str, str]) -> "_UserSettings":
        own = [layer for layer in layers if layer.trusted]
        profile = _runtime(own, file, [], {}).profile
        names = {key for layer in own if layer.origin == file for key in layer.values}
        user = cls(file, profile, _requires_trust(profile, own, environment), names)
        if not user.required:
            # The user may require trust only for the profile that the project chooses.
            counted = [user.runtime_of(layer, []) for layer in layers]
            chosen = _runtime(counted, file, [], {}).profile
            user.required = chosen != profile and _requires_trust(chosen, own, environment)
        return user

    def runtime_of(self, layer: Layer, notes: list[Diagnostic]) -> Layer:
        """A layer without the keys of `RUNTIME_KEYS` that do not count. Each of those is reported."""
        if layer.trusted:
            return layer
        kept = dict(layer.values)
        for key in (key for key in _SCALARS if key in kept):
            value = _value(key, layer)
            is_file = key == "profile" and _is_file(str(value))
            set_by_user = key in self.names
            if is_file or not authority(key).counts(None, value, required=self.required, set_by_user=set_by_user):
                del kept[key]
                notes.append(_does_not_count(key, layer))
        return replace(layer, values=kept)

    def profile_of(self, name: str) -> profiles.Raw:
        """The values of a profile. One that only the project chose does not widen what needs trust."""
        raw = profiles.load(name)
        if name == self.profile:
            return raw
        chosen, own = profiles.build(raw), profiles.build(profiles.load(self.profile))
        for key, rule in authorities().items():
            if rule.who == "trusted" and rule.narrower is not None:
                old, new = profiles.value(own, key), profiles.value(chosen, key)
                if not rule.counts(old, new, required=True, set_by_user=False):
                    raw = profiles.with_value(raw, key, old)
        return raw

    def settings_of(
        self, layer: Layer, settings: Mapping[str, Any], raw: profiles.Raw, notes: list[Diagnostic]
    ) -> dict[str, Any]:
        """The settings of an untrusted layer that count. The others are reported, and wrong ones are errors as ever."""
        profiles.override(raw, settings, file=layer.file)
        counted: dict[str, Any] = {}
        for key, value in profiles.flatten(settings):
            name = profiles.canonical(raw, key)
            if name is None:
                counted[key] = value  # a setting of another host, which is reported as such
                continue
            changed = profiles.with_value(raw, name, value)
            old, new = profiles.value(profiles.build(raw), name), profiles.value(profiles.build(changed), name)
            if authority(name).counts(old, new, required=self.required, set_by_user=name in self.names):
                counted[key], raw = value, changed
            else:
                notes.append(_does_not_count(key, layer))
        return counted


def _requires_trust(profile: str, layers: Sequence[Layer], environment: Mapping[str, str]) -> bool:
    """Whether these layers ask for trust under a profile."""
    asked: object = None
    for layer in layers:
        given: object = layer.values.get("permissions")
        if isinstance(given, Mapping) and "trust" in given:
            asked = cast("Mapping[str, object]", given)["trust"]
    rules = profiles.build(_overridden(profile, layers, environment, [], {}))
    return (asked or rules.policy.trust) == "required"


def _does_not_count(key: str, layer: Layer) -> Diagnostic:
    message = f"{key} does not count, because the project is not trusted"
    return Diagnostic("untrusted", "warning", message, layer.origin, hint="run `metier trust` to trust it")


# --- permissions, servers, the model ---


def _permissions(
    layers: Sequence[Layer],
    own_file: str,
    origins: dict[str, str],
    sources: dict[str, list[str]],
    notes: list[Diagnostic],
) -> dict[str, Any]:
    """The rules of all layers. A project's files can only narrow: of theirs, only deny and ask rules count."""
    narrows = authority("permissions").counts
    merged: dict[str, Any] = {}
    for layer in layers:
        origin, given = layer.origin, layer.values.get("permissions", {})
        if not isinstance(given, Mapping):
            raise ConfigError("permissions must be a table", file=origin, key="permissions")
        narrowing = origin.endswith(".toml") and origin != own_file
        for key, value in cast("Mapping[str, Any]", given).items():
            if narrowing and not narrows({}, {key: value}, required=True, set_by_user=False):
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


def _files(cwd: str, config_folder: str) -> list[Layer]:
    """The layers of the user's file and the project's."""
    project = project_of(cwd)
    own = os.path.join(config_folder, "config.toml")
    trusted = is_trusted(config_folder, project)
    layers: list[Layer] = [_layer(own, profiles.read_toml(own))] if os.path.isfile(own) else []
    layers += (_layer(file, values, trusted=trusted) for file, values in _project_files(project))
    return layers


def _project_files(project: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    config, pyproject = os.path.join(project, ".metier", "config.toml"), os.path.join(project, "pyproject.toml")
    if os.path.isfile(config):
        yield config, profiles.read_toml(config)
    start = b""
    with contextlib.suppress(OSError):
        start = read_regular(pyproject, limits.REGISTRY_BYTES, start=True)
    if b"tool.metier" in start:  # most files do not mention Metier and are not parsed
        table: object = profiles.read_toml(pyproject).get("tool", {}).get("metier", {})
        if not isinstance(table, dict):
            raise ConfigError("[tool.metier] must be a table", file=pyproject, key="tool.metier")
        yield pyproject, cast("Mapping[str, Any]", table)
