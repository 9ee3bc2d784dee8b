"""How much the tests find: small faults, planted one at a time in a copy of the source, and whether a test fails.

    python -m bench.mutants [--count 80] [--seed 1] [--tests FOLDER] [--only N,N]

A mutant is one changed operator, condition, constant, or a call that is left out, drawn at random over the files where
a fault would cost most. The in-process tests of its area run until the first failure. `--tests` names another copy of
the tests, to compare two states of them. What no test finds is printed with its line.

The tests run without a fault first: one that fails then would seem to find every fault. On a busy machine a test may
exceed its time, which looks the same.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "src" / "metier"
AREAS: Final[Mapping[str, Sequence[str]]] = {
    "policy": ("tests/policy", "tests/session", "tests/hosts", "tests/running", "tests/surfaces"),
    "files/beneath.py": ("tests/files", "tests/catalog", "tests/session", "tests/hosts"),
    "catalog/discover.py": ("tests/catalog", "tests/hosts", "tests/authoring"),
    "record/state.py": ("tests/record", "tests/session", "tests/replay", "tests/hosts"),
    "session/operations.py": ("tests/session", "tests/hosts", "tests/replay", "tests/surfaces"),
    "hosts/formats": ("tests/hosts", "tests/session", "tests/surfaces"),
}
"""What is mutated, below `src/metier`, and the tests of that area, those that are closest first."""
SECONDS: Final = 400
"""A run of tests that takes longer hangs, and so found the mutant."""

_SWAPS: Final[Mapping[type[ast.AST], type[ast.AST]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip


class Mutant(NamedTuple):
    area: str
    file: Path
    """Relative to the source."""
    line: int
    what: str
    text: str
    """The whole file with the fault."""


def changes(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], None]]]:
    """The faults that can be planted in a node: what each is, and the function that plants it."""
    match node:
        case ast.Compare(ops=[op]) | ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in _SWAPS:
            new = _SWAPS[type(op)]()
            many = isinstance(node, ast.Compare)
            yield (
                f"{type(op).__name__} is {type(new).__name__}",
                lambda at: setattr(at, "ops" if many else "op", [new] if many else new),
            )
        case ast.If() | ast.IfExp() | ast.While():
            reversed_ = ast.UnaryOp(ast.Not(), node.test)
            yield "the condition is reversed", lambda at: setattr(at, "test", reversed_)
        case ast.Constant(value=bool() as value):
            yield f"{value} is {not value}", lambda at: setattr(at, "value", not value)
        case ast.Constant(value=int() as value):
            yield f"{value} is {value + 1}", lambda at: setattr(at, "value", value + 1)
        case ast.Expr(value=ast.Call()):
            yield "the call is left out", lambda at: setattr(at, "value", ast.Constant(None))
        case ast.Return(value=ast.expr()):
            yield "None is returned", lambda at: setattr(at, "value", ast.Constant(None))
        case _:
            pass


def sites(tree: ast.Module) -> Iterator[tuple[int, int, str]]:
    """Where faults can be planted in a module: the number of the node, its line, and the fault."""
    skipped = {id(inner) for node in ast.walk(tree) for inner in _not_run(node)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) not in skipped:
            for what, _ in changes(node):
                yield number, getattr(node, "lineno", 0), what


def planted(tree: ast.Module, number: int) -> str:
    """The text of a module with a fault in one node."""
    tree = copy.deepcopy(tree)
    node = next(node for at, node in enumerate(ast.walk(tree)) if at == number)
    for _, plant in changes(node):
        plant(node)
    return ast.unparse(ast.fix_missing_locations(tree))


def _not_run(node: ast.AST) -> Iterator[ast.AST]:
    """Annotations, and what only a type checker sees."""
    for field in ("annotation", "returns"):
        if (inner := getattr(node, field, None)) is not None:
            yield from ast.walk(inner)
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        yield from ast.walk(node)


def draw(count: int, seed: int) -> list[Mutant]:
    every: list[tuple[str, Path, int, int, str]] = []
    trees: dict[Path, ast.Module] = {}
    for area in AREAS:
        place = SOURCE / area
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            trees[file] = ast.parse(file.read_text(encoding="utf-8"))
            every += [(area, file, *site) for site in sites(trees[file])]
    drawn = random.Random(seed).sample(every, min(count, len(every)))
    return [
        Mutant(area, file.relative_to(SOURCE), line, what, planted(trees[file], number))
        for area, file, number, line, what in drawn
    ]


def is_found(mutant: Mutant, tests: Path) -> bool:
    """Whether a test of the area fails when this fault is in the source."""
    return failing(AREAS[mutant.area], tests, mutant) != ""


def failing(folders: Sequence[str], tests: Path, mutant: Mutant | None = None) -> str:
    """The first of these folders of tests in which a test fails; empty if there is none."""
    with tempfile.TemporaryDirectory() as folder:
        src = Path(folder, "src")
        shutil.copytree(ROOT / "src", src, ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            (src / "metier" / mutant.file).write_text(mutant.text, encoding="utf-8")
        areas = [name for name in folders if (tests / name).exists()]
        line = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "in_process", "-p", "no:cacheprovider", "--no-header"]
        environment = {**os.environ, "PYTHONPATH": str(src), "PYTHONDONTWRITEBYTECODE": "1"}
        for area in areas:
            try:
                done = subprocess.run(
                    [*line, f"--basetemp={folder}/tmp", area],
                    cwd=tests,
                    env=environment,
                    capture_output=True,
                    timeout=SECONDS,
                )
            except subprocess.TimeoutExpired:
                return area
            if done.returncode not in (0, 5):
                return area
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=80)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", type=Path, default=ROOT, help="the checkout whose tests are run")
    parser.add_argument("--only", default="", help="numbers of mutants, separated by commas")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    drawn = list(enumerate(draw(options.count, options.seed)))
    if options.only:
        drawn = [drawn[int(number)] for number in options.only.split(",")]
    tests = options.tests.resolve()
    if broken := failing(sorted({name for mutant in drawn for name in AREAS[mutant[1].area]}), tests):
        sys.exit(f"a test of {broken} fails without a fault, so nothing can be told")
    missed: list[int] = []
    with ThreadPoolExecutor(options.workers) as pool:
        results = pool.map(is_found, (mutant for _, mutant in drawn), [tests] * len(drawn))
        for (number, mutant), found in zip(drawn, results, strict=True):
            print(
                f"{number:3} {'found ' if found else 'MISSED'} {mutant.file}:{mutant.line}: {mutant.what}", flush=True
            )
            if not found:
                missed.append(number)
    print(f"{len(drawn) - len(missed)} of {len(drawn)} found; missed: {','.join(map(str, missed)) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
