"""Reviews a skill for its author: what `metier validate --strict` reports beyond the rules of the standard.

Nothing here decides whether a file is a skill. A warning is something that is almost surely a mistake: a placeholder, a
link to a file that is not there, a character that nobody sees. What is only worth a thought is of severity `info`. The
thresholds were measured on public skills.
"""

import os
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from metier import limits
from metier.catalog import frontmatter
from metier.catalog.frontmatter import Parsed
from metier.catalog.hidden import UNSPACED, HiddenCharacter, hidden_characters
from metier.catalog.links import Link, find_links
from metier.errors import ResourceError
from metier.files.beneath import list_files, read_file
from metier.values.skill import SKILL_FILE, Diagnostic, Severity, as_text
from metier.values.value import replace

BOM: Final = "\ufeff"
_TOKEN: Final = re.compile(r"[\w@+./-]+")
_FOLDER_WORD: Final = re.compile(r"(?<![\w@+./-])([\w@+./-]+)[`'\"]*\s(?:folder|directory|dir)\b")
_MARKDOWN: Final = (".md", ".mdx", ".markdown")
_NOT_FOR_MODELS: Final = re.compile(
    r"^(?:readme|license|licence|copying|notice|changelog|changes|history|contributing|security|authors|credits|todo|"
    r"attribution|code_of_conduct|agents|claude|gemini)(?:[._-]|$)",
    re.IGNORECASE,
)
_NOT_REFERENCES: Final = frozenset(
    ("assets", "templates", "template", "tests", "test", "evals", "eval", "evaluations", "examples", "fixtures")
)

_WRITE: Final = "say what the skill does and when to use it: a model sees only this before it loads the skill"

_PLACEHOLDER: Final = re.compile(
    r"""
    \A\W*(?:todo|tbd|fixme|xxx|placeholder|lorem\ ipsum)\b
    | \bTODO:
    | \A(?:please\ )?(?:replace|add|insert|write|enter|put|fill\ in)\b[^.]{0,30}\bdescription\b
    | \bdescription\ (?:goes\ )?here\b
    | \A(?:(?:a|an|the|your)\ )?(?:brief|short|one-line|clear|skill|your)\ (?:\w+\ )?description\b[^.]{0,40}\.?\Z
    | \A(?:a\ )?description\ of\ (?:the|this|your|what)\b
    | \A[<\[{][^<>\[\]{}]*[>\]}]\.?\Z
    | \breplace\ th(?:is|ese)\ (?:text|sentences?|description|line|placeholder)\b
    | \A(?:(?:my|your|a|an|the|this|new|test|example|sample)\ )+skill\.?\Z
    | \Awhat\ (?:the|this|your)\ skill\ does\b.{0,40}\Z
    """,
    re.IGNORECASE | re.VERBOSE,
)

_WHEN: Final = re.compile(
    r"\bwhen|\buse\b|\bused (?:for|to|by|in|with|as|if|on)\b|\btrigger|\bif (?:the|you|a|an|user|asked|working|it)\b"
    r"|\b(?:before|after|while|during|upon|once|until|where|every time|any time|proactively|scenarios?|cases?)\b"
    r"|\bfor (?:\w+ing|use|any|all|every|questions|tasks|requests|when)\b|\b(?:ask|need|want|request|mention|respond)"
    r"|\b(?:helps?|invoke|activate|appl(?:y|ies)|suitable|ideal|load this|read this)\b",
    re.IGNORECASE,
)

_ENGLISH: Final = re.compile(r"\b(?:the|and|for|with|of|to|from|this|that|by|or|your|is|are|into|via|an)\b")
_OTHERS: Final = re.compile(
    r"\b(?:und|der|das|für|mit|wenn|ist|ein|eine|zu|von|den|bei|oder|le|la|les|des|pour|une|avec|dans|et|quand|du|el"
    r"|los|las|para|con|una|cuando|por|del|um|uma|com|quando|não|il|gli|per|della|di|che|een|het|voor|met|van|wanneer"
    r"|bij|och|för|att|som|og|til|av|do|na|jest|oraz)\b"
)
"""Small words of English, and of other languages with Latin letters."""


@dataclass(frozen=True)
class SkillText:
    """A text file of a skill, as it is on disk."""

    path: str
    """Relative to the skill's folder."""
    text: str

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """What a Markdown file refers to."""
        return tuple(find_links(self.text)) if self.path.lower().endswith(_MARKDOWN) else ()

    def place(self, at: int) -> tuple[int, int]:
        """The line and column of an offset, both from 1."""
        return self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)


def review(folder: str, known: Collection[str] = ()) -> list[Diagnostic]:
    """Review the skill in a folder. `known` are the codes that the validation of its SKILL.md already reported."""
    return list(_Review(folder).findings(known))


def reached_texts(folder: str) -> list[SkillText]:
    """The SKILL.md of a skill and the text files that it leads to. Empty if SKILL.md is not readable as text."""
    skill = text_of(folder, SKILL_FILE)
    return [] if skill is None else list(_Review(folder).reached(skill).values())


def text_of(folder: str, path: str) -> SkillText | None:
    """Read a text file of a skill. `None` if it is none, is too large, or is not inside the folder."""
    try:
        content = read_file(folder, path, limits.REVIEWED_BYTES)
    except ResourceError:
        return None
    if content.size > len(content.data) or b"\x00" in content.data:
        return None
    try:
        return SkillText(path, content.data.decode())
    except UnicodeDecodeError:
        return None


class _Review:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        listed = list_files(folder, limits.REVIEWED_FILES, 1 << 62).files
        inner = [path.removesuffix(SKILL_FILE) for path in listed if path.endswith(f"/{SKILL_FILE}")]
        self.files = [path for path in listed if not any(path.startswith(below) for below in inner)]

    def text(self, path: str) -> SkillText | None:
        return text_of(self.folder, path)

    def findings(self, known: Collection[str]) -> Iterator[Diagnostic]:
        skill = self.text(SKILL_FILE)
        if skill is None:
            return
        parsed = frontmatter.parse(skill.text.encode())
        if parsed is None or parsed.fields is None:
            parsed = Parsed({})
        yield from self.description(parsed)
        yield from self.body(skill, parsed)
        if skill.text.startswith(BOM):
            hint = "save it as UTF-8 without the mark; `metier validate --fix` removes it"
            yield self.finding("byte-order-mark", "warning", "the file starts with a byte order mark", skill, 0, hint)
        reached = self.reached(skill)
        for text in reached.values():
            yield from self.links(text)
            yield from self.hidden(text, parsed, known)
        yield from self.unreachable(reached)

    def finding(
        self, code: str, severity: Severity, message: str, text: SkillText, at: int, hint: str = ""
    ) -> Diagnostic:
        line, column = text.place(at)
        path = os.path.join(self.folder, text.path)
        return Diagnostic(code, severity, message, path=path, line=line, column=column, hint=hint)

    # --- SKILL.md ---

    def description(self, parsed: Parsed) -> Iterator[Diagnostic]:
        flaw = describe_flaw(parsed.fields or {})
        if flaw is not None:
            line, column = parsed.locate("description")
            yield replace(flaw, path=os.path.join(self.folder, SKILL_FILE), line=line, column=column)

    def body(self, skill: SkillText, parsed: Parsed) -> Iterator[Diagnostic]:
        start = len(skill.text.encode()[: parsed.body_offset].decode(errors="ignore"))
        body = skill.text[start:]
        lines, tokens = body.rstrip().count("\n") + 1, len(body.encode()) // limits.BYTES_PER_TOKEN
        if lines <= limits.BODY_LINES and tokens <= limits.BODY_TOKENS:
            return
        message = (
            f"the body has {lines:,} lines and about {tokens:,} tokens; "
            f"at most {limits.BODY_LINES:,} lines and {limits.BODY_TOKENS:,} tokens are recommended"
        )
        hint = "move what is rarely needed into references/ and link to it"
        yield self.finding("body-too-long", "info", message, skill, start, hint)

    # --- links ---

    def reached(self, skill: SkillText) -> dict[str, SkillText]:
        """The text files that SKILL.md names, and those that they name. SKILL.md comes first."""
        reached = {SKILL_FILE: skill}
        pending, left = [skill], set(self.files)
        while pending and left:
            for path in sorted(self.named(pending.pop(0), left)):
                left.discard(path)
                text = self.text(path)
                if text is not None:
                    reached[path] = text
                    pending.append(text)
                else:
                    reached[path] = SkillText(path, "")
        return reached

    def named(self, text: SkillText, files: Collection[str]) -> set[str]:
        """The files that a text names: by a link, by name, by a path without extension, or all of a folder."""
        words = set(_TOKEN.findall(text.text))
        names = {posixpath.basename(word).strip(".-").lower() for word in words if "." in word}
        paths = {posixpath.normpath(word).lstrip("./") for word in words if "/" in word}
        words.update(word + "/" for word in _FOLDER_WORD.findall(text.text))
        folders = {f"{posixpath.normpath(word)}/".lstrip("./") for word in words if word.endswith("/")} - {""}
        linked = {self.resolve(text, link) for link in text.links}
        return {
            path
            for path in files
            if path in linked
            or posixpath.basename(path).strip(".-").lower() in names
            or posixpath.splitext(path)[0] in paths
            or any(path.startswith(folder) or f"/{folder}" in path for folder in folders)
        }

    def resolve(self, text: SkillText, link: Link) -> str | None:
        """The path of a link's target in the skill's folder. `None` if it is not there, `..` if it is outside."""
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(text.path), link.target))
        for path in dict.fromkeys((beside, posixpath.normpath(link.target))):
            if not path.startswith("..") and os.path.exists(os.path.join(self.folder, path)):
                return path
        return ".." if beside.startswith("..") else None

    def links(self, text: SkillText) -> Iterator[Diagnostic]:
        told: set[str] = set()
        for link in text.links:
            target = self.resolve(text, link)
            if link.target in told or (target is not None and target != ".."):
                continue
            told.add(link.target)
            if target == "..":
                message = f"{link.target} is outside of the skill's folder, and hosts may install the folder alone"
                hint = "copy the file into the skill, or name the other skill instead"
                yield self.finding("link-outside", "info", message, text, link.at, hint)
            elif link.kind != "link" and not self.is_run_here(text, link):
                message = f"{link.target} is not a file of this skill"
                hint = "add the file, or ignore this if it is an example or the file of another project"
                yield self.finding("file-missing", "info", message, text, link.at, hint)
            else:
                message = f"{link.target} does not exist"
                yield self.finding("file-missing", "warning", message, text, link.at, self.nearest(link))

    def is_run_here(self, text: SkillText, link: Link) -> bool:
        """Whether SKILL.md tells to run a script of this skill. Elsewhere, and without scripts, it is an example."""
        folder = os.path.join(self.folder, link.target.split("/")[0])
        return link.kind == "run" and text.path == SKILL_FILE and os.path.isdir(folder)

    def nearest(self, link: Link) -> str:
        """The hint for a missing file: a file of the same name, if there is one."""
        name = posixpath.basename(link.target).lower()
        same = next((path for path in self.files if posixpath.basename(path).lower() == name), "")
        return f"did you mean {same}?" if same else "add the file, or correct the path"

    def unreachable(self, reached: Mapping[str, SkillText]) -> Iterator[Diagnostic]:
        for path in self.files:
            if path not in reached and _is_reference(path):
                message = f"{path} is not mentioned in {SKILL_FILE}, nor in a file that {SKILL_FILE} leads to"
                hint = f"say in {SKILL_FILE} when to read it, or delete it"
                yield self.finding("reference-unreachable", "info", message, SkillText(path, ""), 0, hint)

    # --- hidden characters ---

    def hidden(self, text: SkillText, parsed: Parsed, known: Collection[str]) -> Iterator[Diagnostic]:
        found = hidden_characters(text.text)
        if not found:
            return
        start = len(text.text.encode()[: parsed.body_offset].decode(errors="ignore")) if text.path == SKILL_FILE else 0
        codes = {"hidden": "hidden-characters", "invisible": "invisible-removed"}
        found = [one for one in found if one.at >= start or codes[one.kind] not in known]
        hidden, invisible = ([one for one in found if one.kind == kind] for kind in ("hidden", "invisible"))
        if hidden:
            yield self.finding("hidden-characters", "error", _listed(hidden), text, hidden[0].at, _removal(hidden))
        if invisible:
            hint = _removal(invisible)
            yield self.finding("invisible-characters", "warning", _listed(invisible), text, invisible[0].at, hint)


def _listed(found: list[HiddenCharacter]) -> str:
    kinds = list(dict.fromkeys(one.shown for one in found))
    more = f" and {len(kinds) - 3} more" if len(kinds) > 3 else ""
    number = "a character" if len(found) == 1 else f"{len(found):,} characters"
    return f"{number} that nobody sees: {', '.join(kinds[:3])}{more}"


def _removal(found: list[HiddenCharacter]) -> str:
    return "`metier validate --fix` removes them" if all(one.removable for one in found) else "remove them by hand"


def _is_reference(path: str) -> bool:
    """Whether a file is text that a model is meant to read."""
    *folders, name = path.split("/")
    if any(part.startswith(".") or part in _NOT_REFERENCES for part in folders) or _NOT_FOR_MODELS.match(name):
        return False
    kind = posixpath.splitext(name)[1].lower()
    in_references = bool(folders) and folders[0] in ("references", "reference")
    return kind in _MARKDOWN or (in_references and kind in (".txt", ".rst", ".adoc"))


# --- descriptions ---


def describe_flaw(fields: Mapping[str, object]) -> Diagnostic | None:
    """Return the worst flaw of a description, without its place. `None` if there is none, or no description at all.

    It is judged as its only reader does: a model that decides from it alone whether to load the skill. Whether it says
    when to use the skill can only be told of English, so other languages are left alone.
    """
    text = (as_text(fields.get("description")) or "").strip()
    if not text:
        return None
    if _PLACEHOLDER.search(text):
        message = "`description` is a placeholder"
        return Diagnostic("description-placeholder", "warning", message, hint=_WRITE)
    if _says_nothing(text, as_text(fields.get("name")) or ""):
        message = "`description` says no more than the name"
        return Diagnostic("description-vague", "warning", message, hint=_WRITE)
    if not _says_when(fields) and not _WHEN.search(text) and _is_english(text):
        hint = 'add a sentence such as "Use when the user asks for ..."'
        message = "`description` does not say when to use the skill"
        return Diagnostic("description-when", "info", message, hint=hint)
    return None


def _says_nothing(text: str, name: str) -> bool:
    """Whether a description is one word, or only repeats the name."""
    if UNSPACED.search(text):
        return len(text) < 4
    words = re.findall(r"\w+", text.lower())
    return len(words) < 2 or set(words) <= set(re.findall(r"[^\W_]+", name.lower()))


def _says_when(fields: Mapping[str, object]) -> bool:
    """Whether another field says when the skill is used, or the model is not the one who decides."""
    named = ("when_to_use", "when-to-use", "paths", "globs", "triggers")
    decided = (("disable-model-invocation", True), ("alwaysApply", True), ("always", True))
    return any(fields.get(key) for key in named) or any(fields.get(key) is value for key, value in decided)


def _is_english(text: str) -> bool:
    letters = [char for char in text if char.isalpha()]
    if sum(char.isascii() for char in letters) < 0.95 * len(letters):
        return False
    return len(_ENGLISH.findall(text.lower())) >= len(_OTHERS.findall(text.lower()))
