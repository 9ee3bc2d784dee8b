"""Every command with its group, its module and its line in the list of commands.

Help is built from `commands.json` alone, so that it imports no command. A command stands there once, in the group where
a person would look for it. The first group has what a beginner needs.
"""

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.json import decode


class ListedCommand(NamedTuple):
    """A command in the list of commands."""

    module: str
    """The module in this package that has it. It is imported when the command is called."""
    summary: str


class _Registry(Struct):
    groups: dict[str, dict[str, ListedCommand]]
    unlisted: dict[str, ListedCommand]
    other_names: dict[str, str]
    """What a command is called here, in words, and the names that other programs have for it."""


with open(os.path.join(os.path.dirname(__file__), "commands.json"), "rb") as _file:
    _registry = decode(_file.read(), type=_Registry)

GROUPS: Final[Mapping[str, Mapping[str, ListedCommand]]] = _registry.groups
COMMANDS: Final[Mapping[str, ListedCommand]] = {
    name: one for group in (*GROUPS.values(), _registry.unlisted) for name, one in group.items()
}
ELSEWHERE: Final[Mapping[str, str]] = {
    word: command for command, words in _registry.other_names.items() for word in words.split()
}
"""What other programs call a command, and what it is here."""
