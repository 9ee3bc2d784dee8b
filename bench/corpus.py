"""Real skills and real requests to search with: an archive of public skills, and queries that say which one is right.

The folder holds `skills.tar.xz`, `references.tar.xz` with their further files, and `queries.jsonl`, one query a line:
`query`, `repo`, `kind`, `expected` (paths in the archive), `negative_for` (a skill that must not answer), `name_leak`
(the query says the skill's name, so it does not count). It lies beside the project or where `--corpus` says; benchmarks
that need it are left out where it is not.
"""

import json
import os
import tarfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from metier import Skills
from metier.values.skill import Skill

from .generate import Workspace
from .measure import Row
from .options import Options

FOLDS = 5


@dataclass(frozen=True, slots=True)
class Query:
    """A request, and the paths of the skills that answer it."""

    text: str
    repo: str
    kind: str
    expected: frozenset[str]
    negative_for: str
    name_leak: bool


class Corpus:
    """The archive unpacked into the workspace, and everything in it that Metier takes for a skill."""

    def __init__(self, folder: str, workspace: Workspace) -> None:
        self.path = os.path.join(workspace.path, "corpus")
        if not os.path.isdir(self.path):
            for name in ("skills.tar.xz", "references.tar.xz"):
                if os.path.exists(os.path.join(folder, name)):
                    with tarfile.open(os.path.join(folder, name)) as archive:
                        # Python 3.11.4 and later have filters.
                        archive.extraction_filter = getattr(tarfile, "data_filter", None)
                        archive.extractall(self.path)
        with open(os.path.join(folder, "queries.jsonl"), encoding="utf-8") as lines:
            self.queries = [self._query(line) for line in lines]
        home = workspace.folder("home")
        settings = {"discovery.nested": True, "cache": False}
        self._found = Skills.discover(
            workspace.folder("project"), roots=[self.path], home=home, settings=settings, env={}
        )

    def _query(self, line: str) -> Query:
        row = json.loads(line)
        expected = frozenset(os.path.join(self.path, path) for path in row["expected"])
        refused = row["negative_for"] or ""
        if refused:
            refused = os.path.join(self.path, "skills", refused.removeprefix("skills/"))
        return Query(row["query"], row["repo"], row["kind"], expected, refused, row["name_leak"])

    @property
    def skills(self) -> list[Skill]:
        """All of them by path, also those that share a name with another."""
        shadowed = (entry.skill for entry in self._found.shadowed)
        return sorted((*self._found, *shadowed), key=lambda skill: skill.path)

    @cached_property
    def asked(self) -> list[Query]:
        """The queries that count: a skill answers them, and they do not say its name."""
        return [query for query in self.queries if query.expected and not query.name_leak]

    def folder_of(self, repo: str) -> str:
        return os.path.join(self.path, "skills", repo.replace("/", "+")) + os.sep


def corpus_of(options: Options) -> Corpus | None:
    """The corpus, if it is there."""
    return Corpus(options.corpus, options.workspace) if os.path.isdir(options.corpus) else None


def absent(options: Options) -> list[Row]:
    """What a benchmark says that has nothing to measure with."""
    return [Row("corpus", "-", None, note=f"left out: there is no corpus at {options.corpus}; --corpus names another")]


def folds(queries: Sequence[Query]) -> list[list[int]]:
    """Positions of the queries in groups of whole repositories, of about equal size."""
    sizes = Counter(query.repo for query in queries)
    groups = [0] * FOLDS
    placed: dict[str, int] = {}
    for repo, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        placed[repo] = groups.index(min(groups))
        groups[placed[repo]] += size
    return [[at for at, query in enumerate(queries) if placed[query.repo] == fold] for fold in range(FOLDS)]
