"""Skills for LangChain and LangGraph: `create_agent(model, middleware=[..., SkillsMiddleware(skills)])`.

The middleware has the tools and writes the catalog into the system message of each request; the last in the list, it
sees the messages as they are sent and puts back the loaded skills that others dropped. `skill_tools` are the tools
alone, for a graph of your own. A call that must be confirmed is an `interrupt`, in the form of a human-in-the-loop
review.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from metier import limits
from metier.adapters.conversation import Conversation, Conversations, call_key, describe, shown
from metier.app import SESSIONS, App
from metier.errors import MissingExtra
from metier.session.policy import Request
from metier.session.session import Session
from metier.session.tools import Tool
from metier.skills import Skills

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain_core.messages import AnyMessage, SystemMessage
    from langchain_core.tools import BaseTool, StructuredTool, ToolException
    from langgraph.config import get_config
    from langgraph.types import interrupt
except ImportError as error:
    raise MissingExtra("the adapter for LangChain", "langchain") from error


class SkillsMiddleware(AgentMiddleware[Any, Any, Any]):
    """The tools and the prompt of a session. `options` are those of `Skills.session`.

    A session is one conversation: yours, if you give one, else one for each thread of the graph's checkpointer.
    """

    def __init__(
        self,
        skills: Skills | Session | App,
        *,
        budget: int | None = None,
        restore: int = limits.COMPACTION_CHARACTERS,
        **options: Any,
    ) -> None:
        super().__init__()
        self.conversations = Conversations(skills, "langchain", budget=budget, restore=restore, **options)
        # A graph knows its tools from the start; each request shows those that can succeed, as they are then.
        unknown: Mapping[str, Any] = {"type": "object", "properties": {}}
        self.tools = [_tool(self._conversation, Tool(name, name, unknown)) for name in self.conversations.names()]

    @property
    def session(self) -> Session:
        """The session of the conversation that was used last."""
        return self.conversations.last().session

    def _conversation(self) -> Conversation:
        return self.conversations.of(_running("thread_id"))

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        return handler(self._shown(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        return await handler(await asyncio.to_thread(self._shown, request))

    def _shown(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """The request with the skills of this turn, and with the tools that can succeed now."""
        conversation, ours = self._conversation(), self.conversations.names()
        others = [tool for tool in request.tools if not (isinstance(tool, BaseTool) and tool.name in ours)]
        base, messages = request.system_message, request.messages
        said = [text for message in messages if message.type == "human" for text in _texts(message)]
        sent = [base.text if base is not None else "", *(text for one in messages for text in _texts(one))]
        text = conversation.system("", sent, said[-1] if said else None)
        return request.override(
            tools=[*others, *(_tool(self._conversation, tool) for tool in conversation.tools())],
            system_message=_extended(base, text) if text else base,
        )


def skill_tools(skills: Skills | Session, **options: Any) -> list[BaseTool]:
    """The tools of a session, for a model and a `ToolNode` of your own, in one conversation."""
    conversation, turns = Conversation.of(skills, "langchain", asks=True, **options), _Turns()
    return [_tool(lambda: conversation, tool, turns) for tool in conversation.tools()]


def _running(key: str) -> str | None:
    """What the configuration of the graph that runs now says."""
    try:
        value = get_config().get("configurable", {}).get(key)
    except RuntimeError:
        return None  # no graph does
    return None if value is None else str(value)


class _Turns:
    """Which call of a task of the graph may ask.

    Agents give each call a task of its own. In other graphs several may share one, and LangGraph hands the answers to a
    task by their order alone: there one call asks, and the others have to be made again, or a yes might reach another.
    """

    def __init__(self) -> None:
        self._asking: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def taken(self, call: str) -> bool:
        with self._lock:
            first = self._asking.setdefault(_running("checkpoint_ns") or "", call)
            while len(self._asking) > SESSIONS:
                self._asking.popitem(last=False)
            return first != call


_LATER: Final = "Another call waits to be confirmed. Make this call again when that one is done."


def _tool(find: Callable[[], Conversation], tool: Tool, turns: _Turns | None = None) -> BaseTool:
    def answer(conversation: Conversation, arguments: Mapping[str, Any]) -> bool | None:
        """What the reviewer said, if one must be asked; where answers could be mixed up, to what was asked here."""
        known = turns is None or conversation.waits(tool.name, arguments)
        requests = conversation.questions(tool.name, arguments)
        if not requests:
            return None
        if turns is not None and turns.taken(call_key(tool.name, arguments)):
            raise ToolException(_LATER)
        return _ask(requests, tool, arguments) and known

    def run(**arguments: Any) -> tuple[str, dict[str, Any]]:
        conversation = find()
        result = conversation.call(tool.name, arguments, answer=answer(conversation, arguments))
        return result.text, result.as_dict()

    async def arun(**arguments: Any) -> tuple[str, dict[str, Any]]:
        conversation = await asyncio.to_thread(find)
        said = await asyncio.to_thread(answer, conversation, arguments)
        result = await conversation.acall(tool.name, arguments, answer=said)
        return result.text, result.as_dict()

    return StructuredTool(
        name=tool.name, description=tool.description, args_schema=dict(tool.input_schema), func=run, coroutine=arun,
        response_format="content_and_artifact", handle_tool_error=True,
    )  # fmt: skip


def _ask(requests: Sequence[Request], tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """Interrupt the graph; when it is resumed, what the reviewer decided."""
    action = {"name": tool.name, "args": dict(arguments), "description": describe(requests)}
    review = {"action_name": tool.name, "allowed_decisions": ["approve", "reject"]}
    return _approves(interrupt({"action_requests": [action], "review_configs": [review], "questions": shown(requests)}))


def _approves(answer: Any) -> bool:
    """Whether a reviewer said yes: `True`, a decision, or the decisions of a review."""
    if not isinstance(answer, Mapping):
        return answer is True
    given = cast("Mapping[str, Any]", answer)
    decisions = cast("list[Any]", given.get("decisions", [given]))
    kinds = [cast("Mapping[str, Any]", one).get("type") if isinstance(one, Mapping) else None for one in decisions]
    return bool(kinds) and all(kind == "approve" for kind in kinds)


def _extended(base: SystemMessage | None, text: str) -> SystemMessage:
    if base is None:
        return SystemMessage(text)
    if isinstance(base.content, str):
        return base.model_copy(update={"content": f"{base.content}\n\n{text}"})
    return base.model_copy(update={"content": [*base.content, {"type": "text", "text": text}]})


def _texts(message: AnyMessage) -> Iterator[str]:
    content = message.content
    for part in [content] if isinstance(content, str) else content:
        text = part if isinstance(part, str) else part.get("text")
        if isinstance(text, str):
            yield text
