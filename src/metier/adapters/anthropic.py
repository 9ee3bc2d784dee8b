"""Skills for a loop on the Anthropic SDK: `client.messages.create(..., **skills.request(messages))`.

`request` returns the arguments of a call that depend on the skills; `dispatch` answers the tool calls of the response.
Both work with plain data, so streaming, batches and clients of other platforms work as well. With `cache_control`, the
system prompt has a cache breakpoint after the part that stays the same.
"""

from collections.abc import Iterable, Iterator
from typing import NotRequired, TypedDict, Unpack

from metier import limits
from metier.adapters.conversation import Conversation, RequestPrompt
from metier.adapters.messages import value_of
from metier.errors import report_missing
from metier.files.shapes import is_items
from metier.session.options import SessionOptions
from metier.session.session import Session
from metier.session.tools import ToolResult
from metier.skills import Skills

try:
    from anthropic.types import (
        CacheControlEphemeralParam,
        Message,
        MessageParam,
        TextBlockParam,
        ToolParam,
        ToolResultBlockParam,
        ToolUnionParam,
        ToolUseBlock,
    )
except ImportError as error:
    report_missing(error, "the adapter for the Anthropic SDK", "anthropic")


class MessagesRequest(TypedDict):
    """Arguments of `client.messages.create`."""

    messages: list[MessageParam]
    tools: list[ToolUnionParam]
    system: NotRequired[str | list[TextBlockParam]]


class MessagesSkills:
    """The skills of one conversation.

    `options` are those of `Skills.session`. Its `approve` is asked for confirmation. `cache_control`, such as
    `{"type": "ephemeral"}`, is set after the stable part of the system prompt, which is then sent as blocks.
    """

    def __init__(
        self,
        skills: Skills | Session,
        *,
        budget: int | None = None,
        restore: int = limits.COMPACTION_CHARACTERS,
        cache_control: CacheControlEphemeralParam | None = None,
        **options: Unpack[SessionOptions],
    ) -> None:
        self._cache_control = cache_control
        self.conversation = Conversation.of(skills, "anthropic", asks=False, budget=budget, restore=restore, **options)

    @property
    def session(self) -> Session:
        return self.conversation.session

    def tools(self) -> list[ToolParam]:
        """The tools that can succeed now."""
        return [
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.input_schema)}
            for tool in self.conversation.tools()
        ]

    def request(
        self,
        messages: Iterable[MessageParam],
        system: str | Iterable[TextBlockParam] = "",
        tools: Iterable[ToolUnionParam] = (),
    ) -> MessagesRequest:
        """The `messages`, `system` and `tools` of a request: your own, then those of the skills.

        `system` may be text or blocks; blocks of yours stay as they are.
        """
        sent = list(messages)
        by_user = [text for message in sent if message["role"] == "user" for text in _texts(message["content"])]
        every = [text for message in sent for text in _all_texts(message["content"])]
        base, blocks = (system, []) if isinstance(system, str) else ("", list(system))
        every += [block["text"] for block in blocks]
        prompt = self.conversation.system(base, every, by_user[-1] if by_user else None)
        request: MessagesRequest = {"messages": sent, "tools": [*tools, *self.tools()]}
        if blocks or (self._cache_control and prompt.stable):
            request["system"] = [*blocks, *self._blocks(prompt)]
        elif prompt.text:
            request["system"] = prompt.text
        return request

    def _blocks(self, prompt: RequestPrompt) -> Iterator[TextBlockParam]:
        if self._cache_control is None or not prompt.stable:
            if prompt.text:
                yield {"type": "text", "text": prompt.text}
            return
        yield {"type": "text", "text": prompt.stable, "cache_control": self._cache_control}
        if prompt.rest.strip():  # the API refuses a block without text
            yield {"type": "text", "text": prompt.rest}

    def dispatch(self, response: Message) -> list[ToolResultBlockParam]:
        """A `tool_result` for each call of a skill tool: the content of the next user message."""
        return [_result(call, self.conversation.call(call.name, call.input)) for call in self._calls(response)]

    async def adispatch(self, response: Message) -> list[ToolResultBlockParam]:
        """`dispatch` for asyncio."""
        return [_result(call, await self.conversation.acall(call.name, call.input)) for call in self._calls(response)]

    def _calls(self, response: Message) -> list[ToolUseBlock]:
        names = self.conversation.names()
        return [block for block in response.content if block.type == "tool_use" and block.name in names]


def _result(call: ToolUseBlock, result: ToolResult) -> ToolResultBlockParam:
    return {"type": "tool_result", "tool_use_id": call.id, "content": result.text, "is_error": not result.ok}


def _texts(content: object) -> Iterator[str]:
    """The text of a message: the content itself, or its text blocks."""
    for block in content if is_items(content) else [content]:
        text = value_of(block, "text") if value_of(block, "type") == "text" else block
        if isinstance(text, str):
            yield text


def _all_texts(content: object) -> Iterator[str]:
    """The text of a message and of the tool results in it."""
    yield from _texts(content)
    for block in content if is_items(content) else []:
        if value_of(block, "type") == "tool_result":
            yield from _texts(value_of(block, "content"))
