"""The fixtures of these tests, for `pytest_plugins`."""

import pytest

from calling import Run, caller
from worlds import World

SKILLS = ".agents/skills"


@pytest.fixture
def run(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return caller(world, capsys, monkeypatch)


@pytest.fixture
def mixed(world: World) -> World:
    """Skills that are offered, shadowed, left out and broken."""
    world.skill(
        f"{SKILLS}/pdf",
        description="Fills forms.",
        files={"scripts/fill.py": "", "references/forms.md": "", "assets/a.bin": b"\x00"},
        license="MIT",
        metadata={"author": "me"},
        allowed_tools="Read Bash",
        version="2",
    )
    world.skill("~/.agents/skills/pdf", description="The user's.")
    world.skill("~/.agents/skills/xlsx", description="Sheets.")
    world.skill(f"{SKILLS}/group/build", description="left out")
    world.skill(f"{SKILLS}/broken", text="---\nname: broken\n---\n")
    return world
