"""Records that version 0.1.0 wrote still replay: they were exported then, and nothing of them is written anew."""

from pathlib import Path

import pytest

from metier.replay import from_file, replay

RECORDS = sorted((Path(__file__).parent / "records").glob("*.jsonl"))


def test_there_is_a_record_of_each_host() -> None:
    hosts = ["codelia", "mycodeagent", "omp", "remcochat", "rip", "standard"]
    assert [file.stem for file in RECORDS] == hosts


@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.stem)
def test_an_old_record_replays_byte_for_byte(file: Path) -> None:
    record = from_file(str(file))
    outcome = replay(record)
    assert [one.as_dict() for one in outcome.differences] == []
    assert len(outcome.frames) == len(record.frames) > 100
    operations = {frame["operation"] for frame in record.frames if frame["type"] == "session_called"}
    assert operations >= {"load", "read", "search", "call", "invoke", "compact", "end_turn", "output", "run"}
