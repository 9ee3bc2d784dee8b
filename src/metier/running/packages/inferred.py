"""What a script needs by its imports, where nothing is declared.

The script is parsed and never run. The modules of the skill that it imports are followed; those of the standard library
are left out. `distributions.txt` has the names of distributions that differ from the import.
"""

import ast
import functools
import posixpath
import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Final

from metier.files.tree import SkillTree
from metier.running.packages import Wanted
from metier.running.packages.declared import name_of, requirement

_FILES: Final = 200
"""How many modules of a skill are followed."""
_FORMER: Final = frozenset(
    (
        *("aifc", "asynchat", "asyncore", "audioop", "cgi", "cgitb", "chunk", "crypt", "distutils", "imghdr", "imp"),
        *("lib2to3", "mailcap", "msilib", "nis", "nntplib", "ossaudiodev", "pipes", "smtpd", "sndhdr", "spwd"),
        *("sunau", "telnetlib", "uu", "xdrlib", "_typeshed", "compression", "annotationlib"),
    )
)
"""Modules that only some versions of the standard library have."""


@functools.cache
def distributions() -> Mapping[str, str]:
    """Import names and their distributions. One without a distribution is on no index."""
    text = resources.files("metier.running.packages").joinpath("distributions.txt").read_text("utf-8")
    rows = (line.split("=", 1) for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {name.strip(): found.strip() for name, found in rows}


def distribution_of(imported: str) -> str:
    """The distribution of a dotted import; empty if there is none on an index."""
    table, parts = distributions(), imported.split(".")
    for end in range(len(parts), 0, -1):
        name = ".".join(parts[:end])
        if name in table:
            return table[name]
    if parts[0] in ("google", "azure"):  # many distributions share these, and one of that name is another
        return "-".join(parts[:3]) if len(parts) > 2 else ""
    return parts[0]


def inferred(tree: SkillTree, script: str) -> Wanted | None:
    """What a Python script imports besides the standard library and its own modules; `None` if nothing."""
    names = {distribution_of(name) for name in imports(tree, script)} - {""}
    kept = {name_of(name): name for name in sorted(names) if requirement(name)}
    requirements = tuple(sorted(kept.values()))
    if not requirements:
        return None
    return Wanted(requirements=requirements, source=f"imports of {script}", inferred=requirements)


def imports_from_root(tree: SkillTree, script: str) -> bool:
    """Whether a script imports a module in the skill's own folder that is not beside it, such as `scripts.name`."""
    paths = {file.path for file in tree.files if file.path.endswith(".py")}
    start, file = posixpath.dirname(script), tree.file(script)
    for name, level in (python_imports(file.data) or ()) if file is not None and start else ():
        parts = name.split(".")
        outside = level or parts[0] in sys.stdlib_module_names or any(_module(paths, start, parts))
        if not outside and any(_module(paths, "", parts)):
            return True
    return False


def imports(tree: SkillTree, script: str) -> set[str]:
    """The dotted names of modules from elsewhere that a script and the modules of its skill import."""
    paths = {file.path for file in tree.files if file.path.endswith(".py")}
    found: set[str] = set()
    waiting, seen = [script], {script}
    while waiting and len(seen) <= _FILES:
        path = waiting.pop()
        file = tree.file(path)
        for name, level in (python_imports(file.data) or ()) if file is not None else ():
            top = name.partition(".")[0]
            if level == 0 and (top in sys.stdlib_module_names or top in _FORMER or not top.isidentifier()):
                continue
            local = set(_local(paths, path, posixpath.dirname(script), name, level))
            waiting += sorted(local - seen)
            seen |= local
            if not local and level == 0:
                found.add(name)
    return found


def _local(paths: set[str], importer: str, start: str, name: str, level: int) -> Iterator[str]:
    """The files of the skill that an import leads to: beside the script or the importing module, or anywhere else.

    Scripts put other folders of their skill on the path, so a module of that name anywhere in the skill counts.
    """
    parts = name.split(".")
    if level:
        folder = posixpath.dirname(importer)
        for _ in range(level - 1):
            folder = posixpath.dirname(folder)
        yield from _module(paths, folder, parts)
        return
    for folder in dict.fromkeys((start, posixpath.dirname(importer), "")):
        found = list(_module(paths, folder, parts))
        if found:
            yield from found
            return
    top = parts[0]
    for path in sorted(paths):
        parent, base = posixpath.split(path)
        if base == f"{top}.py":
            yield path
        elif base == "__init__.py" and posixpath.basename(parent) == top:
            yield from _module(paths, posixpath.dirname(parent), parts)


def _module(paths: set[str], folder: str, parts: list[str]) -> Iterator[str]:
    """The files of a dotted name below a folder: each package on the way, and the module."""
    place = folder
    for part in parts:
        place = posixpath.join(place, part)
        if f"{place}.py" in paths:
            yield f"{place}.py"
            return
        if f"{place}/__init__.py" in paths:
            yield f"{place}/__init__.py"
        elif not any(path.startswith(f"{place}/") for path in paths):
            return
        elif place == posixpath.join(folder, parts[0]):
            yield from (
                path
                for path in sorted(paths)
                if path.startswith(f"{place}/") and path.count("/") == place.count("/") + 1
            )


# --- source text ---


def python_imports(source: bytes | str) -> list[tuple[str, int]] | None:
    """Each module that a file imports, with the number of dots before it; `None` if it is not Python 3.

    The name is dotted, with what is imported from a module at its end. What only a type checker reads does not count.
    """
    tree = parsed(source)
    return list(_imported(tree)) if tree is not None else None


def parsed(source: bytes | str) -> ast.Module | None:
    """The syntax tree of Python 3; `None` for anything else."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and _is_typing_only(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = f"{node.module}." if node.module else ""
            yield from (
                (f"{module}{alias.name}" if alias.name != "*" else module[:-1], node.level) for alias in node.names
            )
        waiting += ast.iter_child_nodes(node)


def _is_typing_only(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )
