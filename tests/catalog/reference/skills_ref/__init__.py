"""Replaces the reference library in its own tests: the answers come from strict mode, in the library's words.

Its tests look for phrases such as "must be lowercase". `PHRASES` has the phrases for each diagnostic code.
"""

from collections.abc import Mapping
from pathlib import Path

from metier.catalog import frontmatter, validate
from metier.catalog.frontmatter import Parsed
from metier.catalog.validate import Validation

PHRASES = {
    "name-invalid": "must be lowercase, cannot start or end with a hyphen, consecutive hyphens, invalid characters",
    "name-too-long": "exceeds 64 character limit",
    "name-mismatch": "Directory name must match skill name",
    "name-missing": "Missing required field in frontmatter: name",
    "description-missing": "Missing required field in frontmatter: description",
    "description-too-long": "exceeds 1024 character limit",
    "compatibility-length": "exceeds 500 character limit",
    "unknown-key": "Unexpected fields in frontmatter",
    "frontmatter-missing": "must start with YAML frontmatter",
    "frontmatter-unclosed": "not properly closed",
    "yaml-invalid": "Invalid YAML",
    "yaml-not-mapping": "must be a YAML mapping",
}


def parse(content: str) -> Parsed:
    parsed = frontmatter.parse(content.encode(), repair=False)
    assert parsed is not None
    return parsed


def judge(folder: Path) -> Validation:
    return validate.check(parse((folder / "SKILL.md").read_text()), folder.name, validate.STRICT)


def phrases(verdict: Parsed | Validation) -> list[str]:
    errors = [d.code for d in verdict.diagnostics if d.severity == "error"]
    return [PHRASES.get(code, code) for code in errors]


def plain(fields: Mapping[str, object] | None) -> dict[str, object]:
    return dict(fields or {})
