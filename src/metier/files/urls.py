"""`skill://` URLs: `skill://<name>` names a skill, `skill://<name>/<path>` one of its files.

Both parts are percent-encoded UTF-8 and are decoded exactly once. The path is not checked here; see `beneath`.
"""

from typing import Final

from metier.errors import ResourceError
from metier.values.skill import SKILL_FILE

SCHEME: Final = "skill://"


def parse_url(url: str) -> tuple[str, str]:
    """Return the name and the relative path of a `skill://` URL. The path defaults to SKILL.md.

    Raises `ResourceError` for any other URL.
    """
    if not url.startswith(SCHEME):
        raise ResourceError(f"{url!r} is not a skill:// URL", reason="scheme")
    name, _, path = url[len(SCHEME) :].partition("/")
    from urllib.parse import unquote_to_bytes

    try:
        decoded = unquote_to_bytes(name).decode(), unquote_to_bytes(path).decode()
    except UnicodeError as error:
        raise ResourceError(f"{url!r} is not percent-encoded UTF-8", reason="encoding") from error
    return decoded[0], decoded[1] or SKILL_FILE


def format_url(name: str, path: str = "") -> str:
    """Return the `skill://` URL of a skill or of one of its files."""
    from urllib.parse import quote

    return SCHEME + quote(name, safe="") + (f"/{quote(path)}" if path else "")
