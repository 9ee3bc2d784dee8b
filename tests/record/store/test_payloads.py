"""Every value that JSON can represent comes back unchanged from every store."""

import json
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metier.record.store import ENVELOPE, Draft, Store, StoreError, canonical
from record.store.conftest import KINDS, NewStore

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
payloads = st.dictionaries(texts.filter(lambda key: key not in ENVELOPE), values, max_size=5)


@pytest.fixture(scope="module", params=KINDS)
def shared(request: pytest.FixtureRequest, new_store: NewStore) -> Iterator[Store]:
    with new_store(request.param) as opened:
        yield opened


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=payloads)
def test_a_payload_comes_back_as_it_was_in_type_order_and_bytes(shared: Store, data: dict[str, object]) -> None:
    stream = uuid.uuid4().hex
    (written,) = shared.append(stream, "session", stream, [Draft(f"{stream}-0", 1, "note", data)])
    (read,) = shared.read(stream_id=stream)
    assert canonical(read) == canonical(written)
    # Compared as text as well: 1, 1.0 and True are equal in Python but not the same.
    kept = {key: value for key, value in read.items() if key not in ENVELOPE}
    assert json.dumps(kept) == json.dumps(data)


@settings(max_examples=30)
@given(value=values)
def test_state_comes_back_as_it_was(shared: Store, value: object) -> None:
    session = uuid.uuid4().hex
    shared.save_state(session, "k", value)
    found = shared.load_state(session, "k")
    assert found
    assert json.dumps(found.value) == json.dumps(value)


class Word(str):
    """A text that is not quite one."""


def nested(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": ["x", {"b": {1}}]}, r"state\.a\[1\]\.b is a set"),
        ({"a": [{"b": {2: "x"}}]}, r"state\.a\[0\]\.b has the key 2"),
        ({"a": (0.5, float("nan"))}, r"state\.a\[1\] is nan"),
        ({"a": nested(70)}, "nested more than 64 levels deep"),
        ({"a": [10**4_000]}, r"state\.a\[0\] is a number of more than 3,900 digits"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(shared: Store, value: object, problem: str) -> None:
    with pytest.raises(StoreError, match=problem):
        shared.save_state("refused", "k", value)
    assert shared.load_state("refused", "k") is None


def test_what_is_kept_is_made_of_plain_values_and_changes_no_more(shared: Store) -> None:
    given: dict[str, object] = {
        "name": Word("a"),
        "list": [1, {"x": Word("b")}],
        "pair": (1.5, None),
        "deep": nested(60),
    }
    shared.save_state("kept", "k", given)
    given["list"] = []
    found = shared.load_state("kept", "k")
    assert found
    assert found.value == {"name": "a", "list": [1, {"x": "b"}], "pair": [1.5, None], "deep": nested(60)}
    assert isinstance(found.value, dict)
    assert type(found.value["name"]) is str
