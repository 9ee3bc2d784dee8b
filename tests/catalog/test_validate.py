"""Validation: the rules for each field, strict and lenient."""

import unicodedata
from dataclasses import replace

import pytest

from metier.catalog.frontmatter import parse
from metier.catalog.validate import STRICT, Validation, check, check_body
from metier.hosts.schema import Pattern, Rules, Unknown
from metier.values.skill import split_tools

LENIENT = Rules()
GOOD = {"name": "pdf", "description": "Does it."}


def judge(folder: str = "pdf", rules: Rules = LENIENT, /, yaml: str | None = None, **fields: str | None) -> Validation:
    """Validate a frontmatter with these fields, each value written as YAML."""
    if yaml is None:
        given = GOOD | {key.replace("_", "-"): value for key, value in fields.items()}
        yaml = "\n".join(f"{key}: {value}" for key, value in given.items() if value is not None)
    parsed = parse(f"---\n{yaml}\n---\n".encode(), "SKILL.md", repair=rules.repair)
    assert parsed is not None
    return check(parsed, folder, rules, "SKILL.md")


def said(verdict: Validation) -> list[tuple[str, str]]:
    return [(d.code, d.severity) for d in verdict.diagnostics]


def test_a_good_skill_has_nothing_said_about_it() -> None:
    for rules in (LENIENT, STRICT):
        more = {"license": "MIT", "compatibility": "Python 3", "metadata": '{a: b, c: "1"}'}
        verdict = judge("pdf", rules, allowed_tools="Read Bash(git add *)", **more)
        assert (verdict.valid, verdict.name, verdict.description, verdict.diagnostics) == (True, "pdf", "Does it.", ())


RULES: list[tuple[dict[str, str | None], str, str, str]] = [
    # the fields, the code, its severity when lenient, its severity when strict
    ({"name": None}, "name-missing", "warning", "error"),
    ({"name": ""}, "name-missing", "warning", "error"),
    ({"name": "'  '"}, "name-missing", "warning", "error"),
    ({"name": "Pdf"}, "name-invalid", "warning", "error"),
    ({"name": "-pdf"}, "name-invalid", "warning", "error"),
    ({"name": "pdf-"}, "name-invalid", "warning", "error"),
    ({"name": "p--f"}, "name-invalid", "warning", "error"),
    ({"name": "p_f"}, "name-invalid", "warning", "error"),
    ({"name": "p f"}, "name-invalid", "warning", "error"),
    ({"name": "p.f"}, "name-invalid", "warning", "error"),
    ({"name": "a/b"}, "name-invalid", "error", "error"),
    ({"name": "../../evil"}, "name-invalid", "error", "error"),
    ({"name": "'..'"}, "name-invalid", "error", "error"),
    ({"name": "a\\b"}, "name-invalid", "error", "error"),
    ({"name": "p" * 65}, "name-too-long", "warning", "error"),
    ({"name": "doc"}, "name-mismatch", "warning", "error"),
    ({"name": "[a]"}, "field-type", "warning", "error"),
    ({"description": None}, "description-missing", "error", "error"),
    ({"description": ""}, "description-missing", "error", "error"),
    ({"description": "'  '"}, "description-missing", "error", "error"),
    ({"description": '"\\u200b"'}, "description-missing", "error", "error"),
    ({"description": "null"}, "description-missing", "error", "error"),
    ({"description": "x" * 1025}, "description-too-long", "warning", "error"),
    ({"description": "{a: b}"}, "field-type", "warning", "error"),
    ({"license": "[MIT]"}, "field-type", "warning", "error"),
    ({"compatibility": "''"}, "compatibility-length", "warning", "error"),
    ({"compatibility": "x" * 501}, "compatibility-length", "warning", "error"),
    ({"compatibility": "{a: b}"}, "field-type", "warning", "error"),
    ({"metadata": "text"}, "metadata-values", "warning", "error"),
    ({"metadata": "[a]"}, "metadata-values", "warning", "error"),
    ({"metadata": "{a: [1]}"}, "metadata-values", "warning", "error"),
    ({"metadata": "{a: {b: c}}"}, "metadata-values", "warning", "error"),
    ({"allowed-tools": "[Read, Write]"}, "allowed-tools-form", "info", "error"),
    ({"allowed-tools": "Read, Write"}, "allowed-tools-form", "info", "error"),
    ({"allowed-tools": "{a: b}"}, "allowed-tools-form", "warning", "error"),
    ({"allowed-tools": "7"}, "allowed-tools-form", "warning", "error"),
    ({"allowed-tools": "''"}, "allowed-tools-form", "warning", "error"),
    ({"allowed-tools": "Read Bash("}, "allowed-tools-form", "warning", "error"),
    ({"allowed-tools": "[Read, 7]"}, "allowed-tools-form", "warning", "error"),
    ({"version": "'1'"}, "unknown-key", "info", "error"),
    ({"description": '"a\\u202eb"'}, "hidden-characters", "error", "error"),
    ({"description": '"a\\u200bb"'}, "invisible-removed", "warning", "warning"),
]


@pytest.mark.parametrize(("fields", "code", "lenient", "strict"), RULES)
def test_a_breach_is_reported_as_badly_as_the_mode_says(
    fields: dict[str, str | None], code: str, lenient: str, strict: str
) -> None:
    for rules, severity in ((LENIENT, lenient), (STRICT, strict)):
        verdict = judge("pdf", rules, **fields)
        assert (code, severity) in said(verdict)
        assert verdict.valid == all(severity != "error" for _, severity in said(verdict))


@pytest.mark.parametrize(
    ("fields", "rules"),
    [
        ({"name": "p" * 64, "folder": "p" * 64}, STRICT),
        ({"name": "a1-b2-3", "folder": "a1-b2-3"}, STRICT),
        ({"description": "x" * 1024}, STRICT),
        ({"description": "é" * 1024}, STRICT),
        ({"compatibility": "x" * 500}, STRICT),
        ({"metadata": "{}"}, STRICT),
        ({"allowed-tools": "Bash(git add, git commit) Read"}, STRICT),
        ({"name": "123", "folder": "123"}, STRICT),
        ({"license": "1.10"}, STRICT),
    ],
)
def test_what_lies_just_within_the_rules_is_fine(fields: dict[str, str], rules: Rules) -> None:
    folder = fields.pop("folder", "pdf")
    assert said(judge(folder, rules, **fields)) == []


def test_the_lengths_are_those_of_the_rules() -> None:
    short = Rules(name_length=2, description_length=5)
    assert [code for code, _ in said(judge("pdf", short))] == ["name-too-long", "description-too-long"]
    endless = Rules(name_length=0, description_length=0)
    assert said(judge("p" * 99, endless, name="p" * 99, description="x" * 9999)) == []


def test_a_missing_name_is_taken_from_the_folder_only_when_lenient() -> None:
    lenient = judge("pdf", name=None)
    assert (lenient.valid, lenient.name) == (True, "pdf")
    assert not judge("pdf", STRICT, name=None).valid


@pytest.mark.parametrize("written", ["123", "on", "Yes", "true", "null-ish", "1.10", "2024-01-01"])
def test_a_name_is_text_as_the_author_wrote_it(written: str) -> None:
    assert judge("x", name=written).name == written
    assert judge("x", description=written).description == written


@pytest.mark.parametrize(
    "name", ["pdf-werkzeug", "größe", "हिन्दी", "ไทย-ภาษา", "日本語", "русский", "العربية", "한국어", "ελληνικά", "תורה"]
)
def test_names_in_any_script_are_fine_unless_ascii_is_asked_for(name: str) -> None:
    assert said(judge(name, STRICT, name=name)) == []
    ascii_only = replace(STRICT, name_pattern="ascii")
    assert judge(name, ascii_only, name=name).valid == name.isascii()


@pytest.mark.parametrize(
    ("name", "folder"),
    [("ｐｄｆ", "pdf"), ("cafe\u0301", "café"), ("café", "cafe\u0301"), ("ﬁle", "file")],
)
def test_names_are_compared_and_returned_in_their_normal_form(name: str, folder: str) -> None:
    verdict = judge(folder, STRICT, name=f'"{name}"')
    assert (verdict.valid, verdict.name) == (True, unicodedata.normalize("NFKC", folder))


@pytest.mark.parametrize("name", ["Русский", "ÉCOLE", "ǅ", "a½b", "a•b", "a b", "a™b", "😀", "a\u2028b", "Ⅷ"])
def test_upper_case_and_symbols_are_flaws_in_any_script(name: str) -> None:
    verdict = judge(name, STRICT, name=f'"{name}"')
    assert not verdict.valid
    assert any(code in ("name-invalid", "name-mismatch") for code, _ in said(verdict))


@pytest.mark.parametrize("name", ["a1-b", "x", "0"])
@pytest.mark.parametrize("pattern", ["unicode", "ascii", "any"])
def test_plain_names_pass_every_pattern(name: str, pattern: Pattern) -> None:
    assert judge(name, replace(STRICT, name_pattern=pattern), name=f"'{name}'").valid


@pytest.mark.parametrize("name", ["a/b", "..", "a\\\\b", "a\\nb", "a\\u0000b", "a\\u001bb"])
@pytest.mark.parametrize("pattern", ["unicode", "ascii", "any"])
def test_a_name_that_could_leave_its_folder_or_forge_a_line_passes_no_pattern(name: str, pattern: Pattern) -> None:
    rules = Rules(name_pattern=pattern, name_breach="ignore", name_mismatch="ignore")
    verdict = judge("x", rules, name=f'"{name}"')
    assert not verdict.valid or not set(verdict.name) & set("/\\\n\x00\x1b")


HIDDEN = [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xE0001, 0xE0020, 0xE0041, 0xE007F]
INVISIBLE = [0x7F, 0x80, 0x9F, 0xAD, 0x61C, 0x180E, *range(0x200B, 0x2010), 0x2028, 0x2029, 0x2060, 0x2064, 0xFEFF]


@pytest.mark.parametrize("key", ["name", "description"])
@pytest.mark.parametrize("point", HIDDEN, ids=hex)
def test_characters_that_hide_text_exclude_the_skill(key: str, point: int) -> None:
    verdict = judge("ab", LENIENT, **{key: f'"a\\U{point:08x}b"'})
    assert ("hidden-characters", "error") in said(verdict)
    assert chr(point) not in verdict.name + verdict.description


@pytest.mark.parametrize("key", ["name", "description"])
@pytest.mark.parametrize("point", INVISIBLE, ids=hex)
def test_invisible_characters_are_removed_with_a_warning(key: str, point: int) -> None:
    verdict = judge("ab", LENIENT, **{"name": "ab", key: f'"a\\U{point:08x}b"'})
    assert said(verdict) == [("invisible-removed", "warning")]
    assert {"name": verdict.name, "description": verdict.description}[key] == "ab"


@pytest.mark.parametrize("char", ["\u200d", "\u00a0", "é", "👩\u200d💻", "\ufe0f"])
def test_what_people_can_see_stays(char: str) -> None:
    assert judge(description=f"a {char} b").description.startswith("a")


TOOLS: list[tuple[object, tuple[str, ...], tuple[object, ...]]] = [
    # what is written, its entries, and what is malformed in it
    ("Read Write", ("Read", "Write"), ()),
    ("Read, Write,Edit", ("Read", "Write", "Edit"), ()),
    ("Bash(git add *) Read", ("Bash(git add *)", "Read"), ()),
    ("Bash(git add, git commit),Read", ("Bash(git add, git commit)", "Read"), ()),
    ("Bash(a (b c) d) X", ("Bash(a (b c) d)", "X"), ()),
    ("  Read \t Write ", ("Read", "Write"), ()),
    (["Read", "Bash(git add *)", "A, B"], ("Read", "Bash(git add *)", "A", "B"), ()),
    ([], (), ()),
    ("a) b", ("b",), ("a)",)),
    ("Read Bash(open", ("Read",), ("Bash(open",)),
    ("Bash(a (b)", (), ("Bash(a (b)",)),
    *((one, (), (one,)) for one in ("Bash()", "", {"a": "b"}, 7, False)),
    (["Read", 1, None, "", ["Write"]], ("Read",), (1, None, "", ["Write"])),
]


def test_allowed_tools_are_split_outside_of_parentheses_and_what_is_malformed_is_no_entry() -> None:
    assert [row for row in TOOLS if split_tools(row[0]) != row[1:]] == []


@pytest.mark.parametrize(
    ("handling", "severity", "kept"),
    [("keep", "info", True), ("warn", "warning", False), ("ignore", None, False), ("error", "error", True)],
)
def test_unknown_keys_are_kept_dropped_or_refused(handling: Unknown, severity: str, kept: bool) -> None:
    verdict = judge("pdf", Rules(unknown_keys=handling), version="x", author="y")
    found = {s for code, s in said(verdict) if code == "unknown-key"}
    assert found == ({severity} if severity else set())
    assert ("version" in verdict.fields) == kept


def test_a_diagnostic_points_at_the_key_it_is_about() -> None:
    verdict = judge("pdf", STRICT, yaml="# note\nname: Pdf\n\ndescription: x\n'odd': y\n")
    places = {d.code: (d.line, d.column) for d in verdict.diagnostics}
    assert places == {"name-invalid": (3, 1), "name-mismatch": (3, 1), "unknown-key": (6, 1)}


def test_a_flaw_of_a_name_comes_with_a_name_that_would_do() -> None:
    verdict = judge("pdf", name="My Pdf_Tool!")
    hint = next(d.hint for d in verdict.diagnostics if d.code == "name-invalid")
    assert "`my-pdf-tool`" in hint


@pytest.mark.parametrize(
    ("body", "line"), [(b"a\nRun !`ls` now", 2), (b"!`ls`", 1), (b"a!`ls`", 0), (b"! `ls`", 0), (b"!``", 0)]
)
def test_an_inline_command_in_a_body_is_pointed_out(body: bytes, line: int) -> None:
    note = check_body(body, "SKILL.md")
    assert (note.line if note else 0) == line
    assert note is None or (note.code, note.severity) == ("inline-command", "info")


def test_a_broken_frontmatter_is_judged_by_its_own_error_alone() -> None:
    parsed = parse(b"no fence", "SKILL.md")
    assert parsed is not None
    verdict = check(parsed, "pdf", LENIENT, "SKILL.md")
    assert said(verdict) == [("frontmatter-missing", "error")]
