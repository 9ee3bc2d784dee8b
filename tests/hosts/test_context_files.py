"""AGENTS.md in a hostile repository, for every profile: what is no text file of the project never reaches a model."""

import os
from pathlib import Path

import pytest

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


# What stands in place of AGENTS.md: a link with its target, or something that is no text file.
LINKS = {
    "to a key": "{home}/.ssh/id_rsa",
    "relative to a key": "../home/.ssh/id_rsa",
    "to Markdown outside": "{home}/notes.md",
    "chain of links": "a.md",
    "through a linked folder": "linked/notes.md",
    "through the process": "/proc/self/root{home}/notes.md",
    "to the environment": "/proc/self/environ",
    "to secrets of the project": ".env",
    "to a folder": "{home}",
    "to zeroes": "/dev/zero",
    "loop": "AGENTS.md",
    "dangling": "nothing.md",
}
ATTACKS = (*LINKS, "folder", "pipe", "sparse", "not text")


def attack(clone: World, file: Path, how: str) -> None:
    if how in LINKS:
        (clone.project / "a.md").symlink_to("docs/b.md")
        (clone.project / "docs").mkdir()
        (clone.project / "docs/b.md").symlink_to("../../home/notes.md")
        (clone.project / "linked").symlink_to(clone.home)
        file.symlink_to(LINKS[how].format(home=clone.home))
    elif how == "folder":
        file.mkdir()
        (file / "AGENTS.md").write_text(SECRET)
    elif how == "pipe":
        os.mkfifo(file)
    else:
        file.write_bytes(SECRET.encode() + b"\0" * (how == "not text"))
        if how == "sparse":
            os.truncate(file, 2 * 1024**3)


EVERYWHERE = [(how, profile) for how in ATTACKS for profile in KINDS]
CASES = [case for number, case in enumerate(EVERYWHERE) if case[1] in ("standard", "omp") or number % 4 == 0]
"""Every attack under the two rules that there are for these files, and a part of them under every profile."""


@pytest.mark.parametrize(("how", "profile"), CASES)
def test_nothing_of_it_is_in_the_system_prompt_and_a_diagnostic_says_so(clone: World, profile: str, how: str) -> None:
    file = clone.project / "AGENTS.md"
    attack(clone, file, how)
    skills = clone.discover(profile)
    shown = skills.session().system_prompt("Base.")
    assert "Base." in shown
    assert "agents_context" not in shown
    assert SECRET not in shown
    assert len(shown) < 100_000
    reads = skills.profile.context.agents_files != "none"
    assert [d.path for d in skills.diagnostics if d.code == "context-file-refused"] == [str(file)] * reads


@pytest.mark.parametrize("walks", [True, False])
@pytest.mark.parametrize("target", ["CLAUDE.md", "docs/agents/rules.md", "../AGENTS.md"])
def test_a_link_within_it_is_followed(clone: World, target: str, walks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_file_above_the_project_is_opened_beneath_its_own_folder_and_none_beyond_the_limit(clone: World) -> None:
    def shown() -> str:
        return clone.discover("omp").session().system_prompt()

    above = clone.project.parent / "AGENTS.md"
    above.write_text("HOUSE-RULES")
    assert "HOUSE-RULES" in shown()
    above.unlink()
    above.symlink_to("home/notes.md")  # inside that folder, and Markdown
    assert SECRET in shown()
    above.unlink()
    above.symlink_to(clone.home / "notes.md")
    assert SECRET not in shown()
    whole = "x" * limits.CONTEXT_FILE_BYTES
    for text in (whole, whole + "x"):
        (clone.project / "AGENTS.md").write_text(text)
        assert (whole in shown(), "xx" in shown()) == (text == whole, text == whole)


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
