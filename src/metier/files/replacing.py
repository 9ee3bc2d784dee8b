"""Replaces a file as a whole, so that a reader never sees half of it and a full disk leaves nothing behind."""

import contextlib
import os
from collections.abc import Generator
from typing import TextIO


@contextlib.contextmanager
def replacing(file: str, encoding: str = "utf-8") -> Generator[TextIO]:
    """A stream for the new content, with mode 600 at first. The file is replaced when the block ends without an error.

    An `OSError` names the file.
    """
    import tempfile  # slow to import, and most processes only read

    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".metier-", dir=os.path.dirname(file))
        with os.fdopen(descriptor, "w", encoding=encoding, newline="") as stream:
            yield stream
        os.replace(temporary, file)
    except BaseException as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError):
            error.filename = file
        raise
