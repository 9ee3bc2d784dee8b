"""Resolve profile, working directory and home to the ordered list of folders to search.

The order is the precedence: first the caller's folders, then the profile's roots by priority, then its custom
directories. No folder appears twice.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from metier.errors import ConfigError
from metier.files.json_text import read_json
from metier.hosts.profiles import Profile
from metier.hosts.schema import RootRules
from metier.values.skill import Diagnostic, Root
from metier.values.value import Value

REPOSITORIES: Final = (".metier", ".git", ".jj", ".hg")
"""What marks the root of a project, whatever the profile."""


class Place(Value):
    """The runtime's location: all facts about the environment that rules can use."""

    cwd: str
    home: str
    project: str
    env: Mapping[str, str]

    @property
    def chain(self) -> tuple[str, ...]:
        """The folders from the working directory up to the project's root, both included."""
        folders = upwards(self.cwd)
        return folders[: folders.index(self.project) + 1] if self.project in folders else (self.cwd,)


def locate(profile: Profile, cwd: str, home: str, env: Mapping[str, str]) -> tuple[Place, tuple[Diagnostic, ...]]:
    """The place, with the project root from the host's variable, else the nearest folder with a marker, else `cwd`.

    A variable that cannot be the root is reported, and the markers decide as if it were not set.
    """
    rules = profile.project
    notes: tuple[Diagnostic, ...] = ()
    named = env.get(rules.root_env, "").strip() if rules.root_env else ""
    if named:
        wanted = normalise(named, cwd, home)
        project = next((folder for folder in upwards(cwd) if _same_folder(folder, wanted)), "")
        if project:
            return Place(cwd, home, project, env), ()
        flaw = "is not above the working directory" if os.path.isdir(wanted) else "is not a folder"
        flaw = flaw if os.path.lexists(wanted) else "does not exist"
        message = f"{rules.root_env} is {wanted}, which {flaw}; it is ignored"
        hint = f"set it to the working directory {cwd} or to a folder above it"
        notes = (Diagnostic("root-outside", "warning", message, wanted, hint=hint),)
    listed = env.get(rules.markers_env, "") if rules.markers_env else ""
    markers = tuple(m for m in (part.strip() for part in listed.split(",")) if m) or rules.markers
    return Place(cwd, home, next((folder for folder in upwards(cwd) if _has(folder, markers)), cwd), env), notes


def _has(folder: str, names: Iterable[str]) -> bool:
    """Whether a folder has a file or folder of one of these names."""
    return any(os.path.lexists(os.path.join(folder, name)) for name in names)


def upwards(folder: str) -> tuple[str, ...]:
    """A folder and all folders above it, up to the root of the file system."""
    folders = [folder]
    while folders[-1] != os.path.dirname(folders[-1]):
        folders.append(os.path.dirname(folders[-1]))
    return tuple(folders)


def _same_folder(one: str, other: str) -> bool:
    """Whether two paths lead to one folder, also by way of links."""
    return one == other or os.path.realpath(one) == os.path.realpath(other)


def resolve(
    profile: Profile, place: Place, extra: Sequence[str] = ()
) -> tuple[tuple[Root, ...], tuple[Diagnostic, ...]]:
    """The folders to search, in order of precedence. Folders in `extra` must exist."""
    depth = profile.discovery.depth
    diagnostics: list[Diagnostic] = []
    roots = [
        Root(
            _must_exist(normalise(path, place.cwd, place.home)),
            profile.extra_scope,
            "extra",
            depth=depth,
            explicit=True,
        )
        for path in extra
    ]
    if profile.directories:
        roots += (_directory(path, profile, place) for path in profile.directories)
    else:
        for rules in by_priority(profile):
            if _is_on(rules.toggle, profile):
                roots += _expand(rules, depth, place, diagnostics)
    if _is_on(profile.custom_toggle, profile):
        roots += _custom(profile, place)
    seen: set[str] = set()
    unique = [root for root in roots if not (root.path in seen or seen.add(root.path))]
    return tuple(unique), tuple(diagnostics)


def switched_off(profile: Profile, place: Place) -> tuple[tuple[Root, ...], tuple[str, ...]]:
    """The roots that switches turn off, and the paths of all roots that switches could turn off, in their order."""
    off: list[Root] = []
    order: list[str] = []
    for rules in () if profile.directories else by_priority(profile):
        expanded = list(_expand(rules, profile.discovery.depth, place, []))
        order += (root.path for root in expanded)
        if not _is_on(rules.toggle, profile):
            off += expanded
    if not _is_on(profile.custom_toggle, profile):
        off += _custom(profile, place)
    return tuple(dict.fromkeys(off)), tuple(dict.fromkeys(order))


def in_project(path: str, root: Root, place: Place) -> bool:
    """Whether a path that a root led to belongs to the project, whatever scope the root has.

    If the home folder lies in the project, or is the project, the user's roots in it are still the user's.
    """
    project, home = place.project.rstrip("/") + "/", place.home.rstrip("/") + "/"
    if not f"{path}/".startswith(project):
        return False
    return not (root.scope == "user" and home.startswith(project) and root.path.startswith(home))


def other_project(folder: str) -> bool:
    """Whether a folder is the root of a project."""
    return _has(folder, REPOSITORIES)


def project_of(cwd: str) -> str:
    """The folder whose `.metier/config.toml` and pyproject.toml apply to a working directory."""
    for markers in (REPOSITORIES, ("pyproject.toml",)):  # the second counts only outside a repository
        for folder in upwards(cwd)[:-1]:  # the root of the file system is no project
            if _has(folder, markers):
                return folder
    return cwd


def registries(profile: Profile, place: Place) -> list[str]:
    """The files that list the folders of plugins. When they change, the roots may change too."""
    return [os.path.join(place.home, rules.path) for rules in profile.roots if rules.registry]


def normalise(path: str, base: str, home: str) -> str:
    """An absolute path without `.`, `..` or a trailing slash. `~` is the home, and relative paths start at `base`."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    return os.path.normpath(os.path.join(base, path))


def usual(profile: Profile) -> tuple[str, str]:
    """The usual skills folders of this host: the first one in a project, and the first one in a home, as `~/...`.

    Each is empty if the host has none.
    """
    project = next((path.removeprefix("./") for path in profile.directories if not path.startswith("~")), "")
    personal = next((path for path in profile.directories if path.startswith("~")), "")
    for rules in by_priority(profile):
        if _is_on(rules.toggle, profile) and not rules.registry and rules.at != "system":
            if rules.at == "home":
                personal = personal or f"~/{rules.path}"
            else:
                project = project or rules.path
    return project, personal


def _must_exist(path: str) -> str:
    if os.path.isdir(path):
        return path
    what = "is not a folder" if os.path.lexists(path) else "does not exist"
    raise ConfigError(f"the skills folder {path} {what}", key="skills", hint="name an existing folder")


def _directory(path: str, profile: Profile, place: Place) -> Root:
    folder = normalise(path, place.project, place.home)
    in_home = path.startswith("~") or not folder.startswith(place.project.rstrip("/") + "/")
    return Root(folder, "user" if in_home else "repo", "directories", depth=profile.discovery.depth)


def by_priority(profile: Profile) -> list[RootRules]:
    """The roots of a profile in the order in which they count."""
    return sorted(profile.roots, key=lambda rules: -rules.priority)


def _is_on(toggle: str, profile: Profile) -> bool:
    return any(profile.toggles.values()) if toggle == "any" else profile.toggles.get(toggle, True)


def _custom(profile: Profile, place: Place) -> Iterable[Root]:
    for path in profile.custom_directories:
        folder = normalise(path, place.project, place.home)
        yield Root(folder, profile.custom_scope, "custom", depth=profile.discovery.depth)


def _expand(rules: RootRules, depth: int, place: Place, diagnostics: list[Diagnostic]) -> Iterable[Root]:
    if rules.registry:
        yield from _plugins(rules, depth, place, diagnostics)
        return
    bases = {
        "ancestors": place.chain,
        "project": (place.project,),
        "cwd": (place.cwd,),
        "home": (place.home,),
        "system": ("/",),
    }[rules.at]
    for base in bases:
        if not (rules.skip_home and _same_folder(base, place.home)):
            path = os.path.normpath(os.path.join(base, rules.path))
            yield Root(path, rules.scope, rules.source, rules.priority, rules.require_description, depth)


def _plugins(rules: RootRules, depth: int, place: Place, diagnostics: list[Diagnostic]) -> Iterable[Root]:
    """The skills folders of the plugins in the registry."""
    file = os.path.join(place.home, rules.path)
    try:
        registry: Any = read_json(file)
        plugins = cast("dict[str, list[dict[str, Any]]]", registry["plugins"])
        installed = [(entry["installPath"], entry.get("scope")) for entries in plugins.values() for entry in entries]
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"the plugin registry cannot be used: {error}"
        diagnostics.append(Diagnostic("registry-invalid", "warning", message, file))
        return
    for path, scope in sorted((str(path), str(scope)) for path, scope in installed):
        folder = normalise(os.path.join(path, "skills"), place.home, place.home)
        level = "project" if scope == "project" else rules.scope
        yield Root(folder, level, rules.source, rules.priority, rules.require_description, depth)
