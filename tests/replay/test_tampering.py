"""Tampering: every single change of an exported record is found, whatever it is and wherever."""

import base64
import copy
import json
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from metier import replay
from metier.app import App
from metier.files.digests import digest_of
from metier.record import chain
from metier.record.store import Frame
from metier.record.store.memory import MemoryStore
from metier.record.store.values import encode
from metier.surfaces.cli import cli
from recording import answers, drive, fake_runner, write_catalog
from worlds import World

CHANGES = 130

Line = dict[str, Any]
Lines = list[Line]
Place = tuple[Any, Any]
"""A table or a list, and the key or index in it."""


@pytest.fixture
def lines(world: World) -> Lines:
    """A record of two lives, with loads, files, searches, scripts, questions, refusals and changed skills."""
    root = world.project / "catalog"
    write_catalog(root)
    store = MemoryStore()
    for life in range(2):
        app = App(world.project, roots=[root], home=world.home, store=store)
        app.runner = fake_runner(life)
        session = app.session("rich", approve=answers(life))
        drive(session, 60, seed=life, edit=root)
    exported = [json.loads(line) for line in store.export_lines("rich")]
    kinds = {line.get("type") for line in exported}
    wanted = {"skill_loaded", "skill_resource_read", "skills_searched", "tool_ended", "policy_asked", "session_started"}
    assert wanted <= kinds
    assert any("artifact" in line for line in exported)
    return exported


# --- changes ---


def leaves(value: Any) -> Iterator[Place]:
    """Every place that holds a plain value, or something empty."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        if isinstance(item, dict | list) and item:
            yield from leaves(item)
        else:
            yield value, key


def other(value: Any, chance: random.Random) -> Any:
    """A value of the same kind that is not the same."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + chance.choice((-1, 1, 1_000))
        case str() if value:
            place = chance.randrange(len(value))
            new = chance.choice([letter for letter in "abcxyz019" if letter != value[place]])
            return value[:place] + new + value[place + 1 :]
        case _:
            return chance.choice(("x", 1, ["x"]))


def change_value(lines: Lines, chance: random.Random) -> str:
    number = chance.choice([n for n, line in enumerate(lines) if "artifact" not in line])
    table, key = chance.choice(list(leaves(lines[number])))
    table[key] = other(table[key], chance)
    return f"{key} in {name_of(lines[number])}"


def change_frame(lines: Lines, chance: random.Random) -> str:
    """One of the values that every frame has."""
    frame = chance.choice([line for line in lines if "seq" in line])
    key = chance.choice(("id", "session_id", "stream_kind", "stream_id", "timestamp_ms", "seq", "type"))
    frame[key] = other(frame[key], chance)
    return f"{key} in {name_of(frame)}"


def change_key(lines: Lines, chance: random.Random) -> str:
    """Rename, add or take away a value of a frame."""
    frame = chance.choice([line for line in lines if "seq" in line])
    key = chance.choice(list(frame))
    match chance.randrange(3):
        case 0:
            frame[f"{key}x"] = frame.pop(key)
        case 1:
            frame["more"] = "x"
        case _:
            del frame[key]
    return f"the key {key} of {name_of(frame)}"


def change_artifact(lines: Lines, chance: random.Random) -> str:
    line = chance.choice([line for line in lines if "artifact" in line])
    if chance.random() < 0.3:
        line["artifact"] = digest_of(b"another")
        return "the digest of an artifact"
    data = bytearray(base64.b64decode(line["base64"]) or b"x")
    data[chance.randrange(len(data))] ^= 1 + chance.randrange(255)
    line["base64"] = base64.b64encode(data).decode()
    return "the content of an artifact"


def change_state(lines: Lines, chance: random.Random) -> str:
    documents = [line for line in lines if "state" in line and "seq" not in line]
    if not documents:
        return change_value(lines, chance)
    document = chance.choice(documents)
    table, key = chance.choice(list(leaves(document)))
    table[key] = other(table[key], chance)
    return f"{key} in the document {document['state']}"


def remove(lines: Lines, chance: random.Random) -> str:
    return f"without {name_of(lines.pop(chance.randrange(len(lines))))}"


def duplicate(lines: Lines, chance: random.Random) -> str:
    number = chance.randrange(len(lines))
    lines.insert(chance.choice((number, chance.randrange(len(lines)))), copy.deepcopy(lines[number]))
    return f"twice {name_of(lines[number])}"


def swap(lines: Lines, chance: random.Random) -> str:
    one = chance.randrange(len(lines) - 1)
    two = one + 1 if chance.random() < 0.5 else chance.choice([n for n in range(len(lines)) if lines[n] != lines[one]])
    lines[one], lines[two] = lines[two], lines[one]
    return f"{name_of(lines[one])} and {name_of(lines[two])} in another order"


def append(lines: Lines, chance: random.Random) -> str:
    last = [line for line in lines if "seq" in line][-1]
    data = b"appended"
    new: Line = chance.choice(
        (
            {**last, "seq": last["seq"] + 1, "id": "forged"},
            {**last, "seq": last["seq"] + 1, "id": "forged", "type": "skill_warning", "chain": digest_of(data)},
            {"artifact": digest_of(data), "base64": base64.b64encode(data).decode()},
            {"x": 1},
        )
    )
    lines.append(new)
    return f"{name_of(new)} at the end"


def cut(lines: Lines, chance: random.Random) -> str:
    count = chance.randint(1, len(lines) - 1)
    del lines[-count:]
    return f"without the last {count} lines"


KINDS: tuple[Callable[[Lines, random.Random], str], ...] = (
    *(change_value, change_value, change_value, change_frame, change_frame, change_key, change_artifact, change_state),
    *(remove, duplicate, swap, append, cut),
)


def name_of(line: Line) -> str:
    if "seq" in line:
        return f"{line.get('type')} {line['seq']}"
    return next((key for key in ("artifact", "state", "end") if key in line), "a line")


# --- what is found ---


def write(lines: Lines, file: Path) -> replay.Record:
    file.write_text("".join(encode(line) + "\n" for line in lines))
    return replay.from_file(str(file))


def test_every_single_change_of_an_exported_record_is_found(lines: Lines, tmp_path: Path) -> None:
    chance = random.Random(1)
    file = tmp_path / "record.jsonl"
    assert replay.verify(write(lines, file)) == []
    missed: list[str] = []
    for number in range(CHANGES):
        changed = copy.deepcopy(lines)
        kind = KINDS[number % len(KINDS)]
        what = kind(changed, chance)
        assert changed != lines, what
        if not replay.verify(write(changed, file)):
            missed.append(f"{kind.__name__}: {what}")
    assert not missed, f"{len(missed)} of {CHANGES} were not found:\n" + "\n".join(missed)


def test_a_changed_frame_that_is_hashed_anew_no_longer_fits_the_next_one(lines: Lines) -> None:
    frames: list[Frame] = [line for line in lines if "seq" in line and line["stream_kind"] == "session"]
    assert list(chain.breaks(frames)) == []
    for at in range(len(frames) - 1):
        changed = frames[at] | {"timestamp_ms": frames[at]["timestamp_ms"] + 1}
        changed["chain"] = chain.link(frames[at - 1]["chain"] if at else "", changed)
        found = [index for index, _, _ in chain.breaks([*frames[:at], changed, *frames[at + 1 :]])]
        assert found == [at + 1]


# --- a store ---

CHANGED_ROWS = {
    "the time": "UPDATE events SET body = replace(body, '\"timestamp_ms\":', '\"timestamp_ms\":1') WHERE position = {}",
    "the time in its column": "UPDATE events SET timestamp_ms = timestamp_ms + 1 WHERE position = {}",
    "the seq": "UPDATE events SET body = replace(body, '\"seq\":', '\"seq\":-1') WHERE position = {}",
    "the seq in its column": "UPDATE events SET seq = -1 WHERE position = {}",
    "the type in its column": "UPDATE events SET type = 'x' WHERE position = {}",
}


def test_replay_and_events_both_find_what_was_changed_in_a_store(world: World, tmp_path: Path) -> None:
    world.skill(".agents/skills/one", body="# One\n")

    def run(store: Path, *arguments: str) -> int:
        given = (*arguments, "--store", str(store), "--cwd", str(world.project), "--home", str(world.home))
        return CliRunner().invoke(cli, given).exit_code

    whole = tmp_path / "whole.db"
    commands = (("replay", "s"), ("events",), ("events", "--session", "s"))
    assert [run(whole, *one) for one in (("load", "one", "--session", "s"), *commands)] == [0, 0, 0, 0]
    with closing(sqlite3.connect(whole)) as db:
        positions = [row[0] for row in db.execute("SELECT position FROM events ORDER BY position")]
    for what, statement in CHANGED_ROWS.items():
        for position in (positions[0], positions[2], positions[-1]):
            changed = tmp_path / f"changed-{len(list(tmp_path.iterdir()))}.db"
            with closing(sqlite3.connect(whole)) as source, closing(sqlite3.connect(changed)) as db:
                source.backup(db)  # also what is still in the write-ahead log
                db.execute(statement.format(position))
                db.commit()
            assert [run(changed, *one) for one in commands] == [1, 1, 1], (what, position)
