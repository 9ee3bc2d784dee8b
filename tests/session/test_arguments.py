"""Arguments go into a body once: where it asks for them, else behind it, and never out of themselves."""

import random
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metier.session.arguments import expand

DECLARED: dict[str, Any] = {"arguments": ["file", "style"]}
HINT: dict[str, Any] = {"argument-hint": "[file] [style]"}


@pytest.mark.parametrize(
    ("body", "arguments", "expected"),
    [
        ("Do $ARGUMENTS now", "it all", "Do it all now"),
        ("$ARGUMENTS, $ARGUMENTS", "a", "a, a"),
        ("Do it.", "a b", "Do it.\n\nARGUMENTS: a b\n"),
        ("Do it.\n\n\n", "a", "Do it.\n\nARGUMENTS: a\n"),
        ("Do $ARGUMENTS now", "", "Do $ARGUMENTS now"),
        ("Do it.", "", "Do it."),
        ("", "a", "\n\nARGUMENTS: a\n"),
        ("$ARGUMENTSX $ARGUMENT", "a", "$ARGUMENTSX $ARGUMENT\n\nARGUMENTS: a\n"),
        ("Do $ARGUMENTS.", "$ARGUMENTS and $1", "Do $ARGUMENTS and $1."),
        (r"Do $ARGUMENTS", r"\1 \g<0> \\n", r"Do \1 \g<0> \\n"),
    ],
)
def test_the_whole_text_goes_where_the_body_asks_or_behind_it(body: str, arguments: str, expected: str) -> None:
    assert expand(body, arguments, {}) == expected
    assert expand(body, arguments, {}, indexed=False) == expected


@pytest.mark.parametrize(
    ("body", "frontmatter", "expected"),
    [
        ("$1 in $2", HINT, "a.pdf in two words"),
        ("$1 in $2", DECLARED, "a.pdf in two words"),
        ("$ARGUMENTS[0] in $ARGUMENTS[1]", {}, "a.pdf in two words"),
        ("$file in $style", DECLARED, "a.pdf in two words"),
        ("$file and $filename", DECLARED, "a.pdf and $filename"),
        ("[$3] [$ARGUMENTS[7]]", HINT, "[] []"),
        ("all: $ARGUMENTS, first: $1", {}, "all: a.pdf 'two words', first: a.pdf"),
        ("$1.", HINT, "a.pdf."),
        ("costs $1.50 or $1,000", HINT, "costs $1.50 or $1,000\n\nARGUMENTS: a.pdf 'two words'\n"),
        ("$file", {"arguments": "file style"}, "a.pdf"),
        ("$style", {"arguments": [{"name": "file"}, {"name": "style"}]}, "two words"),
        ("$file", {"arguments": {"file": "x"}}, "$file\n\nARGUMENTS: a.pdf 'two words'\n"),
    ],
)
def test_indexed_and_named_arguments_are_replaced_where_a_skill_declares_them(
    body: str, frontmatter: dict[str, Any], expected: str
) -> None:
    assert expand(body, "a.pdf 'two words'", frontmatter) == expected


@pytest.mark.parametrize("body", ["awk '{print $1}'", "costs $5", "s/(a)/$1/", "$file", "${file}", "$HOME $PATH"])
def test_what_only_looks_like_an_argument_stays_where_none_is_declared(body: str) -> None:
    assert expand(body, "x", {}) == f"{body}\n\nARGUMENTS: x\n"


def test_a_host_that_knows_only_the_whole_text_leaves_indexes_alone() -> None:
    assert expand("$1 $file", "x", {**DECLARED, **HINT}, indexed=False) == "$1 $file\n\nARGUMENTS: x\n"


@pytest.mark.parametrize(
    ("body", "arguments", "expected"),
    [
        ("${CLAUDE_SKILL_DIR}/a {baseDir}/b", "", "/skills/x/a /skills/x/b"),
        ("{baseDir} $ARGUMENTS", "{baseDir}", "/skills/x {baseDir}"),
        ("{baseDir}", "x", "/skills/x\n\nARGUMENTS: x\n"),
    ],
)
def test_the_directory_is_put_in_by_the_same_pass(body: str, arguments: str, expected: str) -> None:
    assert expand(body, arguments, {}, directory="/skills/x") == expected
    assert expand(body, "", {}) == body


PIECES = st.sampled_from(
    ["$ARGUMENTS", "$ARGUMENTS[0]", "$1", "$2", "$file", "{baseDir}", "${CLAUDE_SKILL_DIR}", " ", "x"]
)
HOSTILE = st.lists(PIECES, min_size=1, max_size=6).map("".join)


@given(body=st.lists(PIECES, max_size=8).map("".join), arguments=HOSTILE, declared=st.booleans())
def test_nothing_in_the_arguments_is_ever_expanded(body: str, arguments: str, declared: bool) -> None:
    """Each argument is replaced by a word that no pattern knows; doing that afterwards must give the same."""
    if not arguments.strip() or " " in arguments:
        return
    frontmatter: dict[str, Any] = {**DECLARED, **HINT} if declared else {}
    plain = expand(body, "QQQ", frontmatter, directory="/dir")
    assert expand(body, arguments, frontmatter, directory="/dir") == plain.replace("QQQ", arguments)


def test_words_are_those_of_a_shell_and_a_long_one_is_no_trouble() -> None:
    chance = random.Random(7)
    body = "".join(f"[$ARGUMENTS[{number}]]" for number in range(12))
    for _ in range(5_000):
        given = "".join(chance.choice("ab é\t\n\r\x0b\x00'\"\\#;") for _ in range(chance.randrange(1, 14)))
        try:
            words = shlex.split(given)
        except ValueError:
            words = given.split()
        expected = "".join(f"[{words[number] if number < len(words) else ''}]" for number in range(12))
        assert expand(body, given, {}) == expected, repr(given)
    assert expand("$1|$ARGUMENTS[1]", "x" * 4_000_000 + " 'y z'", {}, True) == "x" * 4_000_000 + "|y z"
    assert expand("$2 $ARGUMENTS[0]", '"' + "x" * 1_000_000, {}, True) == ' "' + "x" * 1_000_000
