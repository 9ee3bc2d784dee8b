"""The parsing functions of the reference library, implemented with Metier."""

from pathlib import Path
from types import SimpleNamespace

from metier.values.skill import metadata_of
from skills_ref import judge, parse, phrases, plain


class ParseError(Exception):
    pass


class ValidationError(Exception):
    pass


def parse_frontmatter(content: str) -> tuple[dict[str, object], str]:
    parsed = parse(content)
    if parsed.fields is None:
        raise ParseError("; ".join(phrases(parsed)))
    return plain(parsed.fields), content.encode()[parsed.body_offset :].decode()


def find_skill_md(folder: Path) -> Path | None:
    return next((path for path in folder.iterdir() if path.name == "SKILL.md"), None)


def read_properties(folder: Path) -> SimpleNamespace:
    if find_skill_md(folder) is None:
        raise ParseError("SKILL.md not found")
    verdict = judge(folder)
    if not verdict.valid:
        raise ValidationError("; ".join(phrases(verdict)))
    fields = plain(verdict.fields)
    return SimpleNamespace(
        name=verdict.name,
        description=verdict.description,
        license=fields.get("license"),
        metadata=metadata_of(verdict.fields),
        allowed_tools=fields.get("allowed-tools"),
        to_dict=lambda: fields,
    )
