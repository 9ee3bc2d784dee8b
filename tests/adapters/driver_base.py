"""The contract of a driver: one agent of one framework, used the same way in every test."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, Unpack

from scenario import Model

from metier import Skills
from metier.session.options import SharedOptions
from metier.session.session import Session

_Message = TypeVar("_Message")


class DriverOptions(SharedOptions, total=False):
    """The options that every adapter takes."""

    budget: int | None
    restore: int


class Driver(Protocol):
    """One agent. Its history keeps `window` turns of the user; `approves` is the person's answer to every question."""

    def __init__(
        self,
        skills: Skills | Session,
        model: Model,
        *,
        approves: bool = True,
        window: int = 1000,
        **options: Unpack[DriverOptions],
    ) -> None: ...

    @property
    def session(self) -> Session: ...

    def say(self, message: str) -> str:
        """Run a whole turn, including approvals. Returns the model's answer."""
        ...


def last_turns(messages: Sequence[_Message], window: int, is_user: Callable[[_Message], bool]) -> list[_Message]:
    """The last `window` turns of a history. A turn starts with a message of the user."""
    starts = [index for index, message in enumerate(messages) if is_user(message)]
    return list(messages[starts[-window] :] if len(starts) > window else messages)
