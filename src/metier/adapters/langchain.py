"""Skills for LangChain and LangGraph: `create_agent(model, middleware=[..., SkillsMiddleware(skills)])`.

The middleware has the tools and writes the catalog into the system message of each request; the last in the list, it
sees the messages as they are sent and puts back the loaded skills that others dropped. `skill_tools` are the tools
alone, for a graph of your own. A call that must be confirmed is an `interrupt`, in the form of a human-in-the-loop
review.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from metier import limits
from metier.adapters.conversation import Conversation, Conversations, describe, shown
from metier.app import App
from metier.errors import MissingExtra
from metier.policy import Request
from metier.session import Session
from metier.skills import Skills
from metier.tools import Tool, ToolResult

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain_core.messages import AnyMessage, SystemMessage
    from langchain_core.tools import BaseTool, StructuredTool
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
        return self.conversations.of(_thread())

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
    conversation = Conversation.of(skills, "langchain", asks=True, **options)
    return [_tool(lambda: conversation, tool) for tool in conversation.tools()]


def _thread() -> str | None:
    """The thread of the graph that runs now."""
    try:
        thread = get_config().get("configurable", {}).get("thread_id")
    except RuntimeError:
        return None  # no graph does
    return None if thread is None else str(thread)


def _tool(find: Callable[[], Conversation], tool: Tool) -> BaseTool:
    def run(**arguments: Any) -> tuple[str, ToolResult]:
        conversation = find()
        requests = conversation.questions(tool.name, arguments)
        answer = _ask(requests, tool, arguments) if requests else None
        result = conversation.call(tool.name, arguments, answer=answer)
        return result.text, result

    async def arun(**arguments: Any) -> tuple[str, ToolResult]:
        conversation = find()
        requests = await asyncio.to_thread(conversation.questions, tool.name, arguments)
        answer = _ask(requests, tool, arguments) if requests else None
        result = await conversation.acall(tool.name, arguments, answer=answer)
        return result.text, result

    return StructuredTool(
        name=tool.name, description=tool.description, args_schema=dict(tool.input_schema), func=run, coroutine=arun,
        response_format="content_and_artifact",
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
