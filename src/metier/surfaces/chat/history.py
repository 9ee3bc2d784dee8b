"""Turns the items of a chat into messages for the model, the same for new items and for stored ones.

The model is sent only what the user can see. Every call has a result, even a call that was stopped, because model
servers reject a conversation in which a result is missing.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition

from metier.files.shapes import as_table
from metier.session.tools import Tool
from metier.surfaces.chat.demo_model import CALLED, INSTRUCTIONS
from metier.surfaces.chat.items import FileItem, Item, TextItem, ToolItem, UserItem
from metier.values.skill import wire_name

ReturnOutcome = Literal["success", "denied", "failed"]
_OUTCOMES: Final[Mapping[str, ReturnOutcome]] = {"done": "success", "refused": "denied"}


class Arguments(NamedTuple):
    """The arguments of a call: `shown` on its card, and `given` as the model sent them, which may be any JSON."""

    shown: Mapping[str, object]
    given: Any


def definitions(tools: Iterable[Tool]) -> list[ToolDefinition]:
    return [
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=json.loads(json.dumps(tool.input_schema)),
        )
        for tool in tools
    ]


def arguments(part: ToolCallPart) -> Arguments:
    given: object = part.args or {}
    if isinstance(given, str):
        with contextlib.suppress(ValueError, RecursionError):
            given = json.loads(given)
    return Arguments(as_table(given), given)


def with_names(response: ModelResponse, known: Iterable[ToolDefinition]) -> ModelResponse:
    """A response in which every tool name occurs once. Some servers repeat it with every piece of the arguments."""
    names = [tool.name for tool in known]

    def once(sent: str) -> str:
        return next((name for name in names if sent and sent == name * (len(sent) // len(name))), sent)

    return _with_calls(response, lambda part: replace(part, tool_name=once(part.tool_name)))


def sendable(response: ModelResponse) -> ModelResponse:
    """A response that can be sent back: servers require arguments that are JSON objects."""
    return _with_calls(response, lambda part: replace(part, args=dict(arguments(part).shown)))


def _with_calls(response: ModelResponse, change: Callable[[ToolCallPart], ToolCallPart]) -> ModelResponse:
    return replace(response, parts=[change(one) if isinstance(one, ToolCallPart) else one for one in response.parts])


def messages(items: Sequence[Item], results: Mapping[str, str], before: str = "") -> list[ModelMessage]:
    """The conversation so far. `results` has the texts of cards and files by id, `before` what comes first."""
    sent: list[ModelMessage] = []
    step: int | None = None
    if before:
        _add_prompt(sent, before)
    for item in items:
        if isinstance(item, UserItem):
            _add_prompt(sent, item.text if item.message is None else item.message)
            step = None
        elif isinstance(item, FileItem):
            _add_prompt(sent, results[item.id])
        elif isinstance(item, ToolItem) and item.by == "user":
            if item.state == "done" and not item.injected:
                _add_prompt(sent, f"{CALLED.format(name=item.skill)}{INSTRUCTIONS}{results[item.id]}")
        elif isinstance(item, ToolItem) or (isinstance(item, TextItem) and not item.superseded):
            if item.step != step:
                sent.append(ModelResponse(parts=[]))
                step = item.step
            _add_answer(sent, item, results)
    return [one for one in sent if one.parts]


def _add_prompt(sent: list[ModelMessage], text: str) -> None:
    """Add text of the user. Consecutive texts are joined, since some servers require alternating turns."""
    last = sent[-1] if sent else None
    if isinstance(last, ModelRequest) and isinstance(last.parts[-1], UserPromptPart):
        before = last.parts[-1].content
        sent[-1] = ModelRequest(parts=[UserPromptPart(f"{before}\n\n{text}" if before else text)])
    else:
        sent.append(ModelRequest(parts=[UserPromptPart(text)]))


def _add_answer(sent: list[ModelMessage], item: TextItem | ToolItem, results: Mapping[str, str]) -> None:
    response = next(one for one in reversed(sent) if isinstance(one, ModelResponse))
    if isinstance(item, TextItem):
        response.parts = [*response.parts, TextPart(item.text)]
        return
    call = ToolCallPart(wire_name(item.tool), dict(item.args), tool_call_id=item.call)
    response.parts = [*response.parts, call]
    result = returned(item, results[item.id])
    if isinstance(sent[-1], ModelRequest):
        sent[-1].parts = [*sent[-1].parts, result]
    else:
        sent.append(ModelRequest(parts=[result]))


def returned(card: ToolItem, text: str | None = None) -> ToolReturnPart:
    """The result of a call as the model gets it."""
    content = card.text if text is None else text
    outcome: ReturnOutcome = _OUTCOMES.get(card.state, "failed")
    if outcome == "failed" and _is_object(content):
        outcome = "denied"  # the text says itself that it failed, and would only be quoted within another object
    return ToolReturnPart(wire_name(card.tool), content, tool_call_id=card.call, outcome=outcome)


def _is_object(text: str) -> bool:
    """Whether a text is a JSON object, as the results of some hosts are."""
    if not text.startswith("{"):
        return False
    with contextlib.suppress(ValueError, RecursionError):
        return isinstance(json.loads(text), dict)
    return False


def size(sent: Sequence[ModelMessage]) -> int:
    """The characters of a conversation, about."""
    return sum(
        len(str(getattr(part, "content", None) or getattr(part, "args", ""))) for one in sent for part in one.parts
    )


class Growth(NamedTuple):
    """What an event adds to an answer: text to one of its parts, or to what the model thought."""

    part: int
    text: str
    reasoning: bool = False


def growth(event: ModelResponseStreamEvent) -> Growth:
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart | ThinkingPart):
        return Growth(event.index, event.part.content, isinstance(event.part, ThinkingPart))
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta | ThinkingPartDelta):
        return Growth(event.index, event.delta.content_delta or "", isinstance(event.delta, ThinkingPartDelta))
    return Growth(0, "")
