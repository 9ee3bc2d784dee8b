"""Reads and replaces the text files of a skill for its author.

The invariant: a file is written only over the content that its author saw. Whoever saves names the digest of what was
read. If the file is another one by then, or becomes another one while it is replaced, nothing is lost: the other
content stays, and saving fails. Every file is opened beneath the skill's folder, without following links.
"""

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final

from metier import limits
from metier.errors import ConfigError, MetierError, ResourceError, ResourceNotFound
from metier.files.beneath import OPEN, check_relative, list_files, open_folder
from metier.files.digests import digest_of
from metier.sources.install import lock, placing
from metier.values.skill import REMOTE, SKILL_FILE, Root

TEXT_BYTES: Final = limits.MIB
"""The largest file that can be edited."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class EditRefused(MetierError):
    """The skill or the file cannot be changed here. The message says why."""


class EditConflict(MetierError):
    """The file is not the one that the author read. `text` is what it has now, `None` if it is gone."""

    def __init__(self, path: str, text: "EditedText | None") -> None:
        self.text = text
        what = "was changed" if text is not None else "was removed"
        super().__init__(f"{path} {what} by somebody else since you opened it; nothing was saved")


@dataclass(frozen=True, slots=True)
class EditedText:
    """A text file of a skill. A new file has an empty digest."""

    path: str
    text: str
    digest: str


@dataclass(frozen=True)
class SkillFolder:
    """The folder of a skill on disk. `root` is the folder of skills in which it was found."""

    file: str
    """The path of the SKILL.md, as it was found."""
    root: Root | None = None
    inner: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        return os.path.realpath(os.path.dirname(self.file))

    @property
    def name(self) -> str:
        return os.path.basename(self.folder)

    def obstacle(self) -> str:
        """Why nothing in the folder can be changed; empty if it can."""
        if self.root is not None and self.root.scope == REMOTE:
            return "It is offered by an MCP server. Change it there."
        if os.path.islink(self.file):
            return "Its SKILL.md is a symbolic link. Edit the file that it leads to."
        if self.root is not None:
            above = os.path.realpath(self.root.path).rstrip("/")
            if self.folder != above and not self.folder.startswith(f"{above}/"):
                return f"A link leads to it, and it is outside of {self.root.path}. Open it where it is."
        if source := installed_from(self.folder):
            return f"It was installed from {source}. Change it there and install it again, or copy it under a new name."
        if not os.access(self.folder, os.W_OK):
            return "Its folder is read-only for the user that this server runs as."
        return ""

    def files(self) -> Sequence[str]:
        """The files that can be opened here, SKILL.md first."""
        try:
            listed = list_files(self.folder, limits.LISTED_FILES, 1 << 62).files
        except ResourceError:
            return ()
        own = (path for path in listed if not any(path.startswith(f"{one}/") for one in self.inner))
        return (SKILL_FILE, *(path for path in own if path != SKILL_FILE))

    def read(self, path: str) -> EditedText:
        """A text file. Raises `ResourceError` if there is none, and `EditRefused` if it is no text."""
        relative = self._checked(path)
        with self._above(relative) as (folder, name):
            return _read(folder, name, relative)

    def save(self, path: str, text: str, expected: str) -> EditedText:
        """Replace a file, if its digest is still `expected`. An empty `expected` makes a new file.

        Raises `EditConflict` if the file is another one, and `EditRefused` if it cannot be written.
        """
        relative = self._checked(path)
        if why := self.obstacle():
            raise EditRefused(why)
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise EditRefused("the text has half a surrogate pair, which no file can hold") from error
        if len(data) > TEXT_BYTES:
            raise EditRefused(f"a file may have at most {TEXT_BYTES // limits.MIB} MiB here")
        with self._above(relative, make=not expected) as (folder, name):
            try:
                fcntl.flock(folder, fcntl.LOCK_EX)  # released when the folder is closed
                _replace(folder, name, relative, data, expected)
            except OSError as error:
                raise EditRefused(f"{relative} cannot be written: {error.strerror}") from error
        return EditedText(relative, text, digest_of(data))

    def _checked(self, path: str) -> str:
        relative = check_relative(path)
        if not relative or relative.split("/")[0] in (".git", "__pycache__", "node_modules"):
            raise EditRefused("this is no file of the skill")
        if any(f"{relative}/".startswith(f"{one}/") for one in self.inner):
            raise EditRefused(f"{relative} belongs to another skill")
        return relative

    @contextlib.contextmanager
    def _above(self, relative: str, *, make: bool = False) -> Generator[tuple[int, str]]:
        """The open folder that has a file, and the file's name. No folder on the way may be a link."""
        *folders, name = relative.split("/")
        with open_folder(self.folder) as top, contextlib.ExitStack() as stack:
            folder = os.open(".", _FOLDER, dir_fd=top)
            stack.callback(os.close, folder)
            for part in folders:
                try:
                    if make:
                        with contextlib.suppress(FileExistsError):
                            os.mkdir(part, 0o755, dir_fd=folder)
                    folder = os.open(part, _FOLDER, dir_fd=folder)
                except FileNotFoundError as error:
                    raise ResourceNotFound(relative) from error
                except OSError as error:
                    raise EditRefused(f"{part} is not a folder of the skill, or cannot be used") from error
                stack.callback(os.close, folder)
            yield folder, name


def installed_from(folder: str) -> str:
    """The source of an installed skill; empty for one that was not installed, or whose lock file cannot be read."""
    try:
        entry = lock.read(os.path.dirname(folder)).get(os.path.basename(folder))
    except ConfigError:
        return ""
    return entry.source if entry is not None else ""


def _read(folder: int, name: str, shown: str) -> EditedText:
    try:
        descriptor = os.open(name, OPEN, dir_fd=folder)
    except FileNotFoundError as error:
        raise ResourceNotFound(shown) from error
    except OSError as error:
        raise EditRefused(f"{shown} is a symbolic link, or cannot be read") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise EditRefused(f"{shown} is not a regular file")
        if status.st_size > TEXT_BYTES:
            raise EditRefused(f"{shown} has more than {TEXT_BYTES // limits.MIB} MiB")
        with os.fdopen(os.dup(descriptor), "rb") as stream:
            data = stream.read(TEXT_BYTES + 1)
    finally:
        os.close(descriptor)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise EditRefused(f"{shown} is not text in UTF-8") from error
    if "\0" in text:
        raise EditRefused(f"{shown} is not text")
    return EditedText(shown, text, digest_of(data))


def _replace(folder: int, name: str, shown: str, data: bytes, expected: str) -> None:
    """Replace a file in one step. The one that was replaced is looked at again, and put back if it is another one."""
    try:
        mode = stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        mode = 0o755 if data.startswith(b"#!") else 0o644
    _compare(folder, name, shown, expected)
    new = f".metier-{secrets.token_hex(8)}"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            os.fchmod(stream.fileno(), mode)
            stream.flush()
            os.fsync(stream.fileno())
        if not expected:
            # A new file: a link fails if there is one by now, a rename would replace it.
            try:
                os.link(new, name, src_dir_fd=folder, dst_dir_fd=folder)
            except FileExistsError:
                _compare(folder, name, shown, expected)
            return
        if placing.exchange(folder, new, name):
            try:
                _compare(folder, new, shown, expected)
            except EditConflict:
                placing.exchange(folder, new, name)
                raise
        else:
            # This file system cannot exchange two files. Nobody else has the lock, and this is checked once more.
            _compare(folder, name, shown, expected)
            os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new, dir_fd=folder)


def _compare(folder: int, name: str, shown: str, expected: str) -> None:
    try:
        found: EditedText | None = _read(folder, name, shown)
    except ResourceNotFound:
        found = None
    if (found.digest if found else "") != expected:
        raise EditConflict(shown, found)
