"""A quick data class is what `dataclasses` would have made: the same class is made both ways, and compared."""

import copy
import dataclasses
import inspect
import pickle
from typing import Any, ClassVar, get_type_hints

import pytest

from metier import quick_dataclass

MAKERS: list[Any] = [dataclasses, quick_dataclass]


def frozen(module: Any) -> Any:
    @module.dataclass(frozen=True, slots=True)
    class Entry:
        """One entry."""

        kind: ClassVar[str] = "entry"
        name: str
        tags: tuple[str, ...] = ()
        extra: dict[str, str] = module.field(default_factory=dict, hash=False)
        secret: str = module.field(default="s", repr=False, compare=False)

        @property
        def label(self) -> str:
            return f"<{self.name}>"

    return Entry


def changing(module: Any) -> Any:
    @module.dataclass(slots=True, kw_only=True)
    class Counter:
        count: int = 0
        name: str
        seen: list[str] = module.field(default_factory=list)

    return Counter


def plain(module: Any) -> Any:
    @module.dataclass(frozen=True, eq=False)
    class Base:
        name: str
        size: int = 1

        def __post_init__(self) -> None:
            if not self.name:
                raise ValueError("no name")

    @module.dataclass(frozen=True, eq=False)
    class Inner(Base):
        depth: int = 2

    return Inner


def described(module: Any) -> dict[str, object]:
    """What a program can see of the classes and their instances."""
    entry, counter, inner = frozen(module), changing(module), plain(module)
    one = entry("a", ("b",), {"c": "d"})
    with pytest.raises(dataclasses.FrozenInstanceError, match="'name'"):
        one.name = "other"
    with pytest.raises(dataclasses.FrozenInstanceError, match="'name'"):
        del one.name
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'"):
        entry()
    with pytest.raises(TypeError, match="unexpected keyword argument 'nam'"):
        entry(nam="a")
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter(name="x"))
    with pytest.raises(TypeError, match="positional"):
        counter(1, "x")
    with pytest.raises(ValueError, match="no name"):
        inner("")
    two = counter(name="x")
    two.count += 1
    two.seen.append("y")
    match one:
        case entry(name, tags):
            matched = (name, tags)
        case _:
            matched = None
    return {
        "repr": repr(one),
        "parameters": {
            name: (value.kind, value.annotation, value.default is inspect.Parameter.empty)
            for name, value in inspect.signature(entry).parameters.items()
        },
        "hints": get_type_hints(entry),
        "doc": entry.__doc__,
        "equal": (one == entry("a", ("b",), {"c": "d"}, "t"), one == entry("a"), one == "a", two == two),
        "hash": (hash(one) == hash(entry("a", ("b",), {})), hash(one) == hash(entry("b"))),
        "factory": (entry("a").extra is entry("a").extra, counter(name="x").seen),
        "replaced": repr(module.replace(one, name="z")),
        "replaced by the other": repr(quick_dataclass.replace(one, name="z")),
        "replaced by the library": repr(dataclasses.replace(one, tags=("z",))),
        "as dict": dataclasses.asdict(one),
        "fields": [(item.name, item.repr, item.compare, item.hash, item.kw_only) for item in dataclasses.fields(entry)],
        "own fields": [item.name for item in module.fields(inner)],
        "is": (module.is_dataclass(entry), module.is_dataclass(one), module.is_dataclass(str)),
        "copies": (copy.copy(one) == one, copy.deepcopy(one) == one, copy.deepcopy(one).extra is one.extra),
        "slots": (hasattr(one, "__dict__"), hasattr(inner("a"), "__dict__")),
        "matched": matched,
        "changed": (two.count, two.seen, repr(two)),
        "inherited": (inner("a").size, inner("a", 3, 4).depth, repr(inner("a")), inner("a") == inner("a")),
        "defaults": (inner.size, one.label, entry.kind),
    }


def test_it_behaves_as_a_data_class_of_the_standard_library() -> None:
    expected, found = map(described, MAKERS)
    assert found == expected


@quick_dataclass.dataclass(frozen=True, slots=True)
class Kept:
    name: str
    size: int = 2


def test_it_survives_a_pickle() -> None:
    assert pickle.loads(pickle.dumps(Kept("a", 3))) == Kept("a", 3)
