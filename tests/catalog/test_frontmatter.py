"""Fences, scalars, duplicates, repairs, and the line and column of every error."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metier.catalog import frontmatter
from metier.catalog.frontmatter import Parsed, parse
from metier.catalog.frontmatter.plain import read_plain


def read(text: str | bytes, **given: bool) -> Parsed:
    parsed = parse(text.encode() if isinstance(text, str) else text, "SKILL.md", **given)
    assert parsed is not None
    return parsed


def fields(yaml: str) -> dict[str, object]:
    parsed = read(f"---\n{yaml}\n---\n")
    assert parsed.fields is not None, parsed.diagnostics
    return parsed.fields


def codes(parsed: Parsed) -> list[str]:
    return [d.code for d in parsed.diagnostics]


# --- fences


WHOLE = (
    *("---\nname: a\n---\nbody", "---\nname: a\n---", "---\nname: a\n---\n", "---  \nname: a\n--- \t\nbody"),
    *("\ufeff---\nname: a\n---\nbody", "---\r\nname: a\r\n---\r\nbody", "---\r\nname: a\n---\r\nbody"),
    *("---\nname: a\r\n---", "\ufeff---\r\nname: a\r\n---\r\n", "---\n\n# comment\nname: a\n\n---\n---\n"),
)


def test_a_fence_is_a_whole_line_whatever_its_ending() -> None:
    assert {text: found for text in WHOLE if (found := read(text)[:2]) != ({"name": "a"}, ())} == {}


@pytest.mark.parametrize(
    ("value", "read_as"),
    [
        ("a --- b", "a --- b"),
        ("a ---", "a ---"),
        ("'---'", "---"),
        ("|\n  ---\n  x", "---\nx\n"),
        (">-\n  a\n  ---\n  b", "a --- b"),
        ("a\n ---", "a ---"),
    ],
)
def test_three_hyphens_inside_a_value_close_nothing(value: str, read_as: str) -> None:
    assert fields(f"description: {value}\nname: x") == {"description": read_as, "name": "x"}


@pytest.mark.parametrize("line", ["----", "---x", "--- x", " ---", "--", "—--"])
def test_a_line_that_is_more_than_a_fence_is_none(line: str) -> None:
    assert codes(read(f"---\nname: a\n{line}\n")) == ["frontmatter-unclosed"]


def test_the_body_begins_behind_the_closing_fence() -> None:
    for text in ("---\na: b\n---\nbody", "\ufeff---\r\na: b\r\n---\r\nbody", "---\na: b\n---# body"):
        parsed = read(text)
        assert text.encode()[parsed.body_offset :].lstrip(b"# ") == b"body"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("---\nname: a\ndescription: b\n---# Title\n", 4),
        ("---\nname: a\ndescription: b\n--- # Title\n", 4),
        ("Some text\n---\nname: a\ndescription: b\n---\n", 2),
        ("<!-- a\ncomment -->\n\n---\ndescription: b\nname: a\n---\n", 4),
        ("\n---\nname: a\ndescription: b\n---\n", 2),
    ],
)
def test_a_misplaced_fence_is_found_and_reported_but_not_in_strict_mode(text: str, line: int) -> None:
    parsed = read(text)
    assert parsed.fields == {"name": "a", "description": "b"}
    assert parsed.repaired
    (note,) = parsed.diagnostics
    assert (note.code, note.severity, note.line) == ("fence-repaired", "warning", line)
    strict = read(text, repair=False)
    assert strict.fields is None
    assert codes(strict) == ["frontmatter-unclosed" if "Title" in text else "frontmatter-missing"]


@pytest.mark.parametrize(
    "text",
    ["", "# Title\n", "# Title\n\n---\n\ntext\n\n---\n", "-- -\nname: a\n---\n", "\n" * 30 + "---\nname: a\n---\n"],
)
def test_a_thematic_break_is_no_frontmatter(text: str) -> None:
    assert codes(read(text)) == ["frontmatter-missing"]


def test_more_bytes_are_asked_for_until_the_closing_fence_is_certain() -> None:
    text = b"---\nname: a\n---\nbody"
    answers = [parse(text[:size], complete=False) for size in range(len(text) + 1)]
    certain = len(b"---\nname: a\n---") + 1
    assert [answer is None for answer in answers] == [size < certain for size in range(len(text) + 1)]


# --- scalars


@pytest.mark.parametrize(
    "written",
    ["1.10", "2.00", "007", "0x1F", "0o17", "1e3", "+1", "-0", ".inf", "-.INF", ".nan", "1.", ".5", "9" * 30, "1.50"],
)
@pytest.mark.parametrize(
    ("yaml", "path"),
    [
        ("version: {}", ["version"]),
        ("version: {}  # comment", ["version"]),
        ("metadata:\n  my-version: 1.1\nversion: {}", ["version"]),
        ("metadata:\n  version: {}\nversion: 2", ["metadata", "version"]),
        ("list:\n  - 1\n  - {}", ["list", 1]),
        ("list:\n- a: {}", ["list", 0, "a"]),
        ("metadata: {{version: {}, b: 1}}", ["metadata", "version"]),
        ('metadata: {{"a": {{"version":{}}}}}', ["metadata", "a", "version"]),
        ("list: [1, {}]", ["list", 1]),
        ("list: [[1], [2, {}],\n  3]", ["list", 1, 1]),
    ],
)
def test_a_number_that_would_print_back_differently_stays_text(yaml: str, path: list[str | int], written: str) -> None:
    value: Any = fields(yaml.format(written))
    for step in path:
        value = value[step]
    assert value == written


@pytest.mark.parametrize(
    ("written", "value"),
    [("3", 3), ("-7", -7), ("1.5", 1.5), ("true", True), ("False", False), ("null", None), ("~", None), ("", None)],
)
def test_plain_scalars_of_yaml_1_2_keep_their_type(written: str, value: object) -> None:
    assert fields(f"key: {written}")["key"] == value
    assert type(fields(f"key: {written}")["key"]) is type(value)


@pytest.mark.parametrize("word", ["on", "off", "yes", "No", "y", "2024-01-01", "12:30:45", "1_000", "0b1", "=", "<"])
def test_what_only_yaml_1_1_knew_is_text(word: str) -> None:
    assert fields(f"key: {word}\n{word}x: 1") == {"key": word, f"{word}x": 1}


def test_keys_that_are_no_text_become_text() -> None:
    assert fields("123: a\ntrue: b\nnull: c\n1.5: d") == {"123": "a", "true": "b", "none": "c", "1.5": "d"}


def test_an_ampersand_in_quotes_blocks_and_words_is_text() -> None:
    text = 'a: R&D &c\nb: \'&x\'\nc: |\n  &y *y\nd: ["&z", a&b]\n"&k": 1\ne: \ue000&'
    assert fields(text) == {
        "a": "R&D &c",
        "b": "&x",
        "c": "&y *y\n",
        "d": ["&z", "a&b"],
        "&k": 1,
        "e": "\ue000&",
    }


def test_an_emoji_as_json_escapes_it_is_one_character() -> None:
    assert fields('metadata: {"emoji": "\\ud83e\\udde0"}') == {"metadata": {"emoji": "🧠"}}
    assert fields('a: "\\\\ud83e\\\\udde0"') == {"a": "\\ud83e\\udde0"}


# --- duplicates


@pytest.mark.parametrize(
    ("yaml", "key", "line", "column", "winner"),
    [
        ("name: a\nname: b", "name", 3, 1, {"name": "b"}),
        ('name: a\n"name": b', "name", 3, 1, {"name": "b"}),
        ("metadata:\n  a: 1\n  b: 2\n  a: 3", "a", 5, 3, {"metadata": {"a": 3, "b": 2}}),
        ("x: {y: z}\nname: a\nname: b", "name", 4, 1, {"x": {"y": "z"}, "name": "b"}),
        ("'a:b': c\nname: a\nname: b", "name", 4, 1, {"a:b": "c", "name": "b"}),
        ("-a: c\nname: a\nname: b", "name", 4, 1, {"-a": "c", "name": "b"}),
        ("metadata: {a: 1, b: 2, a: 3}", "a", 2, 24, {"metadata": {"a": 3, "b": 2}}),
        ('metadata: {"a":1,\n  "a":3}', "a", 3, 3, {"metadata": {"a": 3}}),
        ("list:\n  - a: 1\n    a: 2\n  - a: 3", "a", 4, 5, {"list": [{"a": 2}, {"a": 3}]}),
        ("list: [{a: 1}, {a: 2, a: 3}]", "a", 2, 23, {"list": [{"a": 1}, {"a": 3}]}),
        ("a: >\n  text: x\nb: 1\nb: 2", "b", 5, 1, {"a": "text: x\n", "b": 2}),
    ],
)
def test_a_duplicate_key_is_reported_where_it_stands_and_the_last_one_counts(
    yaml: str, key: str, line: int, column: int, winner: dict[str, object]
) -> None:
    parsed = read(f"---\n{yaml}\n---\n")
    assert parsed.fields == winner
    (note,) = parsed.diagnostics
    assert (note.code, note.severity, note.line, note.column) == ("duplicate-key", "warning", line, column)
    assert f"`{key}`" in note.message
    assert "last" in note.message


@pytest.mark.parametrize(
    "yaml",
    [
        "a:\n  x: 1\nb:\n  x: 2",
        "- x: 1\n- x: 2".replace("- x", "k:\n- x", 1),
        "a: {x: 1, y: {x: 2}}\nx: 3",
        "a: |\n  x: 1\n  x: 2\nx: 3",
        "a: 'x: 1\n  x: 2'\nx: 3",
        "a: [{x: 1}, {x: 2}]",
        "# x: 1\nx: 2",
        "a: text\n  that goes on\nthat: 1",
    ],
)
def test_the_same_key_in_another_map_or_in_text_is_no_duplicate(yaml: str) -> None:
    assert codes(read(f"---\n{yaml}\n---\n")) == []


# --- places


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        (b"# Title\n", "frontmatter-missing", 1, 1),
        (b"---\nname: a\n", "frontmatter-unclosed", 1, 1),
        (b"---\n" + b"a: " + b"x" * 70_000 + b"\n---\n", "frontmatter-too-large", 2, 1),
        (b"---\na: b\nc: \xc3\xa9 \xff\n---\n", "not-utf8", 3, 6),
        (b"---\na: b\nc: \xe9\xe9\n---\n", "not-utf8", 3, 4),
        (b"---\na: b\r\nc: d\x00\r\n---\n", "nul-byte", 3, 5),
        (b"---\n- a\n- b\n---\n", "yaml-not-mapping", 2, 1),
        (b"---\njust text\n---\n", "yaml-not-mapping", 2, 1),
        (b"---\na: b\n? [x]\n: y\n---\n", "yaml-key", 3, 1),
        (b"---\na:\n  [x]: y\n---\n", "yaml-key", 3, 3),
        (b"---\na: b\n{x: y}: z\n---\n", "yaml-key", 3, 1),
        (b"---\na: b\nc: &x d\n---\n", "yaml-anchor", 3, 4),
        (b"---\na: [b,\n  &x c]\n---\n", "yaml-anchor", 3, 3),
        (b"---\n&x a: b\n---\n", "yaml-anchor", 2, 1),
        (b"---\na: &x {b: c}\nd:\n  <<: *x\n---\n", "yaml-merge-key", 4, 3),
        (b"---\nd: {<<: {a: b}}\n---\n", "yaml-merge-key", 2, 5),
        (b"---\na: b\nc: !!str d\n---\n", "yaml-tag", 3, 4),
        (b"---\na:\n  - !x b\n---\n", "yaml-tag", 3, 5),
        (b"---\na: !<tag:x> b\n---\n", "yaml-tag", 2, 4),
        (b"---\na: b\nc: " + b"[" * 40 + b"]" * 40 + b"\n---\n", "yaml-too-deep", 3, 1),
        (b"---\na: b\nc: \xc3\xa9\nd: @e\n---\n", "yaml-invalid", 4, 4),
        (b'\xef\xbb\xbf---\r\na: b\r\nc: "d\r\n---\r\n', "yaml-invalid", 3, 4),
    ],
)
def test_every_kind_of_error_has_its_line_and_column(text: bytes, code: str, line: int, column: int) -> None:
    parsed = read(text, repair=False)
    assert parsed.fields is None
    (error,) = parsed.diagnostics
    assert (error.code, error.severity, error.path) == (code, "error", "SKILL.md")
    assert (error.line, error.column) == (line, column)


# --- repairs


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("description: *bold* text", "*bold* text"),
        ("description: **Bold**: text", "**Bold**: text"),
        ("description: @someone says", "@someone says"),
        ("description: `code` first", "`code` first"),
        ("description: %percent", "%percent"),
        ("description: Use when: it rains", "Use when: it rains"),
        ("description: a 'quoted' thing: here", "a 'quoted' thing: here"),
        ("description: [title] [message]", "[title] [message]"),
        ("description: [pdf] and more: text", "[pdf] and more: text"),
        ('description: "quoted" and more', '"quoted" and more'),
        ("description: 'it's broken'", "'it's broken'"),
        ("description: {a} b", "{a} b"),
        ("description: one: two\n  three: four", "one: two three: four"),
        ("description: one: two\nthree goes on", "one: two three goes on"),
        ('description: "goes on\nin the first column"', "goes on in the first column"),
    ],
)
def test_a_broken_plain_value_is_quoted_once_and_reported_with_the_original_error(line: str, value: str) -> None:
    text = f"---\nname: a\n{line}\nlicense: MIT\n---\n"
    parsed = read(text)
    assert parsed.fields == {"name": "a", "description": value, "license": "MIT"}
    (note,) = parsed.diagnostics
    assert (note.code, note.severity) == ("yaml-repaired", "warning")
    assert note.line in (3, 4, 5)
    assert "invalid YAML (" in note.message
    strict = read(text, repair=False)
    assert strict.fields is None
    assert [(d.code, d.line) for d in strict.diagnostics] == [("yaml-invalid", note.line)]


def test_an_error_in_a_nested_value_is_repaired_too() -> None:
    assert fields("a:\n  - *x\n  - b: c: d\n  - ok") == {"a": ["*x", {"b": "c: d"}, "ok"]}


def test_a_repair_leaves_quotes_blocks_and_comments_alone() -> None:
    healthy = "a: \"x: \\u0041\"\nb: |\n  k: @v\n  *x*\nc: 'it''s: y'  # note: this\n# d: @e\nf: [1, \"g: h\"]"
    alone = fields(healthy)
    assert fields(f"{healthy}\nbroken: @x") == alone | {"broken": "@x"}


TEXT = st.text(alphabet="abzAZ019 :#-\"'[]{}&*!|>%@`,?\t\n.~\\\u00e9\u2028", max_size=60)
WORDS = st.sampled_from((
    "Words", "a b, c", "x: y", "x:y", "a #b", "a#b", "true", "False", "null", "1", "1.10", "1.5", "007", "1.2.3",
    "2026-01-02", "it's", '"a: b"', "'a # b'", '"a \\"b\\" c"', '"a\\n"', "'it''s'", "[]", "[a, b]", "[a, true]",
    '["a", "b: c"]', "[1, b]", "{a: b}", "- a", "", "~", "*a", "a:", "a ", ">-", "|", ">", "|-", "> x",
))  # fmt: skip
LINES = st.lists(
    st.tuples(
        st.sampled_from(("", "", " ", "  ", "  ", "    ")),
        st.sampled_from(("", "", "- ", "a: ", "b: ", "name: ", "tags:", "b_c: ", "-", "true: ")),
        WORDS,
    ),
    min_size=1,
    max_size=7,
)


def agree(text: str) -> bool:
    """Whether the text is read without the parser, which must then read the same."""
    plain = read_plain(text)
    if plain is None:
        return False
    parsed = frontmatter._YamlText(text, "", 1, 0).parse(repair=True)
    assert repr(parsed.fields) == repr(plain)
    assert not parsed.diagnostics
    return True


PAIRS = st.lists(st.tuples(st.text(alphabet="abA-_: \"'", min_size=1, max_size=6), TEXT), min_size=1, max_size=4)
ANY = st.one_of(
    PAIRS.map(lambda pairs: "".join(f"{key}: {value}\n" for key, value in pairs)),
    LINES.map(lambda lines: "".join(f"{indent}{start}{words}\n" for indent, start, words in lines)),
)


@settings(max_examples=500)
@given(ANY)
def test_what_is_read_without_the_parser_is_what_the_parser_would_have_read(text: str) -> None:
    agree(text)


@pytest.mark.parametrize(
    "text",
    [
        "name: a\ndescription: Does it, (well).\n",
        'name: a\ndescription: "Use: when \\"this\\" # is said"\n',
        "name: 'a'\ndescription: >-\n  one\n  two: three\n\n",
        "description: |\n  one\n  # two\nname: a\n",
        "description: One that\n  goes on\n    and on\nname: a\n",
        "description: 'One: that\n  goes on'\nuser-invocable: true\n",
        'tags: [a, b c, d-e]\nnone: []\nquoted: ["a: b", "c"]\n',
        "tags:\n- a\n- 'b: c'\nmore:\n  - d\n",
        "metadata:\n  version: 1.10\n  author: x\n  deeper:\n    tags:\n    - y\n    since: 2026-01-02\n",
        "version: 1.2.3\ncount: 3\nratio: 1.5\n",
    ],
)
def test_ordinary_frontmatter_is_read_without_the_parser(text: str) -> None:
    assert agree(text)


def test_what_could_mean_something_else_is_left_to_the_parser() -> None:
    others = ("b # c", "b: c", "True", "1\na: 2", "&x b", "{b: c}", "")
    assert [text for text in (*(f"a: {other}\n" for other in others), "true: a\n", "- a\n", "") if agree(text)] == []


# --- outlines


def outlined(text: str) -> Parsed:
    """The outline of a frontmatter, which must say the same about every key."""
    parsed = read(f"---\n{text}---\n")
    outline = parsed.outline()
    for key in (*(parsed.fields or ()), "name", "description", "license", "a", "absent"):
        assert outline.locate(key) == parsed.locate(key)
    for key, value in (parsed.fields or {}).items():
        if isinstance(value, bool):
            assert outline.original(key) == parsed.original(key)
    assert outline == parsed._replace(text=outline.text)
    return outline


@settings(max_examples=500)
@given(ANY)
def test_an_outline_has_the_same_keys_in_the_same_places(text: str) -> None:
    outlined(text)


def test_an_outline_keeps_no_values_and_files_share_it() -> None:
    one = outlined("name: one\ndescription: >-\n  Words\n  - and more\nlicense: MIT\n")
    two = outlined("name: two\ndescription: |\n  Other words\n  and: more\nlicense: BSD\n")
    assert one.text == "name:\ndescription:\n\n\nlicense:\n"
    assert one.text is two.text


NOT_PLAIN = (
    *("name: Yes\ndescription: true\n", "'name': a\n", '"name" : a\nb: c\n', "name : a\nb: c\n", "a b: c\nname: a\n"),
    *("a:b: c\nname: a\n", "x: y\n# name: b\nname: a\n", "x: y\n{name}: a\n"),
)


def test_an_outline_of_what_is_not_plain_keeps_the_text() -> None:
    assert [text for text in NOT_PLAIN if outlined(text).text != read(f"---\n{text}---\n").text] == []
