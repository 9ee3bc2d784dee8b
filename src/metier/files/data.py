"""Narrows data from outside (JSON, frontmatter, tool results) to types that can be checked further."""

from collections.abc import Mapping, Sequence
from typing import TypeGuard


def is_table(value: object) -> TypeGuard[Mapping[str, object]]:
    """Whether a value is an object of JSON. Its keys are text; its values may be anything."""
    return isinstance(value, Mapping)


def as_table(value: object) -> Mapping[str, object]:
    """The value if it is an object of JSON, else an empty one."""
    return value if is_table(value) else {}


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Whether a value is a list, or a tuple that stands for one."""
    return isinstance(value, list | tuple)
