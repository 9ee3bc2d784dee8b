"""What an operation is: a frozen value that says what policy is asked, what it does, and what its result is as data.

The fields of an operation are declared once, with what they mean. Their JSON schema is derived from that, and with it
what every surface accepts, checks and documents.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Generic, Literal, Self, TypeVar, cast, get_args, get_origin, get_type_hints

from metier.errors import BadArguments
from metier.hosts.formats import Answer
from metier.model import JsonObject
from metier.results import Request
from metier.session.context import SessionContext
from metier.session.json_schema import Schema, counted, mismatch

R = TypeVar("R", bound=Answer)


def about(text: str, *, model: bool = True, **schema: object) -> dict[str, Any]:
    """What a field means, whether a model may give it, and its bounds in the words of JSON Schema."""
    return {"about": text, "model": model, "schema": schema}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(ABC, Generic[R]):
    """One thing that a session can do. `Session.perform` does it."""

    operation: ClassVar[str] = ""
    """The name on every surface and in the record."""
    recorded: ClassVar[bool] = True
    """Whether the record has it. What only shows something is not recorded."""

    @abstractmethod
    def perform(self, context: SessionContext) -> R:
        """Do it. The session's lock is held."""

    def rescan(self, context: SessionContext) -> None:
        """Scan the disk first, where the host does so on each call. The session's lock is not held."""
        return

    def requests(self, context: SessionContext) -> Iterator[Request]:
        """What policy is asked, in order; the next only if the one before is allowed. Nothing is recorded."""
        yield from ()

    def data(self, result: R) -> object:
        """The result as JSON, for every surface that speaks it."""
        return result.as_dict()

    def code(self, result: R) -> str:
        """A stable word for what went wrong, where the result is an answer that says so."""
        return ""

    def as_dict(self) -> JsonObject:
        """The fields as the record has them. What was not given is left out."""
        values = ((name, getattr(self, name)) for name in _names(type(self)))
        return {
            name: list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value
            for name, value in values
            if value is not None and value is not False
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Self:
        """The operation with these fields. Raises `BadArguments`, which says what is wrong with which field."""
        known = parameters(cls)
        wrong = mismatch({key: value for key, value in values.items() if value is not None}, schema_of(cls), "")
        if wrong:
            raise BadArguments(wrong)
        checked = {key: counted(value, known[key]) for key, value in values.items() if value is not None}
        return cls(**checked)


_KINDS: Final[Mapping[object, JsonObject]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
}


@functools.cache
def _names(kind: type[Operation[Any]]) -> tuple[str, ...]:
    return tuple(item.name for item in fields(kind))


@functools.cache
def parameters(kind: type[Operation[Any]]) -> Mapping[str, Schema]:
    """The fields of an operation, each with its JSON schema."""
    hints = get_type_hints(kind)
    return {
        item.name: {**_schema(hints[item.name]), "description": item.metadata["about"], **item.metadata["schema"]}
        for item in fields(kind)
    }


@functools.cache
def schema_of(kind: type[Operation[Any]]) -> Schema:
    """The JSON schema of an operation's fields."""
    required = [item.name for item in fields(kind) if item.default is MISSING]
    return {
        "type": "object",
        "properties": parameters(kind),
        "required": required,
        "additionalProperties": False,
    }


def _schema(hint: Any) -> JsonObject:
    origin, inside = get_origin(hint), get_args(hint)
    if origin is UnionType or NoneType in inside:
        return _schema(next(one for one in inside if one is not NoneType))
    if origin is Literal:
        return {"enum": list(inside)}
    if origin is Sequence:
        return {"type": "array", "items": _schema(inside[0])}
    return {"type": "object"} if origin is Mapping else dict(_KINDS[hint])
