"""Where a script finds its packages: as in a virtual environment for Python, and in `/node_modules` for Node.

The environment is one folder of modules on the host. What makes it a virtual environment (a link to the interpreter and
a small file) is laid out anew for each run, so one folder serves every runner and every path of the interpreter.
"""

import os
from typing import Final

from metier.running.sandbox import PACKAGES_DIR, Job
from metier.running.sandbox.interpreter import Program

_NODE: Final = "/node_modules"
_STAGED: Final = "/tmp/packages"  # noqa: S108 (a path of stage.py)


def _python_folder(base: str, version: str) -> str:
    return f"{base}/lib/python{version}/site-packages"


def places(job: Job) -> tuple[str, ...]:
    """The paths inside a sandbox at which the packages of a job are mounted."""
    if job.packages is None or not job.packages.folder:
        return ()
    return (_NODE,) if job.packages.kind == "node" else (_python_folder(PACKAGES_DIR, job.packages.version),)


def shown(job: Job, program: Program, files: dict[str, bytes], stage: list[str]) -> list[str]:
    """The arguments of bubblewrap that show the packages of a job, read-only."""
    if job.packages is None or not job.packages.folder:
        return []
    stage += ["show", job.packages.folder, "packages", ""]
    (place,) = places(job)
    mount = ["--ro-bind", _STAGED, place]
    if job.packages.kind == "node":
        return mount
    files["@pyvenv.cfg"] = _settings(program.inside)
    written = ["--perms", "0444", "--file", "@pyvenv.cfg", f"{PACKAGES_DIR}/pyvenv.cfg"]
    names = ("python3", "python")
    links = (word for name in names for word in ("--symlink", program.inside, f"{PACKAGES_DIR}/bin/{name}"))
    # Folders that bubblewrap adds by itself can be closed to the user of the script.
    folders = (os.path.dirname(PACKAGES_DIR), PACKAGES_DIR, f"{PACKAGES_DIR}/bin", *_above(place))
    made = (word for folder in folders for word in ("--perms", "0755", "--dir", folder))
    return [*made, *written, *links, *mount]


def _above(place: str) -> tuple[str, ...]:
    version = os.path.dirname(place)
    return os.path.dirname(version), version


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
