"""Where a profile hides them, no absolute path of this machine leaves through the HTTP API.

Every folder that skills can come from has a shorter name: a path in the project is told relative to it, one in the home
folder from `~`, one of another root by the root's last part. The rest of a text stays as it is.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from metier.app import App


class Veil:
    """Shortens the paths in whatever is about to be sent; does nothing where the profile does not ask for it."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.on = app.config.profile.resources.hide_paths

    def __call__(self, value: Any) -> Any:
        return _covered(value, self._names()) if self.on else value

    def _names(self) -> dict[str, str]:
        """Folders, and what is said instead; the app keeps a catalog for each place that was asked for."""
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


def _covered(value: Any, names: Mapping[str, str]) -> Any:
    folders = "|".join(re.escape(folder) for folder in sorted(names, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w.~-])({folders})(/|(?![\w.-]))")

    def short(found: re.Match[str]) -> str:
        name = names[found[1]]
        return "" if name == "." and found[2] else name + found[2]

    def walk(item: Any) -> Any:
        if isinstance(item, str):
            return pattern.sub(short, item) if "/" in item else item
        if isinstance(item, Mapping):
            return {walk(key): walk(inner) for key, inner in cast("Mapping[Any, Any]", item).items()}
        if isinstance(item, (list, tuple)):
            return [walk(inner) for inner in cast("Sequence[Any]", item)]
        return item

    return walk(value)
