"""What kind of file some bytes are, by their content and never only by their name."""

from collections.abc import Mapping
from typing import Final, Literal

FileKind = Literal["image", "svg", "html", "table", "text", "other"]

_MAGIC: Final[Mapping[bytes, str]] = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def image_type(data: bytes) -> str:
    """The media type of an image that browsers and models know; empty for everything else, also for SVG."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), "")


def kind_of(name: str, data: bytes) -> FileKind:
    """How a file can be shown. A name decides only between kinds of text."""
    if image_type(data):
        return "image"
    if b"\0" in data[:4096]:
        return "other"
    try:
        data[:4096].decode()
    except UnicodeDecodeError as error:
        if error.start < len(data[:4096]) - 4:  # otherwise a character is cut at the end
            return "other"
    ending = name.rpartition(".")[2].lower()
    if ending == "svg":
        return "svg" if b"<svg" in data[:4096] else "text"
    if ending in ("html", "htm", "xhtml"):
        return "html"
    return "table" if ending in ("csv", "tsv") else "text"
