"""Scan again with the disk cache, as every start after the first does: nothing changed, then one file changed.

The floor is the least that notices any edit: one `os.stat` per SKILL.md, by paths that are known beforehand.
"""

import os

from ..generate import Tree
from ..measure import Row, Subject, best_of, timed
from ..options import Options


def run(options: Options) -> list[Row]:
    rows: list[Row] = []
    for size in options.sizes:
        for shape in ("flat", "nested"):
            rows += _unchanged(options, options.workspace.tree(size, shape))
    one_change = max((size for size in options.sizes if size <= 10_000), default=options.smallest)
    return rows + _changed(options, options.workspace.tree(one_change))


def _unchanged(options: Options, tree: Tree) -> list[Row]:
    size = len(tree.files)
    options.scan(tree, cache=True)

    def warm() -> None:
        if options.scan(tree, cache=True).parsed:
            raise AssertionError("a scan of unchanged files parsed one of them")

    subjects = {"floor": timed(lambda: floor(tree.files)), "metier": timed(warm)}
    best = best_of(options.rounds_for(size), subjects)
    what = f"{size:,} {tree.shape}"
    ratio = best["metier"] / best["floor"]
    return [Row(what, "floor", best["floor"]), Row(what, "metier", best["metier"], "s", ratio, "floor", at_most=2.5)]


def _changed(options: Options, tree: Tree) -> list[Row]:
    """One edit: a new process's scan, and `refresh()` in a process that already has the catalog."""
    size = len(tree.files)
    resident = options.scan(tree, cache=True)
    file = tree.files[size // 2]
    parsed = {"metier": 0, "refresh()": 0}

    def restart() -> None:
        parsed["metier"] = options.scan(tree, cache=True).parsed

    def refresh() -> None:
        resident.refresh()
        parsed["refresh()"] = resident.parsed

    best = best_of(
        options.rounds_for(size),
        {
            "floor": timed(lambda: floor(tree.files)),
            "metier": _after_edit(file, timed(restart)),
            "refresh()": _after_edit(file, timed(refresh)),
        },
    )
    what = f"1 of {size:,} edited"
    rows = [Row(what, "floor", best["floor"])]
    rows += (
        Row(
            what,
            name,
            best[name],
            "s",
            best[name] / best["floor"],
            "floor",
            at_most=3 if name == "refresh()" else None,
        )
        for name in parsed
    )
    rows += (Row("  files parsed", name, count, "", at_most=1) for name, count in parsed.items())
    return rows


def _after_edit(file: str, subject: Subject) -> Subject:
    def edited() -> float:
        with open(file, "a", encoding="utf-8") as stream:
            stream.write("One more line.\n")
        return subject()

    return edited


def floor(files: tuple[str, ...]) -> None:
    for file in files:
        os.stat(file)
