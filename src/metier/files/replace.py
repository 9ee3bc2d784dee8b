"""Replaces a file as a whole, so that a reader never sees half of it and a full disk leaves nothing behind."""

import contextlib
import io
import os
import stat
from collections.abc import Generator, Mapping
from typing import BinaryIO, TextIO

from metier.errors import ConfigError


def replace_json(file: str, content: Mapping[str, object]) -> None:
    """Replace a file of the user's choices, and make its folder. Raises `ConfigError` if it cannot be written."""
    import json

    text = json.dumps(content, indent=2) + "\n"  # escaped to ASCII, so that a path that is not UTF-8 survives
    try:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with replacing(file, "ascii") as stream:
            stream.write(text)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=file) from error


def replace_file(target: str, data: bytes, mode: int = 0o666) -> None:
    """Replace the file. It keeps its mode and, if that is allowed, its owner. A new file gets `mode`."""
    with beside(target) as stream:
        stream.write(data)
        try:
            status = os.stat(target)
        except FileNotFoundError:
            os.fchmod(stream.fileno(), mode & ~_umask())
        else:
            with contextlib.suppress(PermissionError):
                os.fchown(stream.fileno(), status.st_uid, status.st_gid)
            os.fchmod(stream.fileno(), stat.S_IMODE(status.st_mode))
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def replacing(target: str, encoding: str = "utf-8") -> Generator[TextIO]:
    """A stream for the new content, with mode 600 at first. The file is replaced when the block ends without error."""
    with beside(target) as stream:
        text = io.TextIOWrapper(stream, encoding=encoding, newline="")
        try:
            yield text
        finally:
            text.detach()  # it writes what is left; the file is closed where it was opened


@contextlib.contextmanager
def beside(target: str) -> Generator[BinaryIO]:
    """A new file in the same folder, with mode 600, which takes the place of the target when the block ends.

    An `OSError` names the target.
    """
    import tempfile  # slow to import, and most processes only read

    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".metier-", dir=os.path.dirname(target))
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
        os.replace(temporary, target)
    except BaseException as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError):
            error.filename = target
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
