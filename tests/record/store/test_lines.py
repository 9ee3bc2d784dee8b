"""Export and import: every store gives the same lines, and an import checks them."""

import base64
import json
from collections.abc import Callable

import pytest

from metier.files.digests import digest_of
from metier.record.store import Draft, Store, StoreError, open_store
from metier.record.store.seal import Seal
from record.store.conftest import KINDS, NewStore


def fill(store: Store) -> None:
    artifact = bytes(range(256))
    for session in ("s1", "s2"):
        for number in range(3):
            data = {"text": f"é\u2028\n{number}", "digest": digest_of(artifact)}
            store.append(session, "session", f"{session}-a", [Draft(f"{session}-a{number}", number, "x", data)])
            store.append(session, "tool", f"{session}-b", [Draft(f"{session}-b{number}", number, "y", {})], [artifact])
        store.save_state(session, "loaded", ["pdf"])
        store.save_state(session, "loaded", ["pdf", "zip"])
    store.save_state("no-events", "k", None)
    store.put_artifact(b"loose")


@pytest.fixture
def lines() -> list[str]:
    with open_store("memory:") as source:
        fill(source)
        return list(source.export_lines())


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_an_export_imported_elsewhere_exports_the_same_bytes(source: str, target: str, new_store: NewStore) -> None:
    with new_store(source) as first, new_store(target) as second:
        fill(first)
        lines = list(first.export_lines())
        assert second.import_lines(lines).as_dict() == {"events": 12, "artifacts": 2, "states": 3}
        assert list(second.export_lines()) == lines
        assert second.import_lines(f"{line}\n" for line in lines).as_dict() == {
            "events": 0,
            "artifacts": 0,
            "states": 0,
        }
        assert list(second.export_lines()) == lines
        assert [frame["seq"] for frame in second.read(stream_id="s2-b")] == [0, 1, 2]


def test_one_session_is_exported_with_its_artifacts_and_its_state_only(store: Store) -> None:
    fill(store)
    records = [json.loads(line) for line in store.export_lines("s1")]
    assert [record["artifact"] for record in records if "artifact" in record] == [digest_of(bytes(range(256)))]
    assert {record["session_id"] for record in records if "type" in record or "state" in record} == {"s1"}
    assert records[-1]["end"] == "s1"
    assert len(records) == 1 + 6 + 1 + 1
    with pytest.raises(StoreError, match="there is no session 'nobody'"):
        list(store.export_lines("nobody"))


def test_an_import_goes_on_where_the_store_ends(store: Store, lines: list[str]) -> None:
    store.restore([json.loads(line) for line in lines[1:4]], [bytes(range(256))])  # the first batch of an import
    assert store.import_lines(lines).events == 12 - 3
    assert list(store.export_lines()) == lines


def test_a_long_import_is_written_in_batches(store: Store) -> None:
    with open_store("memory:") as source:
        source.append("s", "session", "a", [Draft(f"e{number}", number, "x", {}) for number in range(1203)])
        lines = list(source.export_lines())
    assert store.import_lines(lines).events == 1203
    assert list(store.export_lines()) == lines


Damage = Callable[[list[str]], list[str]]


def added(line: str, number: int | None = None) -> Damage:
    return lambda lines: [*lines[:number], line, *([] if number is None else lines[number:])]


def replaced(old: str, new: str) -> Damage:
    def damage(lines: list[str]) -> list[str]:
        changed = [line.replace(old, new) for line in lines]
        assert changed != lines
        return changed

    return damage


DAMAGES: list[tuple[Damage, str, str]] = [
    (
        lambda lines: [*lines[:2], *lines[3:]],
        "line 4: the next seq of stream 's1-b' is 0, but the frame has seq 1",
        "gap",
    ),
    (added("{not json", 3), "line 4: not valid JSON", "invalid"),
    (added("[]"), "line 21: a line must be one JSON object", "invalid"),
    (lambda lines: [*lines, lines[1]], "line 21: the next seq of stream 's1-a' is 3", "gap"),
    (replaced('"AAECAw', '"AAECBA'), "line 1: artifact sha256:.* was changed", "changed-artifact"),
    (replaced('"AAECAw', '"!AECAw'), "line 1: artifact sha256:.* is not valid base64", "changed-artifact"),
    (replaced('"stream_id":"s2-a"', '"stream_id":"s1-a"'), "line 10: stream 's1-a' is", "conflict"),
    (replaced('"seq":1,', ""), "line 4: the frame has no seq", "invalid"),
    (replaced("é", "\\ud800"), "line 2: the frame contains half a surrogate pair", "invalid"),
]


@pytest.mark.parametrize(("damage", "message", "reason"), DAMAGES)
def test_a_damaged_export_is_refused_by_line_and_changes_nothing(
    store: Store, lines: list[str], damage: Damage, message: str, reason: str
) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        store.import_lines(damage(lines))
    assert caught.value.reason == reason
    assert store.stats().events == store.stats().artifacts == store.stats().states == 0


def test_an_import_that_differs_from_what_is_stored_is_refused(store: Store, lines: list[str]) -> None:
    store.import_lines(lines)
    with pytest.raises(StoreError, match="line 2: seq 0 of stream 's1-a' is stored with different content"):
        store.import_lines(replaced('"id":"s1-a0"', '"id":"other"')(lines))
    assert list(store.export_lines()) == lines


def test_restore_refuses_a_gap_and_a_difference(store: Store) -> None:
    (frame,) = store.append("s", "session", "a", [Draft("e0", 1, "x", {})])
    with pytest.raises(StoreError, match="the next seq of stream 'a' is 1, but the frame has seq 2"):
        store.restore([{**frame, "id": "e2", "seq": 2}], [b"half"])
    with pytest.raises(StoreError, match="is stored with different content"):
        store.restore([{**frame, "type": "y"}], [b"half"])
    with pytest.raises(StoreError, match="seq 0 of stream 'a' belongs to another event"):
        store.restore([{**frame, "id": "e9"}], [b"half"])
    assert store.artifacts() == []
    assert store.restore([frame, {**frame, "id": "e1", "seq": 1}]).events == 1


def test_the_higher_version_of_a_document_stays(store: Store) -> None:
    def export(version: int, value: str) -> list[str]:
        seal = Seal()
        line = seal.add(json.dumps({"state": "k", "session_id": "s", "version": version, "value": value}))
        return [line, seal.end(None)]

    store.import_lines(export(3, "new"))
    assert store.import_lines(export(2, "old")).states == 0
    found = store.load_state("s", "k")
    assert found
    assert (found.version, found.value) == (3, "new")


def test_an_artifact_line_is_its_digest_and_its_bytes(store: Store) -> None:
    store.put_artifact(b"hi")
    assert next(store.export_lines()) == json.dumps(
        {"artifact": digest_of(b"hi"), "base64": base64.b64encode(b"hi").decode()}, separators=(",", ":")
    )
