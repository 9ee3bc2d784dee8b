"""Search by meaning with embedding models, and the order that a reranker gives."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pydantic_ai")

from pydantic_ai.embeddings import EmbeddingModel, EmbeddingResult

from metier import MissingExtra, Skill, Skills
from metier.adapters.embeddings import WEIGHT, EmbeddingRanker, learned_weight
from metier.adapters.onnx_embedding import OnnxEmbedding
from worlds import World

CONCEPTS = (("bill", "invoice"), ("chart", "diagram", "plot"), ("okapi", "animal", "zoo"))
"""What the model knows: words of one row mean the same."""


class Concepts(EmbeddingModel):
    """A model whose vectors count concepts, and which keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.documents: list[str] = []

    @property
    def model_name(self) -> str:
        return "concepts"

    @property
    def system(self) -> str:
        return "tests"

    async def embed(self, inputs: str | Sequence[str], *, input_type: Any, settings: Any = None) -> EmbeddingResult:
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        if input_type == "document":
            self.documents += texts
        vectors = [[sum(word in text.lower() for word in row) + 0.01 for row in CONCEPTS] for text in texts]
        return EmbeddingResult(
            embeddings=vectors, inputs=texts, input_type=input_type, model_name="concepts", provider_name="tests"
        )


@pytest.fixture
def shelf(world: World) -> World:
    world.skill(".agents/skills/invoices", description="Reads invoices.")
    world.skill(".agents/skills/charts", description="Draws charts.")
    world.skill(".agents/skills/letters", description="Writes letters.")
    return world


def names(skills: Skills, query: str) -> list[tuple[str, str]]:
    return [(hit.skill.name, hit.fit) for hit in skills.search(query).results]


def test_a_search_works_while_an_event_loop_runs(shelf: World) -> None:
    async def search() -> list[tuple[str, str]]:
        return names(shelf.discover(rankers=[(WEIGHT, EmbeddingRanker(Concepts()))]), "bill")

    assert asyncio.run(search())[0][0] == "invoices"


def test_a_skill_is_found_by_meaning_and_only_its_words_make_it_strong(shelf: World) -> None:
    skills = shelf.discover(rankers=[(WEIGHT, EmbeddingRanker(Concepts()))])
    assert names(shelf.discover(), "pay a bill") == []
    assert names(skills, "pay a bill") == [("invoices", "weak")]
    assert names(skills, "read invoices")[0] == ("invoices", "strong")
    assert names(skills, "a plot for my letters")[0][0] == "letters"
    heavy = shelf.discover(rankers=[(9.0, EmbeddingRanker(Concepts()))])
    assert names(heavy, "a plot for my letters")[0][0] == "charts"


def test_a_vector_is_made_once_for_a_text_and_found_by_the_next_process(shelf: World, tmp_path: Path) -> None:
    model, file = Concepts(), str(tmp_path / "vectors.sqlite")
    skills = shelf.discover(rankers=[(WEIGHT, EmbeddingRanker(model, cache=file))])
    before = names(skills, "pay a bill")
    assert len(model.documents) == 3
    again = Concepts()
    later = shelf.discover(rankers=[(WEIGHT, EmbeddingRanker(again, cache=file))])
    assert (names(later, "pay a bill"), again.documents) == (before, [])
    shelf.skill(".agents/skills/letters", description="Feeds an okapi.")
    later.refresh()
    assert names(later, "what to see in a zoo?")[0][0] == "letters"
    assert again.documents == ["letters. Feeds an okapi."]
    (shelf.project / ".agents/skills/invoices/SKILL.md").unlink()
    later.refresh()
    assert names(later, "pay a bill") == []


def test_the_weight_is_learned_from_requests(shelf: World) -> None:
    skills, ranker = shelf.discover(), EmbeddingRanker(Concepts())
    assert learned_weight(skills, ranker, [("pay a bill", "invoices"), ("a diagram", "charts")]) == 0.05
    assert learned_weight(skills, ranker, [("write letters", "letters")]) == 0.0


def test_a_model_in_a_file_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtra, match=r"pip install 'metier\[onnx\]'"):
        OnnxEmbedding("model.onnx", "tokenizer.json")


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
