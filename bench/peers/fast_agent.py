"""fast-agent-mcp: the registry's loader for one skills directory."""

from pathlib import Path

from fast_agent.skills.registry import SkillRegistry


def load(folder: str) -> int:
    return len(SkillRegistry.load_directory(Path(folder)))
