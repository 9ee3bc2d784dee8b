"""What the shells are offered behind a command: names of profiles and of skills, and files of a skill.

A completion is asked for at every press of a key, so names come from the cache of the last scan where nothing changed,
no server is called, and whatever goes wrong means that there is nothing to offer. A shell puts an offered word into the
command line as it stands: a name that means anything to a shell is not offered.
"""

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from metier import Skills, limits
from metier.files.beneath import list_files
from metier.files.text import printable
from metier.hosts import profiles

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_PLAIN: Final = re.compile(r"\w[\w.+@/-]*")
_HELP: Final = 60


def complete_profile(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """The built-in profiles, or files where none begins so."""
    from click.shell_completion import CompletionItem

    named = [CompletionItem(name) for name in profiles.BUILT_IN if name.startswith(incomplete)]
    return named or [CompletionItem(incomplete, type="file")]


def complete_folder(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


def complete_skill(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """The names of the catalog, with what they are for; files where a path was begun."""
    from click.shell_completion import CompletionItem

    if incomplete.startswith((".", "/", "~")):
        return [CompletionItem(incomplete, type="file")]
    skills = _quietly(lambda: _catalog(context), ())
    pairs = {skill.name: skill.description for skill in skills}
    return [CompletionItem(name, help=printable(pairs[name])[:_HELP] or None) for name in _safe(pairs, incomplete)]


def complete_file(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """The files of the skill that was named; behind `run` only those that may run."""
    from click.shell_completion import CompletionItem

    def files() -> Iterable[str]:
        skills = _catalog(context)
        skill = skills[str(context.params.get("name"))]
        listed = list_files(skill.dir, limits.LISTED_FILES, limits.SKILL_FILE_BYTES).files
        folders = tuple(f"{folder}/" for folder in skills.profile.run.folders) if parameter.name == "script" else ""
        return [file for file in listed if file.startswith(folders)]

    return [CompletionItem(file) for file in _safe(_quietly(files, ()), incomplete)]


def _safe(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name)]


def _catalog(context: click.Context) -> Skills:
    """The catalog by the shared options that stand in the line so far; the later one counts."""
    given: dict[str, Any] = {"cwd": None, "home": None, "profile": None}
    roots: tuple[str, ...] = ()
    chain: list[click.Context] = [context]
    while chain[-1].parent is not None:
        chain.append(chain[-1].parent)
    for one in reversed(chain):
        given.update({key: one.params[key] for key in given if one.params.get(key) is not None})
        roots += one.params.get("skills") or ()
    return Skills.discover(given["cwd"], profile=given["profile"], home=given["home"], roots=roots)


def _quietly(ask: Callable[[], Any], nothing: Any) -> Any:
    try:
        return ask()
    except Exception:  # noqa: BLE001 - a message in the middle of a command line helps nobody
        return nothing
