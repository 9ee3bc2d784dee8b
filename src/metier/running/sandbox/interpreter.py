"""Finds the program that runs a script, by its first line or its suffix. Every other file is refused.

Python, shells and Node are supported. The invariant: the answer depends only on the script's bytes, name and mode, and
on what is installed. Finding it runs nothing. A script with packages runs by a link to its interpreter that lies beside
them, as in a virtual environment, so their modules come after those of the standard library. The programs of our own
that prepare a sandbox are passed to an interpreter as text, because it may not be able to read their files.
"""

import functools
import glob
import os
import re
import shlex
import shutil
import sys
from typing import Final, Literal

from metier.errors import ResourceError
from metier.files import beneath
from metier.files.text import from_utf8
from metier.files.tree import SkillTree
from metier.limits import KIB, MIB
from metier.running.packages import Environment
from metier.running.sandbox import PACKAGES_DIR, SandboxUnavailable, ScriptRefused
from metier.values.value import Value

Kind = Literal["python", "sh", "bash", "node"]

HEAD_BYTES: Final = 64 * KIB
"""How much of a script is read for its first line."""

SYSTEM_FOLDERS: Final = ("/usr/local/bin", "/usr/bin", "/bin")
"""Where programs are searched. A sandbox mounts these folders at the same paths."""

VISIBLE: Final = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/")

NODE_RESERVE: Final = 2048 * MIB
"""Node reserves addresses that it never uses, so its limit on address space is larger by this much."""

PACKAGES_RESERVE: Final = 8192 * MIB
"""Packages map large libraries, of which they use little memory. What they use is limited as for every script."""

_SUFFIXES: Final[dict[str, Kind]] = {
    ".py": "python",
    ".sh": "bash",  # most .sh scripts are written for bash
    ".bash": "bash",
    ".js": "node",
    ".mjs": "node",
    ".cjs": "node",
}
_NAMES: Final[dict[Kind, tuple[str, ...]]] = {
    "python": ("python3", "python"),
    "sh": ("sh",),
    "bash": ("bash",),
    "node": ("node", "nodejs"),
}
_SHEBANG: Final[tuple[tuple[re.Pattern[str], Kind], ...]] = (
    (re.compile(r"python(3(\.\d+)?)?"), "python"),
    (re.compile(r"sh|dash|ash"), "sh"),
    (re.compile(r"bash"), "bash"),
    (re.compile(r"node|nodejs"), "node"),
)


class Program(Value):
    """How to run one script."""

    kind: Kind
    path: str
    """The path of the program on the host."""
    inside: str
    """The path of the same program inside a sandbox."""
    mount: tuple[str, str] | None = None
    """A folder of the host that the program needs besides the system folders, and its path inside a sandbox."""
    flags: tuple[str, ...] = ()
    address_reserve: int = 0
    link: str = ""
    """The path inside a sandbox of a link to `inside` that lies beside the packages. It is called instead."""

    libraries: str = ""
    """The folder inside a sandbox with the library of a Python that needs one and would look for it where it was."""

    @property
    def called(self) -> str:
        """The path that is called inside a sandbox."""
        return self.link or self.inside


class Recognised(Value):
    """What kind of script a file is, whatever is installed."""

    kind: Kind
    flags: tuple[str, ...]
    named: bool
    """Whether the first line names the interpreter."""

    @property
    def names(self) -> tuple[str, ...]:
        """The programs that can run it, best first."""
        return (*_NAMES[self.kind], *(_NAMES["sh"] if self.kind == "bash" and not self.named else ()))


def recognise(tree: SkillTree, script: str) -> Recognised:
    """What kind of script a file of a skill is. Raises `ScriptRefused` if it is none."""
    try:
        relative = beneath.check_relative(script)
    except ResourceError as error:
        raise ScriptRefused(script, "unreadable", str(error)) from error
    file = tree.file(relative)
    if file is None:
        raise ScriptRefused(script, "unreadable", f"File not found: {relative}")
    head = from_utf8(file.data[:HEAD_BYTES])
    first = head.split("\n", 1)[0].rstrip("\r")
    suffix = os.path.splitext(relative)[1].lower()
    flags: tuple[str, ...] = ()
    if first.startswith("#!"):
        kind, flags = _by_shebang(script, first)
        if suffix not in _SUFFIXES and not file.executable:
            raise ScriptRefused(script, "not-executable", "it has no known suffix and is not marked as executable")
    elif suffix in _SUFFIXES:
        kind = _SUFFIXES[suffix]
    elif head.startswith("\x7fELF") or head[:2] == "MZ":
        raise ScriptRefused(script, "binary", "compiled programs cannot be run, only scripts")
    else:
        raise ScriptRefused(
            script,
            "unknown-interpreter",
            "its interpreter is unknown; add a #! line, or use the suffix .py, .sh or .js",
        )
    return Recognised(kind, flags, named=first.startswith("#!"))


def find_program(tree: SkillTree, script: str, packages: Environment | None = None) -> Program:
    """Find the program for a script of a skill, which may have packages."""
    recognised = recognise(tree, script)
    kind = recognised.kind
    python = packages.python if packages is not None and kind == "python" else ""
    if python and os.path.realpath(python).startswith(VISIBLE):
        found = python, python, None
    else:
        found = _outside(python, "/opt/python") if python else _locate(kind)
    if found is None and kind == "bash" and not recognised.named:
        kind, found = "sh", _locate("sh")
    if found is None:
        raise ScriptRefused(script, "interpreter-missing", f"it needs {_NAMES[kind][0]}, which is not installed")
    path, inside, mount = found
    libraries = ""
    if kind == "python" and mount and glob.glob(os.path.join(glob.escape(mount[0]), "lib", "libpython3*.so*")):
        libraries = f"{mount[1]}/lib"
    given = packages is not None and bool(packages.folder)
    reserve = NODE_RESERVE if kind == "node" else 0
    return Program(
        kind=kind,
        path=path,
        inside=inside,
        mount=mount,
        flags=recognised.flags,
        address_reserve=reserve + (PACKAGES_RESERVE if given else 0),
        libraries=libraries,
        link=f"{PACKAGES_DIR}/bin/python3" if given and kind == "python" else "",
    )


def _by_shebang(script: str, line: str) -> tuple[Kind, tuple[str, ...]]:
    try:
        words = shlex.split(line[2:])
    except ValueError:
        words = line[2:].split()
    program = os.path.basename(words.pop(0)) if words else ""
    if program == "env":
        while words and (words[0].startswith("-") or "=" in words[0]):
            words.pop(0)
        program = os.path.basename(words.pop(0)) if words else ""
    if program == "uv" and words[:1] == ["run"]:
        return "python", ()  # the usual first line above a PEP 723 header
    for pattern, kind in _SHEBANG:
        if pattern.fullmatch(program):
            return kind, tuple(word for word in words if word.startswith("-"))
    raise ScriptRefused(
        script,
        "unknown-interpreter",
        f"its first line names {program!r}; only Python, sh, bash and Node are supported",
    )


def usual_python() -> str:
    """The path of the Python that runs scripts for which no other is chosen; empty if there is none."""
    found = _locate("python")
    return found[0] if found is not None else ""


def _locate(kind: Kind) -> tuple[str, str, tuple[str, str] | None] | None:
    """Return the path on the host, the path inside, and the extra mount. System folders come first."""
    for folder in SYSTEM_FOLDERS:
        for name in _NAMES[kind]:
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK) and os.path.realpath(path).startswith(VISIBLE):
                return path, path, None
    if kind == "python":
        return _outside(os.path.join(sys.base_prefix, "bin", "python3"), "/opt/python")
    if kind == "node" and (found := shutil.which("node")):
        return _outside(os.path.realpath(found), "/opt/node")
    return None


def _outside(path: str, where: str) -> tuple[str, str, tuple[str, str] | None] | None:
    """A program installed outside the system folders, as PREFIX/bin/NAME. Only PREFIX is mounted."""
    prefix, name = os.path.dirname(os.path.dirname(path)), os.path.basename(path)
    known = os.path.isdir(os.path.join(prefix, "lib")) and os.path.basename(os.path.dirname(path)) == "bin"
    if not known or not os.access(path, os.X_OK) or prefix in ("", "/", os.path.expanduser("~")):
        return None
    return path, f"{where}/bin/{name}", (prefix, where)


@functools.cache
def own_program(name: str) -> str:
    """The text of a separate program of this package."""
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read()


def own_python() -> str:
    """The interpreter for our own programs. One that gave up root may not be able to execute its own any more."""
    pythons = (sys.executable, "/usr/local/bin/python3", "/usr/bin/python3")
    found = next((path for path in pythons if os.access(path, os.X_OK)), None)
    if found is None:
        raise SandboxUnavailable("no Python that this user can execute was found")
    return found
