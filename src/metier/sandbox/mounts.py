"""The file system that a sandboxed script sees, as arguments for bubblewrap.

The order matters: later mounts cover earlier ones, and the root becomes read-only at the end. The invariant: every
writable folder has a size limit, and all folders of the host are read-only except a project granted as writable.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from metier.limits import MIB
from metier.sandbox import PROJECT_DIR, SKILL_DIR, WORK_DIR, Job
from metier.sandbox.identity import Identity
from metier.sandbox.interpreter import Program

WRITABLE: Final = (WORK_DIR, "/tmp", "/dev/shm")  # noqa: S108 (paths inside the sandbox)
_SYSTEM: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC: Final = ("alternatives",)
_ETC_COPIED: Final = ("ld.so.cache", "localtime")
"""Small files are copied, because each mount adds half a millisecond to every run."""
_ETC_NETWORK: Final = (
    "resolv.conf",
    "hosts",
    "gai.conf",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ssl/cert.pem",
    "ca-certificates",
    "pki/tls/certs",
    "pki/ca-trust/extracted",
    "crypto-policies",
)
_COPIED_BYTES: Final = 4 * MIB
_DEVICES: Final = ("null", "zero", "random", "urandom")
_MASKED: Final = ("cmdline", "keys")
"""Files of /proc that describe the host, are readable by everyone and are not covered by a namespace."""


@dataclass(frozen=True, slots=True)
class SandboxView:
    """The arguments, and the content of the files that they name by placeholder, which a descriptor replaces."""

    arguments: tuple[str, ...]
    files: Mapping[str, bytes]


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
    return {**fixed, **job.env}


def view(job: Job, program: Program | None, identity: Identity) -> SandboxView:
    """Everything that a script sees. Without a program, the skill is not mounted; this only tests the sandbox."""
    files = _files(job, identity)
    arguments = [*_isolation(job, identity), *_system(), *_etc(job, files), *_proc(), *_devices()]
    for place in WRITABLE:
        mode = "0700" if place == WORK_DIR else "1777"
        arguments += ["--perms", mode, "--size", str(job.limits.work_bytes), "--tmpfs", place]
    if program is not None:
        arguments += _granted(job, program)
    for place in ("/dev", "/"):
        arguments += ["--remount-ro", place]
    for name, value in fixed_variables(job, SKILL_DIR, WORK_DIR, PROJECT_DIR, "/tmp").items():  # noqa: S108
        arguments += ["--setenv", name, value]
    return SandboxView((*arguments, "--chdir", WORK_DIR), files)


def _files(job: Job, identity: Identity) -> dict[str, bytes]:
    """The files of /etc that are written for the sandbox or copied from the host, by placeholder."""
    files = {
        "@passwd": f"skill:x:{identity.uid}:{identity.uid}:skill:/tmp:/bin/sh\n".encode(),
        "@group": f"skill:x:{identity.uid}:\n".encode(),
        "@nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files dns\n",
    }
    if not job.network:
        files["@hosts"] = b"127.0.0.1 localhost\n::1 localhost\n"
    for name in _ETC_COPIED:
        with suppress(OSError), open(f"/etc/{name}", "rb") as file:
            files[f"@{name}"] = file.read(_COPIED_BYTES)
    return files


def _isolation(job: Job, identity: Identity) -> list[str]:
    arguments = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "skill"]
    if not job.network:
        arguments.append("--unshare-net")
    arguments += ["--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    if not identity.switch:
        return [*arguments, "--unshare-user", "--uid", str(identity.uid), "--gid", str(identity.uid)]
    # Needed to change from root to the id of the run. They are dropped before the script starts.
    for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
        arguments += ["--cap-add", capability]
    return arguments


def _etc(job: Job, files: Mapping[str, bytes]) -> list[str]:
    arguments = ["--dir", "/etc"]
    for name in (*_ETC, *(_ETC_NETWORK if job.network else ())):
        arguments += _read_only(os.path.realpath(f"/etc/{name}"), f"/etc/{name}")
    for placeholder in files:
        arguments += ["--perms", "0444", "--file", placeholder, f"/etc/{placeholder[1:]}"]
    return arguments


def _proc() -> list[str]:
    arguments = ["--proc", "/proc"]
    for name in _MASKED:
        if os.path.exists(f"/proc/{name}"):
            arguments += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    return arguments


def _devices() -> list[str]:
    arguments = ["--perms", "0755", "--tmpfs", "/dev"]
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


def _granted(job: Job, program: Program) -> list[str]:
    skill = os.path.realpath(job.skill_dir)
    arguments = _read_only(program.mount[0], program.mount[1]) if program.mount else []
    if job.project is not None:
        project = os.path.realpath(job.project)
        writable = job.project_writable and skill != project
        arguments += ["--bind" if writable else "--ro-bind", project, PROJECT_DIR]
        if writable:
            # A skill inside the project must not be able to change itself through the project mount.
            inner = [skill] if skill.startswith(project + os.sep) else []
            inner += [os.path.join(project, path) for path in job.project_protected]
            for path in inner:
                real = os.path.realpath(path)
                if real.startswith(project + os.sep):
                    arguments += _read_only(real, PROJECT_DIR + real[len(project) :])
    return [*arguments, "--ro-bind", skill, SKILL_DIR]


def _read_only(source: str, place: str) -> list[str]:
    return ["--ro-bind", source, place] if os.path.exists(source) else []
