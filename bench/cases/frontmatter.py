"""Bytes of a SKILL.md become checked fields: parses a second, without any file access.

The floor is the YAML parser alone on text that was cut out beforehand; the peer is libyaml through PyYAML, which most
Python hosts use, on the same text.
"""

import os

import yaml12

from metier import limits
from metier.catalog import frontmatter
from metier.catalog.validate import check
from metier.hosts.schema import Rules

from ..generate import Shape, Tree
from ..measure import Row, Subject, best_of, timed
from ..options import Options
from ..peers import PYYAML


def run(options: Options) -> list[Row]:
    size = min(2_000, options.smallest)
    rows: list[Row] = []
    shapes: tuple[Shape, ...] = ("flat", "wild")
    for shape in shapes:
        rows += _throughput(options, options.workspace.tree(size, shape))
    return rows


def _throughput(options: Options, tree: Tree) -> list[Row]:
    heads: list[tuple[bytes, str]] = []
    for file in tree.files:
        with open(file, "rb") as stream:
            heads.append((stream.read(limits.HEAD_BYTES), os.path.basename(os.path.dirname(file))))
    parsed = [frontmatter.parse(head, complete=False) for head, _ in heads]
    texts = [one.text for one in parsed if one is not None]
    size, megabytes = len(texts), sum(len(text.encode()) for text in texts) / 1e6
    rules = Rules()

    def alone() -> None:
        for text in texts:
            yaml12.parse_yaml(text)

    def fields() -> None:
        for head, _ in heads:
            frontmatter.parse(head, complete=False)

    def checked() -> None:
        for head, folder in heads:
            one = frontmatter.parse(head, complete=False)
            if one is not None:
                check(one, folder, rules)

    subjects: dict[str, Subject] = {"floor": timed(alone), "parse": timed(fields), "parse + check": timed(checked)}
    home = options.workspace.folder("peer-home")
    label = ""
    if options.peers.python(tree.path, home, (PYYAML,)):
        label = options.peers.label(PYYAML.name)
        subjects[label] = lambda: PYYAML.load(tree.path, home)["seconds"]
    best = best_of(options.rounds, subjects)
    what = f"{size:,} {tree.shape}"
    rows = [Row(what, "floor", size / best["floor"], "/s")]
    for name in ("parse", "parse + check"):
        ratio = best[name] / best["floor"]
        rows.append(Row(what, name, size / best[name], "/s", ratio, "floor"))
    if label:
        rows.append(Row(what, label, size / best[label], "/s", best[label] / best["parse + check"], "check"))
    elif PYYAML.name in options.peers.missing:
        rows.append(Row(what, PYYAML.name, None, note=f"not available: {options.peers.missing[PYYAML.name]}"))
    rows.append(Row("  of text", "parse + check", megabytes / best["parse + check"], "MB/s",
                    note=f"{megabytes / size * 1e6:.0f} bytes of frontmatter each"))  # fmt: skip
    return rows
