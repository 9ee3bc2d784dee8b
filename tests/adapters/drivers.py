"""All drivers, for tests that hold for every adapter."""

from collections.abc import Iterator

from driver_base import Driver
from framework_drivers import LangChain, LangChainAsync, OpenAIAgents, PydanticAI, PydanticAIToolset
from loop_drivers import Anthropic, AnthropicAsync, Chat, ChatAsync, Responses, ResponsesAsync

FRAMEWORKS: list[type[Driver]] = [PydanticAI, PydanticAIToolset, OpenAIAgents, LangChain, LangChainAsync]
LOOPS: list[type[Driver]] = [Anthropic, AnthropicAsync, Chat, ChatAsync, Responses, ResponsesAsync]
DRIVERS = [*FRAMEWORKS, *LOOPS]


def names(drivers: list[type[Driver]]) -> Iterator[str]:
    return (driver.__name__ for driver in drivers)
