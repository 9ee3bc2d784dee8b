"""How long a ranked query takes, and what the index behind it costs: building, opening, one changed skill.

Documents are generated: 60 words of description, 700 of body, and 1,500 in two reference files of every other one, with
words about as frequent as in real text. A query has ten words, six of them from one description. Queries are measured
in CPU time of the thread that asks, the best of three each; updates in CPU time of the process and by the clock. The
first answer is that of names and descriptions, before anything is indexed.
"""

import itertools
import math
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Sequence

from metier.search.documents import IndexedSkill
from metier.search.index import TextIndex
from metier.search.quick import QuickSearch
from metier.values.skill import Root, Skill

from ..engines import python_bm25, sqlite_fts5, tantivy_bm25
from ..measure import Row
from ..options import Options

_SYLLABLES = ("ba", "ke", "ti", "no", "ru", "la", "me", "so", "vi", "da", "pu", "ge", "ri", "co", "ha", "lin", "tor")
_QUERIES = 200
_UPDATES = 100
_CLOCK = "by the clock, on a machine that may be busy"


def run(options: Options) -> list[Row]:
    sizes = [size for size in options.sizes if size <= 10_000 or options.full]
    return [row for size in sizes for row in _at(options, size)]


def _at(options: Options, size: int) -> list[Row]:
    what = f"{size:,} skills"
    texts = generated(size)
    queries = asked(texts)
    skills = [Skill(text.name, text.description, text.key, text.key, _ROOT, 0, 1, {}) for text in texts]
    first = min(
        _thread_cpu(lambda: QuickSearch(skills).search(queries[0], 10, lambda key: True)) for _ in range(options.rounds)
    )
    folder = os.path.join(options.workspace.path, f"index-{size}")
    index = TextIndex.open(folder)
    built = _cpu(lambda: index.update(texts))
    p50, p99 = latencies(lambda query: index.search(query, 10), queries)
    stored = sum(os.path.getsize(os.path.join(at, file)) for at, _, files in os.walk(folder) for file in files)
    opened = min(_thread_cpu(lambda: TextIndex.open(folder)) for _ in range(options.rounds)) * 1e3
    stamps = min(_thread_cpu(index.stamps) for _ in range(options.rounds)) * 1e3
    timed = [_both(lambda at=at: index.update([texts[at]])) for at in range(min(size, _UPDATES))]
    updates, worked = sorted(wall for wall, _ in timed), sorted(cpu for _, cpu in timed)
    after, _ = latencies(lambda query: index.search(query, 10), queries)
    shutil.rmtree(folder)
    rows = [
        Row(what, "metier p50", p50, "ms", at_most=1),
        Row(what, "metier p99", p99, "ms"),
        Row(what, "p50 after updates", after, "ms"),
        Row(what, "build", built),
        Row(what, "size on disk", stored / 1e6, "MB"),
        Row(what, "open", opened, "ms", at_most=5),
        Row(what, "compare with catalog", stamps, "ms"),
        Row(what, "first answer", first * 1e3, "ms", at_most=100 if size <= 10_000 else None),
        Row(what, "one update, p50", statistics.median(worked), "ms"),
        Row(what, "one update, p99", worked[int(len(worked) * 0.99)], "ms", at_most=50),
        Row(what, "one update, p50", statistics.median(updates), "ms", note=_CLOCK),
        Row(what, "one update, p99", updates[int(len(updates) * 0.99)], "ms", note=_CLOCK),
    ]
    for name, make in (("tantivy", tantivy_bm25), ("sqlite FTS5", sqlite_fts5), ("Python BM25", python_bm25)):
        began = time.process_time()
        search = make(texts)
        build = time.process_time() - began
        theirs, slow = latencies(
            lambda query, search=search: search(query, 10), queries[: 30 if size > 5_000 else None]
        )
        rows += [
            Row(what, f"{name} p50", theirs, "ms", theirs / p50, "metier"),
            Row(what, f"{name} p99", slow, "ms", slow / p99, "metier"),
            Row(what, f"{name} build", build, "s", build / built, "metier"),
        ]
        if name == "tantivy":
            rows.append(Row(what, "build, times tantivy", built / build, "", at_most=4))
    return rows


def generated(count: int, seed: int = 7) -> list[IndexedSkill]:
    rng = random.Random(seed)
    vocabulary = ["".join(rng.choices(_SYLLABLES, k=rng.randint(2, 4))) + str(at % 7) for at in range(30_000)]
    weights = list(itertools.accumulate(1 / (at + 8) for at in range(len(vocabulary))))

    def text(size: int) -> str:
        return " ".join(rng.choices(vocabulary, cum_weights=weights, k=size))

    return [
        IndexedSkill(
            key=f"skills/s{at}/SKILL.md",
            name=text(3).replace(" ", "-"),
            description=text(60),
            body=text(700),
            references=(("references/a.md", text(750)), ("references/b.md", text(750))) if at % 2 else (),
            stamp="1",
        )
        for at in range(count)
    ]


def asked(texts: Sequence[IndexedSkill], seed: int = 9) -> list[str]:
    rng = random.Random(seed)
    queries: list[str] = []
    for _ in range(_QUERIES):
        about, other = rng.choice(texts), rng.choice(texts)
        queries.append(" ".join([*rng.sample(about.description.split(), 6), *rng.sample(other.body.split(), 4)]))
    return queries


def latencies(search: Callable[[str], object], queries: Sequence[str]) -> tuple[float, float]:
    """Median and 99th percentile of the queries' times, in milliseconds."""
    for query in queries[:20]:
        search(query)
    best = [math.inf] * len(queries)
    for _ in range(3):  # all of them again, because what is known of the last query must not count
        for at, query in enumerate(queries):
            began = time.thread_time()
            search(query)
            best[at] = min(best[at], time.thread_time() - began)
    best.sort()
    return best[len(best) // 2] * 1e3, best[int(len(best) * 0.99)] * 1e3


_ROOT = Root("/skills", "repo", "agents")


def _thread_cpu(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def _both(work: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds by the clock, and of the process."""
    clock, cpu = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - clock) * 1e3, (time.process_time() - cpu) * 1e3


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
