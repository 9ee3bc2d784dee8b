"""Ranks skills by meaning, with any embedding model of Pydantic AI, a local file or a model of your own.

A vector is made once for a text and a model and kept in a file, so that only new descriptions cost anything. It needs
`metier[embeddings]`. For a model in a local ONNX file, see `onnx_embedding`.

    from metier import Skills
    from metier.adapters.embeddings import WEIGHT, EmbeddingRanker

    ranker = EmbeddingRanker("openai:text-embedding-3-small", cache="vectors.sqlite")
    skills = Skills.discover(rankers=[(WEIGHT, ranker)])
"""

import asyncio
import contextlib
import functools
import hashlib
import heapq
import os
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

import numpy as np

from metier.search import OVERLAP, CatalogRanker, Ranker, fuse
from metier.skills import Skills
from metier.values.skill import Skill

if TYPE_CHECKING:
    from pydantic_ai.embeddings import EmbeddingModel

WEIGHT: Final = 0.1
"""A weight to begin with, where the ranking by words has 1.0. `learned_weight` finds the one for your requests."""
WEIGHTS: Final = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5)
FLOOR: Final = 0.2
"""Vectors of texts that have nothing in common still have about this similarity, so it counts as none."""

_BATCH: Final = 64
_LONGEST: Final = 2_000

T = TypeVar("T")
Vectors = Sequence[Sequence[float]]


class Embedding(Protocol):
    """Turns texts into vectors. The same text gets the same vector."""

    @property
    def name(self) -> str:
        """What tells its vectors from those of other models."""
        ...

    def documents(self, texts: Sequence[str]) -> Vectors:
        """The vectors of descriptions."""
        ...

    def query(self, text: str) -> Sequence[float]:
        """The vector of a query."""
        ...


class EmbeddingRanker:
    """A `Ranker` by the similarity of a query to name and description of each skill.

    It says in which order skills fit, not whether they do: a hit is strong only if its words are.
    """

    matches: Final = False

    def __init__(self, model: "str | EmbeddingModel | Embedding", *, cache: str | None = None) -> None:
        """`model` is a name such as `openai:text-embedding-3-small`, or a model; `cache` is a file for the vectors."""
        embeds = not isinstance(model, str) and callable(getattr(model, "documents", None))
        self._embedding: Embedding = cast("Embedding", model) if embeds else _PydanticEmbedding(model)
        self._cache = _VectorCache(cache or ":memory:")
        self._shown: tuple[list[str], Any] = ([], None)

    def sync(self, skills: Iterable[Skill]) -> None:
        """Make the vectors of new descriptions. `Skills` calls it before it ranks a changed catalog."""
        listed = sorted(skills, key=lambda skill: skill.path)
        texts = [f"{skill.name}. {skill.description}"[:_LONGEST] for skill in listed]
        vectors = self._cache.vectors(self._embedding.name, texts, self._embedding.documents)
        self._shown = [skill.path for skill in listed], _unit(vectors) if len(vectors) else None

    def rank(self, query: str, limit: int, /) -> list[tuple[str, float]]:
        """The skills that are nearest in meaning, with scores above zero."""
        paths, vectors = self._shown
        if vectors is None:
            return []
        asked = _unit(np.asarray([self._embedding.query(query[:_LONGEST])], dtype=np.float32))[0]
        near: list[float] = (vectors @ asked - FLOOR).tolist()
        best = heapq.nsmallest(limit, ((-score, path) for score, path in zip(near, paths, strict=True) if score > 0))
        return [(path, -score) for score, path in best]


def learned_weight(skills: Skills, ranker: Ranker, requests: Iterable[tuple[str, str]]) -> float:
    """The weight with which words and a ranker together put the right skill first most often, of `WEIGHTS`.

    `requests` are pairs of a request and the name of the skill that is right for it. `skills` must be without rankers.
    Of equal weights the smallest is returned, and 0.0 says that the ranker does not help.
    """
    if isinstance(ranker, CatalogRanker):
        ranker.sync(skills)
    gained = dict.fromkeys(WEIGHTS, 0.0)
    for request, name in requests:
        words = [(hit.skill.path, hit.score - OVERLAP) for hit in skills.search(request, limit=100).results]
        meaning = ranker.rank(request, 100)
        for weight in WEIGHTS:
            paths = [path for path, _ in fuse([(1.0, words), (weight, meaning)], 100)]
            right = skills[name].path
            gained[weight] += 1 / (1 + paths.index(right)) if right in paths else 0.0
    return max(WEIGHTS, key=lambda weight: (round(gained[weight], 9), -weight))


class _PydanticEmbedding:
    """A model of Pydantic AI."""

    def __init__(self, model: Any) -> None:
        from pydantic_ai import Embedder

        self._embedder = Embedder(model)
        self.name: str = model if isinstance(model, str) else f"{model.system}:{model.model_name}"

    def documents(self, texts: Sequence[str]) -> Vectors:
        return _result(self._embedder.embed_documents(list(texts))).embeddings

    def query(self, text: str) -> Sequence[float]:
        return _result(self._embedder.embed_query(text)).embeddings[0]


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """A loop in a thread of its own: clients of models belong to one loop, and a search may run inside another."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="metier-embeddings", daemon=True).start()
    return loop


os.register_at_fork(after_in_child=_loop.cache_clear)  # a fork has no such thread


def _result(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _loop()).result()


class _VectorCache:
    """Vectors by model and content in a SQLite file, which processes may share."""

    def __init__(self, file: str) -> None:
        self._lock = threading.Lock()
        self._base = sqlite3.connect(file, timeout=30, check_same_thread=False)
        with self._base:
            self._base.execute("create table if not exists vectors (digest blob primary key, vector blob)")

    def vectors(self, model: str, texts: Sequence[str], make: Callable[[Sequence[str]], Vectors]) -> Any:
        """The vector of each text, in order. Only those that the file lacks are made, and kept as soon as they are."""
        digests = [hashlib.sha256(f"{model}\0{text}".encode("utf-8", "replace")).digest() for text in texts]
        with self._lock:
            known = {digest: vector for digest in digests if (vector := self._stored(digest)) is not None}
            missing = {digest: text for digest, text in zip(digests, texts, strict=True) if digest not in known}
            wanted = sorted(missing, key=lambda digest: len(missing[digest]))  # a batch is as long as its longest text
            for start in range(0, len(wanted), _BATCH):
                some = wanted[start : start + _BATCH]
                made = np.asarray(make([missing[digest] for digest in some]), dtype=np.float32)
                rows = [(digest, vector.tobytes()) for digest, vector in zip(some, made, strict=True)]
                known.update(zip(some, made, strict=True))
                with contextlib.suppress(sqlite3.OperationalError), self._base:
                    self._base.executemany("insert or replace into vectors values (?, ?)", rows)
        return np.asarray([known[digest] for digest in digests], dtype=np.float32)

    def _stored(self, digest: bytes) -> Any:
        row = self._base.execute("select vector from vectors where digest = ?", (digest,)).fetchone()
        return None if row is None else np.frombuffer(row[0], dtype=np.float32)


def _unit(vectors: Any) -> Any:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)
