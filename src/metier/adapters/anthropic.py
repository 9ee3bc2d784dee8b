"""Skills for a plain loop on the Anthropic SDK: `client.messages.create(..., **skills.request(messages))`.

`request` makes what a call of the Messages API needs of the skills, for the messages at hand; `dispatch` answers the
tool calls of its response. Both are plain data, so that streaming, batches and other platforms' clients work as well.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from metier import limits
from metier.adapters.conversation import Conversation
from metier.errors import MissingExtra
from metier.session.session import Session
from metier.session.tools import ToolResult
from metier.skills import Skills

try:
    from anthropic.types import Message, MessageParam, ToolResultBlockParam, ToolUseBlock
except ImportError as error:
    raise MissingExtra("the adapter for the Anthropic SDK", "anthropic") from error


class MessagesSkills:
    """The skills of one conversation. `options` are those of `Skills.session`; its `approve` is asked to confirm."""

    def __init__(
        self,
        skills: Skills | Session,
        *,
        budget: int | None = None,
        restore: int = limits.COMPACTION_CHARACTERS,
        **options: Any,
    ) -> None:
        self.conversation = Conversation.of(skills, "anthropic", asks=False, budget=budget, restore=restore, **options)

    @property
    def session(self) -> Session:
        return self.conversation.session

    def tools(self) -> list[Any]:
        """The tools that can succeed now, as the API takes them."""
        return [tool.as_dict() for tool in self.conversation.tools()]

    def request(self, messages: Iterable[MessageParam], system: str = "", tools: Iterable[Any] = ()) -> dict[str, Any]:
        """`messages`, `system` and `tools` of a request: yours, with those of the skills."""
        sent = list(messages)
        said = [text for message in sent if message["role"] == "user" for text in _said(message["content"])]
        texts = [text for message in sent for text in _texts(message["content"])]
        prompt = self.conversation.system(system, texts, said[-1] if said else None)
        return {"messages": sent, "tools": [*tools, *self.tools()]} | ({"system": prompt} if prompt else {})

    def dispatch(self, response: Message) -> list[ToolResultBlockParam]:
        """A `tool_result` for each call of ours: the content of the next user message. None where it called none."""
        return [_result(call, self.conversation.call(call.name, call.input)) for call in self._calls(response)]

    async def adispatch(self, response: Message) -> list[ToolResultBlockParam]:
        """`dispatch` for asyncio."""
        return [_result(call, await self.conversation.acall(call.name, call.input)) for call in self._calls(response)]

    def _calls(self, response: Message) -> list[ToolUseBlock]:
        ours = self.conversation.names()
        return [block for block in response.content if block.type == "tool_use" and block.name in ours]


def _result(call: ToolUseBlock, result: ToolResult) -> ToolResultBlockParam:
    return {"type": "tool_result", "tool_use_id": call.id, "content": result.text, "is_error": not result.ok}


def _said(content: Any) -> Iterator[str]:
    """What the user wrote: a string, or the text blocks of a message."""
    blocks: Iterable[Any] = [content] if isinstance(content, str) else content
    for block in blocks:
        if isinstance(block, str):
            yield block
        elif _get(block, "type") == "text":
            yield _get(block, "text")


def _texts(content: Any) -> Iterator[str]:
    """The same, and what tools returned."""
    yield from _said(content)
    blocks: Iterable[Any] = () if isinstance(content, str) else content
    for block in blocks:
        if _get(block, "type") == "tool_result":
            yield from _said(_get(block, "content") or ())


def _get(block: Any, key: str) -> Any:
    return cast("Mapping[str, Any]", block).get(key) if isinstance(block, Mapping) else getattr(block, key, None)
