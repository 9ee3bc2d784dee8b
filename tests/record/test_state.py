"""What a session knows is the fold of its events: the snapshot beside them only saves time, and can be dropped."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from metier.record.state import SNAPSHOT, SessionState, fold, from_snapshot, read_state
from metier.record.store import Frame, Store
from metier.record.store.memory import MemoryStore
from metier.record.writer import SNAPSHOT_EVENTS
from metier.session.session import Session
from recording import PROFILES, answers, discover, drive, fake_runner
from worlds import World

JsonObject = dict[str, Any]


def recorded(world: World, profile: str, steps: int = 300, store: Store | None = None) -> tuple[Session, list[Frame]]:
    """A session that was asked for hundreds of things, and its frames."""
    session = discover(world, profile).session(
        id="session",
        store=store or MemoryStore(),
        approve=answers(),
        runner=fake_runner(),
        policy={"profile": "full-auto", "ask": [{"tool": "skill_run"}]},
    )
    drive(session, steps, edit=world.project / "catalog")
    return session, session.events


def text_of(state: SessionState) -> str:
    return json.dumps(state.snapshot())


def as_json(value: object) -> Any:
    return json.loads(json.dumps(value))


def known(session: Session) -> JsonObject:
    return {key: value for key, value in session.state().items() if key not in ("version", "id")}


# --- the fold ---


@pytest.mark.parametrize("profile", PROFILES)
def test_a_fold_changes_neither_the_frames_nor_a_state_it_began_with(world: World, profile: str) -> None:
    session, frames = recorded(world, profile)
    before = copy.deepcopy(frames)
    states = [SessionState()]
    texts = [text_of(states[0])]
    for frame in frames:
        states.append(fold([frame], states[-1]))
        texts.append(text_of(states[-1]))
    assert frames == before
    assert [text_of(state) for state in states] == texts
    assert fold(frames) == fold(iter(frames)) == states[-1]
    assert states[-1].as_dict() == known(session)
    assert {"activated_skill_names", "loaded"} <= set(known(session))


@pytest.mark.parametrize("profile", PROFILES)
def test_a_snapshot_after_any_frame_gives_the_same_state_as_all_events(world: World, profile: str) -> None:
    _, frames = recorded(world, profile)
    whole, state = fold(frames), SessionState()
    for number, frame in enumerate(frames):
        state = fold([frame], state)
        restored = from_snapshot(as_json(state.snapshot()))
        assert restored == state
        assert SessionState().knowing(as_json(state.as_dict())).as_dict() == state.as_dict()
        if number % 50 == 0:
            assert fold(frames[number + 1 :], restored) == whole
    assert state == whole
    assert all(getattr(state, item) for item in ("catalog", "lives", "activated", "loaded"))


# --- the snapshot ---


def stored_snapshot(store: Store, session_id: str = "session") -> JsonObject:
    document = store.load_state(session_id, SNAPSHOT)
    assert document is not None
    return dict(document.value)


def in_known(snapshot: JsonObject, **values: object) -> JsonObject:
    return {**snapshot, "known": {**snapshot["known"], **values}}


DAMAGE: dict[str, Callable[[JsonObject], object]] = {
    "empty": lambda _: {},
    "not an object": lambda _: ["snapshot"],
    "no text of a session": lambda snapshot: {**snapshot, "known": None},
    "half of it": lambda snapshot: dict(list(snapshot.items())[:4]),
    "another seq": lambda snapshot: {**snapshot, "seq": snapshot["seq"] - 1},
    "a seq that is no number": lambda snapshot: {**snapshot, "seq": "last"},
    "before the first event": lambda snapshot: {**snapshot, "seq": -1, "chain": ""},
    "after the last event": lambda snapshot: {**snapshot, "seq": 1_000_000},
    "another chain": lambda snapshot: {**snapshot, "chain": "0" * 64},
    "lives that are none": lambda snapshot: {**snapshot, "lives": [["id"]]},
    "operations that are none": lambda snapshot: {**snapshot, "running": {"op": {"pid": 1}}},
    "skills without paths": lambda snapshot: in_known(snapshot, loaded=[{"name": "one"}]),
    "skills left out": lambda snapshot: in_known(snapshot, loaded=[]),
    "a name left out": lambda snapshot: in_known(snapshot, activated_skill_names=[]),
    "another catalog": lambda snapshot: {**snapshot, "catalog": ""},
    "of another version": lambda snapshot: {**snapshot, "version": snapshot["version"] + 1},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_snapshot_that_is_not_good_is_ignored_and_the_events_decide(world: World, damage: str) -> None:
    store = MemoryStore()
    recorded(world, "standard", 120, store)
    expected = fold(store.read("session", "session"))
    snapshot = stored_snapshot(store)
    good = read_state(store, "session")
    assert (good.state, good.snapshot_seq) == (expected, snapshot["seq"])
    store.save_state("session", SNAPSHOT, DAMAGE[damage](snapshot))
    opened = read_state(store, "session")
    assert (opened.state, opened.snapshot_seq) == (expected, -1)


# --- dropped before any step ---


# --- what opening costs ---


class CountingStore(MemoryStore):
    """Counts the frames that were read."""

    frames_read = 0

    def read(self, *given: Any, **named: Any) -> list[Frame]:
        found = super().read(*given, **named)
        self.frames_read += len(found)
        return found


def test_a_long_session_opens_by_few_events_and_knows_the_same_without_a_snapshot(world: World) -> None:
    store = CountingStore()
    skills = discover(world, "standard")
    session = skills.session(id="session", store=store)
    for number in range(2_500):
        session.load(f"s{number % 12}", arguments=f"time {number}")
    assert store.last_seq("session") > 10_000
    one_operation = 4
    for _ in range(SNAPSHOT_EVENTS // one_operation + 2):  # wherever the snapshot happens to stand
        session.load("s1")
        before = store.frames_read
        opened = skills.session(id="session", store=store)
        assert store.frames_read - before <= SNAPSHOT_EVENTS + one_operation
        assert opened.state() == session.state()
    store.save_state("session", SNAPSHOT, {})
    before = store.frames_read
    assert skills.session(id="session", store=store).state() == session.state()
    assert store.frames_read - before > 10_000


def test_a_skill_that_a_message_called_is_awaited_until_it_is_loaded(world: World) -> None:
    world.skill(".agents/skills/pdf")
    session = world.discover(settings={"invocation.loads": False}).session()
    for _ in range(2):
        session.invoke("/pdf fill a form")
        assert (session.activated, session.state()["awaited"]) == (["pdf"], ["pdf"])
    session.load("pdf")
    session.invoke("/pdf again")
    assert (session.activated, session.state().get("awaited")) == (["pdf"], None)
