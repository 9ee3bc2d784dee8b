"""Gives a model that sees images those that the user added to a chat, where the message says that they were added."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from pydantic_ai.messages import BinaryContent, ModelMessage, ModelRequest, UserContent, UserPromptPart

from metier.chat.demo_model import ADDED
from metier.chat.items import FileItem, Item
from metier.errors import StoreError
from metier.files.media import image_type

IMAGES: Final = 8
"""Images that are sent with one request, the latest ones."""
IMAGE_BYTES: Final = 4 << 20


def with_images(
    messages: Sequence[ModelMessage], items: Sequence[Item], artifact: Callable[[str], bytes]
) -> list[ModelMessage]:
    """The messages with the images of the chat. A file that is no image stays a line of text."""
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
