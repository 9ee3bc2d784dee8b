"""The line that ends each session of an export, so that a change of the file is found.

The line has the number of the session's lines and the SHA-256 of their texts: no line can be changed, removed, added or
moved without a difference. It protects against accidents and careless edits, and not against somebody who computes it
again.
"""

import hashlib
import json
from collections.abc import Mapping

from metier.files.shapes import as_table
from metier.record.store.values import encode
from metier.values.value import Value


class SealProblem(Value):
    """Something that is wrong with an exported file: the number of the line where it shows, and what it is."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


class Seal:
    """Counts and hashes the lines of one session."""

    def __init__(self) -> None:
        self.lines = 0
        self._hash = hashlib.sha256()

    def add(self, text: str) -> str:
        """Take in a line without its line end, and return it."""
        self.lines += 1
        # A line that was damaged may have anything in it, also half a surrogate pair.
        self._hash.update(text.encode("utf-8", "surrogatepass") + b"\n")
        return text

    def end(self, session_id: str | None) -> str:
        """Return the end line; `None` stands for what belongs to no session."""
        return encode({"end": session_id, "lines": self.lines, "sha256": self._hash.hexdigest()})


def is_end(record: Mapping[str, object]) -> bool:
    """Whether a parsed line of an export is the end of a session."""
    return "end" in record and not record.keys() & {"artifact", "state", "seq"}


class SealCheck:
    """Checks the lines of an exported file in their order. Problems are returned, and the check goes on."""

    def __init__(self) -> None:
        self._number = 0
        self._empty = False
        """Whether the last text was empty. Splitting a file at line ends leaves such a text at its end."""
        self._begin()

    def _begin(self) -> None:
        """Begin the lines of the next session."""
        self._seal = Seal()
        self._sessions: set[str] = set()
        self._frames = False

    def line(self, number: int, text: str) -> SealProblem | None:
        """Check the next line, with or without its line end. All lines of the file count, also blank ones."""
        self._number = number
        if self._empty:
            self._seal.add("")
        self._empty = not text
        if not text:
            return None
        text = text.removesuffix("\n")
        record = _parsed(text)
        if is_end(record):
            problem = self._problem(text, record)
            self._begin()
            return SealProblem(number, problem) if problem else None
        self._seal.add(text)
        if "session_id" in record:
            self._sessions.add(str(record["session_id"]))
        self._frames |= "seq" in record
        return None

    def finish(self) -> SealProblem | None:
        """Check that the file ends with the end of a session."""
        if not self._seal.lines:
            return None
        return SealProblem(self._number, "no end line follows: the file was cut, or lines were added")

    def _problem(self, text: str, record: Mapping[str, object]) -> str:
        """Return what is wrong with an end line or the lines before it, or nothing."""
        session, lines = record["end"], record.get("lines")
        if not isinstance(session, str | None) or not isinstance(lines, int):
            return "the end line was changed"
        if lines != self._seal.lines:
            what = "removed" if lines > self._seal.lines else "added"
            return f"the end line counts {lines} lines, and there are {self._seal.lines}: lines were {what}"
        own = self._frames and self._sessions == {session}
        if not own and (self._frames or session is not None):
            return f"the end line names another session than the {lines} lines before it"
        if text != self._seal.end(session):
            return f"the {lines} lines before the end line, or this line, were changed or moved"
        return ""


def _parsed(text: str) -> dict[str, object]:
    try:
        return as_table(json.loads(text))
    except (ValueError, RecursionError):
        return {}
