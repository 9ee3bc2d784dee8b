"""Keeps secrets in the system keyring, or in files that only the user can read where there is no keyring.

A folder of mode 700 has one file of mode 600 for each secret: `NAME.secret` with the value, or an empty `NAME.keyring`
that says that the keyring has it, because a keyring cannot list what it has. A file is only ever replaced as a whole.
No error of this module has a value in it.
"""

import contextlib
import os
import re
import stat
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, NamedTuple, Protocol, cast

from metier.errors import ConfigError
from metier.files.beneath import read_regular
from metier.files.replace import replacing
from metier.files.text import from_utf8
from metier.running.secrets.masking import DISTINCT, SHORTEST, Mask

Place = Literal["keyring", "file"]

LONGEST: Final = 16 * 1024
"""The bytes of a value. A variable of a process cannot hold much more."""
NAME_LENGTH: Final = 64
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FILE: Final = ".secret"
_MARK: Final = ".keyring"
RESERVED: Final = frozenset(
    ("PATH", "HOME", "TMPDIR", "LANG", "SKILL_DIR", "WORK_DIR", "PROJECT_DIR", "IFS", "ENV", "BASH_ENV", "NODE_OPTIONS")
)
"""Variables that change how a script runs. So do those that begin with `LD_` or `PYTHON`."""


class Keyring(Protocol):
    """As much of a backend of the library `keyring` as is used here."""

    name: str
    priority: float

    def get_password(self, service: str, username: str) -> str | None: ...
    def set_password(self, service: str, username: str, password: str) -> None: ...
    def delete_password(self, service: str, username: str) -> None: ...


class KeyringState(NamedTuple):
    """The keyring of this machine, or why there is none that can be used."""

    backend: Keyring | None
    problem: str = ""


def find_keyring() -> KeyringState:
    """Look for the system keyring. Backends that keep nothing or refuse everything have no positive priority."""
    try:
        import keyring
    except ImportError:
        return KeyringState(None, "the library keyring is not installed (pip install 'metier[keyring]')")
    try:
        backend = cast("Keyring", keyring.get_keyring())
        if backend.priority > 0:
            return KeyringState(backend)
    except Exception as error:  # noqa: BLE001 - backends are plugins, and raise anything
        return KeyringState(None, f"the keyring cannot be used: {type(error).__name__}")
    return KeyringState(None, "this system has no keyring that can be used")


def check_name(name: str) -> None:
    """Raise `ConfigError` unless a secret can have this name: it is the name of a variable."""
    if not _NAME.fullmatch(name) or len(name) > NAME_LENGTH:
        hint = "use letters, digits and _, such as GITHUB_TOKEN"
        raise ConfigError("this cannot be the name of a variable", key="NAME", hint=hint)
    if name in RESERVED or name.startswith(("LD_", "PYTHON")):
        raise ConfigError(f"{name} is a variable that every script has, or that changes how it runs", key="NAME")


def check_value(value: str) -> None:
    """Raise `ConfigError` for a value that no variable can hold, or that cannot be kept out of other text."""
    solid = "".join(value.split())
    problem = ""
    if not value:
        problem = "the value is empty"
    elif "\0" in value:
        problem = "the value has a NUL character, which no variable can hold"
    elif any("\ud800" <= character <= "\udfff" for character in value):
        problem = "the value is not valid UTF-8"
    elif len(value.encode()) > LONGEST:
        problem = f"the value has more than {LONGEST // 1024} KiB"
    elif len(solid) < SHORTEST or len(set(solid)) < DISTINCT:
        problem = (
            f"the value has fewer than {SHORTEST} characters, or fewer than {DISTINCT} different ones, so hiding it "
            "would hide other text, too"
        )
    if problem:
        raise ConfigError(problem, key="value")


class SecretStorage:
    """The secrets of one user. Other processes may change them at any time."""

    def __init__(self, config_folder: str) -> None:
        """Without a folder, there are no secrets and none can be added."""
        self.folder = os.path.join(config_folder, "secrets") if config_folder else ""
        self._service = f"metier ({config_folder})"

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.places()))

    def places(self) -> dict[str, Place]:
        """Where each secret is kept."""
        entries: list[str] = []
        with self._told("cannot be read"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            entries = sorted(os.listdir(self.folder)) if self.folder else []
        found: dict[str, Place] = {}
        for entry in entries:
            name, suffix = os.path.splitext(entry)
            if suffix in (_FILE, _MARK) and _NAME.fullmatch(name):
                found[name] = "file" if suffix == _FILE else "keyring"
        return found

    def value(self, name: str) -> str | None:
        """The value of a secret, or `None` if there is none. Raises `ConfigError` if it cannot be read."""
        path = os.path.join(self.folder, name + _FILE)
        with self._told("cannot be read"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self._check_mode(path)
            return from_utf8(read_regular(path, LONGEST))
        return self._asked_of_keyring(name) if self._is_marked(name) else None

    def set(self, name: str, value: str, *, in_file: bool = False) -> KeyringState:
        """Keep a secret in the keyring, or in a file if there is no keyring. Returns the keyring, if it was used."""
        check_name(name)
        check_value(value)
        state = KeyringState(None, "a file was asked for") if in_file else find_keyring()
        if state.backend is not None:
            try:
                state.backend.set_password(self._service, name, value)
            except Exception as error:  # noqa: BLE001 - backends are plugins, and raise anything
                raise _refused(error) from None  # its text may quote the value
            self._replace(name + _MARK, "")
            self._unlink(name + _FILE)
        else:
            self._replace(name + _FILE, value)
            if self._is_marked(name):
                self._forget_in_keyring(name)
                self._unlink(name + _MARK)
        return state

    def remove(self, name: str) -> bool:
        """Delete a secret. Returns whether there was one."""
        if name not in self.places():
            return False
        if self._is_marked(name):
            self._forget_in_keyring(name)
        self._unlink(name + _FILE)
        self._unlink(name + _MARK)
        return True

    # --- the keyring ---

    def _is_marked(self, name: str) -> bool:
        return os.path.lexists(os.path.join(self.folder, name + _MARK))

    def _asked_of_keyring(self, name: str) -> str | None:
        state = find_keyring()
        if state.backend is None:
            hint = f"`metier secret set {name}` keeps it anew"
            raise ConfigError(f"the secret {name} is in a keyring, and {state.problem}", key=name, hint=hint)
        try:
            return state.backend.get_password(self._service, name)
        except Exception as error:  # noqa: BLE001 - backends are plugins, and raise anything
            raise _refused(error) from None

    def _forget_in_keyring(self, name: str) -> None:
        """Delete the value in the keyring, if that can be reached. A value that is not there is no error."""
        backend = find_keyring().backend
        with contextlib.suppress(Exception):
            if backend is not None:
                backend.delete_password(self._service, name)

    # --- files ---

    def _replace(self, entry: str, text: str) -> None:
        if not self.folder:
            raise ConfigError("there is no folder for secrets here", key="NAME")
        path = os.path.join(self.folder, entry)
        with self._told("cannot be written"):
            os.makedirs(os.path.dirname(self.folder), exist_ok=True)
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            os.chmod(self.folder, 0o700)
            with replacing(path) as stream:  # its mode is 600 from the beginning
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())

    def _unlink(self, entry: str) -> None:
        with self._told("cannot be written"), contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.folder, entry))

    def _check_mode(self, path: str) -> None:
        """Refuse a file that others can read: its value is no secret any more."""
        if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
            hint = f"take their rights away with chmod 600 {path}, and think about a new value"
            raise ConfigError("other users may read this secret", file=path, hint=hint)

    @contextlib.contextmanager
    def _told(self, what: str) -> Generator[None]:
        """Turn an error of the system into one that names the file."""
        try:
            yield
        except OSError as error:
            raise ConfigError(f"{what}: {error.strerror}", file=str(error.filename or self.folder)) from error


def _refused(error: Exception) -> ConfigError:
    hint = "unlock it, or keep the secret in a file with --in-file"
    return ConfigError(f"the keyring refused: {type(error).__name__}", key="keyring", hint=hint)


@dataclass(frozen=True)
class StoredSecrets:
    """The secrets of the user at one moment, with their values."""

    values: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    problems: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why the others could not be read."""

    @cached_property
    def mask(self) -> Mask:
        return Mask(self.values)


def stored_secrets(config_folder: str) -> StoredSecrets:
    """All secrets of the user. A replay, which has no such folder, has none."""
    kept, values, problems = SecretStorage(config_folder), dict[str, str](), dict[str, str]()
    try:
        names = kept.names()
    except ConfigError:
        return StoredSecrets()
    for name in names:
        try:
            value = kept.value(name)
        except ConfigError as error:
            problems[name] = str(error)
        else:
            values |= {name: value} if value else {}
    return StoredSecrets(values, problems)
