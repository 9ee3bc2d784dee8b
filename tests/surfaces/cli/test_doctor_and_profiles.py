"""`metier doctor` and `profiles`: what a skill lacks, what works here, and hosts."""

import os

import pytest

from calling import Run
from metier.running.secrets.storage import SecretStorage
from worlds import World

PYTHON = """\
# /// script
# dependencies = ["numpy>=2"]
# ///
import os
print("hello", os.environ.get("EXAMPLE_TOKEN"))
"""
NEEDS = {"requires": {"bins": ["cat", "no-such-program", "own-program"], "env": ["EXAMPLE_TOKEN"]}}


@pytest.fixture
def skill(world: World) -> World:
    files = {"scripts/fetch.sh": "curl x\n", "scripts/hello.py": PYTHON, "scripts/table.json": "{}"}
    world.skill("~/.agents/skills/fetcher", files=files, metadata=NEEDS)
    config = world.home / ".config/metier"
    config.mkdir(parents=True)
    SecretStorage(str(config)).set("EXAMPLE_TOKEN", "abc-1234567890", in_file=True)
    return world


def test_doctor_says_what_a_skill_lacks_and_the_way_out(
    skill: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = skill.home / "bin/own-program"
    own.parent.mkdir()
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", f"{own.parent}:{os.environ['PATH']}")
    result = run("doctor", "fetcher", "--json")
    needs = {f"{need['kind']} {need['name']}": need for need in result.json["needs"]}
    assert (result.code, result.json["ready"]) == (1, False)
    assert {name: need["state"] for name, need in needs.items()}.items() >= {
        "program cat": "here",
        "program no-such-program": "missing",
        "program own-program": "hidden",
        "secret EXAMPLE_TOKEN": "not-given",
        "package numpy>=2": "wanted",
        "interpreter python": "here",
    }.items()
    assert f"it is at {own}, which a sandbox does not see" in needs["program own-program"]["help"]
    assert needs["secret EXAMPLE_TOKEN"]["help"] == "give it with `metier secret allow EXAMPLE_TOKEN fetcher`"
    assert "program curl" not in needs, "only what is declared counts"
    run("secret", "remove", "EXAMPLE_TOKEN")
    shown = run("doctor", "fetcher")
    assert "EXAMPLE_TOKEN: set it with `metier secret set EXAMPLE_TOKEN`, and give it with" in shown.out
    assert "no-such-program: install it with the package manager of the system" in shown.out


def test_doctor_is_content_with_a_skill_that_lacks_nothing(world: World, run: Run) -> None:
    world.skill("~/.agents/skills/plain", files={"scripts/a.sh": "echo hello\n"})
    world.skill("~/.agents/skills/bare")
    assert run("doctor", "plain").code == 0
    assert run("doctor", "bare").out == "its scripts need nothing that could be missing\n"
    assert run("doctor", "nobody").code == 1


def test_profiles_lists_the_hosts_and_shows_the_rules_of_one(run: Run) -> None:
    assert [p["name"] for p in run("profiles", "--json").json][:3] == ["standard", "codelia", "omp"]
    assert run("profiles", "omp", "--json").json["name"] == "omp"
    assert "[discovery]" in run("profiles", "omp").out
    assert run("profiles", "standart").code == 2


@pytest.mark.system
def test_doctor_says_what_works_and_where_settings_come_from(mixed: World, run: Run) -> None:
    mixed.configure("[catalog]\nmax_skills = 9\n")
    shown = run("doctor").out
    for expected in ("python", "bubblewrap", "cache", "catalog.max_skills", "5 found: 2 offered, 1 shadowed"):
        assert expected in shown
    assert run("doctor", "--json").json["settings"] == {
        "catalog.max_skills": str(mixed.project / ".metier/config.toml")
    }
