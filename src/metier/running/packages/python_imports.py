"""What Python source imports. It is parsed and never run. `metier caps` and the packages of a script agree on it."""

import ast
import warnings
from collections.abc import Iterator


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
