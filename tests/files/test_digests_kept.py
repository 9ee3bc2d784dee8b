"""Digests that are kept are those of the content, whatever object it is in, and ids are never used twice."""

import hashlib
import os

import pytest

from metier.files.digests import artifact_of, digest_of
from metier.record.writer import random_ids


def plain(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_a_kept_digest_is_never_that_of_another_content() -> None:
    changing = bytearray(b"a" * 5_000)
    for number in range(1_000):  # objects come and go, so identities are used again
        content, text = b"%d " % number * 700, f"{number} é" * 700
        changing[:4] = b"%4d" % number
        for _ in range(2):
            assert digest_of(content) == plain(content)
            assert digest_of(changing) == plain(bytes(changing))  # pyright: ignore[reportArgumentType]
            assert artifact_of(text) == (plain(text.encode()), text.encode())


def test_a_text_that_utf_8_cannot_carry_is_an_artifact_with_question_marks() -> None:
    text = "half a pair \ud800" * 100
    for _ in range(2):
        digest, data = artifact_of(text)
        assert data == b"half a pair ?" * 100
        assert digest == plain(data)


@pytest.mark.system
def test_ids_sort_by_time_and_a_fork_uses_none_of_its_parent() -> None:
    ids = [random_ids() for _ in range(1_000)]
    assert sorted(ids) == ids
    assert {len(one) for one in ids} == {32}
    random_ids()  # so that some random digits are drawn ahead
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, " ".join(random_ids()[16:] for _ in range(100)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        of_child = told.read().split()
    assert os.waitpid(child, 0)[1] == 0
    of_parent = [random_ids()[16:] for _ in range(100)]
    digits = [*(one[16:] for one in ids), *of_child, *of_parent]
    assert len(set(digits)) == len(digits) == 1_200
