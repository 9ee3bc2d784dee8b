"""The page of each framework shows the example, and the example runs as it is, without a key."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.test_blocks import blocks

pytestmark = pytest.mark.browser

REPOSITORY = Path(__file__).resolve().parents[2]
AGENTS = REPOSITORY / "examples" / "agents"
PAGES = {
    "pydantic-ai": "pydantic_ai_agent.py",
    "openai-agents": "openai_agents_agent.py",
    "langchain": "langchain_agent.py",
}


def text_of(page: str) -> str:
    return (REPOSITORY / "docs" / "adapters" / f"{page}.md").read_text()


BLOCKS = [
    pytest.param(code, id=f"{page}:{line}")
    for page in PAGES
    for line, code, reason in blocks(text_of(page))
    if not reason
]


@pytest.mark.parametrize("page", PAGES)
def test_the_page_shows_the_example(page: str) -> None:
    example = (AGENTS / PAGES[page]).read_text()
    assert example in [code for _, code, _ in blocks(text_of(page))]


@pytest.mark.parametrize("code", BLOCKS)
def test_the_code_of_the_page_runs_as_it_stands(code: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    surroundings = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=surroundings, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    if "print(" in code:
        assert "'session_started', 'skill_catalog_updated', 'session_called', 'skill_loaded'" in done.stdout
        assert "'skill_resource_read'" in done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_the_page_states_the_version_and_the_extra(page: str) -> None:
    project = (REPOSITORY / "pyproject.toml").read_text()
    stated = re.search(rf'^{page} = \["[a-z-]+>=([\d.]+)"\]$', project, re.MULTILINE)
    assert stated is not None
    assert f"pip install 'metier[{page}]'" in text_of(page)
    assert f"{stated[1]} or newer" in text_of(page)
    row = next(line for line in (REPOSITORY / "docs/adapters.md").read_text().splitlines() if f"[{page}]`" in line)
    assert f"| {stated[1]} |" in row


def test_every_example_has_a_page() -> None:
    assert {file.name for file in AGENTS.glob("*.py")} == set(PAGES.values())
