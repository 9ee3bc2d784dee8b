"""One watcher for every surface: when skills change on disk, the catalog follows, and whoever listens hears of it.

The file system only says when to look. What changed is the difference between the catalog that was told last and the
one of today, so no notice, lost or doubled, can make the live catalog differ from a fresh scan. A change is told once
it is quiet, and what takes a skill away is looked at twice: a file that is being written never shows as an error.
"""

import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

from metier.catalog import modes, snapshot
from metier.catalog.build import Catalog
from metier.catalog.watched_folders import WHOLE_TREES, CannotWatch, Folders, network_mount
from metier.errors import MetierError
from metier.files.beneath import SKIPPED_FOLDERS
from metier.hosts import roots
from metier.hosts.settings import Settings
from metier.model import SKILL_FILE, Changes

_LOG: Final = logging.getLogger("metier")

STEP: Final = 0.05
"""Seconds between two looks at what the system has noticed."""
QUIET: Final = 0.1
"""Nothing may happen for this long before a change is looked at, so that a thousand come as one."""
SETTLE: Final = 0.4
"""A skill that is gone or broken is looked at again after this."""
LONGEST: Final = 2.0
"""A folder that is never quiet is looked at in the middle."""
PULSE: Final = 0.5
"""How often roots are looked for that were not there, were replaced, or that a registry lists."""
POLL: Final = 1.0
"""How often everything is looked at where nothing can be watched."""
ANYWAY: Final = 30.0
"""The same where it can: for links to what was not there, and notices that the system dropped."""

_FILES: Final = 10_000
"""Files of one skill that are looked at for changes."""


@dataclass(frozen=True, slots=True)
class News:
    """What is different from what was told before."""

    changes: Changes
    files: tuple[str, ...] = ()
    """The names of the skills whose files beside SKILL.md changed; only for those who ask for files."""
    rest: bool = False
    """Whether what is shadowed, left out, broken or remarked is different."""

    def __bool__(self) -> bool:
        return bool(self.changes or self.files or self.rest)


Listener = Callable[[News], object]


class LiveCatalog(Protocol):
    """What is watched: a catalog that can look at the disk again, such as a `Skills`."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def visited(self) -> tuple[str, ...]: ...

    def look(self) -> Catalog: ...


class Watched(Protocol):
    """Whoever has catalogs to watch, such as an `App` or a `Skills`. `refresh` brings them up to date."""

    @property
    def catalogs(self) -> tuple[LiveCatalog, ...]: ...

    def refresh(self) -> object: ...


class Watcher:
    """Keeps an `App` or a `Skills` up to date in a thread of its own, and calls listeners from that thread.

        with Watcher(app, lambda news: print(news.changes)):
            ...

    `files` asks for changes to the other files of skills, too; `poll` looks at everything in an interval instead of
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
        self.how = "starting"
        self._refusal = "asked for" if poll or os.environ.get("WATCHFILES_FORCE_POLLING") else ""
        self._listeners: list[Listener] = [on_change] if on_change is not None else []
        self._beneath = _Beneath() if files else None
        self._folders = Folders()
        self._told = {skills: skills.catalog for skills in self.target.catalogs}
        self._signs: dict[str, object] = {}
        self._cost = 0.0
        self._complaint = ""
        self._stopped = threading.Event()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None

    # --- for whoever has one ---

    def start(self) -> Self:
        """Begin. What changed since the `Watcher` was made is told, however long the beginning takes."""
        self._thread = threading.Thread(target=self._run, name="metier-watch", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End, and wait for the thread, unless it is the one that asks."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait for the first look; from then on, `how` says how changes are noticed."""
        return self._ready.wait(timeout)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call it with every piece of news, in the watcher's thread; the answer ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def news(self) -> AsyncGenerator[News, None]:
        """The news as they come, in an event loop; close it or cancel its task to end."""
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
                try:
                    self._look(touched)
                    self._complaint = ""
                except MetierError as error:  # such as a folder named by the user that is gone
                    self._complain(str(error))
                except Exception:  # noqa: BLE001 - a watcher that ends unseen would be worse
                    _LOG.exception("looking for changed skills failed; trying again")
                self._ready.set()
                touched = self._wait()
        finally:
            self._folders.close()

    def _look(self, touched: AbstractSet[str] | None) -> None:
        """Look until nothing is missing, or stays missing; then publish it and tell."""
        until = time.monotonic() + LONGEST
        missing: frozenset[str] = frozenset()
        altered: set[str] = set()
        while True:
            began = time.monotonic()
            catalogs = self.target.catalogs
            self._told = {skills: skills.catalog for skills in catalogs} | self._told
            found = [(skills, skills.look()) for skills in catalogs]
            if self._beneath is not None:
                altered |= self._beneath.look((skill.dir for _, new in found for skill in new.skills), touched)
            followed = self._follow(found, touched)
            self._cost = time.monotonic() - began
            touched = set()
            late = time.monotonic() > until or self._stopped.is_set()
            if followed and not late:
                continue  # what happened in these folders before they were watched
            before, missing = missing, frozenset(path for skills, new in found for path in _lost(skills.catalog, new))
            if not missing - before or late:
                break
            touched = self._gather(SETTLE)
        if any(_differ(skills.catalog, new) for skills, new in found):
            self.target.refresh()
        self._tell(catalogs, altered)

    def _follow(self, found: list[tuple[LiveCatalog, Catalog]], touched: AbstractSet[str] | None) -> bool:
        """Watch every folder where a skill is or may appear; whether some were not watched until now."""
        signs = _signs(found)
        moved = {path for path, sign in signs.items() if self._signs.get(path, sign) != sign}
        self._signs = signs
        if found and all(new.profile.catalog.refresh == "start" for _, new in found):
            self._say(f"not watching: {found[0][1].profile.name} looks for skills at its start only")
            return False
        why = self._refusal or network_mount(root.path for _, new in found for root in new.roots)
        if not why:
            try:
                self._folders.forget({*(touched or ()), *moved})
                below = self._beneath.folders if self._beneath is not None else ()
                followed = self._folders.follow((*_places(found), *below))
                self._say("watching")
                return followed
            except CannotWatch as error:
                why = self._refusal = str(error)
        self._folders.close()
        self._say(f"polling every {max(self.interval, 20 * self._cost):.3g} s: {why}")
        return False

    def _say(self, how: str) -> None:
        if how.split(" ")[0] != self.how.split(" ")[0]:
            (_LOG.warning if how.startswith("polling") else _LOG.info)("changes of skills: %s", how)
        self.how = how

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            _LOG.warning("changes of skills are not seen: %s", text)
        self._complaint = text

    def _wait(self) -> set[str] | None:
        """Wait until something happened and is over; where, or `None` where it could be anywhere."""
        if self.how != "watching":
            self._stopped.wait(max(self.interval, 20 * self._cost))
            return None
        began = pulse = time.monotonic()
        while not self._stopped.wait(STEP):
            now = time.monotonic()
            touched = self._folders.drain()
            if touched:
                return touched | self._gather(QUIET)
            if now - pulse >= PULSE:
                pulse = now
                if self._pulse():
                    return self._gather(QUIET)
            if now - began >= max(ANYWAY, 100 * self._cost):
                break
        return None

    def _pulse(self) -> bool:
        catalogs = self.target.catalogs
        if self._complaint:
            return True
        if any(skills not in self._told or self._told[skills] is not skills.catalog for skills in catalogs):
            return True
        return _signs([(skills, skills.catalog) for skills in catalogs]) != self._signs

    def _gather(self, quiet: float) -> set[str]:
        """What happens until nothing did for a while."""
        touched: set[str] = set()
        began = last = time.monotonic()
        while not self._stopped.wait(STEP):
            more = self._folders.drain()
            touched |= more
            now = time.monotonic()
            last = now if more else last
            if now - last >= quiet or now - began >= LONGEST:
                break
        return touched

    def _tell(self, catalogs: tuple[LiveCatalog, ...], altered: AbstractSet[str]) -> None:
        added: set[str] = set()
        removed: set[str] = set()
        changed: set[str] = set()
        rest = False
        told = self._told
        self._told = {skills: skills.catalog for skills in catalogs}
        for skills, new in self._told.items():
            old = told.get(skills, new)
            if old is not new:
                changes = snapshot.compare(old, new)
                added.update(changes.added)
                removed.update(changes.removed)
                changed.update(changes.changed)
                rest = rest or not snapshot.same(old, new)
        files = {skill.name for new in self._told.values() for skill in new.skills if skill.dir in altered}
        together = Changes(tuple(sorted(added)), tuple(sorted(removed)), tuple(sorted(changed)))
        news = News(together, tuple(sorted(files)), rest)
        if news:
            for listener in tuple(self._listeners):
                try:
                    listener(news)
                except Exception:  # noqa: BLE001 - one listener's trouble is not another's
                    _LOG.exception("a listener for changed skills failed")


class _Beneath:
    """The other files of skills: the folders they lie in, and a mark a skill that differs when one of them does."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[str, ...], int]] = {}

    @property
    def folders(self) -> Iterator[str]:
        return (folder for folders, _ in self._known.values() for folder in folders)

    def look(self, skill_folders: Iterable[str], touched: AbstractSet[str] | None) -> set[str]:
        """The skills of which files changed; those not touched are taken to be as they were."""
        old, self._known = self._known, {}
        dirty = None if touched is None else _ancestors(touched)
        changed: set[str] = set()
        for folder in skill_folders:
            known = old.get(folder)
            if known is None or dirty is None or folder in dirty:
                self._known[folder] = _mark(folder)
                if known is not None and known[1] != self._known[folder][1]:
                    changed.add(folder)
            else:
                self._known[folder] = known
        return changed


def _mark(skill_folder: str) -> tuple[tuple[str, ...], int]:
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
    found: set[str] = set()
    for path in paths:
        while path not in found:
            found.add(path)
            path = os.path.dirname(path)
    return found


def _places(found: list[tuple[LiveCatalog, Catalog]]) -> Iterator[str]:
    """The folders whose entries decide what a scan finds, those of skills first."""
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


def _signs(found: list[tuple[LiveCatalog, Catalog]]) -> dict[str, object]:
    """What watches on folders cannot show: roots that come, go or are replaced, and files that decide about skills."""
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


def _differ(old: Catalog, new: Catalog) -> bool:
    return bool(snapshot.compare(old, new)) or not snapshot.same(old, new)


def _lost(old: Catalog, new: Catalog) -> set[str]:
    """Skills that are no more, and files that were not broken before: what a writer in the middle of its work shows."""
    before, after = ({*(s.path for s in c.skills), *(e.skill.path for e in c.shadowed)} for c in (old, new))
    return (before - after) | (set(new.failed) - set(old.failed))
