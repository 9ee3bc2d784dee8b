"""What a run is given besides its files, as one digest, so that an answer covers exactly what the person was shown."""

import json
from collections.abc import Sequence

from metier.files.digests import digest_of


def given_digest(**parts: Sequence[str]) -> str:
    """The digest of everything that a run is given, by kind. Empty if that is nothing."""
    given = {kind: list(values) for kind, values in parts.items() if values}
    return digest_of(json.dumps(given, sort_keys=True).encode()) if given else ""
