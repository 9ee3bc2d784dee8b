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
import stat
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Final
from urllib.parse import quote

from metier.files.shapes import as_table, is_list
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
    SandboxUnavailable,
    ScriptRefused,
    Stream,
    WrittenFile,
    seccomp,
)
from metier.running.sandbox import container_evidence as evidence
from metier.running.sandbox.base import PumpedOutput, Watch, approved_tree, outcome, pass_on
from metier.running.sandbox.collect import DEPTH
from metier.running.sandbox.container_archive import project_archive, skill_archive
from metier.running.sandbox.container_engine import (
    LABEL,
    Channel,
    Collection,
    Engine,
    EngineError,
    owner,
    sweep,
    table_of,
)
from metier.running.sandbox.interpreter import NODE_RESERVE, Recognised, own_program, recognise
from metier.running.sandbox.mounts import ENTRIES_FACTOR, fixed_variables

START_SECONDS: Final = 60.0
END_SECONDS: Final = 20.0
"""How long the first process may take to end everything after it was told to. Then the engine ends the container."""
COLLECT_SECONDS: Final = 120.0
REMOVE_SECONDS: Final = 10.0
OPEN_FILES: Final = 256
USER_PROCESSES: Final = 1000
"""Processes of the script's user on the whole machine, in all containers. Each container has its own limit, too."""
_HARDLY_WRITTEN: Final = "rw,nosuid,nodev,size=65536,mode=0755"
"""For folders that Podman makes writable. The mode is that of the image, if it has the folder."""
_HIDDEN: Final = ("/proc/cmdline",)
_HIDDEN_WITHOUT_NETWORK: Final = ("/etc/hosts", "/etc/resolv.conf")
"""Docker shows the name servers of the machine in a container, and Podman the names that the machine knows."""
_READ_ONLY: Final = "in a container, the current folder is a copy that cannot be written to; WORK_DIR can"
_SECURITY: Final = ("no-new-privileges",)
_START_HINT: Final = "start Docker, or Podman with: systemctl --user start podman.socket"
_RUNTIME_HINT: Final = (
    'let Podman use runc: install it, write runtime = "runc" below [engine] in ~/.config/containers/containers.conf, '
    "and start Podman again"
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


class ContainerRunner:
    """Runs each script in a container of its own.

    `image` must have Python 3.8 or later as `python3`, and is never pulled. `socket` is the path of the engine's Unix
    socket. Without it, the one in `DOCKER_HOST` or `CONTAINER_HOST` is used, or else the usual ones of Podman and
    Docker.
    """

    name = "container"

    def __init__(self, image: str = CONTAINER_IMAGE, socket: str | None = None) -> None:
        self.image, self.socket = image, socket

    def problem(self) -> str | None:
        return self._examined()[0] or None

    def remedy(self) -> str:
        return self._examined()[1]

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
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
            ended, code, notes = run.supervise(on_output)
            made = run.files()
            return outcome(
                job,
                ended,
                run.output,
                code=code,
                started=started,
                made=made,
                protections=run.protections,
                notes=(*notes, *([_READ_ONLY] if code and job.cwd is not None else ())),
            )

    def _examined(self) -> tuple[str, str]:
        """Why scripts cannot run here, if they cannot, and what the user can do about it."""
        try:
            engine = self._ready()
        except SandboxUnavailable as error:
            return error.message, error.install
        return _tried(engine.path, self.image)

    def _ready(self) -> Engine:
        """The engine, which has the image."""
        engine = Engine(self.socket or find_socket())
        try:
            engine.call("GET", f"/images/{quote(self.image)}/json")
        except EngineError as error:
            if error.status != 404:
                raise SandboxUnavailable(str(error), install="" if error.status else _START_HINT) from error
            program = "podman" if engine.is_podman else "docker"
            message = f"the image {self.image} is not there, and images are not downloaded unasked"
            raise SandboxUnavailable(message, install=f"{program} pull {self.image}") from error
        with suppress(EngineError):
            _sweep_once(engine.path)
        return engine


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
    usual = (
        *(f"{folder}/podman/podman.sock", "/run/podman/podman.sock", f"{folder}/docker.sock", "/var/run/docker.sock"),
        f"{env.get('HOME', '')}/.docker/run/docker.sock",  # of Docker Desktop
    )
    found = next((path for path in usual if _is_usable(path)), None)
    if found is None:
        raise SandboxUnavailable("there is no socket of Docker or Podman that this user can use", install=_START_HINT)
    return found


def _is_usable(path: str) -> bool:
    with suppress(OSError):
        return stat.S_ISSOCK(os.stat(path).st_mode) and os.access(path, os.R_OK | os.W_OK)
    return False


@functools.cache
def _sweep_once(path: str) -> None:
    sweep(Engine(path))


@functools.cache
def _tried(path: str, image: str) -> tuple[str, str]:
    """Start a container and run nothing in it. The answer, as of `_examined`, is kept for this process."""
    engine, job, script = Engine(path), Job("/", ""), Recognised("python", (), named=True)
    try:
        with _started(engine, image, job, SkillTree(()), script):
            return "", ""
    except (EngineError, ScriptRefused) as error:
        return str(error), _RUNTIME_HINT if "crun" in str(error) else ""
    except SandboxUnavailable as error:
        return ": ".join(part for part in (error.message, "; ".join(error.tried)) if part), ""


def _refuse_unknown(job: Job) -> None:
    """Refuse a job that grants or asks for something that this runner does not know, instead of ignoring it."""
    for field in dataclasses.fields(job):
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        if field.name not in _SUPPORTED and getattr(job, field.name) != default:
            hint = '; set run.packages = "never", and have the image bring them' if field.name == "packages" else ""
            raise SandboxUnavailable(f"the runner container does not support {field.name} of a run yet{hint}")


# --- one run ---


class _Run:
    """A container whose first process waits for the word to start the script."""

    def __init__(self, engine: Engine, container: str, channel: Channel, job: Job, machine: str) -> None:
        self._engine, self._container, self._channel, self._job = engine, container, channel, job
        self._calls = seccomp.program(machine, network=job.network)
        self._ended_well = False
        self.protections = evidence.protections(job)
        self.output = PumpedOutput(job.limits.output_bytes)

    def supervise(self, on_output: OnOutput | None) -> tuple[Ended, int, tuple[str, ...]]:
        """Start the script, and pass input and output on until no process of it is left."""
        self._channel.send(b"G", self._calls)
        self._channel.feed(self._job.stdin or b"")
        end: Mapping[str, object] = {}
        why = "the container did not say how the script ended"
        with Watch(self._job.limits.seconds, self._end, (), self._job.stop) as watch:
            try:
                end = self._pump(on_output, watch)
                self._ended_well = True
            except EngineError as error:
                why = str(error)
        if reached := watch.ended or _REACHED.get(end.get("ended")):
            return reached, 137, ()
        code = end.get("code")
        return ("exit", code, ()) if isinstance(code, int) else ("killed", 137, (why,))

    def _pump(self, on_output: OnOutput | None, watch: Watch) -> Mapping[str, object]:
        flood = functools.partial(watch.finish, "output-limit")
        deadline = float("inf")
        while time.monotonic() < deadline:
            kind, content = self._channel.receive()
            if kind == b"X":
                return table_of(content)
            if kind in _STREAMS:
                pass_on(_STREAMS[kind], content, self.output, on_output, flood)
                self._channel.acknowledge(content)
            if watch.ended is not None and deadline == float("inf"):
                deadline = time.monotonic() + END_SECONDS
        raise EngineError("the container did not end in time")

    def _end(self) -> None:
        """Tell the first process to end everything. It takes the signal even while it waits for us to read."""
        with suppress(EngineError):
            self._engine.call("POST", f"/containers/{self._container}/kill", {"signal": "SIGTERM"})

    def files(self) -> tuple[tuple[WrittenFile, ...], tuple[str, ...]]:
        """The files that the script left."""
        collection = Collection(self._job.limits)
        deadline = time.monotonic() + COLLECT_SECONDS
        try:
            while self._ended_well and time.monotonic() < deadline:
                kind, content = self._channel.receive()
                if kind == b".":
                    return collection.result()
                collection.take(kind, content)
                if kind == b"D":
                    self._channel.acknowledge(content)
            raise EngineError("the container ended too early")
        except EngineError as error:
            return (), (f".: the files could not be fetched: {error}",)


@contextmanager
def _started(engine: Engine, image: str, job: Job, tree: SkillTree, script: Recognised) -> Generator[_Run]:
    """Start a container with everything but the script. When the context ends, nothing of it is left."""
    with ExitStack() as stack:
        archives = {SKILL_DIR: stack.enter_context(skill_archive(tree))}
        if job.project is not None or job.files:
            project = project_archive(job.project, job.script, job.files, _below_project(job))
            archives[PROJECT_DIR] = stack.enter_context(project)
        volumes = {place: _named(stack, engine, "volumes") for place in archives}
        for name in volumes.values():
            engine.call("POST", "/volumes/create", body={"Name": name, "Labels": {LABEL: owner()}})
        with ExitStack() as upload:  # an engine unpacks only into a container, so one is created for that
            carrier = _create(upload, engine, image, {"User": "0:0", "Cmd": ["true"]}, {"Mounts": _mounts(volumes)})
            for place, archive in archives.items():
                engine.call("PUT", f"/containers/{carrier}/archive", {"path": place}, archive=archive)
            host = _host_configuration(job, _masks(engine, carrier, job)) | {"Mounts": _mounts(volumes, ReadOnly=True)}
        container = _create(stack, engine, image, _configuration(), host)
        if gaps := evidence.inspected_gaps(engine.table("GET", f"/containers/{container}/json"), job, volumes):
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


def _hidden(job: Job) -> tuple[str, ...]:
    """Files with facts about the machine that a script must not read."""
    return _HIDDEN if job.network else (*_HIDDEN, *_HIDDEN_WITHOUT_NETWORK)


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
        "hidden": _hidden(job),
        "entries": limits.files * ENTRIES_FACTOR,
        "files": limits.files,
        "file_bytes": limits.file_bytes,
        "work_bytes": limits.work_bytes,
        "depth": DEPTH,
    }


def _configuration() -> dict[str, object]:
    return {
        "User": f"{evidence.USER}:{evidence.USER}",
        "Entrypoint": ["python3", "-I", "-S", "-c", own_program("container_init.py")],
        "Cmd": [],
        "WorkingDir": "/",
        "Hostname": "skill",
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
    }


def _host_configuration(job: Job, masks: Mapping[str, object]) -> dict[str, object]:
    limits = job.limits
    size = max(limits.work_bytes, 64 * KIB)
    writable = f"rw,exec,nosuid,nodev,size={size},mode=1777"
    return {
        "NetworkMode": "bridge" if job.network else "none",
        "ReadonlyRootfs": True,
        "AutoRemove": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": _SECURITY,
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
        **masks,
    }


def _masks(engine: Engine, carrier: str, job: Job) -> dict[str, object]:
    """What tells the engine to hide files, in its own way. Docker has to be told what it hides in any case, too.

    Whether they are hidden is verified from inside.
    """
    if engine.is_podman:
        return {"SecurityOpt": [*_SECURITY, f"mask={':'.join(_hidden(job))}"]}
    usual = as_table(engine.table("GET", f"/containers/{carrier}/json").get("HostConfig")).get("MaskedPaths")
    return {"MaskedPaths": [*usual, *_hidden(job)]} if is_list(usual) else {}


def _mounts(volumes: Mapping[str, str], **options: bool) -> list[dict[str, object]]:
    return [{"Type": "volume", "Source": name, "Target": place, **options} for place, name in volumes.items()]


def _create(
    stack: ExitStack, engine: Engine, image: str, configuration: Mapping[str, object], host: Mapping[str, object]
) -> str:
    """Create a container. Its name is our own."""
    name = _named(stack, engine, "containers")
    made = {**configuration, "Image": image, "Labels": {LABEL: owner()}, "HostConfig": {"NetworkMode": "none", **host}}
    engine.call("POST", "/containers/create", {"name": name}, body=made)
    return name


def _named(stack: ExitStack, engine: Engine, kind: str) -> str:
    """A name for a container or a volume, which is removed at the end, also if the engine did not answer."""
    name = f"metier-{secrets.token_hex(8)}"
    stack.callback(_remove, engine, f"/{kind}/{name}")
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
