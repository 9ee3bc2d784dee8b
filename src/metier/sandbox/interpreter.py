"""Which program runs a script: its first line decides, then its suffix; whatever else it is, it is refused.

Only Python, shells and Node are known. The invariant: the answer depends on the script's bytes, its name, its mode and
what is installed, and finding it runs nothing. A script that lists its dependencies in its header (PEP 723) runs
without them and the result says so; nothing is ever fetched.
"""

import os
import re
import shlex
import shutil
import stat
import sys
import tomllib
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from metier.errors import ResourceError
from metier.files import beneath
from metier.files.text import from_utf8
from metier.limits import KIB, MIB
from metier.sandbox import ScriptRefused

Kind = Literal["python", "sh", "bash", "node"]

HEAD_BYTES: Final = 64 * KIB
"""How much of a script is looked at: its first line, and a PEP 723 header, which may follow a licence."""

SYSTEM_FOLDERS: Final = ("/usr/local/bin", "/usr/bin", "/bin")
"""Where programs are looked for. A sandbox shows these as they are."""

VISIBLE: Final = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/")

NODE_RESERVE: Final = 2048 * MIB
"""Node reserves addresses that it never uses; a limit on addresses must be this much larger to mean the same."""

_SUFFIXES: Final[dict[str, Kind]] = {
    ".py": "python",
    ".sh": "bash",  # most are written for it, whatever they are called
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
    """The program, on the host."""
    inside: str
    """The same program as a sandbox sees it."""
    mount: tuple[str, str] | None = None
    """A folder of the host that the program needs besides the system's, and where a sandbox shows it."""
    flags: tuple[str, ...] = ()
    address_reserve: int = 0
    notes: tuple[str, ...] = ()


def find_program(skill_dir: str, script: str) -> Program:
    """The program for a script of a skill, or `ScriptRefused` with the reason. Links never lead out of the folder."""
    relative, head, executable = _read(skill_dir, script)
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
        raise ScriptRefused(script, "binary", "compiled programs are not run, only scripts whose text can be read")
    else:
        raise ScriptRefused(
            script,
            "unknown-interpreter",
            "nothing says how to run it; give it a #! line, or the suffix .py, .sh or .js",
        )
    found = _locate(kind)
    if found is None and kind == "bash" and not first.startswith("#!"):
        kind, found = "sh", _locate("sh")
    if found is None:
        raise ScriptRefused(script, "interpreter-missing", f"it needs {_NAMES[kind][0]}, which is not installed here")
    path, inside, mount = found
    notes = _missing_dependencies(head) if kind == "python" else ()
    return Program(kind, path, inside, mount, flags, NODE_RESERVE if kind == "node" else 0, notes)


def _read(skill_dir: str, script: str) -> tuple[str, str, bool]:
    """The checked path, the beginning of the file as text (any bytes will do), and whether it may be executed."""
    try:
        relative = beneath.check_relative(script)
        head = beneath.read_file(skill_dir, relative, HEAD_BYTES).data
        mode = os.stat(os.path.join(skill_dir, relative)).st_mode
    except ResourceError as error:
        raise ScriptRefused(script, "unreadable", str(error)) from error
    except OSError as error:
        raise ScriptRefused(script, "unreadable", error.strerror or "cannot be read") from error
    return relative, from_utf8(head), bool(mode & stat.S_IXUSR)


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
        f"its first line asks for {program or 'nothing'!r}; only Python, sh, bash and Node are run",
    )


def _locate(kind: Kind) -> tuple[str, str, tuple[str, str] | None] | None:
    """The program on the host, inside, and the extra folder it needs. The system's own comes first."""
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
    """A program that somebody installed in a folder of its own: PREFIX/bin/NAME, and nothing but PREFIX is shown."""
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
            return ()  # the block was never closed, so it is none
        lines.append(line[2:])
    else:
        return ()
    try:
        listed: Any = tomllib.loads("\n".join(lines)).get("dependencies", [])
    except (ValueError, RecursionError):
        return ("its PEP 723 header is not valid TOML; dependencies not installed",)
    if not isinstance(listed, list):
        return ("its PEP 723 header is not valid: dependencies must be a list; dependencies not installed",)
    names = [str(name) for name in cast("list[object]", listed)]
    return (f"dependencies not installed: {', '.join(names)}",) if names else ()
