"""Skills for the OpenAI Agents SDK: `Agent(instructions=skills.instructions("..."), tools=skills.tools())`.

The instructions show the catalog. The input of a request is final in the run's `call_model_input_filter`; there
`keep_skills` puts back skills that a filter or a session of the SDK dropped, and moves system messages at the start of
the input into the instructions, so that the model gets one system prompt. With `approvals=True`, a call that needs
approval interrupts the run, like any tool with `needs_approval`; otherwise it is refused.
"""

import inspect
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

from metier import limits
from metier.adapters.conversation import (
    Conversation,
    decoded,
    describe,
    is_instruction,
    joined,
    last_user_text,
    texts,
    value_of,
)
from metier.errors import report_missing
from metier.policy.asking import in_thread
from metier.session.options import SessionOptions
from metier.session.session import Session
from metier.skills import Skills

try:
    from agents import Agent, FunctionTool, RunContextWrapper, Tool
    from agents.agent import AgentBase
    from agents.items import ToolApprovalItem
    from agents.run import CallModelData, CallModelInputFilter, ModelInputData
    from agents.run_context import TContext
    from agents.tool_context import ToolContext
except ImportError as error:
    report_missing(error, "the adapter for the OpenAI Agents SDK", "openai-agents")


class AgentSkills:
    """The skills of one agent in one conversation. `options` are those of `Skills.session`.

    `approvals`: your code answers the interruptions of a run, so calls that need approval interrupt it. A run cannot
    tell whether anybody looks at its interruptions. In a session of your own, `approve=Answers()` says the same.
    """

    def __init__(
        self,
        skills: Skills | Session,
        *,
        approvals: bool = False,
        budget: int | None = None,
        restore: int = limits.COMPACTION_CHARACTERS,
        **options: Unpack[SessionOptions],
    ) -> None:
        self.conversation = Conversation.of(
            skills, "openai-agents", asks=approvals, budget=budget, restore=restore, **options
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

    def question(self, asked: ToolApprovalItem) -> str:
        """What to show to the person who approves or rejects an interruption of the run."""
        return describe(self.conversation.questions(asked.name or "", decoded(asked.arguments)))

    def _tool(self, name: str) -> FunctionTool:
        async def invoke(context: ToolContext[object], arguments: str) -> str:
            call_id = context.tool_call_id
            approved = True if context.is_tool_approved(name, call_id) is True else None
            result = await self.conversation.acall(name, decoded(arguments), answer=approved, call_id=call_id)
            return result.text

        async def needs_approval(
            context: RunContextWrapper[object], arguments: dict[str, object], call_id: str
        ) -> bool:
            return bool(await in_thread(self.conversation.questions, name, arguments, call_id))

        async def is_enabled(context: RunContextWrapper[object], agent: AgentBase[object]) -> bool:
            return await in_thread(self._update, tool)

        tool = FunctionTool(
            name=name,
            description="",
            params_json_schema={"type": "object", "properties": {}},
            on_invoke_tool=invoke,
            strict_json_schema=False,
            is_enabled=is_enabled,
            needs_approval=needs_approval,
        )
        self._update(tool)
        return tool

    def _update(self, tool: FunctionTool) -> bool:
        """Update a tool from the current catalog. Returns whether the tool is offered now."""
        for current in self.conversation.tools():
            if current.name == tool.name:
                tool.description, tool.params_json_schema = current.description, dict(current.input_schema)
                return True
        return False

    def prompt(self, base: str, turn: Sequence[object]) -> str:
        """The instructions for a turn with this input."""
        self._message = last_user_text(turn) or self._message
        return self.conversation.prompt(base, self._message).text

    def put_back(self, data: ModelInputData) -> ModelInputData:
        """The request with one system prompt, which has the loaded skills that are missing from its input."""
        self._message = last_user_text(data.input) or self._message
        self.conversation.settle(
            str(value_of(item, "call_id")) for item in data.input if value_of(item, "output") is not None
        )
        own = list(itertools.takewhile(is_instruction, data.input))
        given = joined(*texts(own), data.instructions)
        missing = self.conversation.restored([given, *texts(data.input)])
        return replace(data, input=data.input[len(own) :], instructions=joined(given, missing) or None)


class SkillInstructions:
    """Instructions that the SDK computes for each request. They keep a reference to their skills for `keep_skills`."""

    def __init__(self, skills: AgentSkills, base: str) -> None:
        self.skills, self._base = skills, base

    async def __call__(self, context: RunContextWrapper[TContext], agent: Agent[TContext]) -> str:
        return await in_thread(self.skills.prompt, self._base, list(context.turn_input))


def keep_skills(trim: CallModelInputFilter | None = None) -> CallModelInputFilter:
    """The `call_model_input_filter` of a run: applies your own `trim`, then puts back each agent's loaded skills.

    Do not use it if the server keeps the conversation: the input then does not show what the model has seen.
    """

    async def filtered(data: CallModelData[object]) -> ModelInputData:
        trimmed = trim(data) if trim is not None else data.model_data
        final = await trimmed if inspect.isawaitable(trimmed) else trimmed
        instructions = data.agent.instructions
        if not isinstance(instructions, SkillInstructions):
            return final
        return await in_thread(instructions.skills.put_back, final)

    return filtered
