"""Skills for Pydantic AI: `Agent(model, capabilities=[SkillsCapability(skills)])`, or a `SkillsToolset` in `toolsets`.

The capability shows the catalog at the last moment before each request, when the history processors are done: a loaded
skill that they dropped is put back. The toolset is the same without that moment, for agents that trim between runs. A
call that must be confirmed is deferred as any tool that requires approval.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from metier import limits
from metier.adapters.conversation import Conversation, Conversations, shown
from metier.app import App
from metier.errors import MissingExtra
from metier.session.session import Session
from metier.skills import Skills

try:
    from pydantic_ai import ApprovalRequired, RunContext, ToolDefinition
    from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
    from pydantic_ai.messages import InstructionPart, ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
    from pydantic_core import SchemaValidator, core_schema
except ImportError as error:
    raise MissingExtra("the adapter for Pydantic AI", "pydantic-ai") from error

_RETRIES: Final = 3
"""How often in a row a model may send what is no JSON at all; that is answered before a tool is called."""

_ANY_ARGUMENTS: Final = SchemaValidator(core_schema.any_schema())
"""The session checks arguments, and a mistake is a result for the model: it does not use up retries."""


class SkillsToolset(AbstractToolset[Any]):
    """The tools of a session, and, if it is to `instruct`, the session's part of the instructions.

    A session is one conversation: yours, if you give one, else one for each `conversation_id`. Further `options` are
    those of `Skills.session`: `only`, `preload`, `policy`, `store`...
    """

    def __init__(
        self,
        skills: Skills | Session | App,
        *,
        id: str | None = "skills",  # noqa: A002 - the framework's name
        instruct: bool = True,
        budget: int | None = None,
        restore: int = limits.COMPACTION_CHARACTERS,
        **options: Any,
    ) -> None:
        self.conversations = Conversations(skills, "pydantic-ai", budget=budget, restore=restore, **options)
        self._id = id
        self._instruct = instruct

    @property
    def session(self) -> Session:
        """The session of the conversation that was used last."""
        return self.conversations.last().session

    @property
    def id(self) -> str | None:
        return self._id

    async def _conversation(self, ctx: RunContext[Any]) -> Conversation:
        return await asyncio.to_thread(self.conversations.of, ctx.conversation_id)

    async def get_instructions(self, ctx: RunContext[Any]) -> InstructionPart | None:
        return await self.instructions(ctx, ctx.messages) if self._instruct else None

    async def instructions(self, ctx: RunContext[Any], messages: Sequence[ModelMessage]) -> InstructionPart | None:
        """The skills as a request with these messages shows them."""
        text = await asyncio.to_thread(_system, await self._conversation(ctx), messages)
        return InstructionPart(content=text, dynamic=True) if text else None

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        tools = await asyncio.to_thread((await self._conversation(ctx)).tools)
        return {
            tool.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=tool.name,
                    description=tool.description,
                    parameters_json_schema=dict(tool.input_schema),
                    sequential=True,  # a model may ask in one go for a skill and for a script of it
                ),
                max_retries=_RETRIES,
                args_validator=_ANY_ARGUMENTS,
            )
            for tool in tools
        }

    async def call_tool(self, name: str, tool_args: Any, ctx: RunContext[Any], tool: ToolsetTool[Any]) -> str:
        conversation, call_id = await self._conversation(ctx), ctx.tool_call_id or ""
        if ctx.tool_call_approved:
            return (await conversation.acall(name, tool_args, answer=True, call_id=call_id)).text
        requests = await asyncio.to_thread(conversation.questions, name, tool_args, call_id)
        if requests:
            raise ApprovalRequired(metadata={"questions": shown(requests)})
        return (await conversation.acall(name, tool_args)).text


class SkillsCapability(AbstractCapability[Any]):
    """The toolset, with instructions that follow the messages as they are sent. It takes what the toolset takes."""

    def __init__(self, skills: Skills | Session | App, **given: Any) -> None:
        self.toolset = SkillsToolset(skills, **given, instruct=False)

    @property
    def session(self) -> Session:
        return self.toolset.session

    def get_toolset(self) -> SkillsToolset:
        return self.toolset

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="innermost")  # after every history processor

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        part = await self.toolset.instructions(ctx, request_context.messages)
        if part is not None:
            parameters = request_context.model_request_parameters
            parts = [*(parameters.instruction_parts or ()), part]
            request_context.model_request_parameters = replace(parameters, instruction_parts=parts)
        return request_context


def _system(conversation: Conversation, messages: Sequence[ModelMessage]) -> str:
    conversation.settle(part.tool_call_id for part in _parts(messages) if isinstance(part, ToolReturnPart))
    said = [text for part in _parts(messages) if isinstance(part, UserPromptPart) for text in _texts(part.content)]
    return conversation.system("", list(_all_texts(messages)), said[-1] if said else None)


def _parts(messages: Sequence[ModelMessage]) -> Iterator[Any]:
    for message in messages:
        if isinstance(message, ModelRequest):
            yield from message.parts


def _all_texts(messages: Sequence[ModelMessage]) -> Iterator[str]:
    for part in _parts(messages):
        yield from _texts(part.content)


def _texts(content: Any) -> Iterator[str]:
    texts = cast("Sequence[Any]", content) if isinstance(content, list | tuple) else [content]
    for one in texts:
        if isinstance(one, str):
            yield one
