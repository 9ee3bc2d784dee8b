"""skillport: the catalog behind `skillport list`, without the command's limit of 1,000."""

from pathlib import Path

from skillport.interfaces.cli.catalog import list_skills_fs
from skillport.shared.config import Config


def load(folder: str) -> int:
    config = Config(skills_dir=Path(folder), embedding_provider="none")
    return len(list_skills_fs(config=config, limit=1_000_000).skills)
