"""Output: tables, facts, JSON, diagnostics. No control character of a skill reaches a terminal.

On a terminal, text is cut and wrapped to its width. A pipe gets everything, one record per line, for `grep` and `awk`.
Paths, URLs and digests are never cut or broken: where they do not fit, the line is longer than the terminal.
"""

import os
import re
import sys
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click
from msgspec import Struct

from metier import limits
from metier.files.shapes import is_iterator, is_list, is_table
from metier.files.text import blank_controls, from_utf8, printable, printable_lines, storable_text
from metier.values.value import plain

if TYPE_CHECKING:
    from metier import Skills
    from metier.values.skill import Diagnostic, Skill

_CHUNK: Final = 1 << 16
"""How many characters of JSON are printed at once."""

COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}


def on_terminal() -> bool:
    return sys.stdout.isatty()


_UNLIMITED: Final = sys.maxsize


def width() -> int:
    """The width of the terminal. Without one there is no limit."""
    return max(40, columns()) if on_terminal() else _UNLIMITED


def columns() -> int:
    """What `shutil.get_terminal_size` says. Its import would take longer than printing the help."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).columns or 80
    except (ValueError, OSError):
        return 80


def help_width() -> int:
    """The width of the help: that of the terminal, but not wider than one reads well."""
    return max(50, min(columns(), 80) - 2)


def moment(ms: int) -> str:
    """A time of the record in the time zone of this machine, to the minute."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def relative(path: str, folder: str) -> str:
    """A path below a folder as it is written there; another one as it is."""
    return os.path.relpath(path, folder) if path.startswith(f"{folder.rstrip('/')}/") else path


def first(names: Sequence[str], count: int, between: str = ", ") -> str:
    """The first names on one line, and how many more there are."""
    more = f" and {len(names) - count:,} more" if len(names) > count else ""
    return between.join(names[:count]) + more


def wrap(text: str, indent: str = "", hanging: str = "") -> str:
    """Wrap a text at the width of the terminal, between words only. `hanging` begins every line but the first."""
    if not on_terminal():
        return indent + text
    from textwrap import TextWrapper  # slow to import, and a pipe has no width

    wrapper = TextWrapper(
        width(), initial_indent=indent, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )
    return wrapper.fill(text)


def safe(text: str) -> str:
    """Remove control characters from the text of a skill for a terminal. A pipe gets the text unchanged."""
    if not sys.stdout.isatty():
        return text
    return printable_lines(text)


def cells(text: str) -> int:
    """The number of columns of a text."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(bool(unicodedata.combining(c)) for c in text)


def cut(text: str, columns: int) -> str:
    """Cut a text that has more columns, with an ellipsis."""
    if cells(text) <= columns:
        return text
    kept = ""
    for char in text:
        if cells(kept + char) > columns - 1:
            break
        kept += char
    return kept.rstrip() + "…"


def fit(text: str, columns: int) -> str:
    """Pad or cut a text to a number of columns."""
    text = cut(text, columns)
    return text + " " * (columns - cells(text))


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    flexible: int = -1,
    mark: Callable[[str], str] = str,
    below: Sequence[str] = (),
    whole: bool = False,
) -> None:
    """Print columns as wide as their content. The flexible column takes the rest of the line.

    `mark` can style a finished line. It must not change its width. `below` has a text for each row, which is never cut.
    With `whole`, the last column is never cut, because it has paths.
    """
    flexible %= len(headers)
    clean = [[printable(cell) for cell in row] for row in rows]
    widths = [max(cells(row[n]) for row in [list(headers), *clean]) for n in range(len(headers))]
    gaps = 2 * (len(headers) - 1)
    total = width()
    last = len(headers) - 1
    for n in range(len(headers)):
        if n != flexible and not (whole and n == last):
            widths[n] = min(widths[n], max(12, total // 3))
    used = sum(w for n, w in enumerate(widths) if n != flexible)
    if not (whole and flexible == last):
        widths[flexible] = max(10, min(widths[flexible], total - gaps - used))
    line = "  ".join(fit(h.upper(), w) for h, w in zip(headers, widths, strict=True))
    click.secho(line.rstrip(), bold=True)
    under = iter(below)
    for row in clean:
        line = "  ".join(fit(cell, w) for cell, w in zip(row, widths, strict=True)).rstrip()
        text = blank_controls(next(under, ""))
        if not text:
            click.echo(mark(line))
        elif on_terminal():
            click.echo(f"{mark(line)}\n  {text}")
        else:
            click.echo(f"{mark(line)}  {text}")


WHOLE: Final = ("path", "file", "location", "shadowed by")
"""The facts that are paths."""


def facts(pairs: Iterable[tuple[str, str]], mark: Callable[[str], str] = str, whole: Container[str] = WHOLE) -> None:
    """Print names and values in two columns, with long values wrapped. `mark` can style a line of a value.

    The values of the names in `whole` are paths, which may have blanks, and stay on one line.
    """
    shown = [(printable(name), printable(value)) for name, value in pairs if value]
    indent = max((len(name) for name, _ in shown), default=0) + 2
    for name, value in shown:
        text = value if name in whole else wrap(value, " " * indent, " " * indent).lstrip(" ")
        lines = [mark(line) for line in text.split("\n")]
        click.echo(click.style(name, bold=True) + " " * (indent - len(name)) + "\n".join(lines))


def json_out(data: object) -> None:
    """Print one JSON document: a value, or data. An iterator's items are printed as they come."""
    pending: list[str] = []
    size = 0
    for part in _document(data):
        pending.append(part)
        size += len(part)
        if size > _CHUNK:
            _print_json("".join(pending))
            pending.clear()
            size = 0
    _print_json("".join((*pending, "\n")))


def _print_json(text: str) -> None:
    # Bytes that are not UTF-8 and control characters are written as JSON escapes.
    text = storable_text(text)
    if not text.isascii() or "\x7f" in text:
        text = re.sub("[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text)
    click.echo(text, nl=False)


def _document(data: object) -> Iterator[str]:
    """JSON with one line for each key and each list item, which is readable and uses the fast encoder."""
    import json

    encode = json.JSONEncoder(ensure_ascii=False, default=as_json).encode

    def items(values: Iterable[object], indent: str) -> Iterator[str]:
        start = f"[\n{indent}  "
        for value in values:
            yield f"{start}{encode(value)}"
            start = f",\n{indent}  "
        yield f"\n{indent}]" if start[0] == "," else "[]"

    if isinstance(data, Struct):
        data = plain(data)
    if is_table(data):
        yield "{\n"
        for number, (key, value) in enumerate(data.items()):
            yield f"  {encode(key)}: " if number == 0 else f",\n  {encode(key)}: "
            if is_iterator(value) or (is_list(value) and value and is_table(value[0])):
                yield from items(value, "  ")
            else:
                yield encode(value)
        yield "\n}"
    elif is_list(data):
        yield from items(data, "")
    else:
        yield encode(data)


def as_json(value: object) -> object:
    """A value inside of data for JSON."""
    return plain(value) if isinstance(value, Struct) else str(value)


def diagnostic(d: "Diagnostic", cwd: str, *, source: bool = True) -> None:
    """Print a diagnostic as a compiler does: message, place, source line with a caret, and hint."""
    head = click.style(f"{d.severity}[{d.code}]", fg=COLOURS[d.severity], bold=True)
    click.echo(f"{head}: {printable(d.message)}")
    path = printable(relative(d.path, cwd))
    place = f":{d.line}:{d.column}" if d.line else ""
    if path:
        click.echo(f"  --> {path}{place}")
    line = _line(d) if source and d.line else None
    if line is not None:
        gutter = " " * len(str(d.line))
        shown = blank_controls(line)
        offset = max(0, d.column - 1) if on_terminal() else 0
        while offset and cells(shown[offset - 1 : d.column - 1]) <= width() - 24:
            offset -= 1  # show as much before the column as fits
        before = " " * cells(shown[offset : d.column - 1])
        click.echo(f" {gutter} |")
        click.echo(f" {d.line} | {cut(shown[offset:], width() - len(gutter) - 6)}")
        click.echo(f" {gutter} | {before}{click.style('^', fg=COLOURS[d.severity], bold=True)}")
    if d.hint:
        click.echo(f"   = help: {printable(d.hint)}")


def note(text: str, as_json: bool = False) -> None:
    """Print a line on stderr, which with --json is an object as well, so that a program can read all of stderr."""
    import json

    if as_json:
        click.echo(json.dumps({"warning": {"message": text.removeprefix("warning: ")}}), err=True)
    else:
        click.echo(printable(text), err=True)


def warnings(found: "Iterable[Diagnostic]", as_json: bool = False) -> None:
    """Print diagnostics on stderr, one line each."""
    for d in found:
        path = f"{d.path}: " if d.path and d.path not in d.message else ""
        note(f"{d.severity}: {path}{d.message}{f'; {d.hint}' if d.hint else ''}", as_json)


def _line(d: "Diagnostic") -> str | None:
    from metier.files.beneath import read_regular

    try:
        lines = read_regular(d.path, limits.REGISTRY_BYTES, start=True).split(b"\n", d.line)
    except (OSError, ValueError):
        return None
    return from_utf8(lines[d.line - 1][:4096]).rstrip("\r") if 0 < d.line <= len(lines) else None


def denying_rule(skills: "Skills") -> "Callable[[Skill], str]":
    """Tells the deny rule because of which nobody loads a skill; empty where there is none."""
    if not skills.settings.permissions.get("deny"):
        return lambda _: ""  # a list then imports nothing that decides
    from metier.policy.decide import Policy
    from metier.policy.rules import skill_request

    policy = Policy.of(None, skills.settings)

    def rule_of(skill: "Skill") -> str:
        decision = policy.decide(skill_request("skill_load", skill, skill.path))
        return decision.why if decision.verdict == "deny" else ""

    return rule_of


def mark_of(skill: "Skill", denied: "Callable[[Skill], str]") -> str:
    """What stands behind the name of a skill in a list, where a model does not get it."""
    if not skill.enabled:
        return " (off)"
    if denied(skill):
        return " (denied)"
    return "" if skill.trusted else " (untrusted)"
