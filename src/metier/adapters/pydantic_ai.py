"""Skills for Pydantic AI: `Agent(model, capabilities=[SkillsCapability(skills)])`, or a `SkillsToolset` in `toolsets`.

The capability writes the catalog right before each request, after the history processors, and puts back loaded skills
that they dropped. It joins the instructions and system prompts of the agent and the catalog into one system prompt. The
toolset writes the catalog earlier, which is enough for agents that trim their history between runs, as instructions of
its own; some models get those as a second system message. A call that needs approval is deferred where the agent has
somebody to ask, and refused elsewhere.
"""

import itertools
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, Unpack, get_args

from metier import limits
from metier.adapters.conversation import Conversation, Conversations, RequestPrompt, joined, shown, texts, value_of
from metier.app import App
from metier.errors import report_missing
from metier.files.shapes import as_table, is_items
from metier.policy.asking import in_thread
from metier.session.options import SharedOptions
from metier.session.session import Session
from metier.session.tools import ToolResult
from metier.skills import Skills

try:
    import pydantic_ai
    from pydantic_ai import ApprovalRequired, DeferredToolRequests, RunContext, ToolDefinition
    from pydantic_ai.capabilities import (
        AbstractCapability,
        CapabilityOrdering,
        HandleDeferredToolCalls,
        WrapModelRequestHandler,
    )
    from pydantic_ai.messages import (
        InstructionPart,
        ModelMessage,
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
    from pydantic_core import SchemaValidator, core_schema
except ImportError as error:
    report_missing(error, "the adapter for Pydantic AI", "pydantic-ai")

_RETRIES: Final = 3
"""How many times in a row a model may send arguments that are not JSON. Those never reach a tool."""

_ANY_ARGUMENTS: Final = SchemaValidator(core_schema.any_schema())
"""Accepts everything: the session checks arguments, and its result for a mistake uses up no retry."""

_FIRST: Final = ContextVar[tuple[ModelMessage, ModelMessage] | None]("first", default=None)
"""The first message of the request that is made now: as the history has it, and without its system prompts."""


class SkillsToolset(AbstractToolset[object]):
    """The tools of a session and, with `instruct`, its part of the instructions.

    A session is one conversation: the one you pass, or one for each `conversation_id`. `options` are those of
    `Skills.session`: `only`, `preload`, `policy`, `store` and others.

    `approvals`: whether calls that need approval are deferred. By default they are if the agent can handle that: it
    has `DeferredToolRequests` among its output types, or a `HandleDeferredToolCalls`. Otherwise they are refused.
    """

    def __init__(
        self,
        skills: Skills | Session | App,
        *,
        id: str | None = "skills",  # noqa: A002 - the framework's name
        instruct: bool = True,
        approvals: bool | None = None,
        budget: int | None = None,
        restore: int = limits.COMPACTION_CHARACTERS,
        **options: Unpack[SharedOptions],
    ) -> None:
        self.conversations = Conversations(
            skills, "pydantic-ai", asks=approvals is not False, budget=budget, restore=restore, **options
        )
        self._approvals = approvals
        self._id = id
        self._instruct = instruct

    @property
    def session(self) -> Session:
        """The session of the conversation that was used last."""
        return self.conversations.last().session

    @property
    def id(self) -> str | None:
        return self._id

    async def _conversation(self, ctx: RunContext[object]) -> Conversation:
        return await in_thread(self.conversations.of, ctx.conversation_id)

    async def get_instructions(self, ctx: RunContext[object]) -> InstructionPart | None:
        return await self.instructions(ctx, ctx.messages) if self._instruct else None

    async def instructions(self, ctx: RunContext[object], messages: Sequence[ModelMessage]) -> InstructionPart | None:
        """The skills' part of the instructions of a request with these messages."""
        prompt = await in_thread(_system, await self._conversation(ctx), messages)
        return InstructionPart(content=prompt.text, dynamic=bool(prompt.rest)) if prompt.text else None

    async def get_tools(self, ctx: RunContext[object]) -> dict[str, ToolsetTool[object]]:
        tools = await in_thread((await self._conversation(ctx)).tools)
        return {
            tool.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=tool.name,
                    description=tool.description,
                    parameters_json_schema=dict(tool.input_schema),
                    sequential=True,  # one response may load a skill and run a script of it
                ),
                max_retries=_RETRIES,
                args_validator=_ANY_ARGUMENTS,
            )
            for tool in tools
        }

    async def call_tool(self, name: str, tool_args: object, ctx: RunContext[object], tool: ToolsetTool[object]) -> str:
        conversation, call_id = await self._conversation(ctx), ctx.tool_call_id or ""
        if ctx.tool_call_approved is True:
            return _text(await conversation.acall(name, tool_args, answer=True, call_id=call_id))
        asks = _defers(ctx) if self._approvals is None else self._approvals
        requests = await in_thread(conversation.questions, name, tool_args, call_id) if asks else ()
        if requests:
            raise ApprovalRequired(metadata={"questions": shown(requests)})
        return _text(await conversation.acall(name, tool_args, asks=asks))


class SkillsCapability(AbstractCapability[object]):
    """The toolset, with instructions that follow the messages as they are sent. `options` are as in the toolset."""

    def __init__(
        self,
        skills: Skills | Session | App,
        *,
        id: str | None = "skills",  # noqa: A002 - the framework's name
        approvals: bool | None = None,
        budget: int | None = None,
        restore: int = limits.COMPACTION_CHARACTERS,
        **options: Unpack[SharedOptions],
    ) -> None:
        self.toolset = SkillsToolset(
            skills, id=id, instruct=False, approvals=approvals, budget=budget, restore=restore, **options
        )

    @property
    def session(self) -> Session:
        """The session of the conversation that was used last."""
        return self.toolset.session

    def get_toolset(self) -> SkillsToolset:
        return self.toolset

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="innermost")  # after every history processor

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        part = await self.toolset.instructions(ctx, request_context.messages)
        if part is not None:
            parameters = request_context.model_request_parameters
            prompts, messages = _without_prompts(request_context.messages)
            _FIRST.set((request_context.messages[0], messages[0]) if prompts else None)
            request_context.messages = messages
            request_context.model_request_parameters = replace(
                parameters, instruction_parts=_one(prompts, [*(parameters.instruction_parts or ()), part], parameters)
            )
        return request_context

    async def wrap_model_request(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        """Put the system prompts back into the history: before 2.55, it takes over the messages of the hook above."""
        whole, sent = _FIRST.get() or (None, None)
        if whole is not None and ctx.messages and ctx.messages[0] is sent:
            ctx.messages[0] = whole
        return await handler(request_context)


def _without_prompts(messages: Sequence[ModelMessage]) -> tuple[list[str], list[ModelMessage]]:
    """The system prompts at the start of the messages, and the messages without them. The history keeps them."""
    first = messages[0] if messages else None
    if not isinstance(first, ModelRequest):
        return [], list(messages)
    own = list(itertools.takewhile(lambda part: isinstance(part, SystemPromptPart), first.parts))
    rest = first.parts[len(own) :]
    if not own or not rest:  # a request without parts is none
        return [], list(messages)
    return list(texts(own)), [replace(first, parts=rest), *messages[1:]]


def _one(
    prompts: Sequence[str], parts: Sequence[InstructionPart], parameters: ModelRequestParameters
) -> list[InstructionPart]:
    """Instructions as one part, since some models get each as a message. Those that go into the history stay apart."""
    elsewhere = as_table(value_of(parameters, "instruction_visibility"))
    kept = [part for part in parts if value_of(part, "on_change") == "append" or str(value_of(part, "id")) in elsewhere]
    joint = [part for part in parts if part not in kept]
    text = joined(*prompts, *(part.content for part in joint))
    return [InstructionPart(content=text, dynamic=any(part.dynamic for part in joint)), *kept]


def _defers(ctx: RunContext[object]) -> bool:
    """Whether a deferred call can be answered: by whoever made the agent, or by a handler in the run."""
    if ctx.agent is not None and _has_deferred(ctx.agent.output_type):
        return True
    root = ctx.tool_manager.root_capability if ctx.tool_manager is not None else None
    found: list[AbstractCapability[object]] = []
    if root is not None:
        root.apply(found.append)
    return any(isinstance(one, HandleDeferredToolCalls) for one in found)


def _has_deferred(output: Any) -> bool:
    """Whether an output type is `DeferredToolRequests`, or a list or a union with it."""
    parts = output if is_items(output) else get_args(output)
    return output is DeferredToolRequests or any(_has_deferred(part) for part in parts)


def _text(result: ToolResult) -> str:
    """The text of a result. A failure is marked as one in versions of Pydantic AI that can."""
    failed: type[Exception] | None = getattr(pydantic_ai, "ToolFailed", None)
    if not result.ok and failed is not None:
        raise failed(result.text)
    return result.text


def _system(conversation: Conversation, messages: Sequence[ModelMessage]) -> RequestPrompt:
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    conversation.settle(part.tool_call_id for part in parts if isinstance(part, ToolReturnPart))
    by_user = list(texts(part for part in parts if isinstance(part, UserPromptPart)))
    return conversation.system("", list(texts(parts)), by_user[-1] if by_user else None)
