"""Trust: where it is asked for, a project's skills are for people only until somebody says that it is trusted."""

import json
from pathlib import Path
from typing import Any

import pytest

from hosts.asking import metier
from metier import Skills
from metier.errors import PolicyDenied
from metier.hosts.trust import trust
from metier.session.session import Session
from worlds import World

REQUIRED: dict[str, Any] = {"settings": {"permissions": {"trust": "required"}}}


def config(world: World) -> Path:
    folder = world.home / ".config/metier"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def both(world: World) -> World:
    world.skill(".agents/skills/theirs", body="THEIRS-MARKER", files={"a.md": "FILE", "scripts/x.sh": "#!/bin/sh\n"})
    world.skill("~/.agents/skills/mine", body="MINE-MARKER")
    return world


def reachable(session: Session, name: str) -> bool:
    """Whether the model gets at a skill, in any of the ways it has."""
    path = str(session.skills[name].path)
    calls = [
        session.call("skill_load", {"name": name}),
        session.call("skill_load", {"path": path}),
        session.call("skill_read", {"name": name, "path": "SKILL.md"}),
        session.call("skill_run", {"name": name, "script": "scripts/x.sh"}),
    ]
    shown = f"{session.prompt().text}{[tool.as_dict() for tool in session.tools()]}"
    found = session.call("skill_search", {"query": name}).data["count"]
    ways = {name in shown, bool(found), *(result.ok for result in calls[:3])}
    assert len(ways) == 1, "all ways agree"
    return ways.pop()


@pytest.mark.parametrize(
    ("required", "trusted", "seen"),
    [(False, False, True), (False, True, True), (True, False, False), (True, True, True)],
)
@pytest.mark.parametrize("asks", ["permissions", "profile"])
def test_a_projects_skills_are_for_the_model_only_where_nobody_asks_for_trust_or_it_is_given(
    both: World, required: bool, trusted: bool, seen: bool, asks: str
) -> None:
    if required:
        text = '[permissions]\ntrust = "required"\n' if asks == "permissions" else '[policy]\ntrust = "required"\n'
        (config(both) / "config.toml").write_text(text)
    if trusted:
        trust(str(config(both)), str(both.project))
    skills = both.discover()
    session = skills.session()
    assert reachable(session, "theirs") is seen
    assert reachable(session, "mine") is True
    assert [skill.name for skill in skills] == ["mine", "theirs"]
    assert (skills["theirs"].visible, skills["theirs"].trusted, skills["mine"].trusted) == (seen, seen, True)
    notes = [d for d in skills.diagnostics if d.code == "untrusted"]
    assert len(notes) == (0 if seen else 1)
    assert all("metier trust" in d.hint and d.path == str(both.project) for d in notes)
    assert "THEIRS-MARKER" in skills.session().load("theirs").text
    assert session.invoke("/theirs").skill is not None


def test_an_untrusted_skill_is_not_preloaded(both: World) -> None:
    with pytest.raises(PolicyDenied, match="not trusted"):
        both.discover(**REQUIRED).session(preload=["theirs"])


def test_an_untrusted_skill_takes_no_name_from_a_skill_of_the_user(both: World) -> None:
    both.skill(".agents/skills/mine", body="FALSE-MARKER")
    skills = both.discover(**REQUIRED)
    assert "MINE-MARKER" in skills.session().call("skill_load", {"name": "mine"}).text
    assert [entry.skill.path for entry in skills.shadowed] == [str(both.project / ".agents/skills/mine/SKILL.md")]
    trust(str(config(both)), str(both.project))
    skills.refresh()
    assert "FALSE-MARKER" in skills.session().call("skill_load", {"name": "mine"}).text


def test_a_folder_that_the_user_names_needs_no_trust(both: World) -> None:
    both.skill("given/extra", body="x")
    skills = both.discover(roots=[both.project / "given"], **REQUIRED)
    assert [skill.name for skill in skills if skill.trusted] == ["extra", "mine"]


def test_trust_is_of_the_real_folder_and_of_no_other(both: World, tmp_path: Path) -> None:
    trust(str(config(both)), str(both.project))
    link = tmp_path / "link"
    link.symlink_to(both.project)
    assert Skills.discover(link, home=both.home, **REQUIRED)["theirs"].trusted
    other = tmp_path / "project-two"
    (other / ".git").mkdir(parents=True)
    both.skill(str(other / ".agents/skills/theirs"))
    assert not Skills.discover(other, home=both.home, **REQUIRED)["theirs"].trusted


@pytest.mark.parametrize("content", ["{", "[]", '{"projects": 3}', ""])
def test_a_file_that_cannot_be_read_trusts_nothing_and_says_so(both: World, content: str) -> None:
    (config(both) / "trust.json").write_text(content)
    skills = both.discover(**REQUIRED)
    assert not skills["theirs"].trusted
    assert "state-invalid" in [d.code for d in skills.diagnostics]


def test_the_command_trusts_and_no_longer_trusts_and_others_say_how(both: World) -> None:
    (config(both) / "config.toml").write_text('[permissions]\ntrust = "required"\n')
    listed = metier(both, "list")
    assert {skill["name"]: skill["trusted"] for skill in listed["skills"]} == {"mine": True, "theirs": False}
    assert "metier trust" in str([d["hint"] for d in metier(both, "doctor")["diagnostics"]])
    below = both.project / "sub"
    below.mkdir()
    assert metier(both, "trust", cwd=below) == {"project": str(both.project), "trusted": True}
    assert json.loads((config(both) / "trust.json").read_text())["projects"] == [str(both.project)]
    assert all(skill["trusted"] for skill in metier(both, "list")["skills"])
    assert metier(both, "trust", str(both.project), "--remove", cwd=both.home)["trusted"] is False
    assert json.loads((config(both) / "trust.json").read_text())["projects"] == []


# --- settings of a project ---


@pytest.mark.parametrize("table", ["", "skills.", "app.skills."])
def test_what_a_projects_settings_reach_beyond_it_counts_only_if_it_is_trusted(both: World, table: str) -> None:
    (both.project / ".metier").mkdir()
    (both.project / ".metier/config.toml").write_text(
        f'store = "/tmp/elsewhere.db"\nstore_required = false\n[{table}run]\nenv = ["API_TOKEN"]\n'
        f"[{table}policy]\nenforce_hints = false\n[catalog]\nmax_skills = 9\n"
    )
    (config(both) / "config.toml").write_text('[policy]\ntrust = "required"\n[run]\nseconds = 5\n')
    before = both.discover()
    rules = before.profile
    assert ("API_TOKEN" in rules.run.env, rules.run.seconds, rules.policy.enforce_hints) == (False, 5, True)
    assert (rules.catalog.max_skills, rules.policy.trust, before.settings.store_required) == (9, "required", True)
    assert before.settings.store == str(both.home / ".local/share/metier/metier.db")
    notes = [d.message for d in before.diagnostics if d.code == "untrusted" and d.path.endswith("config.toml")]
    assert [note.split(" ")[0] for note in notes] == [
        "store", "store_required", f"{table}run.env", f"{table}policy.enforce_hints",
    ]  # fmt: skip
    trust(str(config(both)), str(both.project))
    after = both.discover()
    assert (after.profile.run.env, after.profile.policy.enforce_hints) == (("API_TOKEN",), False)
    assert after.settings.store == "/tmp/elsewhere.db"
    assert not [d for d in after.diagnostics if d.code == "untrusted"]


def test_a_profile_file_of_a_project_counts_only_if_it_is_trusted(both: World) -> None:
    profile = both.project / "own.toml"
    profile.write_text('extends = "standard"\nsummary = "own"\n[policy]\nenforce_hints = false\n')
    (both.project / ".metier").mkdir()
    (both.project / ".metier/config.toml").write_text(f'profile = "{profile}"\n')
    assert Skills.discover(both.project, home=both.home).profile.name == "standard"
    trust(str(config(both)), str(both.project))
    assert Skills.discover(both.project, home=both.home).profile.policy.enforce_hints is False
