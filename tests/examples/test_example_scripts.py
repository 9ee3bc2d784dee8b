"""The scripts of the example skills, run as a host would run them: as processes, with arguments and input.

Each test gives a script a small input of its own and looks at what it prints and how it ends. Wrong input must end in
one line that a person understands, never in a traceback.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SKILLS = Path(__file__).resolve().parents[2] / "examples" / "skills"
SCRIPTS = sorted(SKILLS.glob("*/scripts/*"))
COMMITS = "release-notes/scripts/group_commits.py"
CSV = "csv-profile/scripts/profile_csv.py"
REGEX = "regex-workbench/scripts/try_regex.py"
TIMELINE = "incident-timeline/scripts/timeline.py"
HTML = "accessible-html/scripts/check_html.py"

needs_shell = pytest.mark.skipif(shutil.which("sh") is None, reason="needs a POSIX shell")


def run(script: str, *arguments: str, stdin: str | bytes = b"", code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a script and check its exit code; standard input is never a terminal."""
    path = SKILLS / script
    command = ["sh", str(path)] if path.suffix == ".sh" else [sys.executable, "-B", str(path)]
    data = stdin.encode() if isinstance(stdin, str) else stdin
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*command, *arguments], input=data, capture_output=True, env=environment, check=False)
    out, err = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in err, err
    assert done.returncode == code, out + err
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def run_json(script: str, *arguments: str, stdin: str | bytes = b"", code: int = 0) -> Any:
    return json.loads(run(script, *arguments, stdin=stdin, code=code).stdout)


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


# --- all scripts


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_has_a_shebang_and_may_be_executed(script: Path) -> None:
    assert script.read_text(encoding="utf-8").startswith(("#!/usr/bin/env python3\n", "#!/bin/sh\n"))
    assert os.access(script, os.X_OK)


@pytest.mark.system
@pytest.mark.parametrize("script", [COMMITS, CSV, REGEX, TIMELINE, HTML])
def test_help_shows_examples(script: str) -> None:
    assert "examples:" in run(script, "--help").stdout


@pytest.mark.system
@pytest.mark.parametrize("script", [COMMITS, CSV, REGEX, TIMELINE, HTML])
def test_a_missing_file_is_one_line_on_stderr_and_exit_code_2(script: str, tmp_path: Path) -> None:
    done = run(script, str(tmp_path / "missing"), code=2)
    assert "missing: No such file" in done.stderr


@pytest.mark.system
@pytest.mark.parametrize("script", [COMMITS, CSV, REGEX, TIMELINE, HTML])
def test_a_folder_instead_of_a_file_is_an_error_without_traceback(script: str, tmp_path: Path) -> None:
    assert run(script, str(tmp_path), code=2).stderr


@pytest.mark.system
@pytest.mark.parametrize("script", [CSV, REGEX, HTML])
def test_random_bytes_are_refused(script: str) -> None:
    assert run(script, "-", stdin=bytes(range(255, -1, -1)) * 8, code=2).stderr


@pytest.mark.system
@pytest.mark.parametrize("script", [COMMITS, CSV, REGEX, TIMELINE, HTML])
def test_an_unknown_option_is_wrong_usage(script: str) -> None:
    assert "usage:" in run(script, "--no-such-option", code=2).stderr


def test_running_the_scripts_leaves_nothing_behind_in_the_skills() -> None:
    assert not list(SKILLS.rglob("__pycache__"))


# --- skills-system-validation


@pytest.mark.system
@needs_shell
def test_echo_prints_its_marker_and_each_argument_unsplit() -> None:
    lines = run("skills-system-validation/scripts/echo.sh", "one", "two words", "$HOME *").stdout.splitlines()
    assert re.fullmatch(r"METIER-VALIDATION-SCRIPT-\w{4}", lines[0])
    assert lines[1:] == ["arguments: 3", "argument: [one]", "argument: [two words]", "argument: [$HOME *]"]


def test_every_part_of_the_validation_skill_holds_a_marker_that_no_other_part_holds() -> None:
    folder = SKILLS / "skills-system-validation"
    found: dict[str, list[str]] = {}
    for name in ("SKILL.md", "references/REFERENCE.md", "assets/fixture.json", "scripts/echo.sh"):
        for marker in re.findall(r"METIER-VALIDATION-[A-Z]+-\w{4}\b", (folder / name).read_text(encoding="utf-8")):
            found.setdefault(marker, []).append(name)
    assert sorted(found.values()) == [
        ["SKILL.md"],
        ["SKILL.md"],
        ["assets/fixture.json"],
        ["references/REFERENCE.md"],
        ["scripts/echo.sh"],
    ]
    asset = json.loads((folder / "assets/fixture.json").read_text(encoding="utf-8"))
    assert asset["marker"].startswith("METIER-VALIDATION-ASSET-")


def test_the_validation_skill_discloses_no_marker_in_its_description_and_has_no_placeholders() -> None:
    text = (SKILLS / "skills-system-validation/SKILL.md").read_text(encoding="utf-8")
    description = next(line for line in text.splitlines() if line.startswith("description:"))
    assert "METIER" not in description
    assert "$ARGUMENTS" not in text
    assert "!`" not in text


# --- release-notes


def log(*commits: str) -> str:
    """`git log` output for messages, the newest first; hashes are 40 digits made of the position."""
    parts = []
    for number, message in enumerate(commits, 1):
        body = "\n".join(f"    {line}".rstrip() for line in message.split("\n"))
        parts.append(f"commit {hash_of(number)}\nAuthor: A <a@example.org>\nDate:   today\n\n{body}\n")
    return "\n".join(parts)


def hash_of(number: int) -> str:
    return f"{number:07x}" + "0" * 33


def sections(data: Any) -> dict[str, list[str]]:
    return {section["title"]: [entry["text"] for entry in section["entries"]] for section in data["sections"]}


@pytest.mark.system
def test_commits_are_grouped_by_their_conventional_type() -> None:
    text = log("feat(cli): add --since", "fix: no crash", "docs: spelling", "chore: tidy", "Plain words")
    out = run(COMMITS, stdin=text).stdout
    assert out.index("### Features") < out.index("### Fixes") < out.index("### Documentation")
    assert "- **cli:** add --since (0000001)" in out
    assert "### Other changes\n\n- Plain words (0000005)" in out
    assert "tidy" not in out


@pytest.mark.system
def test_internal_changes_are_counted_and_listed_on_request() -> None:
    text = log("chore: tidy", "feat: x")
    assert "internal 1 (--all lists them)" in run(COMMITS, stdin=text).stderr
    assert "### Internal\n\n- tidy" in run(COMMITS, "--all", stdin=text).stdout


@pytest.mark.system
def test_breaking_changes_come_first_with_their_note() -> None:
    text = log("feat: x", "fix!: y\n\nWords.\n\nBREAKING CHANGE: set the path\nyourself\nCloses #7")
    data = run_json(COMMITS, "--json", stdin=text)
    assert data["sections"][0]["title"] == "Breaking changes"
    entry = data["sections"][0]["entries"][0]
    assert entry["notes"] == ["set the path yourself"]
    assert entry["references"] == ["#7"]


@pytest.mark.system
def test_a_commit_and_its_revert_cancel_each_other() -> None:
    revert = f'Revert "feat: gone"\n\nThis reverts commit {hash_of(2)}.'
    data = run_json(COMMITS, "--json", stdin=log(revert, "feat: gone", "feat: stays"))
    assert sections(data) == {"Features": ["stays"]}
    assert data["left_out"]["cancelled by reverts"] == 2


@pytest.mark.system
@pytest.mark.parametrize("newest_first", [True, False])
def test_a_reverted_revert_brings_the_change_back_in_any_order(newest_first: bool) -> None:
    again = f'Reapply "feat: x"\n\nThis reverts commit {hash_of(2)}.'
    revert = f'Revert "feat: x"\n\nThis reverts commit {hash_of(3)}.'
    commits = log(again, revert, "feat: x")
    if not newest_first:
        commits = "\n".join(reversed(re.split(r"\n(?=commit )", commits)))
    assert sections(run_json(COMMITS, "--json", stdin=commits)) == {"Features": ["x"]}


@pytest.mark.system
def test_a_revert_of_something_outside_the_range_is_news() -> None:
    revert = 'Revert "feat: old"\n\nThis reverts commit fffffff.'
    assert sections(run_json(COMMITS, "--json", stdin=log(revert))) == {"Reverts": ['Revert "feat: old"']}


@pytest.mark.system
def test_merges_fixups_and_repeated_subjects_are_counted_not_listed() -> None:
    text = log("Merge branch 'x'", "fixup! fix: a", "fix: a", "fix: a")
    data = run_json(COMMITS, "--json", stdin=text)
    assert sections(data) == {"Fixes": ["a"]}
    expected = {"merges": 1, "fixup commits": 1, "cancelled by reverts": 0, "same subject again": 1}
    assert data["left_out"] == expected
    assert len(data["sections"][0]["entries"][0]["hashes"]) == 2


@pytest.mark.system
def test_one_line_logs_and_bare_subjects_are_understood() -> None:
    data = run_json(COMMITS, "--json", stdin="abc1234 (HEAD -> main, tag: v1) feat: a\nfix: b\n")
    assert sections(data) == {"Features": ["a"], "Fixes": ["b"]}
    assert data["sections"][0]["entries"][0]["hashes"] == ["abc1234"]


@pytest.mark.system
@pytest.mark.parametrize(
    ("subject", "current", "expected"),
    [
        ("feat!: x", "1.4.2", "2.0.0"),
        ("feat!: x", "0.4.2", "0.5.0"),
        ("feat: x", "v1.4.2", "1.5.0"),
        ("fix: x", "1.4.2", "1.4.3"),
        ("chore: x", "1.4.2", "1.4.2"),
    ],
)
def test_the_next_version_follows_the_greatest_change(subject: str, current: str, expected: str) -> None:
    assert run_json(COMMITS, "--json", "--current", current, stdin=log(subject))["next"] == expected


@pytest.mark.system
def test_markup_in_a_subject_is_escaped_outside_code() -> None:
    out = run(COMMITS, stdin=log("fix: <script> in `a_b<c>` and __init__ [x](y)")).stdout
    assert r"\<script\> in `a_b<c>` and \_\_init\_\_ \[x\](y)" in out


@pytest.mark.system
def test_an_address_turns_hashes_and_issues_into_links() -> None:
    out = run(COMMITS, "--url", "https://example.org/p/", stdin=log("fix: x (#12)")).stdout
    assert "[#12](https://example.org/p/issues/12)" in out
    assert f"[0000001](https://example.org/p/commit/{hash_of(1)})" in out


@pytest.mark.system
def test_a_commit_line_inside_a_message_is_not_a_commit() -> None:
    data = run_json(COMMITS, "--json", stdin=log(f"fix: a\n\ncommit {hash_of(9)}\n\nfeat: b"))
    assert (data["commits"], sections(data)) == (1, {"Fixes": ["a"]})


@pytest.mark.system
def test_an_empty_history_is_exit_code_1() -> None:
    assert "no commits" in run(COMMITS, code=1).stderr


@pytest.mark.system
@pytest.mark.parametrize("arguments", [("--current", "one"), ("--url", "javascript:alert(1)")])
def test_a_bad_version_or_address_is_refused(arguments: tuple[str, str]) -> None:
    assert arguments[0] in run(COMMITS, *arguments, stdin="fix: a", code=2).stderr


# --- csv-profile


def profile(text: str | bytes, *arguments: str) -> Any:
    return run_json(CSV, "--format", "json", *arguments, "-", stdin=text)


def column(data: Any, name: str) -> Any:
    return next(entry for entry in data["profile"] if entry["name"] == name)


@pytest.mark.system
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2", "30"], "integer"),
        (["1", "2.5", "1e3"], "decimal"),
        (["true", "False", "yes"], "boolean"),
        (["2024-01-31", "2024-02-29"], "date"),
        (["2024-01-31", "2024-02-29 10:00"], "datetime"),
        (["01067", "10115"], "code"),
        (["a", "b", "3"], "text"),
        (["2024-02-30", "2024-13-01"], "text"),
        (["", "n/a", "NULL"], "empty"),
    ],
)
def test_a_column_has_the_type_its_values_are_spelled_as(values: list[str], kind: str) -> None:
    data = profile("x,y\n" + "".join(f"{value},1\n" for value in values))
    assert column(data, "x")["type"] == kind


@pytest.mark.system
def test_missing_distinct_range_and_keys_are_reported() -> None:
    data = profile("id,city,amount\n1,Rome,5\n2,,7\n3,Rome,\n", "--null", "7")
    assert (data["rows"], data["columns"], data["key_candidates"]) == (3, 3, ["id"])
    assert (column(data, "city")["missing"], column(data, "city")["distinct"]) == (1, 1)
    amount = column(data, "amount")
    assert (amount["missing"], amount["min"], amount["max"]) == (2, "5", "5")


@pytest.mark.system
def test_whole_numbers_keep_all_their_digits() -> None:
    data = profile("n,m\n9007199254740993,1\n9007199254740992,2\n")
    assert column(data, "n")["max"] == "9007199254740993"
    assert any("15 digits" in note for note in column(data, "n")["notes"])


@pytest.mark.system
def test_an_exception_to_the_type_is_named_with_its_line() -> None:
    rows = "".join(f"{n},x\n" for n in range(20))
    data = profile(f"n,t\n{rows}12 kg,x\n")
    assert column(data, "n")["type"] == "integer"
    assert "1 value not integer (line 22: 12 kg)" in column(data, "n")["notes"]


@pytest.mark.system
def test_an_outlier_is_named_with_its_line() -> None:
    rows = "".join(f"{n % 5 + 10},x\n" for n in range(20))
    assert "1 outlier (line 22: 900)" in column(profile(f"n,t\n{rows}900,x\n"), "n")["notes"]


@pytest.mark.system
def test_duplicate_and_ragged_rows_are_counted() -> None:
    data = profile("a,b\n1,2\n1,2\n1,2,3\n4\n\n")
    assert (data["duplicate_rows"], data["ragged_rows"]) == (1, 2)
    assert any("first at line 4, 5" in note for note in data["notes"])


@pytest.mark.system
@pytest.mark.parametrize(
    ("dates", "verdict"),
    [("03/04/2024 13/04/2024", "day first"), ("04/13/2024", "month first"), ("03/04/2024", "ambiguous"),
     ("13/04/2024 04/13/2024", "mixed")],
)  # fmt: skip
def test_the_order_of_day_and_month_is_proved_or_called_ambiguous(dates: str, verdict: str) -> None:
    data = profile("d,x\n" + "".join(f"{value},1\n" for value in dates.split()))
    assert any(note.startswith(f"date order {verdict}") for note in column(data, "d")["notes"])


@pytest.mark.system
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_worked_out(delimiter: str) -> None:
    data = profile(f'a{delimiter}b\n1{delimiter}"x,;|\ty"\n2{delimiter}z\n')
    assert (data["delimiter"], data["columns"], data["ragged_rows"]) == (delimiter, 2, 0)


@pytest.mark.system
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_decides_the_encoding(encoding: str) -> None:
    data = profile("ä,b\n1,2\n".encode(encoding))
    assert (data["encoding"], data["byte_order_mark"], data["profile"][0]["name"]) == (encoding, True, "ä")


@pytest.mark.system
def test_a_wrong_encoding_is_an_error_with_a_hint_and_the_right_one_works() -> None:
    latin = "a,b\nä,1\n".encode("cp1252")
    assert "--encoding cp1252" in run(CSV, "-", stdin=latin, code=2).stderr
    assert column(profile(latin, "--encoding", "cp1252"), "a")["min"] == "ä"


@pytest.mark.system
def test_formulas_padding_and_case_variants_are_noted() -> None:
    notes = column(profile("a,b\n=HYPERLINK(1),1\n Rome,1\nrome,1\nRome,1\n-5,1\n"), "a")["notes"]
    assert {
        "1 cell spelled like a spreadsheet formula",
        "1 value with spaces around them",
        "spellings that differ in case only: 1",
    } <= set(notes)


@pytest.mark.system
def test_no_values_keeps_every_cell_out_of_the_output() -> None:
    text = "name,n\nAda Secret,1\nBob Secret,2\n"
    for form in ("markdown", "json"):
        assert "Secret" not in run(CSV, "--no-values", "--format", form, "-", stdin=text).stdout


@pytest.mark.system
def test_a_quote_that_is_never_closed_is_noticed() -> None:
    data = profile('a,b\n1,"x\n' + "2,3\n" * 30)
    assert any("is a quote not closed?" in note for note in data["notes"])


@pytest.mark.system
def test_a_limit_makes_the_profile_partial_and_says_so() -> None:
    data = profile("a,b\n1,2\n3,4\n", "--limit", "1")
    assert (data["rows"], data["partial"]) == (1, True)


@pytest.mark.system
def test_headers_that_repeat_or_are_empty_get_names_and_a_note() -> None:
    data = profile("a,a,\n1,2,3\n")
    assert [entry["name"] for entry in data["profile"]] == ["a", "a (2)", "column_3"]
    assert len(data["notes"]) == 2


@pytest.mark.system
def test_without_a_header_the_first_row_is_data() -> None:
    data = profile("1,2\n3,4\n", "--no-header")
    assert (data["rows"], column(data, "column_1")["min"]) == (2, "1")


@pytest.mark.system
def test_cells_cannot_break_the_markdown_table() -> None:
    out = run(CSV, "-", stdin='a,b\n"x|<b>\ny",1\n"x|<b>\ny",1\n').stdout
    row = next(line for line in out.splitlines() if line.startswith("| a "))
    assert r"x\|\<b\>" in row


@pytest.mark.system
@pytest.mark.parametrize(
    "arguments", [("--delimiter", "ab"), ("--encoding", "klingon"), ("--encoding", "hex"), ("--limit", "0")]
)
def test_a_bad_csv_option_is_refused_by_name(arguments: tuple[str, str]) -> None:
    assert arguments[0] in run(CSV, *arguments, "-", stdin="a,b\n", code=2).stderr


@pytest.mark.system
def test_an_empty_table_is_an_error() -> None:
    assert "empty" in run(CSV, "-", code=2).stderr


# --- regex-workbench


def cases(pattern: str | None, *items: Any, **more: Any) -> str:
    data = {"cases": list(items), **more}
    return json.dumps(data if pattern is None else {"pattern": pattern, **data})


def outcomes(text: str, *arguments: str, code: int) -> list[str]:
    return [row["outcome"] for row in run_json(REGEX, "--json", *arguments, "-", stdin=text, code=code)["results"]]


@pytest.mark.system
def test_the_cases_that_come_with_the_skill_pass() -> None:
    assert "10 passed" in run(REGEX, str(SKILLS / "regex-workbench/assets/cases.json"), "--timeout", "60").stdout


@pytest.mark.system
def test_a_case_that_fails_says_what_happened_and_why_it_exists() -> None:
    text = cases("a+", {"text": "aa", "match": False, "note": "no letters"}, {"text": "b", "match": True})
    out = run(REGEX, "-", stdin=text, code=1).stdout
    assert 'must not match, but matches "aa" at 0 (no letters)' in out
    assert "must match, but does not" in out
    assert "2 cases: 0 passed, 2 failed" in out


@pytest.mark.system
def test_groups_all_matches_and_replacements_are_compared() -> None:
    text = cases(
        r"(?P<y>\d)(x)?",
        {"text": "1", "groups": {"y": "1", "2": None}},
        {"text": "1 2x", "all": ["1", "2x"]},
        {"text": "a1", "replace": {"with": r"<\g<y>>", "result": "a<1>"}},
        {"text": "1", "groups": {"nope": "1"}},
        {"text": "1", "replace": {"with": r"\9", "result": ""}},
        mode="search",
    )
    assert outcomes(text, code=1) == ["pass", "pass", "pass", "fail", "fail"]


@pytest.mark.system
def test_catastrophic_backtracking_is_ended_at_the_limit_and_the_next_case_still_runs() -> None:
    slow = {"text": "a", "repeat": 60, "suffix": "!", "match": False}
    assert outcomes(cases("(a+)+", slow, {"text": "aa", "match": True}), "--timeout", "1", code=1)[0] == "timeout"
    out = run(REGEX, "-", "--timeout", "0.3", stdin=cases("(a+)+", slow, slow), code=1).stdout
    assert out.count("catastrophic backtracking?") == 2


@pytest.mark.system
def test_another_pattern_mode_and_flag_can_be_tried_against_the_same_cases() -> None:
    text = cases("x", {"text": "say ABC", "match": True})
    run(REGEX, "-", stdin=text, code=1)
    run(REGEX, "-", "--pattern", "abc", "--mode", "search", "--flag", "ignorecase", stdin=text)


@pytest.mark.system
def test_a_doubtful_pattern_is_reported_with_the_warning_of_the_engine() -> None:
    assert "warning: Possible nested set" in run(REGEX, "-", stdin=cases("[[a]", {"text": "a", "match": True})).stdout


@pytest.mark.system
def test_control_characters_and_lone_surrogates_are_shown_escaped() -> None:
    out = run(REGEX, "-", stdin=cases(".", {"text": "\x1b", "match": True}, {"text": "\ud800", "match": True})).stdout
    assert "\x1b" not in out
    assert r"\u001b" in out


@pytest.mark.system
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "expected an object"),
        ("{", "line 1, column 2"),
        (r'{"pattern": "\d"}', "each backslash is doubled"),
        (cases("a"), "1 to"),
        (cases("(a", {"text": "", "match": True}), "pattern: missing )"),
        (cases(None, {"text": "", "match": True}), "no 'pattern'"),
        (cases("a", {"match": True}), "cases[0]: 'text' is missing"),
        (cases("a", {"text": 1, "match": True}), "cases[0].text: expected a string"),
        (cases("a", {"text": "", "match": "yes"}), "cases[0].match"),
        (cases("a", {"text": "", "matches": True}), "unknown key 'matches'"),
        (cases("a", {"text": ""}), "says nothing to expect"),
        (cases("a", {"text": "ab", "repeat": 10**9, "match": True}), "cases[0].repeat"),
        (cases("a", {"text": "", "match": False, "groups": {"0": ""}}), "expects no match"),
        (cases("a", {"text": "", "match": True}, flags=["TURBO"]), "unknown flag"),
        (cases("a", {"text": "", "match": True}, mode="glance"), "mode: 'glance'"),
    ],
)
def test_a_wrong_file_of_cases_is_refused_with_the_place(text: str, message: str) -> None:
    assert message in run(REGEX, "-", stdin=text, code=2).stderr


@pytest.mark.system
def test_a_file_of_cases_that_nests_too_deeply_is_refused() -> None:
    assert "nested too deeply" in run(REGEX, "-", stdin="[" * 200_000, code=2).stderr


# --- incident-timeline


def entries(text: str, *arguments: str) -> list[tuple[str, str]]:
    data = run_json(TIMELINE, "--format", "json", *arguments, "-", stdin=text)
    return [(entry["utc"].removesuffix("+00:00"), entry["text"]) for entry in data["entries"]]


@pytest.mark.system
@pytest.mark.parametrize(
    "line",
    [
        "2025-03-01T12:00:00Z up",
        "2025-03-01 13:00:00 +0100 up",
        "2025-03-01T14:30:00+02:30 up",
        "2025-03-01 12:00:00,000 up",
        "2025/03/01 12:00:00 up",
        "[2025-03-01 12:00] up",
        "2025-03-01 07:00:00 EST up",
        "[01/Mar/2025:13:00:00 +0100] up",
        "Sat, 01 Mar 2025 14:00:00 +0200 up",
        "Sat Mar  1 12:00:00 2025 up",
        "Sat Mar  1 13:00:00 CET 2025 up",
        "Mar 1, 2025 at 12:00 PM up",
        "Mar  1 12:00:00 up",
        "1740830400 up",
        "1740830400.0 up",
        "[1740830400000] up",
        "13/03/2025, 12:00 - up",
        "01.03.2025 12:00 up",
        "[12:00] up",
        "12:00 PM up",
        '{"ts": 1740830400, "msg": "up"}',
        '{"@timestamp": "2025-03-01T12:00:00.000Z", "message": "up"}',
    ],
)
def test_a_clock_format_is_understood(line: str) -> None:
    expected = "2025-03-13T12:00:00" if line.startswith("13/") else "2025-03-01T12:00:00"
    assert entries(line, "--date", "2025-03-01") == [(expected, "up")]


@pytest.mark.system
def test_sources_in_different_zones_come_into_one_order(tmp_path: Path) -> None:
    app = write(tmp_path, "app.log", "2025-07-01T12:00:05Z second\n")
    chat = write(tmp_path, "chat.txt", "[14:00] first\n[14:01] third\n")
    arguments = ("--tz", "chat=+02:00", "--date", "2025-07-01", "--format", "json")
    data = run_json(TIMELINE, f"app={app}", f"chat={chat}", *arguments)
    assert [(e["source"], e["text"]) for e in data["entries"]] == [
        ("chat", "first"),
        ("app", "second"),
        ("chat", "third"),
    ]
    assert data["assumptions"] == ["chat: lines without a zone were read as +02:00, as asked (2 lines)"]


@pytest.mark.system
def test_an_assumed_zone_is_always_told() -> None:
    assert "read as UTC, by default (1 line)" in run(TIMELINE, stdin="2025-03-01 12:00:00 x\n").stdout


@pytest.mark.system
def test_a_level_behind_the_time_is_no_zone() -> None:
    assert entries("2025-03-01 12:00:00 INFO up\n") == [("2025-03-01T12:00:00", "INFO up")]


@pytest.mark.system
def test_an_ambiguous_abbreviation_is_told_and_can_be_settled() -> None:
    line = "2025-03-01 12:00:00 CST up\n"
    assert "CST is ambiguous" in run(TIMELINE, stdin=line).stdout
    assert entries(line, "--zone", "CST=-06:00") == [("2025-03-01T18:00:00", "up")]


@pytest.mark.system
def test_lines_without_a_time_belong_to_the_entry_above() -> None:
    text = "2025-03-01T12:00:00Z boom\nTraceback\n  at 2025-03-01 x\n2025-03-01T12:00:01Z next\n"
    data = run_json(TIMELINE, "--format", "json", stdin=text)
    assert [(e["text"], e["more"]) for e in data["entries"]] == [
        ("boom", ["Traceback", "  at 2025-03-01 x"]),
        ("next", []),
    ]


@pytest.mark.system
def test_a_name_with_a_time_takes_the_following_lines_as_its_message() -> None:
    text = "carol  [9:05 AM]\nrolled back\nand watched\n"
    assert entries(text, "--date", "2025-03-01") == [("2025-03-01T09:05:00", "carol: rolled back and watched")]


@pytest.mark.system
def test_a_time_of_day_that_jumps_back_starts_the_next_day() -> None:
    text = "23:59 a\n00:01 b\n00:00 c\n"
    expected = [("2025-03-01T23:59:00", "a"), ("2025-03-02T00:00:00", "c"), ("2025-03-02T00:01:00", "b")]
    assert entries(text, "--date", "2025-03-01") == expected


@pytest.mark.system
def test_a_line_with_only_a_date_sets_the_day() -> None:
    text = "--- 2025-03-01 ---\n10:00 a\nSunday, March 2nd, 2025\n09:00 b\n"
    assert entries(text) == [("2025-03-01T10:00:00", "a"), ("2025-03-02T09:00:00", "b")]


@pytest.mark.system
def test_what_cannot_be_placed_is_listed_with_the_reason() -> None:
    text = "2025-03-01T12:00:00Z ok\n03/04/2025, 10:00 - x\n2025-03-01T25:00:00Z y\n9999-12-31T23:00:00-10:00 z\n"
    data = run_json(TIMELINE, "--format", "json", stdin=text)
    assert [(item["line"], item["reason"]) for item in data["not_placed"]] == [
        (2, "day or month first? give --date-order dmy or mdy"),
        (3, "no such time of day"),
        (4, "outside the calendar"),
    ]
    assert entries("03/04/2025, 10:00 - x\n", "--date-order", "dmy") == [("2025-04-03T10:00:00", "x")]


@pytest.mark.system
def test_nothing_placed_is_exit_code_1_with_a_hint() -> None:
    done = run(TIMELINE, stdin="12:00 x\n", code=1)
    assert "only a time of day: give --date" in done.stdout
    assert "--date" in done.stderr


@pytest.mark.system
def test_repeated_neighbours_are_folded_and_silences_marked() -> None:
    text = "2025-03-01T12:00:00Z a\n2025-03-01T12:00:09Z a\n2025-03-01T13:30:09Z b\n"
    out = run(TIMELINE, "--gap", "10m", stdin=text).stdout
    assert "a *(2 times, until 2025-03-01 12:00:09)*" in out
    assert "*1 h 30 min without an entry*" in out


@pytest.mark.system
def test_a_clock_that_was_ahead_is_put_right_and_told(tmp_path: Path) -> None:
    app = write(tmp_path, "app.log", "2025-03-01T12:00:30Z x\n")
    out = run(TIMELINE, f"app={app}", "--skew", "app=30").stdout
    assert "| 2025-03-01 12:00:00 | app | x |" in out
    assert "30 s were taken off" in out


@pytest.mark.system
def test_a_window_leaves_out_the_rest_and_says_how_many() -> None:
    text = "".join(f"2025-03-01T1{n}:00:00Z e{n}\n" for n in range(4))
    out = run(TIMELINE, "--from", "2025-03-01T11:00", "--to", "2025-03-01T13:00+01:00", stdin=text).stdout
    assert re.findall(r"e\d", out) == ["e1", "e2"]
    assert "2 entries lie outside" in out


@pytest.mark.system
def test_redaction_masks_addresses_and_secrets() -> None:
    secret = "0a1b2c3d" * 5
    text = f"2025-03-01T12:00:00Z ada@example.org from 10.1.2.3 password=hunter2 Bearer abcdefghijk {secret}\n"
    out = run(TIMELINE, "--redact", stdin=text).stdout
    for hidden in ("ada@", "10.1.2.3", "hunter2", "abcdefghijk", secret):
        assert hidden not in out


@pytest.mark.system
def test_markup_and_control_characters_in_a_log_cannot_break_the_table() -> None:
    out = run(TIMELINE, stdin="2025-03-01T12:00:00Z a|b <img> \x1b[31m\n").stdout
    assert r"a\|b \<img\>" in out
    assert "\x1b" not in out


@pytest.mark.system
@pytest.mark.parametrize(
    "arguments",
    [
        ("--tz", "Mars/Base"),
        ("--tz", "../../etc/passwd"),
        ("--tz", "other=UTC"),
        ("--date", "tomorrow"),
        ("--skew", "nan"),
        ("--zone", "cst"),
        ("--from", "noon"),
        ("--gap", "long"),
    ],
)
def test_a_bad_timeline_option_is_refused_in_one_line(arguments: tuple[str, str]) -> None:
    error = run(TIMELINE, *arguments, "-", stdin="2025-03-01T12:00:00Z x\n", code=2).stderr
    assert len(error.splitlines()) == 1


@pytest.mark.system
def test_two_sources_of_one_name_are_refused(tmp_path: Path) -> None:
    app = write(tmp_path, "app.log", "x\n")
    assert "LABEL=FILE" in run(TIMELINE, app, app, code=2).stderr


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


def codes(text: str, *arguments: str) -> list[str]:
    found = run_json(HTML, "--json", "--fail-on", "never", *arguments, "-", stdin=text)["findings"]
    return [finding["code"] for finding in found]


@pytest.mark.system
def test_a_page_without_barriers_has_no_findings() -> None:
    assert codes(GOOD) == []


@pytest.mark.system
@pytest.mark.parametrize(
    ("part", "code"),
    [
        ("<img src=x>", "img-alt"),
        ('<img src=x alt="photo.jpg">', "img-alt-text"),
        ('<input type=image src=x alt="">', "img-alt"),
        ("<svg role=img></svg>", "svg-name"),
        ("<input name=q placeholder=Search>", "field-label"),
        ("<label for=nowhere>Name</label>", "label-target"),
        ("<button><svg aria-hidden=true></svg></button>", "button-name"),
        ('<a href=x><img src=y alt=""></a>', "link-name"),
        ("<a href=x>Click here!</a>", "link-text"),
        ("<h2>a</h2><h4>b</h4>", "heading-order"),
        ("<h2></h2>", "heading-empty"),
        ("<p id=a></p><p id=a></p>", "duplicate-id"),
        ("<p aria-describedby=none>x</p>", "aria-reference"),
        ("<div aria-hidden=true><a href=x>y</a></div>", "aria-hidden-focus"),
        ("<div role=buton>x</div>", "role-unknown"),
        ("<p tabindex=3>x</p>", "tabindex"),
        ("<div onclick=go()>x</div>", "click-keyboard"),
        ("<iframe src=x></iframe>", "frame-title"),
        ("<table><tr><td>1<tr><td>2</table>", "table-headers"),
        ("<video src=x></video>", "media-captions"),
        ("<audio src=x autoplay></audio>", "media-autoplay"),
        ("<meta name=viewport content='user-scalable=no'>", "viewport-zoom"),
        ("<meta http-equiv=refresh content='5; url=x'>", "meta-refresh"),
        ("<p style='color:#777;background:#888'>x</p>", "contrast"),
        ("<p style='color:rgb(170 170 170)'>x</p>", "contrast-assumed"),
        ("<div style='background:navy'><b style='color:hsl(0,0%,20%)'>x</b></div>", "contrast"),
    ],
)
def test_a_barrier_is_found(part: str, code: str) -> None:
    assert codes(part) == [code]


@pytest.mark.system
@pytest.mark.parametrize(
    "part",
    [
        "<img src=x alt='' role=presentation>",
        "<div hidden><img src=x></div>",
        "<div style='display: none'><input></div>",
        "<input type=hidden><input type=submit>",
        "<span id=l>Name</span><input aria-labelledby=l>",
        "<a href=x aria-label='Next page'>&gt;</a>",
        "<div onclick=go() role=button tabindex=0>Go</div>",
        "<table role=presentation><tr><td>1<tr><td>2</table>",
        "<p style='color:var(--x);background:#888'>x</p>",
        "<p style='color:#777;background:url(x.png)'>x</p>",
        "<h1 style='color:#888;background:#fff'>large text needs only 3 to 1</h1>",
        "<label for='{{ field.id }}'>Name</label>",
        "<script>if (a < b) document.write('<img src=x>')</script>",
        "<p>1 < 2 and <unfinished",
    ],
)
def test_what_is_fine_or_cannot_be_known_is_not_reported(part: str) -> None:
    assert codes(part) == []


@pytest.mark.system
def test_a_whole_page_is_also_checked_for_language_title_heading_and_main() -> None:
    assert set(codes("<html><body><p>x</body></html>")) == {"html-lang", "title", "heading-first", "landmark-main"}
    assert codes("<html><body><p>x</body></html>", "--fragment") == []


@pytest.mark.system
def test_a_finding_has_its_place_and_criterion() -> None:
    done = run(HTML, "-", stdin="<p>x</p>\n  <img src=x>\n", code=1)
    assert done.stdout.startswith("-:2:3: error img-alt: ")
    assert done.stdout.rstrip().endswith("(WCAG 1.1.1)")


@pytest.mark.system
def test_the_exit_code_follows_the_chosen_severity() -> None:
    warning = "<a href=x>here</a>"
    run(HTML, "-", stdin=warning)
    run(HTML, "-", "--fail-on", "warning", stdin=warning, code=1)
    run(HTML, "-", "--fail-on", "warning", "--ignore", "link-text", stdin=warning)


@pytest.mark.system
def test_every_code_is_listed_with_its_criterion() -> None:
    lines = run(HTML, "--list").stdout.splitlines()
    assert all(re.match(r"[a-z-]+ +(error|warning|info) +\d\.\d\.\d+ +\w", line) for line in lines)


@pytest.mark.system
def test_one_unreadable_file_does_not_hide_the_findings_of_another(tmp_path: Path) -> None:
    page = write(tmp_path, "page.html", "<img src=x>")
    done = run(HTML, str(tmp_path / "missing.html"), page, code=2)
    assert "img-alt" in done.stdout


@pytest.mark.system
@pytest.mark.parametrize("part", ["<div>", "<a ", "</x", "<", "<table><tr><td><a href=x>"])
def test_a_hostile_page_is_checked_all_the_same(part: str) -> None:
    run(HTML, "-", "--fail-on", "never", stdin=part * (60_000 // len(part)) + "<p>")


@pytest.mark.system
@needs_shell
def test_the_wrapper_checks_every_page_below_a_folder_and_passes_options_on(tmp_path: Path) -> None:
    site = tmp_path / "my site"
    (site / "sub").mkdir(parents=True)
    (site / "node_modules").mkdir()
    write(site, "good page.html", GOOD)
    write(site / "sub", "bad.htm", "<img src=x>")
    write(site / "node_modules", "skipped.html", "<img src=x>")
    done = run("accessible-html/scripts/check.sh", str(site), code=1)
    assert done.stdout.count("img-alt") == 1
    run("accessible-html/scripts/check.sh", str(site), "--ignore", "img-alt")
    run("accessible-html/scripts/check.sh", str(site / "sub" / "bad.htm"), code=1)


@pytest.mark.system
@needs_shell
def test_the_wrapper_refuses_a_missing_path_an_empty_folder_and_no_path(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    wrapper = "accessible-html/scripts/check.sh"
    assert "no such file or folder" in run(wrapper, str(tmp_path / "nope"), code=2).stderr
    assert "no .html or .htm file" in run(wrapper, str(tmp_path / "empty"), code=2).stderr
    assert "usage:" in run(wrapper, code=2).stderr
