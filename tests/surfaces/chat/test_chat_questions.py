"""A choice that nobody makes uses none of the skills, and the first answer counts."""

import asyncio
from pathlib import Path
from typing import Any, cast

from metier.surfaces.chat.live import LiveTurn, TurnQuestions
from metier.values.results import AmbiguousMention
from worlds import World


def mention_of(world: World) -> AmbiguousMention:
    world.skill(".agents/skills/twin", body="FIRST")
    world.skill("~/.agents/skills/twin", body="SECOND")
    found = world.discover("codelia").session().invoke("use $twin").choices
    assert len(found) == 1
    return found[0]


class Screen:
    """Stands in for the turn that people see; it answers the choice when it is shown."""

    def __init__(self, *answers: int) -> None:
        self.answers, self.taken, self.states = answers, list[bool](), list[str]()
        self.questions: TurnQuestions | None = None

    async def keep(self, item: Any) -> None:
        self.states.append(item.state)
        if item.state == "waiting" and self.questions is not None:
            ids = [one["skill_id"] for one in item.as_dict()["candidates"]]
            self.taken += [self.questions.answer(item.id, ids[number]) for number in self.answers]


async def claim(status: object) -> None:
    pass


def choose(world: World, screen: Screen, seconds: float) -> str | None:
    async def run() -> str | None:
        screen.questions = questions = TurnQuestions(cast("LiveTurn", screen), claim, seconds)
        skill = await questions.choose(mention_of(world))
        return None if skill is None else Path(skill.path).read_text().splitlines()[-1]

    return asyncio.run(run())


def test_after_the_time_for_an_answer_none_is_used(world: World) -> None:
    screen = Screen()
    assert choose(world, screen, 0.01) is None
    assert screen.states == ["waiting", "none"]


def test_the_first_answer_counts_and_the_second_is_refused(world: World) -> None:
    screen = Screen(1, 0)
    assert choose(world, screen, 60) == "SECOND"
    assert screen.taken == [True, False]
