"""The numbered migrations of the schema: `NNNN_name.<dialect>.sql`, with the same number and name in both dialects.

The statements of a released migration are never edited; a change of the schema is a new migration. Each runs once, in
a transaction and under a lock of the database, however many processes start together.
"""

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from metier.errors import StoreError

Dialect = Literal["sqlite", "postgres"]


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema, applied if the number of the schema is lower than its own."""

    number: int
    name: str
    statements: tuple[str, ...]


@cache
def migrations(dialect: Dialect) -> tuple[Migration, ...]:
    """Return all migrations of a dialect in order."""
    found: list[Migration] = []
    ending = f".{dialect}.sql"
    for file in sorted(resources.files(__name__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(ending):
            number, _, name = file.name.removesuffix(ending).partition("_")
            found.append(Migration(int(number), name, _statements(file.read_text("utf-8"))))
    assert [step.number for step in found] == list(range(1, len(found) + 1)), (
        "migrations are numbered from 1 without a gap"
    )
    return tuple(found)


def newer_schema(store: str, found: int, known: int) -> StoreError:
    """Return the error for a store that a newer version of Metier has migrated."""
    message = f"was written by a newer version of Metier: schema {found}, but this version supports {known}"
    return StoreError(message, reason="newer", store=store, hint="upgrade with: pip install --upgrade metier")


def _statements(text: str) -> tuple[str, ...]:
    """Split a file into statements. Each must end with a semicolon at the end of a line, and have no other."""
    code = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return tuple(statement.strip() for statement in code.split(";\n") if statement.strip(" \n;"))
