"""The user's token for servers on this machine, in a file that only the user can read.

Loopback is shared by all users of a machine, so an address proves nothing; being able to read this file does. The file
is made once and appears whole, with its final mode. A file that others could read or could have written is refused.
"""

import contextlib
import os
import re
import secrets
import stat
import tempfile
from typing import Final

from metier.errors import ConfigError

NAME: Final = "token"
_FORM: Final = re.compile(rb"[A-Za-z0-9_-]{32,200}\n?")


def path_in(folder: str) -> str:
    """The path of the file in the user's configuration folder."""
    return os.path.join(folder, NAME)


def token(folder: str) -> str:
    """The token in the user's configuration folder. It is made if there is none."""
    file = path_in(folder)
    try:
        try:
            return _read(file)
        except FileNotFoundError:
            _make(file)
            return _read(file)
    except OSError as error:
        hint = "set METIER_TOKEN, or listen on a socket with --socket PATH"
        raise ConfigError(f"the token cannot be kept: {error.strerror}", file=file, hint=hint) from error


def _read(file: str) -> str:
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _refused(file, "is not a file")
        if found.st_uid != os.geteuid():
            raise _refused(file, "belongs to another user")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise _refused(file, "can be used by other users")
        content = stream.read(1_000)
    if not _FORM.fullmatch(content):
        raise _refused(file, "does not hold a token")
    return content.decode().strip()


def _refused(file: str, why: str) -> ConfigError:
    return ConfigError(f"the file of the token {why}", file=file, key="token", hint="delete it; a new one is made")


def _make(file: str) -> None:
    """Make the file with a new token, unless another process was faster."""
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        write_private(file, secrets.token_urlsafe(32) + "\n", replace=False)


def write_private(file: str, text: str, *, replace: bool) -> None:
    """Write a file with mode 600, which appears whole. Without `replace`, an existing file raises `FileExistsError`."""
    descriptor, temporary = tempfile.mkstemp(prefix=".metier-", dir=os.path.dirname(file))  # exclusive, with mode 600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        if replace:
            os.replace(temporary, file)
        else:
            os.link(temporary, file)
    except OSError as error:
        error.filename = file
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
