"""Skills to measure with: generated, the same in every run, and shaped like those that people publish.

Descriptions follow a survey of some 7,000 public skills: 375 bytes on average with a long tail, half of them plain
scalars, a quarter quoted, a tenth folded, one in six not ASCII. The other keys are fewer than in public skills, so that
every peer accepts every file. Trees are made on first use, shared by all benchmarks of a run, and deleted with the
workspace.
"""

import os
import random
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from typing import Literal

Shape = Literal["flat", "nested", "wild"]
"""All in one folder; in a tree of categories; in one folder, with the keys beyond the standard that people write."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_VERBS = _words("""
    analyse build check convert create debug deploy draft extract fill format inspect migrate plan
    review
""")
_NOUNS = _words("""
    api-client changelog contract dashboard database-schema dependency invoice log-file meeting-notes pdf-form
    pipeline pull-request release-notes report spreadsheet terraform-module test-suite translation web-page workflow
""")
_WORDS = _words("""
    a the and for with when user asks to from into data files tables charts errors tests release branch commit
    document section template style guide production staging service customer review summary output input format
    validate convert extract generate explain compare check report query schema column row field value before after
    large small missing broken existing new each every step result markdown json csv yaml python shell script
""")
_TOOLS = ("Read", "Write", "Edit", "Grep", "Glob", "Bash(git:*)", "Bash(python:*)", "WebFetch")


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder of generated skills."""

    path: str
    shape: Shape
    files: tuple[str, ...]
    """Every SKILL.md, in the order of generation."""
    text_bytes: int
    """Names and descriptions, in UTF-8: what a catalog cannot do without."""


@dataclass(slots=True)
class Workspace:
    """A temporary folder with the trees of this run, and an empty project and home to scan them from."""

    path: str = field(default_factory=lambda: tempfile.mkdtemp(prefix="metier-bench-"))
    trees: dict[tuple[int, Shape], Tree] = field(default_factory=dict[tuple[int, Shape], Tree])

    def folder(self, name: str) -> str:
        path = os.path.join(self.path, name)
        os.makedirs(path, exist_ok=True)
        return path

    def tree(self, size: int, shape: Shape = "flat") -> Tree:
        key = (size, shape)
        if key not in self.trees:
            self.trees[key] = generate(os.path.join(self.path, f"{shape}-{size}"), size, shape)
        return self.trees[key]

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def generate(root: str, size: int, shape: Shape, seed: int = 20) -> Tree:
    """Write `size` skills below `root`."""
    rng = random.Random(f"{seed} {size} {shape}")
    body = _body(rng)
    files: list[str] = []
    text_bytes = 0
    for number in range(size):
        name = f"{rng.choice(_VERBS)}-{rng.choice(_NOUNS)}-{number}"
        description = _description(rng)
        folder = os.path.join(root, _category(number), name) if shape == "nested" else os.path.join(root, name)
        os.makedirs(folder)
        start = rng.randrange(len(body) // 2)
        content = (
            f"{_frontmatter(rng, name, description, shape)}\n# {name}\n\n{body[start : start + _body_size(rng)]}\n"
        )
        files.append(os.path.join(folder, "SKILL.md"))
        _write(files[-1], content)
        _companions(rng, folder)
        text_bytes += len(name) + len(description.encode())
    # A cache mistrusts files that are younger than the clock's tick, and these should count as old.
    time.sleep(0.1)
    return Tree(root, shape, tuple(files), text_bytes)


def _category(number: int) -> str:
    """Some twenty skills a folder, two or three levels down."""
    group = number // 20
    department = f"department-{group % 25}"
    return (
        os.path.join(department, f"team-{group}") if group % 3 else os.path.join(department, "shared", f"team-{group}")
    )


def _description(rng: random.Random) -> str:
    """Text whose length has a mean of 375 bytes and a long tail up to the standard's limit."""
    length = max(40, min(1000, int(rng.lognormvariate(5.79, 0.52))))
    words: list[str] = []
    while sum(map(len, words)) + len(words) < length:
        words.append(rng.choice(_WORDS))
    text = " ".join(words).capitalize()[:length].strip()
    return text.replace(" and ", " — ") if rng.random() < 0.17 else text


def _frontmatter(rng: random.Random, name: str, description: str, shape: Shape) -> str:
    style = rng.random()
    if style < 0.10:
        written = ">-\n  " + description
    elif style < 0.40:
        written = f'"{description}"'
    else:
        written = description
    lines = [f"name: {name}", f"description: {written}"]
    if rng.random() < 0.35:
        lines.append(f"license: {rng.choice(('MIT', 'Apache-2.0', 'Proprietary. LICENSE.txt has complete terms'))}")
        version = f"{rng.randrange(4)}.{rng.randrange(20)}.{rng.randrange(10)}"
        if shape == "wild":
            lines += [f"version: {version}", "author: Example Authors", "tags:", *(f"  - {w}" for w in _WORDS[8:12])]
        else:
            lines += [
                "metadata:",
                "  author: example-org",
                f'  version: "{version}"',
                f"  category: {rng.choice(_NOUNS)}",
            ]
        lines.append(f"allowed-tools: {' '.join(rng.sample(_TOOLS, 3))}")
    return "---\n" + "\n".join(lines) + "\n---\n"


def _body(rng: random.Random) -> str:
    """A text to cut bodies from: paragraphs, headings, code and rules that look like fences."""
    parts: list[str] = []
    for number in range(400):
        parts.append(f"## Step {number}\n\n" + " ".join(rng.choices(_WORDS, k=72)).capitalize() + ".\n")
        if number % 5 == 0:
            parts.append("```sh\npython scripts/run.py --input data.csv\n```\n")
        if number % 9 == 0:
            parts.append("---\n")
    return "\n".join(parts)


def _body_size(rng: random.Random) -> int:
    return max(500, min(40_000, int(rng.lognormvariate(8.85, 0.55))))


def _companions(rng: random.Random, folder: str) -> None:
    """The files that some skills bring along."""
    if rng.random() < 0.30:
        os.mkdir(os.path.join(folder, "references"))
        for number in range(rng.randrange(1, 4)):
            _write(os.path.join(folder, "references", f"guide-{number}.md"), "# Guide\n\nRead this first.\n")
    if rng.random() < 0.20:
        os.mkdir(os.path.join(folder, "scripts"))
        _write(os.path.join(folder, "scripts", "run.py"), "import sys\n\nprint(sys.argv)\n")


def _write(path: str, content: str) -> None:
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(content)
