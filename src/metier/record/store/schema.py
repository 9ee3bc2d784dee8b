"""The tables of a store in a database. There is one schema: a database with another one is refused and left alone."""

from functools import cache
from importlib import resources
from typing import Final, Literal

from metier.errors import StoreError

SCHEMA: Final = 2
"""The version of the tables, which a database names."""


@cache
def statements(dialect: Literal["sqlite", "postgres"]) -> tuple[str, ...]:
    """The statements that make the tables. Each ends with a semicolon at the end of a line, and has no other."""
    text = resources.files("metier.record.store").joinpath(f"schema.{dialect}.sql").read_text("utf-8")
    code = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return tuple(statement.strip() for statement in code.split(";\n") if statement.strip(" \n;"))


def check_schema(found: int, store: str) -> int:
    """Return the version of a database's tables, 0 if it has none yet. Refuses another version than this one."""
    if found not in (0, SCHEMA):
        message = f"its tables have version {found}, and this Metier uses version {SCHEMA}"
        hint = "use another store with --store; the Metier that wrote this one can export it"
        raise StoreError(message, reason="version", store=store, hint=hint)
    return found
