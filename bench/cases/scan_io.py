"""What a scan of a medium repository asks of the system and of the allocator, counted and held against bounds.

The repository has 400 skills in a tree of categories. The functions of `os` are counted by wrappers around them, so
what is counted is what Python asks for. Where the bounds come from:

- cold, a skill: open, fstat, read and close of one file, at most 4 KB; another folder: a failed open, stat, scandir.
- warm, a skill: lstat; another folder: a failed open, stat. Nothing is read but the cache.
- memory that stays: four times the text of names and descriptions, the goal that the whole process has.
- the rest are alarms, set a little above what was counted when this was written: calls that do not grow with the
  skills, 24 blocks that stay a skill (20 were counted), and a megabyte of working memory.
"""

import os
import tracemalloc
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from ..generate import Tree
from ..measure import Row
from ..options import Options

_SKILLS = 400
_COUNTED = ("open", "read", "close", "stat", "lstat", "fstat", "scandir")
_FIXED_CALLS = 40
_CALLS_PER_LEVEL = 10
"""What does not grow with the skills: settings, cache, and a look for a project's markers in every folder above."""
_HEAD_BYTES = 4096
_TEXT_FACTOR = 4
_BLOCKS = 24
_WORKING_BYTES = 1_000_000


def run(options: Options) -> list[Row]:
    tree = options.workspace.tree(_SKILLS, "nested")
    return _calls(options, tree) + _allocations(options, tree)


def _calls(options: Options, tree: Tree) -> list[Row]:
    skills, folders = len(tree.files), _other_folders(tree)
    fixed = _FIXED_CALLS + _CALLS_PER_LEVEL * options.workspace.folder("project").count("/")
    rows: list[Row] = []
    options.scan(tree, cache=True)
    for what, cache, calls, size in (
        ("cold", False, 4 * skills + 3 * folders, skills * _HEAD_BYTES),
        ("warm", True, skills + 2 * folders, 0),
    ):
        with counting() as counts:
            options.scan(tree, cache=cache)
        done = sum(counts[name] for name in _COUNTED)
        detail = ", ".join(f"{counts[name]:,} {name}" for name in _COUNTED if counts[name])
        rows.append(_bounded(f"{what}, {skills} skills", "calls", done, "", calls + fixed, detail))
        rows.append(_bounded(f"{what}, {skills} skills", "KB read", counts["bytes"] / 1e3, "KB", size / 1e3))
    return rows


def _allocations(options: Options, tree: Tree) -> list[Row]:
    options.scan(tree, cache=False)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        skills = options.scan(tree, cache=False)
        after, peak = tracemalloc.get_traced_memory()
        blocks = sum(entry.count for entry in tracemalloc.take_snapshot().statistics("filename"))
    finally:
        tracemalloc.stop()
    kept = after - before
    what = f"memory, {len(skills)} skills"
    return [
        _bounded(what, "KB that stay", kept / 1e3, "KB", tree.text_bytes * _TEXT_FACTOR / 1e3),
        _bounded(what, "blocks that stay", blocks, "", len(skills) * _BLOCKS),
        _bounded(what, "KB more at the peak", (peak - after) / 1e3, "KB", _WORKING_BYTES / 1e3),
    ]


def _bounded(what: str, who: str, value: float, unit: str, bound: float, note: str = "") -> Row:
    if not bound:
        return Row(what, who, value, unit, at_most=0, note=note)
    return Row(what, who, value, unit, value / bound, "bound", at_most=1, note=note)


def _other_folders(tree: Tree) -> int:
    """Folders that a scan has to look into because they are no skills."""
    count = 0
    for _, names, files in os.walk(tree.path):
        if "SKILL.md" in files:
            names.clear()
        else:
            count += 1
    return count


@contextmanager
def counting() -> Generator[Counter[str]]:
    """Count the calls of `os` and the bytes read, by putting a wrapper in front of each function."""
    counts: Counter[str] = Counter()
    originals: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in _COUNTED}

    def wrap(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            result = original(*args, **kwargs)
            if name == "read":
                counts["bytes"] += len(result)
            return result

        return wrapper

    for name, original in originals.items():
        setattr(os, name, wrap(name, original))
    try:
        yield counts
    finally:
        for name, original in originals.items():
            setattr(os, name, original)
