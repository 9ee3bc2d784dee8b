"""The contract of a store. The built-in stores and one from outside must all pass it."""

import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from metier.errors import ConfigError, MetierError
from metier.files.digests import digest_of
from metier.record.store import (
    Document,
    Draft,
    Frame,
    StateConflict,
    Store,
    StoreError,
    StreamConflict,
    canonical,
    open_store,
)
from patience import PATIENCE


def draft(id_: str, time_ms: int = 1, type_: str = "note", **data: object) -> Draft:
    return Draft(id_, time_ms, type_, data)


def fill(store: Store, stream: str, count: int, session: str = "s1", start: int = 0) -> None:
    store.append(
        session, "session", stream, [draft(f"{stream}-{number}", number) for number in range(start, start + count)]
    )


def seqs(frames: Iterable[Frame]) -> list[int]:
    return [frame["seq"] for frame in frames]


def ids(frames: Iterable[Frame]) -> list[str]:
    return [frame["id"] for frame in frames]


# Append and read


def test_a_frame_is_flat_with_the_envelope_first_and_reads_back_byte_for_byte(store: Store) -> None:
    (written,) = store.append("s1", "session", "st", [draft("e1", 17, "skill_loaded", name="pdf", n=[1, {"b": None}])])
    assert canonical(written) == (
        '{"id":"e1","session_id":"s1","stream_kind":"session","stream_id":"st","timestamp_ms":17,"seq":0,'
        '"type":"skill_loaded","name":"pdf","n":[1,{"b":null}]}'
    )
    (read,) = store.read()
    assert read == written
    assert canonical(read) == canonical(written)


def test_seq_starts_at_0_and_rises_by_1_in_its_stream(store: Store) -> None:
    assert store.last_seq("a") == -1
    fill(store, "a", 3)
    fill(store, "b", 2)
    fill(store, "a", 2, start=3)
    assert seqs(store.read(stream_id="a")) == [0, 1, 2, 3, 4]
    assert seqs(store.read(stream_id="b")) == [0, 1]
    assert (store.last_seq("a"), store.last_seq("b")) == (4, 1)


def test_an_id_is_written_once_and_its_stored_frame_comes_back(store: Store) -> None:
    first = store.append("s1", "session", "a", [draft("e1", x=1), draft("e2", x=2)])
    again = store.append("s1", "session", "a", [draft("e2", x=99), draft("e3", x=3), draft("e3", x=4), draft("e1")])
    assert again[0] == first[1]
    assert again[3] == first[0]
    assert again[1] == again[2]
    assert [frame["x"] for frame in store.read()] == [1, 2, 3]
    assert seqs(store.read()) == [0, 1, 2]


def test_an_id_of_another_stream_is_refused_and_nothing_is_written(store: Store) -> None:
    fill(store, "a", 1)
    with pytest.raises(StoreError, match="already used by an event of stream 'a'") as caught:
        store.append("s1", "session", "b", [draft("new"), draft("a-0")], [b"half"])
    assert caught.value.reason == "conflict"
    assert len(store.read()) == 1
    assert store.last_seq("b") == -1
    assert store.artifacts() == []


def test_a_stream_belongs_to_one_session(store: Store) -> None:
    fill(store, "a", 1, session="s1")
    for session, kind in (("s2", "session"), ("s1", "tool")):
        with pytest.raises(StoreError, match="is the 'session' stream of session 's1'"):
            store.append(session, kind, "a", [draft("e2")])
    assert store.last_seq("a") == 0


def test_reading_filters_by_session_stream_type_seq_and_time(store: Store) -> None:
    store.append("s1", "session", "a", [draft("a0", 10, "x"), draft("a1", 20, "y"), draft("a2", 30, "x")])
    store.append("s1", "tool", "b", [draft("b0", 25, "y")])
    store.append("s2", "session", "c", [draft("c0", 40, "x")])

    assert ids(store.read()) == ["a0", "a1", "a2", "b0", "c0"]
    assert ids(store.read(session_id="s1")) == ["a0", "a1", "a2", "b0"]
    assert ids(store.read(session_id="s1", types=["y"])) == ["a1", "b0"]
    assert ids(store.read(types=[])) == []
    assert ids(store.read(stream_id="a", after=0)) == ["a1", "a2"]
    assert ids(store.read(stream_id="a", after=0, limit=1)) == ["a1"]
    assert ids(store.read(stream_id="a", session_id="s2")) == []
    assert ids(store.read(since_ms=25)) == ["a2", "b0", "c0"]
    assert ids(store.read(limit=2)) == ["a0", "a1"]
    everything = ids(store.read())
    for size in (1, 2, len(everything), 100):
        assert ids(store.read(limit=size, newest=True)) == everything[-size:]
    assert ids(store.read(newest=True)) == everything
    assert ids(store.read(stream_id="a", limit=1, newest=True)) == ids(store.read(stream_id="a"))[-1:]
    assert ids(store.read(session_id="nobody")) == []


def test_an_empty_append_writes_nothing_but_its_artifacts(store: Store) -> None:
    assert store.append("s1", "session", "a", []) == []
    assert store.append("s1", "session", "a", [], [b"x"]) == []
    assert store.sessions() == []
    assert store.get_artifact(digest_of(b"x")) == b"x"


def test_sessions_are_summed_up_the_oldest_first(store: Store) -> None:
    store.append("late", "session", "a", [draft("1", 50), draft("2", 90)])
    store.append("early", "session", "b", [draft("3", 20), draft("4", 10)])
    store.append("late", "tool", "c", [draft("5", 40)])
    assert [summary.as_dict() for summary in store.sessions()] == [
        {"id": "early", "first_ms": 10, "last_ms": 20, "events": 2},
        {"id": "late", "first_ms": 40, "last_ms": 90, "events": 3},
    ]


def test_threads_that_append_to_one_stream_leave_no_gap(store: Store) -> None:
    def work(worker: int) -> None:
        for number in range(25):
            store.append("s1", "session", "st", [draft(f"{worker}-{number}")])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert seqs(store.read(stream_id="st")) == list(range(150))


# Appending where a stream is expected to end


def test_an_append_that_expects_another_end_of_the_stream_writes_nothing(store: Store) -> None:
    (first,) = store.append("s1", "session", "a", [draft("e0")], expected_seq=-1)
    assert first["seq"] == 0
    assert seqs(store.append("s1", "session", "a", [draft("e1"), draft("e2")], expected_seq=0)) == [1, 2]
    for stale in (-1, 0, 1, 3):
        with pytest.raises(StreamConflict) as caught:
            store.append("s1", "session", "a", [draft("late")], [b"half"], expected_seq=stale)
        assert (caught.value.stream_id, caught.value.expected, caught.value.found) == ("a", stale, 2)
        assert caught.value.reason == "conflict"
    assert ids(store.read()) == ["e0", "e1", "e2"]
    assert store.artifacts() == []


def test_a_stream_that_is_not_there_ends_at_minus_1_and_a_conflict_does_not_create_it(store: Store) -> None:
    with pytest.raises(StreamConflict) as caught:
        store.append("s1", "session", "a", [draft("e0")], expected_seq=0)
    assert (caught.value.expected, caught.value.found) == (0, -1)
    assert store.stats().streams == 0
    with pytest.raises(StoreError, match="the expected seq -2") as invalid:
        store.append("s1", "session", "a", [draft("e0")], expected_seq=-2)
    assert invalid.value.reason == "invalid"


def test_a_repeated_append_is_no_conflict_but_one_with_a_new_event_is(store: Store) -> None:
    first = store.append("s1", "session", "a", [draft("e0"), draft("e1")], expected_seq=-1)
    store.append("s1", "session", "a", [draft("e2")], expected_seq=1)
    assert store.append("s1", "session", "a", [draft("e0"), draft("e1")], expected_seq=-1) == first
    with pytest.raises(StreamConflict):
        store.append("s1", "session", "a", [draft("e1"), draft("e3")], expected_seq=-1)
    assert store.append("s1", "session", "a", [], expected_seq=-1) == []
    assert ids(store.read()) == ["e0", "e1", "e2"]


# Artifacts


def test_an_artifact_is_kept_once_under_its_digest(store: Store) -> None:
    content = bytes(range(256)) * 5
    assert store.put_artifact(content) == store.put_artifact(content) == digest_of(content)
    assert store.get_artifact(digest_of(content)) == content
    assert store.put_artifact(b"") == digest_of(b"")
    assert store.get_artifact(digest_of(b"")) == b""
    assert store.stats().artifacts == 2
    assert store.stats().artifact_bytes == len(content)


def test_a_missing_artifact_and_a_malformed_digest_are_errors(store: Store) -> None:
    with pytest.raises(StoreError, match="is not in the store") as caught:
        store.get_artifact(digest_of(b"never"))
    assert caught.value.reason == "missing-artifact"
    with pytest.raises(StoreError, match="is not a digest"):
        store.get_artifact("sha256:../../etc/passwd")


def test_a_session_owns_the_artifacts_that_its_events_name(store: Store) -> None:
    store.append("s1", "session", "a", [draft("1", digest=digest_of(b"one"), list=[digest_of(b"two")])], [b"one"])
    store.append("s2", "session", "b", [draft("2", text=f"mentions {digest_of(b'one')}")], [b"two"])
    assert store.artifacts("s1") == sorted([digest_of(b"one"), digest_of(b"two")])
    assert store.artifacts("s2") == []
    assert store.artifacts() == sorted([digest_of(b"one"), digest_of(b"two")])


# State


def test_state_has_a_version_and_a_stale_writer_is_told(store: Store) -> None:
    assert store.load_state("s1", "loaded") is None
    assert store.save_state("s1", "loaded", ["pdf"], expected_version=0) == 1
    assert store.save_state("s1", "loaded", {"names": ["pdf", "zip"]}) == 2
    with pytest.raises(StateConflict) as caught:
        store.save_state("s1", "loaded", [], expected_version=1)
    assert (caught.value.expected, caught.value.actual, caught.value.reason) == (1, 2, "conflict")
    with pytest.raises(StateConflict):
        store.save_state("s1", "other", [], expected_version=1)
    found = store.load_state("s1", "loaded")
    assert found
    assert (found.version, found.value) == (2, {"names": ["pdf", "zip"]})
    assert store.load_state("s1", "other") is None
    assert store.load_state("s2", "loaded") is None


def test_of_many_writers_with_one_version_one_wins(store: Store) -> None:
    def save(worker: int) -> bool:
        try:
            store.save_state("s1", "k", worker, expected_version=0)
        except StateConflict:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(save, range(6))) == 1


@pytest.mark.parametrize(
    ("key", "value", "version"), [("k", {"x": "\ud800"}, 0), ("", {}, 0), ("k", {}, -1), ("k", object(), 0)]
)
def test_a_document_that_cannot_be_saved_is_refused(store: Store, key: str, value: object, version: int) -> None:
    with pytest.raises(StoreError) as caught:
        store.save_state("s1", key, value, expected_version=version)
    assert caught.value.reason == "invalid"
    assert store.states() == []


def test_documents_are_listed_by_session_and_by_key(store: Store) -> None:
    for session, key in (("b", "chat"), ("a", "session"), ("a", "chat")):
        store.save_state(session, key, {"of": session})

    def places(found: list[tuple[str, Document]]) -> list[tuple[str, str]]:
        return [(session, document.key) for session, document in found]

    assert places(store.states()) == [("a", "chat"), ("a", "session"), ("b", "chat")]
    assert places(store.states(key="chat")) == [("a", "chat"), ("b", "chat")]
    assert places(store.states(session_id="a")) == [("a", "chat"), ("a", "session")]
    assert places(store.states(session_id="a", key="session")) == [("a", "session")]
    assert places(store.states(key="no-such")) == []


# Following


def test_pages_hold_every_event_once_and_go_on_where_the_last_one_ended(store: Store) -> None:
    fill(store, "a", 7)
    fill(store, "b", 5)
    seen: list[str] = []
    cursor = 0
    while (page := store.page(cursor, limit=5)).frames:
        seen += [frame["id"] for frame in page.frames]
        cursor = page.cursor
    assert seen == [frame["id"] for frame in store.read()]
    fill(store, "b", 1, start=5)
    assert [frame["id"] for frame in store.page(cursor).frames] == ["b-5"]


def test_a_filtered_page_moves_its_cursor_past_what_does_not_match(store: Store) -> None:
    fill(store, "a", 5)
    page = store.page(0, stream_id="nothing")
    assert page.frames == ()
    assert page.cursor == store.cursor()
    assert not store.wait(page.cursor, 0.05)


def test_waiting_ends_with_a_new_event_with_time_or_with_the_store(store: Store) -> None:
    begun = time.monotonic()
    assert not store.wait(store.cursor(), 0.1)
    assert time.monotonic() - begun < 60
    timer = threading.Timer(0.1, fill, (store, "a", 1))
    timer.start()
    assert store.wait(store.cursor(), 120)
    timer.join()
    assert store.wait(0, 0)
    timer = threading.Timer(0.1, store.close)
    timer.start()
    assert not store.wait(store.cursor(), 600)
    assert time.monotonic() - begun < 300
    timer.join()


def test_a_follower_sees_what_comes_in_order_until_it_shall_stop(store: Store) -> None:
    fill(store, "a", 3)
    writer = threading.Thread(target=lambda: [fill(store, "a", 1, start=number) for number in range(3, 20)])
    seen: list[int] = []
    writer.start()
    seen.extend(frame["seq"] for frame in store.follow(0, session_id="s1", stop=lambda: len(seen) >= 20))
    writer.join()
    assert seen == list(range(20))


def test_a_notice_reaches_the_listeners_of_its_channel_once_and_in_order(store: Store) -> None:
    store.notify("catalog", "too early")
    ear, other = store.listen("catalog"), store.listen("policy")
    assert ear.get(0.05) == []
    store.notify("catalog", "one é")
    store.notify("catalog")
    assert ear.get(PATIENCE) == ["one é", ""]
    assert ear.get(0.05) == []
    assert other.get(0) == []
    timer = threading.Timer(0.1, store.notify, ("policy", "late"))
    timer.start()
    assert other.get(PATIENCE) == ["late"]
    timer.join()


# Refusals


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (draft("bad", x=float("nan")), r"data\.x is nan"),
        (draft("bad", x=[1, float("inf")]), r"data\.x\[1\] is inf"),
        (draft("bad", x={1: 2}), r"data\.x has the key 1"),
        (draft("bad", x=b"bytes"), r"data\.x is a bytes"),
        (draft("bad", x={1, 2}), r"data\.x is a set"),
        (draft("bad", x="\ud800"), "half a surrogate pair"),
        (Draft("bad", 1, "note", {"\udfff": 1}), "half a surrogate pair"),
        (draft("bad", x=10**4000), "more than 3,900 digits"),
        (draft("bad", x="y" * (5 << 20)), "put the content into an artifact"),
        (draft("bad", seq=5), "reserved key 'seq'"),
        (draft(""), "the event id '' is not a valid name"),
        (draft("a\nb"), "is not a valid name"),
        (draft("x" * 257), "is not a valid name"),
        (draft("bad", type_="nul\0"), "the event type"),
        (draft("bad", -1), "timestamp_ms -1"),
        (draft("bad", True), "timestamp_ms True"),
        (draft("bad", 1 << 63), "timestamp_ms"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name_before_anything_is_written(
    store: Store, bad: Draft, message: str
) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        store.append("s1", "session", "a", [draft("good"), bad], [b"artifact"])
    assert caught.value.reason == "invalid"
    assert (store.read(), store.artifacts()) == ([], [])


@pytest.mark.parametrize("name", ["\udcff", "nul\0", "x" * 10_000, "'; DROP TABLE events; --"])
def test_asking_for_a_name_that_cannot_be_there_finds_nothing_or_is_refused(store: Store, name: str) -> None:
    fill(store, "a", 1)
    for ask in (
        lambda: store.read(session_id=name),
        lambda: store.read(stream_id=name, types=[name]),
        lambda: [] if store.last_seq(name) == -1 else [1],
        lambda: store.artifacts(name),
        lambda: store.load_state(name, name) or [],
    ):
        try:
            assert ask() == []
        except StoreError as error:
            str(error).encode()
    assert store.last_seq("a") == 0


def test_a_closed_store_says_so(store: Store) -> None:
    store.close()
    store.close()
    for use in (store.read, store.sessions, store.stats, lambda: fill(store, "a", 1), lambda: store.put_artifact(b"")):
        with pytest.raises(StoreError, match="the store is closed"):
            use()


@pytest.mark.parametrize("name", ["", "mysql://host/db", "sqlite:", "sqlite://", "sqlite:///", "sqlite://host/x"])
def test_a_url_that_names_no_store_is_a_configuration_error(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a store") as caught:
        open_store(name)
    assert isinstance(caught.value, MetierError)


# Statistics and retention


def test_stats_count_what_is_there(store: Store) -> None:
    store.append("s1", "session", "a", [draft("1"), draft("2")], [b"abc"])
    store.append("s2", "session", "b", [draft("3")])
    store.save_state("s1", "k", 1)
    stats = store.stats()
    counted = ("sessions", "streams", "events", "artifacts", "artifact_bytes", "states")
    assert [stats.as_dict()[name] for name in counted] == [2, 2, 3, 1, 3, 1]
    assert stats.bytes > 0


def test_prune_removes_old_sessions_whole_with_state_and_unused_artifacts(store: Store) -> None:
    both, old = digest_of(b"both"), digest_of(b"old")
    store.append("old", "session", "a", [draft("1", 10, d=both), draft("2", 20, d=old)], [b"both", b"old"])
    store.append("old", "tool", "b", [draft("3", 15)])
    store.append("new", "session", "c", [draft("4", 20), draft("5", 100, d=both)])
    store.append("kept", "session", "d", [draft("6", 1)])
    store.save_state("old", "k", 1)
    store.save_state("new", "k", 2)
    assert store.prune(50, keep_sessions=["kept"]).as_dict() == {
        "sessions": 1,
        "events": 3,
        "artifacts": 0,
        "artifact_bytes": 0,
    }, "an artifact that was just stored is kept"
    assert store.artifacts() == sorted([both, old])
    removed = store.prune(50, keep_sessions=["kept"], grace_ms=0)
    assert (removed.sessions, removed.artifacts, removed.artifact_bytes) == (0, 1, 3)
    assert [summary.id for summary in store.sessions()] == ["kept", "new"]
    assert store.artifacts() == [both]
    assert [session for session, _ in store.states()] == ["new"]
    assert seqs(store.read(session_id="new")) == [0, 1]


def test_a_pruned_stream_starts_again_and_followers_still_move_forward(store: Store) -> None:
    fill(store, "a", 3)
    cursor = store.cursor()
    store.prune(1000)
    assert store.last_seq("a") == -1
    fill(store, "a", 2)
    assert seqs(store.page(cursor).frames) == [0, 1]


# The interface


def test_a_store_has_the_public_names_of_the_interface_and_no_others(store: Store) -> None:
    """Code that works with one store then works with any other."""
    interface = {*dir(Store), *Store.__annotations__}
    assert {name for name in dir(store) if name[0] != "_"} == {name for name in interface if name[0] != "_"}
