"""The text index: the same result after any history, and no harm if its folder is damaged."""

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forking
from metier.search import index as module
from metier.search import parts
from metier.search.documents import IndexedSkill
from metier.search.index import Scored, TextIndex
from metier.search.parts import IndexBusy, IndexUnavailable, PartFolder
from metier.search.plan import FITS

TEXT = """
    pdf form table release notes changelog deploy kubernetes cluster invoice spreadsheet chart query schema database
    image resize crop audio transcript meeting summary translate glossary lint typescript python package docker build
"""
VOCABULARY = TEXT.split()
QUERIES = [
    "pdf form",
    "deploy a python package",
    "invoice spreadsheet chart",
    "meeting summary",
    "lint",
    "glossry",
    "x",
]


def document(key: str, description: str = "", body: str = "", name: str = "", stamp: str = "1") -> IndexedSkill:
    return IndexedSkill(key=key, name=name or key, description=description, body=body, stamp=stamp)


def some(count: int, seed: int = 1) -> list[IndexedSkill]:
    rng = random.Random(seed)

    def text(size: int) -> str:
        return " ".join(rng.choices(VOCABULARY, k=size))

    made = [document(f"key-{at:03}", text(12), text(60), text(2).replace(" ", "-")) for at in range(count)]
    return [with_files(one, text(9), text(30)) if at % 3 else one for at, one in enumerate(made)]


def with_files(of: IndexedSkill, *texts: str) -> IndexedSkill:
    return replace(of, references=tuple((f"references/{at}.md", text) for at, text in enumerate(texts)))


def filled(*documents: IndexedSkill, folder: Path | None = None) -> TextIndex:
    index = TextIndex.open(str(folder) if folder else None)
    index.update(documents)
    return index


Answer = tuple[list[Scored], dict[str, tuple[str, ...]], dict[str, str]]


def answers(index: TextIndex, queries: Sequence[str] = QUERIES) -> list[Answer]:
    found: list[Answer] = []
    for query in queries:
        hits = index.search(query, 8)
        keys = [hit.key for hit in hits]
        found.append((hits, index.matched(query, keys), index.files(query, keys)))
    return found


def keys(index: TextIndex, query: str, limit: int = 8) -> list[str]:
    return [hit.key for hit in index.search(query, limit)]


# --- what is found ---


def test_a_name_says_more_than_a_description_and_a_description_more_than_a_body() -> None:
    index = filled(
        document("body", "Something else.", "It mentions invoices."),
        document("about", "Reads invoices."),
        document("named", "Something else.", name="invoices"),
        document("none", "Something else."),
    )
    assert keys(index, "invoice") == ["named", "about", "body"]


def test_neighbouring_words_count_more_than_scattered_ones() -> None:
    index = filled(
        document("apart", "Quality of code in general, and later a review."),
        document("together", "Quality in general, and later a code review of."),
    )
    assert keys(index, "code review") == ["together", "apart"]


def test_keywords_are_searched_like_the_description() -> None:
    index = filled(
        IndexedSkill(key="a", name="a", description="One thing.", keywords=("ledger",), stamp="1"),
        document("b", "Another thing."),
    )
    assert keys(index, "ledger") == ["a"]


def test_only_allowed_keys_are_found_however_many_others_fit_better() -> None:
    documents = [document(f"better-{at:02}", "invoice invoice invoice") for at in range(60)]
    index = filled(*documents, document("worse", "One invoice among many other words that say little."))
    assert [hit.key for hit in index.search("invoice", 3, allowed={"worse"}.__contains__)] == ["worse"]
    assert index.search("invoice", 3, allowed=lambda key: False) == []


def test_thirty_words_of_a_query_are_all_told() -> None:
    rare = [f"{chr(97 + at // 26)}{chr(97 + at % 26)}book" for at in range(30)]
    index = filled(document("a", " ".join(rare)), document("b", "Other."))
    assert set(index.matched(" ".join(rare), ["a"])["a"]) == set(rare)


def test_a_known_word_is_never_taken_for_the_misspelling_of_a_name() -> None:
    index = filled(document("text", "Edits prose.", name="text"), document("other", "Runs every test.", name="runner"))
    assert keys(index, "test") == ["other"]


def test_how_often_a_word_comes_that_most_documents_have_does_not_count() -> None:
    index = filled(*(document(f"key-{at:03}", "An office.", "office " * at, "same") for at in range(320)))
    assert keys(index, "office", 4) == ["key-000", "key-001", "key-002", "key-003"]
    few = filled(*(document(f"key-{at:03}", "An office.", "office " * at, "same") for at in range(40)))
    assert keys(few, "office", 4) != ["key-000", "key-001", "key-002", "key-003"]


def test_a_word_that_every_one_of_a_few_documents_has_still_finds_them() -> None:
    index = filled(*(document(f"key-{at}", "Counts zebras in a herd.") for at in range(5)))
    assert [hit.score >= FITS for hit in index.search("count zebras", 8)] == [True] * 5


# --- the same answer ---


def test_a_score_depends_on_what_is_there_and_not_on_how_it_came(tmp_path: Path) -> None:
    final = some(60)
    fresh = answers(filled(*final))
    for seed in range(4):
        rng = random.Random(seed)
        index = TextIndex.open(str(tmp_path / str(seed)))
        index.update([document(one.key, "An old pdf chart.", "Old text.", "old") for one in rng.sample(final, 25)])
        index.update(document(f"gone-{at}", "deploy a meeting summary") for at in range(10))
        shuffled = rng.sample(final, len(final))
        for start in range(0, len(shuffled), 20):
            index.update(shuffled[start : start + 20], [f"gone-{start // 20}"])
        index.update([], [f"gone-{at}" for at in range(10)])
        assert answers(index) == fresh
        assert answers(TextIndex.open(str(tmp_path / str(seed)))) == fresh


_KEYS = st.sampled_from(["a", "b", "c", "d"])
_TEXTS = st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=6).map(" ".join)
_STEPS = st.lists(st.tuples(st.dictionaries(_KEYS, _TEXTS, max_size=3), st.sets(_KEYS, max_size=2)), max_size=4)


@settings(max_examples=25)
@given(_STEPS)
def test_any_history_gives_the_answers_of_a_fresh_index(steps: list[tuple[dict[str, str], set[str]]]) -> None:
    index = TextIndex.open(None)
    there: dict[str, str] = {}
    for changed, removed in steps:
        index.update([with_files(document(key), text) for key, text in changed.items()])
        index.update([with_files(document(key, text), text[::-1], text) for key, text in changed.items()], removed)
        there = {key: text for key, text in (there | changed).items() if key not in removed or key in changed}
    fresh = filled(*(with_files(document(key, text), text[::-1], text) for key, text in sorted(there.items())))
    assert index.stamps() == fresh.stamps()
    assert answers(index) == answers(fresh)


# --- hostile queries ---


@settings(max_examples=60)
@given(st.text(st.characters(exclude_categories=()), max_size=60))
def test_no_text_raises_as_document_or_as_query(text: str) -> None:
    index = filled(IndexedSkill(key="key", name=text, description=text, keywords=(text,), body=text, stamp="1"))
    index.search(text, 3)
    index.matched(text, ["key"])


# --- the folder ---


@pytest.mark.parametrize("count", [20, 60])
@pytest.mark.parametrize(
    "damage", ["manifest", "no-manifest", "keys", "meta", "no-meta", "segments", "garbage", "gone"]
)
def test_a_damaged_index_is_replaced_or_refused_and_never_believed(tmp_path: Path, damage: str, count: int) -> None:
    """Twenty skills are one file, and sixty a folder of the engine's files."""
    filled(*some(count), folder=tmp_path)
    folder = next(tmp_path.glob("text-*"))
    (part,) = [*folder.glob("small-*"), *folder.glob("large-*")]
    if damage.endswith("manifest"):
        (folder / "parts").write_bytes(b"\xff../../etc\n") if damage == "manifest" else (folder / "parts").unlink()
    elif damage == "gone" or not part.is_dir():
        shutil.rmtree(part) if part.is_dir() else part.write_bytes(part.read_bytes()[: -len(damage)])
    elif damage == "keys":
        (part / "keys").write_bytes(os.urandom(50))
    elif damage == "meta":
        (part / "meta.json").write_text("{broken")
    elif damage == "no-meta":
        (part / "meta.json").unlink()
    else:
        for file in part.iterdir():
            if file.suffix in (".idx", ".term", ".store"):
                file.write_bytes(b"" if damage == "segments" else os.urandom(50))
    try:
        index = TextIndex.open(str(tmp_path))
        assert index.stamps() == {} or answers(index) == answers(filled(*some(count)))
    except IndexUnavailable:
        index = TextIndex.open(str(tmp_path / "anew"))
    index.update(some(count))
    assert answers(index) == answers(filled(*some(count)))


def test_a_place_that_cannot_be_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(IndexUnavailable, match="search index"):
        TextIndex.open(str(tmp_path / "file"))


def test_a_folder_that_vanishes_while_it_is_open_is_refused(tmp_path: Path) -> None:
    index = filled(*some(5), folder=tmp_path)
    shutil.rmtree(tmp_path)
    with pytest.raises(IndexUnavailable):
        index.update(some(6))


def test_an_update_that_fails_in_the_middle_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(*some(10), folder=tmp_path)
    before = answers(index)

    def changed() -> Sequence[IndexedSkill]:
        raise OSError("the disk went away")

    def half(documents: Sequence[IndexedSkill]) -> object:
        yield from documents
        changed()

    with pytest.raises(IndexUnavailable, match="went away"):
        index.update(half([document("new", "pdf form pdf form")]), ["key-001"])  # pyright: ignore[reportArgumentType]
    assert answers(index) == before
    index.update([document("new", "pdf")])
    assert "new" in index.stamps()


# --- other processes ---


def python(code: str, *arguments: str) -> "subprocess.Popen[str]":
    head = "import os, signal, sys\nfrom metier.search import index as module\n"
    head += "from metier.search.index import *\nfrom metier.search.parts import IndexBusy\n"
    return forking.start([sys.executable, "-c", head + code, *arguments], stdout=subprocess.PIPE, text=True)


@pytest.mark.system
def test_two_processes_write_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    code = (
        "index = TextIndex.open(sys.argv[1])\n"
        "for at in range(6):\n"
        "    one = IndexedSkill(key=f'{sys.argv[2]}-{at}', name='n', description='pdf', stamp='1')\n"
        "    while True:\n"
        "        try:\n"
        "            index.update([one])\n"
        "            break\n"
        "        except IndexBusy: pass\n"
    )
    writers = [python(code, str(tmp_path), name) for name in ("one", "two")]
    assert [writer.wait() for writer in writers] == [0, 0]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.close()
    index = TextIndex.open(str(tmp_path))
    assert set(index.stamps()) == {f"{name}-{at}" for name in ("one", "two") for at in range(6)}


def test_what_another_process_wrote_is_seen_after_a_refresh(tmp_path: Path) -> None:
    reader = filled(document("a", "pdf"), folder=tmp_path)
    writer = TextIndex.open(str(tmp_path))
    writer.update([document("b", "pdf")], ["a"])
    reader.refresh()
    assert keys(reader, "pdf") == ["b"]


def test_while_another_writes_an_update_gives_up_and_no_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(document("a", "pdf"), folder=tmp_path)
    monkeypatch.setattr(parts, "LOCK_PATIENCE", 0.0)
    with PartFolder(str(next(tmp_path.glob("text-*")))).locked(), pytest.raises(IndexBusy):
        index.update([document("b", "pdf")])
    assert keys(index, "pdf") == ["a"]
    index.update([document("b", "pdf")])
    assert keys(index, "pdf") == ["a", "b"]


@pytest.mark.system
def test_a_process_that_is_killed_in_the_middle_leaves_the_last_complete_update(tmp_path: Path) -> None:
    documents = some(20)
    before = answers(filled(*documents, folder=tmp_path))
    code = (
        "index = TextIndex.open(sys.argv[1])\n"
        "def dying():\n"
        "    for at in range(300):\n"
        "        yield IndexedSkill(key=f'new-{at}', name='n', description='pdf form ' + 'word ' * at, stamp='1')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "index.update(dying(), ['key-001', 'key-002'])\n"
    )
    dying = python(code, str(tmp_path))
    dying.communicate()
    assert dying.returncode == -signal.SIGKILL
    index = TextIndex.open(str(tmp_path))
    assert index.stamps() == {one.key: "1" for one in documents}
    assert answers(index) == before
    index.update([document("later", "zebra")])
    assert keys(index, "zebra") == ["later"]


def test_what_is_remembered_of_queries_changes_no_answer_and_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(*some(60))
    other = {"lint": {"docker": "docker"}}
    plain, widened = index.search("lint", 60), index.search("lint", 60, aliases=other)
    assert len(widened) > len(plain)
    assert index.search("docker", 60) != index.search("lint", 60) == plain
    assert index.matched("lint", [one.key for one in plain]).keys() == {one.key for one in plain}
    assert index.search("lint", 60, aliases=other) == widened
    before = answers(index)
    monkeypatch.setattr(module, "_REMEMBERED", 3)
    tight = filled(*some(60))
    assert answers(tight) == answers(tight) == before
    assert 0 < len(tight._view.clauses) <= 3
