"""What a sandboxed script sees: its files, as arguments for bubblewrap, its variables, its packages and its user id.

The order matters: later mounts cover earlier ones, and the root becomes read-only at the end. The files of the skill
are written into that root, in memory. What needs more than bubblewrap can do is prepared by `stage.py` (see there), and
then taken from its scratch folder. A folder of the user has the path that it has on the host, so that the words of a
person and of a skill mean the same file. The invariant: every writable folder is in memory and has a size limit, and no
folder of the host can be written to.

A script finds its packages as in a virtual environment for Python, and in `/node_modules` for Node. The environment is
one folder of modules on the host. What makes it a virtual environment (a link to the interpreter and a small file) is
laid out anew for each run, so one folder serves every runner and every path of the interpreter.

The user id is never root, even if the launcher is. The script of an ordinary user keeps that user's id, inside a user
namespace. For root, the kernel limits no processes and checks no owner, so each run of a launcher that is root gets its
own user id, from a range that no system assigns. The process limit then counts only this run, and no two runs of this
process share an id.
"""

import os
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from metier.files.digests import digest_of
from metier.files.tree import SkillTree
from metier.limits import MIB
from metier.running.sandbox import PACKAGES_DIR, PROJECT_DIR, SKILL_DIR, WORK_DIR, Job, is_within
from metier.running.sandbox.interpreter import Program
from metier.values.network import PROXY_PORT, HostList
from metier.values.value import Value

_TEMPORARY: Final = ("/tmp", "/dev/shm")  # noqa: S108 (paths inside the sandbox)
_OTHER_WORK_DIR: Final = "/metier-work"
_SYSTEM: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC_COPIED: Final = ("ld.so.cache", "localtime")
"""Small files are copied, because each mount adds half a millisecond to every run."""
_ETC_NETWORK: Final = ("resolv.conf", "hosts", "gai.conf", "protocols", "services")
_ETC_TLS: Final = (
    *("ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "ca-certificates"),
    *("pki/tls/certs", "pki/ca-trust/extracted", "crypto-policies"),
)
_COPIED_BYTES: Final = 4 * MIB
_DEVICES: Final = ("null", "zero", "random", "urandom")
_MASKED: Final = ("cmdline", "keys")
"""Files of /proc that describe the host, are readable by everyone and are not covered by a namespace."""
INIT: Final = "/init"
"""The shell that starts the script, from a file that can be executed but not read, which hides its memory."""
LAYER: Final = "/tmp/.project-changes/upper"  # noqa: S108 (where stage.py keeps what was written to the project)
_STAGED: Final = "/tmp/"  # noqa: S108
_DIRECT_FILES: Final = 200
"""How many files of a skill bubblewrap writes itself. Each needs a descriptor, and more are unpacked by stage.py."""
ENTRIES_FACTOR: Final = 20
"""How many files and folders a run may create, for each file that is collected."""
_NODE: Final = "/node_modules"

_FIRST_ID: Final = 0x70000000
_IDS: Final = 0x0FFE0000
"""Ids 1879048192 to 2147352575, which systemd, containers and directory services do not use."""
_SLOTS: Final = 64
_ID_INSIDE: Final = 1000
_taken: set[int] = set()
_lock = threading.Lock()


class Identity(Value):
    """A user id for one run. `switch` means that the launcher is root and the script must change to this id."""

    uid: int
    switch: bool


class SandboxView(Value):
    """The arguments, and the content of the files that they name by placeholder, which a descriptor replaces."""

    arguments: tuple[str, ...]
    files: Mapping[str, bytes]
    stage: tuple[str, ...] = ()
    """The steps that stage.py takes first. Empty if it is not needed."""


def work_place(job: Job) -> str:
    """Where the work folder is: elsewhere if the folder of the user is at its usual place."""
    taken = job.project is not None and is_within(os.path.realpath(job.project), WORK_DIR)
    return _OTHER_WORK_DIR if taken else WORK_DIR


def writable_places(job: Job) -> tuple[str, ...]:
    """The folders that every script can write to, the work folder first."""
    return (work_place(job), *_TEMPORARY)


def given_files(job: Job) -> dict[str, str]:
    """The digests of the files that were put into the current folder, by their path in the project or work folder."""
    return {os.path.normpath(f"{inner_path(job)}/{name}"): digest_of(data) for name, data in job.files.items()}


def inner_path(job: Job) -> str:
    """The current folder of the script, as a path in the project."""
    return os.path.relpath(os.path.realpath(job.cwd), os.path.realpath(job.project or job.cwd)) if job.cwd else "."


def fixed_variables(job: Job, skill: str, work: str, project: str, temporary: str) -> dict[str, str]:
    """The variables that every script gets, and the granted ones."""
    fixed = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": temporary,
        "TMPDIR": temporary,
        "LANG": "C.UTF-8",
        "SKILL_DIR": skill,
        "WORK_DIR": work,
    }
    if job.project is not None:
        fixed["PROJECT_DIR"] = project
    if job.packages is not None and job.packages.root:
        fixed["PYTHONPATH"] = skill
    return {**fixed, **job.env}


def view(job: Job, tree: SkillTree | None, program: Program | None, identity: Identity) -> SandboxView:
    """Everything that a script sees. Without a program, there is no skill; this only tests the sandbox."""
    files: dict[str, bytes] = {}
    arguments = [*_isolation(job, identity), *_system(), *_etc(job, identity, files), *_proc_and_devices()]
    with open("/bin/sh", "rb") as shell:
        files["@init"] = shell.read()
    arguments += ["--perms", "0111", "--file", "@init", INIT]
    work = work_place(job)
    for place in writable_places(job):
        mode = "0700" if place == work else "1777"
        arguments += ["--perms", mode, "--size", str(job.limits.work_bytes), "--tmpfs", place]
    stage: list[str] = []
    if tree is not None and program is not None:
        arguments += _skill(tree, files, stage)
        arguments += _packages(job, program, files, stage)
        arguments += _granted(job, program, identity, stage)
        arguments += _given(job, work, identity, files, stage)
    for place in ("/dev", "/"):
        arguments += ["--remount-ro", place]
    project = os.path.realpath(job.project) if job.project is not None else ""
    variables = fixed_variables(job, SKILL_DIR, work, project, "/tmp")  # noqa: S108
    if program is not None and program.libraries:
        variables["LD_LIBRARY_PATH"] = program.libraries
    for name, value in (variables_for(job, variables) | (_proxy_variables(job) if job.hosts else {})).items():
        arguments += ["--setenv", name, value]
    if stage and not identity.switch:
        stage = [*_step("user", str(os.geteuid()), str(os.getegid())), *stage]
    return SandboxView((*arguments, "--chdir", work), files, tuple(stage))


def _proxy_variables(job: Job) -> dict[str, str]:
    """The variables by which programs find the proxy. Some read only one spelling of a name.

    What a script itself serves in its sandbox is reached without the proxy, unless a rule gives it that host.
    """
    address = f"http://127.0.0.1:{PROXY_PORT}"
    listed = HostList.parse(job.hosts).allowed
    own = ",".join(name for name in ("localhost", "127.0.0.1") if not any(one.names(name) for one in listed))
    named = {"http_proxy": address, "https_proxy": address, "all_proxy": address, "no_proxy": own}
    return named | {name.upper(): value for name, value in named.items()} | {"NODE_USE_ENV_PROXY": "1"}


def _isolation(job: Job, identity: Identity) -> list[str]:
    arguments = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "skill"]
    if not job.network:
        arguments.append("--unshare-net")
    arguments += ["--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    if not identity.switch:
        return [*arguments, "--as-pid-1", "--unshare-user", "--uid", str(identity.uid), "--gid", str(identity.uid)]
    # Needed to change from root to the id of the run. They are dropped before the script starts.
    for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
        arguments += ["--cap-add", capability]
    return arguments


def _etc(job: Job, identity: Identity, files: dict[str, bytes]) -> list[str]:
    """/etc, with files that are written for the sandbox, or copied or mounted from the host."""
    files["@passwd"] = f"skill:x:{identity.uid}:{identity.uid}:skill:/tmp:/bin/sh\n".encode()
    files["@group"] = f"skill:x:{identity.uid}:\n".encode()
    files["@nsswitch.conf"] = b"passwd: files\ngroup: files\nhosts: files dns\n"
    if not job.network:
        files["@hosts"] = b"127.0.0.1 localhost\n::1 localhost\n"
    for name in _ETC_COPIED:
        with suppress(OSError), open(f"/etc/{name}", "rb") as file:
            files[f"@{name}"] = file.read(_COPIED_BYTES)
    arguments = ["--dir", "/etc"]
    network = (*(_ETC_NETWORK if job.network else ()), *(_ETC_TLS if job.network or job.hosts else ()))
    for name in ("alternatives", *network):
        mount = _read_only(os.path.realpath(f"/etc/{name}"), f"/etc/{name}")
        parts = name.split("/")[:-1] if mount else ()
        # A folder that bubblewrap creates for a mount is readable only by root, whose scripts have another user id.
        for depth in range(len(parts)):
            arguments += ["--dir", f"/etc/{'/'.join(parts[: depth + 1])}"]
        arguments += mount
    for placeholder in files:
        arguments += ["--perms", "0444", "--file", placeholder, f"/etc/{placeholder[1:]}"]
    return arguments


def _proc_and_devices() -> list[str]:
    arguments = ["--proc", "/proc"]
    for name in _MASKED:
        if os.path.exists(f"/proc/{name}"):
            arguments += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    arguments += ["--perms", "0755", "--tmpfs", "/dev"]
    for name in _DEVICES:
        arguments += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        arguments += ["--symlink", f"/proc/self/fd{target}", f"/dev/{name}"]
    return arguments


def _system() -> list[str]:
    arguments = ["--ro-bind", "/usr", "/usr"]
    for path in _SYSTEM:
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        else:
            arguments += _read_only(path, path)
    return arguments + _read_only("/nix/store", "/nix/store")


def _skill(tree: SkillTree, files: dict[str, bytes], stage: list[str]) -> list[str]:
    """The files of the skill, as they were taken, in the sandbox's own root. Nothing of its folder is mounted."""
    if len(tree.files) > _DIRECT_FILES:
        files["@skill"] = _packed(
            (file.path, b"link", os.fsencode(file.link_text))
            if file.target
            else (file.path, b"program" if file.executable else b"file", file.data)
            for file in tree.files
        )
        stage += _step("skill", "@skill")
        return ["--ro-bind", _STAGED + "skill", SKILL_DIR]
    arguments = ["--dir", SKILL_DIR]
    for number, file in enumerate(tree.files):
        place = f"{SKILL_DIR}/{file.path}"
        if file.target:
            arguments += ["--symlink", file.link_text, place]
        else:
            files[f"@skill-{number}"] = file.data
            arguments += ["--perms", "0555" if file.executable else "0444", "--file", f"@skill-{number}", place]
    return arguments


def _packed(entries: Iterable[tuple[str, bytes, bytes]]) -> bytes:
    """Files, each with its path and kind, in the form that stage.py unpacks."""
    parts: list[bytes] = []
    for path, kind, data in entries:
        parts += [os.fsencode(path), b"\0", kind, b"\0", str(len(data)).encode(), b"\0", data]
    return b"".join(parts)


def _step(*words: str) -> list[str]:
    """A step of stage.py, which has six words."""
    return [*words, *[""] * (6 - len(words))]


def _granted(job: Job, program: Program, identity: Identity, stage: list[str]) -> list[str]:
    """The folders of the host that the script needs. They are shown by stage.py, which hides where they are."""
    arguments: list[str] = []
    if program.mount is not None:
        stage += _step("show", program.mount[0], "program")
        arguments += ["--perms", "0755", "--dir", os.path.dirname(program.mount[1])]
        arguments += ["--ro-bind", _STAGED + "program", program.mount[1]]
    if job.project is None:
        return arguments
    project = os.path.realpath(job.project)
    layered = job.project_writable or job.cwd is not None
    owner = str(identity.uid) if identity.switch else ""
    for above in reversed(_above(project)):
        arguments += ["--perms", "0755", "--dir", above]  # bubblewrap would make them for root alone
    if layered:
        step, entries = "write" if job.project_writable else "layer", str(job.limits.files * ENTRIES_FACTOR)
        stage += _step(step, project, "project", owner, str(job.limits.work_bytes), entries)
        arguments += ["--bind", _STAGED + "project", project]
    else:
        stage += _step("show", project, "project", owner)
        arguments += ["--ro-bind", _STAGED + "project", project]
    if not is_within(project, PROJECT_DIR):
        arguments += ["--symlink", project, PROJECT_DIR]
    return arguments


def _above(folder: str) -> list[str]:
    """The folders above a folder, the nearest first, without the root."""
    found: list[str] = []
    while (folder := os.path.dirname(folder)) != "/":
        found.append(folder)
    return found


def _given(job: Job, work: str, identity: Identity, files: dict[str, bytes], stage: list[str]) -> list[str]:
    """The files that the run was given, in the current folder."""
    if not job.files:
        return []
    if job.cwd is not None:
        files["@given"] = _packed((name, b"file", data) for name, data in job.files.items())
        owner = str(identity.uid) if identity.switch else ""
        stage += _step("put", "@given", os.path.normpath(f"project/{inner_path(job)}"), owner)
        return []
    arguments: list[str] = []
    for number, (name, data) in enumerate(job.files.items()):
        files[f"@given-{number}"] = data
        arguments += ["--perms", "0666", "--file", f"@given-{number}", f"{work}/{name}"]
    return arguments


def _read_only(source: str, place: str) -> list[str]:
    return ["--ro-bind", source, place] if os.path.exists(source) else []


# --- the packages ---


def _python_folder(base: str, version: str) -> str:
    return f"{base}/lib/python{version}/site-packages"


def places(job: Job) -> tuple[str, ...]:
    """The paths inside a sandbox at which the packages of a job are mounted."""
    if job.packages is None or not job.packages.folder:
        return ()
    return (_NODE,) if job.packages.kind == "node" else (_python_folder(PACKAGES_DIR, job.packages.version),)


def _packages(job: Job, program: Program, files: dict[str, bytes], stage: list[str]) -> list[str]:
    """The arguments of bubblewrap that show the packages of a job, read-only."""
    if job.packages is None or not job.packages.folder:
        return []
    stage += _step("show", job.packages.folder, "packages")
    (place,) = places(job)
    mount = ["--ro-bind", _STAGED + "packages", place]
    if job.packages.kind == "node":
        return mount
    files["@pyvenv.cfg"] = _settings(program.inside)
    written = ["--perms", "0444", "--file", "@pyvenv.cfg", f"{PACKAGES_DIR}/pyvenv.cfg"]
    names = ("python3", "python")
    links = (word for name in names for word in ("--symlink", program.inside, f"{PACKAGES_DIR}/bin/{name}"))
    # Folders that bubblewrap adds by itself can be closed to the user of the script.
    folders = (os.path.dirname(PACKAGES_DIR), PACKAGES_DIR, f"{PACKAGES_DIR}/bin", *reversed(_above(place)[:2]))
    made = (word for folder in folders for word in ("--perms", "0755", "--dir", folder))
    return [*made, *written, *links, *mount]


def lay_out(job: Job, program: Program, base: str) -> str:
    """Do the same in a folder of the host, for a run without a sandbox; the path of the program to call."""
    if job.packages is None or not job.packages.folder:
        return program.path
    if job.packages.kind == "node":
        os.symlink(job.packages.folder, os.path.join(base, "node_modules"))
        return program.path
    root = os.path.join(base, "packages")
    modules = _python_folder(root, job.packages.version)
    os.makedirs(os.path.dirname(modules))
    os.makedirs(os.path.join(root, "bin"))
    os.symlink(job.packages.folder, modules)
    for name in ("python3", "python"):
        os.symlink(program.path, os.path.join(root, "bin", name))
    with open(os.path.join(root, "pyvenv.cfg"), "wb") as stream:
        stream.write(_settings(program.path))
    return os.path.join(root, "bin", "python3")


def variables_for(job: Job, variables: dict[str, str], base: str = "") -> dict[str, str]:
    """The variables of a run, with the programs of its packages on the path. Without `base`, inside a sandbox."""
    if job.packages is None or not job.packages.folder:
        return variables
    if job.packages.kind == "node":
        programs = f"{base}{_NODE}/.bin"
    else:
        root = f"{base}/packages" if base else PACKAGES_DIR
        programs = f"{root}/bin:{_python_folder(root, job.packages.version)}/bin"
    return {**variables, "PATH": f"{programs}:{variables['PATH']}"}


def _settings(python: str) -> bytes:
    """A pyvenv.cfg. The modules of the system are added by the environment, without the code in their .pth files."""
    return f"home = {os.path.dirname(python)}\ninclude-system-site-packages = false\n".encode()


# --- the user id ---


def must_switch() -> bool:
    """Whether this process is root and can change to another id. In a namespace with one id it cannot."""
    return os.geteuid() == 0 and _mapped() > _SLOTS


@contextmanager
def an_identity() -> Generator[Identity]:
    """Reserve an id for one run."""
    if not must_switch():
        yield Identity(_ID_INSIDE, switch=False)
        return
    with _lock:
        slot = next(number for number in range(len(_taken) + 1) if number not in _taken)
        _taken.add(slot)
    try:
        yield Identity(_uid(os.getpid() * _SLOTS + slot), switch=True)
    finally:
        with _lock:
            _taken.discard(slot)


def _uid(number: int) -> int:
    mapped = _mapped()
    if mapped > _FIRST_ID + _IDS:
        return _FIRST_ID + number % _IDS
    return mapped - 1 - number % (mapped // 2)  # in a container: the upper half of its range, far from its real users


def _mapped() -> int:
    """How many user ids, starting at 0, this process can switch to."""
    try:
        with open("/proc/self/uid_map", encoding="utf-8") as file:
            first, _, count = (int(word) for word in file.readline().split())
    except (OSError, ValueError):
        return 0
    return count if first == 0 else 0
