"""Every tool obeys the rules about it, on every surface and in every kind of profile."""

from collections.abc import Mapping
from typing import Any

import pytest
from starlette.testclient import TestClient

from calling import Run, caller
from in_process import SURFACES, Ask, app_of
from metier.surfaces.web.api import build
from metier.values.skill import Role, wire_name
from worlds import World

PROFILES = ("standard", "codelia", "mycodeagent", "remcochat", "rip", "omp")
REFUSED = ("policy refuses", "there is no skill")
"""What an answer has where something was refused. A model knows nothing of a skill that it may not load."""

ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "skill_load": {"name": "one"},
    "Skill": {"name": "one"},
    "skills.activate": {"name": "one"},
    "skill_search": {"query": "one thing"},
    "skill_read": {"name": "one", "path": "references/a.md"},
    "skills.readResource": {"name": "one", "path": "references/a.md"},
    "read": {"path": "skill://one/references/a.md"},
    "skill_output": {"ref": "REF"},
    "tool_output_cache": {"ref": "REF"},
    "skill_run": {"name": "one", "script": "scripts/x.sh"},
    "skill_unload": {"name": "one"},
}
"""A call of each tool, by the name that a host gives it."""

OF_A_PERSON: Mapping[Role, Mapping[str, str]] = {
    "load": {"name": "one"},
    "search": {"query": "one thing"},
    "read": {"name": "one", "path": "references/a.md"},
    "output": {"ref": "REF"},
    "run": {"name": "one", "script": "scripts/x.sh"},
    "unload": {"name": "one"},
}
DONE: Mapping[Role, tuple[str, ...]] = {
    "load": ("BODY", "already loaded"),
    "search": ("Does one thing",),
    "read": ("a reference",),
    "output": ("BODY",),
    "run": ("it ran",),
    "unload": ("paths",),
}
"""What an answer has where nothing was refused."""


@pytest.fixture
def run(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return caller(world, capsys, monkeypatch)


@pytest.fixture
def library(world: World) -> World:
    scripts = {"references/a.md": "a reference\n", "scripts/x.sh": "#!/bin/sh\necho it ran\n"}
    for root in ("~/.agents/skills", "~/.rip/skills", "~/.omp/agent/skills", "skills", ".skills"):
        world.skill(f"{root}/one", description="Does one thing.", body="BODY", files=scripts)
    world.trust()  # a rule by name does not cover the skills of other projects
    return world


def configure(world: World, profile: str, rules: str) -> None:
    world.configure_user(f'profile = "{profile}"\nenabled = true\n[permissions]\n{rules}\n')


def with_ref(fields: Mapping[str, str], ref: str) -> dict[str, str]:
    return {key: ref if value == "REF" else value for key, value in fields.items()}


@pytest.mark.behaviour("N-026")
@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("profile", PROFILES)
def test_a_rule_about_a_tool_holds(library: World, run: Run, profile: str, surface: Any) -> None:
    configure(library, profile, "")
    opened = app_of(library)
    ref = opened.session().load("one").ref
    roles, unasked = opened.skills().profile.tools.by_role(), opened.skills().profile.policy.unasked
    wrong: list[str] = []

    def check(role: Role, verdict: str, by: str, answer: str, refused: bool) -> None:
        found = tuple(any(words in answer for words in table) for table in (REFUSED, DONE[role]))
        if found != (refused, not refused):
            wrong.append(f"{role} {verdict} {by}: {answer[:160]}")

    for role in OF_A_PERSON:
        for verdict in ("deny", "ask", "allow"):
            if role == "run" and verdict == "allow":
                continue  # that it runs needs a sandbox, and has tests of its own
            configure(library, profile, f'{verdict} = [{{tool = "skill_{role}"}}]')

            def steps(say: Ask, role: Role = role, verdict: str = verdict) -> None:
                if role in ("output", "run", "unload"):
                    say("load", {"name": "one"})
                person = with_ref(OF_A_PERSON[role], ref)
                # Whoever asks for an earlier output does not say who they are, and so is no person.
                free = verdict == "allow" or (verdict == "ask" and (role != "output" or unasked == "loads"))
                if role != "run" or verdict == "deny":
                    check(role, verdict, "person", say(role, person), refused=not free)
                if tool := roles.get(role):
                    if role == "unload":
                        say("load", {"name": "one"})
                    arguments = with_ref(ARGUMENTS[tool], ref)
                    free = verdict == "allow" or (verdict == "ask" and unasked == "loads" and role != "run")
                    said = say("call", {"tool": tool, "arguments": arguments})
                    check(role, verdict, "model", said, refused=not free)

            surface(library, run, steps)
    assert not wrong, "\n".join(wrong)


def test_the_catalog_is_not_searched_over_http_either(library: World) -> None:
    for verdict, status in (("ask", 200), ("deny", 403)):
        configure(library, "standard", f'{verdict} = [{{tool = "skill_search"}}]')
        with TestClient(build(app_of(library), watch=False), base_url="http://127.0.0.1") as client:
            assert client.get("/api/search?q=thing").status_code == status


@pytest.mark.parametrize("profile", PROFILES)
def test_a_model_is_not_offered_a_tool_that_is_denied(library: World, profile: str) -> None:
    configure(library, profile, "")
    names = app_of(library).skills().profile.tools.by_role()
    for role, name in names.items():
        configure(library, profile, f'deny = [{{tool = "{name}"}}]')
        session = app_of(library).session()
        offered = {wire_name(tool.name) for tool in session.tools()}
        assert wire_name(name) not in offered
        first = next(iter(names))
        assert role == first or wire_name(names[first]) in offered
        if role == "search":
            assert name not in session.system_prompt()
