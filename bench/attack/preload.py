"""Imports what Metier may import later, because an ordinary user may not be able to read the interpreter's files."""

import contextlib
import encodings
import functools
import importlib
import pkgutil
import warnings

import metier

_STANDARD = (
    *(
        "importlib.metadata",
        "importlib.readers",
        "importlib.resources",
        "importlib.resources.readers",
        "importlib.util",
    ),
    *("getpass", "mimetypes", "queue", "shlex", "ssl", "string", "textwrap", "webbrowser", "http.client", "csv"),
    *("concurrent.futures.thread", "difflib", "email.mime.text", "fractions", "html.parser", "lzma", "bz2", "zlib"),
    *("multiprocessing", "sqlite3", "statistics", "tarfile", "tomllib", "unicodedata", "uuid", "xml.etree.ElementTree"),
    *("zipfile", "asyncio.unix_events", "http.cookies", "http.server", "locale", "pwd", "stringprep", "zipimport"),
    *(
        "click.shell_completion",
        "uvicorn.main",
        "uvicorn.lifespan.on",
        "uvicorn.loops.asyncio",
        "anyio._backends._asyncio",
    ),
    *("uvicorn.protocols.http.h11_impl", "uvicorn.loops.auto"),
    *("uvicorn.protocols.websockets.auto", "uvicorn.protocols.http.auto"),
)


@functools.cache
def preload() -> None:
    """Import all modules of Metier except the adapters, and what they import when they are first used."""
    found = [module.name for module in pkgutil.walk_packages(metier.__path__, "metier.")]
    found += [f"encodings.{module.name}" for module in pkgutil.iter_modules(encodings.__path__)]
    for name in (*found, *_STANDARD):
        if not name.endswith(("__main__", "idmap")) and not name.startswith("metier.adapters"):
            with warnings.catch_warnings(), contextlib.suppress(ImportError, OSError):
                warnings.simplefilter("ignore")
                importlib.import_module(name)
