"""Progressive disclosure as a property: until a skill is loaded, nothing of a body is shown, recorded or even read."""

import builtins
import json
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metier import Skills, limits
from metier.session.session import Session
from metier.testing import write_skill
from profile_kinds import KINDS

FOLDERS = {
    "standard": (".agents/skills", "~/.agents/skills"),
    "codelia": (".agents/skills", "~/.agents/skills"),
    "omp": (".omp/skills", "~/.claude/skills"),
    "mycodeagent": ("skills", "skills/group"),
    "rip": (".rip/skills", "~/.rip/skills"),
    "remcochat": (".skills", "~/.agents/skills"),
    "claude-code": (".claude/skills", "~/.claude/skills"),
}
MARKER = "BODY-MARKER-{}-"
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,6}(-[a-z0-9]{1,5})?", fullmatch=True)
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), min_size=1, max_size=60)
BODIES = st.one_of(TEXT, TEXT.map(lambda text: text * 200), st.just("---\n---\n# x\n"), st.just("$ARGUMENTS {baseDir}"))


@st.composite
def catalogs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Skills with any names, descriptions, fields, bodies and files, in either folder of a host; names may repeat."""
    return draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "name": NAMES,
                    "where": st.integers(0, 1),
                    "description": TEXT,
                    "body": BODIES,
                    "fields": st.dictionaries(
                        st.sampled_from(["license", "compatibility", "allowed-tools", "argument-hint", "x-unknown"]),
                        TEXT,
                        max_size=3,
                    ),
                }
            ),
            max_size=8,
        )
    )


@contextmanager
def project(profile: str, skills: list[dict[str, Any]]) -> Generator[tuple[Path, Path, list[str]], None, None]:
    """A project and a home with these skills, and the marker of each body and file."""
    with tempfile.TemporaryDirectory() as folder:
        home, root = Path(folder) / "home", Path(folder) / "project"
        home.mkdir()
        (root / ".git").mkdir(parents=True)
        markers: list[str] = []
        for number, skill in enumerate(skills):
            where = FOLDERS[profile][skill["where"]]
            base = home / where[2:] if where.startswith("~/") else root / where
            marker = MARKER.format(number)
            body = f"{marker}\n{skill['body']}\n{marker}"
            files = {"references/a.md": f"FILE-{marker}", "scripts/x.sh": f"FILE-{marker}"}
            write_skill(
                base / skill["name"], description=skill["description"], body=body, files=files, **skill["fields"]
            )
            markers.append(marker)
        yield root, home, markers


def discover(profile: str, root: Path, home: Path) -> Skills:
    chosen = {"enabled": True, "cache": False}
    return Skills.discover(root, profile=profile, home=home, settings=chosen, env={"HOME": str(home)})


def disclosed(session: Session, *, searching: bool = True) -> str:
    """All that anybody is shown before a load. A search looks into bodies, for its index, and shows nothing of them."""
    skills = session.skills
    parts: list[Any] = [
        skills.prompt().text,
        session.system_prompt("BASE"),
        [tool.as_dict() for tool in session.tools()],
        [skill.as_dict() for skill in skills],
        [entry.as_dict() for entry in skills.shadowed],
        [diagnostic.as_dict() for diagnostic in skills.diagnostics],
        session.commands(),
        session.state(),
        session.call("no_such_tool", {"query": "a"}).as_dict(),
    ]
    if searching:
        parts += [
            skills.prompt("a message about BODY MARKER", 500).text,
            session.system_prompt("BASE", message="BODY MARKER"),
            session.call(session.profile.tools.search or "none", {"query": "BODY MARKER"}).as_dict(),
            [hit.as_dict() for hit in skills.search("marker").results],
        ]
    parts.append(session.events)
    return json.dumps(parts, ensure_ascii=False)


@pytest.mark.behaviour("R-017", "R-052")
@settings(max_examples=70, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(profile=st.sampled_from(KINDS), skills=catalogs())
def test_no_body_is_shown_or_recorded_before_a_load(profile: str, skills: list[dict[str, Any]]) -> None:
    with project(profile, skills) as (root, home, markers):
        session = discover(profile, root, home).session(id="fixed")
        shown = disclosed(session)
        assert [marker for marker in markers if marker in shown] == []
        for skill in session.visible():
            loaded = session.load(path=skill.path)
            assert any(marker in loaded.text for marker in markers), "so that the property can fail"
            assert not any(f"FILE-{marker}" in loaded.text for marker in markers)


class Spy:
    """Which files the process opens, and how many bytes of each it reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: dict[str, int] = {}
        descriptors: dict[int, str] = {}
        os_open, os_read, plain_open = os.open, os.read, builtins.open

        def spy_open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            descriptor = os_open(path, flags, mode, dir_fd=dir_fd)
            name = os.readlink(f"/proc/self/fd/{descriptor}")
            descriptors[descriptor] = name
            self.opened.setdefault(name, 0)
            return descriptor

        def spy_read(descriptor: int, size: int, /) -> bytes:
            data = os_read(descriptor, size)
            if descriptor in descriptors:
                self.opened[descriptors[descriptor]] += len(data)
            return data

        def spy_plain(file: Any, *args: Any, **given: Any) -> Any:
            if isinstance(file, (str, os.PathLike)):
                self.opened[os.path.realpath(file)] = limits.RESOURCE_BYTES
            return plain_open(file, *args, **given)

        monkeypatch.setattr(os, "open", spy_open)
        monkeypatch.setattr(os, "read", spy_read)
        monkeypatch.setattr(builtins, "open", spy_plain)
        monkeypatch.setattr("metier.files.beneath._has_openat2", lambda: False)

    def below(self, *folders: Path) -> dict[str, int]:
        """Regular files in these folders that were opened, with the bytes that were read."""
        roots = tuple(f"{os.path.realpath(folder)}/" for folder in folders)
        return {path: size for path, size in self.opened.items() if path.startswith(roots) and os.path.isfile(path)}


@pytest.mark.behaviour("R-017")
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(profile=st.sampled_from(KINDS), skills=catalogs(), length=st.integers(0, 60_000))
def test_no_file_but_the_head_of_a_skill_file_is_read_before_a_load(
    profile: str, skills: list[dict[str, Any]], length: int
) -> None:
    for skill in skills:
        skill["body"] += "x" * length
    with project(profile, skills) as (root, home, _), pytest.MonkeyPatch.context() as monkeypatch:
        spy = Spy(monkeypatch)
        found = discover(profile, root, home)
        disclosed(found.session(id="fixed"), searching=False)
        read = spy.below(root, home)
        assert {os.path.basename(path) for path in read} <= {"SKILL.md"}
        copies = {path for e in found.shadowed if e.identical for path in (e.skill.real_path, e.winner.real_path)}
        for path, size in read.items():
            assert size <= limits.HEAD_BYTES or path in compared(found) | copies, path
        for skill in found.session().visible():
            found.session().load(path=skill.path)
        assert all(
            spy.below(root, home)[skill.real_path] >= min(skill.size, 10_000) for skill in found if skill.visible
        )


def compared(skills: Skills) -> set[str]:
    """Bodies are compared where two skills have equal names, sizes and frontmatters; nowhere else."""
    if skills.profile.collisions.copies != "content":
        return set()
    pairs = ((entry.skill, entry.winner) for entry in skills.shadowed)
    return {s.real_path for one, other in pairs if one.size == other.size for s in (one, other)}
