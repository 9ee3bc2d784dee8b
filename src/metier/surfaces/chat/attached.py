"""What a model gets of the files that a person added: a line about each, its text if it is text, or the image.

The bytes decide what is text, and never the name. A text stands in a fence that is longer than any in it, so that no
file can pass for the words of the user. What does not fit is cut, and the model is told how much it sees.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from pydantic_ai.messages import BinaryContent, ModelMessage, ModelRequest, UserContent, UserPromptPart

from metier.errors import StoreError
from metier.files.media import image_type, text_of
from metier.surfaces.chat.items import FileItem, Item

ADDED: Final = "[The user added the file {name} ({size:,} bytes). Scripts of skills find it in their current folder."
"""How the line that tells a model about a file begins."""
FILE_CHARACTERS: Final = 20_000
"""Characters of one file that the model reads."""
MESSAGE_CHARACTERS: Final = 60_000
"""Characters of all files of one message that the model reads."""
IMAGES: Final = 8
"""Images that are sent with one request, the latest ones."""
IMAGE_BYTES: Final = 4 << 20


class FileText(NamedTuple):
    """The text of a file as far as a model can read it, and how many characters the whole has."""

    start: str
    characters: int


def texts(items: Iterable[Item], artifact: Callable[[str], bytes]) -> dict[str, FileText]:
    """The texts of the files among the items, by their digests. A file that is no text, or is not kept, has none."""
    by_digest: dict[str, FileText] = {}
    for digest in {item.digest for item in items if isinstance(item, FileItem)}:
        try:
            text = text_of(artifact(digest))
        except StoreError:
            continue
        if text is not None:
            by_digest[digest] = FileText(text[:FILE_CHARACTERS], len(text))
    return by_digest


def told(files: Sequence[FileItem], known: Mapping[str, FileText], most: int) -> dict[str, str]:
    """What the model is told of the files of one message, by the ids of their items. `most` limits their text."""
    most = left = min(most, MESSAGE_CHARACTERS)
    by_item: dict[str, str] = {}
    for item in files:
        line, text = ADDED.format(name=item.name, size=item.size), known.get(item.digest)
        if text is None:
            by_item[item.id] = f"{line} It cannot be read as text.]"
            continue
        shown = text.start[:left]
        left -= len(shown)
        lines = [f"{line} Its text:]", *_fenced(shown)] if shown else [f"{line}]"]
        if len(shown) < text.characters:
            one = f"a file is shown up to {FILE_CHARACTERS:,} characters"
            all_of_them = f"the files of a message are shown up to {most:,} characters in all"
            lines.append(
                f"[cut here: {len(shown):,} of {text.characters:,} characters of {item.name} are shown; "
                f"{one if len(shown) == FILE_CHARACTERS else all_of_them}]"
            )
        by_item[item.id] = "\n".join(lines)
    return by_item


def _fenced(text: str) -> list[str]:
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, text.removesuffix("\n"), fence]


def with_images(
    messages: Sequence[ModelMessage], items: Sequence[Item], artifact: Callable[[str], bytes]
) -> list[ModelMessage]:
    """The messages with the images of the chat, where they say that these were added. Other files stay as they are."""
    wanted = [item for item in items if isinstance(item, FileItem) and item.size <= IMAGE_BYTES]
    images: dict[str, BinaryContent] = {}
    for item in reversed(wanted):
        line = ADDED.format(name=item.name, size=item.size)
        try:
            data = artifact(item.digest)
        except StoreError:
            continue
        if line not in images and len(images) < IMAGES and (kind := image_type(data)):
            images[line] = BinaryContent(data, media_type=kind)
    return [_with_images(one, images) if images and isinstance(one, ModelRequest) else one for one in messages]


def _with_images(request: ModelRequest, images: dict[str, BinaryContent]) -> ModelRequest:
    parts = [
        replace(part, content=found)
        if isinstance(part, UserPromptPart) and isinstance(part.content, str) and (found := _seen(part.content, images))
        else part
        for part in request.parts
    ]
    return replace(request, parts=parts)


def _seen(text: str, images: dict[str, BinaryContent]) -> list[UserContent]:
    found = [image for line, image in images.items() if line in text]
    return [text, *found] if found else []
