"""oh-my-pi: five providers with priorities, custom directories behind them, toggles, globs and collisions."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hosts.asking import codes, metier, names
from metier import ConfigError, Skills
from worlds import World

FOLDERS = {
    ("native", "project"): ".omp/skills",
    ("native", "user"): "~/.omp/agent/skills",
    ("claude", "user"): "~/.claude/skills",
    ("claude", "project"): ".claude/skills",
    ("claude-plugins", "user"): "~/.claude/plugins/cache/market/tool/skills",
    ("agents", "project"): ".agents/skills",
    ("agents", "user"): "~/.agents/skills",
    ("codex", "user"): "~/.codex/skills",
    ("codex", "project"): ".codex/skills",
}
"""A folder of each provider and level; those of plugins are where the registry of Claude says."""

PRIORITIES = {"native": 100, "claude": 80, "claude-plugins": 70, "agents": 70, "codex": 70}
CUSTOM = "~/custom"


@pytest.fixture(autouse=True)
def plugins(world: World) -> Path:
    """The registry of installed plugins, with one."""
    file = world.home / ".claude/plugins/installed_plugins.json"
    file.parent.mkdir(parents=True)
    entry = {"installPath": str(world.home / ".claude/plugins/cache/market/tool"), "scope": "user"}
    file.write_text(json.dumps({"version": 2, "plugins": {"tool@market": [entry]}}))
    return file


def discover(world: World, **settings: Any) -> Skills:
    return world.discover("omp", settings={"skills": {"customDirectories": [CUSTOM], **settings}})


def everywhere(world: World, pattern: str = "{source}-{level}", **given: Any) -> dict[str, Path]:
    """A skill in the folder of each provider and in the custom directory, and its file."""
    places = {**FOLDERS, ("custom", "user"): CUSTOM}
    written: dict[str, Path] = {}
    for (source, level), folder in places.items():
        name = pattern.format(source=source, level=level)
        written[f"{source}-{level}"] = world.skill(f"{folder}/{name}", **given)
    return written


ALL = sorted([*(f"{source}-{level}" for source, level in FOLDERS), "custom-user"])


@pytest.mark.behaviour("O-001", "O-003", "O-006", "O-008", "O-009", "O-010", "O-015")
def test_every_provider_and_custom_directory_is_searched_in_order_unless_switched_off(world: World) -> None:
    written = everywhere(world, description="What it does.")
    listed = metier(world, "list", "--profile", "omp", cwd=world.project)
    found = {skill["name"]: (skill["source"], skill["scope"]) for skill in listed["skills"]}
    assert found == {f"{source}-{level}": (source, level) for source, level in FOLDERS}
    native = [(root["path"], root["count"]) for root in listed["roots"] if root["source"] == "native"]
    assert native == [(f"{world.project}/.omp/skills", 1), (f"{world.home}/.omp/agent/skills", 1)]
    skills = discover(world)
    assert names(skills) == ALL
    for place, path in written.items():
        skill, (source, level) = skills[place], place.rsplit("-", 1)
        assert (skill.name, skill.description) == (place, "What it does.")
        assert (skill.path, skill.dir) == (str(path), str(path.parent))
        assert (skill.source, skill.scope, skill.root.path) == (source, level, str(path.parent.parent))
    assert list(dict.fromkeys(root.source for root in skills.roots)) == [*PRIORITIES, "custom"]
    assert {root.source: root.priority for root in skills.roots if root.source != "custom"} == PRIORITIES
    off = discover(world, enabled=False)
    assert (list(off), off.counts.found) == ([], 0)


@pytest.mark.behaviour("O-001", "O-009", "O-010", "O-011", "O-013", "O-058")
def test_further_folders_count_and_dot_entries_and_instructions_do_not(world: World) -> None:
    further = {".agent/skills": "agents", "~/.agent/skills": "agents", "~/.claude/plugins/skills": "claude-plugins"}
    for number, folder in enumerate(further):
        world.skill(f"{folder}/further-{number}")
    for name in ("build", "dist", "node_modules", "Zebra"):
        world.skill(f".claude/skills/{name}")
    world.skill("../.omp/skills/above")
    world.skill(".omp/skills/top")
    world.skill("a/.omp/skills/inner")
    shown = world.skill(f"{CUSTOM}/Shown")
    everywhere(world, ".{source}-{level}")
    for folder in ("", ".omp/skills", ".omp/skills/other", ".claude/skills/AGENTS.md"):
        (world.project / folder).mkdir(parents=True, exist_ok=True)
        (world.project / folder / "AGENTS.md").write_text("---\nname: agents\ndescription: Not a skill.\n---\n")
    skills = world.discover("omp", world.project / "a", settings={"skills": {"customDirectories": [CUSTOM]}})
    expected = [*(f"further-{number}" for number in range(3)), "build", "dist", "node_modules", "Zebra", "top", "inner"]
    assert names(skills) == sorted([*expected, "Shown"], key=str.lower)
    assert [skills[f"further-{number}"].source for number in range(3)] == list(further.values())
    assert {(skills[name].source, skills[name].scope) for name in ("top", "inner")} == {("native", "project")}
    assert (skills["Shown"].path, skills.counts.found) == (str(shown), len(skills))


@pytest.mark.behaviour("O-002", "O-003")
def test_a_skill_two_levels_down_is_found_by_no_provider_and_in_no_custom_directory(world: World) -> None:
    everywhere(world, "group/{source}-{level}")
    assert discover(world).counts.found == 0


@pytest.mark.behaviour("O-004")
@pytest.mark.parametrize("parent", [".claude/skills", "elsewhere"])
def test_a_custom_directory_may_be_the_nested_parent(world: World, parent: str) -> None:
    path = world.skill(f"{parent}/team/internal")
    assert names(world.discover("omp")) == []
    skills = world.discover("omp", settings={"skills": {"customDirectories": [str(world.project / parent / "team")]}})
    assert [(skill.path, skill.source) for skill in skills] == [(str(path), "custom")]


@pytest.mark.behaviour("O-007")
def test_a_skill_that_is_added_later_is_listed_after_the_next_start(world: World) -> None:
    world.skill(".omp/skills/early")
    skills = discover(world)
    world.skill(".omp/skills/late")
    assert not skills.refresh()
    assert names(skills) == ["early"]
    assert names(discover(world)) == ["early", "late"]


@pytest.mark.behaviour("O-012")
def test_a_root_that_is_itself_a_skill_yields_nothing(world: World) -> None:
    for folder in (*FOLDERS.values(), CUSTOM):
        world.skill(folder, "itself", files={"references/more.md": "text"})
    skills = discover(world)
    assert (list(skills), skills.errors) == ([], ())


@pytest.mark.behaviour("O-014")
def test_scanning_one_folder_gives_what_a_custom_directory_gives(world: World) -> None:
    for name in ("one", "Two_3"):
        world.skill(f"{CUSTOM}/{name}", globs=["*.py"])
    world.skill(f"{CUSTOM}/group/deep")
    world.skill(f"{CUSTOM}/undescribed", description=None)
    scanned = Skills.scan(world.home / "custom", source="label", profile="omp", home=world.home)
    named = discover(world)
    assert {skill.source for skill in scanned} == {"label"}
    without_source = [[skill.as_dict() | {"source": ""} for skill in skills] for skills in (scanned, named)]
    assert without_source[0] == without_source[1]
    assert names(scanned) == ["one", "Two_3"]
    assert scanned.errors == named.errors


@pytest.mark.behaviour("O-016", "O-017")
def test_any_name_will_do_and_the_folder_gives_it_where_there_is_none(world: World) -> None:
    for name in ("My_Skill", "x" * 90, "with blank", "名前", "-odd--", None):
        text = f"---\n{f'name: {name}' if name else ''}\ndescription: {'Long. ' * 400}\n---\n"
        path = world.skill(".omp/skills/the-folder", text=text)
        skills = discover(world)
        assert (names(skills), codes(skills, path)) == ([name or "the-folder"], [])


@pytest.mark.behaviour("O-018", "O-019")
@pytest.mark.parametrize("description", [None, ""])
def test_native_and_custom_skills_need_a_description_and_no_others(world: World, description: str | None) -> None:
    written = everywhere(world, description=description)
    world.skill(".claude/skills/plain", text="# Only a body\n")
    skills = discover(world)
    needing = {place for place in written if place.startswith(("native", "custom"))}
    assert names(skills) == sorted({*ALL, "plain"} - needing)
    assert {skill.description for skill in skills} == {""}
    assert {error.path for error in skills.errors} == {str(written[place]) for place in needing}


@pytest.mark.behaviour("O-020", "O-021", "N-036", "N-037")
def test_globs_and_always_apply_are_fields_with_types_and_all_other_keys_are_kept(world: World) -> None:
    given: dict[str, Any] = {"globs": ["*.py", "docs/**"], "alwaysApply": True}
    good = world.skill(".omp/skills/good", description="Bound.", body="BODY-MARKER", **given)
    bad = world.skill(".omp/skills/bad", globs="*.py", alwaysApply="yes", custom={"deep": [1, "two", None]})
    checked = metier(world, "validate", str(world.project / ".omp/skills"), "--profile", "omp")
    notes = {skill["path"]: skill["diagnostics"] for skill in checked["skills"]}
    assert (checked["valid"], notes[str(good)]) == (True, [])
    assert [(note["code"], note["severity"], note["message"]) for note in notes[str(bad)]] == [
        ("field-type", "warning", "`globs` must be a list of strings in this host"),
        ("field-type", "warning", "`alwaysApply` must be true or false in this host"),
        ("unknown-key", "info", "not part of the standard, kept: `custom`"),
    ]
    listed = metier(world, "list", "--profile", "omp")
    assert {s["name"]: s["extra"] for s in listed["skills"]}["good"] == given
    assert [note["path"] for note in listed["diagnostics"]] == [str(bad)] * 3
    assert metier(world, "show", "bad", "--profile", "omp")["extra"]["custom"] == {"deep": [1, "two", None]}
    (verdict,) = metier(world, "check", str(good.parent), "--host", "omp")["skills"][0]["verdicts"]
    assert verdict["ignored"] == []
    text = discover(world).session().system_prompt("BASE", files=["README.md"])
    assert "- good: Bound." in text.splitlines()
    assert ("MARKER" in text, "preloaded" in text) == (False, False)


TOGGLES = {
    "enableCodexUser": "codex-user",
    "enableClaudeUser": "claude-user",
    "enableClaudeProject": "claude-project",
    "enablePiUser": "native-user",
    "enablePiProject": "native-project",
}


@pytest.mark.behaviour("O-022", "O-023")
def test_a_toggle_removes_its_source_and_level_alone_and_others_are_on_while_any_is(world: World) -> None:
    everywhere(world)
    others = ["agents-project", "agents-user", "claude-plugins-user", "codex-project", "custom-user"]
    for toggle, of in TOGGLES.items():
        assert names(discover(world, **{toggle: False})) == [name for name in ALL if name != of]
        alone = discover(world, **{other: other == toggle for other in TOGGLES})
        assert names(alone) == sorted([*others, of]), toggle


def configured(world: World, **settings: Any) -> Any:
    """`metier list` where these settings stand in the user's own file."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in {"customDirectories": [CUSTOM], **settings}.items()]
    world.configure_user("\n".join(["[skills]", *lines, ""]))
    return metier(world, "list", "--profile", "omp")


@pytest.mark.behaviour("O-023", "N-032")
def test_with_all_toggles_off_there_are_no_skills_at_all(world: World) -> None:
    everywhere(world)
    listed = configured(world, **dict.fromkeys(TOGGLES, False))
    assert listed["skills"] == []
    assert {entry["reason"] for entry in listed["skipped"]} == {"source-off"}
    assert listed["counts"]["skipped"] == listed["counts"]["found"] == len(ALL)
    opened = discover(world, **dict.fromkeys(TOGGLES, False)).session()
    assert (opened.system_prompt("BASE"), opened.tools()) == ("BASE", [])
    assert not opened.call("read", {"path": "skill://custom-user"}).ok


@pytest.mark.behaviour("N-030")
@pytest.mark.parametrize(
    ("toggle", "off", "later"),
    [
        ("enablePiProject", ".omp/skills", "~/.omp/agent/skills"),
        ("enablePiUser", "~/.omp/agent/skills", ".claude/skills"),
        ("enableClaudeProject", ".claude/skills", "~/.codex/skills"),
    ],
)
def test_a_skill_of_a_switched_off_source_still_takes_its_name(world: World, toggle: str, off: str, later: str) -> None:
    first, second = world.skill(f"{off}/same"), world.skill(f"{later}/other-folder", "same")
    world.skill(f"{later}/apart")
    assert [s["path"] for s in configured(world)["skills"] if s["name"] == "same"] == [str(first)]
    listed = configured(world, **{toggle: False})
    assert [skill["name"] for skill in listed["skills"]] == ["apart"]
    reasons = {entry["path"]: (entry["reason"], entry["detail"]) for entry in listed["skipped"]}
    assert reasons[str(first)][0] == reasons[str(second)][0] == "source-off"
    assert str(first) in reasons[str(second)][1]
    assert [note["path"] for note in listed["diagnostics"] if note["code"] == "collision"] == [str(second)]
    opened = discover(world, **{toggle: False}).session()
    assert "- same:" not in opened.system_prompt()
    assert not opened.call("read", {"path": "skill://same"}).ok


@pytest.mark.behaviour("N-030", "N-031")
def test_a_switched_off_source_hides_neither_what_comes_before_it_nor_a_custom_directory(world: World) -> None:
    before = world.skill(".omp/skills/same")
    world.skill("~/.claude/skills/same")
    custom = world.skill(f"{CUSTOM}/mine")
    world.skill("~/.claude/skills/mine")
    world.skill("~/.claude/skills/linked")
    skills = discover(world, enableClaudeUser=False, customDirectories=[CUSTOM, "~/.claude/skills"])
    assert {skill.name: skill.path for skill in skills} == {
        "same": str(before),
        "mine": str(custom),
        "linked": str(world.home / ".claude/skills/linked/SKILL.md"),
    }
    assert [(e.skill.name, e.winner.path) for e in skills.shadowed] == [("mine", str(custom)), ("same", str(before))]


EVERY = ["git-log", "github", "pdf-fill", "Pdf-merge"]
GLOBS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, EVERY),
    ({"ignoredSkills": ["git-*"]}, EVERY[1:]),
    ({"ignoredSkills": ["git?ub", "[pP]df-*"]}, ["git-log"]),
    ({"includeSkills": ["pdf*"]}, ["pdf-fill"]),
    ({"includeSkills": []}, EVERY),
    ({"includeSkills": ["git*", "pdf-fill"]}, EVERY[:3]),
    ({"includeSkills": ["git*"], "ignoredSkills": ["github"]}, ["git-log"]),
    ({"includeSkills": ["git*"], "enableClaudeProject": False}, ["git-log"]),
    ({"ignoredSkills": ["{git-log,pdf-fill}"]}, ["github", "Pdf-merge"]),
    ({"includeSkills": ["git{-log,hub}"]}, ["git-log", "github"]),
    ({"includeSkills": ["{git,{p,P}df}-*"], "ignoredSkills": ["*-{fill,no}"]}, ["git-log", "Pdf-merge"]),
    ({"ignoredSkills": ["{github}", "git{-log"]}, EVERY),
]


@pytest.mark.behaviour("O-024", "O-025", "O-026", "N-033")
def test_globs_on_names_leave_skills_out(world: World) -> None:
    for where in (".omp/skills/git-log", ".claude/skills/github", f"{CUSTOM}/pdf-fill", "~/.agents/skills/Pdf-merge"):
        world.skill(where)
    for settings, kept in GLOBS:
        assert names(discover(world, **settings)) == kept, settings
    skills = discover(world, includeSkills=["github"], ignoredSkills=["gith*"])
    reasons = {name: "ignored" if name == "github" else "not-included" for name in EVERY}
    assert {skill.name: skill.reason for skill in skills.skipped} == reasons
    for glob, much in (("{a,b}" * 40, "alternatives"), ("{" * 60_000, "characters")):
        with pytest.raises(ConfigError, match=f"more than 1,000 {much}"):
            discover(world, ignoredSkills=[glob])


RANKS = [
    *(".omp/skills", "~/.claude/skills", FOLDERS["claude-plugins", "user"]),
    *(".agents/skills", "~/.codex/skills", CUSTOM, "~/second"),
]


@pytest.mark.behaviour("O-005", "O-027", "O-028", "O-029", "O-031")
@pytest.mark.parametrize(("higher", "lower"), [*pairwise(RANKS)])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_first_by_priority_and_order_wins(world: World, higher: str, lower: str, reverse: bool) -> None:
    """The key is the name, and not the folder."""
    written = {
        where: world.skill(f"{where}/x-{where[-8]}", "same") for where in sorted((higher, lower), reverse=reverse)
    }
    skills = discover(world, customDirectories=[CUSTOM, "~/second"])
    assert [skill.path for skill in skills] == [str(written[higher])]
    assert [(e.skill.path, e.winner.path) for e in skills.shadowed] == [(str(written[lower]), str(written[higher]))]
    (warning,) = (d for d in skills.diagnostics if d.code == "collision")
    assert (warning.severity, warning.path) == ("warning", str(written[lower]))
    assert "'same'" in warning.message
    assert str(written[higher]) in warning.message


@pytest.mark.behaviour("O-030")
def test_one_file_that_is_reached_twice_is_listed_once_and_collides_with_nothing(world: World) -> None:
    path = world.skill(".claude/skills/one")
    (world.project / ".claude/skills/alias").symlink_to(path.parent)
    (world.project / ".agents").symlink_to(world.project / ".claude")
    skills = discover(world, customDirectories=[".claude/skills", ".agents/skills", ".claude/skills/"])
    assert [skill.path for skill in skills] == [str(path)]
    assert skills.shadowed == ()
    assert skills.diagnostics == ()
