"""The scripts of the example skills: what they print for small inputs, and how they end.

Wrong input must end in one line that a person understands, never in a traceback. The Python scripts run in this
process, as if each were the program; those that start processes themselves are run as processes.
"""

import contextlib
import io
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

SKILLS = Path(__file__).resolve().parents[2] / "examples" / "skills"
COMMITS = "release-notes/scripts/group_commits.py"
CSV = "csv-profile/scripts/profile_csv.py"
REGEX = "regex-workbench/scripts/try_regex.py"
TIMELINE = "incident-timeline/scripts/timeline.py"
HTML = "accessible-html/scripts/check_html.py"
WRAPPER = "accessible-html/scripts/check.sh"


def run(script: str, *arguments: str, stdin: str | bytes = b"", code: int = 0) -> tuple[str, str]:
    """What a script prints on both streams. Its standard input is never a terminal."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    if script in (REGEX, WRAPPER):
        command = ["sh" if script == WRAPPER else sys.executable, str(SKILLS / script), *arguments]
        done = subprocess.run(command, input=data, capture_output=True, env={**os.environ, "PYTHON": sys.executable})
        status, out, err = done.returncode, done.stdout.decode(), done.stderr.decode()
    else:
        printed, told, status = io.BytesIO(), io.BytesIO(), 0
        streams = {"stdin": io.BufferedReader(io.BytesIO(data)), "stdout": printed, "stderr": told}
        with contextlib.ExitStack() as stack:
            texts = {name: io.TextIOWrapper(stream, encoding="utf-8", newline="") for name, stream in streams.items()}
            for name, text in texts.items():
                stack.enter_context(patch.object(sys, name, text))
            stack.enter_context(patch.object(sys, "argv", [script, *arguments]))
            try:
                runpy.run_path(str(SKILLS / script), run_name="__main__")
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 0
            for name in ("stdout", "stderr"):
                texts[name].flush()
        out, err = printed.getvalue().decode(), told.getvalue().decode()
    assert "Traceback" not in err, err
    assert status == code, f"{script} {arguments}: {status}\n{out}{err}"
    return out, err


def run_json(script: str, *arguments: str, stdin: str | bytes = b"", code: int = 0) -> Any:
    return json.loads(run(script, *arguments, stdin=stdin, code=code)[0])


def refuses(script: str, rows: Iterable[tuple[tuple[str, ...], str | bytes, str]]) -> None:
    """Each row of arguments and input ends with status 2, and a word that helps."""
    for arguments, stdin, word in rows:
        assert word in run(script, *arguments, stdin=stdin, code=2)[1], (arguments, stdin[:80])


@pytest.mark.parametrize("script", [COMMITS, CSV, TIMELINE, HTML, pytest.param(REGEX, marks=pytest.mark.system)])
def test_help_has_examples_and_wrong_use_is_an_error(script: str, tmp_path: Path) -> None:
    assert "examples:" in run(script, "--help")[0]
    rows: list[tuple[tuple[str, ...], str | bytes, str]] = [
        ((str(tmp_path / "missing"),), "", "missing: No such file"),
        ((str(tmp_path),), "", str(tmp_path)),
        (("--no-such-option",), "", "usage:"),
    ]
    rows += [(("-",), bytes(range(255, -1, -1)) * 8, "-")] if script not in (COMMITS, TIMELINE) else []
    refuses(script, rows)


# --- release-notes


def log(*commits: str) -> str:
    """What `git log` prints for messages, the newest first; hashes are made of the position."""
    parts: list[str] = []
    for number, message in enumerate(commits, 1):
        body = "\n".join(f"    {line}".rstrip() for line in message.split("\n"))
        parts.append(f"commit {hash_of(number)}\nAuthor: A <a@example.org>\nDate:   today\n\n{body}\n")
    return "\n".join(parts)


def hash_of(number: int) -> str:
    return f"{number:07x}" + "0" * 33


def grouped(text: str) -> tuple[dict[str, list[str]], Any]:
    """The entries by section, and everything else."""
    data = run_json(COMMITS, "--json", stdin=text)
    return {section["title"]: [entry["text"] for entry in section["entries"]] for section in data["sections"]}, data


def test_commits_are_grouped_and_those_that_are_no_news_are_counted() -> None:
    text = log("feat(cli): add --since", "fix: no crash", "docs: spelling", "chore: tidy", "Plain words")
    out, err = run(COMMITS, stdin=text)
    assert out.index("### Features") < out.index("### Fixes") < out.index("### Documentation")
    assert "- **cli:** add --since (0000001)" in out
    assert "### Other changes\n\n- Plain words (0000005)" in out
    assert ("tidy" in out, "internal 1 (--all lists them)" in err) == (False, True)
    assert "### Internal\n\n- tidy" in run(COMMITS, "--all", stdin=text)[0]

    sections, data = grouped(log("feat: x", "fix!: y\n\nWords.\n\nBREAKING CHANGE: set the path\nyourself\nCloses #7"))
    entry = data["sections"][0]["entries"][0]
    assert (next(iter(sections)), entry["notes"], entry["references"]) == (
        "Breaking changes", ["set the path yourself"], ["#7"],
    )  # fmt: skip

    sections, data = grouped(log("Merge branch 'x'", "fixup! fix: a", "fix: a", "fix: a"))
    left_out = {"merges": 1, "fixup commits": 1, "cancelled by reverts": 0, "same subject again": 1}
    assert (sections, data["left_out"], len(data["sections"][0]["entries"][0]["hashes"])) == (
        {"Fixes": ["a"]}, left_out, 2,
    )  # fmt: skip
    assert grouped("abc1234 (HEAD -> main, tag: v1) feat: a\nfix: b\n")[0] == {"Features": ["a"], "Fixes": ["b"]}
    assert grouped(log(f"fix: a\n\ncommit {hash_of(9)}\n\nfeat: b"))[0] == {"Fixes": ["a"]}


def test_reverts_cancel_what_they_revert() -> None:
    revert = f'Revert "feat: gone"\n\nThis reverts commit {hash_of(2)}.'
    sections, data = grouped(log(revert, "feat: gone", "feat: stays"))
    assert (sections, data["left_out"]["cancelled by reverts"]) == ({"Features": ["stays"]}, 2)
    again = f'Reapply "feat: x"\n\nThis reverts commit {hash_of(2)}.'
    newest_first = log(again, f'Revert "feat: x"\n\nThis reverts commit {hash_of(3)}.', "feat: x")
    for text in (newest_first, "\n".join(reversed(re.split(r"\n(?=commit )", newest_first)))):
        assert grouped(text)[0] == {"Features": ["x"]}
    outside = log('Revert "feat: old"\n\nThis reverts commit fffffff.')
    assert grouped(outside)[0] == {"Reverts": ['Revert "feat: old"']}


def test_the_next_version_links_and_markup() -> None:
    for subject, current, expected in (
        ("feat!: x", "1.4.2", "2.0.0"), ("feat!: x", "0.4.2", "0.5.0"), ("feat: x", "v1.4.2", "1.5.0"),
        ("fix: x", "1.4.2", "1.4.3"), ("chore: x", "1.4.2", "1.4.2"),
    ):  # fmt: skip
        assert run_json(COMMITS, "--json", "--current", current, stdin=log(subject))["next"] == expected, subject
    out, _ = run(COMMITS, "--url", "https://example.org/p/", stdin=log("fix: x (#12)"))
    assert "[#12](https://example.org/p/issues/12)" in out
    assert f"[0000001](https://example.org/p/commit/{hash_of(1)})" in out
    out, _ = run(COMMITS, stdin=log("fix: <script> in `a_b<c>` and __init__ [x](y)"))
    assert r"\<script\> in `a_b<c>` and \_\_init\_\_ \[x\](y)" in out
    assert "no commits" in run(COMMITS, code=1)[1]
    bad = ("--current", "one"), ("--url", "javascript:alert(1)")
    refuses(COMMITS, [(arguments, "fix: a", arguments[0]) for arguments in bad])


# --- csv-profile


def profile(text: str | bytes, *arguments: str) -> Any:
    return run_json(CSV, "--format", "json", *arguments, "-", stdin=text)


def column(text: str | bytes, *arguments: str, name: str = "x") -> Any:
    return next(entry for entry in profile(text, *arguments)["profile"] if entry["name"] == name)


def test_a_column_has_the_type_of_its_values_and_exceptions_are_named() -> None:
    for values, kind in (
        ("1 -2 30", "integer"), ("1 2.5 1e3", "decimal"), ("true False yes", "boolean"), ("01067 10115", "code"),
        ("2024-01-31 2024-02-29", "date"), ("2024-01-31 2024-02-29T10:00", "datetime"), ("a b 3", "text"),
        ("2024-02-30 2024-13-01", "text"), ("n/a NULL", "empty"),
    ):  # fmt: skip
        assert column("x,y\n" + "".join(f"{value},1\n" for value in values.split()))["type"] == kind, values
    for dates, verdict in (
        ("03/04/2024 13/04/2024", "day first"), ("04/13/2024", "month first"), ("03/04/2024", "ambiguous"),
        ("13/04/2024 04/13/2024", "mixed"),
    ):  # fmt: skip
        notes = column("x,y\n" + "".join(f"{value},1\n" for value in dates.split()))["notes"]
        assert any(note.startswith(f"date order {verdict}") for note in notes), dates
    rows = "".join(f"{number % 5 + 10},y\n" for number in range(20))
    assert "1 value not integer (line 22: 12 kg)" in column(f"x,t\n{rows}12 kg,y\n")["notes"]
    assert "1 outlier (line 22: 900)" in column(f"x,t\n{rows}900,y\n")["notes"]
    long = column("x,m\n9007199254740993,1\n9007199254740992,2\n")
    assert (long["max"], any("15 digits" in note for note in long["notes"])) == ("9007199254740993", True)
    notes = column("x,b\n=HYPERLINK(1),1\n Rome,1\nrome,1\nRome,1\n-5,1\n")["notes"]
    assert {
        "1 cell spelled like a spreadsheet formula",
        "1 value with spaces around them",
        "spellings that differ in case only: 1",
    } <= set(notes)


def test_a_table_is_counted_and_its_form_is_worked_out() -> None:
    text = "id,city,amount\n1,Rome,5\n2,,7\n3,Rome,\n"
    data, city, amount = profile(text), column(text, name="city"), column(text, "--null", "7", name="amount")
    assert (data["rows"], data["columns"], data["key_candidates"]) == (3, 3, ["id"])
    assert (city["missing"], city["distinct"], amount["missing"], amount["max"]) == (1, 1, 2, "5")
    data = profile("a,b\n1,2\n1,2\n1,2,3\n4\n\n")
    assert (data["duplicate_rows"], data["ragged_rows"]) == (1, 2)
    assert any("first at line 4, 5" in note for note in data["notes"])
    for delimiter in ",;\t|":
        data = profile(f'a{delimiter}b\n1{delimiter}"x,;|\ty"\n2{delimiter}z\n')
        assert (data["delimiter"], data["columns"], data["ragged_rows"]) == (delimiter, 2, 0)
    for encoding in ("utf-8-sig", "utf-16"):
        data = profile("ä,b\n1,2\n".encode(encoding))
        assert (data["encoding"], data["byte_order_mark"], data["profile"][0]["name"]) == (encoding, True, "ä")
    latin = "x,b\nä,1\n".encode("cp1252")
    assert column(latin, "--encoding", "cp1252")["min"] == "ä"
    assert [entry["name"] for entry in profile("a,a,\n1,2,3\n")["profile"]] == ["a", "a (2)", "column_3"]
    assert column("1,2\n3,4\n", "--no-header", name="column_1")["min"] == "1"
    assert any("is a quote not closed?" in note for note in profile('a,b\n1,"x\n' + "2,3\n" * 30)["notes"])
    assert profile("a,b\n1,2\n3,4\n", "--limit", "1")["partial"] is True
    for form in ("markdown", "json"):
        assert (
            "Secret" not in run(CSV, "--no-values", "--format", form, "-", stdin="n,m\nAda Secret,1\nB Secret,2\n")[0]
        )
    out, _ = run(CSV, "-", stdin='a,b\n"x|<b>\ny",1\n"x|<b>\ny",1\n')
    assert r"x\|\<b\>" in next(line for line in out.splitlines() if line.startswith("| a "))
    bad = ("--delimiter", "ab"), ("--encoding", "klingon"), ("--encoding", "hex"), ("--limit", "0")
    refuses(CSV, [((*arguments, "-"), "a,b\n", arguments[0]) for arguments in bad])
    refuses(CSV, [(("-",), latin, "--encoding cp1252"), (("-",), "", "empty")])


# --- regex-workbench


def cases(pattern: str | None, *items: Any, **more: Any) -> str:
    data = {"cases": list(items), **more}
    return json.dumps(data if pattern is None else {"pattern": pattern, **data})


@pytest.mark.system
def test_patterns_are_tried_against_cases() -> None:
    assert "10 passed" in run(REGEX, str(SKILLS / "regex-workbench/assets/cases.json"), "--timeout", "60")[0]
    text = cases("a+", {"text": "aa", "match": False, "note": "no letters"}, {"text": "b", "match": True})
    out, _ = run(REGEX, "-", stdin=text, code=1)
    assert 'must not match, but matches "aa" at 0 (no letters)' in out
    assert "2 cases: 0 passed, 2 failed" in out
    text = cases(
        r"(?P<y>\d)(x)?",
        {"text": "1", "groups": {"y": "1", "2": None}},
        {"text": "1 2x", "all": ["1", "2x"]},
        {"text": "a1", "replace": {"with": r"<\g<y>>", "result": "a<1>"}},
        {"text": "1", "groups": {"nope": "1"}},
        {"text": "1", "replace": {"with": r"\9", "result": ""}},
        mode="search",
    )
    results = run_json(REGEX, "--json", "-", stdin=text, code=1)["results"]
    assert [row["outcome"] for row in results] == ["pass", "pass", "pass", "fail", "fail"]
    slow = {"text": "a", "repeat": 60, "suffix": "!", "match": False}
    out, _ = run(REGEX, "-", "--timeout", "0.3", stdin=cases("(a+)+", slow, slow), code=1)
    assert out.count("catastrophic backtracking?") == 2, "the second case is tried after the first one was ended"
    text = cases("x", {"text": "say ABC", "match": True})
    run(REGEX, "-", stdin=text, code=1)
    run(REGEX, "-", "--pattern", "abc", "--mode", "search", "--flag", "ignorecase", stdin=text)
    assert "warning: Possible nested set" in run(REGEX, "-", stdin=cases("[[a]", {"text": "a", "match": True}))[0]
    out, _ = run(REGEX, "-", stdin=cases(".", {"text": "\x1b", "match": True}, {"text": "\ud800", "match": True}))
    assert ("\x1b" in out, r"\u001b" in out) == (False, True)


@pytest.mark.system
def test_a_wrong_file_of_cases_is_refused_with_the_place() -> None:
    rows = [
        ("[]", "expected an object"),
        ("{", "line 1, column 2"),
        (r'{"pattern": "\d"}', "each backslash is doubled"),
        (cases("a"), "1 to"),
        (cases("(a", {"text": "", "match": True}), "pattern: missing )"),
        (cases(None, {"text": "", "match": True}), "no 'pattern'"),
        (cases("a", {"text": 1, "match": True}), "cases[0].text: expected a string"),
        (cases("a", {"text": "", "matches": True}), "unknown key 'matches'"),
        (cases("a", {"text": ""}), "says nothing to expect"),
        (cases("a", {"text": "ab", "repeat": 10**9, "match": True}), "cases[0].repeat"),
        (cases("a", {"text": "", "match": True}, flags=["TURBO"]), "unknown flag"),
        (cases("a", {"text": "", "match": True}, mode="glance"), "mode: 'glance'"),
        ("[" * 200_000, "nested too deeply"),
    ]
    refuses(REGEX, [(("-",), text, word) for text, word in rows])


# --- incident-timeline


def entries(text: str, *arguments: str) -> list[tuple[str, str]]:
    data = run_json(TIMELINE, "--format", "json", *arguments, "-", stdin=text)
    return [(entry["utc"].removesuffix("+00:00"), entry["text"]) for entry in data["entries"]]


CLOCKS = """
2025-03-01T12:00:00Z up
2025-03-01 13:00:00 +0100 up
2025-03-01T14:30:00+02:30 up
2025-03-01 12:00:00,000 up
2025/03/01 12:00:00 up
[2025-03-01 12:00] up
2025-03-01 07:00:00 EST up
[01/Mar/2025:13:00:00 +0100] up
Sat, 01 Mar 2025 14:00:00 +0200 up
Sat Mar  1 12:00:00 2025 up
Sat Mar  1 13:00:00 CET 2025 up
Mar 1, 2025 at 12:00 PM up
Mar  1 12:00:00 up
1740830400 up
1740830400.0 up
[1740830400000] up
01.03.2025 12:00 up
[12:00] up
12:00 PM up
{"ts": 1740830400, "msg": "up"}
{"@timestamp": "2025-03-01T12:00:00.000Z", "message": "up"}
"""


def test_formats_of_clocks_zones_and_days_are_understood() -> None:
    understood = {line: entries(line, "--date", "2025-03-01") for line in CLOCKS.strip().splitlines()}
    assert {line: found for line, found in understood.items() if found != [("2025-03-01T12:00:00", "up")]} == {}
    for text, arguments, expected in (
        ("13/03/2025, 12:00 - up", (), [("2025-03-13T12:00:00", "up")]),
        ("03/04/2025, 10:00 - x\n", ("--date-order", "dmy"), [("2025-04-03T10:00:00", "x")]),
        ("2025-03-01 12:00:00 INFO up\n", (), [("2025-03-01T12:00:00", "INFO up")]),
        ("2025-03-01 12:00:00 CST up\n", ("--zone", "CST=-06:00"), [("2025-03-01T18:00:00", "up")]),
        ("23:59 a\n00:01 b\n", ("--date", "2025-03-01"), [("2025-03-01T23:59:00", "a"), ("2025-03-02T00:01:00", "b")]),
        ("--- 2025-03-01 ---\n10:00 a\nSunday, March 2nd, 2025\n09:00 b\n", (),
         [("2025-03-01T10:00:00", "a"), ("2025-03-02T09:00:00", "b")]),
        ("carol  [9:05 AM]\nrolled back\nand watched\n", ("--date", "2025-03-01"),
         [("2025-03-01T09:05:00", "carol: rolled back and watched")]),
    ):  # fmt: skip
        assert entries(text, *arguments) == expected, text
    assert "CST is ambiguous" in run(TIMELINE, stdin="2025-03-01 12:00:00 CST up\n")[0]
    assert "read as UTC, by default (1 line)" in run(TIMELINE, stdin="2025-03-01 12:00:00 x\n")[0]


def test_sources_become_one_order_and_what_cannot_be_placed_is_listed(tmp_path: Path) -> None:
    app, chat = tmp_path / "app.log", tmp_path / "chat.txt"
    app.write_text("2025-07-01T12:00:05Z second\nand more\n")
    chat.write_text("[14:00] first\n[14:01] third\n")
    arguments = ("--tz", "chat=+02:00", "--date", "2025-07-01", "--format", "json")
    data = run_json(TIMELINE, f"app={app}", f"chat={chat}", *arguments)
    found = [(entry["source"], entry["text"], entry["more"]) for entry in data["entries"]]
    assert found == [("chat", "first", []), ("app", "second", ["and more"]), ("chat", "third", [])]
    assert data["assumptions"] == ["chat: lines without a zone were read as +02:00, as asked (2 lines)"]
    out, _ = run(TIMELINE, f"app={app}", "--skew", "app=5")
    assert "| 2025-07-01 12:00:00 | app | second" in out
    assert "5 s were taken off" in out
    text = "2025-03-01T12:00:00Z ok\n03/04/2025, 10:00 - x\n2025-03-01T25:00:00Z y\n9999-12-31T23:00:00-10:00 z\n"
    left = run_json(TIMELINE, "--format", "json", stdin=text)["not_placed"]
    assert [(item["line"], item["reason"]) for item in left] == [
        (2, "day or month first? give --date-order dmy or mdy"),
        (3, "no such time of day"),
        (4, "outside the calendar"),
    ]
    out, err = run(TIMELINE, stdin="12:00 x\n", code=1)
    assert "only a time of day: give --date" in out
    assert "--date" in err


def test_the_table_is_folded_cut_to_a_window_redacted_and_safe() -> None:
    text = "2025-03-01T12:00:00Z a\n2025-03-01T12:00:09Z a\n2025-03-01T13:30:09Z b\n"
    out, _ = run(TIMELINE, "--gap", "10m", stdin=text)
    assert "a *(2 times, until 2025-03-01 12:00:09)*" in out
    assert "*1 h 30 min without an entry*" in out
    text = "".join(f"2025-03-01T1{number}:00:00Z e{number}\n" for number in range(4))
    out, _ = run(TIMELINE, "--from", "2025-03-01T11:00", "--to", "2025-03-01T13:00+01:00", stdin=text)
    assert (re.findall(r"e\d", out), "2 entries lie outside" in out) == (["e1", "e2"], True)
    secrets = ("ada@example.org", "10.1.2.3", "password=hunter2", "Bearer abcdefghijk", "0a1b2c3d" * 5)
    out, _ = run(TIMELINE, "--redact", stdin=f"2025-03-01T12:00:00Z {' '.join(secrets)}\n")
    assert [one for one in ("ada@", "10.1.2.3", "hunter2", "abcdefghijk", secrets[-1]) if one in out] == []
    out, _ = run(TIMELINE, stdin="2025-03-01T12:00:00Z a|b <img> \x1b[31m\n")
    assert (r"a\|b \<img\>" in out, "\x1b" in out) == (True, False)
    options = (
        "--tz Mars/Base", "--tz ../../etc/passwd", "--tz other=UTC", "--date tomorrow", "--skew nan", "--zone cst",
        "--from noon", "--gap long",
    )  # fmt: skip
    for line in options:
        _, error = run(TIMELINE, *line.split(), "-", stdin="2025-03-01T12:00:00Z x\n", code=2)
        assert len(error.splitlines()) == 1, line


# --- accessible-html

GOOD = """<!doctype html>
<html lang="en"><head><title>Prices</title><meta name="viewport" content="width=device-width"></head>
<body><nav><a href="#main">To the content</a></nav><main id="main"><h1>Prices</h1>
<ul><li>One<li>Two <a href="/list">Price list of 2025</a></ul>
<img src="a.png" alt=""><img src="b.png" alt="Prices rise from March on">
<form><label for="q">Search</label><input id="q"><label>Size <select><option>S</select></label>
<button><svg aria-hidden="true"><path d="M0 0"/></svg><span>Go</span></button></form>
<table><tr><th>Item<th>Price<tr><td>Tea<td>3</table>
<p style="color:#333;background:#fff">Readable</p></main></body></html>"""
BARRIERS = """
img-alt           <img src=x>
img-alt-text      <img src=x alt="photo.jpg">
img-alt           <input type=image src=x alt="">
svg-name          <svg role=img></svg>
field-label       <input name=q placeholder=Search>
label-target      <label for=nowhere>Name</label>
button-name       <button><svg aria-hidden=true></svg></button>
link-name         <a href=x><img src=y alt=""></a>
link-text         <a href=x>Click here!</a>
heading-order     <h2>a</h2><h4>b</h4>
heading-empty     <h2></h2>
duplicate-id      <p id=a></p><p id=a></p>
aria-reference    <p aria-describedby=none>x</p>
aria-hidden-focus <div aria-hidden=true><a href=x>y</a></div>
role-unknown      <div role=buton>x</div>
tabindex          <p tabindex=3>x</p>
click-keyboard    <div onclick=go()>x</div>
frame-title       <iframe src=x></iframe>
table-headers     <table><tr><td>1<tr><td>2</table>
media-captions    <video src=x></video>
media-autoplay    <audio src=x autoplay></audio>
viewport-zoom     <meta name=viewport content='user-scalable=no'>
meta-refresh      <meta http-equiv=refresh content='5; url=x'>
contrast          <p style='color:#777;background:#888'>x</p>
contrast-assumed  <p style='color:rgb(170 170 170)'>x</p>
contrast          <div style='background:navy'><b style='color:hsl(0,0%,20%)'>x</b></div>
"""
NO_BARRIERS = """
<img src=x alt='' role=presentation>
<div hidden><img src=x></div>
<div style='display: none'><input></div>
<input type=hidden><input type=submit>
<span id=l>Name</span><input aria-labelledby=l>
<a href=x aria-label='Next page'>&gt;</a>
<div onclick=go() role=button tabindex=0>Go</div>
<table role=presentation><tr><td>1<tr><td>2</table>
<p style='color:var(--x);background:#888'>x</p>
<p style='color:#777;background:url(x.png)'>x</p>
<h1 style='color:#888;background:#fff'>large text needs only 3 to 1</h1>
<label for='{{ field.id }}'>Name</label>
<script>if (a < b) document.write('<img src=x>')</script>
<p>1 < 2 and <unfinished
"""


def codes(text: str, *arguments: str) -> list[str]:
    found = run_json(HTML, "--json", "--fail-on", "never", *arguments, "-", stdin=text)["findings"]
    return [finding["code"] for finding in found]


def test_barriers_are_found_and_what_is_fine_or_cannot_be_known_is_not_reported() -> None:
    rows = [line.split(maxsplit=1) for line in BARRIERS.strip().splitlines()]
    assert {part: found for code, part in rows if (found := codes(part)) != [code]} == {}
    fine = [GOOD, *NO_BARRIERS.strip().splitlines()]
    assert {part: found for part in fine if (found := codes(part))} == {}
    whole = "<html><body><p>x</body></html>"
    assert set(codes(whole)) == {"html-lang", "title", "heading-first", "landmark-main"}
    assert codes(whole, "--fragment") == []
    for part in ("<div>", "<a ", "</x", "<", "<table><tr><td><a href=x>"):
        run(HTML, "-", "--fail-on", "never", stdin=part * (60_000 // len(part)) + "<p>")


def test_a_finding_has_its_place_and_the_exit_code_follows_the_severity(tmp_path: Path) -> None:
    out, _ = run(HTML, "-", stdin="<p>x</p>\n  <img src=x>\n", code=1)
    assert out.startswith("-:2:3: error img-alt: ")
    assert out.rstrip().endswith("(WCAG 1.1.1)")
    warning = "<a href=x>here</a>"
    run(HTML, "-", stdin=warning)
    run(HTML, "-", "--fail-on", "warning", stdin=warning, code=1)
    run(HTML, "-", "--fail-on", "warning", "--ignore", "link-text", stdin=warning)
    listed = run(HTML, "--list")[0].splitlines()
    assert [line for line in listed if not re.match(r"[a-z-]+ +(error|warning|info) +\d\.\d\.\d+ +\w", line)] == []
    page = tmp_path / "page.html"
    page.write_text("<img src=x>")
    assert "img-alt" in run(HTML, str(tmp_path / "missing.html"), str(page), code=2)[0]


@pytest.mark.system
def test_the_wrapper_checks_every_page_below_a_folder(tmp_path: Path) -> None:
    site = tmp_path / "my site"
    for name, text in (("good page.html", GOOD), ("sub/bad.htm", "<img src=x>"), ("node_modules/no.html", "<img>")):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    assert run(WRAPPER, str(site), code=1)[0].count("img-alt") == 1
    run(WRAPPER, str(site), "--ignore", "img-alt")
    (tmp_path / "empty").mkdir()
    refuses(WRAPPER, [
        ((str(tmp_path / "nope"),), "", "no such file or folder"),
        ((str(tmp_path / "empty"),), "", "no .html or .htm file"),
        ((), "", "usage:"),
    ])  # fmt: skip
