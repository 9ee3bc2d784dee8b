"""Keeps catalogs up to date while files change on disk, and tells listeners. Every surface uses this one watcher.

Notices of the file system only say when to rescan. A change is the difference between the catalog that listeners know
and a fresh scan, so a lost or doubled notice cannot make the live catalog wrong. Each folder that a scan looked into is
watched for itself, because a watch on a whole tree follows every link in it, also one to `/`.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping
from pathlib import PurePath
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from metier.catalog import modes, snapshot
from metier.catalog.build import Catalog
from metier.catalog.garbage import no_collection
from metier.errors import MetierError
from metier.files.beneath import SKIPPED_FOLDERS
from metier.hosts import roots
from metier.values.skill import SKILL_FILE, Changes
from metier.values.value import Value

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

    from metier.app import App
    from metier.skills import Skills

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


class Watcher:
    """Keeps an `App` or a `Skills` up to date in a thread, and calls listeners from that thread.

        with Watcher(app, lambda news: print(news.changes)):
            ...

    `files` also reports changes to the other files of skills.
    """

    def __init__(self, target: "App | Skills", on_change: Listener | None = None, *, files: bool = False) -> None:
        self.target = target
        self.how = "starting"
        """How changes are noticed, in words."""
        self._refusal = "requested" if os.environ.get("WATCHFILES_FORCE_POLLING") else ""
        self._listeners: list[Listener] = [on_change] if on_change is not None else []
        self._with_files = files
        self._files: dict[str, tuple[list[str], int]] = {}
        """Of each skill's folder, the folders below it, and a fingerprint of the files in all of them."""
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
        """Wait for the first scan. From then on, `how` says how changes are noticed."""
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
                complete, problem = True, ""
                try:
                    with no_collection():  # so that listeners do not wait for it
                        complete = self._rescan(touched)
                except MetierError as error:  # such as a folder named by the user that was deleted
                    problem = str(error)
                    if problem != self._problem:
                        _LOG.warning("changes of skills are not noticed: %s", problem)
                except Exception:  # noqa: BLE001 - a watcher that stops silently would be worse
                    _LOG.exception("the scan for changed skills failed; it will be tried again")
                self._problem = problem
                self._ready.set()
                touched = self._wait() if complete else None
        finally:
            self._close()

    def _rescan(self, touched: set[str] | None) -> bool:
        """Scan until nothing disappears any more, then refresh the target and tell the listeners.

        `touched` are the paths with notices; `None` means that anything may have changed. A change is seen by a scan or
        noticed after it, because the last scan begins after its folders are watched. Returns whether there was time.
        """
        until = time.monotonic() + LONGEST
        missing: set[str] = set()
        altered: set[str] = set()
        while True:
            catalogs = self.target.catalogs
            self._known = {skills: skills.catalog for skills in catalogs} | self._known
            self._fingerprints = _fingerprints(catalogs)
            found = {skills: skills.look() for skills in catalogs}
            if self._with_files:
                altered |= self._read_files((skill.dir for new in found.values() for skill in new.skills), touched)
            is_new = self._follow(found, touched or ())
            late = time.monotonic() > until or self._stopped.is_set()
            if is_new and not late:
                touched = None
                continue
            known, missing = missing, {path for skills, new in found.items() for path in _lost(skills.catalog, new)}
            if late or not missing - known:
                break
            touched = None
            self._stopped.wait(SETTLE)
        self.target.adopt(found)
        self._tell(catalogs, altered)
        return not is_new

    def _read_files(self, folders: Iterable[str], touched: Iterable[str] | None) -> set[str]:
        """The folders of the skills with changed files. Those without notices are not read again."""
        dirty = {str(above) for path in touched or () for above in (path, *PurePath(path).parents)}
        old, self._files = self._files, {}
        for folder in folders:
            is_same = folder in old and touched is not None and folder not in dirty
            self._files[folder] = old[folder] if is_same else _files_in(folder)
        return {folder for folder, now in self._files.items() if folder in old and old[folder][1] != now[1]}

    def _follow(self, found: "Mapping[Skills, Catalog]", touched: Collection[str]) -> bool:
        """Watch every folder in which a skill is or may appear. Returns whether some were not watched before."""
        starting = [new.profile for new in found.values() if new.profile.catalog.refresh == "start"]
        if found and len(starting) == len(found):
            self._set_how(f"not watching: {starting[0].name} looks for skills only when it starts")
            return False
        if not self._refusal:
            below = (folder for folders, _ in self._files.values() for folder in folders)
            places = {path: sign for path in (*_places(found), *below) if (sign := _identity(path))}
            if places == self._watched and self._watched.keys().isdisjoint(touched):  # none was made anew
                return False
            made = _watch(list(places))
            if not isinstance(made, str):
                self._close()
                self._notify, self._watched = made, places
                self._set_how("watching")
                return True
            self._refusal = made
        self._close()
        self._set_how(f"polling every {POLL:.3g} s: {self._refusal}", logging.WARNING)
        return False

    def _close(self) -> None:
        if self._notify is not None:
            self._notify.close()
        self._notify, self._watched = None, {}

    def _set_how(self, how: str, level: int = logging.INFO) -> None:
        if how != self.how:
            _LOG.log(level, "changes of skills: %s", how)
        self.how = how

    def _wait(self) -> set[str] | None:
        """Wait until something changed and is quiet again. Returns where; `None` if it could be anywhere."""
        if self._notify is None:
            self._stopped.wait(POLL)
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
        return _fingerprints(catalogs) != self._fingerprints

    def _tell(self, catalogs: "tuple[Skills, ...]", altered: set[str]) -> None:
        known = self._known
        self._known = {skills: skills.catalog for skills in catalogs}
        pairs = [(known.get(skills, new), new) for skills, new in self._known.items()]
        files = {skill.name for _, new in pairs for skill in new.skills if skill.dir in altered} if altered else altered
        different = [(old, new) for old, new in pairs if old is not new]
        changes = Changes.together([snapshot.compare(old, new) for old, new in different])
        rest = any(not snapshot.same(old, new) for old, new in different)
        news = News(changes, tuple(sorted(files)), rest)
        for listener in tuple(self._listeners) if news else ():
            try:
                listener(news)
            except Exception:  # noqa: BLE001 - a listener that fails must not affect the others
                _LOG.exception("a listener for changed skills failed")


def _files_in(skill_folder: str) -> tuple[list[str], int]:
    """The folders in a skill's folder, and a fingerprint of the files in all of them."""
    folders: list[str] = []
    files: list[tuple[str, int, int, int]] = []
    for folder, inner, names in os.walk(skill_folder):
        inner[:] = (name for name in inner if name not in SKIPPED_FOLDERS)
        folders.append(folder)
        for name in names if folder != skill_folder else (name for name in names if name != SKILL_FILE):
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(folder, name))
                files.append((os.path.join(folder, name), status.st_mtime_ns, status.st_size, status.st_ino))
        if len(files) + len(folders) > _FILES:
            break
    return folders, hash(tuple(sorted(files)))


def _watch(paths: list[str]) -> "RustNotify | str":
    """Watch folders, without those below them. Returns why that does not work on this machine, if it does not."""
    try:
        from watchfiles._rust_notify import RustNotify
    except ImportError:
        return "watchfiles is not installed (pip install 'metier[watch]')"
    for _ in range(5):  # folders may disappear in the meantime
        paths = [path for path in paths if _identity(path)]
        try:
            return RustNotify(paths, False, False, 300, False, False)
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            continue
        except (OSError, RuntimeError) as error:
            reason = str(error)  # the library raises these with a text and no error number
            if "limit" in reason:
                return "the limit of watched folders is reached (sysctl fs.inotify.max_user_watches)"
            if "Too many open files" in reason:
                return "the limit of watchers is reached (sysctl fs.inotify.max_user_instances)"
            return reason
    return "the folders change faster than they can be watched"


def _identity(path: str) -> tuple[int, int] | None:
    status = _status(path)
    return (status.st_dev, status.st_ino) if status is not None and os.access(path, os.R_OK | os.X_OK) else None


def _places(found: "Mapping[Skills, Catalog]") -> Iterator[str]:
    """The folders whose entries decide what a scan finds."""
    for skills, new in found.items():
        yield from skills.visited
        for path in (
            *(skill.path for skill in (*new.skills, *(entry.skill for entry in new.shadowed))),
            *new.failed,
            *(entry.path for entry in new.skipped if os.path.isabs(entry.path)),
        ):
            yield os.path.dirname(path)
            if os.path.islink(path):
                yield os.path.dirname(os.path.realpath(path))


def _fingerprints(catalogs: "Iterable[Skills]") -> dict[str, object]:
    """What watches on folders cannot show: roots that appear, disappear or are replaced, and files of settings."""
    signs: dict[str, object] = {}
    for skills in catalogs:
        catalog, place = skills.catalog, skills.catalog.place
        for root in catalog.roots:
            status = _status(root.path)
            signs[root.path] = status and (status.st_dev, status.st_ino, status.st_mode)
        for file in (
            *modes.files(skills.settings.config_folder, place.project),
            *roots.registries(catalog.profile, place),
        ):
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
