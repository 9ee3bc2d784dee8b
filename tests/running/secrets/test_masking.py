"""What is masked, in one piece and in many."""

import json
import random
from urllib.parse import quote

import pytest

from metier.running.sandbox import Job, Outcome, ScriptRefused, WrittenFile
from metier.running.sandbox.fake import FakeRunner
from metier.running.sandbox.masked import MaskedRunner
from metier.running.secrets.masking import Mask, StreamMask

TOKEN = "ghp_16C7e42F292c6912E7"
MASK = Mask({"TOKEN": TOKEN})


def test_quotes_line_feeds_and_unicode_are_masked_as_programs_write_them() -> None:
    value = 'it\'s "a"\\\n\t<b>&東京 ☃/=+%'
    mask = Mask({"ODD": value})
    for text in (value, json.dumps(value), json.dumps(value, ensure_ascii=False), repr(value), ascii(value)):
        assert mask.text(f"{text} end") in ("[secret ODD] end", '"[secret ODD]" end', "'[secret ODD]' end"), text
    for text in (quote(value), quote(value, safe=""), quote(value).lower(), repr(value.encode())[2:-1]):
        assert mask.text(text) == "[secret ODD]"
    assert mask.text(f"'{value.replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}'") == "'[secret ODD]'", "as bash -x"


def test_only_values_are_changed() -> None:
    text = f"ghp_, {TOKEN[:-1]}, {TOKEN[::-1]}, \xff"
    assert MASK.text(text) == text
    assert Mask().text(TOKEN) == TOKEN
    assert MASK.value({"a": [TOKEN, 1, None], TOKEN: True}) == {
        "a": ["[secret TOKEN]", 1, None],
        "[secret TOKEN]": True,
    }
    assert TOKEN not in repr(MASK)


def test_the_longer_of_two_values_is_named() -> None:
    mask = Mask({"SHORT": TOKEN, "LONG": f"{TOKEN}-and-more"})
    assert mask.text(f"{TOKEN}-and-more {TOKEN}-and {TOKEN}") == "[secret LONG] [secret SHORT]-and [secret SHORT]"


def test_a_stream_in_any_pieces_is_the_same_as_the_whole() -> None:
    source = random.Random(7)
    for _ in range(150):
        values = ["".join(source.choices("abcdef", k=8)) for _ in range(3)]
        mask = Mask({f"V{n}": value for n, value in enumerate([*values, f"{values[0]}abc"])})
        pieces = [*values, *(value[: source.randint(1, 8)] for value in values), "x", " ", "\n", "é"]
        data = "".join(source.choices(pieces, k=12)).encode()
        stream, shown, at = StreamMask(mask), b"", 0
        while at < len(data):
            size = source.randint(1, 6)
            shown += stream.feed(data[at : at + size])
            at += size
        assert shown + stream.end(cut=False) == mask.data(data)


def test_what_cannot_be_a_value_does_not_wait() -> None:
    stream = StreamMask(MASK)
    assert stream.feed(b"progress 10%\n") == b"progress 10%\n"
    assert stream.feed(b"token: ghp_1") == b"token: "
    assert stream.feed(b"2\n") == b"ghp_12\n"
    assert stream.feed(TOKEN[:9].encode()) == b""
    assert stream.end(cut=True) == b"[secret TOKEN]", "the beginning of a value that a limit cut off"


def test_a_runner_gives_nothing_away() -> None:
    data = TOKEN.encode()
    files = (
        WrittenFile("a.txt", 30, "sha256:0", b"x " + data),
        WrittenFile("b.bin", 30, "sha256:0", b"\0" + data),
        WrittenFile(f"c-{TOKEN}", 1, "sha256:0", b"x"),
        WrittenFile("d.txt", 1, "sha256:0", b"x"),
    )
    inner = FakeRunner(
        {
            "s": Outcome(
                0, "exit", 1, data, data, files=files, left_out=(f"{TOKEN}: no",), notes=(TOKEN,), refused=(TOKEN,)
            )
        }
    )
    pieces: list[bytes] = []
    outcome = MaskedRunner(inner, MASK).run(Job("/x", "s", env={"TOKEN": TOKEN}), lambda _, piece: pieces.append(piece))
    assert TOKEN not in repr(outcome) + repr(pieces) + repr(inner.jobs)
    assert b"".join(pieces) == b"[secret TOKEN]" * 2
    assert [(file.path, file.data) for file in outcome.files] == [("a.txt", b"x [secret TOKEN]"), ("d.txt", b"x")]
    assert outcome.files[0].size == 16
    assert outcome.files[0].digest != files[0].digest
    assert outcome.files[1] is files[3]
    assert [text.split(":")[0] for text in outcome.left_out] == ["[secret TOKEN]", "b.bin", "c-[secret TOKEN]"]
    assert outcome.notes[1:] == ("the value of the secret TOKEN was masked in a.txt",)


def test_an_error_gives_nothing_away_and_the_end_of_the_output_is_passed_on() -> None:
    refusing = FakeRunner(default=ScriptRefused("s", "unreadable", f"cannot read {TOKEN}"))
    with pytest.raises(ScriptRefused, match=r"cannot read \[secret TOKEN\]"):
        MaskedRunner(refusing, MASK).run(Job("/x", "s"))
    pieces: list[bytes] = []
    runner = MaskedRunner(FakeRunner(default=Outcome(0, "exit", 1, b"it begins with ghp_1", b"")), MASK)
    runner.run(Job("/x", "s"), lambda _, piece: pieces.append(piece))
    assert pieces == [b"it begins with ", b"ghp_1"], "though it could have become a value"
