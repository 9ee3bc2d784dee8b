"""rip: the related capabilities that its contract names, as far as they concern skills; docs/rip.md has the rest."""

import re
from pathlib import Path
from typing import Any

import pytest

from calling import Run, caller
from worlds import World

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rip.md"
SKILLS = ".rip/skills"
FIELDS: dict[str, Any] = {
    "compatibility": "Needs <git>",
    "allowed_tools": "Read Grep",
    "metadata": {"author": "someone", "deep": {"a": 1}},
    "license": "MIT",
}
SHOWN = {
    "compatibility": "<compatibility>Needs &lt;git&gt;</compatibility>",
    "allowed-tools": "<allowed-tools>Read, Grep</allowed-tools>",
    "metadata": "<metadata>author: someone, deep: {&quot;a&quot;: 1}</metadata>",
    "license": "<license>MIT</license>",
}


@pytest.fixture
def run(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return caller(world, capsys, monkeypatch)


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def fields(text: str, name: str = "one") -> list[str]:
    """The fields that the entry of a skill in a prompt has."""
    (entry,) = re.findall(rf"<skill><name>{name}</name>.*?</skill>", text)
    return [key for key, element in SHOWN.items() if element in entry]


ALL_FIELDS = 'permissions.allow = [{tool = "catalog_field"}]'
ONE_FIELD = 'permissions.allow = [{{tool = "catalog_field", path = "{}"}}]'
TWO = 'prompt.fields = ["metadata", "license"]'
SHOWN_BY: list[tuple[str, str, list[str]]] = [
    # the user's file, that of a project which is not trusted, and the fields that are shown
    ("", "", []),
    ("", 'prompt.fields = ["compatibility", "metadata"]', []),
    ("", 'prompt.description_fields = ["compatibility", "license"]', []),
    ("", ALL_FIELDS, []),
    (ONE_FIELD.format("compatibility"), "", ["compatibility"]),
    (ONE_FIELD.format("*-tools"), "", ["allowed-tools"]),
    (ALL_FIELDS, "", list(SHOWN)),
    ('permissions.allow = [{tool = "catalog_field", skill_name = "other"}]', "", []),
    ('permissions.ask = [{tool = "catalog_field"}]', "", []),
    ('prompt.fields = ["metadata"]', "", ["metadata"]),
    (TWO, "prompt.fields = []", ["metadata", "license"]),
    (f'{TWO}\npermissions.deny = [{{tool = "catalog_field", path = "metadata"}}]', "", ["license"]),
    (ALL_FIELDS, 'permissions.deny = [{tool = "catalog_field", path = "[lm]*"}]', ["compatibility", "allowed-tools"]),
    ('permissions.profile = "full-auto"', "", []),
]


@pytest.mark.behaviour("R-016", "N-071", "N-072", "N-086", "N-092")
def test_the_users_policy_decides_which_further_fields_a_model_reads(world: World, run: Run) -> None:
    world.skill(f"{SKILLS}/one", **FIELDS, body="BODY OF ONE\n")
    world.skill(f"{SKILLS}/two", body="BODY OF TWO\n")
    for own, projects, shown in SHOWN_BY:
        write(world.home / ".config/metier/config.toml", own)
        world.configure(projects, trusted=False)
        printed = run("prompt", "--full", "--profile", "rip").out
        assert (fields(printed), printed.count("<skill><name>"), "BODY" in printed) == (shown, 2, False), own
        assert shown or not re.search("git|MIT", printed)
    printed = run("prompt", "--full", "--profile", "rip", "--preload", "two").out
    assert ("BODY OF TWO" in printed, "BODY OF ONE" in printed) == (True, False)
    for number in range(20):
        world.skill(f"{SKILLS}/skill-{number}", metadata={"about": "more " * 200})
    policy = {"allow": [{"tool": "catalog_field", "path": "metadata"}]}
    prompt = world.discover("rip").session(policy=policy).prompt(budget=6000)
    assert (len(prompt.text) <= 6000, prompt.shown, prompt.text.count("<metadata>about: more")) == (True, 22, 20)


@pytest.mark.behaviour("N-084", "N-089")
def test_skills_of_every_configured_folder_are_commands_and_no_other_file_is(world: World, run: Run) -> None:
    world.skill("tools/custom/deploy", body="# Deploy\n")
    world.skill("~/mine/report", body="# Report\n")
    write(world.project / "tools/custom/commands/loose.md", "---\ndescription: No skill.\n---\nrun\n")
    write(world.home / ".config/metier/config.toml", 'skills.roots = ["tools/custom", "~/mine"]\n')
    assert run("session", "commands", "--profile", "rip").out.split() == ["/skill:deploy", "/skill:report"]
    assert "# Report\n\nARGUMENTS: v2" in run("session", "invoke", "/skill:report v2", "--profile", "rip").out
    assert run("session", "invoke", "/skill:loose v2", "--profile", "rip", "--json").json["skill"] is None


@pytest.mark.behaviour("N-088")
def test_a_proposed_scope_of_the_context_holds_for_its_turn_where_policy_grants_it(world: World) -> None:
    world.skill(f"{SKILLS}/one", overrides={"context": ["src/**"]})
    skills = world.discover("rip")
    for policy, granted in (({}, {}), ({"allow": [{"tool": "override"}]}, {"context": ["src/**"]})):
        session = skills.session(policy=policy)
        session.invoke("/skill:one go")
        assert session.overrides == granted
        session.invoke("something else")
        assert session.overrides == {}


@pytest.mark.behaviour("N-083", "N-085")
def test_a_person_installs_switches_and_replaces_skills_and_a_model_sees_the_result(world: World, run: Run) -> None:
    rip = ("--profile", "rip")
    source = world.skill("elsewhere/report", body="# First\n").parent
    assert run("install", str(source), "--yes", *rip).code == 0
    assert (world.home / ".rip/skills/report/SKILL.md").is_file()
    assert "<name>report</name>" in run("prompt", *rip).out
    assert run("disable", "report", *rip).code == 0
    assert "<name>report</name>" not in run("prompt", *rip).out
    assert "no skill 'report'" in run("session", "call", "skill_load", '{"name": "report"}', *rip).out
    assert run("enable", "report", *rip).code == 0
    world.skill("elsewhere/report", body="# Second\n")
    assert run("install", str(source), "--yes", *rip).code != 0
    assert run("install", str(source), "--yes", "--replace", *rip).code == 0
    assert run("session", "call", "skill_load", '{"name": "report"}', *rip, "--json").json["text"] == "# Second\n"
    assert run("install", "--verify", *rip).code == 0


def test_the_page_says_of_every_capability_which_behaviours_there_are() -> None:
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == 14
    known = (Path(__file__).parent / "behaviours.tsv").read_text()
    for row in rows:
        ids = re.findall(r"[A-Z]-\d{3}", row[3])
        assert ids, row
        assert all(f"\n{one}\t" in known for one in ids), row
