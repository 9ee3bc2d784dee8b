"""The end line of each session in an export: any change of the file is found."""

import hashlib
import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import forking
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


def changed_once(text: str, chance: random.Random) -> str:
    """Return a text with one character or one line removed, added, replaced or moved."""
    kind = chance.choice(("character", "line"))
    parts = list(text) if kind == "character" else text.split("\n")
    place = chance.randrange(len(parts))
    match chance.choice(("remove", "insert", "replace", "move")):
        case "remove":
            del parts[place]
        case "insert":
            parts.insert(place, chance.choice('aZ09 {}[]",:\\\n\réß\u2028') if kind == "character" else parts[place])
        case "replace":
            parts[place] = chance.choice('abc019 {}",:\n') if kind == "character" else chance.choice(parts)
        case _:
            parts.insert(chance.randrange(len(parts)), parts.pop(place))
    return ("" if kind == "character" else "\n").join(parts)


@pytest.mark.parametrize("session", [None, "s1"])
def test_of_500_single_changes_each_is_found(session: str | None) -> None:
    with open_store("memory:") as source:
        fill(source)
        text = "\n".join(source.export_lines(session))
    chance = random.Random(15)
    done = 0
    while done < 500:
        changed = changed_once(text, chance)
        if changed == text:
            continue
        done += 1
        assert problems(changed.split("\n")), changed
        with open_store("memory:") as target:
            with pytest.raises(StoreError):
                target.import_lines(changed.split("\n"))
            assert is_empty(target)


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


def test_a_session_without_an_end_line_was_cut(store: Store) -> None:
    with open_store("memory:") as source:
        fill(source)
        whole = list(source.export_lines("s1"))
    assert problems(whole) == []
    for length in range(1, len(whole)):
        with pytest.raises(StoreError, match=f"line {length}: {CUT}") as caught:
            store.import_lines(whole[:length])
        assert caught.value.reason == "changed"
    assert is_empty(store)


@pytest.mark.system
def test_the_command_line_imports_its_own_export_and_refuses_a_changed_one(tmp_path: Path) -> None:
    url, other, file = f"{tmp_path}/one.db", f"{tmp_path}/two.db", tmp_path / "record.jsonl"
    with open_store(url) as store:
        fill(store)

    def metier(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*forking.METIER, "session", "store", *arguments]
        return forking.run(command, capture_output=True, text=True, check=False)

    exported = metier("export", "--store", url).stdout
    file.write_text(exported.replace("s1-2", "s1-9"))
    refused = metier("import", "--store", other, str(file))
    assert refused.returncode == 1
    assert f"line 7: the 6 lines {CHANGED}" in refused.stderr
    file.write_text(exported)
    assert metier("import", "--store", other, str(file)).stdout == "8 events and 2 artifacts were imported\n"
    assert metier("export", "--store", other).stdout == exported
