"""The base of all values: a value is declared once, typed, and its JSON and its JSON Schema come from the declaration.

A frozen value is a `class Name(Value)` with annotated fields; one that changes is a `class Name(msgspec.Struct)`. Both
take `kw_only=True`. `replace(value, field=...)` copies one with changes, and `field(default_factory=...)` makes a
default anew. Four class variables say what the fields alone do not:

- `json_keys` lists what the JSON has, in its order; by default it is all fields. An entry is the name of a field or of
  a property. `"fit?"` is left out where it is empty, `"line|null"` is null then, and `"root=source.path"` has another
  name than what it shows. `"*skill"` shows all keys of that value.
- `unshown` fields are not in the `repr`, `uncompared` ones count neither for equality nor for the hash, and `unhashed`
  ones not for the hash, because they are mappings.

Invariant: `as_dict(value)` fits `schema_of(type(value))`, and `mismatch` says in words where data from outside does not
fit a schema: what is checked and what is documented cannot differ. Types are read when a schema or JSON is first asked
for, and not when a class is defined, since starting a process defines a hundred classes.
"""

import functools
from binascii import b2a_base64
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from msgspec import Meta, Struct, StructMeta, field
from msgspec.structs import replace

__all__ = [
    "Count", "JsonObject", "Meta", "Name", "Schema", "Value", "as_dict", "counted", "field", "hint_of", "mismatch",
    "plain", "record", "replace", "schema_of",
]  # fmt: skip

JsonObject = dict[str, Any]
"""A JSON object from input or for output. Its values are unchecked: check a value when you read it."""

Schema = Mapping[str, Any]
"""A JSON schema."""

Count = Annotated[int, Meta(ge=0)]
"""A number of things."""

Name = Annotated[str, Meta(min_length=1)]
"""A text that is not empty."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class ValueType(StructMeta):
    """The class of `Value`, which tells type checkers that its fields do not change."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        if namespace.get("uncompared"):
            namespace = {"__eq__": _equal, "__hash__": _hash, **namespace}
        elif namespace.get("unhashed"):
            namespace = {"__hash__": _hash, **namespace}
        return super().__new__(mcs, name, bases, namespace, **options)


class _StandardFields:
    """Stands in a class for the fields that the functions of `dataclasses` look for: they take values, too."""

    def __get__(self, instance: object, cls: type[Struct]) -> Mapping[str, Any]:
        return _standard_fields(cls)


@functools.cache
def _standard_fields(cls: type[Struct]) -> Mapping[str, Any]:
    from dataclasses import make_dataclass

    names = cls.__struct_fields__
    made: Any = make_dataclass(cls.__name__, [(name, cls.__annotations__.get(name, Any)) for name in names])
    return made.__dataclass_fields__


class Value(Struct, frozen=True, metaclass=ValueType):
    """A frozen value; see the module."""

    __dataclass_fields__ = _StandardFields()
    json_keys: ClassVar[tuple[str, ...]] = ()
    unshown: ClassVar[tuple[str, ...]] = ()
    uncompared: ClassVar[tuple[str, ...]] = ()
    unhashed: ClassVar[tuple[str, ...]] = ()

    def as_dict(self) -> JsonObject:
        """The value as JSON."""
        return as_dict(self)

    def __repr__(self) -> str:
        shown = (name for name in self.__struct_fields__ if name not in self.unshown)
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


@functools.cache
def _getter(kind: type[Value], without: tuple[str, ...]) -> Callable[[object], object]:
    names = [name for name in kind.__struct_fields__ if name not in without]
    return attrgetter(*names) if names else lambda _: ()


def _equal(self: Value, other: object) -> bool:
    get = _getter(type(self), self.uncompared)
    return get(self) == get(other) if type(other) is type(self) else NotImplemented


def _hash(self: Value) -> int:
    return hash(_getter(type(self), self.uncompared + self.unhashed)(self))


# --- JSON ---


class _Key(NamedTuple):
    """An entry of `json_keys`. `path` leads to what it shows, and `empty` is what becomes of an empty value."""

    name: str
    path: str
    empty: Literal["shown", "left out", "null", "merged"] = "shown"

    @classmethod
    def parse(cls, entry: str) -> "_Key":
        name, _, path = entry.partition("=")
        if name.startswith("*"):
            return cls(name, name[1:], "merged")
        if name.endswith("?"):
            return cls(name[:-1], path or name[:-1], "left out")
        if name.endswith("|null"):
            return cls(name[:-5], path or name[:-5], "null")
        return cls(name, path or name)


@functools.cache
def _keys(kind: type[Struct]) -> tuple[_Key, ...]:
    names = kind.json_keys if issubclass(kind, Value) else ()
    return tuple(_Key.parse(entry) for entry in names or kind.__struct_fields__)


@functools.cache
def _readers(kind: type[Struct]) -> tuple[tuple[str, Callable[[object], Any], str, bool], ...]:
    """How each key is read, and whether its value is JSON as it is."""
    hints = {key.name: hint_of(kind, key.path) for key in _keys(kind)}
    return tuple((key.name, attrgetter(key.path), key.empty, _is_scalar(hints[key.name])) for key in _keys(kind))


def as_dict(value: Struct) -> JsonObject:
    """A value as JSON. This is the derived form, also where the class has an `as_dict` of its own."""
    shown: JsonObject = {}
    for name, read, empty, scalar in _readers(type(value)):
        content = read(value)
        if empty == "merged":
            shown |= plain(content)
            continue
        if empty != "shown" and not content and content != b"":  # no bytes are content, too: of an empty file
            if empty == "null":
                shown[name] = None
            continue
        shown[name] = content if scalar else plain(content)
    return shown


def plain(value: Any) -> Any:
    """Any value as JSON: mappings as `dict`, sequences as `list`, bytes as base64.

    An iterator stays one, for whoever writes its items as they come.
    """
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in cast("Mapping[str, object]", value).items()}
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if isinstance(value, Iterator):
        return cast("Iterator[object]", value)
    if isinstance(value, Struct):
        return as_dict(value)
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, bytes):
        return b2a_base64(value, newline=False).decode()
    return [plain(item) for item in cast("Sequence[object]", value)]


# --- JSON Schema ---

_SCALARS: Final[Mapping[object, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    bytes: "string",
    NoneType: "null",
}

_BOUNDS: Final[Mapping[str, str]] = {
    "ge": "minimum",
    "le": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
    "description": "description",
}


@functools.cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind, include_extras=True)


def hint_of(kind: Any, path: str) -> Any:
    """The type of a field or property, also of one further inside, such as `root.path`."""
    name, _, rest = path.partition(".")
    kind = get_origin(kind) or kind
    attribute = getattr(kind, name, None)
    if isinstance(attribute, property):
        hint = get_type_hints(attribute.fget, include_extras=True)["return"]
    else:
        hint = _hints(kind)[name]
    return hint_of(hint, rest) if rest else hint


def _is_scalar(hint: Any) -> bool:
    inside = get_args(hint)
    if get_origin(hint) is Annotated:
        return _is_scalar(inside[0])
    if get_origin(hint) in (Union, UnionType):
        return all(map(_is_scalar, inside))
    return get_origin(hint) is Literal or (hint in _SCALARS and hint is not bytes)


def schema_of(hint: Any) -> JsonObject:
    """The JSON Schema of a type: of a `Value`, or of anything that stands in one."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Annotated, NotRequired, Required):
        return schema_of(inside[0]) | _bounds(inside[1:])
    if origin is Literal:
        return {"enum": list(inside)}
    if origin in (Union, UnionType):
        return _any_of([schema_of(one) for one in inside])
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    return _class_schema(origin or hint, inside)


def _class_schema(kind: type[Any], inside: tuple[Any, ...]) -> JsonObject:
    if not hasattr(kind, "__mro__"):
        return {}  # a type variable, for example: it can be anything
    if issubclass(kind, Struct):
        properties, optional = dict[str, JsonObject](), list[str]()
        for key in _keys(kind):
            schema = schema_of(hint_of(kind, key.path))
            if key.empty == "merged":
                properties |= schema["properties"]
                optional += (name for name in schema["properties"] if name not in schema["required"])
            else:
                properties[key.name] = _shown(schema, key.empty)
                optional += [key.name] if key.empty == "left out" else []
        return record(properties, optional)
    if is_typeddict(kind) or hasattr(kind, "_fields"):
        return record(
            {name: schema_of(one) for name, one in _hints(kind).items()}, getattr(kind, "__optional_keys__", ())
        )
    if issubclass(kind, Mapping):
        items = schema_of(inside[1]) if inside else {}
        return {"type": "object"} | ({"additionalProperties": items} if items else {})
    if issubclass(kind, Iterable):
        return {"type": "array", "items": schema_of(inside[0]) if inside else {}}
    return {}


def record(properties: Mapping[str, Schema], optional: Collection[str] = ()) -> JsonObject:
    """The schema of an object with these fields. Other fields are allowed."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": dict(properties)}


def _bounds(marks: Sequence[object]) -> JsonObject:
    found: JsonObject = {}
    for mark in marks:
        if isinstance(mark, Meta):
            given = {key: getattr(mark, name) for name, key in _BOUNDS.items()}
            found |= {key: value for key, value in given.items() if value is not None} | (mark.extra_json_schema or {})
    return found


def _any_of(schemas: Sequence[JsonObject]) -> JsonObject:
    """One of several schemas, as one schema where the others are only types such as `null`."""
    rich = [schema for schema in schemas if set(schema) != {"type"}]
    kinds = [kind for schema in schemas if schema not in rich for kind in _types(schema)]
    if not rich:
        return {"type": kinds}
    if len(rich) == 1 and "enum" in rich[0] and kinds == ["null"]:
        return rich[0] | {"enum": [*rich[0]["enum"], None]}
    if len(rich) == 1 and "type" in rich[0]:
        return rich[0] | {"type": [*_types(rich[0]), *kinds]}
    return {"anyOf": list(schemas)}


def _shown(schema: JsonObject, empty: str) -> JsonObject:
    """The schema of a key: with null where an empty value is shown as that, and without it where it is left out."""
    if empty == "null":
        return _any_of([schema, {"type": "null"}])
    kinds = [kind for kind in _types(schema) if kind != "null"] if empty == "left out" and "type" in schema else []
    return schema | {"type": kinds[0]} if len(kinds) == 1 else schema


def _types(schema: JsonObject) -> list[str]:
    return [schema["type"]] if isinstance(schema["type"], str) else list(schema["type"])


# --- checks ---

_CLASSES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "object": Mapping,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "number": (int, float),
}

_NAMES: Final[Mapping[str, str]] = {
    "object": "a JSON object",
    "array": "a list",
    "string": "text",
    "boolean": "true or false",
    "null": "null",
    "number": "a number",
    "integer": "a whole number",
}


def mismatch(value: object, schema: Schema, where: str) -> str:
    """Why a value does not fit a schema, in words; empty where it does."""
    kinds = schema.get("type")
    allowed = [kinds] if isinstance(kinds, str) else list(kinds or ())
    if allowed and not any(_is_a(value, kind) for kind in allowed):
        return f"{where} must be {' or '.join(_NAMES[kind] for kind in allowed)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} must be one of: {', '.join(map(str, schema['enum']))}"
    if isinstance(value, Mapping):
        return _object_mismatch(cast("Mapping[str, object]", value), schema)
    if isinstance(value, list) and "items" in schema:
        items = cast("list[object]", value)
        return next((wrong for item in items if (wrong := mismatch(item, schema["items"], f"each of {where}"))), "")
    if isinstance(value, str) and len(value) < schema.get("minLength", 0):
        return f"{where} must not be empty"
    if isinstance(value, int | float) and value < schema.get("minimum", value):
        return f"{where} must be at least {schema['minimum']}"
    if isinstance(value, int | float) and value > schema.get("maximum", value):
        return f"{where} must be at most {schema['maximum']}"
    return ""


def _object_mismatch(given: Mapping[str, object], schema: Schema) -> str:
    for key in schema.get("required", ()):
        if key not in given:
            return f"{key} is missing"
    known: Mapping[str, Schema] = schema.get("properties", {})
    for key, value in given.items():
        if key in known:
            if wrong := mismatch(value, known[key], key):
                return wrong
        elif schema.get("additionalProperties") is False:
            return f"{key} is not known; known: {', '.join(known) or 'nothing'}"
    return ""


def counted(value: object, schema: Schema) -> object:
    """The value with a whole number as an `int`: JSON has one kind of number, and 3.0 is a whole one."""
    return int(value) if schema.get("type") == "integer" and isinstance(value, float) else value


def _is_a(value: object, kind: str) -> bool:
    if kind == "integer":
        whole = isinstance(value, float) and value.is_integer()
        return not isinstance(value, bool) and (isinstance(value, int) or whole)
    return isinstance(value, _CLASSES[kind]) and (kind == "boolean" or not isinstance(value, bool))
