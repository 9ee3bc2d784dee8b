"""JSON that is written item by item: the parts are the whole document, and an error in the middle is told."""

import json

import pytest

from calling import Run
from metier import ConfigError
from metier.authoring import check
from metier.authoring.verdict import HostVerdict
from metier.surfaces.cli import output
from metier.values.skill import Skill
from worlds import World

SKILLS = ".agents/skills"
COMMANDS = {
    "list": ["list", "--json"],
    "validate": ["validate", "--strict", "--json", SKILLS],
    "check": ["check", "--json", "--host", "codex", "--host", "opencode", SKILLS],
}


@pytest.fixture
def many(mixed: World) -> World:
    """More than one part of output, with items of every kind and characters that JSON has to escape."""
    for number in range(100):
        text = f'Says "{number}" \\ and é, 漢 and \x7f. ' + "Words and more words. " * 60
        mixed.skill(f"{SKILLS}/s{number:03}", description=text[:1000], text=None)
    return mixed


def test_the_parts_are_the_whole_document(many: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, command in COMMANDS.items():
        monkeypatch.setattr(output, "_CHUNK", 1 << 16)
        usual = run(*command)
        assert len(usual.out) > 70_000, "more than is printed at once"
        for size in (0, 1 << 30):
            monkeypatch.setattr(output, "_CHUNK", size)
            assert run(*command).out == usual.out, name
    listed = run(*COMMANDS["list"]).json
    skills = many.discover()
    assert listed["skills"] == json.loads(json.dumps([skill.as_dict() for skill in skills]))
    assert listed["diagnostics"] == json.loads(json.dumps([one.as_dict() for one in skills.diagnostics]))
    verdicts = check.examine([many.project / SKILLS], ["codex", "opencode"], many.project, many.home)
    checked = run(*COMMANDS["check"]).json["skills"]
    assert [one for skill in checked for one in skill["verdicts"]] == [one.as_dict() for one in verdicts]


@pytest.mark.parametrize(
    ("command", "kind", "at"), [("list", Skill, 0), ("list", Skill, 55), ("check", HostVerdict, 100)]
)
def test_an_error_in_the_middle_is_an_error(
    many: World, run: Run, command: str, kind: type, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a part was printed before, standard output is no document. Standard error and the exit code say why."""
    original, calls = kind.as_dict, iter(range(1000))

    def failing(one: object) -> object:
        if next(calls) == at:
            raise ConfigError("the disk of the cache is gone", key="cache")
        return original(one)

    monkeypatch.setattr(kind, "as_dict", failing)
    result = run(*COMMANDS[command])
    error = json.loads(result.err.splitlines()[-1])["error"]
    assert (error["code"], error["exit_code"], result.code) == ("INVALID_PARAM", 2, 2)
    assert "the disk of the cache is gone" in error["message"]
    with pytest.raises(ValueError, match=r"Unterminated|Expecting|Extra"):
        json.loads(result.out)
    assert at or result.out == "", "what was not begun is not printed"
