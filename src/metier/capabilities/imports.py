"""The modules that the Python and Node scripts of a skill import, and whether they are standard, its own or others'."""

import posixpath
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from metier.capabilities.sources import Named, SourceFile, collected
from metier.packages.python_imports import python_imports

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
