"""hermes-agent: the scan behind its `skills_list` tool, with its skills folder set to ours."""

from pathlib import Path

from tools import skills_tool
from tools.skills_tool import _find_all_skills


def load(folder: str) -> int:
    skills_tool.SKILLS_DIR = Path(folder)
    return len(_find_all_skills())
