"""Defaults, files, environment and flags become one frozen `Settings`, and each value remembers where it came from.

Lowest to highest: the profile, `~/.config/metier/config.toml`, `<project>/.metier/config.toml`, `[tool.metier]` in the
project's pyproject.toml, the environment (`METIER_*` and the host's own variables), the caller. A key is either one of
`RUNTIME_KEYS` or a setting of the profile, which it overrides. A project's files may only narrow what is allowed; what
reaches beyond the project (its store, its limits on scripts, its habits in policy) counts only where it is trusted.
"""

import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from metier.errors import ConfigError
from metier.hosts import profiles
from metier.hosts.profiles import Profile
from metier.hosts.roots import Place, locate
from metier.hosts.trust import trusted_projects
from metier.model import Diagnostic

RUNTIME_KEYS: Final[Mapping[str, str]] = {
    "profile": "the host whose rules apply",
    "cache": "whether scans are remembered on disk",
    "store": "where the command line and the servers keep events: memory:, a path, sqlite:///path, postgresql://...",
    "store_required": "whether commands and servers stop where events cannot be kept; else they warn and go on",
    "telemetry": "whether servers trace with OpenTelemetry, by the providers of their process; needs the extra otel",
    "model": "what answers in the chat: provider, name, base_url, tools, timeout; only in the user's own file",
    "mcp": "servers.NAME, each with a command or a url: their skills are in the catalog; only in the user's own file",
    "permissions": 'the policy: its profile, the lists allow, deny and ask, redact, and trust = "required"',
}
"""The keys that are not settings of a profile."""
REMEMBERED: Final = "permissions.toml"
_REACHING: Final = ("store", "store_required", "telemetry", "run.", "policy.")
"""Where the keys of a project's files begin that count only if it is trusted; a profile file of its own is another."""
_MARKERS: Final = ((".metier", ".git", ".jj", ".hg"), ("pyproject.toml",))
"""What a project's root holds; a package's file counts only where there is no repository around it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that is configured, for one place."""

    profile: Profile
    place: Place
    config_folder: str
    cache_folder: str
    """Empty where scans are not remembered."""
    store: str
    """The URL of the event store; by default one SQLite file in the user's data folder."""
    store_required: bool
    permissions: Mapping[str, Any] = field(hash=False)
    origins: Mapping[str, str] = field(hash=False)
    """Which file, variable or argument set a key that is not a default."""
    diagnostics: tuple[Diagnostic, ...] = ()
    mcp_servers: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    telemetry: bool = False
    model: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)


def resolve(
    cwd: str | os.PathLike[str] | None = None,
    *,
    home: str | os.PathLike[str] | None = None,
    profile: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> Settings:
    """The settings that hold in a working directory."""
    environment = os.environ if env is None else env
    where = _folder(cwd)
    own_home = os.path.abspath(
        os.path.expanduser(str(os.fspath(home)) if home is not None else environment.get("HOME", "~"))
    )
    config_folder = _user_folder(environment, home, own_home, "XDG_CONFIG_HOME", ".config")
    layers, untrusted = _files(where, config_folder)
    notes: list[Diagnostic] = []
    layers.append(("environment", _from_environment(environment)))
    layers.append(
        ("argument", {**({"profile": os.fspath(profile)} if profile is not None else {}), **(overrides or {})})
    )

    name, use_cache, store_required, telemetry = "standard", True, False, False
    store = os.path.join(_user_folder(environment, home, own_home, "XDG_DATA_HOME", ".local/share"), "metier.db")
    origins: dict[str, str] = {}
    for number, (origin, given) in enumerate(layers):
        values = _harmless(origin, given, notes) if origin in untrusted else given
        layers[number] = (origin, values)
        if "profile" in values:
            name, origins["profile"] = _text(values["profile"], "profile", origin), origin
        if "store" in values:
            store, origins["store"] = _text(values["store"], "store", origin), origin
        if "cache" in values:
            use_cache, origins["cache"] = _flag(values["cache"], "cache", origin), origin
        if "store_required" in values:
            value = values["store_required"]
            store_required, origins["store_required"] = _flag(value, "store_required", origin), origin
        if "telemetry" in values:
            telemetry, origins["telemetry"] = _flag(values["telemetry"], "telemetry", origin), origin
    raw = profiles.load(name)
    for origin, values in layers:
        own = {key: value for key, value in values.items() if key not in RUNTIME_KEYS}
        file = origin if origin.endswith(".toml") else ""
        if origin == "environment":
            own.update(_host_environment(raw, environment))
        if origin in untrusted:
            own = _harmless(origin, dict(profiles.flatten(own)), notes, functools.partial(profiles.canonical, raw))
        raw, names = profiles.override(raw, own, file=file, origin="" if file else f"set by {origin}")
        origins.update(dict.fromkeys(names, origin))
    permissions = _permissions(layers, os.path.join(config_folder, "config.toml"), config_folder, origins)
    mcp_servers = _mcp_servers(layers, os.path.join(config_folder, "config.toml"), notes, origins)
    model = _model(layers, os.path.join(config_folder, "config.toml"), notes, origins)
    if "trust" in permissions:
        asked = {"policy.trust": permissions.pop("trust")}
        raw, _ = profiles.override(raw, asked, origin=f"permissions.trust, set by {origins['permissions.trust']}")
    built = profiles.build(raw)
    place, diagnostics = locate(built, where, own_home, environment)
    cache_folder = _user_folder(environment, home, own_home, "XDG_CACHE_HOME", ".cache") if use_cache else ""
    return Settings(
        built, place, config_folder, cache_folder, store, store_required, permissions, origins, (*notes, *diagnostics),
        mcp_servers, telemetry, model,
    )  # fmt: skip


def _permissions(
    layers: list[tuple[str, Mapping[str, Any]]], trusted_file: str, config_folder: str, origins: dict[str, str]
) -> dict[str, Any]:
    """The rules of all layers together. A project's files only narrow: their allow rules and profile do not count."""
    merged: dict[str, Any] = {}
    remembered = os.path.join(config_folder, REMEMBERED)
    if os.path.isfile(remembered):
        layers = [(remembered, {"permissions": profiles.read_toml(remembered)}), *layers]
    for origin, values in layers:
        given = values.get("permissions", {})
        if not isinstance(given, Mapping):
            raise ConfigError("permissions must be a table", file=origin, key="permissions")
        narrowing = origin.endswith(".toml") and origin not in (trusted_file, remembered)
        for key, value in cast("Mapping[str, Any]", given).items():
            if narrowing and key not in ("deny", "ask"):
                continue
            joined = isinstance(value, list) and isinstance(merged.get(key), list)
            merged[key] = [*merged[key], *cast("list[Any]", value)] if joined else value
            origins[f"permissions.{key}"] = origin
    return merged


def _own(
    key: str, layers: list[tuple[str, Mapping[str, Any]]], own_file: str, notes: list[Diagnostic]
) -> Iterator[tuple[str, Any]]:
    """What the layers that are the user's own say of a key; what others say is remarked and does not count."""
    for origin, values in layers:
        given: Any = values.get(key)
        if given is not None and origin in (own_file, "argument"):
            yield origin, given
        elif given is not None:
            notes.append(Diagnostic("untrusted", "warning", f"{key} counts only in the user's own file", origin))


def _mcp_servers(
    layers: list[tuple[str, Mapping[str, Any]]], own_file: str, notes: list[Diagnostic], origins: dict[str, str]
) -> dict[str, Any]:
    """The servers that the user named. A project cannot name any, trusted or not: it would start programs."""
    servers: dict[str, Any] = {}
    for origin, given in _own("mcp", layers, own_file, notes):
        table = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else dict[str, Any]()
        named: Any = table.get("servers")
        if not isinstance(named, Mapping):
            raise ConfigError("mcp must be a table with a table of servers", file=origin, key="mcp")
        servers.update(cast("Mapping[str, Any]", named))
        origins["mcp"] = origin
    return servers


def _model(
    layers: list[tuple[str, Mapping[str, Any]]], own_file: str, notes: list[Diagnostic], origins: dict[str, str]
) -> dict[str, Any]:
    """The model of the chat. A project cannot choose it, trusted or not: it would send what is said elsewhere."""
    chosen: dict[str, Any] = {}
    for origin, given in _own("model", layers, own_file, notes):
        if not isinstance(given, Mapping):
            raise ConfigError("model must be a table", file=origin if origin == own_file else "", key="model")
        chosen.update(cast("Mapping[str, Any]", given))
        origins["model"] = origin
    return chosen


def remember(config_folder: str, rule: Mapping[str, str]) -> None:
    """Add an allow rule to the user's file of answers. What stands there, comments included, stays as it is."""
    import tomllib

    file = os.path.join(config_folder, REMEMBERED)
    lines = "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in rule.items())
    lines = lines.replace("\x7f", "\\u007f")  # the one character that JSON leaves and TOML refuses
    try:
        os.makedirs(config_folder, exist_ok=True)
        with open(file, "a+", encoding="utf-8") as stream:
            stream.seek(0)
            text = stream.read()
            added = f"\n[[allow]]\n{lines}"
            if not text:
                added = f"# Answers that were to be remembered; delete one to be asked again.\n{added}"
            tomllib.loads(f"{text}\n{added}")
            stream.write(added if text.endswith("\n") or not text else f"\n{added}")
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=file) from error
    except ValueError as error:
        hint = "write its rules as [[allow]] tables, or delete it"
        raise ConfigError(f"the answer cannot be added: {error}", file=file, hint=hint) from error


def _folder(cwd: str | os.PathLike[str] | None) -> str:
    try:
        path = os.path.abspath(os.path.expanduser(str(os.fspath(cwd)))) if cwd is not None else os.getcwd()
    except FileNotFoundError as error:
        raise ConfigError("the working directory does not exist any more", key="cwd") from error
    if not os.path.isdir(path):
        raise ConfigError(f"the working directory {path} does not exist", key="cwd")
    return path


def _user_folder(env: Mapping[str, str], given: object, home: str, variable: str, below: str) -> str:
    """Metier's folder of a kind: below a home that was given, else where the desktop standard says."""
    base = env.get(variable, "") if given is None else ""
    return os.path.join(base if os.path.isabs(base) else os.path.join(home, below), "metier")


def _files(cwd: str, config_folder: str) -> tuple[list[tuple[str, Mapping[str, Any]]], list[str]]:
    """The files and what they say, and those of them that belong to a project nobody has trusted."""
    project = project_of(cwd)
    files = (os.path.join(config_folder, "config.toml"), os.path.join(project, ".metier", "config.toml"))
    layers: list[tuple[str, Mapping[str, Any]]] = [
        (file, profiles.read_toml(file)) for file in files if os.path.isfile(file)
    ]
    pyproject = os.path.join(project, "pyproject.toml")
    if os.path.isfile(pyproject) and b"tool.metier" in _peek(pyproject):
        table: Any = profiles.read_toml(pyproject).get("tool", {}).get("metier", {})
        if not isinstance(table, dict):
            raise ConfigError("[tool.metier] must be a table", file=pyproject, key="tool.metier")
        layers.append((pyproject, cast("Mapping[str, Any]", table)))
    own = os.path.join(config_folder, "config.toml")
    trusted = os.path.realpath(project) in trusted_projects(config_folder)
    return layers, [file for file, _ in layers if file != own and not trusted]


def _harmless(
    file: str,
    values: Mapping[str, Any],
    notes: list[Diagnostic],
    canonical: Callable[[str], str | None] = lambda key: key,
) -> dict[str, Any]:
    """The settings of a project that nobody has trusted, without those that reach beyond it."""
    reaching = [key for key in values if (canonical(key) or "").startswith(_REACHING)]
    profile = values.get("profile")
    if isinstance(profile, str) and (os.sep in profile or profile.endswith(".toml")):
        reaching.append("profile")
    for key in reaching:
        message = f"{key} does not count, because the project is not trusted"
        notes.append(Diagnostic("untrusted", "warning", message, file, hint="run `metier trust` to trust it"))
    return {key: value for key, value in values.items() if key not in reaching}


def project_of(cwd: str) -> str:
    """The folder whose `.metier/config.toml` and pyproject.toml count in a working directory."""
    for markers in _MARKERS:
        folder, parent = cwd, os.path.dirname(cwd)
        while folder != parent:
            if any(os.path.lexists(os.path.join(folder, marker)) for marker in markers):
                return folder
            folder, parent = parent, os.path.dirname(parent)
    return cwd


def _peek(file: str) -> bytes:
    """Other tools' files are none of our business unless they speak of us."""
    try:
        with open(file, "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    keys = ("profile", "cache", "store", "store_required", "telemetry", "enabled")
    return {key: env[f"METIER_{key.upper()}"] for key in keys if env.get(f"METIER_{key.upper()}")}


def _host_environment(raw: profiles.Raw, env: Mapping[str, str]) -> dict[str, Any]:
    listed = cast("dict[str, str]", raw.get("environment", {}))
    return {setting: env[variable] for variable, setting in listed.items() if env.get(variable)}


def _text(value: object, key: str, origin: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{key} must be text", file=origin if origin.endswith(".toml") else "", key=key)
    return value


def _flag(value: object, key: str, origin: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("1", "0", "true", "false", "yes", "no", "on", "off"):
        return value.lower() in ("1", "true", "yes", "on")
    raise ConfigError(f"{key} must be true or false", file=origin if origin.endswith(".toml") else "", key=key)
