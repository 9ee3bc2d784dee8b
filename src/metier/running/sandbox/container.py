"""Runs scripts in a container, with the program `podman` or `docker`, for machines without bubblewrap.

The approved files of the skill are unpacked into a volume of a container that has ended, which the container of the
script mounts read-only. No folder of the host is mounted, so the engine may be on another machine. The first process of
the container is our own, for the Python of the image. It reports what the kernel says about it. If the host agrees, it
starts the script, passes output on, ends everything when the host says so or is gone, and sends the files that the
script left. Arguments, variables and input go to it over standard input, so the engine never sees them.

It sends frames: one byte for the kind, four for the length, and the content. `R` is the report as JSON, `O` and `E` are
output, `X` is the end as JSON, `F` a path and `D` bytes of its file, `L` a path that is left out and the reason, `.`
the end. The invariant: every protection that is reported was verified from inside before
the script starts, or is a flag of the engine; the container is removed on every way out; nothing is used unchecked.
"""

import dataclasses
import functools
import io
import json
import os
import posixpath
import secrets
import shutil
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any, Final

from metier import limits
from metier.errors import ScriptRefused
from metier.files import process
from metier.files.json_text import parse_json
from metier.files.shapes import as_table, is_list
from metier.files.tree import SkillTree
from metier.hosts.schema import CONTAINER_IMAGE
from metier.limits import KIB
from metier.running import sandbox
from metier.running.sandbox import PROJECT_DIR, SKILL_DIR, WORK_DIR, Ended, Job, OnOutput, Outcome, SandboxUnavailable
from metier.running.sandbox.base import PumpedOutput, Watch, approved_tree, outcome, pass_on
from metier.running.sandbox.collect import DEPTH, CollectedFiles
from metier.running.sandbox.interpreter import NODE_RESERVE, Recognised, recognise
from metier.running.sandbox.mounts import ENTRIES_FACTOR, fixed_variables
from metier.running.sandbox.seccomp import ARCHITECTURES
from metier.running.sandbox.seccomp import program as filter_of

ENGINES: Final = ("podman", "docker")
LABEL: Final = "io.metier.run"
"""Of every container. Its name begins with that of the process that made it."""
USER: Final = "65532"
"""The user of the script in the container, by convention one without any rights."""
CALL_SECONDS: Final = 60.0
START_SECONDS: Final = 60.0
END_SECONDS: Final = 20.0
"""How long the first process may take to end everything after it was told to. Then the engine ends the container."""
COLLECT_SECONDS: Final = 120.0
_ISOLATED: Final = (
    "run --interactive --pull never --read-only --cap-drop ALL --security-opt no-new-privileges --ipc private "
    "--log-driver none --no-healthcheck --stop-signal KILL --hostname skill --workdir / --entrypoint python3 "
    f"--ulimit nofile=256:256 --ulimit nproc=1000:1000 --ulimit core=0:0 --label {LABEL}=1"
)
_HIDDEN: Final = "--volume /dev/null:/etc/hosts:ro --volume /dev/null:/etc/resolv.conf:ro"
"""Docker shows the name servers of the machine in a container, and Podman the names that the machine knows."""
_PROTECTIONS: Final = (
    "no-host-files no-host-processes no-host-ipc no-host-paths clean-environment no-devices no-capabilities "
    "no-new-privileges seccomp approved-files own-uid no-network limit-time limit-memory limit-processes limit-output "
    "limit-file-size limit-work-size"
)
_READ_ONLY: Final = "in a container, the current folder is a copy that cannot be written to; WORK_DIR can"
_RUNTIME_HINT: Final = (
    'let Podman use runc: install it, write runtime = "runc" below [engine] in ~/.config/containers/containers.conf'
)
_SUPPORTED: Final = (
    "skill_dir script argv stdin env network project project_named cwd files limits tree on_started on_attempt stop"
)
"""The fields of a job that this runner knows. A job that sets another one is refused. There are no attempts without
hosts, which are not among them."""
_UNPACK: Final = """
import sys, tarfile
tarfile.TarFile.extraction_filter = staticmethod(lambda member, path: member)
tarfile.open(fileobj=sys.stdin.buffer, mode="r|").extractall("/")
"""

_FIRST: Final = r"""
import contextlib, ctypes, json, os, resource, select, signal, stat, sys

PLACES = ("/work", "/tmp", "/var/tmp", "/run", "/dev/shm")
DEVICES = "null zero full random urandom tty console pts ptmx fd stdin stdout stderr shm mqueue core"
libc = ctypes.CDLL(None, use_errno=True)

def message():
    head = sys.stdin.buffer.read(4)
    if len(head) < 4: raise SystemExit  # the host is gone
    return sys.stdin.buffer.read(int.from_bytes(head, "big"))

def send(kind, data=b""):
    data = memoryview(kind + len(data).to_bytes(4, "big") + data)
    while data: data = data[os.write(1, data):]

def read(path):
    with open(path, encoding="utf-8", errors="replace") as file: return file.read(1 << 18)

def number(*paths, key=""):
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            for line in read("/sys/fs/cgroup/" + path).splitlines():
                *words, value = line.split()
                if " ".join(words) == key: return int(value)
    return -1

def kills(): return number("memory.events", "memory/memory.oom_control", key="oom_kill")

def gaps(job):  # what is not protected, by what the kernel says
    status = dict(line.split(":\t", 1) for line in read("/proc/self/status").splitlines() if ":\t" in line)
    mounts = {line.split()[4].encode().decode("unicode_escape") for line in read("/proc/self/mountinfo").splitlines()}
    writable = [path for path in mounts if os.access(path, os.W_OK) and os.stat(path).st_rdev != os.makedev(1, 3)]
    interfaces = [line.split(":")[0].strip() for line in read("/proc/net/dev").splitlines() if ":" in line]
    kept = {
        "capabilities are left": all(int(status[name], 16) == 0 for name in status if name.startswith("Cap")),
        "new privileges are possible": status["NoNewPrivs"] == "1",
        "the engine's system call filter is not in force": status["Seccomp"] == "2",
        "it does not run as the user without rights": status["Uid"].split() == [job["user"]] * 4,
        "other processes are visible": [name for name in os.listdir("/proc") if name.isdigit()] == ["1"],
        "its memory can be written to": os.stat("/proc/self/mem").st_uid != os.getuid(),
        "/ or /skill can be written to": all(os.statvfs(path).f_flag & os.ST_RDONLY for path in ("/", "/skill")),
        "its memory is not limited": 0 < number("memory.max", "memory/memory.limit_in_bytes") <= job["memory_bytes"],
        "its processes are not limited": 0 < number("pids.max", "pids/pids.max") <= job["processes"] + 1,
        "the kernel does not say when memory ran out": kills() >= 0,
        "a network is there": job["network"] or interfaces == ["lo"],
        "devices of the host are visible": set(os.listdir("/dev")) <= set(DEVICES.split()),
        "more than its folders can be written to": {*writable} <= {*PLACES, "/dev/mqueue"},
        "its folders are too large": all(one.f_blocks * one.f_frsize <= job["size"] for one in map(os.statvfs, PLACES)),
    }
    return [gap for gap, is_kept in kept.items() if not is_kept]

def become(job, program, calls, descriptors):
    for name in (signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT): signal.signal(name, signal.SIG_DFL)
    os.setsid()
    for place, descriptor in enumerate(descriptors): os.dup2(descriptor, place)
    libc.prctl(4, 1, 0, 0, 0)  # dumpable again; before, this file belongs to root
    with open("/proc/self/oom_score_adj", "w") as file: file.write("1000")  # the kernel ends this, not the first one
    os.nice(5)
    os.closerange(3, 1 << 16)
    most = {"CPU": int(job["seconds"]) + 1, "FSIZE": job["file_bytes"], "AS": job["memory_bytes"] + job["reserve"]}
    for name, value in most.items(): resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value))
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
    (output, out), (errors, err), given = os.pipe(), os.pipe(), os.memfd_create("input")
    with open(given, "wb", closefd=False) as file: file.write(message())
    os.lseek(given, 0, os.SEEK_SET)
    script = os.fork()
    if not script:
        try: become(job, program, calls, (given, out, err))
        except BaseException as error: os.write(2, ("the script could not be started: %s\n" % error).encode())
        os._exit(126)
    for one in (out, err, given): os.close(one)
    for one in (output, errors): os.set_blocking(one, False)
    streams, ended, room = {output: b"O", errors: b"E"}, {}, job["output_bytes"]

    def pass_on(one):
        nonlocal room
        try: data = os.read(one, 1 << 15)
        except BlockingIOError: return False
        if data: send(streams[one], data)
        else: streams.pop(one)
        room -= len(data)
        return bool(data)

    while script not in ended and not why:
        for one in select.select([0, *streams], [], [], 0.025)[0]:
            if one in streams: pass_on(one)
            else: message()  # there is none: the host is gone
        ended.update(reap(os.WNOHANG))
        if room < 0: why = "output-limit"
        if sum(one.f_files - one.f_ffree for one in map(os.statvfs, PLACES)) > job["entries"]: why = "files-limit"
        if kills() > before: why = "memory-limit"
    kill()
    ended.update(reap(0))
    for one in tuple(streams):
        while pass_on(one): pass
    state = ended.get(script, signal.SIGKILL)
    code = 128 + os.WTERMSIG(state) if os.WIFSIGNALED(state) else os.WEXITSTATUS(state)
    return {"code": code, "ended": "memory-limit" if kills() > before else why}

def send_files(job):
    room, left = job["work_bytes"], {True: job["files"], False: job["files"]}
    for folder, folders, files in os.walk("/work"):
        for name in sorted((*folders, *files)):
            place, reason = folder + "/" + name, ""
            path = os.fsencode(place[len("/work/"):])
            try:
                mode = os.lstat(place).st_mode
                if not stat.S_ISLNK(mode): os.chmod(place, 0o700)  # the script may have locked it
                if stat.S_ISDIR(mode) and path.count(b"/") < job["depth"]: continue
                if stat.S_ISDIR(mode): reason = "more than %d folders deep" % job["depth"]
                elif not stat.S_ISREG(mode): reason = "a symbolic link" if stat.S_ISLNK(mode) else "not a regular file"
                elif not left[True]: reason = "more than %d files" % job["files"]
                elif os.stat(place).st_size > min(room, job["file_bytes"]):
                    reason = "too large for what was left of the limit"
                else:
                    with open(place, "rb") as file:
                        send(b"F", path)
                        for piece in iter(lambda: file.read(1 << 15), b""): send(b"D", piece)
                    room -= os.stat(place).st_size
            except OSError as error: reason = error.strerror
            if reason: send(b"L", path + b"\0" + reason.encode())
            left[not reason] -= 1
            if left[False] < 0: return
        folders[:] = sorted(folders) if folder.count("/") <= job["depth"] else []

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


class Engine:
    """The program of an engine. `socket` is the path of a socket, or empty for the engine that the program knows."""

    def __init__(self, program: str, socket: str = "") -> None:
        self.program = program
        address = {name: f"unix://{socket}" for name in ("DOCKER_HOST", "CONTAINER_HOST") if socket}
        self.env = {**os.environ, **address}

    def call(self, *words: str, stdin: IO[bytes] | int = subprocess.DEVNULL) -> str:
        """Run a command of the engine and return what it says. Raises `SandboxUnavailable`."""
        line = (self.program, *words)
        try:
            done = subprocess.run(line, stdin=stdin, capture_output=True, env=self.env, timeout=CALL_SECONDS)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxUnavailable(f"{self.program} does not answer") from error
        if done.returncode:
            why = _complaint(done.stderr) or f"status {done.returncode}"
            raise SandboxUnavailable(f"{self.program} says: {why}", install=_RUNTIME_HINT if "crun" in why else "")
        return done.stdout.decode("utf-8", "replace")

    def made(self) -> list[str]:
        """The containers of runs."""
        return self.call("ps", "--all", "--format", "{{.Names}}", "--filter", f"label={LABEL}").split()

    def remove(self, name: str) -> None:
        """Remove a container and its volumes."""
        with suppress(SandboxUnavailable):
            self.call("rm", "--force", "--volumes", name)

    def sweep(self) -> None:
        """Remove what processes left that were killed. That of other machines stays: whether they live is unknown."""
        for name in self.made():
            if process.has_ended("-".join(name.split("-")[1:4])) is True:
                self.remove(name)


def _complaint(said: bytes) -> str:
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    return next((line for line in lines if "rror" in line), lines[-1] if lines else "")[:500]


@functools.cache
def engine_for(socket: str) -> Engine:
    """The first engine that answers. It removes what is left of processes that were killed."""
    tried: list[str] = []
    for program in filter(shutil.which, reversed(ENGINES) if "DOCKER_HOST" in os.environ else ENGINES):
        engine = Engine(program, socket)
        try:
            engine.call("version")
        except SandboxUnavailable as error:
            tried.append(error.message)
            continue
        with suppress(SandboxUnavailable):
            engine.sweep()
        return engine
    message = "; ".join(tried) or "neither podman nor docker is installed"
    raise SandboxUnavailable(message, install="install Podman, or start Docker")


@functools.cache
def _try(engine: Engine, image: str) -> None:
    """Start a container and run nothing in it."""
    with _started(engine, image, Job("/", ""), SkillTree(()), Recognised("python", (), named=True)):
        pass


class ContainerRunner:
    """Runs each script in a container of its own.

    `image` must have Python 3.8 or later as `python3`, and is never pulled. `socket` is the path of the engine's Unix
    socket. Without it, `podman`, or else `docker`, finds the engine as it always does.
    """

    name = "container"

    def __init__(self, image: str = CONTAINER_IMAGE, socket: str | None = None) -> None:
        self.image, self.socket = image, socket

    def problem(self) -> str | None:
        return self._examined()[0] or None

    def remedy(self) -> str:
        return self._examined()[1]

    def _examined(self) -> tuple[str, str]:
        """Why scripts cannot run here, if they cannot, and what the user can do about it."""
        try:
            _try(self._ready(), self.image)
        except SandboxUnavailable as error:
            return ": ".join(part for part in (error.message, "; ".join(error.tried)) if part), error.install
        except ScriptRefused as error:
            return str(error), ""
        return "", ""

    def _ready(self) -> Engine:
        """The engine, which has the image."""
        engine = engine_for(self.socket or "")
        try:
            engine.call("image", "inspect", "--format", "{{.Id}}", self.image)
        except SandboxUnavailable as error:
            message = f"the image {self.image} is not there, and images are not downloaded unasked"
            raise SandboxUnavailable(message, install=f"{engine.program} pull {self.image}") from error
        return engine

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        for field in dataclasses.fields(job):
            default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
            if field.name not in _SUPPORTED.split() and getattr(job, field.name) != default:
                hint = '; set run.packages = "never", and have the image bring them' if field.name == "packages" else ""
                raise SandboxUnavailable(f"the runner container does not support {field.name} of a run yet{hint}")
        tree = approved_tree(job)
        script = recognise(tree, job.script)
        engine, started = self._ready(), time.monotonic()
        with _started(engine, self.image, job, tree, script) as run:
            names = tuple(name for name in _PROTECTIONS.split() if name != "no-network" or not job.network)
            job.started(names)
            output = PumpedOutput(job.limits.output_bytes)
            ended, code, notes = run.supervise(job, output, on_output)
            made = run.files(CollectedFiles(job.limits), job.limits)
            notes += (_READ_ONLY,) if code and job.cwd is not None else ()
            return outcome(job, ended, output, code=code, started=started, made=made, protections=names, notes=notes)


class _Run:
    """A container whose first process waits for the word to start the script. One thread reads from it."""

    def __init__(self, engine: Engine, name: str, line: list[str]) -> None:
        self._engine, self._name, self._calls = engine, name, b""
        self._said, self._over = tempfile.TemporaryFile(), False  # noqa: SIM115 - closed in `close`
        self._process = subprocess.Popen(  # noqa: S603 - not in the session of a terminal, whose signals it passes on
            [engine.program, *line], stdin=-1, stdout=-1, stderr=self._said, env=engine.env, start_new_session=True
        )
        assert self._process.stdin
        assert self._process.stdout
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._timer = threading.Timer(0, self._process.kill)

    def close(self) -> None:
        """Remove the container, if it has not ended and removed itself."""
        with suppress(OSError):
            self._stdin.close()
        self.at_most(END_SECONDS)
        try:
            if (self._process.wait() if self._over else 1) != 0:
                self._engine.remove(self._name)
        finally:
            self.at_most(0)
            self._process.kill()
            self._process.wait()
            self._stdout.close()
            self._said.close()

    def at_most(self, seconds: float) -> None:
        """Leave the container if what follows takes longer. It is then removed. 0 is for no limit."""
        self._timer.cancel()
        self._timer = threading.Timer(seconds, self._process.kill)
        self._timer.daemon = True
        if seconds:
            self._timer.start()

    def send(self, content: bytes) -> None:
        with suppress(OSError):  # the end of what comes back says why
            self._stdin.write(len(content).to_bytes(4, "big") + content)
            self._stdin.flush()

    def receive(self) -> tuple[bytes, bytes]:
        """The next frame. Raises `SandboxUnavailable` at the end."""
        kind, length = self._read(1), int.from_bytes(self._read(4), "big")
        if length > 256 * KIB:
            raise SandboxUnavailable("the container sends a frame that is too long")
        return kind, self._read(length)

    def _read(self, size: int) -> bytes:
        data = self._stdout.read(size)
        if len(data) < size:
            self._said.seek(0)
            why = _complaint(self._said.read(64 * KIB))
            hint = _RUNTIME_HINT if "crun" in why else ""
            raise SandboxUnavailable(f"the container ended early{f': {why}' if why else ''}", install=hint)
        return data

    def check(self, told: dict[str, Any], image: str, job: Job) -> None:
        """Tell the first process what to do, and verify its report."""
        self.at_most(START_SECONDS)
        self.send(json.dumps(told).encode())
        kind, content = self.receive()
        self.at_most(0)
        try:
            report = as_table(parse_json(content) if kind == b"R" else None)
        except (ValueError, RecursionError) as error:
            raise SandboxUnavailable("the container sends something that makes no sense") from error
        gaps, machine = report.get("gaps"), str(report.get("machine"))
        if gaps != [] or machine not in ARCHITECTURES:
            tried = [str(gap) for gap in gaps] if is_list(gaps) else []
            raise SandboxUnavailable("the container lacks protections", tried=tried or [f"no filter for {machine}"])
        if not report.get("program"):
            message = f"it needs {told['programs'][0]}, which the image {image} does not have"
            raise ScriptRefused(job.script, "interpreter-missing", message)
        self._calls = filter_of(machine, network=job.network)

    def supervise(
        self, job: Job, output: PumpedOutput, on_output: OnOutput | None
    ) -> tuple[Ended, int, tuple[str, ...]]:
        """Start the script, and pass input and output on until no process of it is left."""
        watch = Watch(job.limits.seconds, self._end, (), job.stop)
        try:
            with watch:
                self.send(self._calls)
                self.send(job.stdin or b"")
                while (frame := self.receive())[0] != b"X":
                    stream: sandbox.Stream = "stdout" if frame[0] == b"O" else "stderr"
                    pass_on(stream, frame[1], output, on_output, lambda: watch.finish("output-limit"))
            end = as_table(parse_json(frame[1]))
        except (SandboxUnavailable, ValueError) as error:
            return watch.ended or "killed", 137, (str(error),)
        reached, code = watch.ended or end.get("ended"), end.get("code")
        if reached in ("timeout", "killed", "output-limit", "memory-limit", "files-limit"):
            return reached, 137, ()
        return "exit", code if isinstance(code, int) else 137, ()

    def _end(self) -> None:
        """Tell the first process to end everything. It takes the signal even while it waits for us to read."""
        self.at_most(END_SECONDS)
        with suppress(SandboxUnavailable):
            self._engine.call("kill", "--signal", "TERM", self._name)

    def files(
        self, found: CollectedFiles, most: sandbox.RunLimits
    ) -> tuple[tuple[sandbox.WrittenFile, ...], tuple[str, ...]]:
        """The files that the script left, checked again on this side."""
        files, latest, room = dict[str, bytearray](), bytearray(), most.work_bytes
        self.at_most(COLLECT_SECONDS)
        try:
            while (frame := self.receive())[0] != b".":
                kind, content = frame
                path, _, why = content.decode("utf-8", "surrogateescape").partition("\0")
                if kind == b"L":
                    found.leave_out(path, why)
                elif kind == b"F" and not why and path not in files and not {"", ".", ".."} & set(path.split("/")):
                    latest = files[path] = bytearray()
                elif kind == b"D":
                    latest += content
                    room -= len(content)
                else:
                    raise SandboxUnavailable("the container sends a file that cannot be in the work folder")
                if room < 0 or len(latest) > most.file_bytes or len(files) > most.files:
                    raise SandboxUnavailable("the container sends more than the limit of the work folder")
            self._over = True
        except SandboxUnavailable as error:
            return (), (f".: the files could not be fetched: {error}",)
        for path, data in files.items():
            found.keep(path, bytes(data))
        return found.files(), found.left_out()


@contextmanager
def _started(engine: Engine, image: str, job: Job, tree: SkillTree, script: Recognised) -> Generator[_Run]:
    """Start a container with everything but the script. When the context ends, nothing of it is left."""
    below = os.path.relpath(job.cwd, job.project) if job.cwd is not None and job.project is not None else ""
    here = posixpath.normpath(posixpath.join(PROJECT_DIR, below))
    name = f"metier-{process.current()}-{secrets.token_hex(8)}"
    places = (SKILL_DIR, PROJECT_DIR) if job.project is not None or job.files else (SKILL_DIR,)
    size = max(job.limits.work_bytes, 64 * KIB)
    with ExitStack() as stack:
        archive = stack.enter_context(tempfile.TemporaryFile())
        _pack(archive, job, tree, here)
        stack.callback(engine.remove, f"{name}-files")
        volumes = " ".join(f"--volume {place}" for place in places)
        unpack = f"{_ISOLATED} --name {name}-files --network none --user 0:0 {volumes}".split()
        engine.call(*unpack, image, "-I", "-S", "-c", _UNPACK, stdin=archive)
        line = (
            f"{_ISOLATED} --rm --name {name} --volumes-from {name}-files:ro --user {USER}:{USER} "
            f"--pids-limit {job.limits.processes + 1} "  # and the first
            f"--memory {job.limits.memory_bytes} --memory-swap {job.limits.memory_bytes} --shm-size {size} "
            f"--tmpfs {WORK_DIR}:rw,exec,nosuid,nodev,size={size},mode=1777 "
            f"--tmpfs /tmp:rw,exec,nosuid,nodev,size={size},mode=1777 "
            f"--tmpfs /run:rw,nosuid,nodev,size=65536,mode=0755 --tmpfs /var/tmp:rw,nosuid,nodev,size=65536,mode=0755 "
            f"{'--network bridge' if job.network else f'--network none {_HIDDEN}'}"
        )
        run = _Run(engine, name, [*line.split(), image, "-I", "-S", "-c", _FIRST])
        stack.callback(run.close)
        told: dict[str, Any] = {
            **dataclasses.asdict(job.limits),
            "programs": script.names,
            "argv": [*script.flags, f"{SKILL_DIR}/{job.script}", *job.argv],
            "cwd": here if job.cwd is not None or job.files else WORK_DIR,
            "env": fixed_variables(job, SKILL_DIR, WORK_DIR, PROJECT_DIR, "/tmp"),  # noqa: S108
            "reserve": NODE_RESERVE if script.kind == "node" else 0,
            "network": job.network,
            "user": USER,
            "size": size + 64 * KIB,  # the largest page
            "entries": job.limits.files * ENTRIES_FACTOR,
            "depth": DEPTH,
        }
        run.check(told, image, job)
        yield run


def _pack(file: IO[bytes], job: Job, tree: SkillTree, here: str) -> None:
    """An archive of the files that a container is given, which belong to root. Links are stored as links."""
    given = {posixpath.join(here, name)[1:]: data for name, data in job.files.items()}
    room, count = limits.TREE_BYTES, 0

    def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        nonlocal room, count
        vars(archive)["inodes"].clear()  # every name of a file has its bytes
        room, count = room - entry.size, count + 1
        if room < 0 or count > limits.TREE_FILES:
            most = f"{limits.TREE_BYTES // limits.MIB} MiB or {limits.TREE_FILES:,} files and folders"
            message = f"the project has more than {most}, which is too much to be copied into a container"
            raise ScriptRefused(job.script, "project-too-large", message)
        plain = entry.isreg() or entry.isdir() or entry.issym()
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
            message = f"the project cannot be copied: {error.strerror or error}"
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
