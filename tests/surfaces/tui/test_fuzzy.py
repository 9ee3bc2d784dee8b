"""Fuzzy matching of names: what matches, and which of two names is the better one."""

import pytest

from metier.surfaces.tui import fuzzy


@pytest.mark.parametrize(
    ("word", "name", "marked"),
    [
        ("csvprof", "csv-profile", "^^^ ^^^^"),
        ("cp", "csv-profile", "^   ^"),
        ("prof", "csv-profile", "    ^^^^"),
        ("notes", "releasenotes-notes", "             ^^^^^"),
        ("v2", "api-v12-v2", "        ^^"),
        ("PDF", "to-PDF-pdf", "   ^^^"),
        ("ö", "schön", "   ^"),
    ],
)
def test_the_best_letters_are_taken(word: str, name: str, marked: str) -> None:
    found = fuzzy.match(word, name)
    assert found is not None
    assert found.close
    assert list(found.places) == [place for place, mark in enumerate(marked) if mark == "^"]
    pattern = fuzzy.pattern([word])
    assert pattern is not None
    assert pattern.match(name.casefold()), "the quick test leaves nothing out"


@pytest.mark.parametrize(
    ("word", "better", "worse"),
    [
        ("pro", "profile", "compro"),
        ("pro", "csv-profile", "csv-approve"),
        ("pr", "profile", "pdf-review"),
        ("csvp", "csv-profile", "clean-sheet-via-paper"),
        ("rn", "release-notes", "learn"),
    ],
)
def test_beginnings_and_neighbours_count_more(word: str, better: str, worse: str) -> None:
    good, bad = fuzzy.match(word, better), fuzzy.match(word, worse)
    assert good is not None
    assert bad is not None
    assert good.score > bad.score


@pytest.mark.parametrize(
    ("word", "name"), [("fsc", "csv-profile"), ("Csv", "csv-profile"), ("cf", "csv-profile"), ("x", "a")]
)
def test_other_names_do_not_match(word: str, name: str) -> None:
    assert fuzzy.match(word, name) is None


def test_letters_far_apart_match_but_are_not_close() -> None:
    found = fuzzy.match("cvl", "csv-profile")
    assert found is not None
    assert not found.close
