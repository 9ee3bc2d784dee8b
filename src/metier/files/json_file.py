"""Small JSON files of the user's: replaced whole, so that whoever reads one never sees half of it."""

import json
import os
from collections.abc import Mapping

from metier.errors import ConfigError


def replace_json(file: str, content: Mapping[str, object]) -> None:
    """Write the file, with its folder where that is missing. Raises `ConfigError` where it cannot be written."""
    import tempfile  # nobody who only reads should pay for it

    text = json.dumps(content, indent=2) + "\n"  # escaped, so that a path that is no UTF-8 comes back as it was
    try:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".metier-", dir=os.path.dirname(file))
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(text)
        os.replace(temporary, file)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=file) from error
