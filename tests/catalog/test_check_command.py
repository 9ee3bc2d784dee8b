"""`metier check`: its table, its remarks, its JSON and its SARIF."""

import os

import jsonschema
import pytest

from calling import Run, caller, narrow_terminal
from metier.catalog.check import FINDINGS
from metier.catalog.validate import CODES
from metier.hosts import profiles
from worlds import World


@pytest.fixture
def run(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return caller(world, capsys, monkeypatch)


def test_check_prints_a_row_for_each_host_and_what_is_to_be_said(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow_terminal(monkeypatch)
    world.skill(".agents/skills/x", zap=1)
    result = run("check", ".agents/skills/x")
    lines = result.out.splitlines()
    assert lines[0].split() == ["HOST", "FOUND", "NAME", "MODEL", "USER"]
    assert [line.split()[0] for line in lines[1:12]] == list(profiles.BUILT_IN)
    assert ["codex", "yes", "x", "yes", "yes"] in [line.split() for line in lines]
    assert ["opencode", "yes", "x", "yes", "-"] in [line.split() for line in lines]
    assert "put it into .claude/skills/x or" in result.out
    assert "ignored: `zap`" in result.out
    assert max(map(len, lines)) <= 80
    assert result.code == 0


def test_check_of_a_repository_counts_and_lists_what_is_wrong(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow_terminal(monkeypatch)
    world.skill(".agents/skills/good")
    world.skill("deep/down/bad", name="Other")
    result = run("check", ".")
    assert result.code == 1
    assert "codex           2        0      0" not in result.out
    assert [line.split() for line in result.out.splitlines() if line.startswith("codex")] == [
        ["codex", "1", "0", "0", "0", "1", "0"]
    ]
    assert "deep/down/bad/SKILL.md" in result.out
    assert ".agents/skills/good" not in result.out
    assert "error[name-mismatch] in line 2" in result.out
    assert result.err == "2 skills, 1 of them rejected by a host\n"
    assert max(map(len, result.out.splitlines())) <= 80


def test_check_asks_only_the_hosts_that_were_named(world: World, run: Run) -> None:
    world.skill("x")
    shown = run("check", "x", "--host", "codex", "--host", "claude-code", "--json").json
    assert shown["hosts"] == ["codex", "claude-code"]
    assert [v["profile"] for v in shown["skills"][0]["verdicts"]] == ["codex", "claude-code"]
    assert shown["skills"][0]["verdicts"][0].keys() >= {
        "profile",
        "path",
        "status",
        "found",
        "why",
        "put",
        "name",
        "model",
        "user",
        "called",
        "cuts",
        "ignored",
        "notes",
        "diagnostics",
    }
    assert run("check", "x", "--profile", "rip", "--json").json["hosts"] == ["rip"]
    assert run("check", "x", "--host", "codx").code == 2


def test_check_counts_the_folders_that_hosts_are_told_to_search(world: World, run: Run) -> None:
    world.skill("prompts/x")
    asked = ["check", "prompts/x", "--host", "codex", "--json"]
    assert run(*asked).json["skills"][0]["verdicts"][0]["status"] == "elsewhere"
    assert run(*asked, "--skills", "prompts").json["skills"][0]["verdicts"][0]["status"] == "offered"


@pytest.mark.parametrize(("path", "code"), [("nowhere", 2), ("file.txt", 2), ("empty", 1)])
def test_check_of_what_is_no_skill_says_so(world: World, run: Run, path: str, code: int) -> None:
    (world.project / "file.txt").write_text("x")
    (world.project / "empty").mkdir()
    result = run("check", path)
    assert (result.code, result.out) == (code, "")
    assert path in result.err


def test_check_prints_nothing_that_a_terminal_could_obey(world: World, run: Run) -> None:
    nasty = "\x1b[31mred\x07\x9b31m\u202e"
    world.skill(
        f".agents/skills/{nasty}", description="d", text=f'---\nname: "{nasty}"\ndescription: d\n{nasty}: 1\n---\n'
    )
    for arguments in (["."], [f".agents/skills/{nasty}"], [".", "--json"], [".", "--sarif", "-v"]):
        shown = run("check", *arguments, "-v").out
        assert not [char for char in shown if (ord(char) < 32 and char != "\n") or 127 <= ord(char) < 160]


def test_a_folder_whose_name_is_no_utf8_is_told_of_all_the_same(world: World, run: Run) -> None:
    odd = os.fsdecode(b".agents/skills/x\xff")
    world.skill(odd, name="x")
    for arguments in ([], ["--json"], ["--sarif"]):
        assert "x" in run("check", ".", *arguments).out
    (result, *_) = run("check", ".", "--sarif").json["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == ".agents/skills/x%FF/SKILL.md"


SARIF: dict[str, object] = {
    # what the standard demands of the parts that are used here
    "type": "object",
    "required": ["version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"enum": ["2.1.0"]},
        "runs": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/run"}},
    },
    "$defs": {
        "message": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}},
        "run": {
            "type": "object",
            "required": ["tool", "results"],
            "additionalProperties": False,
            "properties": {
                "tool": {
                    "type": "object",
                    "required": ["driver"],
                    "properties": {
                        "driver": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {
                                "name": {"type": "string"},
                                "semanticVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+"},
                                "rules": {
                                    "type": "array",
                                    "uniqueItems": True,
                                    "items": {
                                        "type": "object",
                                        "required": ["id"],
                                        "properties": {"shortDescription": {"$ref": "#/$defs/message"}},
                                    },
                                },
                            },
                        }
                    },
                },
                "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                "originalUriBaseIds": {"type": "object"},
                "results": {"type": "array", "items": {"$ref": "#/$defs/result"}},
            },
        },
        "result": {
            "type": "object",
            "required": ["message"],
            "additionalProperties": False,
            "properties": {
                "ruleId": {"type": "string"},
                "ruleIndex": {"type": "integer", "minimum": 0},
                "level": {"enum": ["none", "note", "warning", "error"]},
                "message": {"$ref": "#/$defs/message"},
                "properties": {"type": "object"},
                "locations": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["physicalLocation"],
                        "properties": {
                            "physicalLocation": {
                                "type": "object",
                                "required": ["artifactLocation", "region"],
                                "properties": {
                                    "artifactLocation": {
                                        "type": "object",
                                        "required": ["uri"],
                                        "properties": {"uri": {"type": "string", "pattern": r"^[!-~]+$"}},
                                    },
                                    "region": {
                                        "type": "object",
                                        "required": ["startLine"],
                                        "properties": {
                                            "startLine": {"type": "integer", "minimum": 1},
                                            "startColumn": {"type": "integer", "minimum": 1},
                                        },
                                    },
                                },
                            }
                        },
                    },
                },
            },
        },
    },
}


def test_sarif_is_well_formed_and_points_into_the_repository(world: World, run: Run) -> None:
    world.skill("docs/sub dir/größe", name="Other", description="d" * 2000)
    shown = run("check", ".", "--sarif")
    assert shown.code == 1
    jsonschema.validate(shown.json, SARIF)
    (only,) = shown.json["runs"]
    rules = [rule["id"] for rule in only["tool"]["driver"]["rules"]]
    assert set(rules) <= {*CODES, *FINDINGS}
    for result in only["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"] == {"uri": "docs/sub%20dir/gr%C3%B6%C3%9Fe/SKILL.md", "uriBaseId": "PROJECT"}
        assert result["properties"]["hosts"]
    mismatch = next(r for r in only["results"] if r["ruleId"] == "name-mismatch")
    assert mismatch["level"] == "error"
    assert mismatch["locations"][0]["physicalLocation"]["region"]["startLine"] == 2
    assert "vscode-copilot" in mismatch["message"]["text"]
    assert {r["level"] for r in only["results"]} == {"error", "warning"}
    everything = run("check", ".", "--sarif", "-v").json
    jsonschema.validate(everything, SARIF)
    assert "host-elsewhere" in [r["ruleId"] for r in everything["runs"][0]["results"]]
