"""Folders become skills: what lies in the roots, met once each and accounted for.

Discovery reads the head of a SKILL.md up to the closing fence and nothing else. It executes nothing, writes nothing
beside a skill, opens only regular files, and raises for no file: each SKILL.md it meets ends in exactly one of
`skills`, `skipped` or `failed`. The result depends on what is on disk and not on the order in which the disk tells it.

A folder is first asked for its SKILL.md and listed only if it has none (or if skills may nest), which spares one
listing per skill; the cache spares the reading, too, where the times of file and folder say that nothing changed.
"""

import os
import stat
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from metier import limits
from metier.catalog import frontmatter, validate
from metier.catalog.scan_cache import FileRow, FolderRow, Memory, settled
from metier.files.beneath import read_regular
from metier.hosts.profiles import Profile
from metier.hosts.roots import Place
from metier.model import NO_FIELDS, SKILL_FILE, Diagnostic, Root, Skill, Skipped

_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_SUFFIX: Final = "/" + SKILL_FILE
_FOLDS_CASE: Final = sys.platform == "darwin"
_UNSETTLED: Final = -1
_ELOOP: Final = 40 if sys.platform.startswith("linux") else 62


@dataclass(slots=True)
class Found:
    """Everything that a scan met. `failed` are the files with an error, `diagnostics` all that was said about any."""

    skills: list[Skill] = field(default_factory=list[Skill])
    skipped: list[Skipped] = field(default_factory=list[Skipped])
    failed: list[str] = field(default_factory=list[str])
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])
    per_root: dict[str, int] = field(default_factory=dict[str, int])
    visited: list[str] = field(default_factory=list[str])
    """The folders that were listed or ignored: where a skill may appear."""
    parsed: int = 0
    """Files that were read and not taken from the cache."""
    changed: bool = False
    """Whether the cache should be written anew."""


def scan(
    profile: Profile,
    place: Place,
    roots: tuple[Root, ...],
    memory: Memory | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[Found, Memory]:
    """Search the roots; returns what was found and the rows for the next scan's cache."""
    walker = _Walker(profile, place, roots, memory or Memory(), progress)
    for root in roots:
        walker.search(root)
    return walker.finish()


@dataclass(slots=True)
class _Budget:
    """How many more folders may be visited, in all or behind one link."""

    left: int
    what: str
    reported: bool = False


class _Walker:
    def __init__(
        self,
        profile: Profile,
        place: Place,
        roots: tuple[Root, ...],
        memory: Memory,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.profile, self.place, self.roots = profile, place, roots
        self.rules = profile.discovery
        self.old, self.new = memory, Memory(read_ns=time.time_ns())
        self.progress = progress
        self.found = Found()
        self.seen_files: set[str] = set()
        self.seen_folders: set[str] = set()
        self.budget = _Budget(self.rules.max_directories, f"{self.rules.max_directories:,} folders")
        self.ignored = frozenset(self.rules.ignore)
        self.inside = tuple(os.path.realpath(r.path) for r in roots) if self.rules.file_links == "inside" else ()

    def finish(self) -> tuple[Found, Memory]:
        found, new, old = self.found, self.new, self.old
        if found.changed:
            # A row that a later change might not show is kept, but matches nothing: the file is read again next time.
            for file, row in new.files.items():
                if not settled(row[0], row[1], new.read_ns):
                    new.files[file] = (_UNSETTLED, *row[1:])
        found.changed = found.changed or len(new.files) != len(old.files) or len(new.folders) != len(old.folders)
        return found, new

    def say(self, code: str, severity: validate.Severity, message: str, path: str, hint: str = "") -> None:
        self.found.diagnostics.append(Diagnostic(code, severity, message, path, hint=hint))

    def search(self, root: Root) -> None:
        before = len(self.found.skills)
        real = os.path.realpath(root.path)
        real = root.path if real == root.path else real  # one object where they are equal: told apart by identity
        try:
            is_folder = stat.S_ISDIR(os.stat(real).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            if root.explicit or root.source == "custom" or self.rules.missing_root == "warn":
                self.say("root-missing", "warning", "this folder does not exist and was skipped", root.path)
            return
        except (OSError, ValueError) as error:
            self.say("unreadable", "error", f"the folder cannot be read: {_reason(error)}", root.path)
            return
        if not is_folder:
            self.say("root-not-folder", "error", "this is not a folder", root.path, "name the folder that holds it")
            return
        if self.rules.root_is_skill:
            self.candidate(root, root.path, real)
        self.visit(root, root.path, real, 1, self.budget)
        self.found.per_root[root.path] = len(self.found.skills) - before

    def visit(self, root: Root, path: str, real: str, level: int, budget: _Budget) -> None:
        """Go through the folders below `path`, without recursion: depth is the attacker's choice."""
        pending = [(path, real, level, budget)]
        while pending:
            path, real, level, budget = pending.pop()
            if real in self.seen_folders:
                continue
            if budget.left <= 0 or self.budget.left <= 0:
                spent = budget if budget.left <= 0 else self.budget
                if not spent.reported:
                    self.bound(spent.what, path)
                    spent.reported = True
                continue
            self.budget.left -= 1
            if budget is not self.budget:
                budget.left -= 1
            if self.progress is not None:
                self.progress(len(self.found.skills))
            if level > (root.depth or self.rules.max_depth):
                if root.depth:
                    self.listing(path, is_candidate=True)
                else:
                    self.bound(f"{self.rules.max_depth} levels", path)
                continue
            self.seen_folders.add(real)
            listing = self.listing(path, is_candidate=level > 1)
            if listing is None:
                continue
            folders, links = listing
            prefix, real_prefix = path.rstrip("/") + "/", real.rstrip("/") + "/"
            below: list[tuple[str, str, int, _Budget]] = []
            for number, name in enumerate(folders):
                if self.progress is not None and number % 256 == 255:
                    self.progress(len(self.found.skills))
                child = prefix + name
                real_child = real_prefix + name if path is not real else child
                if name in self.ignored:
                    self.skip_ignored(child)
                elif not self.candidate(root, child, real_child) or self.rules.nested:
                    below.append((child, real_child, level + 1, budget))
            for name in links:
                self.follow(root, prefix + name, level, below)
            below.reverse()
            pending += below

    def follow(self, root: Root, child: str, level: int, below: list[tuple[str, str, int, _Budget]]) -> None:
        """A symbolic link in a folder: a skill, a folder of skills, or nothing to us."""
        try:
            real = os.path.realpath(child, strict=True)
            if not stat.S_ISDIR(os.stat(real).st_mode):
                return
        except (OSError, ValueError):
            return
        outside = self.rules.folder_links == "inside" and not self.leads_inside(real)
        if self.rules.folder_links == "never" or outside:
            self.say("link-not-followed", "info", f"the link to {real} was not followed", child)
            if os.path.isfile(child + _SUFFIX):
                detail = "the folder is a link that leads outside" if outside else "linked folders are not followed"
                self.found.skipped.append(Skipped(child + _SUFFIX, "link", detail, os.path.basename(child)))
            return
        if os.path.basename(child) in self.ignored:
            self.skip_ignored(child)
        elif not self.candidate(root, child, real) or self.rules.nested:
            bound = self.rules.max_linked_directories
            below.append((child, real, level + 1, _Budget(bound, f"{bound:,} folders behind a link")))

    def bound(self, what: str, path: str) -> None:
        self.say(
            "bound-reached", "warning", f"the search stopped here, at its bound of {what}", path, "name it as a root"
        )

    def skip_ignored(self, child: str) -> None:
        self.found.visited.append(child)
        if os.path.lexists(child + _SUFFIX):
            name = os.path.basename(child)
            self.found.skipped.append(
                Skipped(child + _SUFFIX, "ignored-folder", f"folders named {name} are not searched")
            )

    def listing(self, path: str, is_candidate: bool) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """The names of the folders and links in a folder, sorted; from the cache if its times are the same."""
        try:
            status = os.stat(path)
            key = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
            row = self.old.folders.get(path)
            if row is None or row[:3] != key or not settled(key[0], key[1], self.old.read_ns):
                row = (*key, *self.read_folder(path))
                self.found.changed = True
        except (OSError, ValueError) as error:
            self.say(
                "unreadable", "error", f"the folder cannot be read: {_reason(error)}", path, "check its permissions"
            )
            return None
        self.new.folders[path] = row
        self.found.visited.append(path)
        if row[5] and is_candidate:
            self.say("wrong-case", "warning", f"{row[5]} is not SKILL.md", f"{path}/{row[5]}", "rename it to SKILL.md")
        return cast("tuple[tuple[str, ...], tuple[str, ...]]", row[3:5])

    def read_folder(self, path: str) -> FolderRow:
        folders: list[str] = []
        links: list[str] = []
        odd = ""
        has_skill = False
        hidden = self.rules.hidden
        with os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith(".") and not hidden:
                    continue
                if entry.is_symlink():
                    links.append(name)
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif len(name) == 8 and name.lower() == "skill.md":
                    has_skill = has_skill or name == SKILL_FILE
                    odd = max(odd, name) if name != SKILL_FILE else odd
        folders.sort()
        links.sort()
        return tuple(folders), tuple(links), "" if has_skill else odd

    # --- one SKILL.md ---

    def candidate(self, root: Root, path: str, real: str) -> bool:
        """Take the SKILL.md in a folder, if there is one; whether the folder is a skill's."""
        file = path + _SUFFIX
        # A policy beside the file changes without it, so a host that has one looks at both each time.
        row = None if self.profile.catalog.policy_file else self.old.files.get(file)
        real_file = real + _SUFFIX if path is not real else file
        if row is not None:
            try:
                status = os.lstat(file)
                known = status.st_mtime_ns == row[0] and status.st_ino == row[3] and status.st_size == row[2]
            except (OSError, ValueError):
                known = False
            else:
                known = known and status.st_ctime_ns == row[1]
            if known:
                self.new.files[file] = row
                self.account(root, file, real_file, row)
                return True
        row = self.read_file(root, file, real, path)
        if row is None:
            return False
        if row[3] and row[5] is None:  # a row without an inode or behind a link is looked at anew each time
            self.found.changed = True
            self.new.files[file] = row
        self.account(root, file, row[5] or real_file, row)
        return True

    def account(self, root: Root, file: str, real_file: str, row: FileRow) -> None:
        """Put a file where it belongs: it was met before, it is a skill, it was left out, or it failed."""
        found = self.found
        if real_file in self.seen_files:
            found.skipped.append(Skipped(file, "same-file", f"it is {real_file}, which was met before"))
            return
        self.seen_files.add(real_file)
        mtime_ns, _, size, _, status, _, name, description, fields, flags, notes = row
        if notes:
            found.diagnostics += (
                Diagnostic(code, severity, text, file, *more) for code, severity, text, *more in notes
            )
        if status == "skill":
            found.skills.append(
                Skill(
                    name, description, file, real_file, root, mtime_ns, size, fields,
                    not flags & 1, not flags & 2, "off" if flags & 4 else "auto",
                )
            )  # fmt: skip
        elif status == "failed":
            found.failed.append(file)
        else:
            found.skipped.append(Skipped(file, status, description, name))

    def read_file(self, root: Root, file: str, real_folder: str, folder: str) -> FileRow | None:
        """Open, judge and summarise a SKILL.md; `None` when there is none."""
        linked: str | None = None
        try:
            descriptor = os.open(file, _OPEN)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno != _ELOOP:
                return self.unreadable(file, error)
            linked, refused = self.resolve_link(file, real_folder)
            if refused:
                return refused
            try:
                descriptor = os.open(linked, _OPEN)
            except OSError as inner:
                return self.unreadable(file, inner)
        except ValueError as error:
            return self.unreadable(file, error)
        if _FOLDS_CASE and SKILL_FILE not in os.listdir(folder):
            os.close(descriptor)
            return None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return self.failure(file, "not-a-file", "SKILL.md is not a regular file")
            parsed = validate.tolerate(self.read_head(descriptor, file, status.st_size), self.profile.validation)
        except OSError as error:
            return self.unreadable(file, error)
        finally:
            os.close(descriptor)
        self.found.parsed += 1
        name = os.path.basename(folder)
        verdict = validate.check(
            parsed, name, self.profile.validation, file, require_description=root.require_description
        )
        notes = tuple(_pack(d) for d in verdict.diagnostics)
        fields: Mapping[str, Any] = verdict.fields if verdict.fields is not NO_FIELDS else dict[str, Any]()
        return (
            status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino,
            "skill" if verdict.valid else "failed", linked,
            verdict.name, verdict.description, fields, self.flags(fields) | self.kept_back(folder), notes,
        )  # fmt: skip

    def read_head(self, descriptor: int, file: str, size: int) -> frontmatter.Parsed:
        data = os.read(descriptor, limits.HEAD_BYTES)
        complete = len(data) >= size
        rules = self.profile.validation
        while True:
            parsed = frontmatter.parse(
                data, file, complete=complete, repair=rules.repair, required=rules.frontmatter_required
            )
            if parsed is not None:
                return parsed
            more = os.read(descriptor, limits.HEAD_BYTES * 4)
            complete = not more
            data += more

    def flags(self, fields: Any) -> int:
        """1: hidden from the model, 2: hidden from the user, 4: off; by the keys that the profile honours."""
        honoured = self.profile.catalog.honours
        if not honoured or not fields.keys() & _FLAG_KEYS:
            return 0
        words = _FLAG_WORDS if self.profile.catalog.flag_words else {}
        says = {key: words.get(str(fields.get(key)).lower(), fields.get(key)) for key in honoured}
        hidden = says.get("disable-model-invocation") is True or says.get("hide") is True
        return (1 if hidden else 0) | (says.get("user-invocable") is False) << 1 | (says.get("enabled") is False) << 2

    def kept_back(self, folder: str) -> int:
        """1 where a policy file in the skill's folder says that only a user calls it. A broken one says nothing."""
        name = self.profile.catalog.policy_file
        if not name:
            return 0
        try:
            data = read_regular(os.path.join(folder, name), limits.FRONTMATTER_BYTES)
        except (OSError, ValueError):
            return 0
        parsed = frontmatter.parse(b"---\n" + data + b"\n---\n")
        policy: Any = (parsed.fields or {}).get("policy") if parsed is not None else None
        if not isinstance(policy, dict):
            return 0
        return int(cast("dict[str, Any]", policy).get("allow_implicit_invocation") is False)

    def resolve_link(self, file: str, real_folder: str) -> tuple[str, FileRow | None]:
        """Where a linked SKILL.md leads, and the refusal if the profile does not go there.

        It must lead to another SKILL.md in any case: a skill cannot turn a file of the user's into its description.
        """
        rule = self.rules.file_links
        try:
            target = os.path.realpath(file, strict=True)
        except (OSError, ValueError) as error:
            return "", self.unreadable(file, error)
        inside = target.startswith(real_folder + "/") or self.leads_inside(target)
        if rule == "never" or (rule == "inside" and not inside):
            detail = "SKILL.md is a symbolic link" if rule == "never" else "SKILL.md is a link that leads outside"
            return target, self.skip_row(file, "link", detail)
        if os.path.basename(target) != SKILL_FILE:
            return target, self.skip_row(file, "link", "SKILL.md is a link to a file of another name")
        return target, None

    def leads_inside(self, target: str) -> bool:
        folders = (*self.inside, os.path.realpath(self.place.project))
        return target.startswith(tuple(f"{folder}/" for folder in folders))

    def skip_row(self, file: str, reason: str, detail: str) -> FileRow:
        name = os.path.basename(os.path.dirname(file))
        return (0, 0, 0, 0, reason, None, name, detail, {}, 0, ())

    def unreadable(self, file: str, error: OSError | ValueError) -> FileRow:
        return self.failure(file, "unreadable", f"the file cannot be read: {_reason(error)}")

    def failure(self, file: str, code: str, message: str) -> FileRow:
        name = os.path.basename(os.path.dirname(file))
        return (0, 0, 0, 0, "failed", None, name, "", {}, 0, ((code, "error", message, 0, 0, ""),))


_FLAG_KEYS: Final = frozenset(("disable-model-invocation", "hide", "user-invocable", "enabled"))
_FLAG_WORDS: Final = {"yes": True, "on": True, "1": True, "no": False, "off": False, "0": False}


def _pack(d: Diagnostic) -> tuple[Any, ...]:
    return (d.code, d.severity, d.message, d.line, d.column, d.hint)


def _reason(error: OSError | ValueError) -> str:
    return cast("str", getattr(error, "strerror", None) or str(error))
