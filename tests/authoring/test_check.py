"""The verdicts of hosts on a skill: what each public host's documentation says, case by case."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metier import ConfigError, Skills
from metier.authoring import check
from metier.authoring.check import HostVerdict
from metier.catalog import validate
from metier.hosts import profiles
from worlds import World

pytest_plugins = ["catalog.corpus_archives"]

HOSTS = ("claude-code", "codex", "opencode", "gemini-cli", "vscode-copilot")
BROKEN = "---\nname: x\ndescription: [unclosed\n---\nThe first paragraph.\n"

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("verdicts.json").read_text())
"""A skill at a place, and what the five hosts do: status, name, M for the model, U for the user.

`before` has the place and the description of a skill that is there already.
"""


def told(verdict: HostVerdict) -> str:
    seen = "M" * verdict.model + "U" * verdict.user
    return f"{verdict.status} {verdict.name} {seen}".strip()


@pytest.mark.parametrize("one", CASES, ids=lambda one: one["reason"][:60])
def test_the_verdict_is_what_the_documentation_of_the_host_says(world: World, one: dict[str, Any]) -> None:
    if "before" in one:
        world.skill(one["before"][0], description=one["before"][1])
    cwd = world.project / one.get("cwd", "")
    cwd.mkdir(parents=True, exist_ok=True)
    file = world.skill(one["at"], **one.get("fields", {}))
    found = check.verdicts(file.parent, HOSTS, cwd=cwd, home=world.home)
    assert [verdict.profile for verdict in found] == list(HOSTS)
    assert [told(verdict) for verdict in found] == one["expected"], one["reason"]
    assert all(verdict.why for verdict in found if verdict.status != "offered")


def of(world: World, where: Path, host: str) -> HostVerdict:
    (verdict,) = check.verdicts(where, [host], cwd=world.project, home=world.home)
    return verdict


def test_a_linked_folder_is_followed_and_a_file_with_two_paths_judged_once(world: World) -> None:
    file = world.skill(".agents/skills/x")
    (world.project / ".claude/skills").mkdir(parents=True)
    (world.project / ".claude/skills/x").symlink_to("../../.agents/skills/x")
    assert of(world, file, "claude-code").root == str(world.project / ".claude/skills")
    assert of(world, world.project / ".claude/skills/x", "opencode").status == "offered"
    (world.project / ".agents/skills/y").mkdir()
    (world.project / ".agents/skills/y/SKILL.md").symlink_to("../x/SKILL.md")
    for hosts in (["claude-code"], ["standard"], ["standard", "codex", "omp"]):
        found = check.examine([world.project], hosts, world.project, world.home)
        assert [(v.profile, Path(v.path).parent.name) for v in found] == [(host, "x") for host in hosts]


def test_a_linked_file_that_no_host_follows_gets_a_verdict(world: World) -> None:
    folder = world.project / ".agents/skills/linked"
    folder.mkdir(parents=True)
    (folder / "notes.md").write_text("---\nname: linked\ndescription: d\n---\n")
    (folder / "SKILL.md").symlink_to("notes.md")
    for where in (folder, world.project):
        found = check.examine([where], cwd=world.project, home=world.home)
        assert [verdict.profile for verdict in found] == list(profiles.BUILT_IN)
        assert {verdict.path for verdict in found} == {str(folder / "SKILL.md")}
        assert {verdict.status for verdict in found} == {"left-out"}
        assert "SKILL.md is a link to a file of another name" in {verdict.why for verdict in found}


def test_a_description_with_what_is_joined_to_it_is_cut_where_the_page_says(world: World) -> None:
    text = f"---\nname: x\ndescription: {'d' * 1500}\nwhen_to_use: {'wow ' * 25}\n---\n"
    file = world.skill(".claude/skills/x", text=text)
    verdict = of(world, file, "claude-code")
    assert verdict.cuts == ("the description, with `when_to_use`, is cut at 1,536 of 1,600 characters",)
    assert len(verdict.description) <= 1536
    shown = world.discover("claude-code").prompt().text
    assert 0 < shown.count("wow") < 25, "the runtime joins and cuts as the host does"
    assert of(world, world.skill(".claude/skills/y", description="d" * 1536), "claude-code").cuts == ()


def test_a_listing_that_is_full_shortens_descriptions_and_then_leaves_skills_out(world: World) -> None:
    for number in range(30):
        world.skill(f".agents/skills/s{number:02}", description="words and " * 40)
    first = world.project / ".agents/skills/s00"
    assert of(world, first, "codex").cuts == (
        "the listing of 30 skills is limited to 8,000 characters: descriptions are shortened",
    )
    assert of(world, first, "gemini-cli").cuts == (), "its pages name no budget"
    for number in range(30, 900):
        world.skill(f".agents/skills/s{number:02}", description="words and " * 40)
    told = [of(world, world.project / f".agents/skills/s{number:02}", "codex").cuts[0] for number in (0, 200, 899)]
    ends = ["descriptions are shortened", "this one is listed by name only", "this one is not listed"]
    assert [cut.rpartition(": ")[2] for cut in told] == ends


def odd_skills(world: World) -> None:
    """Skills of the same name in several forms and places, beside others."""
    world.skill(".agents/skills/one")
    world.skill(".claude/skills/one")
    world.skill("~/.agents/skills/one", description="Another.")
    for form in ("wide", "padded", "escaped"):
        world.skill(f".agents/skills/t-{form}")
    for folder, name in (("a-wide", "\uff54-wide"), ("a-padded", '" t-padded "'), ("a-escaped", '"\\x74-escaped"')):
        world.skill(f".agents/skills/{folder}", text=f"---\nname: {name}\ndescription: d\n---\n")
    world.skill(".claude/skills/t-folder", text="---\nname: other\ndescription: d\n---\n")
    world.skill("~/.claude/skills/t-folder", text="---\nname: third\ndescription: d\n---\n")
    world.skill(".agents/skills/label", text="---\nname: Not the folder\ndescription: d\n---\n")
    world.skill(".agents/skills/number", text="---\nname: 1.0\ndescription: d\n---\n")
    world.skill(".cursor/skills/1.0", text="---\nname: 1.0\ndescription: d\n---\n")
    world.skill(".agents/skills/colon", text="---\nname: one\ndescription: when: now\n---\n")
    world.skill(".agents/skills/broken", text=BROKEN)
    world.skill(".agents/skills/outer")
    world.skill(".agents/skills/outer/inner/one")
    world.skill(".agents/skills/team/deep/two")
    world.skill(".agents/skills/extra-keys", text="---\nname: extra-keys\ndescription: d\nhide: true\n---\n")
    (world.project / ".agents/skills/alias").symlink_to("../../elsewhere/three")
    world.skill("elsewhere/three")


@pytest.mark.parametrize("limited", [False, True])
def test_one_skill_is_judged_as_among_all_of_them_also_where_a_limit_decides(world: World, limited: bool) -> None:
    def examined(where: list[Path], hosts: list[str] | None = None) -> list[HostVerdict]:
        return check.examine(where, hosts or profiles.BUILT_IN, cwd=world.project, home=world.home)

    if limited:
        asked = crowded(world)
        together = examined([world.project, world.home])
        cut = {verdict.profile for verdict in together if any("the listing of" in cut for cut in verdict.cuts)}
        assert cut == {"claude-code", "codelia", "codex", "zed"}
        assert {v.profile for v in together if v.why == "more than 200 skills"} == {"remcochat"}
        assert {v.listed for v in together if v.profile == "codelia"} == {True, False}
    else:
        odd_skills(world)
        together = examined([world.project])
        asked = [Path(file).parent for file in sorted({verdict.path for verdict in together})]
        assert len(asked) == 19
    paths = {str(folder / "SKILL.md") for folder in asked}
    for folder in asked:
        file = str(folder / "SKILL.md")
        assert [v for v in examined([folder]) if v.path == file] == [v for v in together if v.path == file]
    for host in profiles.BUILT_IN if limited else ():  # which has nothing from the hosts before it then
        alone = [v for v in examined(asked, [host]) if v.path in paths]
        assert alone == [v for v in together if v.path in paths and v.profile == host]


def crowded(world: World) -> list[Path]:
    """More skills than some hosts list, in folders of several hosts. Returns some of all kinds to ask about."""
    odd_skills(world)
    for number in range(260):
        keys = f"disable-model-invocation: {str(number % 7 == 0).lower()}\n" if number % 3 == 0 else ""
        text = (
            f"---\nname: n{number:03}\ndescription: Number {number}. {'words and more ' * (number % 40)}\n{keys}---\n"
        )
        where = (".agents/skills", ".agents/skills", ".claude/skills", "~/.agents/skills")[number % 4]
        world.skill(f"{where}/n{number:03}", text=text)
    for number in (1, 250):
        world.skill(f"~/.agents/skills/n{number:03}", description="Another of the same name.")
        world.skill(f".agents/skills/n{number:03}", description="The one that comes first.")
    bases, numbers = (world.project, world.home), (0, 1, 3, 84, 101, 250, 256, 259)
    named = [path for number in numbers for base in bases for path in base.glob(f".*/skills/n{number:03}")]
    return [*named, *(world.project / ".agents/skills" / name for name in ("one", "broken", "colon", "a-wide"))]


def test_fields_without_a_meaning_are_named_for_each_host(world: World) -> None:
    fields = "license: MIT\nallowed-tools: Read\nwhen_to_use: now\nargument-hint: x\nzap: 1"
    file = world.skill(".agents/skills/x", text=f"---\nname: x\ndescription: d\n{fields}\n---\n")
    ignored = {host: of(world, file, host).ignored for host in HOSTS}
    assert ignored == {
        "claude-code": ("zap",),
        "codex": ("license", "allowed-tools", "when_to_use", "argument-hint", "zap"),
        "opencode": ("allowed-tools", "when_to_use", "argument-hint", "zap"),
        "gemini-cli": ("license", "allowed-tools", "when_to_use", "argument-hint", "zap"),
        "vscode-copilot": ("license", "allowed-tools", "when_to_use", "zap"),
    }


def test_what_a_host_does_with_a_skill_besides_is_noted(world: World) -> None:
    notes = {
        host: of(world, world.skill(".claude/skills/x", name="Label", description=None, paths=["src/**"]), host).notes
        for host in ("claude-code", "remcochat")
    }
    assert notes["claude-code"] == (
        "`name` is only a label: the host uses the name of the folder",
        "there is no description: the host shows the first paragraph of the body instead",
        "the model sees it only while it works on files that match `paths`",
    )
    off = of(world, world.skill(".skills/y"), "remcochat")
    assert off.notes == ("skills are disabled in this host by default",)
    world.skill("~/.agents/skills/twice", description="The user's.")
    twin = of(world, world.skill(".agents/skills/twice"), "codex")
    assert twin.notes == ("another skill has the same name, and the host offers both: ~/.agents/skills/twice/SKILL.md",)


def test_a_verdict_says_where_the_skill_would_have_to_be(world: World) -> None:
    file = world.skill("prompts/x")
    places = {host: of(world, file, host).put for host in ("claude-code", "codex", "mycodeagent", "remcochat")}
    assert places == {
        "claude-code": (".claude/skills/x", "~/.claude/skills/x"),
        "codex": (".agents/skills/x", "~/.agents/skills/x"),
        "mycodeagent": ("skills/x",),
        "remcochat": (".skills/x", "~/.agents/skills/x"),
    }
    for host, put in places.items():
        for place in put:
            moved = world.skill(place)
            assert of(world, moved, host).status == "offered", f"{host} looks in {place}"
            moved.unlink()


LEFT_OUT = [
    (".agents/skills/.hidden/x", "omp", "the name of the folder .hidden starts with a dot"),
    (".agents/skills/a/b/x", "opencode", "3 levels below .agents/skills"),
    (".agents/skills/outer/x", "standard", "it is inside the skill .agents/skills/outer"),
    (".agents/skills/group/build", "standard", "folders named build are not searched"),
    (".agents/skills", "gemini-cli", "each skill needs a folder of its own"),
]


def test_a_skill_that_a_rule_leaves_out_says_which(world: World) -> None:
    world.skill(".agents/skills/outer")
    for where, host, says in LEFT_OUT:
        verdict = of(world, world.skill(where), host)
        assert (verdict.status, says in verdict.why) == ("left-out", True), where


def test_a_host_that_needs_no_description_in_a_folder_is_asked_about_that_folder(world: World) -> None:
    forgiving = world.skill(".claude/skills/x", description=None)
    strict = world.skill(".omp/skills/y", description=None)
    assert (of(world, forgiving, "omp").status, of(world, strict, "omp").status) == ("offered", "invalid")
    assert of(world, forgiving, "omp").diagnostics == (), "nothing is wrong with it there"
    (world.project / "alias").symlink_to(".claude/skills/x")
    together = check.examine([world.project], ["standard", "omp"], world.project, world.home)
    told = {(v.profile, v.name): [d.code for d in v.diagnostics] for v in together}
    missing = ["description-missing"]
    assert told == {("standard", "x"): missing, ("standard", "y"): missing, ("omp", "x"): [], ("omp", "y"): missing}


def test_a_skill_that_shares_only_its_folder_with_another_is_not_overlooked(world: World, tmp_path: Path) -> None:
    """Among files that another host read, those of other names are left out. A folder can be a name as well."""
    own = tmp_path / "own.toml"
    own.write_text('extends = "standard"\nsummary = "ours"\n[validation]\nname_source = "folder"\n')
    world.skill(".agents/skills/x", text="---\nname: one\ndescription: d\n---\n")
    asked = world.skill("~/.agents/skills/x", text="---\nname: two\ndescription: d\n---\n")
    for hosts in (["standard", str(own)], [str(own)]):
        verdict = check.verdicts(asked, hosts, cwd=world.project, home=world.home)[-1]
        assert (verdict.status, verdict.name) == ("shadowed", "x")


def test_the_users_switches_and_settings_do_not_count(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    file = world.skill(".agents/skills/x")
    config = world.home / ".config/metier"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("[filters]\nignore = ['x']\n")
    world.discover(settings={"filters.ignore": []}).disable("x")
    monkeypatch.setenv("CODELIA_AGENTS_ROOT", str(world.home))
    verdicts = check.verdicts(file, ["standard", "codelia"], cwd=world.project, home=world.home)
    assert [told(verdict) for verdict in verdicts] == ["offered x MU", "offered x MU"]


def test_a_skill_of_a_catalog_and_a_profile_of_ones_own_can_be_asked_about(world: World, tmp_path: Path) -> None:
    world.skill(".agents/skills/x")
    own = tmp_path / "own.toml"
    own.write_text('extends = "codex"\nsummary = "ours"\nroots = []\ncustom_directories = ["prompts"]\n')
    skill = Skills.discover(world.project, home=world.home)["x"]
    (verdict,) = check.verdicts(skill, [str(own)], cwd=world.project, home=world.home)
    assert (verdict.profile, verdict.status) == ("own", "elsewhere")
    with pytest.raises(ConfigError, match=r"no SKILL\.md"):
        check.verdicts(world.project, cwd=world.project, home=world.home)


UNALIKE = ("standard", "codelia", "omp", "mycodeagent", "claude-code", "opencode", "zed")
"""Hosts whose ways to read a file have little in common: enough for a large corpus."""


@pytest.mark.system
@pytest.mark.parametrize(("name", "hosts"), [("odd", profiles.BUILT_IN), ("skills", UNALIKE)])
def test_every_real_skill_gets_a_verdict_of_every_host(
    unpacked: Callable[[str], Path],
    tmp_path: Path,
    name: str,
    hosts: tuple[str, ...],
) -> None:
    home = tmp_path / "home"
    found = check.examine([unpacked(name)], hosts, cwd=tmp_path, home=home)
    per_host = [sum(verdict.profile == host for verdict in found) for host in hosts]
    assert len(set(per_host)) == 1
    assert per_host[0] > 50
    for verdict in found:
        json.dumps(verdict.as_dict())
        assert verdict.valid or verdict.why
        assert verdict.certainty
        assert {one.code for one in verdict.findings()} <= set(validate.codes()["findings"])
