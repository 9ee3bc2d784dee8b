"""Drivers for agent frameworks, each with a model that follows a script."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Unpack

from agents import Agent as OpenAIAgent
from agents import ModelResponse as AgentsResponse
from agents import RunConfig, Runner, TResponseInputItem, Usage
from agents import Tool as AgentsTool
from agents.models.interface import Model as AgentsModel
from agents.run import CallModelData, ModelInputData
from driver_base import DriverOptions, last_turns
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.tool import ToolCall
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import ModelMessage, TextPart, ToolCallPart
from pydantic_ai.messages import ModelRequest as PydanticRequest
from pydantic_ai.messages import ModelResponse as PydanticResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import ToolApproved, ToolDenied
from scenario import Model, Step

from metier import Skills
from metier.adapters.conversation import value_of
from metier.adapters.langchain import SkillsMiddleware
from metier.adapters.openai_agents import AgentSkills, keep_skills
from metier.adapters.pydantic_ai import SkillsCapability, SkillsToolset
from metier.session.session import Session

INSTRUCTIONS = "You are a joiner."

# --- Pydantic AI ---


class PydanticAI:
    """With the capability, and a history processor that trims."""

    skills: SkillsCapability | SkillsToolset

    def __init__(
        self,
        skills: Skills | Session,
        model: Model,
        *,
        approves: bool = True,
        window: int = 1000,
        **options: Unpack[DriverOptions],
    ) -> None:
        self.approves, self.window = approves, window
        self.history: list[ModelMessage] = []
        self.asked: list[dict[str, Any]] = []
        self.agent = self.make_agent(skills, pydantic_model(model), options)

    def make_agent(
        self, skills: Skills | Session, model: FunctionModel, options: DriverOptions
    ) -> Agent[object, str | DeferredToolRequests]:
        async def trim(messages: list[ModelMessage]) -> list[ModelMessage]:
            return last_turns(messages, self.window, _is_prompt)

        self.skills = SkillsCapability(skills, **options)
        return Agent(
            model,
            instructions=INSTRUCTIONS,
            capabilities=[self.skills, ProcessHistory(trim)],
            output_type=[str, DeferredToolRequests],
        )

    @property
    def session(self) -> Session:
        return self.skills.session

    def kept(self) -> list[ModelMessage]:
        return self.history

    def say(self, message: str) -> str:
        return asyncio.run(self.converse(message))

    async def converse(self, message: str) -> str:
        result = await self.agent.run(message, message_history=self.kept())
        while isinstance(result.output, DeferredToolRequests):
            self.asked += result.output.metadata.values()
            answers: dict[str, bool | ToolApproved | ToolDenied] = {
                call.tool_call_id: self.approves for call in result.output.approvals
            }
            results = result.output.build_results(approvals=answers)
            result = await self.agent.run(message_history=result.all_messages(), deferred_tool_results=results)
        self.history = result.all_messages()
        return result.output


class PydanticAIToolset(PydanticAI):
    """With the toolset alone, and a history that is trimmed between the runs."""

    def make_agent(
        self, skills: Skills | Session, model: FunctionModel, options: DriverOptions
    ) -> Agent[object, str | DeferredToolRequests]:
        self.skills = SkillsToolset(skills, **options)
        return Agent(model, instructions=INSTRUCTIONS, toolsets=[self.skills], output_type=[str, DeferredToolRequests])

    def kept(self) -> list[ModelMessage]:
        return last_turns(self.history, self.window - 1, _is_prompt) if self.window > 1 else []


def pydantic_model(model: Model) -> FunctionModel:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> PydanticResponse:
        texts = [
            str(value_of(part, "content"))
            for message in messages
            if isinstance(message, PydanticRequest)
            for part in message.parts
        ]
        own = [part for message in messages for part in message.parts if part.part_kind == "system-prompt"]
        prompts = len(info.model_request_parameters.instruction_parts or ()) + len(own)
        step = model.next(info.instructions, [tool.name for tool in info.function_tools], texts, prompts)
        if isinstance(step, str):
            return PydanticResponse(parts=[TextPart(step)])
        return PydanticResponse(parts=[ToolCallPart(*step, tool_call_id=f"call-{model.number}")])

    return FunctionModel(answer)


def _is_prompt(message: ModelMessage) -> bool:
    return any(part.part_kind == "user-prompt" for part in message.parts)


# --- OpenAI Agents SDK ---


class OpenAIAgents:
    """With an input filter that trims."""

    def __init__(
        self,
        skills: Skills | Session,
        model: Model,
        *,
        approves: bool = True,
        window: int = 1000,
        **options: Unpack[DriverOptions],
    ) -> None:
        def trim(data: CallModelData[object]) -> ModelInputData:
            items = last_turns(data.model_data.input, window, lambda item: value_of(item, "role") == "user")
            return ModelInputData(items, data.model_data.instructions)

        self.skills = AgentSkills(skills, approvals=True, **options)
        self.agent = OpenAIAgent[object](
            name="joiner",
            instructions=self.skills.instructions(INSTRUCTIONS),
            tools=self.skills.tools(),
            model=ScriptedAgentsModel(model),
        )
        self.config = RunConfig(tracing_disabled=True, call_model_input_filter=keep_skills(trim))
        self.history: list[TResponseInputItem] = []
        self.approves = approves

    @property
    def session(self) -> Session:
        return self.skills.session

    def say(self, message: str) -> str:
        return asyncio.run(self.converse(message))

    async def converse(self, message: str) -> str:
        given: list[TResponseInputItem] = [*self.history, {"role": "user", "content": message}]
        result = await Runner.run(self.agent, given, run_config=self.config)
        while result.interruptions:
            state = result.to_state()
            for asked in result.interruptions:
                (state.approve if self.approves else state.reject)(asked)
            result = await Runner.run(self.agent, state, run_config=self.config)
        self.history = result.to_input_list()
        return str(result.final_output)


class ScriptedAgentsModel(AgentsModel):
    def __init__(self, model: Model) -> None:
        self.model = model

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002
        model_settings: object,
        tools: list[AgentsTool],
        *rest: object,
        **more: object,
    ) -> AgentsResponse:
        texts = [str(value_of(item, "content") or value_of(item, "output") or "") for item in input]
        own = sum(value_of(item, "role") == "system" for item in input)
        step = self.model.next(system_instructions, [tool.name for tool in tools], texts, 1 + own)
        if isinstance(step, str):
            return agents_response(agents_message(step))
        return agents_response(agents_call(f"call-{self.model.number}", step[0], json.dumps(step[1])))

    def stream_response(self, *given: object, **more: object) -> Any:
        raise NotImplementedError


def agents_response(item: ResponseOutputMessage | ResponseFunctionToolCall) -> AgentsResponse:
    return AgentsResponse(output=[item], usage=Usage(), response_id=None)


def agents_message(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(id="1", content=[content], role="assistant", status="completed", type="message")


def agents_call(call_id: str, name: str, arguments: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(call_id=call_id, name=name, arguments=arguments, type="function_call")


# --- LangChain ---


class Trim(AgentMiddleware):
    """Keeps the last turns of the history."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def trimmed(self, request: ModelRequest[None]) -> ModelRequest[None]:
        messages = last_turns(request.messages, self.window, lambda message: message.type == "human")
        return request.override(messages=messages)

    def wrap_model_call(
        self, request: ModelRequest[None], handler: Callable[[ModelRequest[None]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        return handler(self.trimmed(request))

    async def awrap_model_call(
        self, request: ModelRequest[None], handler: Callable[[ModelRequest[None]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        return await handler(self.trimmed(request))


class LangChain:
    """With the middleware after one that trims."""

    def __init__(
        self,
        skills: Skills | Session,
        model: Model,
        *,
        approves: bool = True,
        window: int = 1000,
        **options: Unpack[DriverOptions],
    ) -> None:
        self.skills = SkillsMiddleware(skills, **options)
        self.agent: Any = create_agent(
            ScriptedChatModel(script=model),
            system_prompt=INSTRUCTIONS,
            middleware=[Trim(window), self.skills],
            checkpointer=InMemorySaver(),
        )
        self.config: RunnableConfig = {"configurable": {"thread_id": "1"}, "recursion_limit": 100}
        self.approves = approves
        self.asked: list[Any] = []

    @property
    def session(self) -> Session:
        return self.skills.session

    def invoke(self, given: object) -> dict[str, Any]:
        return self.agent.invoke(given, self.config)

    def say(self, message: str) -> str:
        state = self.invoke({"messages": [{"role": "user", "content": message}]})
        while state.get("__interrupt__"):
            self.asked += [one.value for one in state["__interrupt__"]]
            decision = {"type": "approve" if self.approves else "reject"}
            state = self.invoke(Command(resume={"decisions": [decision]}))
        return state["messages"][-1].content


class LangChainAsync(LangChain):
    def invoke(self, given: object) -> dict[str, Any]:
        return asyncio.run(self.agent.ainvoke(given, self.config))


class ScriptedChatModel(BaseChatModel):
    script: Model
    names: tuple[str, ...] = ()

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: object) -> "ScriptedChatModel":
        return ScriptedChatModel.model_construct(script=self.script, names=tuple(tool.name for tool in tools))

    def _generate(self, messages: list[BaseMessage], *_: object, **__: object) -> ChatResult:
        prompts = [message.text for message in messages if message.type == "system"]
        texts = [message.text for message in messages if message.type in ("human", "tool")]
        message = self.message(self.script.next("\n\n".join(prompts), self.names, texts, len(prompts)))
        return ChatResult(generations=[ChatGeneration(message=message)])

    def message(self, step: Step) -> AIMessage:
        if isinstance(step, str):
            return AIMessage(step)
        call = ToolCall(name=step[0], args=step[1], id=f"call-{self.script.number}")
        return AIMessage("", tool_calls=[call])
