"""The words of texts and queries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metier.search.words import LONGEST_WORD, affirmative, spans, terms, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Fill the PDF forms", ["fill", "pdf", "forms"]),
        ("release-notes", ["release", "notes"]),
        ("snake_case_name", ["snake", "case", "name"]),
        ("DataFrame", ["dataframe", "data", "frame"]),
        ("parseHTMLPage", ["parsehtmlpage", "parse", "html", "page"]),
        ("deploy to k8s", ["deploy", "k8s"]),
        ("K8S", ["k8s"]),
        ("use C or R, not x", ["use", "c", "r"]),
        ("the of and to", []),
        ("提取表格", ["提取", "取表", "表格"]),
        ("表", ["表"]),
        ("処理PDF文書", ["処理", "pdf", "文書"]),
        ("フォーム", ["フォ", "ォー", "ーム"]),
        ("한국어", ["한국", "국어"]),
        ("ภาษา", ["ภา", "าษ", "ษา"]),
        ("Größe café", ["größe", "café"]),
        ("!?… —", []),
        ("", []),
    ],
)
def test_a_text_falls_into_these_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_hashes_and_encoded_data_are_no_words() -> None:
    assert words("a" * LONGEST_WORD) == ["a" * LONGEST_WORD]
    assert words("a" * (LONGEST_WORD + 1)) == []


@pytest.mark.parametrize(
    ("description", "kept", "gone"),
    [
        ("Fills forms. NOT for spreadsheets.", "forms", "spreadsheets"),
        ("Fills forms. Do not use when drawing.", "forms", "drawing"),
        ("Fills forms; don't use for scans", "forms", "scans"),
        ("填写表单。Skip when signing.", "填写表单", "signing"),
    ],
)
def test_what_a_skill_says_it_is_not_for_is_left_out(description: str, kept: str, gone: str) -> None:
    said = affirmative(description)
    assert kept in said
    assert gone not in said


@given(st.text(st.characters(exclude_categories=()), max_size=80))
def test_all_words_of_a_text_are_found_in_it_again(text: str) -> None:
    found = spans(text, set(terms(text)))
    assert bool(found) is bool(terms(text))
    assert all(0 <= start < end <= len(text) for start, end in found)
    assert found == sorted(found)


def test_a_wanted_word_is_found_in_all_its_forms_and_nothing_else_is() -> None:
    text = "Profiles CSV files; profiling finds outliers"
    assert [text[start:end] for start, end in spans(text, set(terms("profile csv")))] == [
        "Profiles",
        "CSV",
        "profiling",
    ]
    assert spans(text, set()) == []
    text = "可以提取表格数据"
    assert [text[start:end] for start, end in spans(text, {"提取", "取表"})] == ["提取表"]
