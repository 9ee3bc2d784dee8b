"""Codelia: which loads are allowed, refused or asked about, by the name of the skill."""

from typing import Any

import pytest

from metier.errors import PolicyDenied
from metier.policy.decide import Request
from metier.session.session import Session
from worlds import World


def session(world: World, **given: Any) -> Session:
    return world.discover("codelia").session(**given)


def load(opened: Session, name: str, path: object = None) -> Any:
    return opened.call("skill_load", {"name": name} | ({} if path is None else {"path": str(path)})).data


class Asked:
    """Somebody who answers, and remembers what for."""

    def __init__(self, answer: bool | str | None = False) -> None:
        self.answer, self.names = answer, list[str]()

    def __call__(self, request: Request) -> bool | str | None:
        assert request.tool == "skill_load"
        self.names.append(request.skill_name)
        return self.answer


def rule(name: str | None = None) -> dict[str, str]:
    return {"tool": "skill_load"} | ({"skill_name": name} if name is not None else {})


@pytest.mark.behaviour("C-082", "C-084", "C-085", "C-086", "C-087")
@pytest.mark.parametrize(
    ("allow", "deny", "loads", "asks"),
    [
        ([], [], [], ["repo", "repo-review", "solo"]),
        (["repo"], [], ["repo"], ["repo-review", "solo"]),
        ([], ["repo"], [], ["repo-review", "solo"]),
        (["repo"], ["repo"], [], ["repo-review", "solo"]),
        ([None], [], ["repo", "repo-review", "solo"], []),
        ([None], ["repo"], ["repo-review", "solo"], []),
        (["repo"], [None], [], []),
        (["repo-*"], [], [], ["repo", "repo-review", "solo"]),
        ([], ["Repo_Review", "*", ""], [], ["repo", "repo-review", "solo"]),
        (["repo-review"], ["repo"], ["repo-review"], ["solo"]),
    ],
)
def test_deny_outranks_allow_outranks_a_question_and_names_match_exactly(
    world: World, allow: list[str | None], deny: list[str | None], loads: list[str], asks: list[str]
) -> None:
    world.trust()  # a rule by name does not cover the skills of a project that the user does not trust
    for name in ("repo", "repo-review", "solo"):
        world.skill(f".agents/skills/{name}")
    asked = Asked(False)
    opened = session(world, policy={"allow": [rule(n) for n in allow], "deny": [rule(n) for n in deny]}, approve=asked)
    loaded = [name for name in ("repo", "repo-review", "solo") if load(opened, name)["ok"]]
    assert (loaded, asked.names) == (loads, asks)
    dropped = [name for name in (*allow, *deny) if name not in (None, "repo", "repo-review")]
    assert len(opened.policy.warnings) == len(dropped)
    assert all(repr(name) in warning for name, warning in zip(dropped, opened.policy.warnings, strict=True))


@pytest.mark.behaviour("C-089")
def test_a_load_by_path_is_judged_by_the_name_of_the_skill_found_there(world: World) -> None:
    world.skill(".agents/skills/solo")
    twins = [world.skill(f"{base}.agents/skills/twin") for base in ("", "~/")]
    asked = Asked(True)
    opened = session(world, policy={"deny": [rule("twin")]}, approve=asked)
    for path in (*twins, twins[0].parent, ".agents/skills/../skills/twin/SKILL.md"):
        assert load(opened, "solo", path)["ok"] is False
        with pytest.raises(PolicyDenied):
            opened.load(path=str(path))
    assert asked.names == []
    assert load(opened, "twin", world.project / ".agents/skills/solo")["ok"] is True
    assert asked.names == ["solo"]
