"""Digests name content in the record, in approvals, in lock files and on the wire, always as `sha256:<hex>`."""

import hashlib
import re
from typing import Any, Final, TypeGuard

PREFIX: Final = "sha256:"
PATTERN: Final = r"sha256:[0-9a-f]{64}"
FORM: Final = "sha256: and 64 lower-case hexadecimal digits"
"""The form in words, for messages."""
NAME_PATTERN: Final = r"^\w[\w .()+,=@-]*$"
FILE_PATTERN: Final = rf"^(?:{PATTERN}|(?:[A-Za-z0-9+/]{{4}})*(?:[A-Za-z0-9+/]{{2}}==|[A-Za-z0-9+/]{{3}}=)?)$"
"""What a client can always send as the name and the content of a file."""

_DIGEST: Final = re.compile(PATTERN)


_KEPT: Final = 128
_KEPT_BYTES: Final = range(1_024, 65_537)
"""How many digests are kept, and of how long contents. Shorter ones are computed as fast as they are found."""

_digests: Final[dict[int, tuple[bytes, str]]] = {}
_artifacts: Final[dict[int, tuple[str, tuple[str, bytes]]]] = {}
"""The latest contents and texts by their identity. Each is held here, so no other object gets its identity."""


def digest_of(content: bytes) -> str:
    """Return the digest of some bytes. A load names the same bytes several times, and they are hashed once."""
    known = _digests.get(id(content))
    if known is not None:
        return known[1]
    digest = PREFIX + hashlib.sha256(content).hexdigest()
    if type(content) is bytes and len(content) in _KEPT_BYTES:
        _make_room(_digests)
        _digests[id(content)] = (content, digest)
    return digest


def artifact_of(text: str) -> tuple[str, bytes]:
    """Return a text as an artifact: the digest of its UTF-8, and the bytes. A lone surrogate is a question mark."""
    known = _artifacts.get(id(text))
    if known is not None:
        return known[1]
    data = text.encode("utf-8", "replace")
    found = (digest_of(data), data)
    if type(text) is str and len(data) in _KEPT_BYTES:
        _make_room(_artifacts)
        _artifacts[id(text)] = (text, found)
    return found


def _make_room(kept: dict[int, Any]) -> None:
    if len(kept) >= _KEPT:
        kept.clear()


def is_digest(value: object) -> TypeGuard[str]:
    """Whether a value is a digest of this form."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def digits(digest: str) -> str:
    """Return the hexadecimal digits of a digest."""
    return digest.removeprefix(PREFIX)
