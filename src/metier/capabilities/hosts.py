"""The hosts in the URLs of a skill's scripts and its SKILL.md, and the other things that its text names plainly."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from metier.capabilities.sources import Named, SourceFile, collected

_URL: Final = re.compile(
    r"\b(?:https?|wss?|ftp)://(?:[^\s/@\"'<>]*@)?"
    r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?=\.?(?:[:/?#\"'`)\]}>,;\s\\]|$))"
)
_PLACE: Final = re.compile(
    r"(?<![\w/.:$}-])((?:~|\$HOME|\$\{HOME\})(?:/[\w.@%+-]+)+|"
    r"/(?:etc|home|root|var|opt|usr|tmp|mnt|media|srv|proc|sys|dev|run|Users|Library|Applications|workspace|workspaces)"
    r"(?:/[\w.@%+-]+)+)"
)
_USUAL: Final = ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "/usr/bin/env")
_COMMAND: Final = re.compile(r"(?:^|\s)!`([^`\n]+)`", re.MULTILINE)


def hosts(sources: Iterable[SourceFile]) -> tuple[Named, ...]:
    """The hosts of URLs. A host that is only known at run time is not found."""
    return collected((found.lower(), source.path, "") for source in sources for found in _URL.findall(source.text))


def files(sources: Iterable[SourceFile]) -> tuple[Named, ...]:
    """The files and folders outside of the skill that are named with their whole path."""
    return collected((place, source.path, "") for source in sources for place in _places(source))


def _places(source: SourceFile) -> Iterator[str]:
    for place in _PLACE.findall(re.sub(r"\A#!.*", "", source.text)):
        if place not in _USUAL:
            yield place.replace("${HOME}", "~").replace("$HOME", "~").rstrip(".")


def commands(sources: Iterable[SourceFile]) -> tuple[Named, ...]:
    """The commands that some hosts run while they load SKILL.md, written as !`command`. Metier never runs them."""
    return collected(
        (command.strip(), source.path, "")
        for source in sources
        if source.language == "markdown"
        for command in _COMMAND.findall(source.text)
    )
