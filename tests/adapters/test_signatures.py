"""A misspelled option of an adapter is a `TypeError`. `tests/test_types.py` asks a type checker the same."""

from collections.abc import Callable
from typing import Any

import pytest
from scenario import skills

from metier import ConfigError
from metier.adapters.conversation import Conversation, Conversations
from metier.adapters.langchain import SkillsMiddleware, skill_tools
from metier.adapters.openai_agents import AgentSkills
from metier.adapters.pydantic_ai import SkillsCapability, SkillsToolset
from metier.session.session import Session
from worlds import World

ADAPTERS: dict[str, Callable[..., Any]] = {
    "AgentSkills": AgentSkills,
    "SkillsMiddleware": SkillsMiddleware,
    "skill_tools": skill_tools,
    "SkillsToolset": SkillsToolset,
    "SkillsCapability": SkillsCapability,
    "Conversation.of": lambda given, **options: Conversation.of(given, "test", asks=True, **options),
    "Conversations": lambda given, **options: Conversations(given, "test", **options),
}
each = pytest.mark.parametrize("name", ADAPTERS)


@each
def test_a_misspelled_option_is_a_type_error(world: World, name: str) -> None:
    found = skills(world)
    for given in (found, found.session()):
        with pytest.raises(TypeError, match="unexpected keyword argument 'onyl'"):
            ADAPTERS[name](given, onyl=["carpentry"])
        with pytest.raises(TypeError, match="unexpected keyword argument 'bugdet'"):
            ADAPTERS[name](given, bugdet=5)


@pytest.mark.parametrize("name", [name for name in ADAPTERS if name not in ("skill_tools", "Conversations")])
def test_an_option_of_a_session_reaches_the_session(world: World, name: str) -> None:
    session: Session = ADAPTERS[name](skills(world), only=["knots"], surface="my-app").session
    assert [skill.name for skill in session.visible()] == ["knots"]
    assert session.events[0]["surface"] == "my-app"


@each
def test_a_session_of_your_own_takes_no_options_of_a_session(world: World, name: str) -> None:
    with pytest.raises(ConfigError, match="only: pass this to the session itself"):
        ADAPTERS[name](skills(world).session(), only=["knots"])
