"""Skills for LangChain and LangGraph: `create_agent(model, middleware=[..., SkillsMiddleware(skills)])`.

The middleware adds the tools and writes the catalog into the system message of each request. As the last in the list it
sees the messages as they are sent, and puts back loaded skills that other middleware dropped. `skill_tools` are the
tools alone, for a graph of your own. A call that needs approval is an `interrupt`, in the form of a human-in-the-loop
review, if the graph has a checkpointer to resume it with, and is refused elsewhere.
"""

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Unpack

from metier import limits
from metier.adapters.conversation import Conversation, Conversations, call_key, describe, shown, texts, value_of
from metier.app import SESSIONS, App
from metier.errors import report_missing
from metier.files.shapes import is_items, is_object
from metier.policy.asking import in_thread
from metier.policy.decide import Request
from metier.session.options import SessionOptions, SharedOptions
from metier.session.session import Session
from metier.session.tools import Tool, ToolResult
from metier.skills import Skills

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain.agents.middleware.types import ContextT, ResponseT, StateT
    from langchain_core.messages import SystemMessage, ToolMessage
    from langchain_core.tools import BaseTool, StructuredTool, ToolException
    from langgraph.config import get_config
    from langgraph.types import interrupt
except ImportError as error:
    report_missing(error, "the adapter for LangChain", "langchain")


class SkillsMiddleware(AgentMiddleware[StateT, ContextT, ResponseT]):
    """The tools and the prompt of a session. `options` are those of `Skills.session`.

    A session is one conversation: the one you pass, or one for each thread of the graph's checkpointer. With
    `approvals=False`, calls that need approval are refused even if the graph has a checkpointer.
    """

    def __init__(
        self,
        skills: Skills | Session | App,
        *,
        approvals: bool = True,
        budget: int | None = None,
        restore: int = limits.COMPACTION_CHARACTERS,
        **options: Unpack[SharedOptions],
    ) -> None:
        super().__init__()
        self.conversations = Conversations(
            skills, "langchain", asks=approvals, budget=budget, restore=restore, **options
        )
        # A graph needs its tools from the start. Each request then gets the tools that can succeed, with their schemas.
        unknown: Mapping[str, object] = {"type": "object", "properties": {}}
        self.tools = [_tool(self._conversation, Tool(name, name, unknown)) for name in self.conversations.names()]

    @property
    def session(self) -> Session:
        """The session of the conversation that was used last."""
        return self.conversations.last().session

    def _conversation(self) -> Conversation:
        return self.conversations.of(_config_value("thread_id"))

    def wrap_model_call(
        self, request: ModelRequest[ContextT], handler: Callable[[ModelRequest[ContextT]], ModelResponse[ResponseT]]
    ) -> ModelResponse[ResponseT]:
        return handler(self._with_skills(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[ContextT],
        handler: Callable[[ModelRequest[ContextT]], Awaitable[ModelResponse[ResponseT]]],
    ) -> ModelResponse[ResponseT]:
        return await handler(await in_thread(self._with_skills, request))

    def _with_skills(self, request: ModelRequest[ContextT]) -> ModelRequest[ContextT]:
        """The request with the skills of this turn and the tools that can succeed now."""
        conversation, names = self._conversation(), self.conversations.names()
        others = [tool for tool in request.tools if not (isinstance(tool, BaseTool) and tool.name in names)]
        base, messages = request.system_message, request.messages
        if base is None and messages and isinstance(messages[0], SystemMessage):
            base, messages = messages[0], messages[1:]  # so that the model gets one system message
        by_user = list(texts(message for message in messages if message.type == "human"))
        every = [base.text if base is not None else "", *texts(messages)]
        text = conversation.system("", every, by_user[-1] if by_user else None).text
        return request.override(
            messages=messages,
            tools=[*others, *(_tool(self._conversation, tool) for tool in conversation.tools())],
            system_message=_extended(base, text) if text else base,
        )


def skill_tools(
    skills: Skills | Session, *, approvals: bool = True, **options: Unpack[SessionOptions]
) -> list[BaseTool]:
    """The tools of one conversation, for your own model and `ToolNode`. `options` are those of `Skills.session`."""
    conversation, turns = Conversation.of(skills, "langchain", asks=approvals, **options), _Turns()
    return [_tool(lambda: conversation, tool, turns) for tool in conversation.tools()]


def _config_value(key: str) -> str | None:
    """A value from the configuration of the running graph."""
    try:
        value = value_of(get_config().get("configurable"), key)
    except RuntimeError:
        return None  # no graph is running
    return None if value is None else str(value)


_CHECKPOINTER: Final = "__pregel_checkpointer"
"""Where a graph tells its tasks which checkpointer it has; LangGraph has no public name for it."""


class _Turns:
    """Decides which call of a graph's task may ask.

    Agents run each call in a task of its own. In other graphs several calls can share a task, and LangGraph hands
    answers to a task by their order alone. There only one call may ask, and the model must make the others again;
    otherwise the answer to one call could reach another.
    """

    def __init__(self) -> None:
        self._asking: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def taken(self, call: str) -> bool:
        """Whether another call of the running task asks already."""
        with self._lock:
            first = self._asking.setdefault(_config_value("checkpoint_ns") or "", call)
            while len(self._asking) > SESSIONS:
                self._asking.popitem(last=False)
            return first != call


_LATER: Final = "Another call is waiting for confirmation. Make this call again when that one is done."


def _tool(find: Callable[[], Conversation], tool: Tool, turns: _Turns | None = None) -> BaseTool:
    def answer(conversation: Conversation, arguments: Mapping[str, object]) -> bool | None:
        """The reviewer's answer, or `None` if there is nothing to ask.

        With `turns`, a yes counts only for a call that was shown here, because answers could be mixed up.
        """
        known = turns is None or conversation.waits(tool.name, arguments)
        requests = conversation.questions(tool.name, arguments)
        if not requests:
            return None
        if turns is not None and turns.taken(call_key(tool.name, arguments)):
            raise ToolException(_LATER)
        return _ask(requests, tool, arguments) and known

    def run(**arguments: object) -> tuple[str, ToolResult]:
        conversation = find()
        asks = _config_value(_CHECKPOINTER) is not None  # without one, nobody can answer an interrupt
        approved = answer(conversation, arguments) if asks else None
        result = conversation.call(tool.name, arguments, answer=approved, asks=asks)
        return result.text, result

    async def arun(**arguments: object) -> tuple[str, ToolResult]:
        return await in_thread(run, **arguments)

    return _SkillTool(
        name=tool.name,
        description=tool.description,
        args_schema=dict(tool.input_schema),
        func=run,
        coroutine=arun,
        response_format="content_and_artifact",
        handle_tool_error=True,
    )


class _SkillTool(StructuredTool):
    """A tool whose messages say whether the call failed, in `status`. Their `artifact` is the result as data."""

    def run(self, *given: Any, **named: Any) -> Any:
        return _with_status(super().run(*given, **named))

    async def arun(self, *given: Any, **named: Any) -> Any:
        return _with_status(await super().arun(*given, **named))


def _with_status(output: object) -> object:
    if not isinstance(output, ToolMessage) or not isinstance(output.artifact, ToolResult):
        return output
    result = output.artifact
    status = "success" if result.ok else "error"
    return output.model_copy(update={"status": status, "artifact": result.as_dict()})


def _ask(requests: Sequence[Request], tool: Tool, arguments: Mapping[str, object]) -> bool:
    """Interrupt the graph. When it is resumed, return whether the reviewer approved.

    The answer is `True`, a decision, or the decisions of a review.
    """
    action = {"name": tool.name, "args": dict(arguments), "description": describe(requests)}
    review = {"action_name": tool.name, "allowed_decisions": ["approve", "reject"]}
    answer = interrupt({"action_requests": [action], "review_configs": [review], "questions": shown(requests)})
    if not is_object(answer):
        return answer is True
    decisions = answer.get("decisions", [answer])
    approved = is_items(decisions) and all(is_object(one) and one.get("type") == "approve" for one in decisions)
    return approved and bool(decisions)


def _extended(base: SystemMessage | None, text: str) -> SystemMessage:
    if base is None:
        return SystemMessage(text)
    if isinstance(base.content, str):
        return base.model_copy(update={"content": f"{base.content}\n\n{text}"})
    return base.model_copy(update={"content": [*base.content, {"type": "text", "text": text}]})
