"""Conversations through each framework, all driven alike: `say` is a whole turn of the user's, approvals included."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

import endpoints
from stage import Model

from metier import Skills
from metier.session.session import Session

Approve = Callable[[Any], bool]


class Driver(Protocol):
    """One agent. `window` is how many turns of the user its history keeps; `approve` answers for the person."""

    def __init__(
        self, skills: Skills | Session, model: Model, *, approve: bool = True, window: int = 1000, **options: Any
    ) -> None: ...

    @property
    def session(self) -> Session: ...

    def say(self, message: str) -> str: ...


def last_turns(messages: list[Any], window: int, is_user: Callable[[Any], bool]) -> list[Any]:
    """The history from the last `window` messages of the user on."""
    starts = [index for index, message in enumerate(messages) if is_user(message)]
    return messages[starts[-window] :] if len(starts) > window else messages


# --- Pydantic AI ---


class PydanticAI:
    """With the capability, and a history processor that trims."""

    def __init__(
        self, skills: Skills | Session, model: Model, *, approve: bool = True, window: int = 1000, **options: Any
    ) -> None:
        from pydantic_ai import Agent, DeferredToolRequests
        from pydantic_ai.capabilities import ProcessHistory
        from pydantic_ai.messages import ModelMessage

        from metier.adapters.pydantic_ai import SkillsCapability

        async def trim(messages: list[ModelMessage]) -> list[ModelMessage]:
            return last_turns(messages, window, _is_prompt)

        self.skills: Any = SkillsCapability(skills, **options)
        self.agent: Any = Agent(
            pydantic_model(model),
            instructions="You are a joiner.",
            capabilities=[self.skills, ProcessHistory(trim)],
            output_type=[str, DeferredToolRequests],
        )
        self.history: list[Any] = []
        self.approve, self.window = approve, window
        self.asked: list[dict[str, Any]] = []

    @property
    def session(self) -> Session:
        return self.skills.session

    def kept(self) -> list[Any]:
        return self.history

    def say(self, message: str) -> str:
        return asyncio.run(self.converse(message))

    async def converse(self, message: str) -> str:
        from pydantic_ai import DeferredToolRequests

        result = await self.agent.run(message, message_history=self.kept())
        while isinstance(result.output, DeferredToolRequests):
            self.asked += result.output.metadata.values()
            answers = {call.tool_call_id: self.approve for call in result.output.approvals}
            results = result.output.build_results(approvals=cast("Any", answers))
            result = await self.agent.run(message_history=result.all_messages(), deferred_tool_results=results)
        self.history = result.all_messages()
        return result.output


class PydanticAIToolset(PydanticAI):
    """With the toolset alone, and a history that is trimmed between the runs."""

    def __init__(
        self, skills: Skills | Session, model: Model, *, approve: bool = True, window: int = 1000, **options: Any
    ) -> None:
        from pydantic_ai import Agent, DeferredToolRequests

        from metier.adapters.pydantic_ai import SkillsToolset

        self.skills = SkillsToolset(skills, **options)
        self.agent = Agent(
            pydantic_model(model), toolsets=[self.skills], output_type=[str, DeferredToolRequests],
            instructions="You are a joiner.",
        )  # fmt: skip
        self.history, self.asked = [], []
        self.approve, self.window = approve, window

    def kept(self) -> list[Any]:
        return last_turns(self.history, self.window - 1, _is_prompt) if self.window > 1 else []


def pydantic_model(model: Model) -> Any:
    from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        texts = [
            str(cast("Any", part).content)
            for message in messages
            if isinstance(message, ModelRequest)
            for part in message.parts
        ]
        step = model.next(info.instructions, [tool.name for tool in info.function_tools], texts)
        if isinstance(step, str):
            return ModelResponse(parts=[TextPart(step)])
        return ModelResponse(parts=[ToolCallPart(*step, tool_call_id=f"call-{model.number}")])

    return FunctionModel(answer)


def _is_prompt(message: Any) -> bool:
    return any(part.part_kind == "user-prompt" for part in message.parts)


# --- OpenAI Agents SDK ---


class OpenAIAgents:
    def __init__(
        self, skills: Skills | Session, model: Model, *, approve: bool = True, window: int = 1000, **options: Any
    ) -> None:
        from agents import Agent, RunConfig
        from agents.run import CallModelData, ModelInputData

        from metier.adapters.openai_agents import AgentSkills, keep_skills

        def trim(data: CallModelData[Any]) -> ModelInputData:
            items = last_turns(data.model_data.input, window, lambda item: item.get("role") == "user")
            return ModelInputData(items, data.model_data.instructions)

        self.skills = AgentSkills(skills, **options)
        self.session = self.skills.session
        self.agent = Agent(
            name="joiner", instructions=self.skills.instructions("You are a joiner."), tools=self.skills.tools(),
            model=agents_model(model),
        )  # fmt: skip
        self.config = RunConfig(tracing_disabled=True, call_model_input_filter=keep_skills(trim))
        self.history: list[Any] = []
        self.approve = approve

    def say(self, message: str) -> str:
        return asyncio.run(self.converse(message))

    async def converse(self, message: str) -> str:
        from agents import Runner

        given: Any = [*self.history, {"role": "user", "content": message}]
        result = await Runner.run(self.agent, given, run_config=self.config)
        while result.interruptions:
            state = result.to_state()
            for asked in result.interruptions:
                (state.approve if self.approve else state.reject)(asked)
            result = await Runner.run(self.agent, state, run_config=self.config)
        self.history = result.to_input_list()
        return cast("str", result.final_output)


def agents_model(model: Model) -> Any:
    from agents import ModelResponse, Usage
    from agents.models.interface import Model as Interface
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    class Scripted(Interface):
        async def get_response(
            self,
            system_instructions: Any,
            input: Any,  # noqa: A002
            model_settings: Any,
            tools: Any,
            *rest: Any,
            **more: Any,
        ) -> ModelResponse:
            texts = [str(item.get("content") or item.get("output") or "") for item in input]
            step = model.next(system_instructions, [tool.name for tool in tools], texts)
            if isinstance(step, str):
                text = ResponseOutputText(text=step, type="output_text", annotations=[])
                output: Any = ResponseOutputMessage(
                    id=f"m{model.number}", content=[text], role="assistant", status="completed", type="message"
                )
            else:
                output = ResponseFunctionToolCall(
                    call_id=f"call-{model.number}", name=step[0], arguments=json.dumps(step[1]), type="function_call"
                )
            return ModelResponse(output=[output], usage=Usage(), response_id=None)

        def stream_response(self, *given: Any, **more: Any) -> Any:
            raise NotImplementedError

    return Scripted()


# --- LangChain ---


class LangChain:
    def __init__(
        self, skills: Skills | Session, model: Model, *, approve: bool = True, window: int = 1000, **options: Any
    ) -> None:
        from langchain.agents import create_agent
        from langchain.agents.middleware import AgentMiddleware
        from langgraph.checkpoint.memory import InMemorySaver

        from metier.adapters.langchain import SkillsMiddleware

        class Trim(AgentMiddleware[Any, Any, Any]):
            def shorter(self, request: Any) -> Any:
                messages = last_turns(request.messages, window, lambda message: message.type == "human")
                return request.override(messages=messages)

            def wrap_model_call(self, request: Any, handler: Any) -> Any:
                return handler(self.shorter(request))

            async def awrap_model_call(self, request: Any, handler: Any) -> Any:
                return await handler(self.shorter(request))

        self.skills = SkillsMiddleware(skills, **options)
        self.agent: Any = create_agent(
            langchain_model(model), system_prompt="You are a joiner.", middleware=[Trim(), self.skills],
            checkpointer=InMemorySaver(),
        )  # fmt: skip
        self.config = {"configurable": {"thread_id": "1"}, "recursion_limit": 100}
        self.approve = approve
        self.asked: list[Any] = []

    @property
    def session(self) -> Session:
        return self.skills.session

    def invoke(self, given: Any) -> Any:
        return self.agent.invoke(given, self.config)

    def say(self, message: str) -> str:
        from langgraph.types import Command

        state = self.invoke({"messages": [{"role": "user", "content": message}]})
        while state.get("__interrupt__"):
            self.asked += [one.value for one in state["__interrupt__"]]
            decision = {"type": "approve" if self.approve else "reject"}
            state = self.invoke(Command(resume={"decisions": [decision]}))
        return state["messages"][-1].content


class LangChainAsync(LangChain):
    def invoke(self, given: Any) -> Any:
        return asyncio.run(self.agent.ainvoke(given, self.config))


def langchain_model(model: Model) -> Any:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Scripted(BaseChatModel):
        names: tuple[str, ...] = ()

        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **_: Any) -> "Scripted":
            return Scripted(names=tuple(tool.name for tool in tools))

        def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
            system = "\n\n".join(message.text for message in messages if message.type == "system")
            texts = [message.text for message in messages if message.type in ("human", "tool")]
            step = model.next(system, self.names, texts)
            calls: list[Any] = []
            if not isinstance(step, str):
                calls = [{"name": step[0], "args": step[1], "id": f"call-{model.number}"}]
            message = AIMessage(step if isinstance(step, str) else "", tool_calls=calls)
            return ChatResult(generations=[ChatGeneration(message=message)])

    return Scripted()


# --- the SDKs, in loops of our own, against an endpoint on this machine ---


class Loop:
    """A plain loop; subclasses know one interface."""

    asynchronous = False

    def __init__(
        self, skills: Skills | Session, model: Model, *, approve: bool = True, window: int = 1000, **options: Any
    ) -> None:
        if not isinstance(skills, Session):
            options.setdefault("approve", lambda _: approve)  # pyright: ignore[reportUnknownLambdaType]
        self.skills = self.adapter()(skills, **options)
        self.session: Session = self.skills.session
        self.model, self.window = model, window
        self.history: list[Any] = []

    def adapter(self) -> Any: ...

    def is_user(self, message: Any) -> bool:
        return isinstance(message, dict) and message.get("role") == "user" and isinstance(message["content"], str)

    def kept(self) -> list[Any]:
        return last_turns(self.history, self.window, self.is_user)

    def say(self, message: str) -> str:
        self.history.append({"role": "user", "content": message})
        with endpoints.serve(self.model) as url:
            if self.asynchronous:
                return asyncio.run(self.asay(url))
            return self.run(url)

    def run(self, url: str) -> str: ...

    async def asay(self, url: str) -> str: ...


class Anthropic(Loop):
    def adapter(self) -> Any:
        from metier.adapters.anthropic import MessagesSkills

        return MessagesSkills

    def request(self) -> dict[str, Any]:
        return {"model": "m", "max_tokens": 9, **self.skills.request(self.kept(), "You are a joiner.")}

    def take(self, response: Any, results: list[Any]) -> str | None:
        self.history.append({"role": "assistant", "content": response.content})
        if not results:
            return response.content[0].text
        self.history.append({"role": "user", "content": results})
        return None

    def run(self, url: str) -> str:
        import anthropic

        with anthropic.Anthropic(base_url=url, api_key="none") as client:
            said = None
            while said is None:
                response = client.messages.create(**self.request())
                said = self.take(response, self.skills.dispatch(response))
            return said


class AnthropicAsync(Anthropic):
    asynchronous = True

    async def asay(self, url: str) -> str:
        import anthropic

        async with anthropic.AsyncAnthropic(base_url=url, api_key="none") as client:
            said = None
            while said is None:
                response = await client.messages.create(**self.request())
                said = self.take(response, await self.skills.adispatch(response))
            return said


class Chat(Loop):
    def adapter(self) -> Any:
        from metier.adapters.openai import ChatSkills

        return ChatSkills

    def request(self) -> dict[str, Any]:
        return {"model": "m", **self.skills.request(self.kept(), "You are a joiner.")}

    def take(self, response: Any, results: list[Any]) -> str | None:
        self.history += [response.choices[0].message, *results]
        return None if results else response.choices[0].message.content

    def run(self, url: str) -> str:
        import openai

        with openai.OpenAI(base_url=url, api_key="none") as client:
            said = None
            while said is None:
                response = client.chat.completions.create(**self.request())
                said = self.take(response, self.skills.dispatch(response))
            return said


class ChatAsync(Chat):
    asynchronous = True

    async def asay(self, url: str) -> str:
        import openai

        async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
            said = None
            while said is None:
                response = await client.chat.completions.create(**self.request())
                said = self.take(response, await self.skills.adispatch(response))
            return said


class Responses(Loop):
    def adapter(self) -> Any:
        from metier.adapters.openai import ResponsesSkills

        return ResponsesSkills

    def request(self) -> dict[str, Any]:
        return {"model": "m", **self.skills.request(self.kept(), "You are a joiner.")}

    def take(self, response: Any, results: list[Any]) -> str | None:
        self.history += [*response.output, *results]
        return None if results else response.output_text

    def run(self, url: str) -> str:
        import openai

        with openai.OpenAI(base_url=url, api_key="none") as client:
            said = None
            while said is None:
                response = client.responses.create(**self.request())
                said = self.take(response, self.skills.dispatch(response))
            return said


class ResponsesAsync(Responses):
    asynchronous = True

    async def asay(self, url: str) -> str:
        import openai

        async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
            said = None
            while said is None:
                response = await client.responses.create(**self.request())
                said = self.take(response, await self.skills.adispatch(response))
            return said


FRAMEWORKS: list[type[Driver]] = [PydanticAI, PydanticAIToolset, OpenAIAgents, LangChain, LangChainAsync]
LOOPS: list[type[Driver]] = [Anthropic, AnthropicAsync, Chat, ChatAsync, Responses, ResponsesAsync]
DRIVERS = [*FRAMEWORKS, *LOOPS]


def names(drivers: list[type[Driver]]) -> Iterator[str]:
    return (driver.__name__ for driver in drivers)
