"""AGENTS.md in a hostile repository, for every profile: what is no text file of the project never reaches a model."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hosts.asking import metier
from metier import limits
from metier.files import beneath
from profile_kinds import KINDS
from worlds import World

SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----"


@pytest.fixture
def clone(world: World) -> World:
    """A repository in a home with a key."""
    key = world.home / ".ssh/id_rsa"
    key.parent.mkdir()
    key.write_text(f"{SECRET}\n")
    (world.home / "notes.md").write_text(f"{SECRET}\n")
    (world.project / ".env").write_text(f"API_KEY={SECRET}\n")
    world.skill(".agents/skills/one")
    return world


def link_to_a_key(clone: World, file: Path) -> None:
    file.symlink_to(clone.home / ".ssh/id_rsa")


def relative_link_to_a_key(clone: World, file: Path) -> None:
    file.symlink_to("../home/.ssh/id_rsa")


def link_to_markdown_outside(clone: World, file: Path) -> None:
    file.symlink_to(clone.home / "notes.md")


def chain_of_links(clone: World, file: Path) -> None:
    (clone.project / "a.md").symlink_to("docs/b.md")
    (clone.project / "docs").mkdir()
    (clone.project / "docs/b.md").symlink_to("../../home/notes.md")
    file.symlink_to("a.md")


def link_through_a_linked_folder(clone: World, file: Path) -> None:
    (clone.project / "docs").symlink_to(clone.home)
    file.symlink_to("docs/notes.md")


def link_through_the_process(clone: World, file: Path) -> None:
    file.symlink_to(f"/proc/self/root{clone.home}/notes.md")


def link_to_the_environment(clone: World, file: Path) -> None:
    file.symlink_to("/proc/self/environ")


def link_to_a_file_with_secrets_of_the_project(clone: World, file: Path) -> None:
    file.symlink_to(".env")


def link_to_a_folder(clone: World, file: Path) -> None:
    file.symlink_to(clone.home)


def folder(clone: World, file: Path) -> None:
    file.mkdir()
    (file / "AGENTS.md").write_text(SECRET)


def pipe(clone: World, file: Path) -> None:
    os.mkfifo(file)


def link_to_zeroes(clone: World, file: Path) -> None:
    file.symlink_to("/dev/zero")


def sparse(clone: World, file: Path) -> None:
    file.write_text(SECRET)
    os.truncate(file, 2 * 1024**3)


def not_text(clone: World, file: Path) -> None:
    file.write_bytes(SECRET.encode() + b"\0")


def loop(clone: World, file: Path) -> None:
    file.symlink_to("AGENTS.md")


def dangling(clone: World, file: Path) -> None:
    file.symlink_to("nothing.md")


ATTACKS: list[Callable[[World, Path], None]] = [
    link_to_a_key,
    relative_link_to_a_key,
    link_to_markdown_outside,
    chain_of_links,
    link_through_a_linked_folder,
    link_through_the_process,
    link_to_the_environment,
    link_to_a_file_with_secrets_of_the_project,
    link_to_a_folder,
    folder,
    pipe,
    link_to_zeroes,
    sparse,
    not_text,
    loop,
    dangling,
]


EVERYWHERE = [(attack, profile) for attack in ATTACKS for profile in KINDS]
CASES = [case for number, case in enumerate(EVERYWHERE) if case[1] in ("standard", "omp") or number % 4 == 0]
"""Every attack under the two rules that there are for these files, and a part of them under every profile."""


@pytest.mark.parametrize(("attack", "profile"), CASES, ids=lambda one: getattr(one, "__name__", str(one)))
def test_nothing_of_it_is_in_the_system_prompt_and_a_diagnostic_says_so(
    clone: World, profile: str, attack: Callable[[World, Path], None]
) -> None:
    file = clone.project / "AGENTS.md"
    attack(clone, file)
    skills = clone.discover(profile)
    shown = skills.session().system_prompt("Base.")
    assert "Base." in shown
    assert "agents_context" not in shown
    assert SECRET not in shown
    assert len(shown) < 100_000
    reads = skills.profile.context.agents_files != "none"
    assert [d.path for d in skills.diagnostics if d.code == "context-file-refused"] == [str(file)] * reads


@pytest.mark.system
@pytest.mark.parametrize("profile", ["standard", "omp"])
def test_the_command_line_does_not_show_it_either(clone: World, profile: str) -> None:
    link_to_a_key(clone, clone.project / "AGENTS.md")
    assert SECRET not in json.dumps(metier(clone, "prompt", "--full", "--profile", profile))
    said = metier(clone, "doctor", "--profile", profile)["diagnostics"]
    assert "context-file-refused" in [d["code"] for d in said]


@pytest.mark.parametrize("walks", [True, False])
@pytest.mark.parametrize("target", ["CLAUDE.md", "docs/agents/rules.md", "../AGENTS.md"])
def test_a_link_that_stays_in_the_project_is_followed(
    clone: World, target: str, walks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if walks:
        monkeypatch.setattr(beneath, "_has_openat2", lambda: False)
    (clone.project / "docs/agents").mkdir(parents=True)
    below = clone.project / "sub"
    below.mkdir()
    base = below if target.startswith("..") else clone.project
    (base / target).write_text("PROJECT-RULES")
    (base / "AGENTS.md").symlink_to(target)
    skills = clone.discover(cwd=below)
    assert "PROJECT-RULES" in skills.session().system_prompt()
    assert [d for d in skills.diagnostics if d.code == "context-file-refused"] == []


def test_a_file_above_the_project_is_opened_beneath_its_own_folder(clone: World) -> None:
    above = clone.project.parent / "AGENTS.md"
    above.write_text("HOUSE-RULES")
    assert "HOUSE-RULES" in clone.discover("omp").session().system_prompt()
    above.unlink()
    above.symlink_to("home/notes.md")  # inside that folder, and Markdown
    assert SECRET in clone.discover("omp").session().system_prompt()
    above.unlink()
    above.symlink_to(clone.home / "notes.md")
    assert SECRET not in clone.discover("omp").session().system_prompt()


def test_a_file_at_the_limit_is_whole_and_one_byte_more_is_refused(clone: World) -> None:
    file = clone.project / "AGENTS.md"
    file.write_text("x" * limits.CONTEXT_FILE_BYTES)
    assert "x" * limits.CONTEXT_FILE_BYTES in clone.discover().session().system_prompt()
    file.write_text("x" * (limits.CONTEXT_FILE_BYTES + 1))
    assert "xx" not in clone.discover().session().system_prompt()


@pytest.mark.parametrize("profile", KINDS)
def test_where_trust_is_required_a_projects_file_waits_for_it(clone: World, profile: str) -> None:
    file = clone.project / "AGENTS.md"
    file.write_text("PROJECT-RULES")
    (clone.project.parent / "AGENTS.md").write_text("HOUSE-RULES")
    required = {"permissions": {"trust": "required"}}
    skills = clone.discover(profile, settings=required)
    shown, rule = skills.session().system_prompt(), skills.profile.context.agents_files
    assert "PROJECT-RULES" not in shown
    assert ("HOUSE-RULES" in shown) == (rule == "ancestors")
    notes = [d for d in skills.diagnostics if d.code == "untrusted" and d.path == str(file)]
    assert ["metier trust" in note.hint for note in notes] == [True] * (rule != "none")
    clone.trust()
    assert ("PROJECT-RULES" in clone.discover(profile, settings=required).session().system_prompt()) == (rule != "none")
