"""The numbered steps of the schema: `NNNN_name.<dialect>.sql`, the same number and name in both dialects.

A step that was ever released is never edited; a change of the schema is a new step. Each runs once, in a transaction,
under the lock of its database, whatever number of processes start together.
"""

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

Dialect = Literal["sqlite", "postgres"]


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: applied when the schema's number is lower than its own."""

    number: int
    name: str
    statements: tuple[str, ...]


@cache
def migrations(dialect: Dialect) -> tuple[Migration, ...]:
    """All steps of a dialect in their order."""
    found: list[Migration] = []
    ending = f".{dialect}.sql"
    for file in sorted(resources.files(__name__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(ending):
            number, _, name = file.name.removesuffix(ending).partition("_")
            found.append(Migration(int(number), name, _statements(file.read_text("utf-8"))))
    assert [step.number for step in found] == list(range(1, len(found) + 1)), "numbers without a gap, from 1"
    return tuple(found)


def _statements(text: str) -> tuple[str, ...]:
    """Our own files end every statement with a semicolon at the end of a line, and have none elsewhere."""
    code = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return tuple(statement.strip() for statement in code.split(";\n") if statement.strip(" \n;"))
