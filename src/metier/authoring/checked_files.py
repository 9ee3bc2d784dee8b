"""What `check` finds out once for all hosts: what the files contain, and which of them matter.

To judge a few skills, a host need not look at all others. Only those with the same names matter, unless the host limits
its listing or its catalog.
"""

import os
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from metier import limits
from metier.catalog import discover, frontmatter
from metier.catalog.scan_cache import FolderRow
from metier.catalog.skill_file import Heads
from metier.files.beneath import read_regular
from metier.hosts import profiles, roots
from metier.hosts.profiles import Profile
from metier.values.skill import SKILL_FILE, STAMP, Root, as_text
from metier.values.value import Value, field, replace

_NOT_SEARCHED: Final = (".git", "node_modules", "__pycache__")
_FEW: Final = 100
"""The number of skills up to which the names of others decide whether they matter."""


class FileFacts(Value):
    """What a SKILL.md contains, whatever the host."""

    lines: dict[str, int]
    """The line of each key."""
    size: int = 0
    name: str = ""


class CheckedFiles(Struct):
    """What is the same for all hosts, and found out once: frontmatters, listings of folders, facts about files."""

    heads: Heads = field(default_factory=Heads)
    folders: dict[str, FolderRow] = field(default_factory=dict[str, FolderRow])
    few: dict[str, FolderRow] = field(default_factory=dict[str, FolderRow])
    facts: dict[str, FileFacts] = field(default_factory=dict[str, FileFacts])
    lines: dict[tuple[object, ...], dict[str, int]] = field(default_factory=dict[tuple[object, ...], dict[str, int]])
    """The line of each key, by the outline of the file and its keys: thousands of files have the same."""
    asked: dict[str, list[tuple[str, str]]] = field(default_factory=dict[str, list[tuple[str, str]]])
    """The folders with a SKILL.md in or below each folder in question: path and real path, in the order of a scan."""
    linked: set[str] = field(default_factory=set[str])
    """Those folders in question that hold links. A file may be in them twice, and counts once."""
    names: frozenset[str] | None = None
    """The names that the skills in question can have, if they are few. Skills of other names do not matter then."""

    def look_for(self, folders: Sequence[str], cwd: str, home: str) -> None:
        """Read the skills in or below these folders as leniently as any host."""
        profile = anywhere(profiles.build(profiles.load("standard")))
        place, _ = roots.locate(profile, cwd, home, {})
        names: set[str] = set()
        for folder in folders:
            found, memory = discover.scan(profile, place, (asked_root(folder),), heads=self.heads)
            self.folders |= memory.folders
            self.asked[folder] = _with_skill(folder, found)
            if found.skipped or not all(skill.real_path.endswith(skill.path[len(folder) :]) for skill in found.skills):
                self.linked.add(folder)
            names.update(os.path.basename(path) for path, _ in self.asked[folder])
            names.update(as_text(skill.frontmatter.get("name")) or "" for skill in found.skills)
            names.update(skill.name for skill in found.skills)
        if sum(map(len, self.asked.values())) <= _FEW:
            self.names = frozenset((*names, *(unicodedata.normalize("NFKC", name).strip() for name in names)))

    def listings(self, profile: Profile, *, pruned: bool) -> dict[str, FolderRow]:
        """The listings of folders for a scan of a host, without the folders of skills that do not matter to it."""
        rules = profile.discovery
        return {} if not rules.hidden else self.few if pruned and not rules.nested else self.folders

    def keep_listings(self, profile: Profile, found: Mapping[str, FolderRow], *, pruned: bool) -> None:
        if not profile.discovery.hidden:
            return
        names = self.names
        if not pruned or names is None or profile.discovery.nested:
            self.folders.update(found)
            return
        for path, row in found.items():
            if path not in self.few and len(row[3]) < profile.discovery.max_skills:
                files = ((folder, f"{path}/{folder}/{SKILL_FILE}") for folder in row[3])
                kept = tuple(folder for folder, file in files if not self.heads.rules_out(file, names))
                self.few[path] = (*row[:3], kept, *row[4:])

    def fact(self, file: str) -> FileFacts:
        if file not in self.facts:
            self.facts[file] = self._read(file)
        return self.facts[file]

    def _read(self, file: str) -> FileFacts:
        head = self.heads.known.get(file)
        if head is not None:
            size, parsed = STAMP.unpack(head[0])[2], head[1]
        else:
            try:
                data = _content(file)
            except (OSError, ValueError):
                return FileFacts({})
            size, parsed = len(data), frontmatter.parse(data)
        if parsed is None or parsed.fields is None:
            return FileFacts({}, size)
        outline = (parsed.text, parsed.first_line, *parsed.fields)
        if outline not in self.lines:
            self.lines[outline] = {key: parsed.locate(key)[0] for key in parsed.fields}
        return FileFacts(self.lines[outline], size, as_text(parsed.fields.get("name")) or "")


def _with_skill(folder: str, found: discover.Found) -> list[tuple[str, str]]:
    """The folders in which a scan found a SKILL.md, whether it can be used or not: path and real path."""
    skipped = [os.path.dirname(entry.path) for entry in found.skipped if entry.reason != "ignored-folder"]
    paths = [os.path.dirname(file) for file in (*(skill.path for skill in found.skills), *found.failed)]
    paths += (path for path in skipped if not os.path.islink(path))  # links to folders are not followed here
    real = os.path.realpath(folder)
    return [(path, path) if real == folder else (path, real + path[len(folder) :]) for path in paths]


def _content(file: str) -> bytes:
    return read_regular(os.path.realpath(file), limits.SKILL_FILE_BYTES)


def has_body(file: str) -> bool:
    try:
        data = _content(file)
    except (OSError, ValueError):
        return False
    parsed = frontmatter.parse(data)
    return parsed is not None and parsed.fields is not None and bool(data[parsed.body_offset :].strip())


def asked_root(folder: str) -> Root:
    return Root(path=folder, scope="extra", source="argument", explicit=True)


def anywhere(profile: Profile) -> Profile:
    """The same rules, but for a scan that finds a file wherever it is."""
    return replace(
        profile,
        discovery=replace(
            profile.discovery,
            nested=True,
            depth=0,
            root_is_skill=True,
            hidden=True,
            ignore=_NOT_SEARCHED,
            folder_links="never",
        ),
    )
