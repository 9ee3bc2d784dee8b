"""Checks a frontmatter against the rules of a profile.

`check` is pure, and no other code decides whether a file is a skill. A profile's `Rules` say which problems exclude a
skill and which are only reported. `codes.toml` describes every diagnostic code of the runtime.
"""

import functools
import os
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from metier import limits
from metier.files.shapes import is_dict, is_items
from metier.files.text import INVISIBLE, TAGS_AND_BIDI, is_printable
from metier.hosts.schema import Breach, Pattern, Profile, Rules
from metier.values.skill import NO_FIELDS, STANDARD_KEYS, Diagnostic, Severity, as_text, split_tools
from metier.values.value import replace

if TYPE_CHECKING:
    from metier.catalog.frontmatter import Parsed

_ASCII_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_STANDARD: Final = frozenset(STANDARD_KEYS)

STRICT: Final = Rules(
    name_breach="error",
    name_mismatch="error",
    name_missing="error",
    description_breach="error",
    optional_breach="error",
    unknown_keys="error",
    allowed_tools_forms=False,
    repair=False,
)
"""The rules of `metier validate --strict`: every breach of the standard is an error."""


@functools.cache
def codes() -> Mapping[str, Mapping[str, str]]:
    """What each code means: the `diagnostics` of files, and the `findings` of `metier check` about hosts."""
    import tomllib

    with open(os.path.join(os.path.dirname(__file__), "codes.toml"), encoding="utf-8") as stream:
        named = {**vars(limits), "FRONTMATTER_KIB": limits.FRONTMATTER_BYTES // limits.KIB}
        return tomllib.loads(stream.read().format(**named))


def strict(profile: Profile) -> Rules:
    """`STRICT` for one host: the keys that the host documents are no breach."""
    return replace(STRICT, known_keys=(*profile.validation.own_keys, *profile.catalog.reads))


def keys_of(profile: Profile) -> tuple[str, ...]:
    """The keys of a frontmatter that a host uses. It ignores all others."""
    if profile.catalog.reads:
        return profile.catalog.reads
    arguments = ("arguments", "argument-hint") if profile.load.arguments == "indexed" else ()
    extensions = profile.catalog.honours if profile.validation.unknown_keys not in ("ignore", "warn") else ()
    return (*STANDARD_KEYS, *profile.validation.own_keys, *extensions, *arguments)


class Validation(NamedTuple):
    """The outcome for one file. The file is a skill if no diagnostic is an error."""

    name: str
    description: str
    fields: Mapping[str, object]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def valid(self) -> bool:
        return not any(d.severity == "error" for d in self.diagnostics)


def parse(data: bytes, path: str, rules: Rules, *, complete: bool = True) -> "Parsed | None":
    """Parse the frontmatter at the start of `data` as leniently as the rules say. See `frontmatter.parse`."""
    return parser()(
        data,
        path,
        complete=complete,
        repair=rules.repair,
        simple_lines=rules.simple_lines,
        required=rules.frontmatter_required,
    )


@functools.cache
def parser() -> "Callable[..., Parsed | None]":
    from metier.catalog import frontmatter  # a catalog that is remembered is not parsed

    return frontmatter.parse


def check(
    parsed: "Parsed", folder: str, rules: Rules, path: str = "", *, require_description: bool = True
) -> Validation:
    """Check a parsed frontmatter against the rules. `folder` is the name of the folder that contains the file."""
    fields = parsed.fields
    if fields is None:
        return Validation(folder, "", NO_FIELDS, parsed.diagnostics)
    plain = _check_plain(fields, folder, rules) if not parsed.diagnostics else None
    if plain is not None and fields.keys() <= _STANDARD:
        return plain
    judge = _Judge(parsed, fields, path, rules)
    if plain is not None:
        return Validation(plain.name, plain.description, judge.unknown_keys(), tuple(judge.found))
    name = judge.name(folder)
    description = judge.description(require_description)
    judge.optional_fields()
    kept = judge.unknown_keys()
    return Validation(name, description, kept, (*parsed.diagnostics, *judge.found))


def tolerate(parsed: "Parsed", rules: Rules) -> "Parsed":
    """Return the frontmatter as the host takes it.

    A host that accepts a broken frontmatter takes it as one without fields, and its errors become warnings.
    """
    if parsed.fields is not None or rules.frontmatter_broken == "error":
        return parsed
    notes = tuple(replace(note, severity="warning") for note in parsed.diagnostics)
    return parsed._replace(fields={}, diagnostics=notes)


def accepts_sound(rules: Rules) -> bool:
    """Whether a file that `check_sound` accepts is the same skill under these rules, as far as they know its keys."""
    lengths = ((rules.name_length, limits.NAME_LENGTH), (rules.description_length, limits.DESCRIPTION_LENGTH))
    return all(not length or length >= least for length, least in lengths)


def check_sound(parsed: "Parsed", folder: str) -> Validation | None:
    """The outcome for a file that has no problem at all, whatever other keys it has; `None` for any other."""
    return _check_plain(parsed.fields, folder, STRICT) if parsed.fields is not None and not parsed.diagnostics else None


def _check_plain(fields: dict[str, object], folder: str, rules: Rules) -> Validation | None:
    """Return the outcome for a file without any problem, and `None` for the others. Most files are the former.

    The keys that the standard does not have are not judged, except those that must be lists or flags in the host.
    """
    name = fields.get("name")
    description = fields.get("description")
    if (
        type(name) is str
        and name == folder
        and type(description) is str
        and len(description) <= (rules.description_length or len(description))
        and is_printable(description)
        and (text := description.strip())
        and len(name) <= (rules.name_length or len(name))
        and _ASCII_NAME.fullmatch(name)
        and (len(fields) == 2 or _plain_rest(fields, rules))
    ):
        return Validation(name, text, fields, ())
    return None


def _plain_rest(fields: dict[str, object], rules: Rules) -> bool:
    """Whether the optional fields have no problem."""
    tools, compatibility = fields.get("allowed-tools", "-"), fields.get("compatibility", "-")
    return (
        type(fields.get("license", "")) is str
        and type(tools) is str
        and "," not in tools
        and not split_tools(tools)[1]
        and type(compatibility) is str
        and 1 <= len(compatibility) <= limits.COMPATIBILITY_LENGTH
        and ("metadata" not in fields or not _metadata_flaw(fields["metadata"]))
        and not any(key in fields for key in (*rules.list_fields, *rules.flag_fields))
    )


class _Judge:
    """Collects the diagnostics of one file."""

    def __init__(self, parsed: "Parsed", fields: dict[str, object], path: str, rules: Rules) -> None:
        self.parsed, self.fields, self.path, self.rules = parsed, fields, path, rules
        self.found: list[Diagnostic] = []

    def report(self, code: str, breach: Breach | Severity, message: str, key: str, hint: str = "") -> None:
        if breach != "ignore":
            severity: Severity = "warning" if breach == "warn" else breach
            line, column = self.parsed.locate(key)
            self.found.append(Diagnostic(code, severity, message, path=self.path, line=line, column=column, hint=hint))

    def text(self, key: str) -> str | None:
        """Return the field as the author wrote it; `None` if it is absent, null, or not a scalar (reported)."""
        value = self.fields.get(key)
        if isinstance(value, bool):
            return self.parsed.original(key) or as_text(value)
        if isinstance(value, (list, dict)):
            message = f"`{key}` must be text, not a {'list' if isinstance(value, list) else 'map'}"
            self.report("field-type", self.rules.optional_breach, message, key, "write it as one string")
            return None
        return as_text(value)

    def clean(self, text: str, key: str) -> str:
        """Remove invisible characters. Controls that reorder or hide text are an error."""
        if text.isascii() and text.isprintable():
            return text
        if re.search(TAGS_AND_BIDI, text):
            message = f"`{key}` contains bidirectional controls or Unicode tags"
            self.report("hidden-characters", "error", message, key, "remove them: they hide text from people")
            text = re.sub(TAGS_AND_BIDI, "", text)
        if re.search(INVISIBLE, text):
            message = f"invisible characters were removed from `{key}`"
            self.report("invisible-removed", "warning", message, key, "remove them from the file")
            text = re.sub(INVISIBLE, "", text)
        return text

    def name(self, folder: str) -> str:
        rules = self.rules
        text = folder if rules.name_source == "folder" else self.text("name")
        if text is None or not text.strip():
            breach = (
                "error" if rules.name_missing == "error" else "warning" if rules.name_pattern != "any" else "ignore"
            )
            self.report("name-missing", breach, "`name` is missing", "name", f"add `name: {folder}`")
            text = folder
        name = unicodedata.normalize("NFKC", self.clean(text, "name").strip())
        if rules.name_length and len(name) > rules.name_length:
            message = f"`name` has {len(name)} characters; at most {rules.name_length} are allowed"
            self.report("name-too-long", rules.name_breach, message, "name", "choose a shorter name")
        # A host that requires plain ASCII checks the name as written, not in its normal form.
        flaw = name_flaw(text if rules.name_pattern == "ascii" else name, rules.name_pattern)
        if flaw:
            # A name that could leave its folder or forge a line is always an error, even for a lenient host.
            breach = "error" if _unsafe(name) else rules.name_breach
            self.report("name-invalid", breach, f"`name` {flaw}", "name", _suggest(name, folder))
        if name != unicodedata.normalize("NFKC", folder):
            message = f"`name` is {name!r}, but the folder is named {folder!r}"
            self.report("name-mismatch", rules.name_mismatch, message, "name", "rename the folder or change `name`")
        return name

    def description(self, required: bool) -> str:
        rules = self.rules
        text = self.clean(self.text("description") or "", "description").strip()
        if not text:
            breach: Breach = "error" if required and rules.description_missing == "error" else "ignore"
            hint = "describe what the skill does and when to use it"
            self.report("description-missing", breach, "`description` is missing", "description", hint)
        elif rules.description_length and len(text) > rules.description_length:
            message = f"`description` has {len(text)} characters; at most {rules.description_length} are allowed"
            hint = "move details into the body"
            self.report("description-too-long", rules.description_breach, message, "description", hint)
        return text

    def optional_fields(self) -> None:
        breach = self.rules.optional_breach
        if "license" in self.fields:
            self.text("license")
        if "compatibility" in self.fields:
            text = self.text("compatibility")
            if text is not None and not 1 <= len(text) <= limits.COMPATIBILITY_LENGTH:
                message = f"`compatibility` has {len(text)} characters; 1 to {limits.COMPATIBILITY_LENGTH} are allowed"
                self.report("compatibility-length", breach, message, "compatibility", "shorten it, or leave it out")
        metadata = self.fields.get("metadata")
        if metadata is not None:
            flaw = _metadata_flaw(metadata)
            if flaw:
                self.report("metadata-values", breach, flaw, "metadata", "use one level of keys with text values")
        self.allowed_tools()
        for key in self.rules.list_fields:
            value = self.fields.get(key)
            if value is not None and not (is_items(value) and all(isinstance(item, str) for item in value)):
                message = f"`{key}` must be a list of strings in this host"
                self.report("field-type", "warning", message, key, f'write `{key}: ["one", "two"]`')
        for key in self.rules.flag_fields:
            if not isinstance(self.fields.get(key, False), bool):
                message = f"`{key}` must be true or false in this host"
                self.report("field-type", "warning", message, key, f"write `{key}: true` or `{key}: false`")

    def allowed_tools(self) -> None:
        tools = self.fields.get("allowed-tools")
        if tools is None:
            return
        hint = "write it as `Read Write Bash(git add *)`"
        if malformed := split_tools(tools)[1]:
            import json  # few catalogs need it

            shown = ", ".join(json.dumps(part, default=str)[:40] for part in malformed[:3])
            message = f"`allowed-tools` has what is no entry, and it allows nothing: {shown}"
            self.report("allowed-tools-form", self.rules.optional_breach, message, "allowed-tools", hint)
            return
        if isinstance(tools, str) and not _has_commas(tools):
            return
        if isinstance(tools, str):
            message = "`allowed-tools` has commas between its entries; the standard uses spaces"
        else:
            message = "`allowed-tools` is a list; the standard uses one string"
        breach = "info" if self.rules.allowed_tools_forms else self.rules.optional_breach
        self.report("allowed-tools-form", breach, message, "allowed-tools", hint)

    def unknown_keys(self) -> Mapping[str, object]:
        """Report the keys that the standard does not have, and return the fields that the profile keeps."""
        handling = self.rules.unknown_keys
        known = (*STANDARD_KEYS, *self.rules.own_keys)
        unknown = [key for key in self.fields if key not in known]
        if not unknown:
            return self.fields
        if handling == "error":
            for key in unknown:
                message = f"`{key}` is not part of the standard"
                self.report("unknown-key", "error", message, key, "move it into `metadata`")
        elif handling in ("keep", "warn"):
            listed = ", ".join(f"`{key}`" for key in unknown)
            severity: Severity = "warning" if handling == "warn" else "info"
            verb = "ignored" if handling == "warn" else "kept"
            self.report("unknown-key", severity, f"not part of the standard, {verb}: {listed}", unknown[0])
        if handling in ("keep", "error"):
            return self.fields
        return {key: value for key, value in self.fields.items() if key in known}


def name_flaw(name: str, pattern: Pattern) -> str:
    """Return what is wrong with a name, as the end of a sentence that starts with the name; empty if it is valid."""
    if pattern == "any":
        return "contains a path separator or a control character" if _unsafe(name) else ""
    if pattern == "ascii":
        return "" if _ASCII_NAME.fullmatch(name) else "must consist of a-z, 0-9 and single hyphens between them"
    if _ASCII_NAME.fullmatch(name):
        return ""
    if not name:
        return "is empty"
    if name.startswith("-") or name.endswith("-"):
        return "starts or ends with a hyphen"
    if "--" in name:
        return "contains two hyphens in a row"
    odd = next((c for c in name if c != "-" and not _lower_word_character(c)), "")
    if odd:
        if odd.isupper():
            return f"contains the upper-case letter {odd!r}"
        return f"contains {odd!r}; only lower-case letters, digits and hyphens are allowed"
    return ""


def _lower_word_character(char: str) -> bool:
    """Whether a character is a lower-case or caseless letter, a digit, or a mark as in Devanagari and Thai."""
    category = unicodedata.category(char)
    return category in ("Ll", "Lo", "Lm", "Mn", "Mc", "Nd") and char == char.lower()


def _unsafe(name: str) -> bool:
    return name in ("", ".", "..") or any(c in "/\\" or unicodedata.category(c) in ("Cc", "Cs") for c in name)


def _suggest(name: str, folder: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return f"try `{plain}`" if plain else f"try `{folder}`"


def _metadata_flaw(metadata: object) -> str:
    if not is_dict(metadata):
        return "`metadata` is not a map"
    odd = [f"`{key}`" for key, value in metadata.items() if as_text(value) is None]
    return f"`metadata` has values that are not text: {', '.join(odd)}" if odd else ""


def _has_commas(tools: str) -> bool:
    """Whether there are commas between the entries, not only inside them."""
    return "," in tools and tools.count(",") > sum(entry.count(",") for entry in split_tools(tools)[0])


_INLINE_COMMAND: Final = re.compile(rb"!`(?<!\S!`)[^`\n]+`")
"""It begins a word. A pattern that starts with plain characters is found ten times as fast."""


def check_body(data: bytes, path: str) -> Diagnostic | None:
    """Report the first inline shell command of a body: some hosts execute them, Metier never does."""
    command = _INLINE_COMMAND.search(data)
    if command is None:
        return None
    line = data.count(b"\n", 0, command.start()) + 1
    message = "the body contains an inline shell command, which is text and never executed"
    hint = "move it into scripts/ and say when to run it"
    return Diagnostic("inline-command", "info", message, path=path, line=line, column=1, hint=hint)
