"""Who may set which setting, which decides what the files of a project can change. Each setting names it in its type.

A project's files can only narrow. What counts as narrower is a function for each setting, and a setting without one is
neither narrower nor wider: for it, the project needs trust as soon as the user requires trust. What the user, the
environment or the caller sets is not looked up here, and neither are the files of a project that the user trusts,
except for what is the user's alone.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from metier.values.value import Value

Who = Literal["user", "trusted", "project", "any"]
"""Who may set something: the user alone; a trusted project, too; a project unless trust is required; any project."""

Narrower = Callable[[Any, Any], bool]
"""Whether a new value allows nothing that the old one does not."""


class Authority(Value):
    """Who may set a setting to any value, and which values any project may set."""

    who: Who
    narrower: Narrower | None = None

    def counts(self, old: object, new: object, *, required: bool, set_by_user: bool) -> bool:
        """Whether the value of an untrusted project counts.

        `required`: the user requires trust. `set_by_user`: the old value stands in the user's own file.
        """
        if new == old or self.who == "any" or (self.narrower is not None and self.narrower(old, new)):
            return True
        return self.who == "project" and not required and not (set_by_user and self.narrower is not None)

    @property
    def description(self) -> str:
        """The rule in words, for the reference."""
        words = {
            "user": "the user",
            "trusted": "a trusted project",
            "project": "a project, unless trust is required",
            "any": "any project",
        }[self.who]
        return f"{words}; any project to narrow it" if self.narrower is not None else words


def lower(old: int, new: int) -> bool:
    return 0 <= new <= old


def lower_limit(old: int, new: int) -> bool:
    """For limits that 0 lifts."""
    return new > 0 and (old == 0 or new <= old)


def fewer(old: tuple[object, ...], new: tuple[object, ...]) -> bool:
    return all(item in old for item in new)


def fewer_but_some(old: tuple[object, ...], new: tuple[object, ...]) -> bool:
    """For lists that mean something else, and more, if they are empty."""
    return bool(new) and fewer(old, new)


def fewer_than_all(old: tuple[object, ...], new: tuple[object, ...]) -> bool:
    """For lists that mean everything if they are empty."""
    return bool(new) and (not old or fewer(old, new))


def more(old: tuple[object, ...], new: tuple[object, ...]) -> bool:
    return all(item in new for item in old)


def off(old: object, new: object) -> bool:
    return new is False


def on(old: object, new: object) -> bool:
    return new is True


def only(value: object) -> Narrower:
    return lambda _, new: new == value


def towards(*values: str) -> Narrower:
    """For values from the widest to the narrowest."""
    return lambda old, new: values.index(new) >= values.index(old)


def hides_more(old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    """More keys of the frontmatter that hide a skill. `alwaysApply` puts its text into the prompt instead."""
    return more(old, new) and ("alwaysApply" in old or "alwaysApply" not in new)


def restricts(old: Mapping[str, object], new: Mapping[str, object]) -> bool:
    """Rules that allow nothing."""
    return all(key in ("deny", "ask") for key in new)


USER: Final = Authority("user")
TRUSTED: Final = Authority("trusted")
PROJECT: Final = Authority("project")
ANY: Final = Authority("any")


def project(narrower: Narrower) -> Authority:
    return Authority("project", narrower)


def trusted(narrower: Narrower) -> Authority:
    return Authority("trusted", narrower)


LINKS: Final = towards("follow", "inside", "never")
BREACH: Final = towards("ignore", "warn", "error")


@functools.cache
def authorities() -> Mapping[str, Authority]:
    """Every setting, by our name for it."""
    from metier.hosts import profiles  # which needs this module

    return profiles.authorities()


def authority(name: str) -> Authority:
    """Who may set a setting, by our name for it."""
    return authorities()["toggles" if name.startswith("toggles.") else name]
