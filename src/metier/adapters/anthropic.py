"""Skills for a loop on the Anthropic SDK: `client.messages.create(..., **skills.request(messages))`.

`request` returns the arguments of a call that depend on the skills; `dispatch` answers the tool calls of the response.
Both work with plain data, so streaming, batches and clients of other platforms work as well. With `cache_control`, the
system prompt has a cache breakpoint after the part that stays the same.
"""

from collections.abc import Iterable, Iterator
from typing import NotRequired, TypedDict, Unpack

from metier import limits
from metier.adapters.conversation import RequestPrompt, ResponseCall, SkillLoop, last_user_text, texts, value_of
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
    )
except ImportError as error:
    report_missing(error, "the adapter for the Anthropic SDK", "anthropic")


class MessagesRequest(TypedDict):
    """Arguments of `client.messages.create`."""

    messages: list[MessageParam]
    tools: list[ToolUnionParam]
    system: NotRequired[str | list[TextBlockParam]]


class MessagesSkills(SkillLoop[Message, ToolResultBlockParam]):
    """The skills of one conversation. `dispatch` returns `tool_result` blocks, the content of the next user message.

    `options` are those of `Skills.session`. Its `approve` is asked for confirmation. `cache_control`, such as
    `{"type": "ephemeral"}`, is set after the stable part of the system prompt, which is then sent as blocks.
    """

    framework = "anthropic"

    def __init__(
        self,
        skills: Skills | Session,
        *,
        budget: int | None = None,
        restore: int = limits.COMPACTION_CHARACTERS,
        cache_control: CacheControlEphemeralParam | None = None,
        **options: Unpack[SessionOptions],
    ) -> None:
        super().__init__(skills, budget=budget, restore=restore, **options)
        self._cache_control = cache_control

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
        every = list(texts(_with_results(sent)))
        base, blocks = (system, []) if isinstance(system, str) else ("", list(system))
        every += [block["text"] for block in blocks]
        prompt = self.conversation.system(base, every, last_user_text(sent))
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

    def _calls(self, response: Message) -> Iterator[ResponseCall]:
        for block in response.content:
            if block.type == "tool_use":
                yield ResponseCall(block.id, block.name, block.input)

    def _answer(self, call_id: str, result: ToolResult) -> ToolResultBlockParam:
        return {"type": "tool_result", "tool_use_id": call_id, "content": result.text, "is_error": not result.ok}


def _with_results(items: Iterable[object]) -> Iterator[object]:
    """Messages, and the tool results in them."""
    for item in items:
        yield item
        content = value_of(item, "content")
        yield from (block for block in content if value_of(block, "type") == "tool_result") if is_items(content) else ()
