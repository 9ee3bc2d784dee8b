"""The frontmatter of a SKILL.md as JSON Schema, for editors and other programs.

The schema is generated from the rules by which `metier.catalog.validate` judges. What that accepts, the schema accepts.
The reverse does not hold: a schema does not see the name of the folder, and its patterns leave letters outside of ASCII
alone, because the dialects of regular expressions differ there.
"""

import os
import tomllib
from collections.abc import Mapping
from typing import Final, Literal

from metier import limits
from metier.catalog import validate
from metier.hosts.schema import Profile, Rules
from metier.values.skill import STANDARD_KEYS, JsonObject
from metier.values.value import replace

Draft = Literal["2020-12", "07"]

_DRAFTS: Final[Mapping[Draft, str]] = {
    "2020-12": "https://json-schema.org/draft/2020-12/schema",
    "07": "http://json-schema.org/draft-07/schema#",
}

_TEXT: Final = ["string", "number", "boolean"]
"""A number and a word such as `yes` count as text, as the author wrote them."""

_ASCII_NAME: Final = "^[a-z0-9]+(?:-[a-z0-9]+)*$"
_PART: Final = "[^\\t\\n -,./:-@A-Z\\[-`{-~-]+"
_UNICODE_NAME: Final = rf"^\s*{_PART}(?:-{_PART})*\s*$"
_SAFE_NAME: Final = r"^(?!\s*\.{1,2}\s*$)[^/\\]*$"
_REORDERED: Final = r"[\u202a-\u202e\u2066-\u2069]"
_NO_COMMA: Final = r"^[^,(]*(?:\([\s\S]*)?$"


def frontmatter_schema(
    profile: Profile, *, strict: bool = False, ascii_only: bool = False, draft: Draft = "2020-12"
) -> JsonObject:
    """The schema of what a host accepts. `strict` and `ascii_only` are the options of `metier validate`."""
    rules = validate.strict(profile) if strict else profile.validation
    if ascii_only:
        rules = replace(rules, name_pattern="ascii", name_breach="error")
    known = dict.fromkeys((*STANDARD_KEYS, *validate.keys_of(profile), *rules.own_keys))
    if rules.unknown_keys == "error":
        known = dict.fromkeys((*STANDARD_KEYS, *rules.own_keys))
    with open(os.path.join(os.path.dirname(__file__), "frontmatter_schema.toml"), "rb") as stream:
        meanings = tomllib.load(stream)
    properties = {key: {"description": meanings.get(key, f"A key of {profile.name}.")} for key in known}
    for key, part in _parts(rules).items():
        properties[key] |= part
    required = [key for key, needed in (("name", _needs_name(rules)), ("description", _needs_text(rules))) if needed]
    schema: JsonObject = {
        "$schema": _DRAFTS[draft],
        "title": f"Frontmatter of SKILL.md, {profile.name}{', strict' if strict else ''}",
        "type": "object",
        "properties": properties,
    }
    if required:
        schema["required"] = required
    if rules.unknown_keys == "error":
        schema["additionalProperties"] = False
    return schema


def _needs_name(rules: Rules) -> bool:
    return rules.name_missing == "error" and rules.name_source == "frontmatter"


def _needs_text(rules: Rules) -> bool:
    return rules.description_missing == "error"


def _parts(rules: Rules) -> dict[str, JsonObject]:
    """What each key of the standard must be. Only what is an error counts."""
    optional: list[str] = [*_TEXT, "null"]
    parts: dict[str, JsonObject] = {"name": _name(rules), "description": _description(rules)}
    if rules.optional_breach == "error":
        parts["license"] = {"type": optional}
        parts["compatibility"] = {"type": optional, "minLength": 1, "maxLength": limits.COMPATIBILITY_LENGTH}
        parts["metadata"] = {"type": ["object", "null"], "additionalProperties": {"type": _TEXT}}
        parts["allowed-tools"] = (
            {"type": ["string", "array", "null"]}
            if rules.allowed_tools_forms
            else {"type": ["string", "null"], "pattern": _NO_COMMA}
        )
    return parts


def _name(rules: Rules) -> JsonObject:
    if rules.name_source == "folder":
        return {}
    patterns = [_SAFE_NAME]
    if rules.name_breach == "error":
        patterns += {"ascii": [_ASCII_NAME], "unicode": [_UNICODE_NAME], "any": []}[rules.name_pattern]
        patterns += [_at_most(rules.name_length)] if rules.name_length else []
    return _text(rules, patterns, needed=_needs_name(rules))


def _description(rules: Rules) -> JsonObject:
    limited = rules.description_breach == "error" and rules.description_length
    patterns = [_at_most(rules.description_length)] if limited else []
    return _text(rules, patterns, needed=_needs_text(rules))


def _text(rules: Rules, patterns: list[str], *, needed: bool) -> JsonObject:
    """A text that matches all patterns. One that is not needed may be empty, and is then taken as missing."""
    part: JsonObject = {"not": {"type": "string", "pattern": _REORDERED}}
    if needed:
        patterns = [r"\S", *patterns]
        part["type"] = _TEXT
    else:
        patterns = [rf"^\s*$|{pattern}" for pattern in patterns]
        if rules.optional_breach == "error":
            part["type"] = [*_TEXT, "null"]
    if patterns:
        part["allOf"] = [{"pattern": pattern} for pattern in patterns]
    return part


def _at_most(length: int) -> str:
    """Blanks around a text do not count, so `maxLength` would be too strict."""
    return rf"^\s*[\s\S]{{0,{length}}}\s*$"
