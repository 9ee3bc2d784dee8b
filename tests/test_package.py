"""The shape of the package: layers, exports, and what an import costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import metier

SOURCE = Path(metier.__file__).parent

LAYERS = [
    *("limits", "errors", "values", "files", "hosts", "catalog", "search", "record", "policy", "running", "session"),
    *("skills", "testing", "replay", "sources", "authoring", "app", "adapters", "surfaces", "__main__"),
]
"""The folders and files of the package in the order in which they may import each other."""


def imports_of(file: Path) -> set[str]:
    found: set[str] = set()
    tree = ast.parse(file.read_text())
    for block in ast.walk(tree):
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING":
            block.body = []  # a name for the type checker is no arrow
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "metier":
            parts = node.module.split(".")
            found.update([parts[1]] if len(parts) > 1 else [alias.name for alias in node.names])
        elif isinstance(node, ast.Import):
            found.update(alias.name.split(".")[1] for alias in node.names if alias.name.startswith("metier."))
    return found


def test_lower_layers_never_import_higher_ones() -> None:
    level = {name: number for number, name in enumerate(LAYERS)}
    wrong: list[str] = []
    for file in SOURCE.rglob("*.py"):
        module = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        if module in ("__init__", "__main__"):
            continue
        assert module in level, f"{module} has no layer"
        wrong += [f"{module} -> {name}" for name in imports_of(file) if name in level and level[name] > level[module]]
    assert wrong == [], "an arrow that points up"


MOST_IN_A_CYCLE = 5
"""The most modules that may import each other in a circle; imports in functions and for type checkers count, too."""


def modules_imported() -> dict[str, set[str]]:
    """Each module of the package with the modules of the package that it names in an import."""
    files = {".".join(file.relative_to(SOURCE.parent).with_suffix("").parts): file for file in SOURCE.rglob("*.py")}
    files = {name.removesuffix(".__init__"): file for name, file in files.items()}
    found: dict[str, set[str]] = {name: set() for name in files}
    for name, file in files.items():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module in files:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                found[name] |= {one if one in files else node.module for one in inner}
            elif isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names if alias.name in files}
    return found


def test_few_modules_import_each_other_in_a_circle() -> None:
    arrows = modules_imported()
    reached: dict[str, set[str]] = {}
    for start in arrows:
        reached[start], todo = set(), [start]
        while todo:
            new = arrows[todo.pop()] - reached[start]
            reached[start] |= new
            todo += new
    cycles = {frozenset(other for other in reached[one] if one in reached[other]) for one in arrows}
    assert [sorted(cycle) for cycle in cycles if len(cycle) > MOST_IN_A_CYCLE] == []


def test_the_public_names_are_the_listed_ones() -> None:
    assert sorted(metier.__all__) == sorted(dir(metier))
    assert all(getattr(metier, name) is not None for name in metier.__all__)
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported - {"TYPE_CHECKING"} | {"__version__"} == set(metier.__all__), "checkers see the same names"
    with pytest.raises(AttributeError, match="Sesion"):
        getattr(metier, "Sesion")  # noqa: B009 - a type checker refuses it, too


@pytest.mark.system
def test_importing_the_package_loads_no_optional_dependency() -> None:
    heavy = ["click", "tantivy", "watchfiles", "mcp", "starlette", "uvicorn", "textual", "psycopg", "pydantic_ai"]
    code = f"import sys, metier; print([m for m in {heavy!r} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"


def classes() -> list[tuple[str, str]]:
    """Each class of the package with its file; private ones may repeat."""
    return [
        (node.name, str(file.relative_to(SOURCE)))
        for file in SOURCE.rglob("*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


def test_a_class_name_is_used_once() -> None:
    places: dict[str, list[str]] = {}
    for name, file in classes():
        places.setdefault(name, []).append(file)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_no_call_has_eight_positional_arguments() -> None:
    calls = [
        f"{file.relative_to(SOURCE)}:{node.lineno}"
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and sum(not isinstance(one, ast.Starred) for one in node.args) >= 8
    ]
    assert calls == []


def test_no_host_is_named_in_a_condition_outside_of_its_formats() -> None:
    hosts = {"codelia", "omp", "mycodeagent", "remcochat", "rip"}
    found = [
        f"{file.relative_to(SOURCE)}:{node.lineno}"
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Compare)
        and hosts
        & {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    ]
    assert found == []
