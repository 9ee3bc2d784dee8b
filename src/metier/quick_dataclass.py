"""Data classes that cost little to define: what `dataclasses` writes and compiles at once for each class is made here
when it is first used, or not compiled at all.

A process that lists six skills defines forty such classes, and would spend a third of its time on their methods. This
is the part of `dataclasses` that those classes use. The functions of `dataclasses` itself take them, too.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, ClassVar, Final, TypeVar, cast, dataclass_transform, get_origin

T = TypeVar("T")


class _Missing:
    def __repr__(self) -> str:
        return "<factory>"  # as it stands in the signature of a class


MISSING: Final[Any] = _Missing()
"""The default of a field that has none."""
_FIELDS: Final = "__quick_fields__"


class FieldRule:
    """One field of a class. The names are those of `dataclasses.Field`."""

    __slots__ = ("compare", "default", "default_factory", "hash", "kw_only", "metadata", "name", "repr", "type")

    def __init__(
        self, default: Any, default_factory: Any, shown: bool, hashed: bool | None, compared: bool, metadata: Any
    ) -> None:
        self.default, self.default_factory, self.metadata = default, default_factory, metadata
        self.repr, self.hash, self.compare = shown, hashed, compared
        self.name, self.type, self.kw_only = "", cast("Any", None), False


def field(
    *,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    repr: bool = True,  # noqa: A002 - these are the names of `dataclasses`
    hash: bool | None = None,  # noqa: A002
    compare: bool = True,
    metadata: Mapping[str, Any] | None = None,
) -> Any:
    """Say more of a field than its default, as `dataclasses.field` does."""
    return FieldRule(default, default_factory, repr, hash, compare, metadata or {})


@dataclass_transform(field_specifiers=(field,))
def dataclass(
    *,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
    eq: bool = True,
    repr: bool = True,  # noqa: A002
) -> Callable[[type[T]], type[T]]:
    """Make a class with annotations a data class, as `dataclasses.dataclass` does."""

    def decorate(cls: type[T]) -> type[T]:
        own = _own_fields(cls, kw_only)
        known: dict[str, FieldRule] = {}
        for base in reversed(cls.__mro__[1:]):
            known |= base.__dict__.get(_FIELDS, {})
        known |= own
        made: dict[str, Any] = {_FIELDS: known, "__init__": _Init(frozen), "__dataclass_fields__": _StandardFields()}
        made["__match_args__"] = tuple(one.name for one in known.values() if not one.kw_only)
        made |= _methods(known.values(), frozen, slots, eq, repr)
        left_out = {"__dict__", "__weakref__", *own}
        content = {name: value for name, value in cls.__dict__.items() if name not in left_out}
        defaults = {} if slots else {one.name: one.default for one in own.values() if one.default is not MISSING}
        if slots:
            content["__slots__"] = tuple(own)
        content["__qualname__"] = cls.__qualname__
        return type(cls)(cls.__name__, cls.__bases__, {**made, **content, **defaults})

    return decorate


def fields(cls: type | object) -> tuple[FieldRule, ...]:
    """The fields of a data class that is made here, or of an instance."""
    return tuple(getattr(cls, _FIELDS).values())


def is_dataclass(cls: object) -> bool:
    """Whether this is a data class that is made here, or an instance of one."""
    return hasattr(cls, _FIELDS)


def replace(instance: T, /, **changes: Any) -> T:
    """A copy of a data class with other values for some fields."""
    known: Mapping[str, FieldRule] | None = getattr(instance, _FIELDS, None)
    if known is None:
        import dataclasses

        return dataclasses.replace(cast("Any", instance), **changes)
    return type(instance)(**{name: getattr(instance, name) for name in known if name not in changes}, **changes)


def _own_fields(cls: type, kw_only: bool) -> dict[str, FieldRule]:
    found: dict[str, FieldRule] = {}
    for name, kind in cls.__annotations__.items():
        if get_origin(kind) is ClassVar:
            continue
        given = cls.__dict__.get(name, MISSING)
        one = given if isinstance(given, FieldRule) else cast("FieldRule", field(default=given))
        one.name, one.type, one.kw_only = name, kind, kw_only
        found[name] = one
    return found


# --- methods that need not be compiled ---


def _methods(known: Iterable[FieldRule], frozen: bool, slots: bool, eq: bool, shown: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if shown:
        found["__repr__"] = _repr_of([one.name for one in known if one.repr])
    if eq:
        found["__eq__"] = _eq_of([one.name for one in known if one.compare])
        hashed = [one.name for one in known if (one.compare if one.hash is None else one.hash)]
        found["__hash__"] = _hash_of(hashed) if frozen else None
    if frozen:
        found |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    if frozen and slots:
        found |= {"__getstate__": _state, "__setstate__": _set_state}
    return found


def _values_of(names: list[str]) -> Callable[[object], Any]:
    return attrgetter(*names) if names else lambda _: ()


def _repr_of(names: list[str]) -> Callable[[object], str]:
    def shown(self: object) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return shown


def _eq_of(names: list[str]) -> Callable[[object, object], bool]:
    values = _values_of(names)

    def equal(self: object, other: object) -> bool:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return equal


def _hash_of(names: list[str]) -> Callable[[object], int]:
    values = _values_of(names)

    def hashed(self: object) -> int:
        return hash(values(self))

    return hashed


def _refuse_to_set(_self: object, name: str, _value: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: object, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: object) -> list[Any]:
    return [getattr(self, name) for name in getattr(self, _FIELDS)]


def _set_state(self: object, state: list[Any]) -> None:
    for name, value in zip(getattr(self, _FIELDS), state, strict=True):
        object.__setattr__(self, name, value)


# --- what is made when it is first used ---


class _Init:
    """Stands in a class for its `__init__`, and compiles it for the first instance."""

    __slots__ = ("frozen", "owner")

    def __init__(self, frozen: bool) -> None:
        self.frozen = frozen
        self.owner: Any = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner = owner

    def __get__(self, instance: object, cls: type) -> Any:
        made = _compiled(self.owner, self.frozen)
        self.owner.__init__ = made
        return made if instance is None else made.__get__(instance, cls)


def _compiled(cls: type, frozen: bool) -> Any:
    known = fields(cls)
    given: dict[str, Any] = {"_missing": MISSING}
    parameters, assignments = ["self"], [] if known else ["pass"]
    for one in sorted(known, key=lambda one: one.kw_only):
        name, value = one.name, one.name
        if one.kw_only and "*" not in parameters:
            parameters.append("*")
        if one.default_factory is not MISSING:
            given[f"_make_{name}"] = one.default_factory
            parameters.append(f"{name}=_missing")
            value = f"_make_{name}() if {name} is _missing else {name}"
        elif one.default is not MISSING:
            given[f"_default_{name}"] = one.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        slot = cls.__dict__.get(name)
        if not frozen:
            assignments.append(f"self.{name} = {value}")
        elif type(slot).__name__ == "member_descriptor":
            given[f"_set_{name}"] = cast("Any", slot).__set__
            assignments.append(f"_set_{name}(self, {value})")
        else:
            given["_set"] = object.__setattr__
            assignments.append(f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        assignments.append("self.__post_init__()")
    lines = "\n  ".join(assignments)
    exec(f"def __init__({', '.join(parameters)}):\n  {lines}", given)  # noqa: S102 - names of fields and nothing else
    made = given["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    made.__annotations__ = {one.name: one.type for one in known} | {"return": None}
    return made


class _StandardFields:
    """Stands in a class for the fields that the functions of `dataclasses` look for."""

    __slots__ = ("owner",)

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner = owner

    def __get__(self, instance: object, cls: type) -> Any:
        import dataclasses

        def standard(one: FieldRule) -> Any:
            default: dict[str, Any] = {}
            if one.default is not MISSING:
                default["default"] = one.default
            if one.default_factory is not MISSING:
                default["default_factory"] = one.default_factory
            return dataclasses.field(
                repr=one.repr, hash=one.hash, compare=one.compare, kw_only=one.kw_only, metadata=one.metadata, **default
            )

        known = [(one.name, one.type, standard(one)) for one in fields(self.owner)]
        made = cast("Any", dataclasses.make_dataclass(self.owner.__name__, known)).__dataclass_fields__
        self.owner.__dataclass_fields__ = made
        return made
