"""Metier: the runtime for Agent Skills. `Skills.discover()` is the way in."""

from metier.errors import (
    AmbiguousSkill,
    ConfigError,
    InvalidSkill,
    MetierError,
    MissingExtra,
    SkillNotFound,
)
from metier.model import Changes, Counts, Diagnostic, Root, Shadowed, Skill, Skipped
from metier.skills import Skills

__version__ = "0.1.0"

__all__ = [
    "AmbiguousSkill",
    "Changes",
    "ConfigError",
    "Counts",
    "Diagnostic",
    "InvalidSkill",
    "MetierError",
    "MissingExtra",
    "Root",
    "Shadowed",
    "Skill",
    "SkillNotFound",
    "Skills",
    "Skipped",
    "__version__",
]
