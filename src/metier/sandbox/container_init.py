"""The first process of a container in which a script runs. It is a separate program, for the Python of the image.

The container runner passes this file as text and speaks with it in frames: one byte for the kind, four bytes for the
length, and the content. It first reports what the kernel says about itself and its container. If the host agrees, it
starts the script, passes its input and output on, and ends it at its limits or when the host is gone. Then it sends
the files that the script left. The kernel lets no process of the container end it or look into its memory. The
invariant: the script starts only after the host has sent `G`, and no process of the script is left when `X` is sent.

From the host: `J` the job as JSON, `G` start with this filter of system calls, `I` input, `Z` end of the input, `A` a
number of bytes that were read. To the host: `R` the report as JSON, `O` and `E` output, `C` a number of bytes of input
that were taken, `X` the end as JSON, `F` a path and then `D` its bytes, `L` a path that is left out and the reason, `.`
the end of the files.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import stat
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypedDict

    class Told(TypedDict):
        """The job, as the host tells it."""

        programs: list[str]
        argv: list[str]
        cwd: str
        env: dict[str, str]
        limits: dict[str, int]
        entries: int
        files: int
        file_bytes: int
        work_bytes: int
        depth: int


WINDOW = 1 << 18
"""How many bytes may be on their way in each direction, so that a slow reader slows the writer down."""
CHUNK = 1 << 15
TICK = 0.025
FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")
OOM_FILES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
MEMORY_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
PIDS_FILES = ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max")
WRITABLE = ("/work", "/tmp", "/var/tmp", "/run", "/dev/shm")  # noqa: S108
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2


class HostGone(Exception):
    """The host has ended or closed the connection."""


class Host:
    """The connection to the host, over standard input and output."""

    def __init__(self) -> None:
        self.unread = 0
        self._buffer = bytearray()

    def send(self, kind: bytes, content: bytes = b"") -> None:
        if kind in (b"O", b"E", b"D"):
            self.unread += len(content)
        data = memoryview(kind + struct.pack(">I", len(content)) + content)
        while data:
            data = data[os.write(1, data) :]

    def read(self) -> None:
        data = os.read(0, 1 << 16)
        if not data:
            raise HostGone
        self._buffer += data

    def frame(self) -> tuple[bytes, bytes] | None:
        """The next frame, if it is there as a whole."""
        if len(self._buffer) < 5:
            return None
        end = 5 + struct.unpack(">I", self._buffer[1:5])[0]
        if len(self._buffer) < end:
            return None
        kind, content = bytes(self._buffer[:1]), bytes(self._buffer[5:end])
        del self._buffer[:end]
        if kind == b"A":
            self.unread -= struct.unpack(">I", content)[0]
        return kind, content

    def expect(self, wanted: bytes) -> bytes:
        """Wait for a frame of a kind."""
        while True:
            found = self.frame()
            if found is None:
                self.read()
            elif found[0] == wanted:
                return found[1]

    def send_slowly(self, kind: bytes, content: bytes) -> None:
        """Send a piece when the host has read enough of the others."""
        while self.unread >= WINDOW:
            if self.frame() is None:
                self.read()
        self.send(kind, content)


def main() -> None:
    host = Host()
    try:
        job: Told = json.loads(host.expect(b"J"))
        set_dumpable(0)  # nobody with the same user id may look into this process or change it
        program = find_program(job["programs"])
        host.send(b"R", json.dumps(report(program)).encode())
        end = ScriptRun(host, job, program, host.expect(b"G")).run()
        host.send(b"X", json.dumps(end).encode())
        LeftFiles(host, job).send("/work")
        host.send(b".")
        host.expect(b"")  # until the host closes the connection, and with it the container
    except HostGone:
        return
    finally:
        end_all()


# --- what the host is told before the script starts ---


def set_dumpable(value: int) -> None:
    with contextlib.suppress(OSError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, value, 0, 0, 0)


class FilterProgram(ctypes.Structure):
    """A filter of system calls as the kernel takes it."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def filter_calls(code: bytes) -> None:
    """Let the kernel refuse system calls to this process and all that it starts."""
    program = FilterProgram(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    if not code or libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the system call filter cannot be installed")


def report(program: str) -> dict[str, object]:
    status = dict(line.split(":\t", 1) for line in read_text("/proc/self/status").splitlines() if ":\t" in line)
    lines = read_text("/proc/self/mountinfo").splitlines()
    mounts = {line.split()[4].encode().decode("unicode_escape") for line in lines}
    interfaces = [line.split(":")[0].strip() for line in read_text("/proc/net/dev").splitlines() if ":" in line]
    return {
        "program": program,
        "machine": os.uname().machine,
        "status": status,
        "pid": os.getpid(),
        "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
        "memory_protected": os.stat("/proc/self/mem").st_uid != os.getuid(),
        "root_read_only": bool(os.statvfs("/").f_flag & os.ST_RDONLY),
        "skill_read_only": bool(os.statvfs("/skill").f_flag & os.ST_RDONLY),
        "writable": sorted(mount for mount in mounts if os.access(mount, os.W_OK)),
        "sizes": {place: size_of(place) for place in WRITABLE},
        "memory_limit": number_in(MEMORY_FILES),
        "process_limit": number_in(PIDS_FILES),
        "kills_counted": kills() is not None,
        "interfaces": interfaces,
        "devices": sorted(os.listdir("/dev")),
    }


def find_program(names: list[str]) -> str:
    for name in names:
        for folder in FOLDERS:
            if os.access(f"{folder}/{name}", os.X_OK):
                return f"{folder}/{name}"
    return ""


def size_of(place: str) -> int:
    status = os.statvfs(place)
    return status.f_blocks * status.f_frsize


def number_in(paths: tuple[str, ...]) -> int:
    """The number in the first of the files that has one, or -1."""
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            return int(read_text(path))
    return -1


def kills() -> int | None:
    """How many processes of the container the kernel has ended because of the memory limit, if it says."""
    for path in OOM_FILES:
        with contextlib.suppress(OSError, ValueError):
            for line in read_text(path).splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    return int(value)
    return None


def read_text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(1 << 18)


# --- the script ---


class ScriptRun:
    """One run of the script, from its start until no process of it is left."""

    def __init__(self, host: Host, job: Told, program: str, calls: bytes) -> None:
        self.host, self.job, self.program, self.calls = host, job, program, calls
        self.status: int | None = None
        self.waiting = bytearray()
        self.no_more_input = False
        self.streams: dict[int, bytes] = {}
        self.child = 0

    def run(self) -> dict[str, object]:
        signal.signal(signal.SIGTERM, on_end)
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, on_child)
        before = kills() or 0
        self.start()
        why = ""
        while self.status is None and not why:
            self.turn(woken)
            self.reap()
            if (kills() or 0) > before:
                why = "memory-limit"
            elif entries() > self.job["entries"]:
                why = "files-limit"
        end_all(self.seen)
        if (kills() or 0) > before:
            why = "memory-limit"
        self.drain()
        return {"code": code_of(self.status), "ended": why}

    def start(self) -> None:
        (self.out, out), (self.err, err), (into, self.into) = os.pipe(), os.pipe(), os.pipe()
        self.child = os.fork()
        if self.child == 0:
            try:
                self.become((into, out, err))
            except BaseException as error:  # noqa: BLE001 - nothing else of this program may run in the copy
                os.write(err, f"the script could not be started: {error}\n".encode())
                os._exit(126)
        for descriptor in (into, out, err):
            os.close(descriptor)
        for descriptor in (self.out, self.err, self.into):
            os.set_blocking(descriptor, False)
        self.streams = {self.out: b"O", self.err: b"E"}

    def become(self, descriptors: tuple[int, int, int]) -> None:
        """Turn this process, a copy of the first one, into the script."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        for place, descriptor in enumerate(descriptors):
            os.dup2(descriptor, place)
        set_dumpable(1)  # as every program; before, this file belongs to root
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")  # the kernel ends the script and not the first process
        os.nice(5)
        os.closerange(3, 1 << 16)
        for name, value in self.job["limits"].items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
        os.chdir(self.job["cwd"])
        os.umask(0o022)
        filter_calls(self.calls)
        os.execve(self.program, [self.program, *self.job["argv"]], self.job["env"])  # noqa: S606

    def turn(self, woken: int) -> None:
        """Wait for something to do, and do it."""
        reading = [0, woken, *(self.streams if self.host.unread < WINDOW else ())]
        writing = [self.into] if self.into >= 0 and (self.waiting or self.no_more_input) else []
        ready, free, _ = select.select(reading, writing, (), TICK)
        if 0 in ready:
            self.host.read()
        while frame := self.host.frame():
            if frame[0] == b"I":
                self.waiting += frame[1]
            elif frame[0] == b"Z":
                self.no_more_input = True
        if woken in ready:
            os.read(woken, 4096)
        for descriptor in ready:
            if descriptor in self.streams and self.host.unread < WINDOW:
                self.pass_on(descriptor)
        if free:
            self.feed()

    def pass_on(self, descriptor: int) -> bool:
        """Pass a piece of output on. Returns whether there may be more."""
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return False
        if data:
            self.host.send(self.streams[descriptor], data)
        else:
            del self.streams[descriptor]
            os.close(descriptor)
        return bool(data)

    def feed(self) -> None:
        if self.waiting:
            try:
                written = os.write(self.into, self.waiting[:CHUNK])
            except BlockingIOError:
                return
            except OSError:
                written, self.no_more_input = len(self.waiting), True  # the script does not read its input
            del self.waiting[:written]
            self.host.send(b"C", struct.pack(">I", written))
        if self.no_more_input and not self.waiting:
            os.close(self.into)
            self.into = -1

    def reap(self) -> None:
        """Take note of the processes that have ended: the script, and what it left to the first process."""
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                self.seen(*found)

    def seen(self, pid: int, status: int) -> None:
        if pid == self.child:
            self.status = status

    def drain(self) -> None:
        """Pass on what is left in the pipes. Nobody can write to them any more."""
        for descriptor in tuple(self.streams):
            while self.pass_on(descriptor):
                pass


def on_end(number: int, frame: object) -> None:
    """The host wants the end. This also works while this process waits for the host to read."""
    kill_all()


def on_child(number: int, frame: object) -> None:
    """The end of a process only wakes the loop up."""


def kill_all() -> None:
    """End all processes but this one. The kernel does it in one step, so that no process escapes by forking."""
    if os.getpid() != 1:
        raise HostGone  # these would be processes of somebody else
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


def end_all(seen: Callable[[int, int], None] | None = None) -> None:
    """End all processes but this one, and wait until they have ended."""
    while os.getpid() == 1:
        kill_all()
        try:
            found = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        if seen is not None:
            seen(*found)


def entries() -> int:
    """How many files and folders are in the writable folders."""
    statuses = [os.statvfs(place) for place in WRITABLE]
    return sum(status.f_files - status.f_ffree for status in statuses)


def code_of(status: int | None) -> int:
    if status is None:
        return 128 + signal.SIGKILL
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


# --- the files that the script left ---


class LeftFiles:
    """Sends the regular files of a folder, sorted, within the limits of the job. The host checks all of it again."""

    def __init__(self, host: Host, job: Told) -> None:
        self.host = host
        self.room, self.files, self.largest, self.depth = (
            job["work_bytes"],
            job["files"],
            job["file_bytes"],
            job["depth"],
        )
        self.found = self.missing = 0

    def send(self, folder: str, below: str = "", depth: int = 0) -> None:
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)  # the script may have locked its own folder
        try:
            names = sorted(os.listdir(folder))
        except OSError as error:
            self.leave_out(below or ".", error.strerror or "cannot be listed")
            return
        for name in names:
            if self.missing > self.files:
                return  # the list of reasons is long enough
            path, relative = f"{folder}/{name}", f"{below}{name}"
            try:
                mode = os.lstat(path).st_mode
                if stat.S_ISREG(mode):
                    self.send_file(path, relative)
                elif not stat.S_ISDIR(mode):
                    self.leave_out(relative, "a symbolic link" if stat.S_ISLNK(mode) else "not a regular file")
                elif depth >= self.depth:
                    self.leave_out(f"{relative}/", f"more than {self.depth} folders deep")
                else:
                    self.send(path, f"{relative}/", depth + 1)
            except OSError as error:
                self.leave_out(relative, error.strerror or "cannot be read")

    def send_file(self, path: str, relative: str) -> None:
        if self.found >= self.files:
            self.leave_out(relative, f"more than {self.files} files")
            return
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except PermissionError:
            os.chmod(path, 0o600)
            descriptor = os.open(path, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            if size > min(self.room, self.largest):
                self.leave_out(relative, "too large for what was left of the limit")
                return
            self.found += 1
            self.room -= size
            self.host.send(b"F", os.fsencode(relative))
            while size > 0 and (data := os.read(descriptor, min(CHUNK, size))):
                size -= len(data)
                self.host.send_slowly(b"D", data)
        finally:
            os.close(descriptor)

    def leave_out(self, path: str, why: str) -> None:
        self.missing += 1
        self.host.send(b"L", os.fsencode(path) + b"\0" + why.encode())


if __name__ == "__main__":
    main()
    sys.exit(0)
