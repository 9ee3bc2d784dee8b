"""Skills for a plain loop on the OpenAI SDK: `create(..., **skills.request(messages))`, `skills.dispatch(response)`.

`ChatSkills` is for chat completions, `ResponsesSkills` for the Responses API. `request` makes what a call needs of the
skills, for the messages at hand; `dispatch` answers the tool calls of its response. Both are plain data.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from metier import limits
from metier.adapters.conversation import Conversation, decoded
from metier.errors import MissingExtra
from metier.session.session import Session
from metier.session.tools import ToolResult
from metier.skills import Skills

try:
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response
except ImportError as error:
    raise MissingExtra("the adapter for the OpenAI SDK", "openai") from error

Call = tuple[str, str, str]
"""Id, name and arguments (as JSON) of a tool call."""


class _Loop:
    """What both interfaces share: one conversation, and calls that are answered in their order."""

    def __init__(
        self,
        skills: Skills | Session,
        *,
        budget: int | None = None,
        restore: int = limits.COMPACTION_CHARACTERS,
        **options: Any,
    ) -> None:
        """`options` are those of `Skills.session`; its `approve` is asked to confirm."""
        self.conversation = Conversation.of(skills, "openai", asks=False, budget=budget, restore=restore, **options)

    @property
    def session(self) -> Session:
        return self.conversation.session

    def _system(self, base: str, items: list[Any]) -> str:
        said = [text for item in items if _get(item, "role") == "user" for text in _texts([item])]
        return self.conversation.system(base, list(_texts(items)), said[-1] if said else None)

    def _answer(self, calls: Iterable[Call]) -> list[tuple[str, ToolResult]]:
        ours = self.conversation.names()
        return [(id_, self.conversation.call(name, decoded(given))) for id_, name, given in calls if name in ours]

    async def _aanswer(self, calls: Iterable[Call]) -> list[tuple[str, ToolResult]]:
        ours = self.conversation.names()
        return [
            (id_, await self.conversation.acall(name, decoded(given))) for id_, name, given in calls if name in ours
        ]


class ChatSkills(_Loop):
    """The skills of one conversation over chat completions."""

    def tools(self) -> list[Any]:
        """The tools that can succeed now, as the API takes them."""
        return [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.input_schema)},
            }
            for tool in self.conversation.tools()
        ]

    def request(self, messages: Iterable[Any], system: str = "", tools: Iterable[Any] = ()) -> dict[str, Any]:
        """`messages`, with a system message before yours, and `tools` of a request."""
        sent = list(messages)
        prompt = self._system(system, sent)
        first: list[Any] = [{"role": "system", "content": prompt}] if prompt else []
        everything = [*tools, *self.tools()]
        return {"messages": [*first, *sent]} | ({"tools": everything} if everything else {})

    def dispatch(self, response: ChatCompletion) -> list[Any]:
        """A `tool` message for each call of ours, to append after the assistant's; none where it called none."""
        return [self._message(id_, result) for id_, result in self._answer(self._calls(response))]

    async def adispatch(self, response: ChatCompletion) -> list[Any]:
        """`dispatch` for asyncio."""
        return [self._message(id_, result) for id_, result in await self._aanswer(self._calls(response))]

    def _calls(self, response: ChatCompletion) -> Iterator[Call]:
        for call in response.choices[0].message.tool_calls or ():
            if call.type == "function":
                yield call.id, call.function.name, call.function.arguments

    def _message(self, call_id: str, result: ToolResult) -> Any:
        return {"role": "tool", "tool_call_id": call_id, "content": result.text}


class ResponsesSkills(_Loop):
    """The skills of one conversation over the Responses API, with the input sent whole each time."""

    def tools(self) -> list[Any]:
        """The tools that can succeed now, as the API takes them."""
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

    def request(self, items: Iterable[Any], instructions: str = "", tools: Iterable[Any] = ()) -> dict[str, Any]:
        """`input`, `instructions` and `tools` of a request."""
        sent = list(items)
        prompt = self._system(instructions, sent)
        everything = [*tools, *self.tools()]
        return (
            {"input": sent}
            | ({"instructions": prompt} if prompt else {})
            | ({"tools": everything} if everything else {})
        )

    def dispatch(self, response: Response) -> list[Any]:
        """A `function_call_output` for each call of ours, to append after the response's output."""
        return [self._item(id_, result) for id_, result in self._answer(self._calls(response))]

    async def adispatch(self, response: Response) -> list[Any]:
        """`dispatch` for asyncio."""
        return [self._item(id_, result) for id_, result in await self._aanswer(self._calls(response))]

    def _calls(self, response: Response) -> Iterator[Call]:
        for item in response.output:
            if item.type == "function_call":
                yield item.call_id, item.name, item.arguments

    def _item(self, call_id: str, result: ToolResult) -> Any:
        return {"type": "function_call_output", "call_id": call_id, "output": result.text}


def _get(item: Any, key: str) -> Any:
    return cast("Mapping[str, Any]", item).get(key) if isinstance(item, Mapping) else getattr(item, key, None)


def _texts(items: Iterable[Any]) -> Iterator[str]:
    """What messages say and tools returned, in whichever form the item has."""
    for item in items:
        for content in (_get(item, "content"), _get(item, "output")):
            for part in cast("list[Any]", content) if isinstance(content, list) else [content]:
                text = part if isinstance(part, str) else _get(part, "text")
                if isinstance(text, str):
                    yield text
