"""Reads the messages of a request, which may be dicts or objects of an SDK.

Messages come from the caller and may have any form that an SDK accepts. An item without text yields nothing, so no form
raises.
"""

from collections.abc import Iterable, Iterator

from metier.files.shapes import is_items, is_object


def value_of(item: object, name: str) -> object:
    """A field of a message: the key of a dict or the attribute of an object; `None` if it has none."""
    return item.get(name) if is_object(item) else getattr(item, name, None)


def texts(items: Iterable[object]) -> Iterator[str]:
    """The texts of messages and parts (their `content`) and of tool results (their `output`)."""
    for item in items:
        for content in (value_of(item, "content"), value_of(item, "output")):
            for part in content if is_items(content) else [content]:
                text = part if isinstance(part, str) else value_of(part, "text")
                if isinstance(text, str):
                    yield text


def is_instruction(item: object) -> bool:
    """Whether a message is a system prompt: of the role `system`, or `developer` as some models call it."""
    return value_of(item, "role") in ("system", "developer")


def last_user_text(items: Iterable[object]) -> str | None:
    """The user's latest text."""
    found = [text for item in items if value_of(item, "role") == "user" for text in texts([item])]
    return found[-1] if found else None
