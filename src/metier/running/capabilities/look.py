"""Everything that a skill names: hosts, files, commands, modules and programs, in its scripts and its SKILL.md.

The text is read and never run. What is only known at run time is not found.
"""

import ast
import posixpath
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final

from metier.files.tree import SkillTree
from metier.running.capabilities.secrets import asked_for, declared_in
from metier.running.capabilities.shell import called
from metier.running.capabilities.sources import Named, SourceFile, collected, sources
from metier.running.packages.python_imports import parsed, python_imports
from metier.values.skill import SKILL_FILE, JsonObject

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
    """The hosts of URLs."""
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


# --- modules ---


STANDARD: Final = "standard"
OWN: Final = "own"
PACKAGE: Final = "package"

_IMPORT: Final = re.compile(r"^[ \t]*(?:import|from)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_NODE: Final = re.compile(r"""(?:\brequire\(\s*|\bimport\(\s*|\bfrom\s+|\bimport\s+)["']([^"'\n]+)["']""")
_NODE_STANDARD: Final = re.compile(
    "assert async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel dns domain "
    "events fs http http2 https inspector module net os path perf_hooks process punycode querystring readline repl "
    "stream string_decoder sys test timers tls trace_events tty url util v8 vm wasi worker_threads zlib".replace(
        " ", "|"
    )
)


def imports(sources: Iterable[SourceFile]) -> tuple[Named, ...]:
    """The top-level modules that are imported. The kind is `standard`, `own` or `package`."""
    known = list(sources)
    own = {part.removesuffix(".py") for one in known if one.language == "python" for part in one.path.split("/")}
    found: list[tuple[str, str, str]] = []
    for source in known:
        if source.language == "python":
            found += ((name, source.path, _python_kind(name, own)) for name in _python(source.text))
        elif source.language == "node":
            found += (
                (name, source.path, STANDARD if _NODE_STANDARD.fullmatch(name) else PACKAGE)
                for name in _node(source.text)
            )
    return collected(found)


def _python(text: str) -> Iterator[str]:
    found = python_imports(text)
    if found is None:  # Python 2, or no Python at all
        yield from _IMPORT.findall(text)
        return
    yield from (name.partition(".")[0] for name, level in found if not level)


def _python_kind(name: str, own: Collection[str]) -> str:
    if name in sys.stdlib_module_names:
        return STANDARD
    return OWN if name in own else PACKAGE


def _node(text: str) -> Iterator[str]:
    for name in _NODE.findall(text):
        if name.startswith((".", "/")):
            continue
        parts = name.removeprefix("node:").split("/")
        yield posixpath.join(*parts[:2]) if name.startswith("@") else parts[0]


# --- programs ---


_STARTS: Final = ("run", "Popen", "call", "check_call", "check_output", "create_subprocess_exec")
_PROGRAM: Final = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_.+/-]*")
_SHELL: Final = ("system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell")


def programs(sources: Iterable[SourceFile], frontmatter: Mapping[str, object] | None = None) -> tuple[Named, ...]:
    """The programs by name. Commands that are part of the shell, and functions of the script, are left out."""
    declared = [(name, SKILL_FILE, "") for name in declared_in(frontmatter or {}, "bins")]
    found = [(name, source.path, "") for source in sources for name in _called(source)]
    return collected([*declared, *found])


def _called(source: SourceFile) -> Iterator[str]:
    if source.language == "shell":
        yield from called(source.text)
    elif source.language == "python":
        yield from _started(source.text)


def _started(text: str) -> Iterator[str]:
    tree = parsed(text)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and node.args:
            yield from _of_call(node)


def _of_call(node: ast.Call) -> Iterator[str]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    first = node.args[0]
    word = first.elts[0] if isinstance(first, ast.List | ast.Tuple) and first.elts else first
    text = word.value if isinstance(word, ast.Constant) and isinstance(word.value, str) else ""
    in_shell = any(
        keyword.arg == "shell" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
        for keyword in node.keywords
    )
    if name in _SHELL or (name in _STARTS and word is first and in_shell):
        yield from called(text)
    elif name in _STARTS and _PROGRAM.fullmatch(text):
        yield text


# --- all of it ---


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCapabilities:
    """What the files of a skill name, by kind."""

    imports: tuple[Named, ...]
    hosts: tuple[Named, ...]
    programs: tuple[Named, ...]
    files: tuple[Named, ...]
    secrets: tuple[Named, ...]
    commands: tuple[Named, ...]

    def of(self, kind: str) -> tuple[Named, ...]:
        """What is named of one kind, which is the name of a field."""
        return getattr(self, kind)

    def as_dict(self) -> JsonObject:
        return {item.name: [one.as_dict() for one in self.of(item.name)] for item in fields(self)}


def look(tree: SkillTree, frontmatter: Mapping[str, object]) -> NamedCapabilities:
    """Look at all files of a skill."""
    known = sources(tree)
    return NamedCapabilities(
        imports=imports(known),
        hosts=hosts(known),
        programs=programs(known, frontmatter),
        files=files(known),
        secrets=asked_for(known, frontmatter),
        commands=commands(known),
    )
