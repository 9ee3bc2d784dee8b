"""The completion of skills, files of a skill, profiles and folders, when a person presses the Tab key in a shell.

So names come from the cache of the last scan if nothing changed, no server is called, and an error gives no
completions. A shell inserts a completion unquoted, so names with characters that are special to a shell are never
offered.
"""

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from metier import Skills

T = TypeVar("T")

_PLAIN: Final = re.compile(r"\w[\w.+@/-]*")
_HELP: Final = 60


def complete_skill(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Complete the names of skills, with their descriptions, or files if a path was started."""
    from metier.files.text import printable

    if incomplete.startswith((".", "/", "~")):
        return [_item(incomplete, type="file")]
    pairs = _quietly(lambda: {skill.name: skill.description for skill in _catalog(context)}, dict[str, str]())
    return [_item(name, help=printable(pairs[name])[:_HELP] or None) for name in _safe(pairs, incomplete)]


def complete_file(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Complete the files of the named skill. For `run`, only its scripts."""
    from metier import limits
    from metier.files.beneath import list_files

    def files() -> Iterable[str]:
        skills = _catalog(context)
        skill = skills[str(context.params.get("name"))]
        listed = list_files(skill.dir, limits.LISTED_FILES, limits.SKILL_FILE_BYTES, skill.inner).files
        folders = tuple(f"{folder}/" for folder in skills.profile.run.folders) if parameter.name == "script" else ""
        return [file for file in listed if file.startswith(folders)]

    return [_item(file) for file in _safe(_quietly(files, ()), incomplete)]


def complete_profile(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Complete the names of the built-in profiles, or files if no name matches."""
    from metier.hosts import profiles

    named = [_item(name) for name in profiles.names() if name.startswith(incomplete)]
    return named or [_item(incomplete, type="file")]


def complete_folder(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Complete folders."""
    return [_item(incomplete, type="dir")]


def _item(value: str, type: str = "plain", help: str | None = None) -> "CompletionItem":  # noqa: A002 - as in click
    from click.shell_completion import CompletionItem  # only a shell that asks needs it

    return CompletionItem(value, type, help)


def _safe(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name)]


def _catalog(context: click.Context) -> "Skills":
    """The catalog for the shared options in the command line so far. The later option wins."""
    from metier import Skills

    chain: list[click.Context] = [context]
    while chain[-1].parent is not None:
        chain.append(chain[-1].parent)
    roots: list[str] = []
    for one in reversed(chain):
        roots += one.params.get("skills") or ()
    cwd, profile, home = (_last(chain, name) for name in ("cwd", "profile", "home"))
    return Skills.discover(cwd, profile=profile, home=home, roots=roots)


def _last(chain: list[click.Context], name: str) -> str | None:
    """The value of an option in the innermost context that has one."""
    values: list[object] = [one.params.get(name) for one in chain]
    return next((value for value in values if isinstance(value, str)), None)


def _quietly(ask: Callable[[], T], nothing: T) -> T:
    try:
        return ask()
    except Exception:  # noqa: BLE001 - an error message in the middle of a command line helps nobody
        return nothing
