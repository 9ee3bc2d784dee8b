"""Checks a value against a JSON schema, with a sentence for what is wrong.

It knows the part of JSON Schema that our own schemas use: types, `enum`, `required`, `properties`, `items`, lengths and
bounds. The same schema is shown to clients, so that what is checked and what is documented cannot differ.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

Schema = Mapping[str, Any]
"""A JSON schema."""

_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "object": Mapping,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "number": (int, float),
}

_NAMES: Final[Mapping[str, str]] = {
    "object": "a JSON object",
    "array": "a list",
    "string": "text",
    "boolean": "true or false",
    "null": "null",
    "number": "a number",
    "integer": "a whole number",
}


def mismatch(value: object, schema: Schema, where: str) -> str:
    """Why a value does not fit a schema, in words; empty where it does."""
    kinds = schema.get("type")
    allowed = [kinds] if isinstance(kinds, str) else list(kinds or ())
    if allowed and not any(_is(value, kind) for kind in allowed):
        return f"{where} must be {' or '.join(_NAMES[kind] for kind in allowed)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} must be one of: {', '.join(map(str, schema['enum']))}"
    if isinstance(value, Mapping):
        return _object_mismatch(cast("Mapping[str, object]", value), schema)
    if isinstance(value, list) and "items" in schema:
        items = cast("list[object]", value)
        return next((wrong for item in items if (wrong := mismatch(item, schema["items"], f"each of {where}"))), "")
    if isinstance(value, str) and len(value) < schema.get("minLength", 0):
        return f"{where} must not be empty"
    if isinstance(value, int | float) and value < schema.get("minimum", value):
        return f"{where} must be at least {schema['minimum']}"
    if isinstance(value, int | float) and value > schema.get("maximum", value):
        return f"{where} must be at most {schema['maximum']}"
    return ""


def _object_mismatch(given: Mapping[str, object], schema: Schema) -> str:
    for key in schema.get("required", ()):
        if key not in given:
            return f"{key} is missing"
    known: Mapping[str, Schema] = schema.get("properties", {})
    for key, value in given.items():
        if key in known:
            if wrong := mismatch(value, known[key], key):
                return wrong
        elif schema.get("additionalProperties") is False:
            return f"{key} is not known; known: {', '.join(known) or 'nothing'}"
    return ""


def counted(value: object, schema: Schema) -> object:
    """The value with a whole number as an `int`: JSON has one kind of number, and 3.0 is a whole one."""
    return int(value) if schema.get("type") == "integer" and isinstance(value, float) else value


def _is(value: object, kind: str) -> bool:
    if kind == "integer":
        whole = isinstance(value, float) and value.is_integer()
        return not isinstance(value, bool) and (isinstance(value, int) or whole)
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
