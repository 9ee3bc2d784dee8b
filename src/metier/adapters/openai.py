"""Skills for a loop on the OpenAI SDK: `create(..., **skills.request(messages))`, then `skills.dispatch(response)`.

`ChatSkills` is for chat completions, `ResponsesSkills` for the Responses API. `request` returns the arguments of a call
that depend on the skills; `dispatch` answers the tool calls of the response. Both work with plain data.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, NotRequired, TypedDict, Unpack, cast

from metier import limits
from metier.adapters.conversation import Conversation, decoded, joined
from metier.adapters.messages import is_instruction, last_user_text, texts, value_of
from metier.errors import report_missing
from metier.session.options import SessionOptions
from metier.session.session import Session
from metier.session.tools import ToolResult
from metier.skills import Skills

try:
    from openai.types.chat import (
        ChatCompletion,
        ChatCompletionFunctionToolParam,
        ChatCompletionMessage,
        ChatCompletionMessageParam,
        ChatCompletionToolMessageParam,
        ChatCompletionToolUnionParam,
    )
    from openai.types.responses import (
        FunctionToolParam,
        Response,
        ResponseInputItemParam,
        ResponseOutputItem,
        ToolParam,
    )
    from openai.types.responses.response_input_item_param import FunctionCallOutput
except ImportError as error:
    report_missing(error, "the adapter for the OpenAI SDK", "openai")


class ChatRequest(TypedDict):
    """Arguments of `client.chat.completions.create`."""

    messages: list[ChatCompletionMessageParam]
    tools: NotRequired[list[ChatCompletionToolUnionParam]]


class ResponsesRequest(TypedDict):
    """Arguments of `client.responses.create`."""

    input: list[ResponseInputItemParam]
    instructions: NotRequired[str]
    tools: NotRequired[list[ToolParam]]


class _Call(NamedTuple):
    """A tool call of a response."""

    id: str
    name: str
    arguments: str
    """As JSON."""


class _Loop:
    """The parts that both APIs share: one conversation, and calls that are answered in order."""

    def __init__(
        self,
        skills: Skills | Session,
        *,
        budget: int | None = None,
        restore: int = limits.COMPACTION_CHARACTERS,
        **options: Unpack[SessionOptions],
    ) -> None:
        """`options` are those of `Skills.session`. Its `approve` is asked for confirmation."""
        self.conversation = Conversation.of(skills, "openai", asks=False, budget=budget, restore=restore, **options)

    @property
    def session(self) -> Session:
        return self.conversation.session

    def _system(self, base: str, items: Sequence[object]) -> str:
        return self.conversation.system(base, list(texts(items)), last_user_text(items)).text

    def _answer(self, calls: Iterable[_Call]) -> list[tuple[str, ToolResult]]:
        return [
            (call.id, self.conversation.call(call.name, decoded(call.arguments))) for call in self._skill_calls(calls)
        ]

    async def _aanswer(self, calls: Iterable[_Call]) -> list[tuple[str, ToolResult]]:
        return [
            (call.id, await self.conversation.acall(call.name, decoded(call.arguments)))
            for call in self._skill_calls(calls)
        ]

    def _skill_calls(self, calls: Iterable[_Call]) -> list[_Call]:
        names = self.conversation.names()
        return [call for call in calls if call.name in names]


class ChatSkills(_Loop):
    """The skills of one conversation over chat completions."""

    def tools(self) -> list[ChatCompletionFunctionToolParam]:
        """The tools that can succeed now."""
        return [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.input_schema)},
            }
            for tool in self.conversation.tools()
        ]

    def request(
        self,
        messages: Iterable[ChatCompletionMessageParam | ChatCompletionMessage],
        system: str = "",
        tools: Iterable[ChatCompletionToolUnionParam] = (),
    ) -> ChatRequest:
        """The `messages` of a request, which begin with one system message, and its `tools`.

        If yours begin with a system message, the skills are appended to that one.
        """
        # The client also takes messages of its own responses, though its types do not say so.
        sent = cast("list[ChatCompletionMessageParam]", list(messages))
        own = sent[0] if sent and is_instruction(sent[0]) else None
        prompt = self._system("" if own else system, sent)
        if own is not None:
            sent[0] = cast("ChatCompletionMessageParam", _extended(own, system, prompt))
        elif prompt:
            sent.insert(0, {"role": "system", "content": prompt})
        request: ChatRequest = {"messages": sent}
        if every := [*tools, *self.tools()]:
            request["tools"] = every
        return request

    def dispatch(self, response: ChatCompletion) -> list[ChatCompletionToolMessageParam]:
        """A `tool` message for each call of a skill tool, to append after the assistant's message."""
        return [self._message(call_id, result) for call_id, result in self._answer(self._calls(response))]

    async def adispatch(self, response: ChatCompletion) -> list[ChatCompletionToolMessageParam]:
        """`dispatch` for asyncio."""
        return [self._message(call_id, result) for call_id, result in await self._aanswer(self._calls(response))]

    def _calls(self, response: ChatCompletion) -> Iterator[_Call]:
        for call in response.choices[0].message.tool_calls or ():
            if call.type == "function":
                yield _Call(call.id, call.function.name, call.function.arguments)

    def _message(self, call_id: str, result: ToolResult) -> ChatCompletionToolMessageParam:
        return {"role": "tool", "tool_call_id": call_id, "content": result.text}


class ResponsesSkills(_Loop):
    """The skills of one conversation over the Responses API, with the whole input in each request."""

    def tools(self) -> list[FunctionToolParam]:
        """The tools that can succeed now."""
        return [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.input_schema),
                "strict": False,
            }
            for tool in self.conversation.tools()
        ]

    def request(
        self,
        items: Iterable[ResponseInputItemParam | ResponseOutputItem],
        instructions: str = "",
        tools: Iterable[ToolParam] = (),
    ) -> ResponsesRequest:
        """The `input`, `instructions` and `tools` of a request.

        If your input begins with a system message, that one gets the instructions and the skills.
        """
        # The client also takes items of its own responses, though its types do not say so.
        sent = cast("list[ResponseInputItemParam]", list(items))
        own = sent[0] if sent and is_instruction(sent[0]) else None
        prompt = self._system("" if own else instructions, sent)
        request: ResponsesRequest = {"input": sent}
        if own is not None:
            sent[0] = cast("ResponseInputItemParam", _extended(own, instructions, prompt, "input_text"))
        elif prompt:
            request["instructions"] = prompt
        if every := [*tools, *self.tools()]:
            request["tools"] = every
        return request

    def dispatch(self, response: Response) -> list[FunctionCallOutput]:
        """A `function_call_output` for each call of a skill tool, to append after the output of the response."""
        return [self._item(call_id, result) for call_id, result in self._answer(self._calls(response))]

    async def adispatch(self, response: Response) -> list[FunctionCallOutput]:
        """`dispatch` for asyncio."""
        return [self._item(call_id, result) for call_id, result in await self._aanswer(self._calls(response))]

    def _calls(self, response: Response) -> Iterator[_Call]:
        for item in response.output:
            if item.type == "function_call":
                yield _Call(item.call_id, item.name, item.arguments)

    def _item(self, call_id: str, result: ToolResult) -> FunctionCallOutput:
        return {"type": "function_call_output", "call_id": call_id, "output": result.text}


def _extended(message: object, before: str, after: str, kind: str = "text") -> dict[str, object]:
    """A system message of the caller with text before and after its own, which may be text or a list of parts."""
    content = value_of(message, "content")
    fields = dict(cast("Mapping[str, object]", message))
    if isinstance(content, str):
        return fields | {"content": joined(before, content, after)}
    parts = cast("Iterable[object]", content)
    added = [[{"type": kind, "text": text}] if text else [] for text in (before, after)]
    return fields | {"content": [*added[0], *parts, *added[1]]}
