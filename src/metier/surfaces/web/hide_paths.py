"""Shortens absolute paths of this machine in everything the HTTP API sends, if the profile hides paths.

Every folder that skills can come from has a short name of its own. A path in the project becomes relative, a path in
the home folder begins with `~`, and any other begins with `…/` and as many of its last parts as no other folder has.
Other text does not change.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

from metier.app import App
from metier.files.shapes import is_items, is_table

T = TypeVar("T")


class PathHider:
    """Shortens the paths in a value. Does nothing if the profile does not hide paths."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.on = app.config.profile.resources.hide_paths

    def __call__(self, value: T) -> T:
        return cast("T", _hidden(value, self._names())) if self.on else value

    def _names(self) -> dict[str, str]:
        """Folders and their short names. The app keeps a catalog for every place that was asked for."""
        own = self._app.config
        configs = (own, *(skills.settings for skills in self._app.catalogs))
        places = [folder for config in configs for folder in (config.place.project, config.place.cwd)]
        folders = dict.fromkeys([*places, *(root.path for skills in self._app.catalogs for root in skills.roots)])
        known = {own.place.project: ".", **{config.place.home: "~" for config in configs}}
        tops = [one for one in folders if not any(_is_in(one, other) for other in (*known, *folders) if other != one)]
        known |= _ends([one for one in tops if one not in known])
        names = dict(known)
        for above, name in known.items():
            inside = [one for one in folders if one not in names and _is_in(one, above)]
            names |= {one: name + one[len(above) :] for one in inside}
        for config in configs:
            names |= {config.config_folder: "<config>", config.cache_folder: "<cache>"}
        real = {os.path.realpath(folder): name for folder, name in names.items() if folder}
        return {folder: name.removeprefix("./") for folder, name in (real | names).items() if folder.strip("/")}


def _is_in(folder: str, above: str) -> bool:
    return f"{folder}/".startswith(f"{above}/")


def _ends(folders: Sequence[str]) -> dict[str, str]:
    """Folders and the shortest ends of their paths that tell them apart."""
    names: dict[str, str] = {}
    for folder in folders:
        parts = folder.strip("/").split("/")
        ends = ["/".join(parts[-count:]) for count in range(1, len(parts))] or parts
        others = [f"/{one}" for one in folders if one != folder]
        clear = (end for end in ends if not any(other.endswith(f"/{end}") for other in others))
        names[folder] = f"…/{next(clear, ends[-1])}"
    return names


def _hidden(value: object, names: Mapping[str, str]) -> object:
    folders = "|".join(re.escape(folder) for folder in sorted(names, key=len, reverse=True))
    # A path may begin a line of a text that stands in JSON, after `\\n`.
    pattern = re.compile(rf"(?:(?<![\w.~-])|(?<=\\[nrt]))({folders})(/|(?![\w.-]))")

    def shorten(found: re.Match[str]) -> str:
        name = names[found[1]]
        return "" if name == "." and found[2] else name + found[2]

    def walk_text(text: str) -> str:
        return pattern.sub(shorten, text) if "/" in text else text

    def walk(item: object) -> object:
        if isinstance(item, str):
            return walk_text(item)
        if is_table(item):
            return {walk_text(str(key)): walk(inner) for key, inner in item.items()}
        if is_items(item):
            return [walk(inner) for inner in item]
        return item

    return walk(value)
