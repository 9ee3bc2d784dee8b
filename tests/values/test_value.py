"""A value is declared once: its JSON, its schema, its equality and its `repr` follow from the declaration."""

import copy
import dataclasses
import pickle
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypedDict

import pytest
from jsonschema import Draft202012Validator

from metier.values.value import Count, Name, Value, field, replace, schema_of


class Point(NamedTuple):
    x: int
    y: int


class Marks(TypedDict, total=False):
    colour: str


class Place(Value):
    unhashed = ("marks",)

    path: str
    marks: Marks = field(default_factory=Marks)


class Entry(Value):
    json_keys = ("name", "label", "where=place.path", "line|null", "tags?", "place", "point?", "data?", "kind", "extra")
    unshown = ("secret",)
    uncompared = ("secret",)
    unhashed = ("extra",)

    name: Name
    place: Place
    line: Count = 0
    tags: tuple[str, ...] = ()
    point: Point | None = None
    data: bytes | None = None
    kind: Literal["a", "b"] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    secret: str = ""

    @property
    def label(self) -> str:
        return f"<{self.name}>"


EMPTY = Entry("one", Place("/p"))
FULL = Entry(
    "two", Place("/q", {"colour": "red"}), 3, ("x",), Point(1, 2), b"", "a", {"deep": ({"k": (1,)},)}, "hidden"
)


def test_the_json_has_the_declared_keys_and_fits_the_schema() -> None:
    assert EMPTY.as_dict() == {
        "name": "one",
        "label": "<one>",
        "where": "/p",
        "line": None,
        "place": {"path": "/p", "marks": {}},
        "kind": None,
        "extra": {},
    }
    assert FULL.as_dict() == {
        "name": "two",
        "label": "<two>",
        "where": "/q",
        "line": 3,
        "tags": ["x"],
        "place": {"path": "/q", "marks": {"colour": "red"}},
        "point": {"x": 1, "y": 2},
        "data": "",
        "kind": "a",
        "extra": {"deep": [{"k": [1]}]},
    }
    schema = Draft202012Validator(schema_of(Entry))
    for value in (EMPTY, FULL):
        schema.validate(value.as_dict())
    for key, wrong in (("name", ""), ("line", -1), ("point", None), ("kind", "c"), ("tags", [1]), ("place", {})):
        assert not schema.is_valid(FULL.as_dict() | {key: wrong}), key
    assert not schema.is_valid({key: value for key, value in FULL.as_dict().items() if key != "label"})


def test_values_are_frozen_compare_by_value_and_hide_what_is_secret() -> None:
    with pytest.raises(AttributeError):
        EMPTY.name = "other"  # pyright: ignore[reportAttributeAccessIssue]
    assert replace(FULL, secret="other") == FULL != replace(FULL, line=4)
    assert hash(replace(FULL, extra={})) == hash(FULL) != hash(replace(FULL, line=4))
    assert "hidden" not in repr(FULL)
    assert repr(Place("/p")) == "Place(path='/p', marks={})"
    assert copy.deepcopy(FULL) == pickle.loads(pickle.dumps(FULL)) == FULL


def test_the_functions_of_dataclasses_take_values() -> None:
    assert dataclasses.replace(FULL, line=5).line == 5
    assert [item.name for item in dataclasses.fields(Place)] == ["path", "marks"]
    assert dataclasses.asdict(Place("/p")) == {"path": "/p", "marks": {}}
    made: Any = Place
    assert made.__dataclass_fields__ is made.__dataclass_fields__, "making them takes longer than a load"
