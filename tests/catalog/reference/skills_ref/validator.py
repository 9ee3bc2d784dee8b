"""`validate` of the reference library, implemented with Metier."""

from pathlib import Path

from skills_ref import judge, phrases


def validate(folder: Path) -> list[str]:
    if not folder.exists():
        return ["Path does not exist"]
    if not folder.is_dir():
        return ["Not a directory"]
    return phrases(judge(folder)) if (folder / "SKILL.md").is_file() else ["Missing required file: SKILL.md"]
