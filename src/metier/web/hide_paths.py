"""Shortens absolute paths of this machine in everything the HTTP API sends, if the profile hides paths.

Every folder that skills can come from has a short name. A path in the project becomes relative, a path in the home
folder begins with `~`, and a path in another root begins with the last part of that root. Other text does not change.
"""

import os
import re
from collections.abc import Mapping
from typing import overload

from metier.app import App
from metier.files.shapes import is_items, is_table


class PathHider:
    """Shortens the paths in a value. Does nothing if the profile does not hide paths."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.on = app.config.profile.resources.hide_paths

    @overload
    def __call__(self, value: str) -> str: ...
    @overload
    def __call__(self, value: Mapping[str, object]) -> Mapping[str, object]: ...
    @overload
    def __call__(self, value: object) -> object: ...
    def __call__(self, value: object) -> object:
        return _hidden(value, self._names()) if self.on else value

    def _names(self) -> dict[str, str]:
        """Folders and their short names. The app keeps a catalog for every place that was asked for."""
        names: dict[str, str] = {}
        for config in (self._app.config, *(skills.settings for skills in self._app.catalogs)):
            names[config.place.home] = "~"
            names[config.config_folder] = "<config>"
            names[config.cache_folder] = "<cache>"
        for skills in self._app.catalogs:
            for root in skills.roots:
                names[root.path] = os.path.basename(root.path)
        for place in (self._app.config.place, *(skills.settings.place for skills in self._app.catalogs)):
            names[place.cwd], names[place.project] = ".", "."
        real = {os.path.realpath(folder): name for folder, name in names.items() if folder}
        return {folder: name for folder, name in (real | names).items() if folder.strip("/")}


def _hidden(value: object, names: Mapping[str, str]) -> object:
    folders = "|".join(re.escape(folder) for folder in sorted(names, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w.~-])({folders})(/|(?![\w.-]))")

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
