"""Digests name content in the record, in approvals, in lock files and on the wire, always as `sha256:<hex>`."""

import hashlib
import re
from typing import Final, TypeGuard

PREFIX: Final = "sha256:"
PATTERN: Final = r"sha256:[0-9a-f]{64}"
FORM: Final = "sha256: and 64 lower-case hexadecimal digits"
"""The form in words, for messages."""
_DIGEST: Final = re.compile(PATTERN)


def digest_of(content: bytes) -> str:
    """Return the digest of some bytes."""
    return PREFIX + hashlib.sha256(content).hexdigest()


def is_digest(value: object) -> TypeGuard[str]:
    """Whether a value is a digest of this form."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def digits(digest: str) -> str:
    """Return the hexadecimal digits of a digest."""
    return digest.removeprefix(PREFIX)
