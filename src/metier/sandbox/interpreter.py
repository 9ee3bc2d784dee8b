"""Finds the program that runs a script, by its first line or its suffix. Every other file is refused.

Python, shells and Node are supported. The invariant: the answer depends only on the script's bytes, name and mode, and
on what is installed. Finding it runs nothing. The dependencies in a PEP 723 header are never installed, and the result
lists them as missing.
"""

import os
import re
import shlex
import shutil
import sys
import tomllib
from dataclasses import dataclass
from typing import Final, Literal

from metier.errors import ResourceError
from metier.files import beneath
from metier.files.shapes import is_list
from metier.files.text import from_utf8
from metier.files.tree import SkillTree
from metier.limits import KIB, MIB
from metier.sandbox import ScriptRefused

Kind = Literal["python", "sh", "bash", "node"]

HEAD_BYTES: Final = 64 * KIB
"""How much of a script is read: its first line and a PEP 723 header, which may follow a licence."""

SYSTEM_FOLDERS: Final = ("/usr/local/bin", "/usr/bin", "/bin")
"""Where programs are searched. A sandbox mounts these folders at the same paths."""

VISIBLE: Final = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/")

NODE_RESERVE: Final = 2048 * MIB
"""Node reserves addresses that it never uses, so its limit on address space is larger by this much."""

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
_HEADER: Final = re.compile(r"^# /// script[ \t]*\r?\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Program:
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
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recognised:
    """What kind of script a file is, whatever is installed."""

    kind: Kind
    flags: tuple[str, ...]
    head: str
    named: bool
    """Whether the first line names the interpreter."""

    @property
    def names(self) -> tuple[str, ...]:
        """The programs that can run it, best first."""
        return (*_NAMES[self.kind], *(_NAMES["sh"] if self.kind == "bash" and not self.named else ()))

    @property
    def notes(self) -> tuple[str, ...]:
        return _missing_dependencies(self.head) if self.kind == "python" else ()


def recognise(tree: SkillTree, script: str) -> Recognised:
    """What kind of script a file of a skill is. Raises `ScriptRefused` if it is none."""
    relative, head, executable = _read(tree, script)
    first = head.split("\n", 1)[0].rstrip("\r")
    suffix = os.path.splitext(relative)[1].lower()
    flags: tuple[str, ...] = ()
    if first.startswith("#!"):
        kind, flags = _by_shebang(script, first)
        if suffix not in _SUFFIXES and not executable:
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
    return Recognised(kind, flags, head, named=first.startswith("#!"))


def find_program(tree: SkillTree, script: str) -> Program:
    """Find the program for a script of a skill."""
    recognised = recognise(tree, script)
    kind = recognised.kind
    found = _locate(kind)
    if found is None and kind == "bash" and not recognised.named:
        kind, found = "sh", _locate("sh")
    if found is None:
        raise ScriptRefused(script, "interpreter-missing", f"it needs {_NAMES[kind][0]}, which is not installed")
    path, inside, mount = found
    return Program(
        kind=kind,
        path=path,
        inside=inside,
        mount=mount,
        flags=recognised.flags,
        address_reserve=NODE_RESERVE if kind == "node" else 0,
        notes=recognised.notes,
    )


def _read(tree: SkillTree, script: str) -> tuple[str, str, bool]:
    """Return the checked path, the start of the file as text, and whether it is executable."""
    try:
        relative = beneath.check_relative(script)
    except ResourceError as error:
        raise ScriptRefused(script, "unreadable", str(error)) from error
    file = tree.file(relative)
    if file is None:
        raise ScriptRefused(script, "unreadable", f"File not found: {relative}")
    return relative, from_utf8(file.data[:HEAD_BYTES]), file.executable


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


def _missing_dependencies(head: str) -> tuple[str, ...]:
    header = _HEADER.search(head)
    if header is None:
        return ()
    lines: list[str] = []
    for line in head[header.end() :].splitlines():
        if line.rstrip() == "# ///":
            break
        if not line.startswith("# ") and line != "#":
            return ()  # the block is not closed, so it is not a header
        lines.append(line[2:])
    else:
        return ()
    try:
        listed: object = tomllib.loads("\n".join(lines)).get("dependencies", [])
    except (ValueError, RecursionError):
        return ("its PEP 723 header is not valid TOML; dependencies not installed",)
    if not is_list(listed):
        return ("its PEP 723 header is not valid: dependencies must be a list; dependencies not installed",)
    names = [str(name) for name in listed]
    return (f"dependencies not installed: {', '.join(names)}",) if names else ()
