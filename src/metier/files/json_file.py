"""Small JSON files that hold the user's choices. A file is replaced as a whole, so a reader never sees half of it."""

import os
from collections.abc import Mapping

from metier.errors import ConfigError
from metier.files.replace import replacing


def replace_json(file: str, content: Mapping[str, object]) -> None:
    """Write the file, and its folder if it is missing. Raises `ConfigError` if it cannot be written."""
    import json

    text = json.dumps(content, indent=2) + "\n"  # escaped to ASCII, so that a path that is not UTF-8 survives
    try:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with replacing(file, "ascii") as stream:
            stream.write(text)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=file) from error
