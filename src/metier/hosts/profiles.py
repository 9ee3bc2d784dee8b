"""A host's rules as data: one TOML file per profile, and the only code that reads them.

A profile is a set of values; a setting overrides one of them. Both go through the same door, `build`, so a wrong key in
a profile file, a configuration file or an argument gives the same error: the key, its line, and the nearest right one.
A profile may `extends` another: tables merge, lists and values replace.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from metier import limits
from metier.errors import ConfigError
from metier.files.beneath import read_regular
from metier.hosts.schema import Profile

BUILT_IN: Final = (
    "standard", "codelia", "omp", "mycodeagent", "rip", "remcochat",
    "claude-code", "codex", "opencode", "gemini-cli", "vscode-copilot",
)  # fmt: skip
_FOLDER: Final = os.path.dirname(os.path.abspath(__file__))

Raw = dict[str, Any]


def load(name: str) -> Raw:
    """The values of a built-in profile or of a profile file, with those it extends filled in."""
    return _load(name, ())


def _load(name: str, chain: tuple[str, ...], beside: str = "") -> Raw:
    file = _find(name, beside)
    if file in chain:
        raise ConfigError(f"the profile extends itself: {' -> '.join((*chain, file))}", file=file, key="extends")
    raw = read_toml(file)
    parent = raw.pop("extends", None)
    if parent is not None and not isinstance(parent, str):
        raise ConfigError("`extends` must be the name or the file of a profile", file=file, key="extends")
    base = _load(parent, (*chain, file), os.path.dirname(file)) if parent else {}
    raw.setdefault("name", os.path.splitext(os.path.basename(file))[0])
    known = _merge(base, raw)
    build(known, file=file)
    return known


def _find(name: str, beside: str) -> str:
    if name in BUILT_IN:
        return os.path.join(_FOLDER, f"{name}.toml")
    looks_like_file = name.endswith(".toml") or "/" in name
    path = os.path.abspath(os.path.join(beside, os.path.expanduser(name)))
    if looks_like_file and os.path.isfile(path):
        return path
    if looks_like_file:
        raise ConfigError(f"there is no profile file {path}", key="profile")
    close = _nearest(name, BUILT_IN)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(BUILT_IN)}; or the path of a .toml file"
    raise ConfigError(f"there is no profile {name!r}", key="profile", hint=hint)


def read_toml(file: str) -> Raw:
    """A TOML file as a dictionary; whatever is wrong with it becomes a `ConfigError` with the line."""
    import tomllib

    try:
        data = read_regular(file, limits.REGISTRY_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=file) from error
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
        below = merged.get(key)
        merged[key] = _merge(cast("Raw", below), cast("Raw", value)) if _both_tables(below, value) else value
    return merged


def _both_tables(one: object, other: object) -> bool:
    return isinstance(one, dict) and isinstance(other, dict)


def override(raw: Raw, settings: Mapping[str, Any], *, file: str = "", origin: str = "") -> tuple[Raw, tuple[str, ...]]:
    """The profile's values with settings laid over them, and the names of the settings that were set.

    A setting is named as in a profile (`catalog.max_skills`) or as its host names it (`skills.initial.maxEntries`),
    nested or dotted, with or without the host's leading `skills.` or `app.skills.`.
    """
    result = raw
    names: list[str] = []
    for given, value in flatten(settings):
        name = canonical(raw, given)
        if name is None:
            raise _unknown_key(given, _settable(raw), file, origin)
        names.append(name)
        patch: Any = value
        for part in reversed(name.split(".")):
            patch = {part: patch}
        result = _merge(result, cast("Raw", patch))
    build(result, file=file, origin=origin)
    return result, tuple(names)


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


def _dotted(cls: type, prefix: str) -> Iterable[str]:
    hints = _hints(cls)
    for item in fields(cls):
        kind = hints[item.name]
        if is_dataclass(kind):
            yield from _dotted(cast("type", kind), f"{prefix}{item.name}.")
        elif item.name not in ("fingerprint", "toggles", "aliases", "environment", "ranges", "documentation"):
            yield f"{prefix}{item.name}"


_HINTS: dict[type, dict[str, Any]] = {}


def _hints(cls: type) -> dict[str, Any]:
    found = _HINTS.get(cls)
    if found is None:
        found = _HINTS[cls] = get_type_hints(cls)
    return found


def build(raw: Raw, *, file: str = "", origin: str = "") -> Profile:
    """The profile with these values, or a `ConfigError` that names the key that is wrong."""
    profile = _build(Profile, {**raw, "fingerprint": repr(sorted(raw.items()))}, "", file, origin)
    for name, bounds in profile.ranges.items():
        value: Any = profile
        for part in name.split("."):
            value = getattr(value, part)
        low, high = bounds
        if not low <= value <= high:
            spelled = next((alias for alias, ours in profile.aliases.items() if ours == name), name)
            raise ConfigError(
                f"{spelled} is {value}, which is not between {low} and {high}",
                file=file, line=_locate(file, spelled), key=spelled, hint=origin,
            )  # fmt: skip
    return profile


_RENAMED: Final[Mapping[str, Mapping[object, object]]] = {"search.scoring": {"codelia": "overlap"}}
"""Values of settings that are called otherwise now."""


def restore(raw: Mapping[str, Any]) -> Profile:
    """The profile of a record, which an earlier version may have written: what it does not have is a default."""
    return build(_known(Profile, raw, ""))


def _known(cls: type, raw: Mapping[str, Any], where: str) -> Raw:
    """The values that a profile has today, by today's names."""
    hints = _hints(cls)
    kept: Raw = {}
    for name in (item.name for item in fields(cls) if item.name in raw):
        value: Any = raw[name]
        if is_dataclass(hints[name]):
            kept[name] = _known(cast("type", hints[name]), value, f"{where}{name}.")
        else:
            renamed = _RENAMED.get(f"{where}{name}")
            kept[name] = value if renamed is None else renamed.get(value, value)
    return kept


T = TypeVar("T")


def _build(cls: type[T], raw: Mapping[str, Any], where: str, file: str, origin: str) -> T:
    hints = _hints(cls)
    known = {item.name for item in fields(cls)}  # pyright: ignore[reportArgumentType]
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key not in known:
            raise _unknown_key(
                f"{where}{key}", [f"{where}{name}" for name in known if name != "fingerprint"], file, origin
            )
        values[key] = _convert(value, hints[key], f"{where}{key}", file, origin)
    try:
        return cls(**values)
    except TypeError as error:
        missing = re.findall(r"'(\w+)'", str(error))
        names = ", ".join(f"{where}{name}" for name in missing)
        raise ConfigError(f"{names} must be given", file=file, key=names, hint=origin) from error


def _convert(value: Any, kind: Any, where: str, file: str, origin: str) -> Any:
    def wrong(expected: str) -> ConfigError:
        shown = repr(value) if len(repr(value)) < 60 else type(value).__name__
        return ConfigError(
            f"{where} must be {expected}, not {shown}", file=file, line=_locate(file, where), key=where, hint=origin
        )

    origin_type = get_origin(kind)
    if is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise wrong("a table")
        return _build(cast("type[Any]", kind), cast("Mapping[str, Any]", value), f"{where}.", file, origin)
    if origin_type is Literal:
        if value not in get_args(kind):
            raise wrong("one of " + ", ".join(repr(choice) for choice in get_args(kind)))
        return value
    if origin_type in (Union, UnionType):
        return _convert(value, next(a for a in get_args(kind) if a is not type(None)), where, file, origin)
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
    if kind is int and isinstance(value, str) and re.fullmatch(r"\d+", value):
        return int(value)
    if (
        kind is bool
        and isinstance(value, str)
        and value.lower() in ("true", "false", "1", "0", "yes", "no", "on", "off")
    ):
        return value.lower() in ("true", "1", "yes", "on")
    if type(value) is not kind:
        raise wrong({bool: "true or false", int: "a whole number", str: "text"}.get(kind, "of another type"))
    return value


def _nearest(word: str, known: Iterable[str]) -> list[str]:
    import difflib  # only an error needs it, and it costs as much as reading a profile

    return difflib.get_close_matches(word, list(known), 1)


def _unknown_key(key: str, known: Iterable[str], file: str, origin: str) -> ConfigError:
    names = sorted(known)
    last = {name.rsplit(".", 1)[-1]: name for name in names}
    close = _nearest(key, names) or [last[hit] for hit in _nearest(key.rsplit(".", 1)[-1], last)]
    hint = f"did you mean {close[0]}?" if close else origin
    return ConfigError(f"unknown key {key}", file=file, line=_locate(file, key), key=key, hint=hint)


def _locate(file: str, key: str) -> int:
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


def describe(profile: Profile) -> Raw:
    """The rules of a profile as plain data."""

    def plain(value: Any) -> Any:
        if is_dataclass(value) and not isinstance(value, type):
            return {item.name: plain(getattr(value, item.name)) for item in fields(value) if item.name != "fingerprint"}
        return [plain(item) for item in cast("tuple[Any, ...]", value)] if isinstance(value, tuple) else value

    return cast("Raw", plain(profile))
