"""PyYAML with libyaml, the parser of most peers: frontmatters cut out beforehand, so that only parsing counts."""

from pathlib import Path

import yaml

texts: list[str] = []


def prepare(folder: str) -> None:
    texts.extend(file.read_text().split("\n---\n", 1)[0][4:] for file in Path(folder).glob("*/SKILL.md"))


def load(folder: str) -> int:
    return sum(isinstance(yaml.load(text, Loader=yaml.CSafeLoader), dict) for text in texts)
