"""The tools of a session as plain Python functions, for frameworks that read a function's signature and docstring.

Each function has the name, the parameters, the type hints and the description of its tool, and returns the text that
the model gets. Whatever a model passes, nothing is raised: a mistake, a refusal or a failure is text, too.
"""

import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from metier.errors import MetierError
from metier.files.shapes import as_table, is_items
from metier.policy.asking import in_thread
from metier.values.results import Tool

if TYPE_CHECKING:
    from metier.session.session import Session

_F = TypeVar("_F", bound=Callable[..., object])

_TYPES: Final[Mapping[object, Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "object": dict[str, Any],
}
"""The Python type of each type of a JSON schema, except for lists."""


def functions(session: "Session") -> list[Callable[..., str]]:
    """A function for each tool that is offered now."""

    def function(tool: Tool) -> Callable[..., str]:
        parameters = _parameters(tool)

        def call(*given: object, **named: object) -> str:
            return _call(session, tool, parameters, given, named)

        return _described(call, tool, parameters)

    return [function(tool) for tool in session.tools(wire=True)]


def async_functions(session: "Session") -> list[Callable[..., Awaitable[str]]]:
    """The same as coroutine functions."""

    def twin(function: Callable[..., str]) -> Callable[..., Awaitable[str]]:
        @functools.wraps(function)
        async def call(*given: object, **named: object) -> str:
            return await in_thread(function, *given, **named)

        return call

    return [twin(function) for function in functions(session)]


def _call(
    session: "Session",
    tool: Tool,
    parameters: Sequence[inspect.Parameter],
    given: Sequence[object],
    named: Mapping[str, object],
) -> str:
    if len(given) > len(parameters):
        return f"{tool.name} takes at most {len(parameters)} arguments, not {len(given)}"
    positional = {parameter.name: value for parameter, value in zip(parameters, given, strict=False)}
    twice = sorted(positional.keys() & named.keys())
    if twice:
        return f"{tool.name} was given `{twice[0]}` twice"
    # A framework passes the default of a parameter that the model left out.
    arguments = {name: value for name, value in (positional | dict(named)).items() if value is not None}
    try:
        return session.call(tool.name, arguments).text
    except MetierError as error:  # such as a store that is out of reach
        return session.explain(error)


def _described(function: _F, tool: Tool, parameters: Sequence[inspect.Parameter]) -> _F:
    """Give the function what frameworks read of it."""
    name = re.sub(r"\W", "_", tool.name, flags=re.ASCII)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = _docstring(tool, parameters)
    function.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": str}
    signature = inspect.Signature(parameters, return_annotation=str)
    setattr(function, "__signature__", signature)  # noqa: B010 - a function has no such attribute for a type checker
    return function


# --- from a JSON schema ---


def _parameters(tool: Tool) -> list[inspect.Parameter]:
    """The parameters of a tool, those that it requires first."""
    required = tool.input_schema.get("required") or ()
    properties = as_table(tool.input_schema.get("properties"))
    found = [_parameter(name, as_table(schema), name in required) for name, schema in properties.items()]
    return sorted(found, key=lambda one: one.default is None)


def _parameter(name: str, schema: Mapping[str, object], required: bool) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    if required:
        return inspect.Parameter(name, kind, annotation=_type(schema))
    return inspect.Parameter(name, kind, annotation=_type(schema) | None, default=None)


def _type(schema: Mapping[str, object]) -> Any:
    """The type of a value. What a value may be is left to the call, whose answer to a mistake says more."""
    if schema.get("type") == "array":
        return list[_type(as_table(schema.get("items")))]
    return _TYPES.get(schema.get("type"), str)


def _docstring(tool: Tool, parameters: Sequence[inspect.Parameter]) -> str:
    """The description in the form that frameworks parse: a summary, `Args:` and `Returns:`."""
    properties = as_table(tool.input_schema.get("properties"))
    lines = [tool.description]
    if parameters:
        lines += ["", "Args:"]
    for one in parameters:
        schema = as_table(properties[one.name])
        about = " ".join(str(schema.get("description") or f"The {one.name}.").split())
        choices = schema.get("enum")
        if is_items(choices):
            about = f"{about} One of: {', '.join(map(str, choices))}."
        lines.append(f"    {one.name}: {about}")
    return "\n".join([*lines, "", "Returns:", "    The result as text. An error is text, too, and says what to do."])
