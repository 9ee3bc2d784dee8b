"""Replaces a file in one step, so that no reader ever sees half of it."""

import contextlib
import os
import stat
import tempfile


def replace_file(target: str, data: bytes, mode: int = 0o666) -> None:
    """Replace the file. It keeps its mode and, if that is allowed, its owner. A new file gets `mode`."""
    descriptor, temporary = tempfile.mkstemp(prefix=".metier-", dir=os.path.dirname(target))
    try:
        with os.fdopen(descriptor, "wb") as stream:
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
        os.replace(temporary, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        error.filename = target
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
