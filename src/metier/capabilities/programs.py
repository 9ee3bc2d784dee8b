"""The programs that a skill's shell scripts call, and those that its Python scripts start by a literal name."""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from metier.capabilities.secrets import declared_in
from metier.capabilities.shell import called
from metier.capabilities.sources import Named, SourceFile, collected
from metier.model import SKILL_FILE

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
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
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
