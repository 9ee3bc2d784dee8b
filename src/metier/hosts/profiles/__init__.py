"""Reads profiles: one TOML file with the rules of each host, and settings that override single values.

Both go through `build`, so a wrong key or value in a profile file, a configuration file or an argument gives the same
error: the key, its line, and what would be right. A profile may `extends` another: tables merge, lists and values
replace. Installed packages bring further profiles through the entry point group `metier.hosts`.
"""

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from msgspec.structs import fields

from metier import limits
from metier.errors import ConfigError
from metier.files.beneath import read_regular
from metier.files.plugins import installed, nearest
from metier.files.shapes import is_table
from metier.hosts.removed import removed
from metier.hosts.schema import SANDBOXES, Profile, RuntimeSettings
from metier.values.skill import ROLES
from metier.values.value import Value

BUILT_IN: Final = (
    "standard", "codelia", "omp", "mycodeagent", "rip", "remcochat", "claude-code", "codex", "opencode", "gemini-cli",
    "vscode-copilot", "cursor", "windsurf", "goose", "amp", "kiro", "cline", "roo", "zed",
)  # fmt: skip
_FOLDER: Final = os.path.dirname(os.path.abspath(__file__))

Raw = dict[str, Any]


HONOURED: Final = (
    "disable-model-invocation", "user-invocable", "hide", "enabled", "disabled", "paths", "globs", "alwaysApply",
)  # fmt: skip
"""The extension keys of a frontmatter that a profile can give an effect."""

FORMS: Final = ("/name", "/skill:name", "$name", "@name", "skill://name", "path")
"""The ways in which a message can call a skill."""

_NAMED: Final = ("toggles", "aliases", "environment", "ranges")
"""The tables of a profile whose keys are names of the host, or of settings."""

_ON: Final = ("1", "true", "yes", "on")
_OFF: Final = ("0", "false", "no", "off")
"""The words for true and false, as in variables."""

_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def names() -> list[str]:
    """The profiles that can be chosen by name: the built-in ones, and those of installed packages."""
    from metier.hosts import formats  # costs as much as reading a profile, and a built-in one does not need it

    return [*BUILT_IN, *(name for name in formats.plugins() if name not in BUILT_IN)]


def load(name: str) -> Raw:
    """The values of a profile, by its name or its file, with those it extends filled in."""
    return _load(name, ())


def _load(name: str, chain: tuple[str, ...], beside: str = "") -> Raw:
    file = find(name, beside)
    if file in chain:
        raise ConfigError(f"the profile extends itself: {' -> '.join((*chain, file))}", file=file, key="extends")
    raw = _read_rules(file, name in BUILT_IN)
    parent = raw.pop("extends", None)
    if parent is not None and not isinstance(parent, str):
        raise ConfigError("`extends` must be the name or the file of a profile", file=file, key="extends")
    base = _load(parent, (*chain, file), os.path.dirname(file)) if parent else {}
    raw.setdefault("name", os.path.splitext(os.path.basename(name))[0])
    for key in gone(raw) if name not in BUILT_IN else ():
        raw = _without(raw, key.split("."))
    known = _merge(base, raw)
    profile = build(known, file=file)
    if name not in BUILT_IN:
        check(profile, file=file)
    return known


def gone(raw: Raw) -> list[str]:
    """The settings of earlier versions in a file of settings or of a profile."""
    return [key for key, _ in flatten(raw) if key in removed("settings")]


def _without(raw: Raw, parts: Sequence[str]) -> Raw:
    first, *rest = parts
    inner: object = raw[first]
    kept = {key: value for key, value in raw.items() if key != first}
    return {**kept, first: _without(cast("Raw", inner), rest)} if rest else kept


def find(name: str, beside: str = "") -> str:
    """The file of a profile, by its name or its path. `beside` is the folder that a relative path starts from."""
    if name in BUILT_IN:
        return os.path.join(_FOLDER, f"{name}.toml")
    looks_like_file = name.endswith(".toml") or "/" in name
    path = os.path.abspath(os.path.join(beside, os.path.expanduser(name)))
    if looks_like_file and os.path.isfile(path):
        return path
    if looks_like_file:
        raise ConfigError(f"there is no profile file {path}", key="profile")
    known = names()
    if name in known:
        from metier.hosts import formats

        return formats.plugin_profile(name)
    close = nearest(name, known)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}; or the path of a .toml file"
    raise ConfigError(f"there is no profile {name!r}", key="profile", hint=hint)


def _read_rules(file: str, built_in: bool) -> Raw:
    """A profile's file without its documentation, which says where the rules come from and is none itself.

    It comes last in the built-in files, where it is not even parsed: that would double the time to read a profile.
    """
    if built_in:
        return parse_toml(read_regular(file, limits.REGISTRY_BYTES).partition(b"\n[documentation]\n")[0], file)
    raw = read_toml(file)
    raw.pop("documentation", None)
    return raw


def read_toml(file: str) -> Raw:
    """A TOML file as a dictionary; whatever is wrong with it becomes a `ConfigError` with the line."""
    try:
        data = read_regular(file, limits.REGISTRY_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=file) from error
    return parse_toml(data, file)


def parse_toml(data: bytes, file: str) -> Raw:
    """The content of a TOML file as a dictionary. Raises `ConfigError`, which names the file and the line."""
    import tomllib

    try:
        return tomllib.loads(data.decode())
    except RecursionError as error:
        raise ConfigError("is not TOML that a person wrote: it nests without end", file=file, line=1) from error
    except UnicodeDecodeError as error:
        raise ConfigError("is not UTF-8", file=file, line=data.count(b"\n", 0, error.start) + 1) from error
    except tomllib.TOMLDecodeError as error:
        place = re.search(r" \(at line (\d+), column \d+\)| \(at end of document\)", str(error))
        line = int(place[1]) if place and place[1] else data.count(b"\n") + 1
        message = str(error)[: place.start()] if place else str(error)
        raise ConfigError(f"is not TOML: {message}", file=file, line=line) from error


def _merge(base: Raw, over: Raw) -> Raw:
    merged = dict(base)
    for key, value in over.items():
        below: object = merged.get(key)
        merged[key] = _merge(below, value) if is_table(below) and is_table(value) else value
    return merged


class Overridden(NamedTuple):
    """A profile's values with settings laid over them."""

    raw: Raw
    names: tuple[str, ...]
    """The settings that were set."""
    elsewhere: tuple[str, ...] = ()
    """The settings of other hosts, which have no effect here."""
    gone: tuple[str, ...] = ()
    """The settings of earlier versions."""


def override(raw: Raw, settings: Mapping[str, Any], *, file: str = "", origin: str = "") -> Overridden:
    """Lay settings over a profile's values.

    A setting is named as in a profile (`catalog.max_skills`) or as its host names it (`skills.initial.maxEntries`),
    nested or dotted, with or without the host's leading `skills.` or `app.skills.`. A setting that only another host
    knows or that is gone has no effect; one that no host knows is an error.
    """
    result = raw
    names: list[str] = []
    elsewhere: list[str] = []
    gone: list[str] = []
    for given, value in flatten(settings):
        name = canonical(raw, given)
        if name is None and given in removed("settings"):
            gone.append(given)
            continue
        if name is None:
            if not _known_elsewhere(given):
                raise _unknown_key(given, _settable(raw), file, origin)
            elsewhere.append(given)
            continue
        names.append(name)
        result = with_value(result, name, value)
    profile = build(result, file=file, origin=origin)
    if names:
        check(profile, file=file, origin=origin)
    return Overridden(result, tuple(names), tuple(elsewhere), tuple(gone))


def with_value(raw: Raw, name: str, value: object) -> Raw:
    """A profile's values with one setting laid over them, by our name for it."""
    patch: Any = value
    for part in reversed(name.split(".")):
        patch = {part: patch}
    return _merge(raw, cast("Raw", patch))


def value(profile: Profile, name: str) -> Any:
    """The value of a setting, by our name for it."""
    found: Any = profile
    for part in name.split("."):
        found = cast("Mapping[str, Any]", found)[part] if isinstance(found, Mapping) else getattr(found, part)
    return found


def _known_elsewhere(given: str) -> bool:
    """Whether a setting belongs to another built-in host."""
    return any(canonical(load(name), given) is not None for name in BUILT_IN)


def canonical(raw: Raw, given: str) -> str | None:
    """Our name of a setting, however the host spells it; `None` when there is no such setting."""
    aliases = cast("dict[str, str]", raw.get("aliases", {}))
    for prefix in ("", "app.skills.", "skills."):
        name = given.removeprefix(prefix) if given.startswith(prefix) else given
        for candidate in (name, f"skills.{name}", f"app.skills.{name}"):
            if candidate in aliases:
                return aliases[candidate]
        if name in _canonical_keys(raw):
            return name
    return None


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Dotted keys and values of nested tables."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flatten(cast("Mapping[str, Any]", value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _settable(raw: Raw) -> list[str]:
    return sorted({*_canonical_keys(raw), *cast("dict[str, str]", raw.get("aliases", {}))})


def _canonical_keys(raw: Raw) -> set[str]:
    keys = set(_dotted(Profile, ""))
    keys.update(f"toggles.{key}" for key in cast("dict[str, bool]", raw.get("toggles", {})))
    return keys


def rules() -> list[str]:
    """All rules of a profile: its settings, and the tables that have names of the host. Each table is one rule."""
    return [name for name in (*settings(), *_NAMED[1:]) if name not in ("name", "summary")]


def given(raw: Raw) -> list[str]:
    """The rules that a profile's file sets."""
    names = (name for name, _ in flatten(raw))
    return list(dict.fromkeys(table if (table := name.split(".")[0]) in _NAMED else name for name in names))


def settings() -> list[str]:
    """All settings of a profile, by our names. The switches in `toggles` are one setting."""
    return [*_dotted(Profile, ""), "toggles"]


def _dotted(cls: type, prefix: str) -> Iterator[str]:
    """The settings of a table and its tables."""
    for item in fields(cls):
        if _is_table(item.type):
            yield from _dotted(item.type, f"{prefix}{item.name}.")
        elif item.name not in ("fingerprint", *_NAMED):
            yield f"{prefix}{item.name}"


def _is_table(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Value)


_hints = functools.cache(get_type_hints)


def build(raw: Raw, *, file: str = "", origin: str = "") -> Profile:
    """The profile with these values, or a `ConfigError` that names the key that is wrong."""
    profile = _build(Profile, {**raw, "fingerprint": repr(sorted(raw.items()))}, "", file, origin)
    for name, bounds in profile.ranges.items():
        found = value(profile, name)
        low, high = bounds
        if not low <= found <= high:
            spelled = next((alias for alias, ours in profile.aliases.items() if ours == name), name)
            raise ConfigError(
                f"{spelled} is {found}, which is not between {low} and {high}",
                file=file,
                line=locate(file, spelled),
                key=spelled,
                hint=origin,
            )
    return profile


T = TypeVar("T")
V = TypeVar("V", bound=Value)


def build_table(cls: type[T], raw: object, where: str, file: str) -> T:
    """A table of a file with these values, or a `ConfigError` that names the key that is wrong."""
    return cast("T", _convert(raw, cls, where, file, ""))


def runtime_value(key: str, raw: object, file: str) -> Any:
    """The value of a key of `RuntimeSettings`, or a `ConfigError`."""
    return _convert(raw, _hints(RuntimeSettings)[key], key, file, "")


def _build(cls: type[V], raw: Mapping[str, Any], where: str, file: str, origin: str) -> V:
    hints, known = _hints(cls), fields(cls)
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key not in cls.__struct_fields__:
            raise _unknown_key(
                f"{where}{key}", [f"{where}{item.name}" for item in known if item.name != "fingerprint"], file, origin
            )
        values[key] = _convert(value, hints[key], f"{where}{key}", file, origin)
    required = [item.name for item in known if item.required]
    missing = ", ".join(f"{where}{name}" for name in required if name not in values)
    if missing:
        raise ConfigError(f"{missing} must be given", file=file, key=missing, hint=origin)
    return cls(**values)


def _convert(value: Any, kind: Any, where: str, file: str, origin: str) -> Any:
    def wrong(expected: str) -> ConfigError:
        shown = repr(value) if len(repr(value)) < 60 else type(value).__name__
        return ConfigError(
            f"{where} must be {expected}, not {shown}", file=file, line=locate(file, where), key=where, hint=origin
        )

    origin_type = get_origin(kind)
    if _is_table(kind):
        if not isinstance(value, Mapping):
            raise wrong("a table")
        return _build(cast("type[Any]", kind), cast("Mapping[str, Any]", value), f"{where}.", file, origin)
    if origin_type is Literal:
        if value not in get_args(kind):
            raise wrong("one of " + ", ".join(repr(choice) for choice in get_args(kind)))
        return value
    if origin_type is tuple:
        if not isinstance(value, (list, tuple)):
            raise wrong("a list")
        item_kind = get_args(kind)[0]
        items = cast("list[Any]", value)
        return tuple(_convert(item, item_kind, f"{where}[{n}]", file, origin) for n, item in enumerate(items))
    if origin_type is dict:
        if not isinstance(value, Mapping):
            raise wrong("a table")
        inner = get_args(kind)[1]
        table = cast("Mapping[str, Any]", value)
        return {key: _convert(item, inner, f"{where}.{key}", file, origin) for key, item in table.items()}
    if kind is int and isinstance(value, str) and re.fullmatch(r"\d{1,18}", value):
        return int(value)
    if kind is bool and isinstance(value, str) and value.lower() in (*_ON, *_OFF):
        return value.lower() in _ON
    if type(value) is not kind and kind is not Any:
        raise wrong({bool: "true or false", int: "a whole number", str: "text"}.get(kind, "of another type"))
    return value


def _unknown_key(key: str, known: Iterable[str], file: str, origin: str) -> ConfigError:
    names = sorted(known)
    last = {name.rsplit(".", 1)[-1]: name for name in names}
    close = nearest(key, names) or [last[hit] for hit in nearest(key.rsplit(".", 1)[-1], last)]
    hint = f"did you mean {close[0]}?" if close else origin
    return ConfigError(f"unknown key {key}", file=file, line=locate(file, key), key=key, hint=hint)


def locate(file: str, key: str) -> int:
    """The line of a TOML file that sets a dotted key, or 0."""
    if not file:
        return 0
    try:
        with open(file, encoding="utf-8", errors="replace") as stream:
            lines = stream.read(limits.REGISTRY_BYTES).split("\n")
    except OSError:
        return 0
    wanted = re.sub(r"\[\d+\]", "", key)
    table = ""
    for number, line in enumerate(lines, 1):
        header = re.match(r"\s*\[+([^\]]+)\]+", line)
        if header:
            table = header[1].strip().replace('"', "").removeprefix("tool.metier").lstrip(".") + "."
            table = table if table != "." else ""
            if table.rstrip(".") == wanted:
                return number
            continue
        assigned = re.match(r"\s*([\w.\-\"']+)\s*=", line)
        if assigned and re.sub(r"[\"']", "", table + assigned[1]) == wanted:
            return number
    leaf = wanted.rsplit(".", 1)[-1]
    return next((n for n, line in enumerate(lines, 1) if re.match(rf"\s*\"?{re.escape(leaf)}\"?\s*=", line)), 0)


# --- values that work together ---


def check(profile: Profile, *, file: str = "", origin: str = "") -> None:
    """Raise `ConfigError` for values that have the right type but cannot work."""
    from metier.hosts import formats

    def wrong(key: str, message: str, allowed: Iterable[str] = ()) -> ConfigError:
        hint = f"allowed: {', '.join(allowed)}" if allowed else origin
        return ConfigError(f"{key} {message}", file=file, line=locate(file, key), key=key, hint=hint)

    for value in profile.catalog.honours:
        if value not in HONOURED:
            raise wrong("catalog.honours", f"names {value!r}, which has no effect", HONOURED)
    for form in profile.invocation.forms:
        if form not in FORMS:
            raise wrong("invocation.forms", f"has {form!r}, which no message can match", FORMS)
    for name in profile.run.sandbox:
        if name not in SANDBOXES and (name == "none" or name not in installed("metier.runners")):
            known = [*SANDBOXES, *installed("metier.runners")]
            raise wrong("run.sandbox", f"has {name!r}, which is no sandbox", nearest(name, known) or known)
    chosen: tuple[tuple[formats.Aspect, str, str], ...] = (
        ("format", "prompt.format", profile.prompt.format),
        ("wrap", "load.wrap", profile.load.wrap),
        ("shape", "tools.shape", profile.tools.shape),
    )
    for aspect, key, name in chosen:
        if not formats.exists(aspect, name):
            raise wrong(key, f"is {name!r}, which is no format", formats.names_of(aspect))
    tools = profile.tools.by_role()
    for role, name in tools.items():
        if not _TOOL_NAME.fullmatch(name):
            raise wrong(f"tools.{role}", f"is {name!r}, which models cannot call", ("1 to 64 letters, digits, _ . -",))
        if name in (f"skill_{other}" for other in ROLES if other != role):
            raise wrong(f"tools.{role}", f"is {name!r}, which is Metier's name for another tool")
        if sum(name == other for other in tools.values()) > 1:
            raise wrong(f"tools.{role}", f"is {name!r}, which another tool is called, too")
    for role in sorted(formats.find("format", profile.prompt.format).needs):
        if profile.enabled and role not in tools:
            message = f"is {profile.prompt.format!r}, whose text tells the model to call a tool that is not there"
            raise wrong("prompt.format", f"{message}: tools.{role} is empty")


def describe(profile: Profile) -> Raw:
    """The rules of a profile as plain data."""

    def plain(value: Any) -> Any:
        if isinstance(value, Value):
            return {name: plain(getattr(value, name)) for name in value.__struct_fields__ if name != "fingerprint"}
        return [plain(item) for item in cast("tuple[Any, ...]", value)] if isinstance(value, tuple) else value

    return cast("Raw", plain(profile))
