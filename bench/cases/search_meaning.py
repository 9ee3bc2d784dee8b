"""What a small sentence model adds to the ranking by words, and what it costs: MiniLM, on the corpus of search-quality.

The weight is learned on four groups of repositories and scored on the fifth. The benchmark is left out where the model
of `bench.sentence_model` is not installed.
"""

import importlib.util
import os
import statistics
import time
from collections.abc import Sequence

from metier.search import fuse
from metier.search.index import TextIndex
from metier.search.reading import TextSource, indexed_skills, with_references

from ..corpus import Query, absent, corpus_of, folds
from ..measure import Row
from ..options import Options
from .search_quality import ALIASES

DEPTH = 100
TOP = (1, 5, 10)
MISSING = "left out: the model of bench/sentence_model.py is not installed"

Ranking = list[tuple[str, float]]


def run(options: Options) -> list[Row]:
    corpus = corpus_of(options)
    if corpus is None:
        return absent(options)
    if importlib.util.find_spec("numpy") is None:
        return [Row("model", "-", None, note=MISSING)]
    from metier.adapters.embeddings import WEIGHTS, EmbeddingRanker

    from .. import sentence_model

    source = sentence_model.folder()
    if source is None:
        return [Row("model", "-", None, note=MISSING)]
    from metier.adapters.onnx_embedding import OnnxEmbedding

    file, cache = (os.path.join(options.workspace.path, name) for name in ("model.onnx", "vectors.sqlite"))
    sentence_model.write(file, source)
    ranker = EmbeddingRanker(OnnxEmbedding(file, os.path.join(source, "tokenizer.json")), cache=cache)
    began = time.process_time()
    ranker.sync(corpus.skills)
    made = time.process_time() - began
    index = TextIndex.open(None)
    index.update(indexed_skills(list(with_references(map(TextSource.of, corpus.skills)))))
    words: list[Ranking] = []
    meaning: list[Ranking] = []
    took: list[float] = []
    for query in corpus.asked:
        words.append([(one.key, one.score) for one in index.search(query.text, DEPTH, aliases=ALIASES)])
        began = time.process_time()
        meaning.append(ranker.rank(query.text, DEPTH))
        took.append((time.process_time() - began) * 1e3)
    found = {weight: _ranks(corpus.asked, words, meaning, weight) for weight in WEIGHTS}
    alone = _ranks(corpus.asked, [[]] * len(words), meaning, 1.0)
    held = [10] * len(corpus.asked)
    chosen: list[str] = []
    groups = folds(corpus.asked)
    for group in groups:
        others = [at for other in groups if other is not group for at in other]
        best = max(WEIGHTS, key=lambda weight: (_share(found[weight], 1, others), -weight))
        chosen.append(f"{best:g}")
        for at in group:
            held[at] = found[best][at]
    rows = [
        Row(what, f"hit@{top}", _share(ranks, top), "", note=note)
        for what, ranks, note in (
            ("words alone", found[0.0], ""),
            ("meaning alone", alone, ""),
            *((f"weight {weight:g}", found[weight], "") for weight in WEIGHTS if weight),
            ("weight from 5 folds", held, f"weights {', '.join(chosen)}"),
        )
        for top in TOP
    ]
    return [
        *rows,
        Row("vectors", "made", made, "s"),
        Row("vectors", "on disk", os.path.getsize(cache) / 1e6, "MB"),
        Row("a query by meaning", "p50", statistics.median(took), "ms"),
        Row("a query by meaning", "p99", sorted(took)[int(len(took) * 0.99)], "ms"),
    ]


def _ranks(asked: Sequence[Query], words: list[Ranking], meaning: list[Ranking], weight: float) -> list[int]:
    ranks: list[int] = []
    for query, ours, theirs in zip(asked, words, meaning, strict=True):
        keys = [key for key, _ in fuse([(1.0, ours), (weight, theirs)], 10)]
        ranks.append(next((at for at, key in enumerate(keys) if key in query.expected), 10))
    return ranks


def _share(ranks: Sequence[int], top: int, chosen: Sequence[int] | None = None) -> float:
    counted = list(ranks) if chosen is None else [ranks[at] for at in chosen]
    return sum(rank < top for rank in counted) / len(counted)
