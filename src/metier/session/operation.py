"""What an operation is: a frozen value that says what it does, what is asked for that, and what its result is as data.

The fields of an operation are declared once, with what they mean. Their JSON schema is derived from that, and with it
what every surface accepts, checks and documents. An operation is checked before it is asked, recorded or performed:
what cannot be recorded cannot be run again, and is refused with the name of the field.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, Self, TypeVar, Union, cast, get_args, get_origin

from msgspec.structs import fields

from metier import limits
from metier.errors import BadArguments
from metier.hosts.formats import Answer
from metier.policy.decide import By
from metier.record.offers import SkillOffer
from metier.session.context import SessionContext, Steps
from metier.values import value as values
from metier.values.results import Prompt
from metier.values.value import JsonObject, Meta, Schema, Value, counted, mismatch

R = TypeVar("R", bound=Answer)


def about(text: str, *, model: bool = True, nul: bool = False, **schema: object) -> Meta:
    """What a field means, whether a model may give it, and its bounds in the words of JSON Schema.

    `nul` says that its text may hold a NUL. Names, paths and the arguments of a script may not: no file has such a
    name, and no process can be given one.
    """
    return Meta(description=text, extra={"model": model, "nul": nul}, extra_json_schema=schema)


class Operation(Value, Generic[R], kw_only=True):
    """One thing that a session can do. `Session.perform` does it, and `R` is its result.

    A field is `Annotated` with what it is `about`. See `metier.session.operations.register` for a new operation.
    """

    operation: ClassVar[str] = ""
    """The name on every surface and in the record."""
    recorded: ClassVar[bool] = True
    """Whether the record has it. What only shows something is not recorded."""

    rescans: ClassVar[bool] = False
    """Whether it depends on the catalog as the disk is now."""

    shape: ClassVar[Any] = None
    """The type of `data`, where that is not the JSON of the result."""

    def perform(self, context: SessionContext) -> Steps[R]:
        """Do it, and yield each request where it is needed; see `Steps`."""
        raise NotImplementedError

    @property
    def asker(self) -> By:
        """Who wants it. Where nobody can be asked, what a person wants is allowed unless a rule denies it."""
        return getattr(self, "by", "model")

    def runs_script(self, context: SessionContext) -> bool:
        """Whether its fields go to a script, so that values of secrets in them are kept out of the record."""
        return False

    def rescan(self, context: SessionContext) -> None:
        """Scan the disk first, where the host does so on each call. The session's lock is not held."""
        if self.rescans:
            context.visibility.rescan()

    def data(self, result: R) -> object:
        """The result as JSON, for every surface that speaks it."""
        return result.as_dict()

    def code(self, result: R) -> str:
        """A stable word for what went wrong, where the result is an answer that says so."""
        return ""

    def exit_code(self, result: R) -> int:
        """The exit code of a command that performs it: 1 where the answer is no, 3 where policy refuses."""
        return 0

    def remarks(self, result: R) -> Sequence[str]:
        """What a person at a command line reads beside the text, one line each."""
        return ()

    def listed(self, result: R) -> Prompt | None:
        """The list of skills in the result. What a message brought into it, later prompts of the session show, too."""
        return None

    def offer(self, result: R) -> SkillOffer | None:
        """The list of skills that a model is shown with the result, if it has one."""
        return None

    def check(self) -> None:
        """Raise `BadArguments` where a field does not fit, or the whole cannot be recorded. Nothing is done yet."""
        given = self.as_dict()
        wrong = mismatch(given, schema_of(type(self)), "")
        if wrong:
            raise BadArguments(wrong)
        self.check_nul()
        check_values(given)

    def check_nul(self) -> None:
        """Raise `BadArguments` for a NUL in a name, a path or an argument of a script."""
        for name in fields_without_nul(type(self)):
            value: object = getattr(self, name)
            if isinstance(value, str):
                wrong = "\0" in value
            else:
                texts = cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()
                wrong = any(isinstance(text, str) and "\0" in text for text in texts)
            if wrong:
                raise BadArguments(f"{name} must not hold a NUL character; leave it out", field=name)

    def as_dict(self) -> JsonObject:
        """The fields as the record has them. What was not given is left out."""
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
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


# --- what can be recorded ---

Flaw = Literal["not-json", "torn", "too-large"]
"""Why a value cannot be recorded: JSON has no form for it, it is not UTF-8, or it is too large."""

DEPTH: Final = 32
"""How deep the values of an operation may be nested."""

_WRONG: Final[Mapping[Flaw, str]] = {
    "not-json": f"must be JSON that is at most {DEPTH} levels deep, with finite numbers of at most 300 digits",
    "torn": "must be valid UTF-8; send whole characters, and not half a surrogate pair",
    "too-large": f"must have at most {limits.OPERATION_BYTES:,} bytes",
}

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, default=dict)  # a mapping may be of any kind


def flaw_of(value: object, limit: int | None = None) -> Flaw | None:
    """What keeps a value out of a record, or `None`. `limit` is its largest size as JSON, in bytes."""
    if not _is_json(value):
        return "not-json"
    try:
        size = len(_ENCODER.encode(value).encode())
    except UnicodeEncodeError:
        return "torn"
    return "too-large" if limit is not None and size > limit else None


def check_values(given: Mapping[str, object]) -> None:
    """Raise `BadArguments`, with the name of the field, where values from outside cannot be recorded."""
    flaw = flaw_of(given, limits.OPERATION_BYTES)
    if flaw is None:
        return
    for name, value in given.items():
        wrong = flaw_of(value, limits.OPERATION_BYTES)
        if wrong is not None:
            raise BadArguments(f"{name} {_WRONG[wrong]}", field=name)
    raise BadArguments(f"all fields together {_WRONG[flaw]}")  # or the name of a field


def _is_json(value: object, depth: int = DEPTH) -> bool:
    if value is None or isinstance(value, str):
        return True
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return depth > 0 and all(isinstance(key, str) and _is_json(item, depth - 1) for key, item in items)
    if isinstance(value, list | tuple):
        return depth > 0 and all(_is_json(item, depth - 1) for item in cast("list[object]", value))
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and value.bit_length() <= 1024


# --- fields ---


@functools.cache
def _fields(kind: type[Operation[Any]]) -> Mapping[str, tuple[Any, Meta]]:
    """Each field with its type, if it is given, and what it is about."""
    hints = {name: values.hint_of(kind, name) for name in kind.__struct_fields__}
    return {name: _field(hint) for name, hint in hints.items()}


def _field(hint: Any) -> tuple[Any, Meta]:
    mark = about("")
    if get_origin(hint) is Annotated:
        hint, mark = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        hint = next(inner for inner in get_args(hint) if inner is not NoneType)
    return hint, mark


def _marked(kind: type[Operation[Any]], key: str, wanted: bool) -> tuple[str, ...]:
    return tuple(name for name, (_, mark) in _fields(kind).items() if (mark.extra or {})[key] is wanted)


@functools.cache
def fields_without_nul(kind: type[Operation[Any]]) -> tuple[str, ...]:
    """The fields whose text must not hold a NUL; see `about`."""
    return _marked(kind, "nul", False)


def fields_of_models(kind: type[Operation[Any]]) -> Mapping[str, Schema]:
    """The fields that a model may give, each with its JSON schema."""
    return {name: parameters(kind)[name] for name in _marked(kind, "model", True)}


@functools.cache
def parameters(kind: type[Operation[Any]]) -> Mapping[str, Schema]:
    """The fields of an operation, each with its JSON schema."""
    return {name: values.schema_of(Annotated[hint, mark]) for name, (hint, mark) in _fields(kind).items()}


@functools.cache
def schema_of(kind: type[Operation[Any]]) -> Schema:
    """The JSON schema of an operation's fields."""
    required = [item.name for item in fields(kind) if item.required]
    return values.record(parameters(kind)) | {"required": required, "additionalProperties": False}


def result_schema(kind: type[Operation[Any]]) -> Schema:
    """The JSON schema of what `data` returns."""
    bases = (base for each in kind.__mro__ for base in getattr(each, "__orig_bases__", ()))
    result = next((get_args(base)[0] for base in bases if get_origin(base) is Operation), None)
    return values.schema_of(kind.shape or result)
