"""Drivers for the SDKs without a framework: plain loops against an endpoint on this machine."""

import asyncio
from typing import Generic, TypeVar, Unpack

import anthropic
import endpoints
import openai
from anthropic.types import Message, MessageParam, TextBlock, ToolResultBlockParam
from driver_base import DriverOptions, last_turns
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionMessage,
    ChatCompletionMessageParam,
    ChatCompletionToolMessageParam,
)
from openai.types.responses import Response, ResponseInputItemParam, ResponseOutputItem
from openai.types.responses.response_input_item_param import FunctionCallOutput
from scenario import Model

from metier import Skills
from metier.adapters.anthropic import MessagesRequest, MessagesSkills
from metier.adapters.messages import value_of
from metier.adapters.openai import ChatRequest, ChatSkills, ResponsesRequest, ResponsesSkills
from metier.session.session import Session

INSTRUCTIONS = "You are a joiner."


_Skills = TypeVar("_Skills", MessagesSkills, ChatSkills, ResponsesSkills)


class Loop(Generic[_Skills]):
    """A plain loop. A subclass implements one API, synchronously or with asyncio."""

    skills: _Skills

    def __init__(
        self,
        skills: Skills | Session,
        model: Model,
        *,
        approves: bool = True,
        window: int = 1000,
        **options: Unpack[DriverOptions],
    ) -> None:
        if not isinstance(skills, Session):
            options.setdefault("approve", lambda request: approves)
        self.model, self.window = model, window
        self.start(skills, options)

    def start(self, skills: Skills | Session, options: DriverOptions) -> None:
        raise NotImplementedError

    @property
    def session(self) -> Session:
        return self.skills.session

    def say(self, message: str) -> str:
        with endpoints.serve(self.model) as url:
            return self.run(url, message)

    def run(self, url: str, message: str) -> str:
        raise NotImplementedError


def _is_user(message: object) -> bool:
    return value_of(message, "role") == "user" and isinstance(value_of(message, "content"), str)


class Anthropic(Loop[MessagesSkills]):
    history: list[MessageParam]

    def start(self, skills: Skills | Session, options: DriverOptions) -> None:
        self.skills, self.history = MessagesSkills(skills, **options), []

    def request(self) -> MessagesRequest:
        return self.skills.request(last_turns(self.history, self.window, _is_user), INSTRUCTIONS)

    def take(self, response: Message, results: list[ToolResultBlockParam]) -> str | None:
        self.history.append({"role": "assistant", "content": response.content})
        if results:
            self.history.append({"role": "user", "content": results})
            return None
        (block,) = response.content
        assert isinstance(block, TextBlock)
        return block.text

    def run(self, url: str, message: str) -> str:
        self.history.append({"role": "user", "content": message})
        with anthropic.Anthropic(base_url=url, api_key="none") as client:
            answer = None
            while answer is None:
                response = client.messages.create(model="m", max_tokens=9, **self.request())
                answer = self.take(response, self.skills.dispatch(response))
            return answer


class AnthropicAsync(Anthropic):
    def run(self, url: str, message: str) -> str:
        return asyncio.run(self.arun(url, message))

    async def arun(self, url: str, message: str) -> str:
        self.history.append({"role": "user", "content": message})
        async with anthropic.AsyncAnthropic(base_url=url, api_key="none") as client:
            answer = None
            while answer is None:
                response = await client.messages.create(model="m", max_tokens=9, **self.request())
                answer = self.take(response, await self.skills.adispatch(response))
            return answer


class Chat(Loop[ChatSkills]):
    history: list[ChatCompletionMessageParam | ChatCompletionMessage]

    def start(self, skills: Skills | Session, options: DriverOptions) -> None:
        self.skills, self.history = ChatSkills(skills, **options), []

    def request(self) -> ChatRequest:
        return self.skills.request(last_turns(self.history, self.window, _is_user), INSTRUCTIONS)

    def take(self, response: ChatCompletion, results: list[ChatCompletionToolMessageParam]) -> str | None:
        self.history += [response.choices[0].message, *results]
        return None if results else response.choices[0].message.content

    def run(self, url: str, message: str) -> str:
        self.history.append({"role": "user", "content": message})
        with openai.OpenAI(base_url=url, api_key="none") as client:
            answer = None
            while answer is None:
                response = client.chat.completions.create(model="m", **self.request())
                answer = self.take(response, self.skills.dispatch(response))
            return answer


class ChatAsync(Chat):
    def run(self, url: str, message: str) -> str:
        return asyncio.run(self.arun(url, message))

    async def arun(self, url: str, message: str) -> str:
        self.history.append({"role": "user", "content": message})
        async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
            answer = None
            while answer is None:
                response = await client.chat.completions.create(model="m", **self.request())
                answer = self.take(response, await self.skills.adispatch(response))
            return answer


class Responses(Loop[ResponsesSkills]):
    history: list[ResponseInputItemParam | ResponseOutputItem]

    def start(self, skills: Skills | Session, options: DriverOptions) -> None:
        self.skills, self.history = ResponsesSkills(skills, **options), []

    def request(self) -> ResponsesRequest:
        return self.skills.request(last_turns(self.history, self.window, _is_user), INSTRUCTIONS)

    def take(self, response: Response, results: list[FunctionCallOutput]) -> str | None:
        self.history += [*response.output, *results]
        return None if results else response.output_text

    def run(self, url: str, message: str) -> str:
        self.history.append({"role": "user", "content": message})
        with openai.OpenAI(base_url=url, api_key="none") as client:
            answer = None
            while answer is None:
                response = client.responses.create(model="m", **self.request())
                answer = self.take(response, self.skills.dispatch(response))
            return answer


class ResponsesAsync(Responses):
    def run(self, url: str, message: str) -> str:
        return asyncio.run(self.arun(url, message))

    async def arun(self, url: str, message: str) -> str:
        self.history.append({"role": "user", "content": message})
        async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
            answer = None
            while answer is None:
                response = await client.responses.create(model="m", **self.request())
                answer = self.take(response, await self.skills.adispatch(response))
            return answer
