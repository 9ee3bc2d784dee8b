"""Codelia: a rule that denies a skill holds without a question; an answer to remember is a rule in a file."""

import json
import tomllib

import pytest

from hosts.asking import metier
from metier.app import App
from metier.errors import PolicyDenied
from metier.policy.decide import Request
from rpc_process import RpcProcess
from worlds import World

A, B = {"name": "a"}, {"name": "b"}


@pytest.fixture
def two(world: World) -> World:
    for name in ("a", "b"):
        world.skill(f".agents/skills/{name}", body=f"BODY-{name}")
    return world


@pytest.fixture
def denied(two: World) -> World:
    """A rule of the user denies the first of two skills. This host asks about the second."""
    deny_a(two)
    return two


def deny_a(world: World) -> None:
    world.configure_user('[permissions]\ndeny = [{ tool = "skill_load", skill_name = "a" }]\n')


def app(world: World) -> App:
    return App(world.project, profile="codelia", home=world.home, store="memory:")


@pytest.mark.behaviour("C-083", "N-026")
def test_a_denied_skill_is_refused_without_a_question(denied: World) -> None:
    """That it is refused on every surface is shown by `tests/policy/test_rules_of_tools.py`."""
    asked: list[str] = []

    def person(request: Request) -> bool:
        asked.append(request.skill_name)
        return True

    session = denied.discover("codelia").session(approve=person)
    path = {"path": str(denied.project / ".agents/skills/a/SKILL.md")}
    texts = [session.call("skill_load", given).text for given in (A, path, B)]
    assert (["BODY-a" in text for text in texts], "BODY-b" in texts[2]) == ([False] * 3, True)
    for load in (lambda: session.load("a"), lambda: session.load(path=path["path"])):
        with pytest.raises(PolicyDenied, match="deny rule"):
            load()
    assert asked == ["b"]


class Person:
    """A client of `metier rpc` in a process of its own, who gives one answer to every question."""

    def __init__(self, world: World, answer: str) -> None:
        self.client, self.answer, self.names = RpcProcess(world, "--profile", "codelia"), answer, list[str]()
        self.client.call("session.create", asks=True)

    def load(self, name: str) -> str:
        """What the model gets."""
        self.client.send("load", "session.call", tool="skill_load", args={"name": name})
        while (got := self.client.receive()).get("method") == "session.ask":
            self.names.append(got["params"]["skill_name"])
            self.client.answer(got["id"], self.answer)
        return json.dumps(got["result"])


@pytest.mark.system
@pytest.mark.behaviour("C-083", "C-088", "N-025", "N-026")
def test_a_remembered_answer_is_exactly_one_rule_in_a_file_that_other_processes_obey(two: World) -> None:
    first, second = Person(two, "always"), Person(two, "no")
    assert "BODY-a" in first.load("a")
    file = two.home / ".config/metier/permissions.toml"
    rule = {"tool": "skill_load", "skill_name": "a", "folder": str(two.project / ".agents/skills/a")}
    assert tomllib.loads(file.read_text()) == {"allow": [rule]}
    assert "BODY-a" in second.load("a"), "a process that began before the answer"
    assert "BODY-b" not in second.load("b")
    assert (first.names, second.names) == (["a"], ["b"])
    assert tomllib.loads(file.read_text()) == {"allow": [rule]}, "a no is not remembered"
    deny_a(two)
    third = Person(two, "always")
    assert "BODY" not in third.load("a"), "a denial outranks what was remembered"
    assert third.names == []
    (listed,) = [one for one in metier(two, "policy", "list", "--profile", "codelia")["rules"] if "id" in one]
    metier(two, "policy", "revoke", listed["id"])
    assert tomllib.loads(file.read_text()) == {}
    for person in (first, second, third):
        person.client.end()
