"""The first process of a container in which a script runs. It is a separate program, for the Python of the image.

The container runner passes this file as text and speaks with it in frames: one byte for the kind, four bytes for the
length, and the content. It first reports what the kernel says about itself and its container. If the host agrees, it
starts the script, passes its input and output on, and ends it at its limits or when the host is gone. Then it sends
the files that the script left. The kernel lets no process of the container end it or look into its memory. The
invariant: the script starts only after the host has sent `G`, and no process of the script is left when `X` is sent.

From the host: `J` the job as JSON, `G` start with this filter of system calls, `I` input, `Z` end of the input. To the
host: `R` the report as JSON, `O` and `E` output, `X` the end as JSON, `F` a path and then `D` its bytes, `L` a path
that is left out and the reason, `.` the end of the files. Both send `A`, a number of bytes that were handled.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypedDict

    Frame = tuple[bytes, bytes]

    class Told(TypedDict):
        """The job, as the host tells it."""

        programs: list[str]
        argv: list[str]
        cwd: str
        env: dict[str, str]
        limits: dict[str, int]
        hidden: list[str]
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
COUNTED = (b"I", b"O", b"E", b"D")
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2


# --- the conversation ---


class Line:
    """One end of the line between the host, which uses this class too, and the first process."""

    def __init__(self, longest: int) -> None:
        self.arrived = bytearray()
        self.unread = 0
        """How many bytes the other end has not handled yet."""
        self._longest = longest

    def pack(self, kind: bytes, content: bytes = b"") -> bytes:
        if kind in COUNTED:
            self.unread += len(content)
        return kind + len(content).to_bytes(4, "big") + content

    def frame(self) -> Frame | None:
        """The next frame, if it has arrived as a whole. Raises `ValueError` if it is too long."""
        length = int.from_bytes(self.arrived[1:5], "big")
        if length > self._longest:
            raise ValueError("the frame is too long")
        if len(self.arrived) < 5 + length:
            return None
        kind, content = bytes(self.arrived[:1]), bytes(self.arrived[5 : 5 + length])
        del self.arrived[: 5 + length]
        if kind == b"A":
            self.unread -= int.from_bytes(content, "big")
        return kind, content


class HostGone(Exception):
    """The host has ended or closed the connection."""


class Host(Line):
    """The end of the first process, over standard input and output."""

    def send(self, kind: bytes, content: bytes = b"") -> None:
        data = memoryview(self.pack(kind, content))
        while data:
            data = data[os.write(1, data) :]

    def read(self) -> None:
        data = os.read(0, 1 << 16)
        if not data:
            raise HostGone
        self.arrived += data

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
    host = Host(1 << 30)
    try:
        job: Told = json.loads(host.expect(b"J"))
        set_dumpable(0)  # nobody with the same user id may look into this process or change it
        program = find_program(job["programs"])
        host.send(b"R", json.dumps(report(program, job["hidden"])).encode())
        end = ScriptRun(host, job, program, host.expect(b"G")).run()
        host.send(b"X", json.dumps(end).encode())
        send_files(host, job)
        host.send(b".")
        host.expect(b"")  # until the host closes the connection, and with it the container
    except HostGone:
        return
    finally:
        end_all()


# --- what the host is told before the script starts ---


def set_dumpable(value: int) -> None:
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


def report(program: str, hidden: list[str]) -> dict[str, object]:
    lines = read_text("/proc/self/mountinfo").splitlines()
    mounts = {line.split()[4].encode().decode("unicode_escape") for line in lines}
    return {
        "program": program,
        "machine": os.uname().machine,
        "status": dict(line.split(":\t", 1) for line in read_text("/proc/self/status").splitlines() if ":\t" in line),
        "pid": os.getpid(),
        "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
        "memory_protected": os.stat("/proc/self/mem").st_uid != os.getuid(),
        "root_read_only": bool(os.statvfs("/").f_flag & os.ST_RDONLY),
        "skill_read_only": bool(os.statvfs("/skill").f_flag & os.ST_RDONLY),
        "writable": sorted(mount for mount in mounts if os.access(mount, os.W_OK) and not is_null(mount)),
        "shown": [path for path in hidden if os.path.exists(path) and read_text(path)],
        "sizes": {place: status.f_blocks * status.f_frsize for place, status in writable().items()},
        "memory_limit": number_in(MEMORY_FILES),
        "process_limit": number_in(PIDS_FILES),
        "kills_counted": kills() >= 0,
        "interfaces": [line.split(":")[0].strip() for line in read_text("/proc/net/dev").splitlines() if ":" in line],
        "devices": sorted(os.listdir("/dev")),
    }


def writable() -> dict[str, os.statvfs_result]:
    return {place: os.statvfs(place) for place in WRITABLE}


def is_null(path: str) -> bool:
    """Whether a file is covered by /dev/null, which everybody can write to."""
    return os.stat(path).st_rdev == os.makedev(1, 3)


def find_program(names: list[str]) -> str:
    for name in names:
        for folder in FOLDERS:
            if os.access(f"{folder}/{name}", os.X_OK):
                return f"{folder}/{name}"
    return ""


def number_in(paths: tuple[str, ...], key: str = "") -> int:
    """The number, or that of a key, in the first of the files that has it, or -1."""
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            for line in read_text(path).splitlines():
                *words, value = line.split()
                if " ".join(words) == key:
                    return int(value)
    return -1


def kills() -> int:
    """How many processes of the container the kernel has ended because of the memory limit, or -1."""
    return number_in(OOM_FILES, "oom_kill")


def read_text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(1 << 18)


# --- the script ---


class ScriptRun:
    """One run of the script, from its start until no process of it is left."""

    def __init__(self, host: Host, job: Told, program: str, calls: bytes) -> None:
        self.host, self.job, self.program, self.calls = host, job, program, calls
        self.waiting = bytearray()
        self.no_more_input = False
        self.streams: dict[int, bytes] = {}
        self.into = -1

    def run(self) -> dict[str, object]:
        signal.signal(signal.SIGTERM, kill_all)  # also while this process waits for the host to read
        before, why = kills(), ""
        script = self.start()
        ended: dict[int, int] = {}
        while script not in ended and not why:
            self.turn()
            ended.update(ended_processes(os.WNOHANG))
            if kills() > before:
                why = "memory-limit"
            elif sum(status.f_files - status.f_ffree for status in writable().values()) > self.job["entries"]:
                why = "files-limit"
        ended.update(end_all())
        if kills() > before:
            why = "memory-limit"
        for descriptor in tuple(self.streams):
            while self.pass_on(descriptor):  # nobody can write to it any more
                pass
        return {"code": code_of(ended.get(script, signal.SIGKILL)), "ended": why}

    def start(self) -> int:
        (output, out), (errors, err), (into, self.into) = os.pipe(), os.pipe(), os.pipe()
        script = os.fork()
        if script == 0:
            try:
                self.become((into, out, err))
            except BaseException as error:  # noqa: BLE001 - nothing else of this program may run in the copy
                os.write(err, f"the script could not be started: {error}\n".encode())
                os._exit(126)
        for descriptor in (into, out, err):
            os.close(descriptor)
        for descriptor in (output, errors, self.into):
            os.set_blocking(descriptor, False)
        self.streams = {output: b"O", errors: b"E"}
        return script

    def become(self, descriptors: tuple[int, int, int]) -> None:
        """Turn this process, a copy of the first one, into the script."""
        for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
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

    def turn(self) -> None:
        """Wait for something to do, and do it."""
        reading = [0, *(self.streams if self.host.unread < WINDOW else ())]
        writing = [self.into] if self.into >= 0 and (self.waiting or self.no_more_input) else []
        ready, free, _ = select.select(reading, writing, (), TICK)
        if 0 in ready:
            self.host.read()
        while frame := self.host.frame():
            if frame[0] == b"I":
                self.waiting += frame[1]
            elif frame[0] == b"Z":
                self.no_more_input = True
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
            self.host.send(b"A", written.to_bytes(4, "big"))
        if self.no_more_input and not self.waiting:
            os.close(self.into)
            self.into = -1


def kill_all(*_: object) -> None:
    """End all processes but this one. The kernel does it in one step, so that no process escapes by forking."""
    if os.getpid() == 1:  # otherwise, they are processes of somebody else
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)


def end_all() -> dict[int, int]:
    """End all processes but this one, and wait until they have ended. Returns their states."""
    kill_all()
    return dict(ended_processes(0))


def ended_processes(options: int) -> Iterator[tuple[int, int]]:
    """The processes that have ended, with their states: the script, and what it left to the first process."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, options))[0]:
            yield ended


def code_of(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


# --- the files that the script left ---


def send_files(host: Host, job: Told) -> None:
    """Send the regular files of the work folder, sorted, within the limits of the job. The host checks all of it."""
    room, count, missing = job["work_bytes"], 0, 0
    for path, reason in walk("/work", "", job["depth"]):
        size = 0
        if not reason and count >= job["files"]:
            reason = f"more than {job['files']} files"
        elif not reason:
            size, reason = send_file(host, path, min(room, job["file_bytes"]))
        if reason:
            missing += 1
            host.send(b"L", os.fsencode(path) + b"\0" + reason.encode())
            if missing > job["files"]:
                return  # the list of reasons is long enough
        else:
            count += 1
            room -= size


def walk(folder: str, below: str, depth: int) -> Iterator[tuple[str, str]]:
    """Each entry that is not a folder: its path, and the reason if it is left out."""
    with contextlib.suppress(OSError):
        os.chmod(folder, 0o700)  # the script may have locked its own folder
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield below or ".", error.strerror or "cannot be listed"
        return
    for entry in entries:
        path = below + entry.name
        if entry.is_symlink():
            yield path, "a symbolic link"
        elif entry.is_file():
            yield path, ""
        elif not entry.is_dir():
            yield path, "not a regular file"
        elif below.count("/") >= depth:
            yield f"{path}/", f"more than {depth} folders deep"
        else:
            yield from walk(entry.path, f"{path}/", depth)


def send_file(host: Host, path: str, most: int) -> tuple[int, str]:
    """Send a file. Returns its size, or the reason for which it is left out."""
    place = f"/work/{path}"
    try:
        os.chmod(place, 0o600)  # the script may have locked this, too
        with open(place, "rb") as file:
            size = left = os.fstat(file.fileno()).st_size
            if size > most:
                return 0, "too large for what was left of the limit"
            host.send(b"F", os.fsencode(path))
            while left > 0 and (data := file.read(min(CHUNK, left))):
                left -= len(data)
                host.send_slowly(b"D", data)
            return size, ""
    except OSError as error:
        return 0, error.strerror or "cannot be read"


if __name__ == "__main__":
    main()
    sys.exit(0)
