"""The standard streams of the process: none is missing, and none fails again at the very end."""

import os
import sys


def open_missing() -> None:
    """Open `/dev/null` for streams that the caller closed, so that no database gets the number of standard output."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest free number, which is this one
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def flushed() -> bool:
    """Flush standard output, and return whether everything could be written."""
    try:
        sys.stdout.flush()
    except OSError:
        return False
    return True


def forget() -> None:
    """Let the interpreter flush its streams into nothing at the end, because nobody can read them."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(nothing, stream.fileno())
        except (OSError, ValueError):
            continue  # it is not a file, as in tests, or already closed
    os.close(nothing)
