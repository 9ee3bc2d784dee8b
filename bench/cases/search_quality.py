"""Does search find the right one of some 7,000 public skills? Real requests, none of which says the skill's name.

The two settings that can be varied at query time are chosen on four groups of repositories and scored on the fifth, so
that tuning and scoring never share a repository; no query's repository is ever looked at by search. False alarms: a
skill that the request rules out and that is still first; requests whose whole repository is hidden; small talk.
"""

import itertools
import os
import random
from collections.abc import Callable, Mapping, Sequence

from metier.search import plan as rules
from metier.search.documents import IndexedSkill
from metier.search.finder import TAIL
from metier.search.index import TextIndex
from metier.search.plan import FITS
from metier.search.reading import TextSource, indexed_skills, with_references
from metier.search.words import aliases

from ..corpus import Corpus, Query, absent, corpus_of, folds
from ..engines import Search, sqlite_fts5, tantivy_bm25
from ..measure import Row
from ..options import Options

GOALS: Mapping[int, float] = {1: 0.82, 5: 0.96, 10: 0.98}
ALIASES = aliases(True, ())
GRID = tuple(itertools.product((0.25, 0.5, 0.75), (0.0, 0.15, 0.25)))
"""Shares of whole words and of pairs."""
EVERY_FIFTH = "FTS5 takes a tenth of a second a query, so it gets every fifth one"
HIDDEN = "other repositories often have a skill that fits as well, so this overstates"
SMALL_TALK = os.path.join(os.path.dirname(__file__), "..", "small_talk.txt")
"""Sentences in our own words that no skill is for, from one word to a pasted letter."""
LENGTHS = ((1, 4), (5, 20), (21, 50), (51, 100), (101, 10_000))
"""Words of a request."""

Ranks = list[int]
"""Where the first expected skill stands, counted from zero; 10 if it is not among the first ten."""


def run(options: Options) -> list[Row]:
    corpus = corpus_of(options)
    if corpus is None:
        return absent(options)
    texts = list(indexed_skills(list(with_references(map(TextSource.of, corpus.skills)))))
    index = TextIndex.open(None)
    index.update(texts)

    def ours(query: str, limit: int) -> list[str]:
        return [one.key for one in index.search(query, limit, aliases=ALIASES)]

    def returned(query: str, limit: int) -> list[str]:
        found = index.search(query, limit, aliases=ALIASES)
        return [one.key for one in found if one.score >= TAIL * found[0].score]

    asked = corpus.asked
    rows = _hits("", "tantivy plain", _ranks(tantivy_bm25(texts), asked))
    ranks = _ranks(ours, asked)
    tuned = _grid(ours, asked)
    rows += _hits("", "metier as kept", ranks)
    rows += _hits("", "metier 5 folds", _held_back(tuned, asked), GOALS)
    rows += _hits("", "as returned", _ranks(returned, asked))
    rows += _hits("every fifth", "sqlite FTS5", _ranks(sqlite_fts5(texts), asked[::5]), note=EVERY_FIFTH)
    rows += _hits("every fifth", "metier", ranks[::5], note=EVERY_FIFTH)
    rows += _grouped(asked, ranks, lambda query: query.kind)
    rows += _grouped(asked, ranks, _length)
    rows += _own_repository(corpus, index, asked)
    rows += _with_context(corpus, index, asked)
    rows += _grouped(asked, ranks, lambda query: query.repo.split("/")[0])
    repositories = sorted({query.repo for query in asked})
    for k in GOALS:
        mean = sum(_share(ranks, k, [q.repo == repo for q in asked]) for repo in repositories) / len(repositories)
        rows.append(Row("mean of repositories", f"metier, hit@{k}", mean, ""))
    return rows + _alarms(corpus, index, ranks) + _small(corpus, texts)


def _ranks(search: Search, queries: Sequence[Query]) -> Ranks:
    found = (search(query.text, 10) for query in queries)
    return [
        next((at for at, key in enumerate(keys) if key in query.expected), 10)
        for keys, query in zip(found, queries, strict=True)
    ]


def _share(ranks: Ranks, k: int, chosen: Sequence[bool] | None = None) -> float:
    counted = ranks if chosen is None else [rank for rank, yes in zip(ranks, chosen, strict=True) if yes]
    return sum(rank < k for rank in counted) / max(1, len(counted))


def _hits(what: str, who: str, ranks: Ranks, goals: Mapping[int, float] | None = None, note: str = "") -> list[Row]:
    return [
        Row(
            what or f"all {len(ranks):,}", f"{who} @{k}", _share(ranks, k), "", at_least=(goals or {}).get(k), note=note
        )
        for k in GOALS
    ]


def _grouped(asked: Sequence[Query], ranks: Ranks, key: Callable[[Query], str]) -> list[Row]:
    rows: list[Row] = []
    for value in sorted({key(query) for query in asked}):
        some = [rank for rank, query in zip(ranks, asked, strict=True) if key(query) == value]
        rows += _hits(f"{value[:15]} {len(some):,}", "metier", some)
    return rows


def _length(query: Query) -> str:
    return _length_of(query.text)


def _length_of(text: str) -> str:
    words = len(text.split())
    low, high = next(pair for pair in LENGTHS if words <= pair[1])
    return f"{low:03}-{high:03} words" if high < 10_000 else f"{low:03} words up"


def _own_repository(corpus: Corpus, index: TextIndex, asked: Sequence[Query]) -> list[Row]:
    """Each request to the skills of its own repository alone."""
    ranks: Ranks = []
    for query in asked:
        within = _within(corpus.folder_of(query.repo))
        found = index.search(query.text, 10, allowed=within, aliases=ALIASES)
        ranks.append(next((at for at, one in enumerate(found) if one.key in query.expected), 10))
    return _hits("own repository", "metier", ranks)


def _with_context(corpus: Corpus, index: TextIndex, asked: Sequence[Query]) -> list[Row]:
    """The same with three other requests of the repository as the context, none of them for the same skill."""
    rng = random.Random(5)
    near: dict[str, list[Query]] = {}
    for query in asked:
        near.setdefault(query.repo, []).append(query)
    everywhere: Ranks = []
    own: Ranks = []
    for query in asked:
        others = [other for other in near[query.repo] if not other.expected & query.expected]
        context = "\n".join(other.text for other in rng.sample(others, min(3, len(others))))
        for ranks, within in ((everywhere, None), (own, _within(corpus.folder_of(query.repo)))):
            found = index.search(query.text, 10, allowed=within, aliases=ALIASES, context=context)
            ranks.append(next((at for at, one in enumerate(found) if one.key in query.expected), 10))
    return [*_hits("with context", "metier", everywhere), *_hits("own, with context", "metier", own)]


def _grid(search: Search, asked: Sequence[Query]) -> dict[tuple[float, float], Ranks]:
    """The ranks under each setting; the module's own settings are as before when this returns."""
    kept = rules.WORD_SHARE, rules.PAIR_SHARE
    found: dict[tuple[float, float], Ranks] = {}
    try:
        for setting in GRID:
            _set(setting)
            found[setting] = _ranks(search, asked)
    finally:
        _set(kept)
    return found


def _set(shares: tuple[float, float]) -> None:
    for name, share in zip(("WORD_SHARE", "PAIR_SHARE"), shares, strict=True):
        setattr(rules, name, share)


def _held_back(tuned: Mapping[tuple[float, float], Ranks], asked: Sequence[Query]) -> Ranks:
    ranks: Ranks = []
    for fold in folds(asked):
        held = set(fold)
        others = [at for at in range(len(asked)) if at not in held]
        best = max(tuned, key=lambda setting: sum(_share([tuned[setting][at] for at in others], k) for k in GOALS))
        ranks += [tuned[best][at] for at in fold]
    return ranks


# --- false alarms ---


def _within(folder: str) -> Callable[[str], bool]:
    return lambda key: key.startswith(folder)


def _outside(folder: str) -> Callable[[str], bool]:
    return lambda key: not key.startswith(folder)


def _alarms(corpus: Corpus, index: TextIndex, ranks: Ranks) -> list[Row]:
    def first(query: str, allowed: Callable[[str], bool] | None = None) -> tuple[float, str]:
        found = index.search(query, 1, allowed=allowed, aliases=ALIASES)
        return (found[0].score, found[0].key) if found else (0.0, "")

    refused = [query for query in corpus.queries if query.negative_for]
    answered = [(*first(query.text), query.negative_for) for query in refused]
    wrong = [score for score, key, never in answered if key == never]
    right = [
        (first(query.text)[0], _length(query)) for query, rank in zip(corpus.asked, ranks, strict=True) if rank == 0
    ]
    hidden = [first(query.text, _outside(corpus.folder_of(query.repo)))[0] for query in corpus.asked]
    with open(SMALL_TALK, encoding="utf-8") as lines:
        said = [(first(line)[0], _length_of(line)) for line in lines]
    talk = [score for score, _ in said]
    rows = [Row(f"ruled out, {len(refused)}", "still first", len(wrong) / max(1, len(refused)), "")]
    for threshold in sorted({0.45, FITS, 0.55, 0.6}):
        what = f"strong from {threshold:g}" + (" (kept)" if threshold == FITS else "")
        kept = threshold == FITS
        rows += [
            Row(what, "right answers", _reach([s for s, _ in right], threshold), "", at_least=0.95 if kept else None),
            Row(what, "repository hidden", _reach(hidden, threshold), "", note=HIDDEN),
            Row(what, f"small talk, {len(talk)}", _reach(talk, threshold), "", at_most=0.05 if kept else None),
            Row(what, "ruled out, first", sum(s >= threshold for s in wrong) / max(1, len(refused)), ""),
        ]
    for length in sorted({length for _, length in right}):
        some = [score for score, of in right if of == length]
        rows.append(Row(f"{length} {len(some):,}", "right and strong", _reach(some, FITS), ""))
        idle = [score for score, of in said if of == length]
        rows.append(Row(f"{length} {len(idle):,}", "small talk, strong", _reach(idle, FITS), ""))
    return rows


# --- small catalogs ---


def _small(corpus: Corpus, texts: Sequence[IndexedSkill]) -> list[Row]:
    """Most people have few skills: the same requests to catalogs drawn by chance, with and without the right skill."""
    by_key = {text.key: text for text in texts}
    rows: list[Row] = []
    for size in (10, 50, 250):
        rng = random.Random(size)
        first = fits = absent = asked = 0
        for _ in range(30):
            queries = rng.sample(corpus.asked, 5)
            expected = {min(query.expected): by_key[min(query.expected)] for query in queries}
            others = [text for text in rng.sample(texts, size) if text.key not in expected]
            index = TextIndex.open(None)
            index.update([*expected.values(), *others[: size - len(expected)]])
            for query in queries:
                found = index.search(query.text, 1, aliases=ALIASES)
                right = bool(found) and found[0].key in query.expected
                first += right
                fits += right and found[0].score >= FITS
                elsewhere = index.search(query.text, 1, allowed=_outside(corpus.folder_of(query.repo)), aliases=ALIASES)
                absent += bool(elsewhere) and elsewhere[0].score >= FITS
                asked += 1
        what = f"{size} skills, by chance"
        rows += [
            Row(what, "right one first", first / asked, ""),
            Row(what, "and it fits", fits / asked, ""),
            Row(what, "absent, answered", absent / asked, "", note=HIDDEN),
        ]
    return rows


def _reach(scores: Sequence[float], threshold: float) -> float:
    return sum(score >= threshold for score in scores) / max(1, len(scores))
