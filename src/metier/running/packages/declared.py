"""What a skill says that its script needs: a PEP 723 header, `requirements.txt`, `pyproject.toml` or `package.json`.

The nearest one counts: the header of the script, then the files beside it, then those in the folders above it up to the
skill's own. Only names of packages with bounds are taken. Where a skill asks for anything else, such as an address, a
repository or a path, that entry is refused, and so is the run. Options such as another index are the user's to give and
never the skill's: they do not count, and a note says so.
"""

import posixpath
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from metier.files.json_text import parse_json
from metier.files.shapes import is_list, is_table
from metier.files.text import from_utf8
from metier.files.tree import SkillTree
from metier.running.packages import MANIFEST_BYTES, Wanted, node

_HEADER: Final = re.compile(r"^# /// script[ \t]*\r?\n", re.MULTILINE)
_VERSION: Final = r"(?:~=|===?|!=|<=?|>=?)\s*[A-Za-z0-9.*+!_-]+"
_REQUIREMENT: Final = re.compile(
    rf"""([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*   # the name
    (\[\s*[A-Za-z0-9._-]+(?:\s*,\s*[A-Za-z0-9._-]+)*\s*\])?\s*  # extras
    (?:\(\s*)?({_VERSION}(?:\s*,\s*{_VERSION})*)?\s*,?\s*(?:\)\s*)?
    (?:;\s*([A-Za-z0-9_.'"()<>=!~,\s-]+))?""",
    re.VERBOSE,
)
_FILE: Final = re.compile(r"\.(?:whl|zip|tgz|tbz|txz|tlz|tar|tar\.\w+)\Z", re.IGNORECASE)
"""The end of what pip takes for a file, also where all of it is a version."""
_SHOWN: Final = 80


def name_of(requirement: str) -> str:
    """The name in a requirement, in the form in which two spellings are equal."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def requirement(text: str) -> str:
    """One requirement in a form that is safe to write into a file for an installer; empty if it is none."""
    found = _REQUIREMENT.fullmatch(text.strip())
    if found is None or len(text) > 500:
        return ""
    name, extras, versions, marker = (part or "" for part in found.groups())
    if re.search(r"(^|\s)-", marker):
        return ""  # an option behind a blank
    tidy = name + "".join(f"{extras}{versions}".split())
    if _FILE.search(tidy):
        return ""
    return f"{tidy} ; {' '.join(marker.split())}" if marker else tidy


def declared(tree: SkillTree, script: str) -> Wanted | None:
    """What is declared for a script, or `None` if nothing is."""
    file = tree.file(script)
    suffix = posixpath.splitext(script)[1].lower()
    if suffix in (".js", ".mjs", ".cjs"):
        return _for_node(tree, script)
    header = _by_header(from_utf8(file.data)) if file is not None else None
    if header is not None:
        return header
    for folder in _folders(script):
        for name, read in (("requirements.txt", _requirements_file), ("pyproject.toml", _project_file)):
            path = posixpath.join(folder, name)
            found = tree.file(path)
            wanted = read(tree, path) if found is not None and len(found.data) <= MANIFEST_BYTES else None
            if wanted is not None:
                return wanted
    return None


def _folders(script: str) -> Iterator[str]:
    """The folder of the script, and those above it up to the skill's own."""
    folder = posixpath.dirname(script)
    while folder:
        yield folder
        folder = posixpath.dirname(folder)
    yield ""


def _wanted(lines: list[str], source: str, python: str = "", notes: Sequence[str] = ()) -> Wanted:
    return Wanted(
        requirements=tuple(sorted({kept for line in lines if (kept := requirement(line))})),
        source=source,
        python=python,
        notes=tuple(notes),
        refused=tuple(f"{source} asks for {line[:_SHOWN]!r}" for line in lines if not requirement(line)),
    )


def _by_table(table: Mapping[str, object], source: str) -> Wanted | None:
    """What a table lists as `dependencies`, or `None` if it lists nothing."""
    listed, python = table.get("dependencies"), table.get("requires-python")
    if not is_list(listed):
        return None
    return _wanted([str(one) for one in listed], source, python if isinstance(python, str) else "")


# --- a header ---


def header_of(text: str) -> str | None:
    """The TOML of a PEP 723 header, or `None` if there is none."""
    header = _HEADER.search(text)
    if header is None:
        return None
    lines: list[str] = []
    for line in text[header.end() :].splitlines():
        if line.rstrip() == "# ///":
            return "\n".join(lines)
        if not line.startswith("# ") and line.rstrip() != "#":
            return None  # the block is not closed, so it is not a header
        lines.append(line[2:])
    return None


def _by_header(text: str) -> Wanted | None:
    header, source = header_of(text), "its PEP 723 header"
    if header is None:
        return None
    try:
        table: dict[str, object] = tomllib.loads(header)
    except (ValueError, RecursionError):
        return Wanted(source=source, notes=(f"{source} is not valid TOML; dependencies not installed",))
    if not is_list(table.setdefault("dependencies", [])):
        message = f"{source} is not valid: dependencies must be a list; dependencies not installed"
        return Wanted(source=source, notes=(message,))
    return _by_table(table, source)


# --- files ---


def _requirements_file(tree: SkillTree, path: str, depth: int = 0) -> Wanted | None:
    """The lines of a requirements file and of those that it names in the same skill. Options do not count."""
    file = tree.file(path)
    if file is None:
        return None
    lines: list[str] = []
    notes: list[str] = []
    refused: list[str] = []
    for raw in from_utf8(file.data).replace("\\\n", " ").splitlines():
        line = re.sub(r"(^|\s)#.*", "", raw).strip()
        line = re.sub(r"\s--hash=\S+", "", line).strip()
        included = re.fullmatch(r"(?:-r|--requirement)[\s=]*(\S+)", line)
        inner = posixpath.normpath(posixpath.join(posixpath.dirname(path), included[1])) if included else ""
        other = _requirements_file(tree, inner, depth + 1) if inner and depth < 5 else None
        if other is not None:
            lines += other.requirements
            notes += other.notes
            refused += other.refused
        elif line.startswith("-") and not re.match(r"-e|--editable|-r|--requirement", line):
            notes.append(f"{path} has the option {line[:_SHOWN]!r}, which does not count")
        elif line:
            lines.append(line)
    wanted = _wanted(lines, path, notes=notes)
    return replace(wanted, refused=(*wanted.refused, *refused))


def _project_file(tree: SkillTree, path: str) -> Wanted | None:
    """The dependencies of a project file, or `None` if it declares none and is there for other tools."""
    file = tree.file(path)
    try:
        project = tomllib.loads(from_utf8(file.data)).get("project") if file is not None else None
    except (ValueError, RecursionError):
        return Wanted(source=path, notes=(f"{path} is not valid TOML; dependencies not installed",))
    return _by_table(project, path) if is_table(project) else None


def _for_node(tree: SkillTree, script: str) -> Wanted | None:
    for folder in _folders(script):
        path = posixpath.join(folder, "package.json")
        file = tree.file(path)
        if file is None or len(file.data) > MANIFEST_BYTES:
            continue
        try:
            table: object = parse_json(file.data)
        except (ValueError, RecursionError):
            return Wanted(kind="node", source=path, notes=(f"{path} is not valid JSON; packages not installed",))
        listed = table.get("dependencies") if is_table(table) else None
        if not is_table(listed) or not listed:
            return None
        refused = [
            f"{path} asks for {f'{name}@{bound}'[:_SHOWN]!r}"
            for name, bound in listed.items()
            if not node.is_registry_package(name, bound)
        ]
        beside = posixpath.join(folder, "package-lock.json")
        lock, locked = tree.file(beside), b""
        try:
            if lock is not None and len(lock.data) > MANIFEST_BYTES:
                raise node.EntriesRefused(f"it has more than {MANIFEST_BYTES:,} bytes")
            if lock is not None:
                locked = node.written_lock(lock.data, listed)
        except node.EntriesRefused as error:
            refused += [f"{beside}: {entry}" for entry in error.args]
        return Wanted(
            kind="node",
            requirements=tuple(sorted(f"{name}@{bound}" for name, bound in listed.items())),
            source=path,
            refused=tuple(refused),
            manifest=node.written_manifest(listed),
            locked=locked,
        )
    return None
