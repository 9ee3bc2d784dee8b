"""What a person is told before policy lets something happen, the same on every surface.

A `Question` is made from a `Request` and knows no surface: a title, facts, the script or what changed in it, and what
each answer means. Everything in a request comes from a skill or a model and is hostile, so every text of a question is
free of control and invisible characters, and no line of a script can look like a line of the question.
"""

import itertools
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

from metier.files.text import visible
from metier.policy.rules import REMOTE_LOAD
from metier.values.results import CHOICES, Request
from metier.values.skill import REMOTE
from metier.values.value import Value

CHARACTERS: Final = 20_000
"""The characters of a script or a difference that a question shows. The rest is counted."""
LINES: Final = 200
"""The lines of the same."""
FACT_CHARACTERS: Final = 4_000
"""The characters of one fact, such as a command with its arguments."""
WIDTH: Final = 100
"""The columns of a question as text, where no terminal says how many it has."""

_COMPARED: Final = 200_000
"""Characters of a script that are compared with its last approved text."""
_ALIGNED: Final = 400
"""Changed lines that are aligned with each other. Aligning more takes too long."""
_CONTEXT: Final = 3
"""Unchanged lines that a difference shows around a change."""
_LABEL: Final = 8
"""The columns of a label. A digest fits next to it into the 80 columns of a terminal."""
_INDENT: Final = " " * 4


class Fact(Value):
    """One thing to know before the answer. `whole` is set where `text` is only the beginning of it."""

    json_keys = ("label", "text", "whole?")
    unshown = ("whole",)

    label: str
    text: str
    whole: str = ""


class Question(Value, kw_only=True):
    """See the module. `Question.of(request).as_text()` is all that a host with an `approve` callback needs."""

    json_keys = ("title", "facts", "heading", "content", "is_diff", "cut", "answers", "text")
    unshown = ("detail",)

    title: str
    facts: tuple[Fact, ...]
    heading: str = ""
    """What `content` is. Empty if there is no content."""
    content: str = ""
    """The text of the script, or the difference to its last approved text."""
    is_diff: bool = False
    cut: str = ""
    """How much of the content is not shown, and where all of it is. Empty if it is complete."""
    once: str
    always: str
    no: str
    detail: str = ""
    """The whole text as it came. Only `whole` shows it."""

    @classmethod
    def of(cls, request: Request) -> "Question":
        heading, content, is_diff = _content(request)
        shown, left_out = _shortened(content)
        once, no = "only this time.", "denied; the caller gets an error."
        if request.tool == "skill_run":
            once = "this one run, of this content and with these arguments."
            no = "nothing runs; the caller gets an error."
        return cls(
            title=_title(request),
            facts=tuple(_fact(label, text) for label, text in _facts(request) if text),
            heading=heading,
            content=visible(shown, lines=True),
            is_diff=is_diff,
            cut=f"Not shown: {left_out}. {_where(request)}" if left_out else "",
            once=once,
            always=f"{_bounded(_covers(request))}. `metier policy revoke` takes it back.",
            no=no,
            detail=_text(request),
        )

    @property
    def more(self) -> bool:
        """Whether `whole` shows more than the question."""
        return self.is_diff or bool(self.cut) or any(fact.whole for fact in self.facts)

    @property
    def answers(self) -> dict[str, str]:
        """What each answer means."""
        return {"once": self.once, "always": self.always, "no": self.no}

    @property
    def text(self) -> str:
        """The question for a client that only shows it."""
        return self.as_text()

    def as_text(self, width: int = WIDTH, choices: Sequence[str] = CHOICES) -> str:
        """The question as lines of at most `width` columns. Lines of the content begin with a bar."""
        lines = [*_folded(self.title, width, after=_INDENT), ""]
        for fact in self.facts:
            lines += _folded(fact.text, width, f"{fact.label:<{_LABEL}}", " " * _LABEL)
        if self.heading:
            lines += ["", *_folded(self.heading, width, after=_INDENT), *_barred(self.content, width)]
        if self.cut:
            lines += _folded(self.cut, width, after=_INDENT)
        return "\n".join([*lines, "", self.meanings(width, choices)] if choices else lines)

    def meanings(self, width: int = WIDTH, choices: Sequence[str] = CHOICES) -> str:
        """What each answer means, as lines of at most `width` columns."""
        said = (f"{choice.capitalize()}: {self.answers[choice]}" for choice in choices)
        return "\n".join(line for one in said for line in _folded(one, width, after=_INDENT))

    def whole(self, width: int = WIDTH) -> str:
        """Everything that the question shows only in part, in the same form."""
        lines: list[str] = []
        for fact in self.facts:
            lines += [f"{fact.label}:", *_barred(fact.whole, width)] if fact.whole else []
        if self.is_diff or self.cut:
            lines += ["The whole text:", *_barred(visible(self.detail.removesuffix("\n"), lines=True), width)]
        return "\n".join(lines)


# --- words ---


def _title(request: Request) -> str:
    import shlex

    path = shlex.quote(request.path)  # a name with blanks could go on with the words of the title
    skill = f" the skill {request.skill_name}" if request.skill_name else ""
    whose = f" of{skill}" if skill else ""
    titles = {
        "skill_run": f"Run {path}{whose}?",
        "skill_load": f"Load{skill}?",
        "skill_read": f"Read {path}{whose}?",
        REMOTE_LOAD: f"Load{skill} from an MCP server?",
        "install": f"Connect to {path} to install{skill or ' a skill'}?",
    }
    return _bounded(titles.get(request.tool) or f"Allow {request.tool}{f' for{skill}' if skill else ''}?")


def _facts(request: Request) -> Iterator[tuple[str, str]]:
    if request.folder:
        about = ", ".join(part for part in dict.fromkeys((request.scope, request.source)) if part)
        yield "Folder", request.folder + (f" ({about})" if about else "")
        yield "Trust", _trust(request)
    if request.tool == REMOTE_LOAD:
        yield "From", f"{request.path} ({request.detail})" if request.detail else request.path
    elif request.tool not in ("skill_run", "install"):
        yield "File" if request.tool.startswith("skill_") else "What", request.path
    yield "Command", command_line(request)
    yield "Digest", request.digest
    for grant in request.grants:
        yield from grant.facts()


def _trust(request: Request) -> str:
    if request.scope == REMOTE:
        return "It comes from an MCP server."
    if request.foreign:
        return "It belongs to a project that you do not trust."
    return "It is yours, or belongs to a project that you trust."


def command_line(request: Request) -> str:
    """The command with each argument quoted, so that it shows where one ends."""
    if not request.arguments and request.command != request.path:
        return request.command
    import shlex

    return " ".join(shlex.quote(part) for part in (request.path, *request.arguments))


def _covers(request: Request) -> str:
    """What `always` allows from then on: the tool for this skill, here, and with this content if there is a digest."""
    skill = f"the skill at {request.folder}" if request.folder else f"every skill with the name {request.skill_name}"
    if request.scope == REMOTE:  # its files are in a cache, which says nothing
        skill = f"the skill {request.skill_name} of the MCP server {request.source}"
    if request.tool == "skill_run":
        limited = [grant.lasts() for grant in request.grants]
        what = ", ".join((f"this script of {skill}, with any arguments", *(where for where, _ in limited if where)))
        changes = f"{' and '.join(('no file of the skill', *(same for _, same in limited if same)))} changes"
        same = f"{changes} and it is given the same" if request.given else changes
        return f"{what}, {f'as long as {same}' if request.digest else 'also after it changes'}"
    if request.tool == REMOTE_LOAD:
        return f"loading {skill}, as long as none of its files changes"
    doing = {"skill_load": f"loading {skill}", "skill_read": f"reading every file of {skill}"}
    what = doing.get(request.tool) or (f"{request.tool} for {skill}" if request.skill_name else request.tool)
    return f"{what}, {'as long as the content does not change' if request.digest else 'also after it changes'}"


def _where(request: Request) -> str:
    if request.folder and request.path:
        return _bounded(f"All of it is in {os.path.join(request.folder, request.path)}.")
    import shlex

    return _bounded(f"`metier read {shlex.quote(request.skill_name)} {shlex.quote(request.path)}` shows the file.")


def _fact(label: str, text: str) -> Fact:
    return Fact(label, _bounded(text), visible(text) if len(text) > FACT_CHARACTERS else "")


def _bounded(text: str) -> str:
    """A text on one line, and how much of it is left out where it is too long."""
    rest = len(text) - FACT_CHARACTERS
    return visible(text) if rest <= 0 else f"{visible(text[:FACT_CHARACTERS])} (not shown: {rest:,} more characters)"


# --- the content ---


def _text(request: Request) -> str:
    """The text that the answer covers. For a skill of a server, `detail` is its origin instead."""
    return "" if request.tool == REMOTE_LOAD else request.detail


def _content(request: Request) -> tuple[str, str, bool]:
    """The heading, the text to show, and whether it is a difference."""
    now, before = _text(request), request.before
    if not now:
        return "", "", False
    what = "The script" if request.tool == "skill_run" else "The text"
    if not before:
        return f"{what}:", now, False
    if now == before:
        return f"{what}, which is the same as when it was last approved:", now, False
    if max(len(now), len(before)) > _COMPARED:
        return f"{what}, which changed since it was last approved and is too long to compare:", now, False
    changes = "\n".join(_difference(visible(before, lines=True).split("\n"), visible(now, lines=True).split("\n")))
    if not changes:
        return f"{what}, which changed since it was last approved only in what looks the same:", now, False
    return f"What changed in {what.lower()} since it was last approved:", changes, True


def _difference(before: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """What was removed and added, with the lines around it. Equal lines at both ends are not compared again."""
    from difflib import unified_diff

    most = min(len(before), len(now))
    head = next((n for n in range(most) if before[n] != now[n]), most)
    tail = next((n for n in range(most - head) if before[-1 - n] != now[-1 - n]), most - head)
    if before == now:
        return
    if max(len(before), len(now)) - head - tail > _ALIGNED:
        yield f"@@ line {head + 1} @@"
        yield from (f"-{line}" for line in before[head : len(before) - tail])
        yield from (f"+{line}" for line in now[head : len(now) - tail])
        return
    start, end = max(0, head - _CONTEXT), max(0, tail - _CONTEXT)
    old, new = before[start : len(before) - end], now[start : len(now) - end]
    for line in itertools.islice(unified_diff(old, new, n=_CONTEXT, lineterm=""), 2, None):  # without names of files
        place = re.match(r"@@ \S+ \+(\d+)(,0)?", line)
        yield f"@@ line {start + int(place[1]) + bool(place[2])} @@" if place else line


def _shortened(text: str) -> tuple[str, str]:
    """The beginning of the text within the bounds, and how much of it is left out."""
    text = text.removesuffix("\n")
    kept = "\n".join(text[:CHARACTERS].split("\n")[:LINES])
    rest = text[len(kept) :]
    if not rest:
        return kept, ""
    lines = rest.count("\n")
    return kept, f"{f'{lines:,} more lines, ' if lines else ''}{len(rest):,} more characters"


# --- lines of text ---


def _barred(text: str, width: int) -> Iterator[str]:
    """The lines of a text behind a bar, and each row of a long line behind one of its own."""
    for line in text.split("\n"):
        yield from _folded(line.expandtabs(4), width, f"{_INDENT}| ", f"{_INDENT}|> ")


def _folded(text: str, width: int, first: str = "", after: str = "") -> Iterator[str]:
    """The text in rows of at most `width` columns, the first and all others behind a prefix of their own.

    A terminal would begin the rest of a long line in its first column, where it could pass for a line of the question.
    """
    start, prefix = 0, first
    while True:
        end = _fitting(text, start, max(20, width - len(prefix)))
        yield prefix + text[start:end]
        if end == len(text):
            return
        start, prefix = end, after


def _fitting(text: str, start: int, columns: int) -> int:
    """Where the row that begins at `start` ends: after a word, if one ends nearby."""
    if len(text) - start <= columns // 2:
        return len(text)
    end, used = start, 0
    while end < len(text):
        used += 2 if unicodedata.east_asian_width(text[end]) in "WF" else 1
        if used > columns:
            space = text.rfind(" ", start + columns * 2 // 3, end)
            return space + 1 if space >= 0 else end
        end += 1
    return end
