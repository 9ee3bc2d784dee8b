"""Skills for the OpenAI Agents SDK: `Agent(instructions=skills.instructions("..."), tools=skills.tools())`.

The instructions show the catalog of the turn; the run's `call_model_input_filter` is the moment at which the input is
final, and there `keep_skills` puts back what a filter or a session of the SDK dropped. A call that must be confirmed
interrupts the run, as any tool with `needs_approval`.
"""

import asyncio
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

from metier import limits
from metier.adapters.conversation import Conversation, decoded
from metier.errors import MissingExtra
from metier.session.session import Session
from metier.skills import Skills

try:
    from agents import Agent, FunctionTool, RunContextWrapper, Tool
    from agents.agent import AgentBase
    from agents.run import CallModelData, CallModelInputFilter, ModelInputData
    from agents.tool_context import ToolContext
except ImportError as error:
    raise MissingExtra("the adapter for the OpenAI Agents SDK", "openai-agents") from error


class AgentSkills:
    """The skills of one agent in one conversation. `options` are those of `Skills.session`."""

    def __init__(
        self,
        skills: Skills | Session,
        *,
        budget: int | None = None,
        restore: int = limits.COMPACTION_CHARACTERS,
        **options: Any,
    ) -> None:
        self.conversation = Conversation.of(
            skills, "openai-agents", asks=True, budget=budget, restore=restore, **options
        )
        self._message: str | None = None

    @property
    def session(self) -> Session:
        return self.conversation.session

    def instructions(self, base: str = "") -> "SkillInstructions":
        """The agent's instructions: your own, then the skills."""
        return SkillInstructions(self, base)

    def tools(self) -> list[Tool]:
        return [self._tool(name) for name in self.conversation.names()]

    def _tool(self, name: str) -> FunctionTool:
        async def invoke(context: ToolContext[Any], arguments: str) -> str:
            call_id = context.tool_call_id
            approved = context.is_tool_approved(name, call_id) or None
            result = await self.conversation.acall(name, decoded(arguments), answer=approved, call_id=call_id)
            return result.text

        async def needs_approval(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
            return bool(await asyncio.to_thread(self.conversation.questions, name, arguments, call_id))

        async def is_enabled(context: RunContextWrapper[Any], agent: AgentBase[Any]) -> bool:
            return await asyncio.to_thread(self._define, tool)

        tool = FunctionTool(
            name, "", {"type": "object", "properties": {}}, invoke,
            strict_json_schema=False, is_enabled=is_enabled, needs_approval=needs_approval,
        )  # fmt: skip
        self._define(tool)
        return tool

    def _define(self, tool: FunctionTool) -> bool:
        """Bring a tool up to date with the catalog; whether it is offered now."""
        for current in self.conversation.tools():
            if current.name == tool.name:
                tool.description, tool.params_json_schema = current.description, dict(current.input_schema)
                return True
        return False

    def prompt(self, base: str, turn: Iterable[Any]) -> str:
        self._message = _latest(turn) or self._message
        return self.conversation.prompt(base, self._message)

    def put_back(self, data: ModelInputData) -> ModelInputData:
        """The request with what its input does not hold any more."""
        self._message = _latest(data.input) or self._message
        self.conversation.settle(str(_get(item, "call_id")) for item in data.input if _get(item, "output") is not None)
        given = data.instructions or ""
        missing = self.conversation.restored([given, *_texts(data.input)])
        return replace(data, instructions="\n\n".join(part for part in (given, missing) if part) or None)


class SkillInstructions:
    """Instructions that the SDK computes for each request, and that know their skills."""

    def __init__(self, skills: AgentSkills, base: str) -> None:
        self.skills, self._base = skills, base

    async def __call__(self, context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
        return await asyncio.to_thread(self.skills.prompt, self._base, list(context.turn_input))


def keep_skills(trim: CallModelInputFilter | None = None) -> CallModelInputFilter:
    """The `call_model_input_filter` of a run: after your own `trim`, if any, each agent gets its loaded skills back.

    Leave it out where the server keeps the conversation: then the input never shows what the model has seen.
    """

    async def filtered(data: CallModelData[Any]) -> ModelInputData:
        trimmed = trim(data) if trim is not None else data.model_data
        final = await trimmed if inspect.isawaitable(trimmed) else trimmed
        instructions = data.agent.instructions
        if not isinstance(instructions, SkillInstructions):
            return final
        return await asyncio.to_thread(instructions.skills.put_back, final)

    return filtered


def _get(item: Any, key: str) -> Any:
    return cast("dict[str, Any]", item).get(key) if isinstance(item, dict) else getattr(item, key, None)


def _latest(items: Iterable[Any]) -> str | None:
    said = [text for item in items if _get(item, "role") == "user" for text in _texts([item])]
    return said[-1] if said else None


def _texts(items: Iterable[Any]) -> Iterator[str]:
    """What the items say, in either place: `content` of messages, `output` of tools."""
    for item in items:
        for content in (_get(item, "content"), _get(item, "output")):
            for part in cast("list[Any]", content) if isinstance(content, list) else [content]:
                text = part if isinstance(part, str) else _get(part, "text")
                if isinstance(text, str):
                    yield text
