"""Every Python block of the documentation runs unchanged, in an empty project with the example skills.

A block that cannot run offline is marked with `<!-- no-run: reason -->` above it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGES = [
    REPOSITORY / "README.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
    *sorted((REPOSITORY / "docs" / "reference").glob("*.md")),
]
BLOCK = re.compile(r"^(<!-- no-run:(?P<reason>.*?)-->\s*\n)?```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[int, str, str]]:
    """The line, the code and the reason not to run it, for each block of a page."""
    return [
        (text.count("\n", 0, found.start("code")), found["code"], (found["reason"] or "").strip())
        for found in BLOCK.finditer(text)
    ]


EXAMPLES = [
    pytest.param(page, code, id=f"{page.name}:{line}")
    for page in PAGES
    for line, code, reason in blocks(page.read_text())
    if not reason
]


@pytest.mark.system
@pytest.mark.parametrize(("page", "code"), EXAMPLES)
def test_the_block_runs_as_it_stands(page: Path, code: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "examples").symlink_to(REPOSITORY / "examples")
    surroundings = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run([sys.executable, "-c", code], cwd=project, env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.system
def test_the_page_on_embedding_says_what_its_agent_did(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs/embed.md").read_text()
    code = blocks(page)[0][1]
    agent = code[code.index("def agent") : code.index("def stand_in")]
    assert len(agent.strip().splitlines()) <= 20
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    told = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    reference = REPOSITORY / "examples/skills/csv-profile/references/pitfalls.md"
    assert f"read {len(reference.read_text())} characters" in told
    assert "['csv-profile']" in told
