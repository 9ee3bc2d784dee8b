"""skills-ref, the reference library: it knows single folders, so the loop over them is ours."""

from pathlib import Path

from skills_ref.parser import read_properties
from skills_ref.validator import validate


def load(folder: str) -> int:
    count = 0
    for skill in sorted(Path(folder).iterdir()):
        if skill.is_dir() and not validate(skill):
            read_properties(skill)
            count += 1
    return count
