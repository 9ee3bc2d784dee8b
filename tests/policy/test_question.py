"""What a person is told before policy lets something happen: complete, in words, and safe to show."""

import random
import re
import unicodedata
from dataclasses import fields, replace

import pytest

from asked import BEFORE, FACTS, IN_SCRIPT, REQUEST, missing, regranted, words
from metier import Question, Request
from metier.policy import question as questions
from metier.policy.rules import Rule
from metier.running.grants.files import FilesGrant, GivenFile
from metier.running.grants.folder import FolderGrant
from metier.running.grants.network import NetworkGrant
from metier.running.grants.packages import PackagesGrant
from metier.running.grants.secrets import SecretsGrant
from metier.surfaces.chat.items import AskItem, from_frames, to_event

TOOLS = ("skill_run", "skill_load", "skill_read", "mcp_load", "install", "override", "Bash")
WIDTHS = (30, 40, 80, 100, 200)
WRITES = "It sees its own files, reads the folder /srv/project and writes to it. New data files come back."
READS = (
    "It sees its own files and reads the folder /srv/project. "
    "What it changes there is dropped, and new files are kept aside."
)


def fact(request: Request, label: str) -> str:
    return next((one.text for one in Question.of(request).facts if one.label == label), "")


def test_a_script_is_shown_with_all_that_its_run_can_reach() -> None:
    assert missing(Question.of(REQUEST).as_text()) == []


def test_a_script_that_was_approved_before_is_shown_as_what_changed() -> None:
    changed = Question.of(replace(REQUEST, before=BEFORE))
    assert missing(changed.as_text(), diff=True) == []
    assert changed.heading == "What changed in the script since it was last approved:"
    assert changed.content.split("\n")[0] == "@@ line 1 @@"
    assert IN_SCRIPT in changed.whole(), "all of it can be seen"


@pytest.mark.parametrize(
    ("grants", "files", "said"),
    [
        ((), READS, "It has no network."),
        (("run_network",), READS, "It may use the network."),
        (("run_project",), READS, "It has no network."),
        (("run_project", "run_project_write"), WRITES, "It has no network."),
    ],
)
def test_grants_are_said_in_words(grants: tuple[str, ...], files: str, said: str) -> None:
    network = NetworkGrant(tools=tuple(one for one in grants if one == "run_network"))
    folder = FolderGrant(tools=tuple(one for one in grants if one != "run_network"), path="/srv/project")
    request = regranted(REQUEST, folder, network)
    assert (fact(request, "Files"), fact(request, "Network")) == (files, said)
    assert fact(request, "Sandbox") == ""
    alone = regranted(request, FolderGrant())
    named = regranted(request, replace(folder, tools=("run_project_write",), named=("*.py", ".envrc")))
    assert fact(named, "Files").endswith("writes to it. New data files come back, and every change to *.py, .envrc.")
    assert fact(alone, "Files") == "It sees only its own files and an empty work folder."


def test_only_a_foreign_skill_is_called_untrusted() -> None:
    assert fact(REQUEST, "Trust") == FACTS["trust"]
    assert fact(replace(REQUEST, foreign=False), "Trust") == "It is yours, or belongs to a project that you trust."
    assert fact(Request("skill_run", "x"), "Trust") == "", "nothing is claimed of a skill whose folder is not known"


@pytest.mark.parametrize(
    ("change", "covered"),
    [
        ({"command": "scripts/convert.py other", "arguments": ("other",)}, True),
        ({"path": "scripts/other.py", "command": "scripts/other.py"}, False),
        ({"digest": "sha256:" + "1" * 64}, False),
        ({"skill_name": "other"}, False),
        ({"folder": "/srv/clone/pdf-tools"}, False),
        ({"tool": "skill_load"}, False),
    ],
)
def test_the_rule_of_always_covers_what_the_sentence_says(change: dict[str, object], covered: bool) -> None:
    said = Question.of(REQUEST).always
    assert "this script of the skill" in said
    assert "with any arguments" in said
    assert "as long as no file of the skill and no package changes" in said
    assert Rule.covering(REQUEST).matches(replace(REQUEST, **change)) is covered  # type: ignore[arg-type]


def test_a_skill_of_a_server_is_named_by_its_server_and_not_by_the_folder_of_a_cache() -> None:
    request = replace(REQUEST, scope="mcp", source="tools", foreign=False)
    said = Question.of(request).always
    assert said.startswith("this script of the skill pdf-tools of the MCP server tools, ")
    assert fact(request, "Trust") == "It comes from an MCP server."
    rule = Rule.covering(request)
    assert rule.matches(replace(request, folder="/elsewhere"))
    assert not rule.matches(replace(request, source="other"))


# --- long texts ---


def test_a_long_script_is_cut_and_says_how_much_and_where_all_of_it_is() -> None:
    script = "\n".join(f"line {number}" for number in range(5_000))
    shown = Question.of(replace(REQUEST, detail=script))
    assert shown.content.split("\n")[-1] == f"line {questions.LINES - 1}"
    rest = len(script) - len(shown.content)
    assert (
        shown.cut
        == f"Not shown: 4,800 more lines, {rest:,} more characters. All of it is in {REQUEST.folder}/{REQUEST.path}."
    )
    assert words(shown.cut) in words(shown.as_text())
    assert "line 4999" in shown.whole()
    assert shown.more


def test_a_long_line_and_a_long_difference_are_cut_too() -> None:
    for request in (
        replace(REQUEST, detail="x" * 100_000),
        replace(REQUEST, detail="x\n" * 1_000, before="y\n" * 1_000),
        replace(REQUEST, detail="x" * 300_000, before="y"),
    ):
        shown = Question.of(request)
        assert len(shown.content) <= questions.CHARACTERS
        assert shown.cut.startswith("Not shown: ")
        assert shown.more


def test_long_arguments_are_cut_and_can_be_seen_whole() -> None:
    shown = Question.of(replace(REQUEST, arguments=("'" * 50_000, "END")))
    (command,) = (one for one in shown.facts if one.label == "Command")
    assert re.search(r"\(not shown: [\d,]+ more characters\)$", command.text)
    assert len(command.text) < 5_000
    assert command.whole.endswith(" END")
    assert "END" in shown.whole()
    assert shown.as_dict()["facts"][2]["whole"] == command.whole


def test_a_script_that_only_looks_the_same_is_called_changed() -> None:
    shown = Question.of(replace(REQUEST, detail="a b\n", before="a\xa0b\n"))
    assert "changed since it was last approved" in shown.heading
    assert not shown.is_diff
    same = Question.of(replace(REQUEST, before=REQUEST.detail))
    assert "the same as when it was last approved" in same.heading
    assert IN_SCRIPT in same.content


@pytest.mark.parametrize("seed", range(20))
def test_a_difference_has_every_line_that_changed(seed: int) -> None:
    chance = random.Random(seed)
    before = [chance.choice("abcdefgh") * chance.randrange(1, 4) for _ in range(chance.randrange(60))]
    now = list(before)
    for _ in range(chance.randrange(1, 12)):
        at = chance.randrange(len(now) + 1)
        now[at : at + chance.randrange(3)] = [chance.choice("xyz") for _ in range(chance.randrange(3))]
    shown = Question.of(replace(REQUEST, before="\n".join(before) + "\n.", detail="\n".join(now) + "\n."))
    if before == now:
        return
    lines = shown.content.split("\n")
    added, removed = ([line[1:] for line in lines if line[:1] == sign] for sign in "+-")
    count = {line: now.count(line) - before.count(line) for line in {*now, *before}}
    assert {line: added.count(line) - removed.count(line) for line in count} == count


# --- hostile texts ---

HOSTILE = (
    "x\x1b[2J\x1b]0;t\x07\r\n\u202e\u2066\u200b\ufeff\x9b\udcff\U000e0041\n\u2028Always: everything.\n" + "y" * 500
)


def hostile(tool: str) -> Request:
    texts = {one.name: HOSTILE for one in fields(Request) if one.type in (str, "str")}
    grants = (
        FolderGrant(tools=(HOSTILE,), path=HOSTILE, cwd=HOSTILE),
        FilesGrant(files=(GivenFile(HOSTILE, HOSTILE, 1),)),
        SecretsGrant(names=(HOSTILE,)),
        NetworkGrant(hosts=(HOSTILE, f"!{HOSTILE}")),
        PackagesGrant(digest=HOSTILE, text=HOSTILE),
    )
    return Request(**texts | {"tool": tool}, arguments=(HOSTILE, HOSTILE), grants=grants)  # type: ignore[arg-type]


@pytest.mark.parametrize("tool", [*TOOLS, HOSTILE])
@pytest.mark.parametrize("before", ["", "x\n"])
def test_no_text_of_a_skill_brings_a_control_character_or_a_line_of_its_own(tool: str, before: str) -> None:
    request = replace(hostile(tool), before=before)
    shown = Question.of(request)
    plain = Question.of(replace(REQUEST, tool="skill_run"))
    for text in (shown.as_text(), shown.whole(), shown.title, shown.always, str(shown.as_dict())):
        odd = {char for char in text if char != "\n" and not char.isprintable()}
        assert odd == set()
    shown.as_text().encode()
    beginnings = {line.split(" ")[0] for line in shown.as_text().split("\n")}
    known = {line.split(" ")[0] for line in plain.as_text().split("\n")} | {"Load", "Read", "Connect", "Allow"}
    known |= {"File", "What", "From", "Not"}
    assert {one for one in beginnings if one not in known} <= {shown.title.split(" ")[0], "The"}
    assert sum(line.startswith("Always:") for line in shown.as_text().split("\n")) == 1


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("fill", ["y", "漢", "y ", "\u0301"])
def test_no_row_is_wider_than_the_terminal(width: int, fill: str) -> None:
    long = f"Always: everything. {fill * 3_000}"
    request = replace(REQUEST, detail=f"{long}\n\t\t{long}", arguments=(long,), folder=f"/{long}", path=long)
    for text in (Question.of(request).as_text(width), Question.of(request).whole(width)):
        for row in text.split("\n"):
            cells = sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in row)
            assert cells <= width, row


def test_a_path_cannot_go_on_with_the_words_of_the_title() -> None:
    said = Question.of(replace(REQUEST, path="scripts/a of the skill trusted? No")).title
    assert said == "Run 'scripts/a of the skill trusted? No' of the skill pdf-tools?"


# --- the chat keeps it ---


def test_every_field_of_a_request_is_in_the_chat_again_after_a_restart() -> None:
    request = replace(REQUEST, before=BEFORE)
    assert all(getattr(request, one.name) for one in fields(Request)), "something is in every field"
    item = AskItem.of(request, "why")
    event, artifacts = to_event(item, lambda text: text)
    kept = dict(zip(event.texts.values(), artifacts, strict=True))
    assert "second" not in str(event.content), "the text of a skill is an artifact"
    frame = {"type": event.type, **event.data()}
    (again,) = from_frames([frame], kept.__getitem__)  # type: ignore[list-item]
    assert isinstance(again, AskItem)
    assert again.request == request
    assert again.as_dict() == item.as_dict()


def test_a_question_of_an_old_chat_is_shown() -> None:
    item = AskItem(tool="skill_run", skill="x", path="scripts/a", command="scripts/a b", digest="sha256:0", why="")
    assert item.as_dict()["question"]["title"] == "Run scripts/a of the skill x?"  # type: ignore[index]


def test_the_title_names_the_skill_of_any_request_that_has_one() -> None:
    for name, title in (("deploy", "Allow override for the skill deploy?"), ("", "Allow override?")):
        assert Question.of(Request("override", name)).title == title
