"""Skills for a loop on the OpenAI SDK: `create(..., **skills.request(messages))`, then `skills.dispatch(response)`.

`ChatSkills` is for chat completions, `ResponsesSkills` for the Responses API. `request` returns the arguments of a call
that depend on the skills; `dispatch` answers the tool calls of the response. Both work with plain data.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NotRequired, TypedDict, cast

from metier.adapters.conversation import (
    AnswerT,
    ResponseCall,
    ResponseT,
    SkillLoop,
    decoded,
    is_instruction,
    joined,
    last_user_text,
    texts,
    value_of,
)
from metier.errors import report_missing
from metier.session.tools import ToolResult

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


class _Loop(SkillLoop[ResponseT, AnswerT]):
    """What both APIs share."""

    framework = "openai"

    def _sent(self, items: Iterable[object], base: str, kind: str) -> tuple[list[Any], str]:
        """The items to send, and the system prompt; it is empty if they begin with one, which then has all of it.

        The client also takes items of its own responses, though its types do not say so.
        """
        sent = list[Any](items)
        own = sent[0] if sent and is_instruction(sent[0]) else None
        prompt = self.conversation.system("" if own else base, list(texts(sent)), last_user_text(sent)).text
        if own is None:
            return sent, prompt
        return [_extended(own, base, prompt, kind), *sent[1:]], ""


class ChatSkills(_Loop[ChatCompletion, ChatCompletionToolMessageParam]):
    """The skills of one conversation over chat completions. `dispatch` returns `tool` messages."""

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
        sent, prompt = self._sent(messages, system, "text")
        request: ChatRequest = {"messages": [{"role": "system", "content": prompt}, *sent] if prompt else sent}
        if every := [*tools, *self.tools()]:
            request["tools"] = every
        return request

    def _calls(self, response: ChatCompletion) -> Iterator[ResponseCall]:
        for call in response.choices[0].message.tool_calls or ():
            if call.type == "function":
                yield ResponseCall(call.id, call.function.name, decoded(call.function.arguments))

    def _answer(self, call_id: str, result: ToolResult) -> ChatCompletionToolMessageParam:
        return {"role": "tool", "tool_call_id": call_id, "content": result.text}


class ResponsesSkills(_Loop[Response, FunctionCallOutput]):
    """The skills of one conversation over the Responses API, with the whole input in each request.

    `dispatch` returns items of the type `function_call_output`.
    """

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
        sent, prompt = self._sent(items, instructions, "input_text")
        request: ResponsesRequest = {"input": sent}
        if prompt:
            request["instructions"] = prompt
        if every := [*tools, *self.tools()]:
            request["tools"] = every
        return request

    def _calls(self, response: Response) -> Iterator[ResponseCall]:
        for item in response.output:
            if item.type == "function_call":
                yield ResponseCall(item.call_id, item.name, decoded(item.arguments))

    def _answer(self, call_id: str, result: ToolResult) -> FunctionCallOutput:
        return {"type": "function_call_output", "call_id": call_id, "output": result.text}


def _extended(message: object, before: str, after: str, kind: str) -> dict[str, object]:
    """A system message of the caller with text before and after its own, which may be text or a list of parts."""
    content = value_of(message, "content")
    fields = dict(cast("Mapping[str, object]", message))
    if isinstance(content, str):
        return fields | {"content": joined(before, content, after)}
    parts = cast("Iterable[object]", content)
    added = [[{"type": kind, "text": text}] if text else [] for text in (before, after)]
    return fields | {"content": [*added[0], *parts, *added[1]]}
