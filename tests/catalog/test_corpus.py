"""Seven thousand public skills, and odd files: nothing raises, nothing is lost, and every repair is reported."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml12

from metier import Skills
from metier.catalog.frontmatter import Fences, find_fences, parse
from metier.catalog.validate import codes
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


def test_every_error_has_a_place_and_a_reason(archive: Path, tmp_path: Path) -> None:
    skills = Skills.discover(tmp_path, roots=[archive], home=tmp_path / "home", settings={"cache": False})
    assert len(skills.errors) == skills.counts.errors
    for error in skills.errors:
        assert os.path.isfile(error.path)
        assert error.message
        assert error.code in codes()["diagnostics"]
        lines = Path(error.path).read_bytes().count(b"\n") + 1
        assert 1 <= error.line <= lines
        assert error.column >= 1
    for note in skills.diagnostics:
        assert note.code in codes()["diagnostics"]
        assert note.message


# --- repairs

LINE = re.compile(r"([A-Za-z_][\w.-]*):[ \t]+(.+)")


def quoted_line_by_line(text: str) -> str:
    """Repair as many clients do: quote every top-level value that is not quoted, a block or in brackets."""
    lines: list[str] = []
    for line in text.split("\n"):
        match = LINE.fullmatch(line.rstrip())
        if match and match[2][0] not in "\"'|>[{":
            escaped = match[2].replace("\\", "\\\\").replace('"', '\\"')
            line = f'{match[1]}: "{escaped}"'
        lines.append(line)
    return "\n".join(lines)


def plain(text: str) -> object:
    """The YAML without repairs. An emoji that JSON wrote as two escapes is not an error."""
    pairs = re.compile(r"\\u(d[89ab]..)\\u(d[c-f]..)", re.IGNORECASE)
    return yaml12.parse_yaml(pairs.sub(lambda pair: bytes.fromhex(pair[1] + pair[2]).decode("utf-16-be"), text))


def usable(text: str) -> bool:
    try:
        value = plain(text)
    except ValueError:
        return False
    return isinstance(value, dict) and bool(value.get("description"))


def test_more_broken_files_are_mended_than_by_quoting_lines_and_each_is_said(unpacked: Callable[[str], Path]) -> None:
    broken, by_lines, by_us, silent = 0, 0, 0, []
    for file in sorted(unpacked("odd").rglob("SKILL.md")):
        data = file.read_bytes()
        fences = find_fences(data, complete=True)
        text = data[fences.start : fences.end].decode(errors="replace") if isinstance(fences, Fences) else ""
        text = text.replace("\r\n", "\n")
        try:
            plain(text)
        except ValueError:
            broken += 1
        else:
            continue
        by_lines += usable(quoted_line_by_line(text))
        parsed = parse(data)
        assert parsed is not None
        if parsed.fields and parsed.fields.get("description"):
            by_us += 1
            if "yaml-repaired" not in [d.code for d in parsed.diagnostics]:
                silent.append(str(file))
    assert broken > 30, "the archive of odd files is another one"
    assert by_us >= by_lines > 0, f"{by_us} and {by_lines} of {broken}"
    assert silent == []
