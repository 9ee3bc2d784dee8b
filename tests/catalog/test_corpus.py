"""Seven thousand public skills, and odd files: nothing raises, nothing is lost, and every repair is reported."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from metier import Skills
from metier.catalog.frontmatter import parse
from metier.hosts.schema import DiscoveryRules

pytest_plugins = ["catalog.corpus_archives"]


@pytest.fixture(params=["skills", "odd"])
def archive(request: pytest.FixtureRequest, unpacked: Callable[[str], Path]) -> Path:
    return unpacked(str(request.param))


def skill_files(root: Path) -> int:
    """Every SKILL.md that a scan must find: also the one in an ignored folder, but nothing below it."""
    ignored = DiscoveryRules().ignore
    count = 0
    for folder, below, _ in os.walk(root):
        count += os.path.lexists(os.path.join(folder, "SKILL.md"))
        if os.path.basename(folder) in ignored and folder != str(root):
            below.clear()
    return count


def test_every_real_skill_is_accounted_for(archive: Path, tmp_path: Path) -> None:
    nested = {"discovery": {"nested": True}}
    skills = Skills.discover(tmp_path, roots=[archive], home=tmp_path / "home", settings=nested)
    counts = skills.counts
    assert counts.found == counts.loaded + counts.shadowed + counts.skipped + counts.errors == skill_files(archive)
    assert counts.loaded > counts.errors
    json.dumps([skill.as_dict() for skill in skills])
    assert len({skill.path for skill in skills} | {entry.skill.path for entry in skills.shadowed}) == (
        counts.loaded + counts.shadowed
    )
    warm = Skills.discover(tmp_path, roots=[archive], home=tmp_path / "home", settings=nested)
    assert (warm.catalog.skills, warm.diagnostics) == (skills.catalog.skills, skills.diagnostics)


def test_broken_files_are_mended_and_each_repair_is_said(unpacked: Callable[[str], Path]) -> None:
    broken, mended, silent = 0, 0, list[str]()
    for file in sorted(unpacked("odd").rglob("SKILL.md")):
        strict, parsed = (parse(file.read_bytes(), repair=repair) for repair in (False, True))
        assert strict is not None
        assert parsed is not None
        if "yaml-invalid" not in [note.code for note in strict.diagnostics]:
            continue
        broken += 1
        if parsed.fields and parsed.fields.get("description"):
            mended += 1
            if "yaml-repaired" not in [note.code for note in parsed.diagnostics]:
                silent.append(str(file))
    assert broken > 30, "the archive of odd files is another one"
    assert mended > 0.7 * broken, f"{mended} of {broken}"
    assert silent == []
