"""Type narrowing for parsed JSON and TOML, which starts out as `object`. The keys of its tables are always strings."""

from typing import TypeGuard


def is_table(value: object) -> TypeGuard[dict[str, object]]:
    """Whether a parsed value is a JSON object or a TOML table."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Whether a parsed value is a list."""
    return isinstance(value, list)
