"""`metier caps`, `doctor` and `profiles`: what a skill names, may use, used and lacks, what works here, and hosts."""

import os
from typing import Any

import pytest

import parts
from calling import Run, narrow_terminal
from metier.running.secrets.storage import SecretStorage
from worlds import World

SHELL = """\
#!/bin/bash
curl -s https://api.example.com/v1 -H "Authorization: Bearer $EXAMPLE_TOKEN" | no-such-program > ~/.cache/out
"""
PYTHON = """\
import json, os
print("hello", os.environ.get("EXAMPLE_TOKEN"))
raise SystemExit(4)
import numpy as np
"""


@pytest.fixture
def skill(world: World) -> World:
    files = {"scripts/fetch.sh": SHELL, "scripts/hello.py": PYTHON, "scripts/table.json": "{}"}
    world.skill("~/.agents/skills/fetcher", files=files, body="See https://docs.example.com.\n\n!`git status`\n")
    config = world.home / ".config/metier"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(
        "[permissions]\nallow = [{ tool = 'skill_run' }, { tool = 'run_network', skill_name = 'fetcher' },\n"
        "{ tool = 'run_project', skill_name = 'other' }]\ndeny = [{ tool = 'run_unsandboxed' }]\n"
        "[run]\npackages = 'never'\n"
    )
    SecretStorage(str(config)).set("EXAMPLE_TOKEN", "abc-1234567890", in_file=True)
    return world


def named(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {row["name"]: row.get("kind", "") for row in rows}


def test_caps_shows_what_is_named_given_and_used(skill: World, run: Run) -> None:
    parts.require_sandbox()
    run("secret", "allow", "EXAMPLE_TOKEN", "fetcher")
    assert run("run", "fetcher", "scripts/hello.py").code == 4
    found = run("caps", "fetcher", "--json").json
    names = found["names"]
    assert named(names["imports"]) == {"json": "standard", "numpy": "package", "os": "standard"}
    assert set(named(names["hosts"])) == {"api.example.com", "docs.example.com"}
    assert set(named(names["programs"])) == {"curl", "no-such-program"}
    assert [row["name"] for row in names["files"]] == ["~/.cache/out"]
    assert names["secrets"] == [
        {"name": "EXAMPLE_TOKEN", "where": ["scripts/fetch.sh", "scripts/hello.py"], "kind": "named"}
    ]
    assert [row["name"] for row in names["commands"]] == ["git status"]
    given = [(row["verdict"], row["tool"], row.get("name")) for row in found["given"]]
    assert given == [
        ("deny", "run_unsandboxed", None),
        ("allow", "run_network", None),
        ("allow", "run_secret", "EXAMPLE_TOKEN"),
    ]
    used = found["used"]
    assert (used["runs"], used["grants"], used["secrets"]) == (1, {"run_network": 1}, {"EXAMPLE_TOKEN": 1})
    assert used["scripts"][0]["exit_codes"] == {"4": 1}
    assert used["last_ms"] == used["scripts"][0]["last_ms"] > 0
    shown = run("caps", "fetcher").out
    assert "secret     EXAMPLE_TOKEN     named     allow  1     scripts/fetch.sh, scripts/hello.py" in shown
    assert "allow rule: tool = 'run_network', skill_name = 'fetcher'" in shown
    assert "1 recorded runs; grants: run_network 1" in shown
    assert "scripts/hello.py  1     4 (1x)" in shown


def test_doctor_says_what_a_skill_lacks_and_the_way_out(
    skill: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = skill.home / "bin"
    folder.mkdir()
    (folder / "own-program").write_text("#!/bin/sh\n")
    (folder / "own-program").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    script = skill.home / ".agents/skills/fetcher/scripts/fetch.sh"
    script.write_text(f"{SHELL}own-program\ncat x\n")
    result = run("doctor", "fetcher", "--json")
    needs = {(need["kind"], need["name"]): need for need in result.json["needs"]}
    states = {key: need["state"] for key, need in needs.items()}
    assert (result.code, result.json["ready"]) == (1, False)
    assert states[("program", "cat")] == "here"
    assert states[("program", "no-such-program")] == "missing"
    assert states[("program", "own-program")] == "hidden"
    assert f"it is at {folder}/own-program, which a sandbox does not see" in needs["program", "own-program"]["help"]
    assert states[("secret", "EXAMPLE_TOKEN")] == "not-given"
    assert needs["secret", "EXAMPLE_TOKEN"]["help"] == "give it with `metier secret allow EXAMPLE_TOKEN fetcher`"
    assert states[("package", "numpy")] == "wanted"
    assert states[("interpreter", "python")] == "here"
    assert "scripts/table.json" not in result.out
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


def test_caps_of_a_hostile_skill_fits_the_terminal(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "\x1b[31mcurl https://a.example/\x1b]0;x\x07 \x9b31m\n" + "a" * 5_000
    world.skill("~/.agents/skills/odd", files={"scripts/a.sh": script, "scripts/b\x1b[31m.py": "import x"})
    narrow_terminal(monkeypatch)
    for command in ("caps", "doctor"):
        shown = run(command, "odd")
        assert not {"\x1b", "\x07", "\x9b"} & set(shown.out + shown.err)


# --- this machine, and the hosts ---


def test_profiles_lists_the_hosts_and_shows_the_rules_of_one(run: Run) -> None:
    assert [p["name"] for p in run("profiles", "--json").json][:3] == ["standard", "codelia", "omp"]
    assert run("profiles", "omp", "--json").json["name"] == "omp"
    assert "[discovery]" in run("profiles", "omp").out
    assert run("profiles", "standart").code == 2


def test_doctor_says_what_works_and_where_settings_come_from(mixed: World, run: Run) -> None:
    mixed.configure("[catalog]\nmax_skills = 9\n")
    shown = run("doctor").out
    for expected in ("python", "bubblewrap", "cache", "catalog.max_skills", "5 found: 2 offered, 1 shadowed"):
        assert expected in shown
    assert run("doctor", "--json").json["settings"] == {
        "catalog.max_skills": str(mixed.project / ".metier/config.toml")
    }
