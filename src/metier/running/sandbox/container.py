"""Runs scripts in a container, with the program `podman` or `docker`, for machines without bubblewrap.

How a run works: the approved files of the skill are unpacked into a volume, which the container then mounts read-only.
No folder of the host is mounted, so the engine may be on another machine. The container has no network, no
capabilities, a read-only root and limits. Its first process is our own, for the Python of the image. It reports what
the kernel says about its container. If the host agrees, it starts the script, passes input and output on, ends
everything when the host says so or is gone, and sends the files that the script left. Arguments and variables go to
it over standard input, so the engine never sees them.

What the first process sends is a frame: one byte for the kind, four for the length, and the content. `R` is the report
as JSON, `I` asks for the next piece of input, `O` and `E` are output, `X` is the end as JSON, `F` a path and `D` bytes
of its file, `L` a path that is left out and the reason, `.` the end. The host sends content after its length.

The invariant: every protection that is reported was verified from inside before the first instruction of a script, or
is a flag of the engine; the container is removed on every way out; and nothing that it sends is used unchecked.
"""

import dataclasses
import functools
import io
import json
import os
import platform
import posixpath
import secrets
import shutil
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Final, Self

from metier import limits
from metier.errors import ScriptRefused
from metier.files import process
from metier.files.json_text import parse_json
from metier.files.shapes import as_table, is_list, is_table
from metier.files.tree import SkillTree
from metier.hosts.schema import CONTAINER_IMAGE
from metier.limits import KIB
from metier.running.sandbox import (
    PROJECT_DIR,
    SKILL_DIR,
    WORK_DIR,
    Ended,
    Job,
    OnOutput,
    Outcome,
    RunLimits,
    SandboxUnavailable,
    Stream,
    WrittenFile,
    seccomp,
)
from metier.running.sandbox.base import PumpedOutput, Watch, approved_tree, outcome, pass_on
from metier.running.sandbox.collect import DEPTH, CollectedFiles
from metier.running.sandbox.interpreter import NODE_RESERVE, Recognised, recognise
from metier.running.sandbox.mounts import ENTRIES_FACTOR, fixed_variables

ENGINES: Final = ("podman", "docker")
LABEL: Final = "io.metier.owner"
"""Names the machine, its start and the process that made a container or a volume."""
USER: Final = 65532
"""The user of the script in the container, by convention one without any rights."""
CALL_SECONDS: Final = 60.0
START_SECONDS: Final = 60.0
END_SECONDS: Final = 20.0
"""How long the first process may take to end everything after it was told to. Then the engine ends the container."""
COLLECT_SECONDS: Final = 120.0
_FRAME_BYTES: Final = 256 * KIB
_INPUT_BYTES: Final = 32 * KIB
_LARGEST_PAGE: Final = 1 << 16
_ISOLATED: Final = (
    *("run", "--rm", "--interactive", "--pull", "never", "--read-only", "--cap-drop", "ALL", "--ipc", "private"),
    *("--security-opt", "no-new-privileges", "--log-driver", "none", "--no-healthcheck", "--stop-signal", "KILL"),
    *("--ulimit", "nofile=256:256", "--ulimit", "nproc=1000:1000", "--ulimit", "core=0:0"),
    *("--hostname", "skill", "--workdir", "/", "--entrypoint", "python3"),
)
_HIDDEN: Final = ("/etc/hosts", "/etc/resolv.conf")
"""Docker shows the name servers of the machine in a container, and Podman the names that the machine knows."""
_DEVICES: Final = "null zero full random urandom tty console pts ptmx fd stdin stdout stderr shm mqueue core"
_PROTECTIONS: Final = (
    *("no-host-files", "no-host-processes", "no-host-ipc", "no-host-paths", "clean-environment", "no-devices"),
    *("no-capabilities", "no-new-privileges", "seccomp", "approved-files", "own-uid", "no-network", "limit-time"),
    *("limit-memory", "limit-processes", "limit-output", "limit-file-size", "limit-work-size"),
)
_READ_ONLY: Final = "in a container, the current folder is a copy that cannot be written to; WORK_DIR can"
_START_HINT: Final = "install Podman, or start Docker"
_RUNTIME_HINT: Final = (
    'let Podman use runc: install it, and write runtime = "runc" below [engine] in ~/.config/containers/containers.conf'
)
_SUPPORTED: Final = frozenset(
    (
        *("skill_dir", "script", "argv", "stdin", "env", "network", "project", "project_named", "cwd", "files"),
        *("limits", "tree", "on_started", "on_attempt", "stop"),
    )
)
"""The fields of a job that this runner knows. A job that sets another one is refused. There are no attempts without
hosts, which are not among them."""
_REACHED: Final[Mapping[object, Ended]] = {"memory-limit": "memory-limit", "files-limit": "files-limit"}
_STREAMS: Final[Mapping[bytes, Stream]] = {b"O": "stdout", b"E": "stderr"}

_UNPACK: Final = """
import sys, tarfile
tarfile.TarFile.extraction_filter = staticmethod(lambda member, path: member)
tarfile.open(fileobj=sys.stdin.buffer, mode="r|").extractall("/")
"""

_FIRST: Final = r"""
import contextlib, ctypes, json, os, resource, select, signal

PLACES = ("/work", "/tmp", "/var/tmp", "/run", "/dev/shm")
GROUP = "/sys/fs/cgroup/"
libc = ctypes.CDLL(None, use_errno=True)

def take(size):
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece: raise SystemExit  # the host is gone
        data += piece
    return data

def message(): return take(int.from_bytes(take(4), "big"))

def send(kind, data=b""):
    data = memoryview(kind + len(data).to_bytes(4, "big") + data)
    while data: data = data[os.write(1, data):]

def read(path):
    with open(path, encoding="utf-8", errors="replace") as file: return file.read(1 << 18)

def number(*paths, key=""):
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            for line in read(GROUP + path).splitlines():
                *words, value = line.split()
                if " ".join(words) == key: return int(value)
    return -1

def kills(): return number("memory.events", "memory/memory.oom_control", key="oom_kill")

def is_shown(path):
    try: return bool(read(path))
    except OSError: return False

def gaps(job):  # what is not protected, by what the kernel says
    status = dict(line.split(":\t", 1) for line in read("/proc/self/status").splitlines() if ":\t" in line)
    mounts = {line.split()[4].encode().decode("unicode_escape") for line in read("/proc/self/mountinfo").splitlines()}
    null, most, network = os.makedev(1, 3), job["most"], job["network"]
    writable = {path for path in mounts if os.access(path, os.W_OK) and os.stat(path).st_rdev != null}
    counts = {place: os.statvfs(place) for place in PLACES}
    interfaces = [line.split(":")[0].strip() for line in read("/proc/net/dev").splitlines() if ":" in line]
    kept = {
        "capabilities are left": all(int(status[name], 16) == 0 for name in status if name.startswith("Cap")),
        "new privileges are possible": status["NoNewPrivs"] == "1",
        "the engine's system call filter is not in force": status["Seccomp"] == "2",
        "it does not run as the user without rights": status["Uid"].split() == [job["user"]] * 4,
        "other processes are visible": [name for name in os.listdir("/proc") if name.isdigit()] == ["1"],
        "its memory can be written to": os.stat("/proc/self/mem").st_uid != os.getuid(),
        "/ or /skill can be written to": all(os.statvfs(path).f_flag & os.ST_RDONLY for path in ("/", "/skill")),
        "its memory is not limited": 0 < number("memory.max", "memory/memory.limit_in_bytes") <= most["memory"],
        "its processes are not limited": 0 < number("pids.max", "pids/pids.max") <= most["pids"],
        "the kernel does not say when memory ran out": kills() >= 0,
        "a network is there": network or interfaces == ["lo"],
        "devices of the host are visible": set(os.listdir("/dev")) <= set(job["devices"]),
    }
    found = [gap for gap, is_kept in kept.items() if not is_kept]
    found += [path + " can be written to" for path in sorted(writable - {*PLACES, "/dev/mqueue"})]
    found += [path + " can be read" for path in ("/etc/hosts", "/etc/resolv.conf") if not network and is_shown(path)]
    return found + [place + " has no size limit" for place, one in counts.items()
                    if not 0 < one.f_blocks * one.f_frsize <= most["size"]]

def become(job, program, calls, descriptors):
    for name in (signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT): signal.signal(name, signal.SIG_DFL)
    os.setsid()
    for place, descriptor in enumerate(descriptors): os.dup2(descriptor, place)
    libc.prctl(4, 1, 0, 0, 0)  # dumpable again; before, this file belongs to root
    with open("/proc/self/oom_score_adj", "w") as file: file.write("1000")  # the kernel ends this, not the first one
    os.nice(5)
    os.closerange(3, 1 << 16)
    for name, value in job["limits"].items(): resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value))
    os.chdir(job["cwd"])
    os.umask(0o022)
    class Filter(ctypes.Structure): _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))
    if not calls or libc.prctl(22, 2, ctypes.byref(Filter(len(calls) // 8, calls)), 0, 0):
        raise OSError("the system call filter cannot be installed")
    os.execve(program, [program, *job["argv"]], job["env"])

def kill(*_):
    if os.getpid() == 1:
        with contextlib.suppress(ProcessLookupError): os.kill(-1, signal.SIGKILL)  # all but this process, in one step

def reap(options):
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, options))[0]: ended[found[0]] = found[1]
    return ended

def run(job, program, calls):
    signal.signal(signal.SIGTERM, kill)
    before, why = kills(), ""
    (output, out), (errors, err), (source, into) = os.pipe(), os.pipe(), os.pipe()
    script = os.fork()
    if not script:
        try: become(job, program, calls, (source, out, err))
        except BaseException as error: os.write(2, ("the script could not be started: %s\n" % error).encode())
        os._exit(126)
    for one in (out, err, source): os.close(one)
    for one in (output, errors, into): os.set_blocking(one, False)
    streams, ended, waiting = {output: b"O", errors: b"E"}, {}, b""

    def pass_on(one):
        try: data = os.read(one, 1 << 15)
        except BlockingIOError: return False
        if data: send(streams[one], data)
        else: streams.pop(one)
        return bool(data)

    send(b"I")
    while script not in ended and not why:
        ready, free, _ = select.select([0, *streams], [into] if waiting else [], [], 0.025)
        if 0 in ready:
            waiting = message()
            if not waiting: os.close(into)
        for one in ready:
            if one in streams: pass_on(one)
        if free:
            try: waiting = waiting[os.write(into, waiting):]
            except BlockingIOError: pass
            except OSError: waiting = b""  # the script does not read its input
            if not waiting: send(b"I")
        ended.update(reap(os.WNOHANG))
        counts = [os.statvfs(place) for place in PLACES]
        if sum(one.f_files - one.f_ffree for one in counts) > job["entries"]: why = "files-limit"
        if kills() > before: why = "memory-limit"
    kill()
    ended.update(reap(0))
    for one in tuple(streams):
        while pass_on(one): pass
    state = ended.get(script, signal.SIGKILL)
    code = 128 + os.WTERMSIG(state) if os.WIFSIGNALED(state) else os.WEXITSTATUS(state)
    return {"code": code, "ended": "memory-limit" if kills() > before else why}

def walk(folder, below, depth):
    with contextlib.suppress(OSError): os.chmod(folder, 0o700)  # the script may have locked its own folder
    try: entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield below or ".", error.strerror
        return
    for entry in entries:
        path = below + entry.name
        if entry.is_symlink(): yield path, "a symbolic link"
        elif entry.is_file(): yield path, ""
        elif not entry.is_dir(): yield path, "not a regular file"
        elif below.count("/") >= depth: yield path + "/", "more than %d folders deep" % depth
        else: yield from walk(entry.path, path + "/", depth)

def send_files(job):
    room, count, missing = job["work_bytes"], 0, 0
    for path, reason in walk("/work", "", job["depth"]):
        if not reason and count >= job["files"]: reason = "more than %d files" % job["files"]
        try:
            if not reason:
                os.chmod("/work/" + path, 0o600)
                with open("/work/" + path, "rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    if size > min(room, job["file_bytes"]): reason = "too large for what was left of the limit"
                    else:
                        send(b"F", os.fsencode(path))
                        for piece in iter(lambda: file.read(1 << 15), b""): send(b"D", piece)
                        count, room = count + 1, room - size
        except OSError as error: reason = error.strerror
        if reason:
            send(b"L", os.fsencode(path) + b"\0" + reason.encode())
            missing += 1
            if missing > job["files"]: return

try:
    job = json.loads(message())
    libc.prctl(4, 0, 0, 0, 0)  # nobody with the same user id may look into this process or change it
    paths = [folder + name for name in job["programs"] for folder in ("/usr/local/bin/", "/usr/bin/", "/bin/")]
    program = next((path for path in paths if os.access(path, os.X_OK)), "")
    send(b"R", json.dumps({"gaps": gaps(job), "program": program, "machine": os.uname().machine}).encode())
    send(b"X", json.dumps(run(job, program, message())).encode())
    send_files(job)
    send(b".")
finally:
    kill()
"""


class EngineError(Exception):
    """The engine refused a command or is not there, or its container said something that makes no sense."""


class Engine:
    """The program of an engine. `socket` is the path of a socket, or empty for the engine that the program knows."""

    def __init__(self, program: str, socket: str) -> None:
        self.program = program
        address = {name: f"unix://{socket}" for name in ("DOCKER_HOST", "CONTAINER_HOST") if socket}
        self.env = {**os.environ, **address}

    def call(self, *words: str, stdin: IO[bytes] | None = None) -> str:
        """Run a command of the engine and return what it says."""
        line = [self.program, *words]
        try:
            done = subprocess.run(  # noqa: S603
                line, stdin=stdin or subprocess.DEVNULL, capture_output=True, env=self.env, timeout=CALL_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineError(f"{self.program} does not answer") from error
        if done.returncode:
            raise EngineError(f"{self.program} says: {_complaint(done.stderr) or f'status {done.returncode}'}")
        return done.stdout.decode("utf-8", "replace")

    def labelled(self, label: str) -> list[tuple[str, ...]]:
        """The containers and volumes that have a label: the command that removes one, its name, and its label."""
        found: list[tuple[str, ...]] = []
        for listing, kind, command in (("ps --all", "container", "rm"), ("volume ls", "volume", "volume rm")):
            names = self.call(*listing.split(), "--quiet", "--filter", f"label={label}").split()
            labels = ".Config.Labels" if kind == "container" else ".Labels"
            for name in names:
                with suppress(EngineError):  # it was removed meanwhile
                    show = f'{{{{index {labels} "{LABEL}"}}}}'
                    found.append((command, name, self.call(kind, "inspect", "--format", show, name).strip()))
        return found

    def remove(self, command: str, name: str) -> None:
        with suppress(EngineError):
            self.call(*command.split(), "--force", name)

    def sweep(self) -> None:
        """Remove what processes of this machine left that were killed. That of other machines stays."""
        for command, name, label in self.labelled(LABEL):
            if has_ended(label):
                self.remove(command, name)


def _complaint(said: bytes) -> str:
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    return next((line for line in lines if "rror" in line), lines[-1] if lines else "")[:500]


@functools.cache
def engine_for(socket: str) -> Engine:
    """The first engine that answers. It removes what is left of processes that were killed."""
    tried: list[str] = []
    for program in filter(shutil.which, ENGINES):
        engine = Engine(program, socket)
        try:
            engine.call("version")
        except EngineError as error:
            tried.append(str(error))
            continue
        with suppress(EngineError):
            engine.sweep()
        return engine
    message = "no container engine answers" if tried else "neither podman nor docker is installed"
    raise SandboxUnavailable(": ".join((message, *tried)), install=_START_HINT)


def find_socket(env: Mapping[str, str]) -> str:
    """The path of the socket that the environment names, or an empty text."""
    for name in ("DOCKER_HOST", "CONTAINER_HOST"):
        if address := env.get(name, ""):
            if not address.startswith("unix://"):
                message = f"{name} is {address}; only a Unix socket (unix://PATH) is used"
                hint = f"forward a remote engine to a socket with ssh -L, and set {name}"
                raise SandboxUnavailable(message, install=hint)
            return address.removeprefix("unix://")
    return ""


class ContainerRunner:
    """Runs each script in a container of its own.

    `image` must have Python 3.8 or later as `python3`, and is never pulled. `socket` is the path of the engine's Unix
    socket. Without it, the one in `DOCKER_HOST` or `CONTAINER_HOST` is used, or else the engine that `podman`, or then
    `docker`, uses by itself.
    """

    name = "container"

    def __init__(self, image: str = CONTAINER_IMAGE, socket: str | None = None) -> None:
        self.image, self.socket = image, socket

    def problem(self) -> str | None:
        return self._examined()[0] or None

    def remedy(self) -> str:
        return self._examined()[1]

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        for field in dataclasses.fields(job):
            default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
            if field.name not in _SUPPORTED and getattr(job, field.name) != default:
                hint = '; set run.packages = "never", and have the image bring them' if field.name == "packages" else ""
                raise SandboxUnavailable(f"the runner container does not support {field.name} of a run yet{hint}")
        tree = approved_tree(job)
        script = recognise(tree, job.script)
        engine = self._ready()
        started = time.monotonic()
        with ExitStack() as stack:
            try:
                run = stack.enter_context(_started(engine, self.image, job, tree, script))
            except EngineError as error:
                raise SandboxUnavailable(str(error)) from error
            named = tuple(name for name in _PROTECTIONS if name != "no-network" or not job.network)
            job.started(named)
            output = PumpedOutput(job.limits.output_bytes)
            ended, code, notes = run.supervise(job, output, on_output)
            made = run.files(job.limits) if not notes else ((), (f".: the files could not be fetched: {notes[0]}",))
            notes += (_READ_ONLY,) if code and job.cwd is not None else ()
            return outcome(job, ended, output, code=code, started=started, made=made, protections=named, notes=notes)

    def _ready(self) -> Engine:
        """The engine, which has the image."""
        engine = engine_for(self.socket or find_socket(os.environ))
        try:
            engine.call("image", "inspect", "--format", "{{.Id}}", self.image)
        except EngineError as error:
            message = f"the image {self.image} is not there, and images are not downloaded unasked"
            raise SandboxUnavailable(message, install=f"{engine.program} pull {self.image}") from error
        return engine

    def _examined(self) -> tuple[str, str]:
        """Why scripts cannot run here, if they cannot, and what the user can do about it."""
        try:
            engine = self._ready()
        except SandboxUnavailable as error:
            return error.message, error.install
        return _tried(engine, self.image)


@functools.cache
def _tried(engine: Engine, image: str) -> tuple[str, str]:
    """Start a container and run nothing in it. The answer is kept for this process."""
    try:
        with _started(engine, image, Job("/", ""), SkillTree(()), Recognised("python", (), named=True)):
            return "", ""
    except (EngineError, ScriptRefused) as error:
        return str(error), _RUNTIME_HINT if "crun" in str(error) else ""
    except SandboxUnavailable as error:
        return ": ".join(part for part in (error.message, "; ".join(error.tried)) if part), ""


class _Run:
    """A container whose first process waits for the word to start the script. One thread reads from it."""

    def __init__(self, engine: Engine, name: str, line: tuple[str, ...]) -> None:
        self._engine, self._name = engine, name
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `__exit__`
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(  # noqa: S603 - and not in the session of a terminal, whose signals it passes on
            [engine.program, *line], stdin=pipe, stdout=pipe, stderr=self._said, env=engine.env, start_new_session=True
        )
        self.calls = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        with self._said, self._process, suppress(OSError):
            try:
                with suppress(OSError):
                    self._process.stdin.close()
                if self._is_over:
                    self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            finally:
                if self._process.poll() != 0:
                    self._engine.remove("rm", self._name)
                self._process.kill()

    _is_over = False

    @contextmanager
    def at_most(self, seconds: float) -> Generator[None]:
        """End the container if something takes longer."""
        timer = threading.Timer(seconds, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def send(self, content: bytes) -> None:
        assert self._process.stdin
        with suppress(OSError):  # the end of what comes back says why
            self._process.stdin.write(len(content).to_bytes(4, "big") + content)
            self._process.stdin.flush()

    def receive(self) -> tuple[bytes, bytes]:
        """The next frame. Raises `EngineError` at the end."""
        head = self._read(5)
        length = int.from_bytes(head[1:], "big")
        if length > _FRAME_BYTES:
            raise EngineError("the container sends a frame that is too long")
        return head[:1], self._read(length)

    def _read(self, size: int) -> bytes:
        assert self._process.stdout
        data = self._process.stdout.read(size)
        if len(data) < size:
            self._said.seek(0)
            why = _complaint(self._said.read(64 * KIB))
            raise EngineError(f"the container ended early{f': {why}' if why else ''}")
        return data

    def expect(self, wanted: bytes) -> Mapping[str, object]:
        """The JSON object in the next frame."""
        kind, content = self.receive()
        with suppress(ValueError, RecursionError):
            if kind == wanted and is_table(found := parse_json(content)):
                return found
        raise EngineError("the container sends something that makes no sense")

    def supervise(
        self, job: Job, output: PumpedOutput, on_output: OnOutput | None
    ) -> tuple[Ended, int, tuple[str, ...]]:
        """Start the script, and pass input and output on until no process of it is left."""
        waiting = memoryview(job.stdin or b"")
        with ExitStack() as stack:

            def end() -> None:
                """Tell the first process to end everything. It takes the signal even while it waits for us to read."""
                stack.enter_context(self.at_most(END_SECONDS))
                with suppress(EngineError):
                    self._engine.call("kill", "--signal", "TERM", self._name)

            watch = stack.enter_context(Watch(job.limits.seconds, end, (), job.stop))
            self.send(self.calls)
            try:
                kind, content = self.receive()
                while kind != b"X":
                    if kind == b"I":
                        self.send(bytes(waiting[:_INPUT_BYTES]))
                        waiting = waiting[_INPUT_BYTES:]
                    elif kind in _STREAMS:
                        pass_on(_STREAMS[kind], content, output, on_output, lambda: watch.finish("output-limit"))
                    kind, content = self.receive()
                end_ = as_table(parse_json(content))
            except (EngineError, ValueError) as error:
                return watch.ended or "killed", 137, (str(error),)
        reached, code = watch.ended or _REACHED.get(end_.get("ended")), end_.get("code")
        return (reached, 137, ()) if reached else ("exit", code if isinstance(code, int) else 137, ())

    def files(self, limits: RunLimits) -> tuple[tuple[WrittenFile, ...], tuple[str, ...]]:
        """The files that the script left, checked again on this side."""
        found, files, latest, room = CollectedFiles(limits), dict[str, bytearray](), bytearray(), limits.work_bytes
        try:
            with self.at_most(COLLECT_SECONDS):
                while (frame := self.receive())[0] != b".":
                    kind, content = frame
                    room -= len(content) if kind == b"D" else 0
                    path, _, why = content.decode("utf-8", "surrogateescape").partition("\0")
                    if kind == b"F":
                        if why or path in files or {"", ".", ".."} & set(path.split("/")) or len(files) >= limits.files:
                            raise EngineError("the container sends a file that cannot be in the work folder")
                        latest = files[path] = bytearray()
                    elif kind == b"L":
                        found.leave_out(path, why)
                    elif kind != b"D" or room < 0 or len(latest) + len(content) > limits.file_bytes:
                        raise EngineError("the container sends more than the limit of the work folder")
                    else:
                        latest += content
            self._is_over = True
        except EngineError as error:
            return (), (f".: the files could not be fetched: {error}",)
        for path, data in files.items():
            found.keep(path, bytes(data))
        return found.files(), found.left_out()


@contextmanager
def _started(engine: Engine, image: str, job: Job, tree: SkillTree, script: Recognised) -> Generator[_Run]:
    """Start a container with everything but the script. When the context ends, nothing of it is left."""
    below = os.path.relpath(job.cwd, job.project) if job.cwd is not None and job.project is not None else ""
    here = posixpath.normpath(posixpath.join(PROJECT_DIR, below))
    name, mounts = f"metier-{secrets.token_hex(8)}", ()
    with ExitStack() as stack:
        archive = stack.enter_context(tempfile.TemporaryFile())
        _pack(archive, job, tree, here)
        for place in (SKILL_DIR, PROJECT_DIR) if job.project is not None or job.files else (SKILL_DIR,):
            volume = name + place.replace("/", "-")
            stack.callback(engine.remove, "volume rm", volume)
            engine.call("volume", "create", "--label", f"{LABEL}={owner()}", volume)
            mounts += ("--volume", f"{volume}:{place}")
        common = (*_ISOLATED, "--label", f"{LABEL}={owner()}")
        unpack = (*common, "--network", "none", "--user", "0:0", *mounts, image, "-I", "-S", "-c", _UNPACK)
        engine.call(*unpack, stdin=archive)
        read_only = (f"{word}:ro" if word.startswith("metier-") else word for word in mounts)
        line = (*common, "--name", name, *_limited(job), *read_only, image, "-I", "-S", "-c", _FIRST)
        run = stack.enter_context(_Run(engine, name, line))
        limits = {"CORE": 0, "CPU": int(job.limits.seconds) + 1, "FSIZE": job.limits.file_bytes}
        limits["AS"] = job.limits.memory_bytes + (NODE_RESERVE if script.kind == "node" else 0)
        told = {
            "programs": script.names,
            "argv": [*script.flags, f"{SKILL_DIR}/{job.script}", *job.argv],
            "cwd": here if job.cwd is not None or job.files else WORK_DIR,
            "env": fixed_variables(job, SKILL_DIR, WORK_DIR, PROJECT_DIR, "/tmp"),  # noqa: S108
            "limits": limits,
            "network": job.network,
            "user": str(USER),
            "devices": _DEVICES.split(),
            "most": {
                "memory": job.limits.memory_bytes,
                "pids": job.limits.processes + 1,
                "size": max(job.limits.work_bytes, 64 * KIB) + _LARGEST_PAGE,
            },
            "entries": job.limits.files * ENTRIES_FACTOR,
            "files": job.limits.files,
            "file_bytes": job.limits.file_bytes,
            "work_bytes": job.limits.work_bytes,
            "depth": DEPTH,
        }
        with run.at_most(START_SECONDS):
            run.send(json.dumps(told).encode())
            report = run.expect(b"R")
        machine, gaps = str(report.get("machine")), report.get("gaps")
        if gaps != [] or machine not in seccomp.ARCHITECTURES:
            tried = [str(gap) for gap in gaps or ()] if is_list(gaps) else ["it does not say what is in force"]
            raise SandboxUnavailable("the container lacks protections", tried=tried or [f"no filter for {machine}"])
        if not report.get("program"):
            message = f"it needs {script.names[0]}, which the image {image} does not have"
            raise ScriptRefused(job.script, "interpreter-missing", message)
        run.calls = seccomp.program(machine, network=job.network)
        yield run


def _limited(job: Job) -> tuple[str, ...]:
    size, memory = max(job.limits.work_bytes, 64 * KIB), str(job.limits.memory_bytes)
    tmpfs = [f"{place}:rw,exec,nosuid,nodev,size={size},mode=1777" for place in (WORK_DIR, "/tmp")]  # noqa: S108
    tmpfs += [f"{place}:rw,nosuid,nodev,size=65536,mode=0755" for place in ("/run", "/var/tmp")]  # noqa: S108
    hidden = () if job.network else _HIDDEN
    return (
        *("--network", "bridge" if job.network else "none", "--user", f"{USER}:{USER}"),
        *("--pids-limit", str(job.limits.processes + 1)),  # and the first process
        *("--memory", memory, "--memory-swap", memory, "--shm-size", str(size)),
        *(word for one in tmpfs for word in ("--tmpfs", one)),
        *(word for one in hidden for word in ("--volume", f"/dev/null:{one}:ro")),
    )


def _pack(file: IO[bytes], job: Job, tree: SkillTree, here: str) -> None:
    """An archive of the files that a container is given, which belong to root. Links are stored as links."""
    given = {posixpath.join(here, name)[1:]: data for name, data in job.files.items()}
    room, count = limits.TREE_BYTES, 0

    def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        nonlocal room, count
        room, count = room - entry.size, count + 1
        if room < 0 or count > limits.TREE_FILES:
            most = f"{limits.TREE_BYTES // limits.MIB} MiB or {limits.TREE_FILES:,} files and folders"
            message = f"the project has more than {most}, which is too much to be copied into a container"
            raise ScriptRefused(job.script, "project-too-large", message)
        plain = entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()
        return None if not plain or entry.name in given or entry.name.count("/") > limits.WALK_DEPTH else _owned(entry)

    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
        for one in tree.files:
            entry = tarfile.TarInfo(f"{SKILL_DIR[1:]}/{one.path}")
            entry.mode, entry.size = 0o100 if one.executable else 0, len(one.data)
            if one.target:
                entry.type, entry.linkname = tarfile.SYMTYPE, one.link_text
            archive.addfile(_owned(entry), io.BytesIO(one.data))
        try:
            if job.project is not None:
                archive.add(os.path.realpath(job.project), PROJECT_DIR, filter=kept)
        except OSError as error:
            message = f"the project cannot be copied: {error.strerror}"
            raise ScriptRefused(job.script, "project-unreadable", message) from error
        for path, data in given.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(_owned(entry), io.BytesIO(data))
    file.seek(0)


def _owned(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o555 if entry.isdir() or entry.mode & 0o100 else 0o444
    return entry


# --- whose a container or a volume is ---


def owner() -> str:
    """This process, as its label names it."""
    return "|".join((*_here(), process.current()))


def has_ended(label: str) -> bool:
    """Whether the process that a label names has certainly ended. One of another machine cannot be seen here."""
    machine, boot, name = (*label.split("|"), "", "", "")[:3]
    here, now = _here()
    if machine != here:
        return False
    return bool(boot and now) if boot != now else process.has_ended(name) is True


def _here() -> tuple[str, str]:
    return _line("/etc/machine-id") or platform.node(), _line("/proc/sys/kernel/random/boot_id")


def _line(path: str) -> str:
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read(4096).strip().replace("|", "")
    return ""
