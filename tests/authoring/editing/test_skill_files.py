"""A save never replaces what its author did not read, also if it changes in the very moment of the save."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from metier.authoring.editing.skill_files import EditConflict, SkillFolder
from metier.files.digests import digest_of
from metier.sources.install import placing
from worlds import World


def at_that_moment(monkeypatch: pytest.MonkeyPatch, where: object, act: str, then: Callable[[], object]) -> None:
    """Do something right before a call, as another process could."""
    real = getattr(where, act)

    def wrapped(*given: object, **named: object) -> object:
        monkeypatch.setattr(where, act, real)
        then()
        return real(*given, **named)

    monkeypatch.setattr(where, act, wrapped)


@pytest.mark.parametrize("way", ["write", "rename"])
@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_change_between_the_check_and_the_write_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch, way: str, can_exchange: bool
) -> None:
    file = world.skill(".agents/skills/a")
    digest = digest_of(file.read_bytes())

    def change() -> None:
        place = file if way == "write" else file.with_name("other")
        place.write_text("theirs")
        place.replace(file)

    if not can_exchange:
        monkeypatch.setattr(placing, "exchange", lambda *given: False)
    at_that_moment(monkeypatch, placing, "exchange", change)
    with pytest.raises(EditConflict) as conflict:
        SkillFolder(str(file)).save("SKILL.md", "mine", digest)
    assert file.read_text() == "theirs"
    assert conflict.value.text is not None
    assert conflict.value.text.text == "theirs"
    assert os.listdir(file.parent) == ["SKILL.md"]


def test_a_new_file_never_replaces_one_that_appears_meanwhile(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    file = world.skill(".agents/skills/a")
    other = file.parent / "notes.md"
    at_that_moment(monkeypatch, os, "link", lambda: other.write_text("theirs"))
    with pytest.raises(EditConflict):
        SkillFolder(str(file)).save("notes.md", "mine", "")
    assert other.read_text() == "theirs"


def test_a_save_keeps_the_mode_of_a_script_and_makes_new_ones_executable(world: World) -> None:
    file = world.skill(".agents/skills/a", files={"scripts/a.sh": "#!/bin/sh\n"})
    script = Path(file.parent / "scripts/a.sh")
    script.chmod(0o750)
    folder = SkillFolder(str(file))
    folder.save("scripts/a.sh", "#!/bin/sh\necho\n", folder.read("scripts/a.sh").digest)
    folder.save("scripts/b.sh", "#!/bin/sh\n", "")
    folder.save("b.md", "b", "")
    modes = [(file.parent / path).stat().st_mode & 0o777 for path in ("scripts/a.sh", "scripts/b.sh", "b.md")]
    assert modes == [0o750, 0o755, 0o644]
