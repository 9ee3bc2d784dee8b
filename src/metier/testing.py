"""Writes skills to disk for tests: yours and Metier's own."""

import os
from collections.abc import Mapping

from metier.values.skill import SKILL_FILE


def write_skill(
    folder: str | os.PathLike[str],
    name: str | None = None,
    description: str | None = "Does one thing, for a test.",
    body: str = "# A skill\n",
    *,
    files: Mapping[str, str | bytes] | None = None,
    text: str | bytes | None = None,
    **fields: object,
) -> str:
    """Write a skill to `folder` and return the path of its SKILL.md.

    `name` defaults to the name of the folder. Fields that are `None` are left out, and underscores in `fields` become
    hyphens. `text` replaces the whole file. `files` maps relative paths to content; those in scripts/ are executable.
    """
    where = os.path.abspath(folder)
    os.makedirs(where, exist_ok=True)
    path = os.path.join(where, SKILL_FILE)
    if text is None:
        given: dict[str, object] = {
            "name": os.path.basename(where) if name is None else name,
            "description": description,
        }
        given |= {key.replace("_", "-"): value for key, value in fields.items()}
        lines = [f"{key}: {_yaml(value)}" for key, value in given.items() if value is not None]
        text = "\n".join(("---", *lines, "---", body))
    _write(path, text)
    for relative, content in (files or {}).items():
        file = os.path.join(where, relative)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        _write(file, content)
        if relative.startswith("scripts/"):
            os.chmod(file, 0o755)  # noqa: S103 - scripts are executable
    return path


def _yaml(value: object) -> str:
    """Write a value in flow style. JSON is valid YAML."""
    import json

    return json.dumps(value, ensure_ascii=False)


def _write(path: str, content: str | bytes) -> None:
    with open(path, "wb") as stream:
        stream.write(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)
