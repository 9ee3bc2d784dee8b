"""Keeps catalogs up to date while files change on disk, and tells listeners. Every surface uses this one watcher.

Notices of the file system only say when to rescan. A change is the difference between the catalog that listeners know
and a fresh scan, so a lost or doubled notice cannot make the live catalog wrong. A change is reported once writing has
stopped, and a SKILL.md that disappears from its folder or breaks is scanned twice, so a file that is being written
never shows up as an error.
"""

import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from types import TracebackType
from typing import Final, Literal, Protocol, Self

from metier.catalog import modes, snapshot
from metier.catalog.build import Catalog
from metier.catalog.garbage import no_collection
from metier.catalog.watched_folders import WHOLE_TREES, CannotWatch, WatchedFolders, network_mount
from metier.errors import MetierError
from metier.files.beneath import SKIPPED_FOLDERS
from metier.hosts import roots
from metier.hosts.settings import Settings
from metier.values.skill import SKILL_FILE, Changes
from metier.values.value import Value

_LOG: Final = logging.getLogger("metier")

STEP: Final = 0.02
"""Seconds between two checks for notices."""
QUIET: Final = 0.1
"""Seconds without a notice before a rescan, so that a thousand changes are one."""
BRIEF: Final = 0.02
"""The same if things were only removed: there is nothing whose writing could go on."""
SETTLE: Final = 0.4
"""Seconds before a skill that disappeared or broke is scanned again."""
LONGEST: Final = 2.0
"""Seconds after which a folder that keeps changing is scanned anyway."""
PULSE: Final = 0.5
"""Seconds between two checks for what notices cannot show: roots that appear or are replaced, and registries."""
POLL: Final = 1.0
"""Seconds between two rescans if nothing can be watched."""
ANYWAY: Final = 30.0
"""Seconds after which everything is rescanned even without a notice, because the system may drop some."""

_FILES: Final = 10_000
"""The number of files of one skill that are checked for changes."""

WatchState = Literal["starting", "watching", "polling", "off"]


class News(Value):
    """What changed since the last news."""

    changes: Changes
    files: tuple[str, ...] = ()
    """The names of the skills with changed files other than SKILL.md; only if the watcher was asked for files."""
    rest: bool = False
    """Whether shadowed, skipped or broken skills, diagnostics or roots changed."""

    def __bool__(self) -> bool:
        return bool(self.changes or self.files or self.rest)


Listener = Callable[[News], object]


class LiveCatalog(Protocol):
    """A catalog that can scan the disk again, such as a `Skills`."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def visited(self) -> tuple[str, ...]:
        """The folders that the last scan listed or ignored."""
        ...

    def look(self) -> Catalog:
        """Scan the disk and return the new catalog, without using it."""
        ...


class Watched(Protocol):
    """Something with catalogs to watch, such as an `App` or a `Skills`."""

    @property
    def catalogs(self) -> tuple[LiveCatalog, ...]: ...

    def adopt(self, found: Mapping[LiveCatalog, Catalog]) -> object:
        """Bring the catalogs up to date. `found` are those of the last scans."""
        ...


class Watcher:
    """Keeps an `App` or a `Skills` up to date in a thread, and calls listeners from that thread.

        with Watcher(app, lambda news: print(news.changes)):
            ...

    `files` also reports changes to the other files of skills. `poll` rescans every `interval` seconds instead of
    waiting for notices.
    """

    def __init__(
        self,
        target: Watched,
        on_change: Listener | None = None,
        *,
        files: bool = False,
        poll: bool = False,
        interval: float = POLL,
    ) -> None:
        self.target = target
        self.interval = interval
        self.state: WatchState = "starting"
        self.how = "starting"
        """How changes are noticed, in words."""
        self._refusal = "requested" if poll or os.environ.get("WATCHFILES_FORCE_POLLING") else ""
        self._listeners: list[Listener] = [on_change] if on_change is not None else []
        self._skill_files = _SkillFiles() if files else None
        self._folders = WatchedFolders()
        self._known = {skills: skills.catalog for skills in self.target.catalogs}
        self._fingerprints: dict[str, object] = {}
        self._scan_seconds = 0.0
        self._problem = ""
        self._stopped = threading.Event()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None

    # --- the interface ---

    def start(self) -> Self:
        """Start the thread. Changes since the `Watcher` was created are reported, too."""
        self._thread = threading.Thread(target=self._run, name="metier-watch", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop, and wait for the thread unless this is called from it."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait for the first scan. From then on, `state` and `how` say how changes are noticed."""
        return self._ready.wait(timeout)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with all news, in the watcher's thread. Returns a function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def news(self) -> AsyncGenerator[News, None]:
        """Yield the news in an event loop. To end it, close the generator or cancel its task."""
        import asyncio

        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[News] = asyncio.Queue()
        end = self.listen(lambda news: loop.call_soon_threadsafe(queue.put_nowait, news))
        try:
            while True:
                yield await queue.get()
        finally:
            end()

    # --- the thread ---

    def _run(self) -> None:
        touched: set[str] | None = None
        try:
            while not self._stopped.is_set():
                complete = True
                try:
                    with no_collection():  # so that listeners do not wait for it
                        complete = self._rescan(touched)
                    self._problem = ""
                except MetierError as error:  # such as a folder named by the user that was deleted
                    self._warn_once(str(error))
                except Exception:  # noqa: BLE001 - a watcher that stops silently would be worse
                    _LOG.exception("the scan for changed skills failed; it will be tried again")
                self._ready.set()
                touched = self._wait() if complete else None
        finally:
            self._folders.close()

    def _rescan(self, touched: AbstractSet[str] | None) -> bool:
        """Scan until nothing disappears any more, then refresh the target and tell the listeners.

        `touched` are the paths with notices; `None` means that anything may have changed.

        A change must be seen by a scan or noticed after it. So the last scan begins after all folders are watched and
        after the fingerprints were taken. Returns whether there was time for that.
        """
        until = time.monotonic() + LONGEST
        missing: frozenset[str] = frozenset()
        altered: set[str] = set()
        fresh: frozenset[str] = frozenset()
        fingerprints = _fingerprints([(skills, skills.catalog) for skills in self.target.catalogs])
        while True:
            began = time.monotonic()
            catalogs = self.target.catalogs
            self._known = {skills: skills.catalog for skills in catalogs} | self._known
            found = [(skills, skills.look()) for skills in catalogs]
            if self._skill_files is not None:
                dirty = None if touched is None else touched | fresh
                altered |= self._skill_files.changed((skill.dir for _, new in found for skill in new.skills), dirty)
            before, fingerprints = fingerprints, _fingerprints(found)
            fresh = self._follow(found, fingerprints, touched)
            complete = not fresh and fingerprints == before
            self._scan_seconds = time.monotonic() - began
            touched = set()
            late = time.monotonic() > until or self._stopped.is_set()
            if not complete and not late:
                continue
            known, missing = missing, frozenset(path for skills, new in found for path in _lost(skills.catalog, new))
            if not missing - known or late:
                break
            touched = self._collect(SETTLE, missing)
        self.target.adopt(dict(found))
        self._tell(catalogs, altered)
        return complete

    def _follow(
        self,
        found: list[tuple[LiveCatalog, Catalog]],
        fingerprints: dict[str, object],
        touched: AbstractSet[str] | None,
    ) -> frozenset[str]:
        """Watch every folder in which a skill is or may appear. Returns those that were not watched before."""
        moved = {path for path, sign in fingerprints.items() if self._fingerprints.get(path, sign) != sign}
        self._fingerprints = fingerprints
        if found and all(new.profile.catalog.refresh == "start" for _, new in found):
            self._set_state("off", f"not watching: {found[0][1].profile.name} looks for skills only when it starts")
            return frozenset()
        why = self._refusal or network_mount(root.path for _, new in found for root in new.roots)
        if not why:
            try:
                self._folders.forget({*(touched or ()), *moved})
                below = self._skill_files.folders if self._skill_files is not None else ()
                fresh = self._folders.follow((*_places(found), *below))
                self._set_state("watching", "watching")
                return fresh
            except CannotWatch as error:
                why = self._refusal = str(error)
        self._folders.close()
        self._set_state("polling", f"polling every {self._poll_seconds:.3g} s: {why}")
        return frozenset()

    @property
    def _poll_seconds(self) -> float:
        return max(self.interval, 20 * self._scan_seconds)

    def _set_state(self, state: WatchState, how: str) -> None:
        if state != self.state:
            _LOG.log(logging.WARNING if state == "polling" else logging.INFO, "changes of skills: %s", how)
        self.state, self.how = state, how

    def _warn_once(self, problem: str) -> None:
        if problem != self._problem:
            _LOG.warning("changes of skills are not noticed: %s", problem)
        self._problem = problem

    def _wait(self) -> set[str] | None:
        """Wait until something changed and is quiet again. Returns where; `None` if it could be anywhere."""
        if self.state != "watching":
            self._stopped.wait(self._poll_seconds)
            return None
        began = pulse = time.monotonic()
        while not self._stopped.wait(STEP):
            now = time.monotonic()
            touched = self._folders.drain()
            if touched:
                removed = not any(os.path.lexists(path) for path in touched)
                return touched | self._collect(BRIEF if removed else QUIET)
            if now - pulse >= PULSE:
                pulse = now
                if self._changed_unnoticed():
                    return self._collect(QUIET)
            if now - began >= max(ANYWAY, 100 * self._scan_seconds):
                break
        return None

    def _changed_unnoticed(self) -> bool:
        """Whether something changed that notices do not show, or the last scan failed."""
        catalogs = self.target.catalogs
        if self._problem:
            return True
        if any(skills not in self._known or self._known[skills] is not skills.catalog for skills in catalogs):
            return True
        return _fingerprints([(skills, skills.catalog) for skills in catalogs]) != self._fingerprints

    def _collect(self, quiet: float, lost: AbstractSet[str] = frozenset()) -> set[str]:
        """Collect notices until there was none for `quiet` seconds, or `lost` files are gone with their folders."""
        touched: set[str] = set()
        began = last = time.monotonic()
        while not self._stopped.wait(STEP):
            more = self._folders.drain()
            touched |= more
            now = time.monotonic()
            last = now if more else last
            if now - last >= quiet or now - began >= LONGEST:
                break
            if lost and not any(os.path.lexists(os.path.dirname(path)) for path in lost):
                break  # nobody is writing them
        return touched

    def _tell(self, catalogs: tuple[LiveCatalog, ...], altered: AbstractSet[str]) -> None:
        known = self._known
        self._known = {skills: skills.catalog for skills in catalogs}
        pairs = [(known.get(skills, new), new) for skills, new in self._known.items()]
        files = {skill.name for _, new in pairs for skill in new.skills if skill.dir in altered} if altered else altered
        news = _news([(old, new) for old, new in pairs if old is not new], files)
        if not news:
            return
        for listener in tuple(self._listeners):
            try:
                listener(news)
            except Exception:  # noqa: BLE001 - a listener that fails must not affect the others
                _LOG.exception("a listener for changed skills failed")


def _news(pairs: list[tuple[Catalog, Catalog]], files: AbstractSet[str]) -> News:
    """The differences of all catalogs together."""
    each = [snapshot.compare(old, new) for old, new in pairs]
    changes = Changes(
        added=tuple(sorted({name for one in each for name in one.added})),
        removed=tuple(sorted({name for one in each for name in one.removed})),
        changed=tuple(sorted({name for one in each for name in one.changed})),
    )
    rest = any(not snapshot.same(old, new) for old, new in pairs)
    return News(changes, tuple(sorted(files)), rest)


class _SkillFiles:
    """The folders of skills' other files, and a fingerprint per skill that changes with them."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[str, ...], int]] = {}

    @property
    def folders(self) -> Iterator[str]:
        return (folder for folders, _ in self._known.values() for folder in folders)

    def changed(self, skill_folders: Iterable[str], touched: AbstractSet[str] | None) -> set[str]:
        """Return the folders of the skills with changed files. Those without notices are not read again."""
        old, self._known = self._known, {}
        dirty = None if touched is None else _ancestors(touched)
        changed: set[str] = set()
        for folder in skill_folders:
            known = old.get(folder)
            if known is None or dirty is None or folder in dirty:
                self._known[folder] = _read_skill_files(folder)
                if known is not None and known[1] != self._known[folder][1]:
                    changed.add(folder)
            else:
                self._known[folder] = known
        return changed


def _read_skill_files(skill_folder: str) -> tuple[tuple[str, ...], int]:
    """The folders in a skill's folder, and a fingerprint of the files in all of them."""
    folders: list[str] = []
    files: list[tuple[str, int, int, int]] = []
    pending = [skill_folder]
    while pending and len(files) + len(folders) < _FILES:
        folder = pending.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in SKIPPED_FOLDERS:
                            pending.append(entry.path)
                            folders.append(entry.path)
                    elif folder is not skill_folder or entry.name != SKILL_FILE:
                        status = entry.stat(follow_symlinks=False)
                        files.append((entry.path, status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            continue
    return tuple(folders), hash(tuple(sorted(files)))


def _ancestors(paths: Iterable[str]) -> set[str]:
    """The paths and all folders above them."""
    found: set[str] = set()
    for path in paths:
        while path not in found:
            found.add(path)
            path = os.path.dirname(path)
    return found


def _places(found: list[tuple[LiveCatalog, Catalog]]) -> Iterator[str]:
    """The folders whose entries decide what a scan finds. Folders of skills come first."""
    for skills, new in found:
        if WHOLE_TREES:
            yield from (root.path for root in new.roots)
            continue
        for skill in (*new.skills, *(entry.skill for entry in new.shadowed)):
            yield skill.dir
            if skill.real_path != skill.path and os.path.islink(skill.path):
                yield os.path.dirname(skill.real_path)
        yield from skills.visited
        for file in (*new.failed, *(entry.path for entry in new.skipped if os.path.isabs(entry.path))):
            yield os.path.dirname(file)
            if os.path.islink(file):
                yield os.path.dirname(os.path.realpath(file))


def _fingerprints(found: list[tuple[LiveCatalog, Catalog]]) -> dict[str, object]:
    """What watches on folders cannot show: roots that appear, disappear or are replaced, and files of settings."""
    signs: dict[str, object] = {}
    for skills, new in found:
        place, folder = new.place, skills.settings.config_folder
        for root in new.roots:
            status = _status(root.path)
            signs[root.path] = status and (status.st_dev, status.st_ino, status.st_mode)
        for file in (*modes.files(folder, place.project), *roots.registries(new.profile, place)):
            status = _status(file)
            signs[file] = status and (status.st_ino, status.st_mtime_ns, status.st_size)
    return signs


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


def _lost(old: Catalog, new: Catalog) -> set[str]:
    """Skills that disappeared from a folder, and files that were not broken before. One that is being written looks so.

    A skill that is gone with its folder is not being written.
    """
    before, after = ({*(s.path for s in c.skills), *(e.skill.path for e in c.shadowed)} for c in (old, new))
    gone = {path for path in before - after if os.path.lexists(os.path.dirname(path))}
    return gone | (set(new.failed) - set(old.failed))
