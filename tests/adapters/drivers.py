"""All drivers, for tests that hold for every adapter."""

from collections.abc import Iterator

from driver_base import Driver
from framework_drivers import LangChain, LangChainAsync, OpenAIAgents, PydanticAI, PydanticAIToolset

DRIVERS: list[type[Driver]] = [PydanticAI, PydanticAIToolset, OpenAIAgents, LangChain, LangChainAsync]


def names(drivers: list[type[Driver]]) -> Iterator[str]:
    return (driver.__name__ for driver in drivers)
