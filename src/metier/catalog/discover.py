"""Finds the skills in the roots.

A scan reads the start of a SKILL.md up to the closing fence and nothing else. It executes nothing, opens only regular
files, and never raises for a bad file: each SKILL.md that it finds is in exactly one of `skills`, `skipped` or
`failed`. The result does not depend on the order in which the file system lists entries.

A scan first tries to open the SKILL.md in a folder and lists the folder only if there is none, or if skills may nest.
That saves one listing per skill. The cache also saves the reading of files whose times show that nothing changed.

Links are followed as `link_rules` says. Nothing behind a link that is not followed is searched, so the diagnostic that
names the link stands for all skills there.
"""

import os
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterable
from typing import Final, cast

from msgspec import Struct

from metier.catalog.link_rules import TRUST_OR_COPY, LinkRules
from metier.catalog.scan_cache import FileRow, FileRows, Memory, is_settled, settled, stamp, unsettled
from metier.catalog.skill_file import (
    IS_LINK,
    Heads,
    HostRows,
    failed_row,
    read_head,
    reason_of,
    row_of,
    skipped_row,
    unpack,
    unreadable_row,
    with_flags,
)
from metier.files.beneath import OPEN, SKIPPED_FOLDERS
from metier.hosts.profiles import Profile
from metier.hosts.roots import Place, other_project
from metier.values.skill import SKILL_FILE, STAMP, Diagnostic, Root, Severity, Skill, Skipped
from metier.values.value import field, replace

_SUFFIX: Final = "/" + SKILL_FILE
_OTHER_NAME: Final = skipped_row("", "other-name", "")
"""The row of a file that was read just now and has none of the names in question."""
_FOLDS_CASE: Final = sys.platform == "darwin"


class Found(Struct):
    """Everything that a scan found. `failed` has the files with an error, `diagnostics` the reports on all files."""

    skills: list[Skill] = field(default_factory=list[Skill])
    skipped: list[Skipped] = field(default_factory=list[Skipped])
    failed: list[str] = field(default_factory=list[str])
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])
    per_root: dict[str, int] = field(default_factory=dict[str, int])
    visited: list[str] = field(default_factory=list[str])
    """The folders that were listed or ignored. A new skill can appear in them."""
    parsed: int = 0
    """The number of files that were read, not taken from the cache."""
    changed: bool = False
    """Whether the cache must be written again."""


def scan(
    profile: Profile,
    place: Place,
    roots: tuple[Root, ...],
    memory: Memory | None = None,
    progress: Callable[[int], None] | None = None,
    trusted: bool = False,
    heads: Heads | None = None,
    names: Collection[str] | None = None,
) -> tuple[Found, Memory]:
    """Search the roots. Returns what was found, and the rows to cache for the next scan.

    `trusted`: links may lead out of the project. `heads` has what other scans read just now, and gets what this one
    reads. With `names`, files that `heads` knows to have other names are left out, and nothing is said of them.
    """
    if memory is not None:
        same = {root: root for root in memory.roots}  # so that skills can be compared by the identity of their root
        roots = tuple(same.get(root, root) for root in roots)
    walker = _Walker(
        profile, place, roots, memory or Memory(), progress=progress, trusted=trusted, heads=heads, names=names
    )
    for root in roots:
        walker.search(root)
    return walker.finish()


def reread(
    profile: Profile, place: Place, root: Root, folders: Iterable[tuple[str, str]], memory: Memory, heads: Heads
) -> Found:
    """Read the SKILL.md in folders that another scan of this root found, without a search for them.

    Each folder is its path and its real path: one object if they are equal.
    """
    walker = _Walker(profile, place, (root,), memory, progress=None, trusted=False, heads=heads, names=None)
    walker.links.enter(root, os.path.realpath(root.path))
    for path, real in folders:
        walker.candidate(root, path, real)
    return walker.finish()[0]


class _Budget(Struct):
    """How many more folders may be visited, in total or behind one link."""

    left: int
    what: str
    reported: bool = False


_Folder = tuple[str, str, int, _Budget]
"""A folder to visit: its path, its real path, its level, and the bound that it counts for."""


class _Walker:
    def __init__(
        self,
        profile: Profile,
        place: Place,
        roots: tuple[Root, ...],
        memory: Memory,
        *,
        progress: Callable[[int], None] | None,
        trusted: bool,
        heads: Heads | None,
        names: Collection[str] | None,
    ) -> None:
        self.heads, self.names = heads, names
        self.host_rows = HostRows(heads, profile) if heads is not None else None
        self.profile, self.roots = profile, roots
        self.links = LinkRules(profile, place, roots, trusted=trusted)
        self.left = 0
        """How many more files of the root are taken."""
        self.rules = profile.discovery
        # A policy file can change without its SKILL.md, so a host that has one reads both every time.
        self.old = replace(memory, files={}, others={}) if profile.catalog.policy_file else memory
        self.new = Memory(read_ns=time.time_ns())
        self.old_skills = {skill.path: skill for skill in memory.skills}
        self.progress = progress
        self.found = Found()
        self.elsewhere: set[str] = set()
        """The real paths of the files whose rows are not in `new.files` under that path."""
        self.seen_folders: set[str] = set()
        self.budget = _Budget(self.rules.max_directories, f"{self.rules.max_directories:,} folders")
        self.ignored = frozenset(self.rules.ignore)

    def finish(self) -> tuple[Found, Memory]:
        found, new, old = self.found, self.new, self.old
        new.roots, new.skills = self.roots, tuple(found.skills)
        new.files = {folder: rows for folder, rows in new.files.items() if any(rows)}
        found.changed = found.changed or new.count != old.count or len(new.folders) != len(old.folders)
        return found, new

    def report(self, code: str, severity: Severity, message: str, path: str, hint: str = "") -> None:
        self.found.diagnostics.append(Diagnostic(code, severity, message, path=path, hint=hint))

    def search(self, root: Root) -> None:
        before = len(self.found.skills)
        self.left = self.rules.max_skills
        real = os.path.realpath(root.path)
        real = root.path if real == root.path else real  # one object if they are equal: `visit` compares by identity
        try:
            is_folder = stat.S_ISDIR(os.stat(real).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            if root.explicit or root.source == "custom" or self.rules.missing_root == "warn":
                message = "the folder does not exist and was skipped"
                self.report("root-missing", "warning", message, root.path, "create it, or remove it from the settings")
            return
        except (OSError, ValueError) as error:
            self.unreadable_folder(root.path, error)
            return
        if not is_folder:
            message = "the path to search for skills is not a folder"
            self.report("root-not-folder", "error", message, root.path, "use the path of a folder")
            return
        self.links.enter(root, real)
        if not root.explicit and self.links.leaves_project(real):
            message = f"the folder to search is a link that leaves the project, to {real}, and was not followed"
            self.report("link-not-followed", "warning", message, root.path, TRUST_OR_COPY)
            return
        if self.rules.root_is_skill:
            self.candidate(root, root.path, real)
        self.visit(root, root.path, real, 1, self.budget)
        self.found.per_root[root.path] = len(self.found.skills) - before

    def visit(self, root: Root, path: str, real: str, level: int, budget: _Budget) -> None:
        """Visit the folders below `path`, without recursion, because a hostile tree can have any depth."""
        progress, ignored, nested = self.progress, self.ignored, self.rules.nested
        pending, later = [(path, real, level, budget)], list[_Folder]()
        while pending or later:
            if not pending:
                pending, later = later[::-1], []
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
            if progress is not None:
                progress(len(self.found.skills))
            if self.left <= 0:
                self.too_many(root)
                return
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
            old_rows = self.old.rows(path, folders)
            new_rows = self.new.files[path] = cast("FileRows", [None] * len(folders))
            below: list[_Folder] = []
            for number, name in enumerate(folders):
                if progress is not None and number % 256 == 255:
                    progress(len(self.found.skills))
                child = prefix + name
                real_child = real_prefix + name if path is not real else child
                if self.left <= 0:
                    self.too_many(root)
                    return
                if name in ignored:  # `build` is a good name for a skill, directly in a root
                    may_be_skill = level == 1 and name not in SKIPPED_FOLDERS
                    if not (
                        may_be_skill and self.look(root, child, real_child, name, old_rows[number], new_rows, number)
                    ):
                        self.skip_ignored(child)
                elif budget is not self.budget and other_project(real_child):
                    message = "a project behind a link is not searched"
                    self.report("link-not-followed", "info", message, child)
                    self.skip(child, "outside", message)
                elif not self.look(root, child, real_child, name, old_rows[number], new_rows, number) or nested:
                    below.append((child, real_child, level + 1, budget))
            for name in links:
                self.follow(root, prefix + name, level, below, later)
            below.reverse()
            pending += below

    def follow(self, root: Root, child: str, level: int, below: list[_Folder], later: list[_Folder]) -> None:
        """Follow a symbolic link in a folder if it leads to a folder and the profile allows it.

        A link into the root itself comes `later`: only what the root does not reach without it is behind a link.
        """
        try:
            real = os.path.realpath(child, strict=True)
            if not stat.S_ISDIR(os.stat(real).st_mode):
                return
        except PermissionError as error:
            message = f"the link was not followed: {reason_of(error)}"
            self.report("link-not-followed", "warning", message, child, "check the permissions of where it leads")
            return
        except (OSError, ValueError):
            return  # it leads nowhere
        refused = self.links.refuse_folder(child, real)
        if refused is not None:
            severity: Severity = "warning" if refused.hint else "info"
            message = f"the link to {real} was not followed: {refused.detail}"
            self.report("link-not-followed", severity, message, child, refused.hint)
            self.skip(child, refused.reason, refused.detail)
            return
        if os.path.basename(child) in self.ignored:
            self.skip_ignored(child)
        elif not self.candidate(root, child, real) or self.rules.nested:
            bound = self.rules.max_linked_directories
            queue = later if self.links.in_root(real) else below
            queue.append((child, real, level + 1, _Budget(bound, f"{bound:,} folders behind a link")))

    def too_many(self, root: Root) -> None:
        message = f"the search of {root.path} stopped at {self.rules.max_skills:,} skills, the most for one root"
        hint = "remove what does not belong there, or raise `discovery.max_skills` in your own settings"
        self.report("bound-reached", "warning", message, root.path, hint)

    def bound(self, what: str, path: str) -> None:
        message = f"the search stopped here, at its limit of {what}"
        self.report("bound-reached", "warning", message, path, "to search this folder, add it as a root")

    def skip_ignored(self, child: str) -> None:
        self.found.visited.append(child)
        self.skip(child, "ignored-folder", f"folders named {os.path.basename(child)} are not searched")

    def skip(self, folder: str, reason: str, detail: str) -> None:
        """Account for the SKILL.md in a folder that is not searched, if there is one."""
        if os.path.lexists(folder + _SUFFIX):
            self.found.skipped.append(Skipped(folder + _SUFFIX, reason, detail, os.path.basename(folder)))

    def listing(self, path: str, is_candidate: bool) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Return the sorted names of the folders and links in a folder, from the cache if its times are the same."""
        row = self.old.folders.get(path)
        if row is None or not self.old.current:
            try:
                status = os.stat(path)
                key = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
                if row is None or row[:3] != key or not settled(key[0], key[1], self.old.read_ns):
                    row = (*key, *_read_folder(path, hidden=self.rules.hidden))
                    self.found.changed = True
            except (OSError, ValueError) as error:
                self.unreadable_folder(path, error)
                return None
        self.new.folders[path] = row
        self.found.visited.append(path)
        _, _, _, folders, links, odd = row
        if odd and is_candidate:
            message = f"{odd} is not found by hosts: they look for {SKILL_FILE}"
            self.report("wrong-case", "warning", message, f"{path}/{odd}", f"rename it to {SKILL_FILE}")
        return folders, links

    def unreadable_folder(self, path: str, error: OSError | ValueError) -> None:
        message = f"the folder cannot be read: {reason_of(error)}"
        self.report("unreadable", "error", message, path, "check its permissions")

    # --- one SKILL.md ---

    def candidate(self, root: Root, path: str, real: str) -> bool:
        """Look at the SKILL.md in a folder that no listing led to. Returns whether there is one."""
        rows: FileRows = [None]
        is_there = self.look(root, path, real, os.path.basename(path), self.old.row(path), rows)
        if rows[0] is not None:
            self.new.others[path] = rows[0]
        return is_there

    def look(
        self,
        root: Root,
        path: str,
        real: str,
        name: str,
        row: FileRow | None,
        rows: FileRows,
        number: int | None = None,
    ) -> bool:
        """Take the SKILL.md in a folder from its row if nothing changed, and read it if something did.

        Returns whether there is one. Its row for the next scan is then in `rows`. `number` is its place in a listing.
        """
        file = path + _SUFFIX
        if self.names is not None and self.heads is not None and self.heads.rules_out(file, self.names):
            self.left -= 1
            return True
        real_file = real + _SUFFIX if path is not real else file
        if row is not None:
            try:
                unchanged = stamp(os.lstat(file)) == row[0]
            except (OSError, ValueError):
                unchanged = False
            if unchanged:
                if not self.is_again(file, real_file, is_listed=number is not None):
                    known = self.old_skills.get(file) if self.old_skills else None
                    self.account(root, name, file, real_file, row, known)
                rows[number or 0] = row
                return True
        row = self.read_file(root, file, real, path)
        if row is None:
            return False
        if row is _OTHER_NAME:
            self.left -= 1
            return True
        target = row[5] if len(row) != 3 else None
        real_file = target or real_file
        is_cached = bool(row[0]) and target is None  # and not one that cannot be read or is behind a link
        if not self.is_again(file, real_file, is_listed=is_cached and number is not None):
            self.account(root, name, file, real_file, row)
        if is_cached:
            self.found.changed = True
            # A change to a file that was written just now may not show in its times: the next scan reads it again.
            rows[number or 0] = row if is_settled(row[0], self.new.read_ns) else unsettled(row)
        return True

    def is_again(self, file: str, real_file: str, *, is_listed: bool) -> bool:
        """Count a file. Returns whether it was found before under another path, and is skipped.

        No folder is listed twice, so a file that a listing led to was not found by another one.
        """
        self.left -= 1
        again = bool(self.elsewhere) and real_file in self.elsewhere
        if not is_listed or file is not real_file:
            again = again or self.new.row(real_file[: -len(_SUFFIX)]) is not None
            self.elsewhere.add(real_file)
        if again:
            self.found.skipped.append(Skipped(file, "same-file", f"it is {real_file}, which was already found"))
        return again

    def account(
        self, root: Root, folder: str, file: str, real_file: str, row: FileRow, known: Skill | None = None
    ) -> None:
        """Add a file to the skills, the skipped or the failed ones. `known` is what an earlier scan made of its row."""
        found = self.found
        if len(row) != 3:
            found.diagnostics += (unpack(note, file) for note in row[7])
        if known is not None and known.root is root and known.real_path == real_file:
            found.skills.append(known)
            return
        if len(row) == 3:
            stamped, description, fields = row
            mtime_ns, _, size, _ = STAMP.unpack(stamped)
            found.skills.append(Skill(folder, description, file, real_file, root, mtime_ns, size, frontmatter=fields))
            return
        stamped, name, description, fields, kind, _, flags, _ = row
        if kind == "skill":
            mtime_ns, _, size, _ = STAMP.unpack(stamped)
            skill = Skill(name, description, file, real_file, root, mtime_ns, size, frontmatter=fields)
            found.skills.append(with_flags(skill, flags) if flags else skill)
        elif kind == "failed":
            found.failed.append(file)
        else:
            found.skipped.append(Skipped(file, kind, description, name))

    def read_file(self, root: Root, file: str, real_folder: str, folder: str) -> FileRow | None:
        """Read and check a SKILL.md. Returns `None` if there is none."""
        if self.host_rows is not None:
            row = self.host_rows.row(file, require_description=root.require_description)
            if row is not None:
                return row
        linked: str | None = None
        try:
            descriptor = os.open(file, OPEN)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno != IS_LINK:
                return unreadable_row(file, error)
            try:
                linked = os.path.realpath(file, strict=True)
                refused = self.links.refuse_file(linked, real_folder)
                if refused is not None:
                    return skipped_row(file, refused.reason, refused.detail)
                descriptor = os.open(linked, OPEN)
            except (OSError, ValueError) as inner:
                return unreadable_row(file, inner)
        except ValueError as error:
            return unreadable_row(file, error)
        if _FOLDS_CASE and SKILL_FILE not in os.listdir(folder):
            os.close(descriptor)
            return None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return failed_row(file, "not-a-file", f"{SKILL_FILE} is not a regular file")
            parsed = read_head(descriptor, file, status.st_size, self.profile.validation)
        except OSError as error:
            return unreadable_row(file, error)
        finally:
            os.close(descriptor)
        self.found.parsed += 1
        stamped = stamp(status)
        if self.heads is not None and linked is None:
            self.heads.keep(file, stamped, parsed)
            if self.names is not None and self.heads.rules_out(file, self.names):
                return _OTHER_NAME
        return row_of(stamped, parsed, self.profile, file, linked=linked, require_description=root.require_description)


def _read_folder(path: str, *, hidden: bool) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Return the sorted names of folders and links, and a file named like SKILL.md in another case, if any."""
    folders: list[str] = []
    links: list[str] = []
    odd = ""
    has_skill = False
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
