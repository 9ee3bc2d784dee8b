"""Other ways to rank the same documents, as they come: the peers of the benchmarks on search."""

import math
import re
import sqlite3
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import tantivy

from metier.search.documents import IndexedSkill

Search = Callable[[str, int], list[str]]
"""A query and how many answers are wanted, to the keys of the documents, the best first."""


def tantivy_bm25(documents: Sequence[IndexedSkill]) -> Search:
    """BM25 of the engine with English stems; name, description, keywords, body and references of equal weight."""
    fields = ("name", "description", "keywords", "body", "references")
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("key", stored=True, tokenizer_name="raw")
    for field in fields:
        builder.add_text_field(field, tokenizer_name="en_stem")
    analyser = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple()).filter(tantivy.Filter.lowercase())
    analyse = analyser.filter(tantivy.Filter.stemmer("english")).build().analyze
    index = tantivy.Index(builder.build())
    writer = index.writer(256_000_000, 1)
    for one in documents:
        given = {"name": one.name, "description": one.description, "body": one.body}
        given["references"] = "\n".join(text for _, text in one.references)
        writer.add_document(tantivy.Document(key=one.key, keywords=" ".join(one.keywords), **given))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    schema, searcher = index.schema, index.searcher()

    def search(query: str, limit: int) -> list[str]:
        asked = [
            (tantivy.Occur.Should, tantivy.Query.term_query(schema, field, term))
            for term in analyse(query)
            for field in fields
        ]
        found = searcher.search(tantivy.Query.boolean_query(asked), limit, count=False).hits if asked else []
        return [str(searcher.doc(address).get_first("key")) for _, address in found]

    return search


def sqlite_fts5(documents: Sequence[IndexedSkill]) -> Search:
    """SQLite's full-text search with Porter's stems and the weights 10, 5 and 1, in memory."""
    base = sqlite3.connect(":memory:")
    base.execute("create virtual table t using fts5(key unindexed, name, about, body, tokenize='porter unicode61')")
    rows = ((one.key, one.name, " ".join((one.description, *one.keywords)), one.body) for one in documents)
    base.executemany("insert into t values (?, ?, ?, ?)", rows)
    base.commit()

    def search(query: str, limit: int) -> list[str]:
        asked = " OR ".join(f'"{word}"' for word in dict.fromkeys(re.findall(r"\w+", query.lower())))
        sql = "select key from t where t match ? order by bm25(t, 0, 10, 5, 1), key limit ?"
        return [row[0] for row in base.execute(sql, (asked, limit))] if asked else []

    return search


def python_bm25(documents: Sequence[IndexedSkill]) -> Search:
    """BM25 over one bag of words, in plain Python."""
    postings: dict[str, tuple[array[int], array[int]]] = defaultdict(lambda: (array("I"), array("H")))
    lengths = array("I")
    for at, one in enumerate(documents):
        text = " ".join((one.name, one.description, *one.keywords, one.body)).lower()
        found = re.findall(r"\w+", text)
        lengths.append(len(found))
        for word, count in Counter(found).items():
            which, how_often = postings[word]
            which.append(at)
            how_often.append(min(count, 65535))
    mean = sum(lengths) / len(lengths)
    norms = [1.2 * (0.25 + 0.75 * length / mean) for length in lengths]
    keys = [one.key for one in documents]

    def search(query: str, limit: int) -> list[str]:
        scores: dict[int, float] = defaultdict(float)
        for word in dict.fromkeys(re.findall(r"\w+", query.lower())):
            which, how_often = postings.get(word, (array("I"), array("H")))
            idf = math.log(1 + (len(keys) - len(which) + 0.5) / (len(which) + 0.5))
            for at, count in zip(which, how_often, strict=True):
                scores[at] += idf * count * 2.2 / (count + norms[at])
        best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:limit]
        return [keys[at] for at, _ in best]

    return search
