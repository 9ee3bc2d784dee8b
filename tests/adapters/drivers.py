"""All drivers, for tests that hold for every adapter."""

import pytest
from driver_base import Driver
from framework_drivers import LangChain, LangChainAsync, OpenAIAgents, PydanticAI, PydanticAIToolset

KINDS: list[type[Driver]] = [PydanticAI, PydanticAIToolset, OpenAIAgents, LangChain]
DRIVERS: list[type[Driver]] = [*KINDS, LangChainAsync]
each = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.__name__)
each_kind = pytest.mark.parametrize("driver", KINDS, ids=lambda driver: driver.__name__)
"""Without an asynchronous twin, where it would be the same."""
