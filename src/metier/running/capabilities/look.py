"""What a skill names: hosts, files, commands, modules, programs and secrets, in its scripts and its SKILL.md.

The text is read and never run. What is only known at run time is not found. A skill can also declare programs and
secrets in the frontmatter, as `bins` and `env` in a table `requires` of its metadata, which some hosts read.
"""

import ast
import os
import posixpath
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from metier import limits
from metier.files.shapes import is_items, is_object
from metier.files.text import from_utf8
from metier.files.tree import SkillTree, TreeFile
from metier.running.capabilities.shell import called
from metier.running.packages.inferred import parsed, python_imports
from metier.values.skill import SKILL_FILE
from metier.values.value import Value

Language = Literal["python", "shell", "node", "markdown"]

_SUFFIXES: Final[dict[str, Language]] = {
    ".py": "python",
    ".sh": "shell",
    ".bash": "shell",
    ".js": "node",
    ".mjs": "node",
    ".cjs": "node",
    ".ts": "node",
}
_PROGRAMS: Final[tuple[tuple[re.Pattern[str], Language], ...]] = (
    (re.compile(r"#!.*\b(python[\d.]*|uv)\b"), "python"),
    (re.compile(r"#!.*\b(sh|bash|dash|ash|zsh)\b"), "shell"),
    (re.compile(r"#!.*\b(node|nodejs|bun|deno)\b"), "node"),
)


class SourceFile(Value):
    """One file, with its text."""

    unshown = ("text",)

    path: str
    language: Language
    text: str


class Named(Value):
    """Something that a skill names, the files that name it, and what kind of thing it is, if a look tells."""

    json_keys = ("name", "where", "kind?")

    name: str
    where: tuple[str, ...]
    kind: str = ""


def sources(tree: SkillTree) -> tuple[SourceFile, ...]:
    """The sources of a skill, sorted by path. Links and files of other kinds are left out."""
    return tuple(
        SourceFile(file.path, language, from_utf8(file.data))
        for file in tree.files
        if not file.target and (language := language_of(file)) is not None
    )


def language_of(file: TreeFile) -> Language | None:
    """The language of a file by its suffix or first line."""
    if len(file.data) > limits.SCRIPT_BYTES:
        return None
    if file.path == SKILL_FILE:
        return "markdown"
    suffix = os.path.splitext(file.path)[1].lower()
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    first = from_utf8(file.data[:200].split(b"\n", 1)[0])
    return next((language for pattern, language in _PROGRAMS if not suffix and pattern.match(first)), None)


def collected(found: Iterable[tuple[str, str, str]]) -> tuple[Named, ...]:
    """What was found, as (name, path, kind), with all places of each name together."""
    places: dict[tuple[str, str], dict[str, None]] = {}
    for name, path, kind in found:
        places.setdefault((name, kind), {})[path] = None
    return tuple(Named(name, tuple(sorted(where)), kind) for (name, kind), where in sorted(places.items()))


# --- hosts, files and commands ---


_URL: Final = re.compile(
    r"\b(?:https?|wss?|ftp)://(?:[^\s/@\"'<>]*@)?"
    r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?=\.?(?:[:/?#\"'`)\]}>,;\s\\]|$))"
)
_PLACE: Final = re.compile(
    r"(?<![\w/.:$}-])((?:~|\$HOME|\$\{HOME\})(?:/[\w.@%+-]+)+|"
    r"/(?:etc|home|root|var|opt|usr|tmp|mnt|media|srv|proc|sys|dev|run|Users|Library|Applications|workspace|workspaces)"
    r"(?:/[\w.@%+-]+)+)"
)
_USUAL: Final = ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "/usr/bin/env")
_COMMAND: Final = re.compile(r"(?:^|\s)!`([^`\n]+)`", re.MULTILINE)


def hosts(sources: Iterable[SourceFile]) -> tuple[Named, ...]:
    """The hosts of URLs."""
    return collected((found.lower(), source.path, "") for source in sources for found in _URL.findall(source.text))


def files(sources: Iterable[SourceFile]) -> tuple[Named, ...]:
    """The files and folders outside of the skill that are named with their whole path."""
    return collected((place, source.path, "") for source in sources for place in _places(source))


def _places(source: SourceFile) -> Iterator[str]:
    for place in _PLACE.findall(re.sub(r"\A#!.*", "", source.text)):
        if place not in _USUAL:
            yield place.replace("${HOME}", "~").replace("$HOME", "~").rstrip(".")


def commands(sources: Iterable[SourceFile]) -> tuple[Named, ...]:
    """The commands that some hosts run while they load SKILL.md, written as !`command`. Metier never runs them."""
    return collected(
        (command.strip(), source.path, "")
        for source in sources
        if source.language == "markdown"
        for command in _COMMAND.findall(source.text)
    )


# --- modules ---


STANDARD: Final = "standard"
OWN: Final = "own"
PACKAGE: Final = "package"

_IMPORT: Final = re.compile(r"^[ \t]*(?:import|from)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_NODE: Final = re.compile(r"""(?:\brequire\(\s*|\bimport\(\s*|\bfrom\s+|\bimport\s+)["']([^"'\n]+)["']""")
_NODE_STANDARD: Final = re.compile(
    "assert async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel dns domain "
    "events fs http http2 https inspector module net os path perf_hooks process punycode querystring readline repl "
    "stream string_decoder sys test timers tls trace_events tty url util v8 vm wasi worker_threads zlib".replace(
        " ", "|"
    )
)


def imports(sources: Iterable[SourceFile]) -> tuple[Named, ...]:
    """The top-level modules that are imported. The kind is `standard`, `own` or `package`."""
    known = list(sources)
    own = {part.removesuffix(".py") for one in known if one.language == "python" for part in one.path.split("/")}
    found: list[tuple[str, str, str]] = []
    for source in known:
        if source.language == "python":
            found += ((name, source.path, _python_kind(name, own)) for name in _python(source.text))
        elif source.language == "node":
            found += (
                (name, source.path, STANDARD if _NODE_STANDARD.fullmatch(name) else PACKAGE)
                for name in _node(source.text)
            )
    return collected(found)


def _python(text: str) -> Iterator[str]:
    found = python_imports(text)
    if found is None:  # Python 2, or no Python at all
        yield from _IMPORT.findall(text)
        return
    yield from (name.partition(".")[0] for name, level in found if not level)


def _python_kind(name: str, own: Collection[str]) -> str:
    if name in sys.stdlib_module_names:
        return STANDARD
    return OWN if name in own else PACKAGE


def _node(text: str) -> Iterator[str]:
    for name in _NODE.findall(text):
        if name.startswith((".", "/")):
            continue
        parts = name.removeprefix("node:").split("/")
        yield posixpath.join(*parts[:2]) if name.startswith("@") else parts[0]


# --- programs ---


_STARTS: Final = ("run", "Popen", "call", "check_call", "check_output", "create_subprocess_exec")
_PROGRAM: Final = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_.+/-]*")
_SHELL: Final = ("system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell")


def programs(sources: Iterable[SourceFile], frontmatter: Mapping[str, object] | None = None) -> tuple[Named, ...]:
    """The programs by name. Commands that are part of the shell, and functions of the script, are left out."""
    declared = [(name, SKILL_FILE, "") for name in declared_in(frontmatter or {}, "bins")]
    found = [(name, source.path, "") for source in sources for name in _called(source)]
    return collected([*declared, *found])


def _called(source: SourceFile) -> Iterator[str]:
    if source.language == "shell":
        yield from called(source.text)
    elif source.language == "python":
        yield from _started(source.text)


def _started(text: str) -> Iterator[str]:
    tree = parsed(text)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and node.args:
            yield from _of_call(node)


def _of_call(node: ast.Call) -> Iterator[str]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    first = node.args[0]
    word = first.elts[0] if isinstance(first, ast.List | ast.Tuple) and first.elts else first
    text = word.value if isinstance(word, ast.Constant) and isinstance(word.value, str) else ""
    in_shell = any(
        keyword.arg == "shell" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
        for keyword in node.keywords
    )
    if name in _SHELL or (name in _STARTS and word is first and in_shell):
        yield from called(text)
    elif name in _STARTS and _PROGRAM.fullmatch(text):
        yield text


# --- secrets ---


_WORDS: Final = (
    "KEY", "KEYS", "TOKEN", "TOKENS", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL",
    "CREDENTIALS", "APIKEY", "PAT", "AUTH", "DSN",
)  # fmt: skip
_NAME: Final = r"([A-Z][A-Z0-9_]*)"
_READ: Final[Mapping[Language, tuple[re.Pattern[str], ...]]] = {
    "python": (re.compile(rf"""(?:environ(?:\.get\(|\.pop\(|\[)|getenv\()\s*["']{_NAME}["']"""),),
    "node": (
        re.compile(rf"process\.env\.{_NAME}"),
        re.compile(rf"""process\.env\[\s*["'`]{_NAME}["'`]"""),
    ),
    "shell": (re.compile(rf"\$\{{?{_NAME}"),),
    "markdown": (re.compile(r"(?<![A-Za-z0-9_])([A-Z][A-Z0-9]*_[A-Z0-9_]+)(?![A-Za-z0-9_])"),),
}
_TAKEN_APART: Final = re.compile(r"\{([^{}]*)\}\s*=\s*process\.env")
_ASSIGNED: Final = re.compile(
    rf"(?:^|[\s;&|(]){_NAME}=(?P<value>[^\n;]*)|\b(?:read|for|local)\s+(?:-\w+\s+)*(?P<own>[A-Z]\w*)"
)


def looks_secret(name: str) -> bool:
    """Whether the name of a variable is that of a secret, such as `GITHUB_TOKEN` or `OPENAI_API_KEY`."""
    parts = name.split("_")
    return any(part in _WORDS for part in parts) or name.endswith(("APIKEY", "TOKEN", "SECRET", "PASSWORD"))


def asked_for(sources: Iterable[SourceFile], frontmatter: Mapping[str, object] | None = None) -> tuple[Named, ...]:
    """The secrets that some sources of a skill, and its frontmatter, ask for. The kind is `declared` or `named`."""
    declared = {name: (name, SKILL_FILE, "declared") for name in declared_in(frontmatter or {}, "env")}
    found = [
        (name, source.path, "declared" if name in declared else "named") for source in sources for name in _read(source)
    ]
    return collected([*declared.values(), *found])


def asked_for_by(script: str, sources: Sequence[SourceFile], frontmatter: Mapping[str, object]) -> tuple[Named, ...]:
    """The secrets that one script asks for: itself, in a module that it names, or in SKILL.md.

    What SKILL.md names belongs to another script if that one reads it.
    """
    text = next((source.text for source in sources if source.path == script), "")
    stems = set(re.findall(r"[\w-]+", text))
    parts = [
        one for one in sources if one.path == script or posixpath.splitext(posixpath.basename(one.path))[0] in stems
    ]
    others = {name for one in sources if one not in parts and one.path != SKILL_FILE for name in _read(one)}
    about = asked_for((one for one in sources if one in parts or one.path == SKILL_FILE), frontmatter)
    return tuple(one for one in about if one.where != (SKILL_FILE,) or one.name not in others)


def declared_in(frontmatter: Mapping[str, object], what: str) -> tuple[str, ...]:
    """What the tables `requires` of the frontmatter list: `env` for variables, `bins` for programs."""
    found: dict[str, None] = {}
    tables: list[object] = [frontmatter]
    while tables:
        table = tables.pop()
        for key, value in table.items() if is_object(table) else ():
            listed = value.get(what) if key == "requires" and is_object(value) else None
            found |= dict.fromkeys(str(name) for name in (listed if is_items(listed) else ()))
            tables.append(value)
    return tuple(found)


def _read(source: SourceFile) -> Iterator[str]:
    names = [found[1] for pattern in _READ[source.language] for found in pattern.finditer(source.text)]
    if source.language == "node":
        names += (name for found in _TAKEN_APART.finditer(source.text) for name in re.findall(_NAME, found[1]))
    own = _own(source.text) if source.language == "shell" else frozenset[str]()
    yield from (name for name in dict.fromkeys(names) if looks_secret(name) and name not in own)


def _own(text: str) -> frozenset[str]:
    """The variables that a shell script sets itself. One with a default, as in `X=${X:-}`, still asks for it."""
    own: set[str] = set()
    asked: set[str] = set()
    for found in _ASSIGNED.finditer(text):
        name = found[1] or found["own"]
        itself = re.search(rf"\$\{{?{re.escape(name)}\b", found["value"] or "")
        (asked if itself else own).add(name)
    return frozenset(own - asked)


# --- all of it ---


class NamedCapabilities(Value, kw_only=True):
    """What the files of a skill name, by kind."""

    imports: tuple[Named, ...]
    hosts: tuple[Named, ...]
    programs: tuple[Named, ...]
    files: tuple[Named, ...]
    secrets: tuple[Named, ...]
    commands: tuple[Named, ...]

    def of(self, kind: str) -> tuple[Named, ...]:
        """What is named of one kind, which is the name of a field."""
        return getattr(self, kind)


def look(tree: SkillTree, frontmatter: Mapping[str, object]) -> NamedCapabilities:
    """Look at all files of a skill."""
    known = sources(tree)
    return NamedCapabilities(
        imports=imports(known),
        hosts=hosts(known),
        programs=programs(known, frontmatter),
        files=files(known),
        secrets=asked_for(known, frontmatter),
        commands=commands(known),
    )
