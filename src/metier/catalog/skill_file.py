"""Reads one SKILL.md up to its closing fence, and turns it into the row that a scan keeps.

A row depends on the file and on the rules of a profile. `Heads` keeps what depends on the file alone, so that several
profiles can scan the same files and each is read once.
"""

import os
import sys
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Final

from metier import limits
from metier.catalog import validate
from metier.catalog.scan_cache import UNKNOWN, FileRow, NoteRow, PlainRow
from metier.files.beneath import read_regular
from metier.files.shapes import is_dict
from metier.hosts.schema import CatalogRules, Profile, Rules
from metier.values.skill import STANDARD_KEYS, Diagnostic, Skill
from metier.values.value import replace

if TYPE_CHECKING:
    from metier.catalog.frontmatter import Parsed

IS_LINK: Final = 40 if sys.platform.startswith("linux") else 62
"""The error number of opening a symbolic link with `O_NOFOLLOW`."""


_HIDDEN: Final = 1
_NOT_FOR_USER: Final = 2
_OFF: Final = 4
"""The flags: hidden from the model, not callable by the user, off."""

_KEYS: Final = frozenset(("disable-model-invocation", "hide", "user-invocable", "enabled", "disabled"))
_WORDS: Final = {"yes": True, "on": True, "1": True, "no": False, "off": False, "0": False}


class Heads:
    """The stamp and the frontmatter of each file, by path, if its frontmatter is the same under all rules.

    There is one for every file of a catalog, so it keeps no text that the fields have as well.
    """

    def __init__(self) -> None:
        self.known: dict[str, tuple[bytes, Parsed]] = {}
        self._sound: dict[str, PlainRow | None] = {}

    def sound(self, file: str) -> PlainRow | None:
        """The row of a file without any problem, whatever the rules are, except that they may not know all its keys."""
        if file not in self._sound:
            stamped, parsed = self.known[file]
            checked = validate.check_sound(parsed, _name(file))
            self._sound[file] = (stamped, checked.description, checked.fields) if checked is not None else None
        return self._sound[file]

    def keep(self, file: str, stamped: bytes, parsed: "Parsed") -> None:
        """Keep what all rules read alike: the file has a frontmatter, and nothing had to be repaired."""
        if parsed.fields is not None and not parsed.diagnostics and parsed.text:
            self.known[file] = (stamped, parsed.outline())

    def rules_out(self, file: str, names: Container[str]) -> bool:
        """Whether a file is known to have none of these names under any rules."""
        head = self.known.get(file)
        name = head[1].fields.get("name") if head is not None and head[1].fields is not None else None
        if not isinstance(name, str) or not (name.isascii() and name.isprintable()):
            return False
        return name.strip() not in names and _name(file) not in names


class HostRows:
    """The rows of files that were read before, by the rules of one host."""

    def __init__(self, heads: Heads, profile: Profile) -> None:
        rules = profile.validation
        self._heads, self._profile = heads, profile
        self._accepts_sound = validate.accepts_sound(rules)
        self._keys = frozenset((*STANDARD_KEYS, *rules.own_keys))
        self._judged = frozenset((*rules.list_fields, *rules.flag_fields))

    def row(self, file: str, *, require_description: bool) -> FileRow | None:
        """The row of a file, or `None` if it is not known. Most files have nothing to report in any host."""
        head = self._heads.known.get(file)
        if head is None:
            return None
        return (self._accepts_sound and self._sound(file, *head)) or row_of(
            *head, self._profile, file, linked=None, require_description=require_description
        )

    def _sound(self, file: str, stamped: bytes, parsed: "Parsed") -> FileRow | None:
        """The row that `row_of` would return, if it has nothing to report."""
        row, fields, rules = self._heads.sound(file), parsed.fields, self._profile.catalog
        if row is None or fields is None or not self._judged.isdisjoint(fields):
            return None
        if not fields.keys() <= self._keys:
            if self._profile.validation.unknown_keys != "ignore":
                return None
            fields = {key: value for key, value in fields.items() if key in self._keys}
        flags = flags_of(fields, rules, file)
        if not flags and fields is parsed.fields:
            return row  # the same one in all hosts
        folder = _name(file)
        return _row(stamped, None, validate.Validation(folder, row[1], fields, ()), flags, folder)


def read_head(descriptor: int, file: str, size: int, rules: Rules) -> "Parsed":
    """Read as much of a file as its frontmatter takes, and parse it as leniently as the rules say."""
    data = os.read(descriptor, limits.HEAD_BYTES)
    complete = len(data) >= size
    while True:
        parsed = validate.parse(data, file, rules, complete=complete)
        if parsed is not None:
            return parsed
        more = os.read(descriptor, limits.HEAD_BYTES * 4)
        complete = not more
        data += more


def row_of(
    stamped: bytes,
    parsed: "Parsed",
    profile: Profile,
    file: str,
    *,
    linked: str | None,
    require_description: bool,
) -> FileRow:
    """Check a frontmatter against the rules of a profile. `linked` is the target of a SKILL.md that is a link."""
    rules = profile.validation
    if parsed.fields is None:
        parsed = validate.tolerate(parsed, rules)
    folder = _name(file)
    checked = validate.check(parsed, folder, rules, file, require_description=require_description)
    return _row(stamped, linked, checked, flags_of(checked.fields, profile.catalog, file), folder)


def _row(stamped: bytes, linked: str | None, checked: validate.Validation, flags: int, folder: str) -> FileRow:
    name, description, fields, notes = checked
    fields = fields or {}  # only plain tables can be marshalled
    if not notes and not flags and linked is None and name == folder:
        return (stamped, description, fields)
    return (
        stamped,
        name,
        description,
        fields,
        "skill" if not notes or checked.valid else "failed",
        linked,
        flags,
        tuple(map(_pack, notes)) if notes else (),
    )


def failed_row(file: str, code: str, message: str, reason: str = "") -> FileRow:
    """The row of a file that cannot be read. It is not kept."""
    return (UNKNOWN, _name(file), "", {}, "failed", None, 0, ((code, "error", message, 0, 0, "", reason),))


def unreadable_row(file: str, error: OSError | ValueError) -> FileRow:
    reason = "permission" if isinstance(error, PermissionError) else ""
    return failed_row(file, "unreadable", f"the file cannot be read: {reason_of(error)}", reason)


def skipped_row(file: str, reason: str, detail: str) -> FileRow:
    """The row of a file that a rule leaves out."""
    return (UNKNOWN, _name(file), detail, {}, reason, None, 0, ())


def reason_of(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _name(file: str) -> str:
    """The name of the folder of a SKILL.md."""
    return file.rpartition("/")[0].rpartition("/")[2]


def _pack(d: Diagnostic) -> NoteRow:
    return (d.code, d.severity, d.message, d.line, d.column, d.hint, d.reason)


def unpack(note: NoteRow, file: str) -> Diagnostic:
    """The diagnostic of a row."""
    code, severity, message, line, column, hint, reason = note
    return Diagnostic(code, severity, message, path=file, line=line, column=column, hint=hint, reason=reason)


# --- who may invoke a skill, as its own files say; one number, because a scan keeps it for every file ---


def flags_of(fields: Mapping[str, object], rules: CatalogRules, file: str) -> int:
    """The flags that the frontmatter and the policy file beside the SKILL.md set, if the host honours them."""
    flags = frontmatter_flags(fields, rules) if rules.honours and not _KEYS.isdisjoint(fields) else 0
    return flags | _of_policy_file(os.path.dirname(file), rules.policy_file) if rules.policy_file else flags


def with_flags(skill: Skill, flags: int) -> Skill:
    """The skill with what its flags say."""
    return replace(
        skill,
        model_invocable=not flags & _HIDDEN,
        user_invocable=not flags & _NOT_FOR_USER,
        mode="off" if flags & _OFF else "auto",
    )


def frontmatter_flags(fields: Mapping[str, object], rules: CatalogRules) -> int:
    """The flags that the frontmatter alone sets."""
    words = _WORDS if rules.flag_words else {}
    says = {key: words.get(str(fields.get(key)).lower(), fields.get(key)) for key in rules.honours}
    hidden = says.get("disable-model-invocation") is True or says.get("hide") is True
    not_for_user = says.get("user-invocable") is False
    off = says.get("enabled") is False or says.get("disabled") is True
    return hidden * _HIDDEN | not_for_user * _NOT_FOR_USER | off * _OFF


def _of_policy_file(folder: str, name: str) -> int:
    """A broken policy file sets no flag."""
    try:
        data = read_regular(os.path.join(folder, name), limits.FRONTMATTER_BYTES)
    except (OSError, ValueError):
        return 0
    parsed = validate.parser()(b"---\n" + data + b"\n---\n")
    policy = (parsed.fields or {}).get("policy") if parsed is not None else None
    return _HIDDEN if is_dict(policy) and policy.get("allow_implicit_invocation") is False else 0
