"""What the model is told: the items of a chat become messages, the same ones whether they were just made or stored.

Only what a person can see is sent. Every call has its result, also one that was stopped, because model servers refuse
a conversation in which one is missing.
"""

import contextlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, cast

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.messages import UserPromptPart as UserPart
from pydantic_ai.tools import ToolDefinition

from metier.chat.demo_model import CALLED
from metier.chat.items import Item
from metier.session.tools import Tool

CHARACTERS: Final = 600_000
"""Of results of tools in one request; beyond, the oldest are left out. Some 150,000 tokens."""

LEFT_OUT: Final = "[left out to save room; call the tool again if it is needed]"

Outcome = Literal["success", "denied", "failed"]
_OUTCOMES: Final[Mapping[str, Outcome]] = {"done": "success", "refused": "denied"}
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_-]")


def wire_name(tool: str) -> str:
    """A tool's name as every provider takes it: no dots."""
    return _UNUSUAL.sub("_", tool)[:64]


def definitions(tools: Iterable[Tool]) -> list[ToolDefinition]:
    return [
        ToolDefinition(
            name=wire_name(tool.name),
            description=tool.description,
            parameters_json_schema=json.loads(json.dumps(tool.input_schema)),
        )
        for tool in tools
    ]


def arguments(part: ToolCallPart) -> tuple[Mapping[str, Any], Any]:
    """The arguments of a call to show, and to pass on: what is no JSON object is passed on as it came."""
    given: Any = part.args or {}
    if isinstance(given, str):
        with contextlib.suppress(ValueError, RecursionError):
            given = json.loads(given)
    return cast("dict[str, Any]", given if isinstance(given, dict) else {}), cast("Any", given)


def with_names(response: ModelResponse, known: Iterable[ToolDefinition]) -> ModelResponse:
    """A response with its tools named once: some servers send the name with every piece of the arguments."""
    names = [tool.name for tool in known]

    def once(said: str) -> str:
        return next((name for name in names if said and said == name * (len(said) // len(name))), said)

    parts = [
        replace(part, tool_name=once(part.tool_name)) if isinstance(part, ToolCallPart) else part
        for part in response.parts
    ]
    return replace(response, parts=parts)


def sendable(response: ModelResponse) -> ModelResponse:
    """A response as it can be sent back: servers insist on arguments that are JSON objects."""
    parts = [
        replace(part, args=dict(arguments(part)[0])) if isinstance(part, ToolCallPart) else part
        for part in response.parts
    ]
    return replace(response, parts=parts)


def messages(items: Sequence[Item]) -> list[ModelMessage]:
    """The conversation so far."""
    told: list[ModelMessage] = []
    kept = _within(items)
    step: int | None = None
    for item in items:
        if item["superseded"]:
            continue
        if item.type == "user":
            _say(told, item["text"] if item["message"] is None else item["message"])
            step = None
        elif item.type == "tool" and item["by"] == "user":
            if item["state"] == "done" and not item["injected"]:
                _say(told, f"{CALLED.format(name=item['skill'])} Its instructions:\n\n{item['text']}")
        elif item.type in ("text", "tool"):
            if item["step"] != step:
                told.append(ModelResponse(parts=[]))
                step = item["step"]
            _answer(told, item, kept)
    return [one for one in told if one.parts]


def _say(told: list[ModelMessage], text: str) -> None:
    """A user's words; what follows other words of the user joins them, since some servers insist on turns."""
    last = told[-1] if told else None
    if isinstance(last, ModelRequest) and isinstance(last.parts[-1], UserPart):
        before = last.parts[-1].content
        told[-1] = ModelRequest(parts=[UserPart(f"{before}\n\n{text}" if before else text)])
    else:
        told.append(ModelRequest(parts=[UserPart(text)]))


def _answer(told: list[ModelMessage], item: Item, kept: set[str]) -> None:
    response = next(one for one in reversed(told) if isinstance(one, ModelResponse))
    if item.type == "text":
        response.parts = [*response.parts, TextPart(item["text"])]
        return
    name = wire_name(item["tool"])
    response.parts = [*response.parts, ToolCallPart(name, dict(item["args"]), tool_call_id=item["call"])]
    result = returned(item, item["text"] if item.id in kept else LEFT_OUT)
    if isinstance(told[-1], ModelRequest):
        told[-1].parts = [*told[-1].parts, result]
    else:
        told.append(ModelRequest(parts=[result]))


def returned(item: Item, text: str | None = None) -> ToolReturnPart:
    """The result of a call as the model gets it."""
    content = item["text"] if text is None else text
    outcome: Outcome = _OUTCOMES.get(item["state"], "failed")
    return ToolReturnPart(wire_name(item["tool"]), content, tool_call_id=item["call"], outcome=outcome)


def _within(items: Sequence[Item]) -> set[str]:
    """The cards whose text fits, the newest first."""
    kept: set[str] = set()
    left = CHARACTERS
    for item in reversed(items):
        if item.type == "tool":
            left -= len(item["text"])
            if left >= 0 or not kept:
                kept.add(item.id)
    return kept
