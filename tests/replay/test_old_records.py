"""Records of earlier versions still replay: they were exported then, and nothing of them is written anew."""

from pathlib import Path
from typing import Any

import pytest

from metier.replay import from_file, replay

RECORDS = sorted((Path(__file__).parent / "records").glob("*.jsonl"))
VERSION_2 = Path(__file__).parent / "records-2" / "standard.jsonl"
VERSION_3 = Path(__file__).parent / "records-3"
VERSION_4 = Path(__file__).parent / "records-4"
VERSION_5 = Path(__file__).parent / "records-5"
HOSTS = ["codelia", "mycodeagent", "omp", "remcochat", "rip", "standard"]


def test_there_is_a_record_of_each_host() -> None:
    assert [file.stem for file in RECORDS] == HOSTS


@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.stem)
def test_an_old_record_replays_byte_for_byte(file: Path) -> None:
    record = from_file(str(file))
    outcome = replay(record)
    assert [one.as_dict() for one in outcome.differences] == []
    assert len(outcome.frames) == len(record.frames) > 100
    operations = {frame["operation"] for frame in record.frames if frame["type"] == "session_called"}
    assert operations >= {"load", "read", "search", "call", "invoke", "compact", "end_turn", "output", "run"}


def test_a_record_of_version_2_replays_byte_for_byte() -> None:
    """Approvals had the digest of the script then, and rules did not say where a skill is."""
    record = from_file(str(VERSION_2))
    assert {frame["version"] for frame in record.frames if frame["type"] == "session_started"} == {2}
    answers = [frame["answer"] for frame in record.frames if frame["type"] == "policy_asked"]
    assert {"once", "always", "no"} == set(answers)
    outcome = replay(record)
    assert [one.as_dict() for one in outcome.differences] == []
    assert len(outcome.frames) == len(record.frames) > 200


def replays(file: Path, version: int = 3) -> list[dict[str, Any]]:
    """Replay a record of this version byte for byte, and return its frames."""
    record = from_file(str(file))
    outcome = replay(record)
    assert [one.as_dict() for one in outcome.differences] == []
    offers = sum(frame["type"] == "skills_offered" for frame in record.frames)  # in a stream of their own
    assert len(outcome.frames) == len(record.frames) - offers > 40
    assert {frame["version"] for frame in record.frames if frame["type"] == "session_started"} == {version}
    return [dict(frame) for frame in record.frames]


@pytest.mark.parametrize("host", HOSTS)
def test_a_record_of_version_3_replays_byte_for_byte(host: str) -> None:
    """Skills that are left out had no warning then. The record of rip has a rule that was dropped."""
    frames = replays(VERSION_3 / f"{host}.jsonl")
    assert len(frames) > 100
    assert not any(frame.get("kind") == "excluded" for frame in frames)


@pytest.mark.parametrize("host", ["codelia", "standard"])
def test_files_in_a_record_of_version_3_replay_byte_for_byte(host: str) -> None:
    """A new file sent the text again then, a cut list was not counted, and a skill outside `only` was preloaded."""
    frames = replays(VERSION_3 / f"{host}-files.jsonl")
    (started,) = [frame for frame in frames if frame["type"] == "session_started"]
    loads = [frame for frame in frames if frame["type"] == "skill_loaded"]
    assert [frame["name"] for frame in loads if frame.get("preloaded")] == ["other"]
    assert "other" not in started["only"]
    assert {frame["name"] for frame in loads if frame.get("files_truncated")} == {"cut"}
    whole = [frame["files"] for frame in loads if frame["name"] == "plain" and not frame.get("already_loaded")]
    assert whole[:2] == [["a.md"], ["a.md", "new.md"]]


@pytest.mark.parametrize("host", HOSTS)
def test_a_record_of_version_4_replays_byte_for_byte(host: str) -> None:
    """Refusals and what was cut did not say how to allow it, or how to get the rest."""
    frames = replays(VERSION_4 / f"{host}.jsonl", 4)
    assert "no" in [frame["answer"] for frame in frames if frame["type"] == "policy_asked"]
    assert any(frame.get("truncated") for frame in frames)


@pytest.mark.parametrize("host", HOSTS)
def test_a_record_of_version_5_replays_byte_for_byte(host: str) -> None:
    """A script saw the project only by a rule then, at a path of its own, and was given no packages and no secrets."""
    frames = replays(VERSION_5 / f"{host}.jsonl", 5)
    runs = [frame for frame in frames if frame["type"] == "tool_started"]
    assert all(frame["grants"] == ["run_network", "run_project"] for frame in runs)
    assert {"no", "once"} <= {frame["answer"] for frame in frames if frame["type"] == "policy_asked"}
