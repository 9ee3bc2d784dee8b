"""The one containment check: a file of a skill is opened beneath its folder, or not at all.

A path is judged by its text first, so that each mistake gets its own reason. Then the kernel opens it relative to a
descriptor of the skill's folder and refuses whatever would leave it, so that a link swapped between check and open
changes nothing: there is no moment between the two. Links inside the folder that stay inside it are followed.
"""

from typing import Final

from metier.errors import ResourceError
from metier.model import SKILL_FILE

SCHEME: Final = "skill://"


# --- paths and URLs as text ---


def parse_url(url: str) -> tuple[str, str]:
    """The name and the relative path of a `skill://` URL, decoded exactly once; the path of SKILL.md is the default."""
    if not url.startswith(SCHEME):
        raise ResourceError(f"{url!r} is not a skill:// URL", reason="scheme")
    name, _, path = url[len(SCHEME) :].partition("/")
    from urllib.parse import unquote_to_bytes

    try:
        decoded = unquote_to_bytes(name).decode(), unquote_to_bytes(path).decode()
    except UnicodeError as error:
        raise ResourceError(f"{url!r} does not decode to UTF-8", reason="encoding") from error
    return decoded[0], decoded[1] or SKILL_FILE


def format_url(name: str, path: str = "") -> str:
    """The `skill://` URL of a skill or of one of its files."""
    from urllib.parse import quote

    return SCHEME + quote(name, safe="") + (f"/{quote(path)}" if path else "")
