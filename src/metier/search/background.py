"""Builds the index of a large catalog in processes of its own, one for each core, while searches already answer.

A build is a file with the skills to look at and a lock that its processes hold: so there is one build of an index at a
time, whoever started it, and it is finished if the process that started it ends before. Each process publishes what it
has read in parts, and one that is killed leaves those.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

from metier.search.index import TextIndex
from metier.search.parts import IndexUnavailable, load, store
from metier.search.reading import TextSource, changed_sources, indexed_skills, with_references

PORTION: Final = 5_000
"""The most skills that a process reads before it publishes them. Each part costs every search a little."""
FEWEST_EACH: Final = 250
PROCESSES: Final = 8
"""The most processes of a build, and the number of skills for which another one is worth its start."""
CHECK_SECONDS: Final = 60.0
"""How often the reference files of a large catalog are looked at for changes."""

_LOCK: Final = "build.lock"
_CHECKED: Final = "checked"
_CODE: Final = "import sys; sys.path[:] = {path!r}; from metier.search.background import main; main(sys.argv[1:])"


class IndexJob(NamedTuple):
    """The skills to look at, the keys to remove, and the parts that one part with these skills replaces."""

    sources: Sequence[TextSource]
    removed: Sequence[str] = ()
    replacing: Sequence[str] = ()


class Build:
    """A build that this process started, and a thread for each of its jobs."""

    def __init__(
        self, folder: str, jobs: Sequence[IndexJob], lock: int, told: Callable[[int], None] | None, here: bool
    ) -> None:
        self._counts = [0] * len(jobs)
        self._told = told
        self._threads: list[threading.Thread] = []
        for at, job in enumerate(jobs):
            work = self._started(folder, job, lock, at, here)
            self._threads.append(threading.Thread(target=work, name="metier-index", daemon=True))
        for thread in self._threads:
            thread.start()

    def _started(self, folder: str, job: IndexJob, lock: int, at: int, here: bool) -> Callable[[], None]:
        """Start the process of a job. Where that does not work, the thread itself does the job."""
        with contextlib.suppress(OSError):
            if here or getattr(sys, "frozen", False) or not sys.executable:
                raise FileNotFoundError("there is no interpreter to start")
            process = _process(folder, _written(folder, job), lock)
            return lambda: self._follow(process, at)
        kept = os.dup(lock)

        def work() -> None:
            try:
                do(folder, job, lambda done: self._tell(at, done))
            finally:
                os.close(kept)

        return work

    @property
    def done(self) -> int:
        """The number of skills that were read so far."""
        return sum(self._counts)

    @property
    def running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it ends. Returns whether it did."""
        give_up = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            thread.join(None if give_up is None else max(0.0, give_up - time.monotonic()))
        return not self.running

    def _follow(self, process: "subprocess.Popen[bytes]", at: int) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._tell(at, int(line))
        process.wait()

    def _tell(self, at: int, done: int) -> None:
        self._counts[at] = done
        if self._told is not None:
            self._told(self.done)


def start(
    folder: str,
    sources: Iterable[TextSource],
    removed: Collection[str] = (),
    *,
    told: Callable[[int], None] | None = None,
    replacing: Collection[str] = (),
    here: bool = False,
) -> Build | None:
    """Bring the index in a folder up to date with these skills. `None` if a build is running already.

    `replacing` names parts that one part with these skills replaces. `here` starts no process.
    """
    lock = _locked(folder)
    if lock is None:
        return None
    try:
        listed = list(sources)
        wanted = 1 if replacing else min(PROCESSES, _cores(), 1 + len(listed) // FEWEST_EACH)
        jobs = [IndexJob(listed[at::wanted], () if at else tuple(removed), tuple(replacing)) for at in range(wanted)]
        return Build(folder, jobs, lock, told, here)
    finally:
        os.close(lock)  # the processes have it, too


def check_is_due(folder: str) -> bool:
    """Whether the reference files were not looked at for a while. Only the first who asks is told so."""
    place = os.path.join(folder, _CHECKED)
    try:
        if time.time() - os.stat(place).st_mtime < CHECK_SECONDS:
            return False
    except OSError:
        pass
    with contextlib.suppress(OSError):
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        os.utime(place)
    return True


def is_running(folder: str) -> bool:
    """Whether any process builds the index in this folder."""
    lock = _locked(folder)
    if lock is None:
        return True
    os.close(lock)
    return False


def _locked(folder: str) -> int | None:
    import fcntl

    os.makedirs(folder, exist_ok=True)
    lock = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _written(folder: str, job: IndexJob) -> str:
    place = os.path.join(folder, f"job-{uuid.uuid4().hex}")
    store(place, ([tuple(source) for source in job.sources], tuple(job.removed), tuple(job.replacing)))
    return place


def _process(folder: str, job: str, lock: int) -> "subprocess.Popen[bytes]":
    code = _CODE.format(path=[os.path.abspath(path) for path in sys.path])
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-I", "-c", code, folder, job],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=[lock],
        cwd="/",
        start_new_session=True,
    )


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


# --- in the process of a build ---


def main(arguments: Sequence[str]) -> None:
    """Do the job in a file."""
    folder, place = arguments
    with contextlib.suppress(OSError):
        os.nice(5)
    rows, removed, replacing = load(place)
    os.unlink(place)
    do(folder, IndexJob([TextSource(*row) for row in rows], removed, replacing), _told)


def do(folder: str, job: IndexJob, told: Callable[[int], None]) -> None:
    """Do a job. If the folder cannot be written, what was published before stays."""
    with contextlib.suppress(IndexUnavailable):
        index = TextIndex.open(folder)
        if job.replacing:
            index.rewrite(indexed_skills(list(with_references(job.sources))), job.replacing)
            return
        changed = list(changed_sources(job.sources, index.stamps()))
        done = len(job.sources) - len(changed)
        index.update([], job.removed)
        portions = -(-len(changed) // PORTION)
        for at in range(portions):
            portion = changed[at::portions]
            index.update(indexed_skills(portion, lambda number, before=done: told(before + number)))
            done += len(portion)
            told(done)


def _told(done: int) -> None:
    with contextlib.suppress(OSError):
        os.write(1, b"%d\n" % done)
