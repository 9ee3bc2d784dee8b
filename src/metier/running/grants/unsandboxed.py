"""The permission to run without a sandbox where none works. Only a rule gives it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from metier.running.grants import RunGrant


@dataclass(frozen=True, kw_only=True)
class UnsandboxedGrant(RunGrant):
    """See the module."""

    kind: ClassVar[str] = "unsandboxed"

    def facts(self) -> Iterator[tuple[str, str]]:
        if self.tools:
            yield "Sandbox", "Where no sandbox works, it runs without one, with all rights of the user."
