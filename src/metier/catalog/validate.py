"""The rulebook: what a frontmatter must say, and how bad it is when it does not.

`check` is pure and the only place that judges a skill; a profile's `Rules` say which breaches exclude it and which are
only reported. Every code that any part of the runtime reports is described once, in `CODES`.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from metier import limits
from metier.catalog.frontmatter import Parsed
from metier.files.text import INVISIBLE, TAGS_AND_BIDI
from metier.hosts.schema import Breach, Pattern, Rules
from metier.model import NO_FIELDS, STANDARD_KEYS, Diagnostic, Severity, as_text, split_tools

CODES: Final[Mapping[str, str]] = {
    # the file
    "unreadable": "The file or folder cannot be read; the message has the operating system's reason.",
    "not-a-file": "SKILL.md is a folder, a pipe, a socket or a device.",
    "wrong-case": "The file is called `skill.md` or similar; hosts look for exactly `SKILL.md`.",
    "not-utf8": "The frontmatter is not valid UTF-8.",
    "nul-byte": "The frontmatter contains a NUL byte.",
    # the fences and the YAML
    "frontmatter-missing": "The file does not begin with a line `---`.",
    "frontmatter-unclosed": "There is no second line `---`.",
    "frontmatter-too-large": "The frontmatter is larger than any real one.",
    "fence-repaired": "A fence was not where it belongs and was found all the same.",
    "yaml-invalid": "The frontmatter is not YAML and could not be repaired.",
    "yaml-repaired": "The frontmatter is not YAML; it was read with its plain values quoted.",
    "yaml-not-mapping": "The frontmatter is YAML, but a list or a single value.",
    "yaml-key": "A key of the frontmatter is itself a list or a map.",
    "yaml-too-deep": "The YAML nests too deeply.",
    "yaml-anchor": "YAML anchors and aliases are refused: a small file could become a large one.",
    "yaml-merge-key": "YAML merge keys are refused.",
    "yaml-tag": "YAML tags are refused.",
    "duplicate-key": "A key stands twice; the last one counts.",
    # the fields
    "name-missing": "There is no `name`.",
    "name-invalid": "`name` has characters that the rule does not allow.",
    "name-too-long": "`name` is longer than allowed.",
    "name-mismatch": "`name` differs from the folder's name.",
    "description-missing": "There is no `description`, or it is blank.",
    "description-too-long": "`description` is longer than allowed.",
    "field-type": "A field has the wrong type, such as a list where text is expected.",
    "compatibility-length": "`compatibility` is empty or longer than allowed.",
    "metadata-values": "`metadata` is not a map of text to text.",
    "allowed-tools-form": "`allowed-tools` is not one string with blanks between the entries.",
    "unknown-key": "A key that the standard does not know.",
    "hidden-characters": "Bidirectional controls or Unicode tags in name or description: text that people cannot see.",
    "invisible-removed": "Invisible or control characters were removed from name or description.",
    "inline-command": "The body contains an inline shell command, which is never executed.",
    # the scan
    "root-missing": "A folder that was named does not exist.",
    "root-not-folder": "A root is not a folder.",
    "root-outside": "The variable that names the project's root points elsewhere.",
    "registry-invalid": "A plugin registry cannot be read.",
    "bound-reached": "The scan stopped at one of its bounds; the message says which.",
    "link-not-followed": "A symbolic link was not followed, by the rule of the profile.",
    "collision": "Two skills bear one name; the message says which one counts.",
    "too-many-skills": "The profile's limit on the number of skills was reached.",
    "state-invalid": "The file that remembers enabled and disabled skills, or trusted projects, cannot be read.",
    "untrusted": "Skills or settings of a project do not count, because nobody has said that it is trusted.",
}
_ASCII_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


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


class Validation(NamedTuple):
    """The outcome for one file; it is a skill exactly when no diagnostic is an error."""

    name: str
    description: str
    fields: Mapping[str, Any]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def valid(self) -> bool:
        return not any(d.severity == "error" for d in self.diagnostics)


def check(parsed: Parsed, folder: str, rules: Rules, path: str = "", *, require_description: bool = True) -> Validation:
    """Judge a parsed frontmatter by the rules; `folder` is the name of the folder that holds the file."""
    if parsed.fields is None:
        return Validation(folder, "", NO_FIELDS, parsed.diagnostics)
    if not parsed.diagnostics:
        plain = _check_plain(parsed, folder, rules)
        if plain is not None:
            return plain
    judge = _Judge(parsed, path, rules)
    name = judge.name(folder)
    description = judge.description(require_description)
    judge.optional_fields()
    fields = judge.unknown_keys()
    return Validation(name, description, fields, (*parsed.diagnostics, *judge.found))


def tolerate(parsed: Parsed, rules: Rules) -> Parsed:
    """The same; where the host forgives a broken frontmatter, one without fields, its errors told as warnings."""
    if parsed.fields is not None or rules.frontmatter_broken == "error":
        return parsed
    notes = tuple(replace(note, severity="warning") for note in parsed.diagnostics)
    return replace(parsed, fields={}, diagnostics=notes)


def _check_plain(parsed: Parsed, folder: str, rules: Rules) -> Validation | None:
    """The verdict for a file with nothing to say about it, which is nearly every file; `None` for the others."""
    fields = cast("dict[str, Any]", parsed.fields)
    name = fields.get("name")
    description = fields.get("description")
    if (
        type(name) is str
        and name == folder
        and type(description) is str
        and len(description) <= (rules.description_length or len(description))
        and description.isprintable()
        and (text := description.strip())
        and len(name) <= (rules.name_length or len(name))
        and _ASCII_NAME.fullmatch(name)
        and (len(fields) == 2 or _plain_rest(fields))
    ):
        return Validation(name, text, fields, ())
    return None


def _plain_rest(fields: dict[str, Any]) -> bool:
    """Whether the optional fields are such that nothing is to be said about them."""
    tools, compatibility = fields.get("allowed-tools", ""), fields.get("compatibility", "-")
    return (
        fields.keys() <= _STANDARD
        and type(fields.get("license", "")) is str
        and type(tools) is str
        and "," not in tools
        and type(compatibility) is str
        and 1 <= len(compatibility) <= limits.COMPATIBILITY_LENGTH
        and ("metadata" not in fields or not _metadata_flaw(fields["metadata"]))
    )


_STANDARD: Final = frozenset(STANDARD_KEYS)


class _Judge:
    """Collects the diagnostics of one file."""

    def __init__(self, parsed: Parsed, path: str, rules: Rules) -> None:
        self.parsed, self.path, self.rules = parsed, path, rules
        self.fields = cast("dict[str, Any]", parsed.fields)
        self.found: list[Diagnostic] = []

    def report(self, code: str, breach: Breach | Severity, message: str, key: str, hint: str = "") -> None:
        if breach != "ignore":
            severity: Severity = "warning" if breach == "warn" else breach
            line, column = self.parsed.locate(key)
            self.found.append(Diagnostic(code, severity, message, self.path, line, column, hint))

    def text(self, key: str) -> str | None:
        """The field as text, as the author wrote it; `None` when it is absent, null, or no scalar (reported)."""
        value: object = self.fields.get(key)
        if isinstance(value, bool):
            return self.parsed.original(key) or as_text(value)
        if isinstance(value, (list, dict)):
            kind = "list" if isinstance(value, list) else "map"
            self.report("field-type", self.rules.optional_breach, f"`{key}` is a {kind}, not text", key)
        return as_text(cast("object", value))

    def clean(self, text: str, key: str) -> str:
        """The text without what people cannot see; controls that reorder or hide text are an error."""
        if TAGS_AND_BIDI.search(text):
            message = f"`{key}` contains Unicode tags or bidirectional controls"
            self.report("hidden-characters", "error", message, key, "remove them: they hide text from people")
            text = TAGS_AND_BIDI.sub("", text)
        if INVISIBLE.search(text):
            self.report("invisible-removed", "warning", f"invisible characters were removed from `{key}`", key)
            text = INVISIBLE.sub("", text)
        return text

    def name(self, folder: str) -> str:
        rules = self.rules
        text = folder if rules.name_source == "folder" else self.text("name")
        if text is None or not text.strip():
            breach = (
                "error" if rules.name_missing == "error" else "warning" if rules.name_pattern != "any" else "ignore"
            )
            self.report("name-missing", breach, "there is no `name`", "name", f"add `name: {folder}`")
            text = folder
        name = unicodedata.normalize("NFKC", self.clean(text, "name").strip())
        if rules.name_length and len(name) > rules.name_length:
            message = f"`name` has {len(name)} characters, more than {rules.name_length}"
            self.report("name-too-long", rules.name_breach, message, "name")
        # A host that asks for plain ASCII judges what was written, not what it could be tidied into.
        flaw = name_flaw(text if rules.name_pattern == "ascii" else name, rules.name_pattern)
        if flaw:
            # A name that could leave its folder or forge a line is never let through, whatever the host forgives.
            breach = "error" if _unsafe(name) else rules.name_breach
            self.report("name-invalid", breach, f"`name` {flaw}", "name", _suggest(name, folder))
        if name != unicodedata.normalize("NFKC", folder):
            message = f"`name` is {name!r}, but the folder is {folder!r}"
            self.report("name-mismatch", rules.name_mismatch, message, "name", "rename one of the two")
        return name

    def description(self, required: bool) -> str:
        rules = self.rules
        text = self.clean(self.text("description") or "", "description").strip()
        if not text:
            breach: Breach = "error" if required and rules.description_missing == "error" else "ignore"
            hint = "say what the skill does and when to use it"
            self.report("description-missing", breach, "there is no `description`", "description", hint)
        elif rules.description_length and len(text) > rules.description_length:
            message = f"`description` has {len(text)} characters, more than {rules.description_length}"
            self.report(
                "description-too-long", rules.description_breach, message, "description", "move detail to the body"
            )
        return text

    def optional_fields(self) -> None:
        breach = self.rules.optional_breach
        if "license" in self.fields:
            self.text("license")
        if "compatibility" in self.fields:
            text = self.text("compatibility")
            if text is not None and not 1 <= len(text) <= limits.COMPATIBILITY_LENGTH:
                message = f"`compatibility` has {len(text)} characters, not 1 to {limits.COMPATIBILITY_LENGTH}"
                self.report("compatibility-length", breach, message, "compatibility")
        metadata = self.fields.get("metadata")
        if metadata is not None:
            flaw = _metadata_flaw(metadata)
            if flaw:
                self.report("metadata-values", breach, flaw, "metadata", "quote the values; keep the map flat")
        tools = self.fields.get("allowed-tools")
        if tools is not None and not isinstance(tools, str):
            form = "is a list, where the standard has one string with blanks between the entries"
            accepted = self.rules.allowed_tools_forms and isinstance(tools, list)
            self.report(
                "allowed-tools-form", "info" if accepted else breach, f"`allowed-tools` {form}", "allowed-tools"
            )
        elif isinstance(tools, str) and _has_commas(tools):
            form = "has commas, where the standard has blanks between the entries"
            accepted = self.rules.allowed_tools_forms
            self.report(
                "allowed-tools-form", "info" if accepted else breach, f"`allowed-tools` {form}", "allowed-tools"
            )

    def unknown_keys(self) -> Mapping[str, Any]:
        handling = self.rules.unknown_keys
        unknown = [key for key in self.fields if key not in STANDARD_KEYS]
        if not unknown:
            return self.fields
        if handling == "error":
            for key in unknown:
                self.report(
                    "unknown-key", "error", f"`{key}` is not a key of the standard", key, "put it into `metadata`"
                )
        elif handling in ("keep", "warn"):
            listed = ", ".join(f"`{key}`" for key in unknown)
            breach: Severity = "warning" if handling == "warn" else "info"
            verb = "ignored" if handling == "warn" else "kept, but not part of the standard"
            self.report("unknown-key", breach, f"{listed}: {verb}", unknown[0])
        if handling in ("keep", "error"):
            return self.fields
        return {key: value for key, value in self.fields.items() if key in STANDARD_KEYS}


def name_flaw(name: str, pattern: Pattern) -> str:
    """What is wrong with a name, as the end of a sentence; empty when nothing is."""
    if pattern == "any":
        return "contains a path separator or a control character" if _unsafe(name) else ""
    if pattern == "ascii":
        return "" if _ASCII_NAME.fullmatch(name) else "must be a-z, 0-9 and single hyphens between them"
    if _ASCII_NAME.fullmatch(name):
        return ""
    if not name:
        return "is empty"
    if name.startswith("-") or name.endswith("-"):
        return "begins or ends with a hyphen"
    if "--" in name:
        return "has two hyphens in a row"
    odd = next((c for c in name if c != "-" and not _lower_word_character(c)), "")
    if odd:
        if odd.isupper():
            return f"has the upper-case letter {odd!r}"
        return f"has {odd!r}, where only lower-case letters, digits and hyphens may stand"
    return ""


def _lower_word_character(char: str) -> bool:
    """Lower-case and caseless letters, the marks that scripts such as Devanagari and Thai write with, and digits."""
    category = unicodedata.category(char)
    return category in ("Ll", "Lo", "Lm", "Mn", "Mc", "Nd") and char == char.lower()


def _unsafe(name: str) -> bool:
    return name in ("", ".", "..") or any(c in "/\\" or unicodedata.category(c) in ("Cc", "Cs") for c in name)


def _suggest(name: str, folder: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return f"try `{plain}`" if plain else f"try `{folder}`"


def _metadata_flaw(metadata: object) -> str:
    if not isinstance(metadata, dict):
        return "`metadata` is not a map"
    odd = [key for key, value in cast("dict[str, object]", metadata).items() if as_text(value) is None]
    return f"`metadata` has values that are not text: {', '.join(odd)}" if odd else ""


def _has_commas(tools: str) -> bool:
    """Whether commas stand between the entries, and not only inside of them."""
    return tools.count(",") > sum(entry.count(",") for entry in split_tools(tools))


_INLINE_COMMAND: Final = re.compile(rb"(?:^|\s)!`[^`\n]+`", re.MULTILINE)


def check_body(data: bytes, path: str) -> Diagnostic | None:
    """What is to be said about a body: hosts differ on inline commands, and here they are text."""
    command = _INLINE_COMMAND.search(data)
    if command is None:
        return None
    line = data.count(b"\n", 0, command.start() + 1) + 1
    message = "the body has an inline shell command; it is text here and never executed"
    return Diagnostic("inline-command", "info", message, path, line, 1, "put it into scripts/ and say when to run it")
