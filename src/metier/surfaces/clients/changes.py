"""A change of a client's file: planned and shown first, then written in one step if the file is still the same.

What an addition made besides its entry is kept in the user's configuration folder, so that its removal is exact.
"""

import contextlib
import difflib
import json
import os
import tomllib
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from metier import limits
from metier.errors import ConfigError
from metier.files.beneath import read_regular
from metier.files.json_text import parse_json
from metier.files.replace import replace_file, replace_json
from metier.files.shapes import as_table, is_table
from metier.surfaces.clients.entries import (
    NOTHING,
    Undo,
    put_json,
    put_toml,
    read_commented,
    section_of,
    take_json,
    take_toml,
    toml_table,
)
from metier.surfaces.clients.programs import ClientFile, is_ours

Action = Literal["add", "replace", "remove", "none"]

_RECORD: Final = "mcp-clients.json"
_MARK: Final = "\ufeff"
_LONGEST_LINE: Final = 200
"""A file with longer lines was not formatted for people, and is not shown as lines."""


class NotEdited(ConfigError):
    """The file is left as it is, because it cannot be changed safely. A person has to do it."""


class FileChanged(ConfigError):
    """Another program changed the file after the change was planned."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as it is. `target` is the real file if the path is a link."""

    place: ClientFile
    name: str
    target: str
    before: bytes | None = None
    text: str | None = None
    old: dict[str, object] | None = None
    """The entry of that name."""
    why_not: str = ""
    """Why it cannot be edited, although it can be read."""

    def encoded(self, text: str) -> bytes:
        mark = _MARK if self.before is not None and self.before.startswith(_MARK.encode()) else ""
        return (mark + text).encode()

    @contextlib.contextmanager
    def editing(self) -> Generator[None]:
        try:
            if self.why_not:
                raise ValueError(self.why_not)
            yield
        except ValueError as error:  # also text that is not UTF-8
            reason = "an option is not UTF-8" if isinstance(error, UnicodeEncodeError) else str(error)
            raise NotEdited(f"{reason}; the file was left as it is", file=self.place.file) from error


@dataclass(frozen=True, slots=True)
class Change:
    """What a file would be, and how the change is undone."""

    found: FoundFile
    action: Action
    after: bytes | None
    entry: Mapping[str, object] | None = None
    undo: Undo = NOTHING

    def lines(self) -> list[str]:
        """The lines that go, with a minus, and those that come, with a plus."""
        old, new = ((data or b"").decode().removeprefix(_MARK).splitlines() for data in (self.found.before, self.after))
        found = list(difflib.unified_diff(old, new, n=0, lineterm=""))[2:]
        found = [line for line in found if not line.startswith("@@")]
        if any(len(line) > _LONGEST_LINE for line in found):
            found = [
                f"{sign}{line}"
                for sign, one in (("-", self.found.old), ("+", self.entry))
                if one is not None
                for line in snippet(self.found.place, self.found.name, one).splitlines()
            ]
        return found


def snippet(place: ClientFile, name: str, entry: Mapping[str, object]) -> str:
    """The entry as it stands in a file that has nothing else."""
    if place.client.is_toml:
        return toml_table(name, entry)
    return json.dumps({place.client.section: {name: entry}}, indent=2, ensure_ascii=False) + "\n"


# --- planning ---


def plan_add(place: ClientFile, name: str, entry: Mapping[str, object], *, force: bool = False) -> Change:
    """Plan the entry. What a person added to an earlier one stays. Raises `NotEdited` or another `ConfigError`."""
    found = _read(place, name)
    wanted = {**found.old, **entry} if found.old is not None and is_ours(found.old) else dict(entry)
    if found.old == wanted:
        return Change(found, "none", found.before, wanted)
    if found.old is not None and not is_ours(found.old) and not force:
        raise _foreign(place, name, "another --name, or --force to replace it")
    with found.editing():
        if place.client.is_toml:
            text = found.text
            if text is not None and found.old is not None and not is_ours(found.old):
                text = take_toml(text, name, NOTHING)
            made, undo = put_toml(text, name, entry)
        else:
            made, undo = put_json(found.text, place.client.section, name, wanted)
        return Change(found, "add" if found.old is None else "replace", found.encoded(made), wanted, undo)


def plan_remove(place: ClientFile, name: str, config_folder: str, *, force: bool = False) -> Change:
    """Plan the removal of the entry. Raises `NotEdited` or another `ConfigError`."""
    found = _read(place, name)
    if found.old is None:
        return Change(found, "none", found.before)
    if not is_ours(found.old) and not force:
        raise _foreign(place, name, "another --name, or --force to remove it")
    undo = _recorded(config_folder, found.target, name)
    with found.editing():
        assert found.text is not None
        if place.client.is_toml:
            left = take_toml(found.text, name, undo)
        else:
            left = take_json(found.text, place.client.section, name, undo)
        return Change(found, "remove", None if left is None else found.encoded(left), undo=undo)


def _foreign(place: ClientFile, name: str, way_out: str) -> ConfigError:
    message = f"`{place.client.section}.{name}` is there and does not start `metier mcp`"
    return ConfigError(message, file=place.file, key=name, hint=f"use {way_out}")


def _read(place: ClientFile, name: str) -> FoundFile:
    target = os.path.realpath(place.file)
    base = os.path.join(os.path.realpath(place.base), "")
    if not target.startswith(base):
        hint = f"change {target} by hand, or replace the link"
        raise NotEdited(f"is a link out of {place.base}, which is not followed", file=place.file, hint=hint)
    try:
        before = read_regular(target, limits.CLIENT_FILE_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return FoundFile(place, name, target)
    except OSError as error:
        raise NotEdited(f"cannot be read: {error.strerror}", file=place.file) from error
    try:
        text = before.decode().removeprefix(_MARK)
        data, why_not = _parse(text, place)
        servers = section_of(data, place.client.section)
        old = servers.get(name)
        if old is not None and not is_table(old):
            raise ValueError(f"`{place.client.section}.{name}` is not an object")
    except (ValueError, RecursionError) as error:
        raise _broken(error, place) from error
    return FoundFile(place, name, target, before, text, old, why_not)


def _parse(text: str, place: ClientFile) -> tuple[object, str]:
    """The data, and why the text cannot be edited."""
    if not text.strip():
        return {}, ""
    if place.client.is_toml:
        return tomllib.loads(text), ""
    try:
        return parse_json(text), ""
    except ValueError:
        with contextlib.suppress(ValueError):
            return read_commented(text), "has comments or trailing commas, which could be lost"
        raise


def _broken(error: Exception, place: ClientFile) -> NotEdited:
    kind = "TOML" if place.client.is_toml else "JSON"
    hint = "repair it, then try again; it was left as it is"
    if isinstance(error, json.JSONDecodeError):
        message = f"is not {kind}: {error.msg} in column {error.colno}"
        return NotEdited(message, file=place.file, line=error.lineno, hint=hint)
    if isinstance(error, tomllib.TOMLDecodeError):
        return NotEdited(f"is not {kind}: {error}", file=place.file, hint=hint)
    if isinstance(error, UnicodeDecodeError):
        return NotEdited("is not UTF-8", file=place.file, hint=hint)
    message = "nests without end" if isinstance(error, RecursionError) else str(error)
    return NotEdited(message, file=place.file, hint=hint)


# --- writing ---


def write(change: Change, config_folder: str) -> None:
    """Write the file. Raises `FileChanged` if it is no longer what the plan began with."""
    folder = os.path.dirname(change.found.target)
    made = _make_folders(folder, change)
    with _locked(folder, change.found.place.file):
        if _current(change) != change.found.before:
            _pass_on(config_folder, change.found.target, Undo(folders=made))
            message = "was changed by another program, and nothing was written"
            raise FileChanged(message, file=change.found.place.file, hint="try again")
        if change.action == "add":
            _record(config_folder, change, replace(change.undo, folders=made))
        with _writing(change.found.place.file):
            if change.after is None:
                os.unlink(change.found.target)
            else:
                replace_file(change.found.target, change.after, 0o600 if change.found.place.scope == "user" else 0o666)
        if change.action == "remove":
            _record(config_folder, change, None)
            if change.after is not None:
                blank = "" if change.found.place.client.is_toml else change.undo.blank  # a table of TOML has its own
                _pass_on(config_folder, change.found.target, replace(change.undo, blank=blank))
    if change.after is None:
        for one in reversed(change.undo.folders):
            with contextlib.suppress(OSError):  # something else is in it
                os.rmdir(one)


def _make_folders(folder: str, change: Change) -> tuple[str, ...]:
    """Make the folder of the file. Returns the new ones, the innermost last."""
    missing: list[str] = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    with _writing(change.found.place.file):
        for one in reversed(missing):
            os.makedirs(one, exist_ok=True)
    return tuple(reversed(missing))


@contextlib.contextmanager
def _writing(file: str) -> Generator[None]:
    """Tell an error of the file system with the file that was to be written."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=file) from error


@contextlib.contextmanager
def _locked(folder: str, file: str) -> Generator[None]:
    """One process at a time changes files in this folder."""
    import fcntl

    with _writing(file):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _current(change: Change) -> bytes | None:
    try:
        return read_regular(change.found.target, limits.CLIENT_FILE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=change.found.place.file) from error


# --- the record ---


def _records(config_folder: str) -> dict[str, dict[str, object]]:
    """The record: for each file, each name that was added. One that cannot be read is as good as none."""
    try:
        found: object = parse_json(read_regular(os.path.join(config_folder, _RECORD), limits.REGISTRY_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return {file: as_table(names) for file, names in as_table(found).items()}


def _recorded(config_folder: str, target: str, name: str) -> Undo:
    return Undo.read(as_table(_records(config_folder).get(target, {}).get(name)))


def _record(config_folder: str, change: Change, undo: Undo | None) -> None:
    """Remember what was made for an entry, or forget it."""
    with _changing_records(config_folder) as records:
        names = records.pop(change.found.target, {})
        names.pop(change.found.name, None)
        if undo is not None:
            names[change.found.name] = undo.as_dict()
        if names:
            records[change.found.target] = names


def _pass_on(config_folder: str, target: str, undo: Undo) -> None:
    """Let another entry of the file answer for what was made and is still there. The last one to go takes it along."""
    if undo == NOTHING:
        return
    with _changing_records(config_folder) as records:
        names = records.get(target, {})
        for name in [*names][:1]:
            known = Undo.read(as_table(names[name]))
            made = Undo(
                created=known.created or undo.created,
                section=known.section or undo.section,
                blank=known.blank or undo.blank,
                folders=tuple(sorted({*known.folders, *undo.folders}, key=len)),
            )
            names[name] = made.as_dict()


@contextlib.contextmanager
def _changing_records(config_folder: str) -> Generator[dict[str, dict[str, object]]]:
    file = os.path.join(config_folder, _RECORD)
    with _writing(file):
        os.makedirs(config_folder, exist_ok=True)
    with _locked(config_folder, file):
        records = _records(config_folder)
        yield records
        if records:
            replace_json(file, records)
        else:
            with contextlib.suppress(OSError):
                os.unlink(file)
