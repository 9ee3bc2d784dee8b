"""`metier search`: what it prints for people, for programs and into pipes."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest

from calling import Run, caller, narrow_terminal
from worlds import World

SKILLS = ".agents/skills"


@pytest.fixture
def run(shelf: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return caller(shelf, capsys, monkeypatch)


@pytest.fixture
def shelf(world: World) -> World:
    about = "Drafts release notes and a changelog from a Git history, with breaking changes first, for the people."
    world.skill(f"{SKILLS}/release-notes", description=about, body="Read the tags.\n" * 6)
    world.skill(f"{SKILLS}/release", description="Ships a version.")
    world.skill(f"{SKILLS}/csv-profile", description="Profiles a CSV file: types, missing values and outliers.")
    return world


def on_a_terminal(world: World, *arguments: str) -> str:
    """What the command writes when its output is a terminal."""
    above, below = pty.openpty()
    command = [sys.executable, "-c", "from metier.surfaces.cli import main; main()", *arguments]
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    with os.fdopen(above, "rb", buffering=0) as terminal:
        process = subprocess.Popen(command, cwd=world.project, env=env, stdout=below, stderr=subprocess.DEVNULL)
        os.close(below)
        shown = b""
        try:
            while data := terminal.read(4096):
                shown += data
        except OSError:  # the other side is closed
            pass
        process.wait()
    return shown.decode().replace("\r\n", "\n")


def test_a_table_says_score_name_reason_and_description(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in run("search", "draft a changelog", "--explain").out, "nothing is marked in a pipe"
    narrow_terminal(monkeypatch)
    head, row = run("search", "draft a changelog").out.splitlines()
    assert head.split() == ["SCORE", "NAME", "WHY", "DESCRIPTION"]
    assert row.split()[1:4] == ["release-notes", "token_overlap", "Drafts"]
    assert max(len(head), len(row)) <= 80


@pytest.mark.system
def test_matched_words_are_bold_on_a_terminal_and_nothing_else_commands_it(shelf: World) -> None:
    shelf.skill(f"{SKILLS}/evil", description="Resizes images \x1b[2J\x1b]0;x\x07 images")
    for words, bold, plain in (
        (["draft a changelog of releases"], {"Drafts", "release", "changelog"}, "Git"),
        (["missing values", "--explain"], {"missing", "values"}, "types"),
        (["resize images", "--explain"], {"Resizes", "images"}, "evil"),
    ):
        shown = on_a_terminal(shelf, "search", *words)
        found = set(re.findall(r"\x1b\[1m(.*?)\x1b\[0m", shown))
        assert (bold <= found, plain in found) == (True, False), found
        assert re.findall(r"\x1b(?!\[[01]m)|\x07", shown) == []


def test_an_explanation_says_why_with_which_words_and_from_which_score(run: Run) -> None:
    text = " ".join(run("search", "draft a changelog from the tags, quickly", "--explain").out.split())
    assert re.search(r"1\. release-notes .*score 1\d\d(\.\d+)?", text)
    assert re.search(r"matched (?=.*draft)(?=.*changelog)(?=.*tags)", text)
    assert "quickly" not in text
    for query, why in {
        "draft a changelog": "it shares words with the query (token_overlap)",
        "release": "the query is its name (exact_name)",
        "csv": "its name begins with the query (prefix)",
        f"{SKILLS}/csv-profile": "the query is its path (exact_path)",
        "csvprofle": "its name is spelled much like the query (token_overlap)",
    }.items():
        first = run("search", query, "--explain").out.split("\n\n")[0]
        assert why in " ".join(first.split()), query


def test_json_has_the_matched_words_when_asked_to_explain(run: Run) -> None:
    plain = json.loads(run("search", "draft a changelog", "--json").out)
    explained = json.loads(run("search", "draft a changelog", "--json", "--explain").out)
    assert explained["results"][0].pop("matched") == ["draft", "changelog"]
    assert explained == plain
    assert sorted(plain["results"][0]) == ["fit", "reason", "score", "skill"]


def test_weak_matches_are_said_to_be_weak_and_none_is_an_end_with_one_line(run: Run) -> None:
    for more in ((), ("--explain",)):
        result = run("search", "what is the weather like", *more)
        assert result == (1, "", "no skill matches 'what is the weather like'\n")
    query = "please tell my grandmother about the missing trains of yesterday evening in Paris"
    result = run("search", query)
    assert [line.split()[1:3] for line in result.out.splitlines()] == [["FIT", "NAME"], ["weak", "csv-profile"]]
    assert (result.code, result.err) == (0, "no skill fits this well; these are the nearest\n")
    assert "fit weak: too little of the query was found" in " ".join(run("search", query, "--explain").out.split())
    (hit,) = json.loads(run("search", query, "--json").out)["results"]
    assert (hit["skill"]["name"], hit["fit"]) == ("csv-profile", "weak")


def test_a_query_that_names_a_skill_which_was_left_out_says_why(shelf: World, run: Run) -> None:
    shelf.skill(f"{SKILLS}/group/build", description="Builds the thing.")
    shelf.skill(f"{SKILLS}/slash", name="a/b", description="Is broken.")
    lower = shelf.skill(f"{SKILLS}/lower", description="Has the wrong case.")
    os.rename(lower, os.path.join(os.path.dirname(lower), "skill.md"))
    assert "build/SKILL.md: folders named build are not searched\n" in run("search", "build").err
    assert "slash/SKILL.md: `name` contains '/'" in run("search", "slash").err
    assert "skill.md is not found by hosts: they look for SKILL.md" in run("search", "lower").err
    assert "build" not in run("search", "draft a changelog").err
    assert "folders named build are not searched" in run("load", "build").err
