"""Drivers for the SDKs without a framework: plain loops against an endpoint on this machine."""

import asyncio
from typing import Any, Unpack

import anthropic
import endpoints
import openai
from anthropic.types import Message, TextBlock
from driver_base import DriverOptions, last_turns
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from scenario import Model

from metier import Skills
from metier.adapters.anthropic import MessagesSkills
from metier.adapters.conversation import value_of
from metier.adapters.openai import ChatSkills, ResponsesSkills
from metier.session.session import Session

INSTRUCTIONS = "You are a joiner."


class Loop:
    """A plain loop. A subclass implements one API."""

    kind: type[Any]
    client: type[Any]
    aclient: type[Any]

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
        self.skills: Any = self.kind(skills, **options)
        self.history: list[Any] = []

    @property
    def session(self) -> Session:
        return self.skills.session

    def say(self, message: str) -> str:
        self.history.append({"role": "user", "content": message})
        with endpoints.serve(self.model) as url:
            return self.run(url)

    def run(self, url: str) -> str:
        with self.client(base_url=url, api_key="none") as client:
            answer = None
            while answer is None:
                response = self.create(client, self.request())
                answer = self.take(response, self.skills.dispatch(response))
            return answer

    async def arun(self, url: str) -> str:
        async with self.aclient(base_url=url, api_key="none") as client:
            answer = None
            while answer is None:
                response = await self.create(client, self.request())
                answer = self.take(response, await self.skills.adispatch(response))
            return answer

    def request(self) -> Any:
        return self.skills.request(last_turns(self.history, self.window, _is_user), INSTRUCTIONS)

    def create(self, client: Any, request: Any) -> Any:
        """The response to a request, or with an asynchronous client what is to be awaited for it."""
        raise NotImplementedError

    def take(self, response: Any, results: list[Any]) -> str | None:
        """Keep the response and the results of its calls. Return the answer, if it is one."""
        raise NotImplementedError


def _is_user(message: object) -> bool:
    return value_of(message, "role") == "user" and isinstance(value_of(message, "content"), str)


class Asynchronous(Loop):
    """A loop with asyncio."""

    def run(self, url: str) -> str:
        return asyncio.run(self.arun(url))


class Anthropic(Loop):
    kind, client, aclient = MessagesSkills, anthropic.Anthropic, anthropic.AsyncAnthropic

    def create(self, client: Any, request: Any) -> Any:
        return client.messages.create(model="m", max_tokens=9, **request)

    def take(self, response: Message, results: list[Any]) -> str | None:
        self.history.append({"role": "assistant", "content": response.content})
        if results:
            self.history.append({"role": "user", "content": results})
            return None
        (block,) = response.content
        assert isinstance(block, TextBlock)
        return block.text


class Chat(Loop):
    kind, client, aclient = ChatSkills, openai.OpenAI, openai.AsyncOpenAI

    def create(self, client: Any, request: Any) -> Any:
        return client.chat.completions.create(model="m", **request)

    def take(self, response: ChatCompletion, results: list[Any]) -> str | None:
        self.history += [response.choices[0].message, *results]
        return None if results else response.choices[0].message.content


class Responses(Loop):
    kind, client, aclient = ResponsesSkills, openai.OpenAI, openai.AsyncOpenAI

    def create(self, client: Any, request: Any) -> Any:
        return client.responses.create(model="m", **request)

    def take(self, response: Response, results: list[Any]) -> str | None:
        self.history += [*response.output, *results]
        return None if results else response.output_text


class AnthropicAsync(Asynchronous, Anthropic): ...


class ChatAsync(Asynchronous, Chat): ...


class ResponsesAsync(Asynchronous, Responses): ...
