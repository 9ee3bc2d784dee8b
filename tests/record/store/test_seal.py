"""The end line of each session in an export: any change of the file is found."""

import hashlib
import json
from collections.abc import Callable

import pytest

from metier.files.digests import digest_of
from metier.record.store import Draft, Store, StoreError, open_store
from metier.record.store.seal import SealCheck, SealProblem


def fill(store: Store) -> None:
    """Two sessions that share an artifact, and things that belong to no session."""
    shared = b"shared"
    for session in ("s1", "s2"):
        for number in range(4):
            data = {"text": f"é\u2028\n{number}", "digest": digest_of(shared)}
            store.append(session, "session", session, [Draft(f"{session}-{number}", number, "x", data)], [shared])
        store.save_state(session, "loaded", ["pdf", 1, True])
    store.save_state("no-events", "k", None)
    store.put_artifact(b"loose")


@pytest.fixture
def lines() -> list[str]:
    """Lines 1 to 6 are of s1, 8 to 12 of s2, 14 and 15 of neither; 7, 13 and 16 are the end lines."""
    with open_store("memory:") as source:
        fill(source)
        return list(source.export_lines())


def problems(lines: list[str]) -> list[SealProblem]:
    check = SealCheck()
    found = [check.line(number, line) for number, line in enumerate(lines, 1)]
    return [problem for problem in (*found, check.finish()) if problem is not None]


def is_empty(store: Store) -> bool:
    stats = store.stats()
    return stats.events == stats.artifacts == stats.states == 0


# What an export writes


def test_each_session_ends_with_the_number_and_the_hash_of_its_lines(store: Store) -> None:
    fill(store)
    ends: list[tuple[str | None, int]] = []
    section = b""
    for line in store.export_lines():
        record = json.loads(line)
        if "end" not in record:
            section += line.encode() + b"\n"
            continue
        assert record == {
            "end": record["end"],
            "lines": section.count(b"\n"),
            "sha256": hashlib.sha256(section).hexdigest(),
        }
        ends.append((record["end"], record["lines"]))
        section = b""
    assert section == b"", "nothing follows the last end line"
    assert ends == [("s1", 6), ("s2", 5), (None, 2)]


def test_a_store_with_sessions_only_has_no_other_end_and_an_empty_one_has_no_line(store: Store) -> None:
    assert list(store.export_lines()) == []
    store.append("s", "session", "s", [Draft("e", 1, "x", {})])
    assert [json.loads(line).get("end", "-") for line in store.export_lines()] == ["-", "s"]
    assert list(store.export_lines()) == list(store.export_lines("s"))


def test_exports_of_single_sessions_can_be_joined(store: Store) -> None:
    with open_store("memory:") as source:
        fill(source)
        both = [*source.export_lines("s2"), *source.export_lines("s1")]
    assert problems(both) == []
    assert store.import_lines(both).events == 8


# What is refused


def edited(number: int, old: str, new: str) -> Callable[[list[str]], list[str]]:
    def edit(lines: list[str]) -> list[str]:
        assert old in lines[number - 1]
        return [*lines[: number - 1], lines[number - 1].replace(old, new, 1), *lines[number:]]

    return edit


def without(*numbers: int) -> Callable[[list[str]], list[str]]:
    return lambda lines: [line for number, line in enumerate(lines, 1) if number not in numbers]


CHANGED = "before the end line, or this line, were changed or moved"
CUT = "no end line follows: the file was cut, or lines were added"
ANOTHER = "the end line names another session than"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (edited(3, '"text":"é', '"text":"e'), f"line 7: the 6 lines {CHANGED}"),
        (edited(6, "pdf", "pdg"), f"line 7: the 6 lines {CHANGED}"),
        (edited(6, ":[", ": ["), f"line 7: the 6 lines {CHANGED}"),
        (edited(7, '"sha256":"', '"sha256":"0'), f"line 7: the 6 lines {CHANGED}"),
        (edited(7, '"lines":', '"lines": '), f"line 7: the 6 lines {CHANGED}"),
        (edited(7, '"lines":6', '"lines":true'), "line 7: the end line counts True lines, and there are 6"),
        (edited(7, '"lines":6', '"lines":"6"'), "line 7: the end line was changed"),
        (edited(7, '"end":"s1"', '"end":["s1"]'), "line 7: the end line was changed"),
        (edited(7, '"end":"s1"', '"end":"s2"'), f"line 7: {ANOTHER} the 6 lines before it"),
        (edited(7, '"end":"s1"', '"end":null'), f"line 7: {ANOTHER} the 6 lines before it"),
        (edited(16, '"end":null', '"end":"no-events"'), f"line 16: {ANOTHER} the 2 lines before it"),
        (without(1), "line 6: the end line counts 6 lines, and there are 5: lines were removed"),
        (without(6), "line 6: the end line counts 6 lines, and there are 5: lines were removed"),
        (without(7), "line 12: the end line counts 5 lines, and there are 11: lines were added"),
        (without(16), f"line 15: {CUT}"),
        (without(13, 14, 15, 16), f"line 12: {CUT}"),
        (without(*range(10, 17)), f"line 9: {CUT}"),
        (lambda lines: [*lines[:6], lines[5], *lines[6:]], "line 8: .* and there are 7: lines were added"),
        (lambda lines: [*lines[:3], "", *lines[3:]], "line 8: .* and there are 7: lines were added"),
        (lambda lines: [*lines[:3], " \n", *lines[3:]], "line 8: .* and there are 7: lines were added"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], f"line 7: the 6 lines {CHANGED}"),
        (lambda lines: [*lines, lines[5]], f"line 17: {CUT}"),
        (lambda lines: [*lines, "\n"], f"line 17: {CUT}"),
    ],
)
def test_a_changed_file_is_refused_by_its_end_lines_and_changes_nothing(
    store: Store, lines: list[str], damage: Callable[[list[str]], list[str]], message: str
) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        store.import_lines(damage(lines))
    assert (caught.value.reason, caught.value.hint) == ("changed", "export the session again")
    assert is_empty(store)
    assert str(problems(damage(lines))[0]) == caught.value.message


def test_problems_are_values_and_the_check_goes_on_behind_broken_lines(lines: list[str]) -> None:
    broken = [*lines[:2], '{"half', *lines[3:8], "\ud800", "[" * 100_000, *lines[8:], "[]"]
    assert [(problem.line, problem.text) for problem in problems(broken)] == [
        (7, f"the 6 lines {CHANGED}"),
        (15, "the end line counts 5 lines, and there are 7: lines were added"),
        (19, CUT),
    ]


# Line ends


def test_line_ends_and_the_rest_of_a_split_are_no_lines(store: Store, lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    assert problems(text.split("\n")) == problems(lines) == problems([f"{line}\n" for line in lines]) == []
    assert store.import_lines(text.split("\n")).events == 8
