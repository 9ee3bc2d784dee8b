"""The record under attack: its file is taken away, what it holds is changed, and ids are meant to be another session's.

What was acknowledged must be found by another process, a change must be found whatever it is, and what is done in one
session must not be seen in another.
"""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from metier import Skills, StoreError
from metier.adapters.conversation import Conversations
from metier.errors import MetierError
from metier.record.store import open_store
from metier.replay import from_store, verify

from .boxes import as_user
from .place import Place
from .rounds import Round

_IDS: Final = (
    *("a", "A", "a ", " a", "a\t", "a\n", "a/", "/a", "./a", "../a", "a/../a", "a//", "a%00", "a\x00", "a\x00b", "%61"),
    *("\u0430", "\uff41", "a\u200b", "\u00e9", "e\u0301", "a'", 'a"', "a;--", "a' OR 1=1 --", "*", "%", "_", "a*", "?"),
    *("a.", "a:", "a@1", "0", "00", "1e0", "null", "None", "true", "[]", "x" * 300, "x" * 299, "\ud800", "a\x1b[2J"),
)
_EDITS: Final = (
    "UPDATE events SET timestamp_ms = timestamp_ms {sign} {n} WHERE position = {position}",
    "UPDATE events SET seq = {seq} WHERE position = {position}",
    "UPDATE events SET type = 'skill_read' WHERE position = {position}",
    "DELETE FROM events WHERE position = {position}",
)


def attack(round_: Round) -> None:
    number = 0
    while round_.goes_on():
        place = Place(round_, f"record-{number}")
        for name in ("one", "two", "three"):
            place.skill(f".agents/skills/{name}", body=f"The body of {name}.")
        place.hand_over()
        kind = (_taken_away, _changed, _confused)[(round_.turn + number) % 3]
        number += 1
        for wrong in as_user(round_.identity, kind(round_, place)):
            round_.escape(wrong)


Work = Callable[[], list[str]]


def _taken_away(round_: Round, place: Place) -> Work:
    """The file of a store goes away or becomes another one between two loads."""
    chance = round_.chance
    folder = place.home / "store"
    file = folder / "events.db"

    def other() -> Path:
        spare = place.home / "spare.db"
        open_store(f"sqlite:///{spare}").close()
        return spare

    ways: dict[str, Callable[[], object]] = {
        "deleted": file.unlink,
        "moved away": lambda: os.rename(file, f"{file}.old"),
        "replaced by another store": lambda: os.replace(other(), file),
        "replaced by its copy": lambda: os.replace(shutil.copy(file, f"{file}.new"), file),
        "replaced by an empty file": lambda: (Path(f"{file}.new").touch(), os.replace(f"{file}.new", file)),
        "replaced by a link": lambda: (os.rename(file, f"{file}.old"), os.symlink("/dev/null", file)),
        "in a folder that was moved away": lambda: os.rename(folder, f"{folder}.old"),
        "in a folder that was deleted": lambda: shutil.rmtree(folder),
    }
    way = chance.choice(list(ways))
    round_.tried()

    def work() -> list[str]:
        folder.mkdir(exist_ok=True)
        url = f"sqlite:///{file}"
        session = place.discover().session(id="s", store=url)
        session.load("one")
        ways[way]()
        acknowledged: list[str] = []
        for name in ("two", "three"):
            with suppress(MetierError):
                session.load(name)
                acknowledged.append(name)
        try:
            found = place.discover().session(id="s", store=url).activated
        except MetierError:
            found = []
        lost = [name for name in acknowledged if name not in found]
        return [f"a store was {way}, and nobody else finds what was acknowledged: {lost}"] if lost else []

    return work


def _changed(round_: Round, place: Place) -> Work:
    """One value in one row of a store becomes another one."""
    chance = round_.chance
    url = f"sqlite:///{place.home}/events.db"
    picks = [(chance.random(), chance.random(), chance.choice((*_EDITS, "", ""))) for _ in range(10)]
    round_.tried(len(picks))

    def work() -> list[str]:
        session = place.discover().session(id="s", store=url)
        for name in ("one", "two", "one"):
            session.load(name)
        session.search("body")
        session.skills.session(store=url, id="s").load("three")
        wrong: list[str] = []
        for number, (which, what, edit) in enumerate(picks):
            copy = f"{place.home}/copy-{number}.db"
            try:
                with closing(sqlite3.connect(url[10:])) as source, closing(sqlite3.connect(copy)) as db:
                    source.backup(db)
                    done = _edit(db, which, what, edit)
                    db.commit()
                with open_store(f"sqlite:///{copy}") as store:
                    found = verify(from_store(store, "s"))
            except (MetierError, sqlite3.IntegrityError):
                continue
            if not found:
                wrong.append(f"a changed record verifies: {done}")
        return wrong

    return work


def _edit(db: sqlite3.Connection, which: float, what: float, edit: str) -> str:
    """Change a row of the session, in a column or in its text. Returns what was done."""
    rows = db.execute("SELECT position, body FROM events WHERE session_id = 's' ORDER BY position").fetchall()
    position, body = rows[int(which * (len(rows) - 1))]  # a record does not say by itself that it goes on
    if edit:
        seq = (-1, 10**6, 0, len(rows))[int(what * 4)] if which * (len(rows) - 1) >= 1 else -1
        done = edit.format(position=position, n=1 + int(what * 1e6), sign="+-"[what < 0.5], seq=seq)
        db.execute(done)
        return done
    frame = json.loads(body)
    key = sorted(frame)[int(what * len(frame))]
    frame[key] = f"{frame[key]}x" if isinstance(frame[key], str) else [frame[key]]
    db.execute("UPDATE events SET body = ? WHERE position = ?", (json.dumps(frame), position))
    return f"{key} of {body[:300]}"


def _confused(round_: Round, place: Place) -> Work:
    """Ids of conversations that may be taken for one another."""
    ids = round_.chance.sample(_IDS, 6)
    round_.tried(len(ids))

    def conversations() -> Conversations:
        return Conversations(skills(), "attack", store=f"sqlite:///{place.home}/events.db")

    def skills() -> Skills:
        return place.discover()

    def work() -> list[str]:
        several, names = conversations(), ("one", "two", "three")
        loaded: dict[str, list[str]] = {}
        for number, id_ in enumerate(ids):
            with suppress(StoreError, ValueError):
                several.of(id_).session.load(names[number % 3])
                loaded[id_] = [names[number % 3]]
        again = conversations()
        found = {id_: again.of(id_).session.activated for id_ in loaded}
        return [f"{id_!r} has {found[id_]} instead of {it}" for id_, it in loaded.items() if found[id_] != it]

    return work
