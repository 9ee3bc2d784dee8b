"""Runs scripts in a container, over the socket of Docker or Podman, for machines without bubblewrap.

How a run works: the approved files of the skill are uploaded into a volume, which the container then mounts read-only.
No folder of the host is mounted, so the engine may be on another machine. The container has no network, no
capabilities, a read-only root and limits. Its first process is our own (see `container_init.py`). What the engine says
about the container is verified before it starts, and what the kernel says before the script starts.

The folders that a script can write to are in memory and vanish with the container. An engine cannot read such a folder
from outside, so the first process sends what the script left. It also ends everything when its connection to the host
is gone, and the engine then removes the container: a host that is killed leaves a volume with the skill's files, which
the next host on this machine removes. Arguments and variables travel over the connection, so the engine never sees
them.

The invariant: every protection is verified before the first instruction of a script runs, and the container is removed
on every way out.
"""

import dataclasses
import functools
import json
import os
import posixpath
import secrets
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Final
from urllib.parse import quote

from metier.files.tree import SkillTree
from metier.hosts.schema import CONTAINER_IMAGE
from metier.limits import KIB
from metier.sandbox import (
    PROJECT_DIR,
    SKILL_DIR,
    WORK_DIR,
    Ended,
    Job,
    OnOutput,
    Outcome,
    SandboxUnavailable,
    ScriptRefused,
    Stream,
    WrittenFile,
    seccomp,
)
from metier.sandbox import container_evidence as evidence
from metier.sandbox.base import ProcessRunner, approved_tree
from metier.sandbox.collect import DEPTH
from metier.sandbox.container_archive import project_archive, skill_archive
from metier.sandbox.container_channel import Channel, Collection, table_of
from metier.sandbox.container_engine import Engine, EngineError, is_socket
from metier.sandbox.container_owner import LABEL, owner, sweep
from metier.sandbox.interpreter import NODE_RESERVE, Recognised, recognise
from metier.sandbox.mounts import ENTRIES_FACTOR, fixed_variables
from metier.sandbox.pump import PumpedOutput, pass_on
from metier.sandbox.watch import Watch

START_SECONDS: Final = 60.0
END_SECONDS: Final = 20.0
"""How long the first process may take to end everything after it was told to. Then the engine ends the container."""
COLLECT_SECONDS: Final = 120.0
REMOVE_SECONDS: Final = 10.0
OPEN_FILES: Final = 256
USER_PROCESSES: Final = 1000
"""Processes of the script's user on the whole machine, in all containers. Each container has its own limit, too."""
_INIT: Final = os.path.join(os.path.dirname(__file__), "container_init.py")
_HARDLY_WRITTEN: Final = "rw,nosuid,nodev,size=65536,mode=0755"
"""For folders that Podman makes writable. The mode is that of the image, if it has the folder."""
_READ_ONLY: Final = "in a container, the current folder is a copy that cannot be written to; WORK_DIR can"
_SUPPORTED: Final = frozenset(
    (
        "skill_dir",
        "script",
        "argv",
        "stdin",
        "env",
        "network",
        "project",
        "project_protected",
        "cwd",
        "files",
        "limits",
        "tree",
        "on_started",
        "on_attempt",  # there are none without hosts
    )
)
"""The fields of a job that this runner knows. A job that sets another one is refused."""


class ContainerRunner(ProcessRunner):
    """Runs each script in a container of its own.

    `image` must have Python 3.8 or later as `python3`, and is never pulled. `socket` is the path of the engine's Unix
    socket. Without it, the one in `DOCKER_HOST` or `CONTAINER_HOST` is used, or else the usual ones of Podman and
    Docker.
    """

    name = "container"

    def __init__(self, image: str = CONTAINER_IMAGE, socket: str | None = None) -> None:
        self.image, self.socket = image, socket

    def problem(self) -> str | None:
        try:
            engine = self._ready()
        except SandboxUnavailable as error:
            return error.message
        return _try_out(engine.path, self.image)

    def remedy(self) -> str:
        try:
            self._ready()
        except SandboxUnavailable as error:
            return error.install
        return ""

    def execute(self, job: Job, on_output: OnOutput | None, stop: threading.Event | None) -> Outcome:
        _refuse_unknown(job)
        tree = approved_tree(job)
        script = recognise(tree, job.script)
        engine = self._ready()
        started = time.monotonic()
        with ExitStack() as stack:
            try:
                run = stack.enter_context(_started(engine, self.image, job, tree, script))
            except EngineError as error:
                raise SandboxUnavailable(str(error)) from error
            job.started(run.protections)
            ended, code, notes = run.supervise(on_output, stop)
            output = run.output
            files, left_out = run.files()
            return Outcome(
                exit_code=code,
                ended=ended,
                duration_ms=int((time.monotonic() - started) * 1000),
                stdout=bytes(output.kept["stdout"]),
                stderr=bytes(output.kept["stderr"]),
                stdout_total=output.totals["stdout"],
                stderr_total=output.totals["stderr"],
                files=files,
                left_out=left_out,
                protections=run.protections,
                notes=(*notes, *([_READ_ONLY] if code and job.cwd is not None else ())),
            )

    def _ready(self) -> Engine:
        """The engine, which has the image."""
        engine = Engine(self.socket or find_socket())
        try:
            engine.call("GET", f"/images/{quote(self.image)}/json")
        except EngineError as error:
            if error.status != 404:
                raise SandboxUnavailable(str(error), install="" if error.status else _START_HINT) from error
            program = "docker" if "docker" in os.path.basename(engine.path) else "podman"
            message = f"the image {self.image} is not there, and images are not downloaded unasked"
            raise SandboxUnavailable(message, install=f"{program} pull {self.image}") from error
        with suppress(EngineError):
            _sweep_once(engine.path)
        return engine


_START_HINT: Final = "start Docker, or Podman with: systemctl --user start podman.socket"


def find_socket(env: Mapping[str, str] = os.environ) -> str:
    """The path of the engine's socket. Raises `SandboxUnavailable` if there is none that can be used."""
    for name in ("DOCKER_HOST", "CONTAINER_HOST"):
        if address := env.get(name, ""):
            if not address.startswith("unix://"):
                message = f"{name} is {address}; only a Unix socket (unix://PATH) is used"
                raise SandboxUnavailable(
                    message, install=f"forward a remote engine to a socket with ssh -L, and set {name}"
                )
            return address.removeprefix("unix://")
    folder = env.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    usual = (f"{folder}/podman/podman.sock", "/run/podman/podman.sock", f"{folder}/docker.sock", "/var/run/docker.sock")
    found = next((path for path in usual if is_socket(path) and os.access(path, os.R_OK | os.W_OK)), None)
    if found is None:
        raise SandboxUnavailable("there is no socket of Docker or Podman that this user can use", install=_START_HINT)
    return found


@functools.cache
def _sweep_once(path: str) -> None:
    sweep(Engine(path))


@functools.cache
def _try_out(path: str, image: str) -> str | None:
    """Start a container and run nothing in it. The answer is kept for this process."""
    job, script = Job("/", ""), Recognised("python", (), named=True)
    try:
        with _started(Engine(path), image, job, SkillTree(()), script):
            return None
    except (EngineError, ScriptRefused) as error:
        return str(error)
    except SandboxUnavailable as error:
        return ": ".join(part for part in (error.message, "; ".join(error.tried)) if part)


def _refuse_unknown(job: Job) -> None:
    """Refuse a job that grants or asks for something that this runner does not know, instead of ignoring it."""
    for one in dataclasses.fields(job):
        default = one.default_factory() if one.default_factory is not dataclasses.MISSING else one.default
        if one.name not in _SUPPORTED and getattr(job, one.name) != default:
            hint = '; set run.packages = "never", and have the image bring them' if one.name == "packages" else ""
            raise SandboxUnavailable(f"the runner container does not support {one.name} of a run yet{hint}")


# --- one run ---


class _Run:
    """A container whose first process waits for the word to start the script."""

    def __init__(self, engine: Engine, container: str, channel: Channel, job: Job, machine: str) -> None:
        self._engine, self._container, self._channel, self._job = engine, container, channel, job
        self._calls = seccomp.program(machine, network=job.network)
        self._collection = Collection(job.limits)
        self._ended_well = False
        self.protections = evidence.protections(job)
        self.output = PumpedOutput(job.limits.output_bytes)

    def supervise(self, on_output: OnOutput | None, stop: threading.Event | None) -> tuple[Ended, int, tuple[str, ...]]:
        """Start the script, and pass input and output on until no process of it is left."""
        self._channel.send(b"G", self._calls)
        self._channel.feed(self._job.stdin or b"")
        end: Mapping[str, object] | None = None
        why = ""
        with Watch(self._job.limits.seconds, self._end, (), stop) as watch:
            try:
                end = self._pump(on_output, watch)
            except EngineError as error:
                why = str(error)
        code = end.get("code") if end is not None else None
        reason = end.get("ended") if end is not None else None
        self._ended_well = end is not None
        if watch.ended is not None or reason in ("memory-limit", "files-limit"):
            reached: Ended = watch.ended or ("memory-limit" if reason == "memory-limit" else "files-limit")
            return reached, 137, ()
        if not isinstance(code, int):
            return "killed", 137, (why or "the container did not say how the script ended",)
        return "exit", code, ()

    def _pump(self, on_output: OnOutput | None, watch: Watch) -> Mapping[str, object]:
        streams: Mapping[bytes, Stream] = {b"O": "stdout", b"E": "stderr"}
        deadline = float("inf")
        while time.monotonic() < deadline:
            for kind, content in self._channel.frames():
                if kind == b"X":
                    return table_of(content)
                if kind in streams:
                    flood = functools.partial(watch.finish, "output-limit")
                    pass_on(streams[kind], content, self.output, on_output, flood)
                    self._channel.read(content)
            if watch.ended is not None and deadline == float("inf"):
                deadline = time.monotonic() + END_SECONDS
        raise EngineError("the container did not end in time")

    def _end(self) -> None:
        """Tell the first process to end everything. It takes the signal even while it waits for us to read."""
        with suppress(EngineError):
            self._engine.call("POST", f"/containers/{self._container}/kill", {"signal": "SIGTERM"})

    def files(self) -> tuple[tuple[WrittenFile, ...], tuple[str, ...]]:
        """The files that the script left."""
        deadline = time.monotonic() + COLLECT_SECONDS
        try:
            while self._ended_well and time.monotonic() < deadline:
                for kind, content in self._channel.frames():
                    if kind == b".":
                        return self._collection.result()
                    self._collection.take(kind, content)
                    if kind == b"D":
                        self._channel.read(content)
            raise EngineError("the container ended too early")
        except EngineError as error:
            return (), (f".: the files could not be fetched: {error}",)


@contextmanager
def _started(engine: Engine, image: str, job: Job, tree: SkillTree, script: Recognised) -> Generator[_Run]:
    """Start a container with everything but the script. When the context ends, nothing of it is left."""
    with ExitStack() as stack:
        volumes = {SKILL_DIR: _volume(stack, engine, image, stack.enter_context(skill_archive(tree)))}
        if job.project is not None or job.files:
            archive = stack.enter_context(project_archive(job.project, job.script, job.files, _below_project(job)))
            volumes[PROJECT_DIR] = _volume(stack, engine, image, archive)
        container = _create(stack, engine, _configuration(image, job, volumes))
        gaps = evidence.inspected_gaps(engine.table("GET", f"/containers/{container}/json"), job, volumes)
        if gaps:
            raise SandboxUnavailable("the container lacks protections", tried=gaps)
        channel = Channel(engine.attach(container))
        stack.callback(channel.close)
        engine.call("POST", f"/containers/{container}/start")
        channel.send(b"J", json.dumps(_told(job, script)).encode())
        report = table_of(channel.expect(b"R", time.monotonic() + START_SECONDS))
        if gaps := evidence.reported_gaps(report, job):
            raise SandboxUnavailable("the container lacks protections", tried=gaps)
        if not report.get("program"):
            message = f"it needs {script.names[0]}, which the image {image} does not have"
            raise ScriptRefused(job.script, "interpreter-missing", message)
        yield _Run(engine, container, channel, job, str(report["machine"]))


def _below_project(job: Job) -> str:
    """The current folder of the script, as a path in its copy of the project."""
    if job.cwd is None or job.project is None:
        return ""
    below = os.path.relpath(job.cwd, job.project)
    return "" if below == "." else below


def _told(job: Job, script: Recognised) -> dict[str, object]:
    """What the first process of the container is told."""
    limits = job.limits
    return {
        "programs": script.names,
        "argv": [*script.flags, f"{SKILL_DIR}/{job.script}", *job.argv],
        "cwd": posixpath.join(PROJECT_DIR, _below_project(job)) if job.cwd is not None or job.files else WORK_DIR,
        "env": fixed_variables(job, SKILL_DIR, WORK_DIR, PROJECT_DIR, "/tmp"),  # noqa: S108
        "limits": {
            "CORE": 0,
            "CPU": int(limits.seconds) + 1,
            "FSIZE": limits.file_bytes,
            "AS": limits.memory_bytes + (NODE_RESERVE if script.kind == "node" else 0),
        },
        "entries": limits.files * ENTRIES_FACTOR,
        "files": limits.files,
        "file_bytes": limits.file_bytes,
        "work_bytes": limits.work_bytes,
        "depth": DEPTH,
    }


def _configuration(image: str, job: Job, volumes: Mapping[str, str]) -> dict[str, object]:
    limits = job.limits
    size = max(limits.work_bytes, 64 * KIB)
    writable = f"rw,exec,nosuid,nodev,size={size},mode=1777"
    mounts = [{"Type": "volume", "Source": name, "Target": place, "ReadOnly": True} for place, name in volumes.items()]
    return {
        "Image": image,
        "User": f"{evidence.USER}:{evidence.USER}",
        "Entrypoint": ["python3", "-I", "-S", "-c", _init_code()],
        "Cmd": [],
        "WorkingDir": "/",
        "Hostname": "skill",
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Labels": {LABEL: owner()},
        "HostConfig": {
            "NetworkMode": "bridge" if job.network else "none",
            "ReadonlyRootfs": True,
            "AutoRemove": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "IpcMode": "private",
            "PidsLimit": limits.processes + 1,  # and the first process
            "Memory": limits.memory_bytes,
            "MemorySwap": limits.memory_bytes,
            "ShmSize": size,
            "Tmpfs": {WORK_DIR: writable, "/tmp": writable, "/run": _HARDLY_WRITTEN, "/var/tmp": _HARDLY_WRITTEN},  # noqa: S108
            "Ulimits": [
                {"Name": name, "Soft": most, "Hard": most}
                for name, most in (("nofile", OPEN_FILES), ("nproc", USER_PROCESSES), ("core", 0))
            ],
            "LogConfig": {"Type": "none"},  # the output of a script is nobody else's
            "Mounts": mounts,
        },
    }


@functools.cache
def _init_code() -> str:
    with open(_INIT, encoding="utf-8") as file:
        return file.read()


def _volume(stack: ExitStack, engine: Engine, image: str, archive: IO[bytes]) -> str:
    """A volume with the files of an archive. An engine unpacks only into a container, so one is created for that."""
    name = f"metier-{secrets.token_hex(8)}"
    stack.callback(_remove, engine, f"/volumes/{name}")  # also if the engine does not answer
    engine.call("POST", "/volumes/create", body={"Name": name, "Labels": {LABEL: owner()}})
    with ExitStack() as carrier:
        mount = {"Type": "volume", "Source": name, "Target": SKILL_DIR}
        host = {"NetworkMode": "none", "Mounts": [mount]}
        labels = {LABEL: owner()}
        created = {"Image": image, "User": "0:0", "Cmd": ["true"], "Labels": labels, "HostConfig": host}
        container = _create(carrier, engine, created)
        engine.call("PUT", f"/containers/{container}/archive", {"path": SKILL_DIR}, archive=archive)
    return name


def _create(stack: ExitStack, engine: Engine, configuration: Mapping[str, object]) -> str:
    """Create a container under a name of our own."""
    name = f"metier-{secrets.token_hex(8)}"
    stack.callback(_remove, engine, f"/containers/{name}")
    engine.call("POST", "/containers/create", {"name": name}, body=configuration)
    return name


def _remove(engine: Engine, path: str) -> None:
    """Remove a container or a volume, and wait until it is gone. The engine may be about to remove it by itself."""
    deadline = time.monotonic() + REMOVE_SECONDS
    while time.monotonic() < deadline:
        try:
            engine.call("DELETE", path, {"force": "1"})
        except EngineError as error:
            if error.status in (0, 404):
                return
            time.sleep(0.02)
        else:
            return
