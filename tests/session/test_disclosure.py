"""Progressive disclosure as a property: until a skill is loaded, nothing of a body is shown or recorded."""

import json
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metier import Skills
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
