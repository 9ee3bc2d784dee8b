"""A ranking model of one's own beside the words of a skill, and the order that a reranker gives."""

from collections.abc import Iterable, Sequence

from metier import Skill, Skills
from worlds import World

CONCEPTS = (("bill", "invoice"), ("chart", "diagram", "plot"), ("okapi", "animal", "zoo"))
"""Words of one row mean the same."""


class Concepts:
    """Ranks by shared concepts. It says in which order skills fit, and not whether they do."""

    matches = False

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def sync(self, skills: Iterable[Skill], /) -> None:
        self.known = {skill.path: skill.description for skill in skills}

    def rank(self, query: str, limit: int, /) -> list[tuple[str, float]]:
        near = {path: float(len(concepts(text) & concepts(query))) for path, text in self.known.items()}
        return sorted(((path, score) for path, score in near.items() if score), key=lambda one: (-one[1], one[0]))


def concepts(text: str) -> set[int]:
    return {at for at, row in enumerate(CONCEPTS) if any(word in text.lower() for word in row)}


def names(skills: Skills, query: str) -> list[tuple[str, str]]:
    return [(hit.skill.name, hit.fit) for hit in skills.search(query).results]


def test_a_skill_is_found_by_meaning_and_only_its_words_make_it_strong(world: World) -> None:
    world.skill(".agents/skills/invoices", description="Reads invoices.")
    world.skill(".agents/skills/charts", description="Draws charts.")
    world.skill(".agents/skills/letters", description="Writes letters.")
    skills = world.discover(rankers=[(0.1, Concepts())])
    assert names(world.discover(), "pay a bill") == []
    assert names(skills, "pay a bill") == [("invoices", "weak")]
    assert names(skills, "read invoices")[0] == ("invoices", "strong")
    assert names(skills, "a plot for my letters")[0][0] == "letters"
    heavy = world.discover(rankers=[(9.0, Concepts())])
    assert names(heavy, "a plot for my letters")[0][0] == "charts"
    world.skill(".agents/skills/letters", description="Feeds an okapi.")
    skills.refresh()
    assert names(skills, "what to see in a zoo?")[0][0] == "letters"


class ByLength:
    """Puts the skill with the longest name first."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def rerank(self, query: str, skills: Sequence[Skill], /) -> Sequence[float]:
        self.asked.append((query, len(skills)))
        return [len(skill.name) for skill in skills]


def test_a_reranker_orders_the_best_twenty_and_nothing_else(world: World) -> None:
    for at in range(30):
        world.skill(f".agents/skills/zebra-{'x' * at}y", description=f"Counts zebras {'and more ' * at}.")
    plain, reranker = world.discover(), ByLength()
    skills = world.discover(reranker=reranker)
    query = "count zebras"
    ours, theirs = plain.search(query, limit=20).results, skills.search(query, limit=20).results
    assert reranker.asked == [(query, 20)]
    assert {hit.skill.name for hit in ours} == {hit.skill.name for hit in theirs}
    assert [hit.score for hit in theirs] == [hit.score for hit in ours]
    assert [hit.skill.name for hit in theirs] == sorted((hit.skill.name for hit in ours), key=lambda name: -len(name))
    assert skills.search("zebra-y", limit=1).results[0].skill.name == "zebra-y"
