"""What kind of file some bytes are, by their content and never only by their name."""

import codecs
import re
from collections.abc import Mapping
from typing import Final, Literal

FileKind = Literal["image", "svg", "html", "table", "text", "other"]

_MAGIC: Final[Mapping[bytes, str]] = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_CONTROLS: Final = re.compile(r"[^\t\n\f\r\x1b -~\xa0-\U0010ffff]")
"""Characters that no text has. Tabs, ends of lines and pages, and the colours of a terminal are part of text."""


def image_type(data: bytes) -> str:
    """The media type of an image that browsers and models know; empty for everything else, also for SVG."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), "")


def text_of(data: bytes) -> str | None:
    """The text of a file: UTF-8, or UTF-16 with a byte order mark. `None` if it is something else."""
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if _CONTROLS.search(text) else text


def kind_of(name: str, data: bytes) -> FileKind:
    """How a file can be shown. A name decides only between kinds of text."""
    if image_type(data):
        return "image"
    if text_of(data) is None:
        return "other"
    ending = name.rpartition(".")[2].lower()
    if ending == "svg":
        return "svg" if b"<svg" in data[:4096] else "text"
    if ending in ("html", "htm", "xhtml"):
        return "html"
    return "table" if ending in ("csv", "tsv") else "text"
