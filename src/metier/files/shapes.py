"""Type guards for data from outside: JSON, TOML, YAML. Each tells the type checker what a runtime check found."""

from collections.abc import Iterator, Mapping
from typing import TypeGuard


def is_table(value: object) -> TypeGuard[dict[str, object]]:
    """Whether a value of JSON or TOML is an object. Its keys are always text."""
    return isinstance(value, dict)


def as_table(value: object) -> dict[str, object]:
    """Return the value if it is an object of JSON, and an empty object otherwise."""
    return value if is_table(value) else {}


def is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def is_iterator(value: object) -> TypeGuard[Iterator[object]]:
    return isinstance(value, Iterator)


def is_items(value: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    """Whether a value is a list or a tuple."""
    return isinstance(value, list | tuple)


def is_tuple(value: object) -> TypeGuard[tuple[object, ...]]:
    return isinstance(value, tuple)


def is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, Mapping)


def is_dict(value: object) -> TypeGuard[dict[object, object]]:
    """Whether a value of YAML is a map. Its keys may be anything."""
    return isinstance(value, dict)


def is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    """Whether a value stands for an object of JSON, in any kind of mapping."""
    return isinstance(value, Mapping)
