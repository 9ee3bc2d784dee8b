"""What installed packages add to the open lists of Metier: hosts, runners, stores, sources and commands.

A package adds to a list by an entry point in the group of that list. The invariant: a built-in name always means the
built-in thing, and using one never looks at the installed packages. Nothing of a package is imported before its name is
used.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from metier.errors import ConfigError

Group = Literal["metier.commands", "metier.hosts", "metier.runners", "metier.stores", "metier.sources"]


def installed(group: Group) -> dict[str, str]:
    """The entries of installed packages in a group: name to module, or to `module:attribute`."""
    from importlib.metadata import entry_points  # costs as much as a scan, and few processes need it

    return {entry.name: entry.value for entry in entry_points(group=group)}


def find(group: Group, name: str, built_in: Mapping[str, str] | None = None) -> Any:
    """The thing of this name, or `None` if there is none. Raises `ConfigError` where its package cannot be imported."""
    from pkgutil import resolve_name

    if built_in is not None and name in built_in:
        return resolve_name(built_in[name])
    place = installed(group).get(name)
    try:
        return resolve_name(place) if place is not None else None
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{place}, which a package installs as {name!r} in {group}, cannot be loaded: {error}"
        ) from error


def unknown(what: str, name: str, known: Iterable[str], *, key: str = "") -> ConfigError:
    """The error for a name that is on no list, with the nearest one that is."""
    names = sorted(known)
    close = nearest(name, names)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(names)}"
    return ConfigError(f"unknown {what} {name!r}", key=key, hint=hint)


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """The known word that is closest to a wrong one, if one is close."""
    import difflib  # only an error needs it, and it costs as much as reading a profile

    return difflib.get_close_matches(word, list(known), 1)
