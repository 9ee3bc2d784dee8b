"""Logs the SKILL.md files that a scan left out: broken ones, and those that lost their name to another.

The log is for programs that use the library. The command line shows the same findings itself, so nothing is printed
unless the program sets logging up. What the last scan logged is not logged again.
"""

from typing import Final

from metier.catalog.build import Catalog
from metier.files.text import printable

LOGGER: Final = "metier.catalog"

_CHOSEN: Final = frozenset(("ignored", "not-included", "ignored-folder", "same-file", "source-off"))
"""The reasons for leaving a file out that somebody chose, and the one that leaves nothing out."""

Findings = dict[str, str]
"""What was logged about each file."""


def log_left_out(catalog: Catalog, known: Findings) -> Findings:
    """Log what is new since `known`, one warning for each file. Returns what is to be known of the next scan."""
    found = _findings(catalog)
    fresh = [(path, message) for path, message in found.items() if known.get(path) != message]
    if fresh:
        import logging  # as slow to import as a small catalog is to scan, and most have nothing to log

        log = logging.getLogger(LOGGER)
        if not log.handlers:
            log.addHandler(logging.NullHandler())
        for path, message in fresh:
            log.warning("%s: %s", printable(path), printable(message))
    return found


def _findings(catalog: Catalog) -> Findings:
    found = {entry.path: f"skipped: {entry.detail}" for entry in catalog.skipped if entry.reason not in _CHOSEN}
    failed = set(catalog.failed)
    for note in catalog.diagnostics:
        if note.code == "collision" or (note.severity == "error" and note.path in failed):
            found.setdefault(note.path, f"skipped: {note.message}")
    return found
