"""The standard profile: project before user, lenient with fields, strict about nothing being lost."""

from typing import Any

from hosts.asking import codes, metier
from worlds import World

HERE, USER = ".agents/skills", "~/.agents/skills"


FOREIGN = {
    ".claude/skills": ("repo", "claude"),
    ".github/skills": ("repo", "copilot"),
    ".codex/skills": ("repo", "codex"),
    "~/.claude/skills": ("user", "claude"),
    "~/.codex/skills": ("user", "codex"),
}


def test_the_chain_up_to_the_root_and_the_home_are_searched_and_other_clients_when_asked_for(world: World) -> None:
    home = World(world.project / "me", world.project)  # inside of the project, and the user's all the same
    for where in ("../.agents/skills/above", f"{HERE}/top", f"a/{HERE}/mid", f"a/b/{HERE}/low", f"{USER}/mine"):
        home.skill(where)
    for number, where in enumerate(FOREIGN):
        home.skill(f"{where}/foreign-{number}")
    (world.project / "a/b/c").mkdir()
    here = {"low": "repo", "mid": "repo", "top": "repo", "mine": "user"}
    assert {s.name: s.scope for s in home.discover(cwd=world.project / "a/b/c")} == here
    skills = home.discover(settings={"toggles": {"client_folders": True}})
    assert [(skills[f"foreign-{n}"].scope, skills[f"foreign-{n}"].source) for n in range(5)] == [*FOREIGN.values()]
    listed = metier(home, "list", "--scope", "user")["skills"]
    assert [skill["name"] for skill in listed] == ["mine"]


def test_a_skill_says_who_may_call_it(world: World) -> None:
    cases: tuple[tuple[dict[str, Any], tuple[bool, bool, bool]], ...] = (
        ({"disable-model-invocation": True}, (False, True, True)),
        ({"user-invocable": False}, (True, False, True)),
        ({"hide": True}, (False, True, True)),
        ({"enabled": False}, (True, True, False)),
        ({"enabled": "false"}, (True, True, True)),
    )
    for field, expected in cases:
        world.skill(f"{HERE}/probe", **field)
        skill = world.discover()["probe"]
        assert (skill.model_invocable, skill.user_invocable, skill.enabled) == expected


def test_the_nearest_scope_wins_and_the_losers_stay_within_reach(world: World) -> None:
    order = [world.skill(f"{where}/same", body=where) for where in (f"a/{HERE}", f"{HERE}/x", f"{HERE}/y", USER)]
    for number, winner in enumerate(order):
        skills = world.discover(cwd=world.project / "a")
        assert [skill.path for skill in skills] == [str(winner)]
        assert sorted(e.skill.path for e in skills.shadowed) == sorted(str(path) for path in order[number + 1 :])
        for loser in order[number + 1 :]:
            assert (codes(skills, loser), skills.at(loser).path) == (["collision"], str(loser))
        winner.unlink()
