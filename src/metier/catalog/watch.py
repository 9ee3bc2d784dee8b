"""Keeps catalogs up to date while files change on disk, and tells listeners. Every surface uses this one watcher.

Notices of the file system only say when to rescan. A change is the difference between the catalog that listeners know
and a fresh scan, so a lost or doubled notice cannot make the live catalog wrong. Each folder that a scan looked into is
watched for itself, because a watch on a whole tree follows every link in it, also one to `/`.
"""

import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self

from metier.catalog import modes, snapshot
from metier.catalog.build import Catalog
from metier.catalog.garbage import no_collection
from metier.errors import MetierError
from metier.files.beneath import SKIPPED_FOLDERS
from metier.hosts import roots
from metier.hosts.settings import Settings
from metier.values.skill import SKILL_FILE, Changes
from metier.values.value import Value

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

_LOG: Final = logging.getLogger("metier")

QUIET: Final = 0.1
"""Seconds without a notice before a rescan, so that a thousand changes are one."""
SETTLE: Final = 0.4
"""Seconds before a skill that disappeared or broke is scanned again: it may be being written."""
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
        self._notify: RustNotify | None = None
        self._watched: dict[str, tuple[int, int]] = {}
        self._known = {skills: skills.catalog for skills in self.target.catalogs}
        self._fingerprints: dict[str, object] = {}
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
            self._close()

    def _rescan(self, touched: AbstractSet[str] | None) -> bool:
        """Scan until nothing disappears any more, then refresh the target and tell the listeners.

        `touched` are the paths with notices; `None` means that anything may have changed. A change is seen by a scan or
        noticed after it, because the last scan begins after its folders are watched. Returns whether there was time.
        """
        until = time.monotonic() + LONGEST
        missing: frozenset[str] = frozenset()
        altered: set[str] = set()
        while True:
            catalogs = self.target.catalogs
            self._known = {skills: skills.catalog for skills in catalogs} | self._known
            self._fingerprints = _fingerprints([(skills, skills.catalog) for skills in catalogs])
            found = [(skills, skills.look()) for skills in catalogs]
            if self._skill_files is not None:
                altered |= self._skill_files.changed((skill.dir for _, new in found for skill in new.skills), touched)
            is_new = self._follow(found, touched or ())
            late = time.monotonic() > until or self._stopped.is_set()
            if is_new and not late:
                touched = None
                continue
            known, missing = missing, frozenset(path for skills, new in found for path in _lost(skills.catalog, new))
            if not missing - known or late:
                break
            touched = None
            self._stopped.wait(SETTLE)
        self.target.adopt(dict(found))
        self._tell(catalogs, altered)
        return not is_new

    def _follow(self, found: list[tuple[LiveCatalog, Catalog]], touched: Iterable[str]) -> bool:
        """Watch every folder in which a skill is or may appear. Returns whether some were not watched before."""
        if found and all(new.profile.catalog.refresh == "start" for _, new in found):
            self._set_state("off", f"not watching: {found[0][1].profile.name} looks for skills only when it starts")
            return False
        if not self._refusal:
            below = self._skill_files.folders if self._skill_files is not None else ()
            places = {path: sign for path in (*_places(found), *below) if (sign := _identity(path))}
            if places == self._watched and not self._watched.keys() & set(touched):  # none was made anew
                return False
            try:
                notify = _watch(list(places))
                self._close()
                self._notify, self._watched = notify, places
                self._set_state("watching", "watching")
                return True
            except _CannotWatch as error:
                self._refusal = str(error)
        self._close()
        self._set_state("polling", f"polling every {self.interval:.3g} s: {self._refusal}")
        return False

    def _close(self) -> None:
        if self._notify is not None:
            self._notify.close()
        self._notify, self._watched = None, {}

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
        if self._notify is None:
            self._stopped.wait(self.interval)
            return None
        until = time.monotonic() + ANYWAY
        quiet, longest, pulse = (int(seconds * 1000) for seconds in (QUIET, LONGEST, PULSE))
        while not self._stopped.is_set():
            happened = self._notify.watch(longest, quiet, pulse, self._stopped)
            if isinstance(happened, set):
                return {path for _, path in happened}
            if time.monotonic() > until or self._changed_unnoticed():
                break
        return None

    def _changed_unnoticed(self) -> bool:
        """Whether something changed that notices do not show, or the last scan failed."""
        catalogs = self.target.catalogs
        if self._problem or any(self._known.get(skills) is not skills.catalog for skills in catalogs):
            return True
        return _fingerprints([(skills, skills.catalog) for skills in catalogs]) != self._fingerprints

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


class _CannotWatch(Exception):
    """Folders cannot be watched on this machine. The message says why."""


def _watch(paths: list[str]) -> "RustNotify":
    try:
        from watchfiles._rust_notify import RustNotify
    except ImportError:
        raise _CannotWatch("watchfiles is not installed (pip install 'metier[watch]')") from None
    for _ in range(5):  # folders may disappear in the meantime
        paths = [path for path in paths if _identity(path)]
        try:
            return RustNotify(paths, False, False, 300, False, False)
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            continue
        except (OSError, RuntimeError) as error:
            reason = str(error)  # the library raises these with a text and no error number
            if "limit" in reason:
                reason = "the limit of watched folders is reached (sysctl fs.inotify.max_user_watches)"
            elif "Too many open files" in reason:
                reason = "the limit of watchers is reached (sysctl fs.inotify.max_user_instances)"
            raise _CannotWatch(reason) from error
    raise _CannotWatch("the folders change faster than they can be watched")


def _identity(path: str) -> tuple[int, int] | None:
    status = _status(path)
    return (status.st_dev, status.st_ino) if status is not None and os.access(path, os.R_OK | os.X_OK) else None


def _places(found: list[tuple[LiveCatalog, Catalog]]) -> Iterator[str]:
    """The folders whose entries decide what a scan finds."""
    for skills, new in found:
        yield from skills.visited
        for path in (
            *(skill.path for skill in (*new.skills, *(entry.skill for entry in new.shadowed))),
            *new.failed,
            *(entry.path for entry in new.skipped if os.path.isabs(entry.path)),
        ):
            yield os.path.dirname(path)
            if os.path.islink(path):
                yield os.path.dirname(os.path.realpath(path))


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
