"""`metier check`: its table, its remarks, its JSON and its SARIF."""

import json
import os
from pathlib import Path

import jsonschema
import pytest

from calling import Run, caller, narrow_terminal
from metier.catalog.validate import codes
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
    assert lines[0].split() == ["HOST", "FOUND", "NAME", "MODEL", "USER", "SURE"]
    assert [line.split()[0] for line in lines[1 : len(profiles.BUILT_IN) + 1]] == list(profiles.BUILT_IN)
    rows = [line.split() for line in lines]
    assert ["codex", "yes", "x", "yes", "yes", "documented"] in rows
    assert ["goose", "yes", "x", "yes", "yes", "source"] in rows
    assert ["codelia", "yes", "x", "yes", "yes", "tested"] in rows
    assert ["opencode", "yes", "x", "yes", "-", "assumed"] in rows
    said = " ".join(result.out.split())
    assert "assumed: no way to call a skill in a message is named (`invocation.forms`) (opencode, amp)" in said
    assert "put it into .claude/skills/x or" in result.out
    assert "ignored: `zap`" in result.out
    assert max(map(len, lines[: len(profiles.BUILT_IN) + 1])) <= 80, "the table; remarks wrap on a terminal only"
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
        ["codex", "1", "0", "0", "0", "1", "0", "0"]
    ]
    assert [line.split()[-1] for line in result.out.splitlines() if line.startswith(("HOST", "amp"))] == [
        "ASSUMED",
        "2",
    ]
    assert "deep/down/bad/SKILL.md" in result.out
    assert ".agents/skills/good" not in result.out
    assert "error[name-mismatch] in line 2" in result.out
    assert result.err == "2 skills, 1 of them rejected by a host\n"
    assert max(map(len, result.out.splitlines()[: len(profiles.BUILT_IN) + 1])) <= 80


def test_check_asks_only_the_hosts_that_were_named(world: World, run: Run) -> None:
    world.skill("x")
    shown = run("check", "x", "--host", "codex", "--host", "claude-code", "--json").json
    assert shown["hosts"] == ["codex", "claude-code"]
    assert [v["profile"] for v in shown["skills"][0]["verdicts"]] == ["codex", "claude-code"]
    assert {"status", "why", "put", "cuts", "diagnostics", "certainty"} <= shown["skills"][0]["verdicts"][0].keys()
    assert run("check", "x", "--profile", "rip", "--json").json["hosts"] == ["rip"]
    assert run("check", "x", "--host", "codx").code == 2
    world.skill("prompts/x")
    asked = ["check", "prompts/x", "--host", "codex", "--json"]
    assert run(*asked).json["skills"][0]["verdicts"][0]["status"] == "elsewhere"
    assert run(*asked, "--skills", "prompts").json["skills"][0]["verdicts"][0]["status"] == "offered"
    (world.project / "file.txt").write_text("x")
    (world.project / "empty").mkdir()
    for path, code in {"nowhere": 2, "file.txt": 2, "empty": 1}.items():
        wrong = run("check", path)
        assert (wrong.code, wrong.out, path in wrong.err) == (code, "", True)


def test_a_named_host_must_find_and_show_the_skill(world: World, run: Run) -> None:
    world.skill(".agents/skills/x")
    assert run("check", ".").code == 0, "hosts that nobody named only inform"
    assert run("check", ".", "--host", "codex").code == 0
    failed = run("check", ".", "--host", "codex", "--host", "claude-code")
    assert (failed.code, failed.err.splitlines()[-1]) == (
        1,
        "failed: claude-code does not find .agents/skills/x/SKILL.md",
    )
    shown = run("check", ".", "--host", "claude-code", "--json")
    assert (shown.code, shown.json["passed"], shown.json["skills"][0]["verdicts"][0]["shown"]) == (1, False, False)
    (result,) = run("check", ".", "--host", "claude-code", "--sarif").json["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("host-elsewhere", "error")


def test_a_skill_for_the_user_alone_is_shown_and_one_beyond_the_listing_is_not(world: World, run: Run) -> None:
    world.skill(".claude/skills/mine", disable_model_invocation=True)
    assert run("check", ".claude/skills/mine", "--host", "claude-code").code == 0
    world.skill(".claude/skills/nobody", disable_model_invocation=True, user_invocable=False)
    hidden = run("check", ".claude/skills/nobody", "--host", "claude-code")
    assert (hidden.code, hidden.err) == (1, "failed: claude-code does not show .claude/skills/nobody/SKILL.md\n")
    (world.project / "small.toml").write_text('extends = "codelia"\nsummary = "x"\n[prompt]\nmax_entries = 1\n')
    for name in ("a", "b"):
        world.skill(f".agents/skills/{name}")
    assert run("check", ".agents/skills/a", "--host", "./small.toml").code == 0
    assert run("check", ".agents/skills/b", "--host", "./small.toml").code == 1


def test_the_hosts_of_a_configuration_are_named_hosts(world: World, run: Run) -> None:
    world.skill(".agents/skills/x")
    (world.project / "pyproject.toml").write_text('[tool.metier.check]\nhosts = ["codex", "claude-code"]\n')
    result = run("check", ".")
    assert result.code == 1
    assert [line.split()[0] for line in result.out.splitlines()[1:3]] == ["codex", "claude-code"]
    assert run("check", ".", "--host", "codex").code == 0, "an option is stronger"
    (world.project / ".metier").mkdir()
    (world.project / "pyproject.toml").unlink()
    (world.project / ".metier/config.toml").write_text('check.hosts = ["codx"]\n')
    wrong = run("check", ".")
    assert (wrong.code, "codex" in wrong.err) == (2, True)


def test_check_prints_nothing_that_a_terminal_could_obey_and_tells_of_odd_folders(world: World, run: Run) -> None:
    nasty = "\x1b[31mred\x07\x9b31m\u202e"
    text = f'---\nname: "{nasty}"\ndescription: d\n{nasty}: 1\n---\n'
    world.skill(f".agents/skills/{nasty}", description="d", text=text)
    world.skill(os.fsdecode(b".agents/skills/x\xff"), name="x")
    for arguments in (["."], [f".agents/skills/{nasty}"], [".", "--json"], [".", "--sarif", "-v"]):
        shown = run("check", *arguments, "-v").out
        assert not [char for char in shown if (ord(char) < 32 and char != "\n") or 127 <= ord(char) < 160]
    results = run("check", ".", "--sarif").json["runs"][0]["results"]
    uris = {one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in results}
    assert ".agents/skills/x%FF/SKILL.md" in uris


SARIF = json.loads(Path(__file__).with_name("sarif.json").read_text())
"""What the standard demands of the parts that are used here."""


def test_the_sarif_of_a_strict_validation_has_every_finding_with_its_place(world: World, run: Run) -> None:
    files = {"references/a.md": "x\u202e", "references/b c.md": ""}
    world.skill("größe", description="TODO", body="[a](references/a.md)\n ![gone](gone.png)\n", files=files)
    shown = run("validate", "--strict", "--sarif", ".")
    assert shown.code == 1
    jsonschema.validate(shown.json, SARIF)
    (only,) = shown.json["runs"]
    assert only["automationDetails"]["id"] == "metier-validate/"
    found: set[tuple[object, ...]] = set()
    for result in only["results"]:
        place = result["locations"][0]["physicalLocation"]
        uri, region = place["artifactLocation"]["uri"].removeprefix("gr%C3%B6%C3%9Fe/"), place["region"]
        found.add((result["ruleId"], result["level"], uri, region["startLine"], region["startColumn"]))
    assert found == {
        ("description-placeholder", "warning", "SKILL.md", 3, 1),
        ("file-missing", "warning", "SKILL.md", 6, 10),
        ("hidden-characters", "error", "references/a.md", 1, 2),
        ("reference-unreachable", "note", "references/b%20c.md", 1, 1),
    }
    missing = next(r for r in only["results"] if r["ruleId"] == "file-missing")
    assert missing["message"]["text"] == "gone.png does not exist; add the file, or correct the path"


def test_sarif_is_well_formed_and_points_into_the_repository(world: World, run: Run) -> None:
    world.skill("docs/sub dir/größe", name="Other", description="d" * 2000)
    shown = run("check", ".", "--sarif")
    assert shown.code == 1
    jsonschema.validate(shown.json, SARIF)
    (only,) = shown.json["runs"]
    rules = [rule["id"] for rule in only["tool"]["driver"]["rules"]]
    assert set(rules) <= {code for table in codes().values() for code in table}
    for result in only["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"] == {"uri": "docs/sub%20dir/gr%C3%B6%C3%9Fe/SKILL.md", "uriBaseId": "PROJECT"}
        assert result["properties"]["hosts"]
        assert list(result["properties"]["certainty"]) == result["properties"]["hosts"]
    mismatch = next(r for r in only["results"] if r["ruleId"] == "name-mismatch")
    assert mismatch["level"] == "error"
    sure = mismatch["properties"]["certainty"]
    assert (sure["codelia"], sure["cursor"], sure["roo"]) == ("tested", "documented", "source")
    assert mismatch["locations"][0]["physicalLocation"]["region"]["startLine"] == 2
    assert "vscode-copilot" in mismatch["message"]["text"]
    assert {r["level"] for r in only["results"]} == {"error", "warning"}
    everything = run("check", ".", "--sarif", "-v").json
    jsonschema.validate(everything, SARIF)
    assert "host-elsewhere" in [r["ruleId"] for r in everything["runs"][0]["results"]]
