#!/usr/bin/env python3
"""Order log lines and chat messages with mixed timestamps into one timeline in UTC.

Each line is read by the first clock format that fits it, put on a day and into a zone by what the line itself, the
lines before it, or the caller say, and sorted by instant. An assumption is never silent: whatever had to be filled in
is listed below the table, and a time that cannot be placed is listed as not placed instead of being guessed.

Examples:
  timeline.py app=app.log chat=chat.txt --tz chat=Europe/Berlin --date 2025-03-01
  timeline.py --format json --from 2025-03-01T13:00 --gap 10m - < pasted.txt
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

MONTHS = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11,
    "dec": 12,
}  # fmt: skip
ABBREVIATIONS = {  # minutes east of Greenwich; only the ones that mean one thing
    "Z": 0, "UTC": 0, "GMT": 0, "CET": 60, "CEST": 120, "EET": 120, "EEST": 180, "WET": 0, "WEST": 60, "JST": 540,
    "EST": -300, "EDT": -240, "CDT": -300, "MDT": -360, "PST": -480, "PDT": -420, "AEST": 600, "AEDT": 660,
}  # fmt: skip
AMBIGUOUS = frozenset({"CST", "IST", "BST", "AST", "MST", "SST", "ECT", "AMT"})

CLOCK = r"(?P<h>\d{1,2}):(?P<m>\d{2})(?::(?P<s>\d{2})(?:[.,](?P<f>\d{1,9}))?)?"
MERIDIEM = r"(?:\s?(?P<ap>[AaPp])\.?[Mm]\.?\b)?"
ZONE = r"(?:\s?(?P<zone>Z\b|[+-]\d{2}:?\d{2}\b|[+-]\d{2}\b(?!:)|(?<=\s)[A-Z]{2,5}\b))?"
MONTH = r"(?P<mon>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
WEEKDAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\s+)?"
OPEN = r"^[\s>*•-]*[\[(<]?\s*"

# Formats that carry a full date may stand anywhere near the start of a line; the others only at its very start.
ANYWHERE = [
    re.compile(rf"(?<![\d-])(?P<y>\d{{4}})[-/](?P<mo>\d{{2}})[-/](?P<d>\d{{2}})(?:[Tt]|,?\s+){CLOCK}{ZONE}"),
    re.compile(rf"(?<!\d)(?P<d>\d{{2}})/{MONTH}/(?P<y>\d{{4}}):{CLOCK}{ZONE}"),
    re.compile(rf"{WEEKDAY}(?<!\d)(?P<d>\d{{1,2}})\s+{MONTH},?\s+(?P<y>\d{{4}}),?\s+{CLOCK}{MERIDIEM}{ZONE}"),
    re.compile(rf"{WEEKDAY}\b{MONTH}\s+(?P<d>\d{{1,2}}),?\s+(?P<y>\d{{4}}),?\s+(?:at\s+)?{CLOCK}{MERIDIEM}{ZONE}"),
    re.compile(rf"{WEEKDAY}\b{MONTH}\s+(?P<d>\d{{1,2}})\s+{CLOCK}{ZONE}\s+(?P<y>\d{{4}})\b"),
]
AT_START = [
    re.compile(
        rf"{OPEN}(?P<a>\d{{1,2}})(?P<sep>[/.])(?P<b>\d{{1,2}})[/.](?P<y>\d{{4}}|\d{{2}}),?\s+{CLOCK}{MERIDIEM}{ZONE}"
    ),
    re.compile(rf"{OPEN}{WEEKDAY}{MONTH}\s+(?P<d>\d{{1,2}}),?\s+{CLOCK}{MERIDIEM}{ZONE}"),
    re.compile(rf"{OPEN}(?P<epoch>\d{{10}}(?:\.\d{{1,9}})?|\d{{13}}|\d{{16}}|\d{{19}})(?=[\s\]),:;]|$)"),
    re.compile(rf"{OPEN}{CLOCK}{MERIDIEM}{ZONE}(?=[\s\])>,;|-]|$)"),
]
NAME_THEN_TIME = re.compile(rf"^(?P<who>[^\d\s\[][^\[\]|]{{0,60}}?)\s+\[?{CLOCK}{MERIDIEM}\]?\s*$")
DAY_LINE = re.compile(
    rf"^\W*(?:(?P<y>\d{{4}})-(?P<mo>\d{{2}})-(?P<d>\d{{2}})|{WEEKDAY}{MONTH}\s+(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<y2>\d{{4}}))\W*$"
)
REACH = 160  # characters of a line in which a time is looked for
TIME_KEYS = ("@timestamp", "timestamp", "time", "ts", "datetime", "date", "eventTime")
TEXT_KEYS = ("message", "msg", "text", "event", "log", "summary")
LEVEL_KEYS = ("level", "severity")
SECRETS = [  # every repetition that may start anywhere is bounded, so that a long line stays cheap
    (re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+"), "[e-mail]"),
    (re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])"), "[ip]"),
    (re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{1,4}:){4,7}[0-9a-fA-F]{1,4}(?![\w:])"), "[ip]"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), r"\1 [secret]"),
    (
        re.compile(r"(?i)((?:password|passwd|secret|token|api[_-]?key)[\w-]{0,40}\"?\s{0,5}[=:]\s{0,5})\"?[^\s\",;&]+"),
        r"\1[secret]",
    ),
    (re.compile(r"\b(?=[\w-]{0,64}\d)(?=[\w-]{0,64}[A-Za-z])[\w-]{32,}"), "[secret]"),
]


class InputError(Exception):
    """Something the caller can put right; shown as one line."""


class NotPlacedError(Exception):
    """A line has a time, but not enough to put it on a day; the text says what is missing."""


@dataclass
class Entry:
    """One event: an instant, where it was said, and its text with the lines that belong to it."""

    at: datetime
    source: str
    line: int
    text: str
    more: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    repeat: int = 1
    until: datetime | None = None
    speaker: bool = False


@dataclass
class Clock:
    """How one source tells the time; remembers the day while its lines are read in order."""

    label: str
    zone: tzinfo
    zone_name: str
    zone_given: bool
    day: date | None
    order: str | None
    zones: dict[str, tzinfo]
    skew: timedelta
    last: time | None = None

    def place(self, parts: dict[str, str | None]) -> tuple[datetime, list[str]]:
        """The instant in UTC that a match stands for, and what had to be assumed."""
        assumed: list[str] = []
        if parts.get("epoch"):
            return from_epoch(parts["epoch"] or "") - self.skew, assumed
        moment = self.time_of(parts)
        day = self.day_of(parts, moment, assumed)
        zone = self.zone_of(parts.get("zone"), assumed)
        local = datetime.combine(day, moment, zone)
        note_clock_change(local, assumed)
        self.day, self.last = day, moment
        return local.astimezone(UTC) - self.skew, assumed

    @staticmethod
    def time_of(parts: dict[str, str | None]) -> time:
        hour, minute, second = (int(parts.get(key) or 0) for key in "hms")
        if parts.get("ap"):
            if not 1 <= hour <= 12:
                raise NotPlacedError(f"there is no hour {hour} with AM or PM")
            hour = hour % 12 + (12 if (parts["ap"] or "").lower() == "p" else 0)
        micro = int((parts.get("f") or "0").ljust(6, "0")[:6])
        try:
            return time(hour, minute, min(second, 59) if second == 60 else second, micro)
        except ValueError as error:
            raise NotPlacedError("no such time of day") from error

    def day_of(self, parts: dict[str, str | None], moment: time, assumed: list[str]) -> date:
        year = parts.get("y")
        month = MONTHS[(parts["mon"] or "").lower()] if parts.get("mon") else int(parts.get("mo") or 0)
        day = int(parts.get("d") or 0)
        if parts.get("a"):
            month, day = self.month_and_day(int(parts["a"] or 0), int(parts["b"] or 0), parts["sep"] == ".")
        if not year and not day:
            return self.next_day(moment)
        if not year:
            if self.day is None:
                raise NotPlacedError("no year: give --date")
            back_to_january = self.day.month == 12 and month == 1
            number = self.day.year + (1 if back_to_january else 0)
            assumed.append(f"lines without a year were read as {number}")
        else:
            number = int(year) + (2000 if len(year) == 2 else 0)
        try:
            return date(number, month, day)
        except ValueError as error:
            raise NotPlacedError("no such day") from error

    def month_and_day(self, first: int, second: int, dotted: bool) -> tuple[int, int]:
        order = "dmy" if dotted or first > 12 else "mdy" if second > 12 else self.order
        if order is None:
            raise NotPlacedError("day or month first? give --date-order dmy or mdy")
        return (second, first) if order == "dmy" else (first, second)

    def next_day(self, moment: time) -> date:
        """A time of day belongs to the current day, or to the next one if it jumps back by more than half a day."""
        if self.day is None:
            raise NotPlacedError("only a time of day: give --date")
        minutes = moment.hour * 60 + moment.minute
        before = self.last.hour * 60 + self.last.minute if self.last else minutes
        return self.day + timedelta(days=1) if before - minutes > 12 * 60 else self.day

    def zone_of(self, text: str | None, assumed: list[str]) -> tzinfo:
        if text and text[0] in "+-":
            return parse_offset(text) or self.zone
        if text and text in self.zones:
            return self.zones[text]
        if text in AMBIGUOUS:
            assumed.append(f"{text} is ambiguous (give --zone {text}=OFFSET); read as {self.zone_name}")
        else:
            given = "as asked" if self.zone_given else "by default"
            assumed.append(f"lines without a zone were read as {self.zone_name}, {given}")
        return self.zone


def note_clock_change(local: datetime, assumed: list[str]) -> None:
    """Say so when the clocks were changed in that hour, so that the local time names two instants or none."""
    other = local.replace(fold=1)
    if local.utcoffset() == other.utcoffset():
        return
    exists = local.astimezone(UTC).astimezone(local.tzinfo).replace(tzinfo=None) == local.replace(tzinfo=None)
    why = "occurs twice, the first was taken" if exists else "does not exist"
    assumed.append(f"{local:%Y-%m-%d %H:%M} {why} (clock change)")


def from_epoch(text: str) -> datetime:
    """Unix time in seconds, milli-, micro- or nanoseconds, told apart by the number of digits."""
    whole = len(text.split(".")[0])
    scale = {10: 1, 13: 10**3, 16: 10**6, 19: 10**9}.get(whole)
    if scale is None:
        raise NotPlacedError("not a Unix time between 2001 and 2286")
    if "." in text:
        seconds, fraction = text.split(".")
        micro = int(seconds) * 10**6 // scale + int(fraction.ljust(6, "0")[:6]) // scale
    else:
        micro = int(text) * 10**6 // scale
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micro)


def parse_offset(text: str) -> tzinfo | None:
    found = re.fullmatch(r"([+-])(\d{2}):?(\d{2})?", text)
    if not found or int(found[2]) > 23 or int(found[3] or 0) > 59:
        return None
    minutes = int(found[2]) * 60 + int(found[3] or 0)
    return timezone(timedelta(minutes=-minutes if found[1] == "-" else minutes))


def parse_zone(text: str) -> tzinfo:
    """An offset, an unambiguous abbreviation, or a name from the time zone database."""
    offset = parse_offset(text)
    if offset is not None:
        return offset
    if text.upper() in ABBREVIATIONS:
        return timezone(timedelta(minutes=ABBREVIATIONS[text.upper()]))
    try:
        return ZoneInfo(text)
    except (KeyError, ValueError, OSError) as error:
        hint = "use a name such as Europe/Berlin, or an offset such as +02:00"
        raise InputError(f"unknown time zone {text!r}: {hint}") from error


def find_time(line: str, zones: frozenset[str]) -> tuple[dict[str, str | None], str, bool] | None:
    """The parts of a line's timestamp, the line without it, and whether the line is only a speaker's name."""
    head = line[:REACH]  # bounds the work on very long lines
    indented = head[:1] in (" ", "\t")
    for pattern in ANYWHERE:
        found = pattern.search(head)
        if found and (not indented or not head[: found.start()].strip(" \t[(<>*•-")):
            parts, end = take_parts(found, zones)
            return parts, join_around(head[: found.start()], line[end:]), False
    if indented:
        return None
    for pattern in AT_START:
        found = pattern.match(head)
        if found:
            parts, end = take_parts(found, zones)
            return parts, join_around("", line[end:]), False
    found = NAME_THEN_TIME.match(line) if len(line) <= REACH else None
    if found and (found["ap"] or "[" in line):
        return found.groupdict(), found["who"].strip(), True
    return None


def take_parts(found: re.Match[str], zones: frozenset[str]) -> tuple[dict[str, str | None], int]:
    """The groups and the end of a timestamp; a word such as INFO behind it is no zone and stays in the text."""
    parts = found.groupdict()
    word = parts.get("zone")
    if word and word.isalpha() and word not in zones:
        parts["zone"] = None
        if found.end("zone") == found.end():
            return parts, found.start("zone")
    return parts, found.end()


def join_around(before: str, after: str) -> str:
    before = re.sub(r"[\[(<\s]+$", "", before)
    after = re.sub(r"^\s*[\])>]?\s*[-–|:,;]?\s*", "", after)
    return f"{before} {after}".strip(" \t>*•")


def find_json_time(line: str, zones: frozenset[str]) -> tuple[dict[str, str | None], str] | None:
    """The time and message of a JSON log line."""
    if not line.startswith("{"):
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    stamp = next((data[key] for key in TIME_KEYS if isinstance(data.get(key), (str, int, float))), None)
    text = next((str(data[key]) for key in TEXT_KEYS if data.get(key)), line)
    level = next((str(data[key]) for key in LEVEL_KEYS if isinstance(data.get(key), str)), "")
    found = find_time(str(stamp), zones) if stamp is not None and not isinstance(stamp, bool) else None
    return (found[0], f"{level} {text}".strip()) if found else None


def read_source(label: str, text: str, clock: Clock) -> tuple[list[Entry], list[dict[str, Any]]]:
    """The entries of one source, and its lines that could not be placed."""
    entries: list[Entry] = []
    unplaced: list[dict[str, Any]] = []
    known = frozenset(clock.zones) | AMBIGUOUS
    attach = False
    for number, raw in enumerate(text.lstrip("\ufeff").split("\n"), 1):
        line = "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in raw.rstrip())
        if not line:
            continue
        day = DAY_LINE.match(line) if len(line) <= REACH else None
        if day:
            clock.day, clock.last = day_from(day) or clock.day, None
            continue
        speaker = False
        found = find_json_time(line, known)
        if found is None:
            plain = find_time(line, known)
            if plain is not None:
                found, speaker = plain[:2], plain[2]
        if found is None:
            if attach:
                entries[-1].more.append(line)
            else:
                unplaced.append({"source": label, "line": number, "text": line, "reason": "no time"})
            continue
        try:
            at, assumed = clock.place(found[0])
        except (NotPlacedError, OverflowError) as error:
            reason = str(error) if isinstance(error, NotPlacedError) else "outside the calendar"
            unplaced.append({"source": label, "line": number, "text": line, "reason": reason})
            attach = False
            continue
        entries.append(Entry(at, label, number, found[1], assumed=assumed, speaker=speaker))
        attach = True
    for entry in entries:
        if entry.speaker and entry.more:
            entry.text, entry.more = f"{entry.text}: {' '.join(part.strip() for part in entry.more)}", []
    return entries, unplaced


def day_from(found: re.Match[str]) -> date | None:
    try:
        if found["y"]:
            return date(int(found["y"]), int(found["mo"]), int(found["d"]))
        return date(int(found["y2"]), MONTHS[found["mon"].lower()], int(found["d2"]))
    except ValueError:
        return None


def fold_repeats(entries: list[Entry]) -> list[Entry]:
    """Identical neighbours of one source become one entry with a count."""
    folded: list[Entry] = []
    for entry in entries:
        last = folded[-1] if folded else None
        if last and (last.source, last.text, last.more) == (entry.source, entry.text, entry.more):
            last.repeat += 1
            last.until = entry.at
        else:
            folded.append(entry)
    return folded


def redact(text: str) -> str:
    for pattern, mask in SECRETS:
        text = pattern.sub(mask, text)
    return text


def stamp(at: datetime, fraction: bool) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S") + (f".{at.microsecond // 1000:03}" if fraction else "")


def span(seconds: float) -> str:
    """A duration in words, to the minute above an hour and to the second below."""
    whole = int(seconds)
    days, hours, minutes, rest = whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    if whole >= 3600:
        rest = 0
    parts = [f"{value} {unit}" for value, unit in ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")) if value]
    return " ".join(parts) or "0 s"


def cell(text: str, width: int) -> str:
    if width and len(text) > width:
        text = text[: width - 1] + "…"
    return re.sub(r"([\\|<>`*\[\]])", r"\\\1", text.replace("\t", " "))


def to_markdown(entries: list[Entry], notes: list[str], unplaced: list[dict[str, Any]], gap: float, width: int) -> str:
    fraction = any(entry.at.microsecond for entry in entries)
    lines = ["| UTC | source | event |", "|---|---|---|"]
    last: datetime | None = None
    for entry in entries:
        silent = (entry.at - last).total_seconds() if last else 0.0
        if gap and silent > gap:
            lines.append(f"| | | *{span(silent)} without an entry* |")
        text = cell(entry.text, width)
        if entry.more:
            text += f" *(+{len(entry.more)} lines)*"
        if entry.until:
            text += f" *({entry.repeat} times, until {stamp(entry.until, fraction)})*"
        lines.append(f"| {stamp(entry.at, fraction)} | {cell(entry.source, 40)} | {text} |")
        last = entry.until or entry.at
    if entries:
        total = (max(e.until or e.at for e in entries) - entries[0].at).total_seconds()
        lines += ["", f"Rows: {len(entries)}; from first to last: {span(total)}."]
    if notes:
        lines += ["", "## Assumptions", "", *(f"- {cell(note, 0)}" for note in notes)]
    if unplaced:
        lines += ["", "## Not placed", ""]
        for item in unplaced:
            lines.append(
                f"- {cell(item['source'], 40)}, line {item['line']} ({item['reason']}): {cell(item['text'], width)}"
            )
    return "\n".join(lines)


def to_json(entries: list[Entry], notes: list[str], unplaced: list[dict[str, Any]]) -> str:
    rows = []
    for entry in entries:
        row = {"utc": entry.at.isoformat(), "source": entry.source, "line": entry.line, "text": entry.text}
        extra = {"more": entry.more, "assumed": entry.assumed, "repeat": entry.repeat}
        rows.append({**row, **extra, "until": entry.until.isoformat() if entry.until else None})
    return json.dumps({"entries": rows, "assumptions": notes, "not_placed": unplaced}, indent=2, ensure_ascii=False)


def read_text(name: str) -> str:
    try:
        if name == "-":
            if sys.stdin is None or sys.stdin.isatty():
                raise InputError("nothing to read: pipe lines into this script, or name a file")
            return sys.stdin.buffer.read().decode("utf-8", errors="replace")
        with open(name, "rb") as file:
            return file.read().decode("utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error


def split_sources(arguments: list[str]) -> dict[str, str]:
    """Label to file; a file whose own name contains `=` can be given as ./name."""
    sources: dict[str, str] = {}
    for argument in arguments:
        label, sign, name = argument.partition("=")
        if not sign or "/" in label or os.sep in label:
            label, name = ("stdin" if argument == "-" else os.path.basename(argument)), argument
        if not label or not name:
            raise InputError(f"{argument!r}: expected LABEL=FILE")
        if label in sources:
            raise InputError(f"two sources are called {label!r}: give each a label of its own, LABEL=FILE")
        sources[label] = name
    return sources


def per_label(values: list[str], option: str, labels: set[str]) -> dict[str, str]:
    """Values of the form LABEL=VALUE; a bare value counts for the label ''."""
    found: dict[str, str] = {}
    for value in values:
        label, sign, rest = value.rpartition("=")
        if sign and label not in labels:
            raise InputError(
                f"{option} {value}: there is no source called {label!r}; there are {', '.join(sorted(labels))}"
            )
        found[label if sign else ""] = rest
    return found


def parse_moment(text: str, option: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{option}: {text!r} is not a time such as 2025-03-01T14:00") from error


def parse_duration(text: str, option: str) -> float:
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s*(s|m|min|h|d)?", text.strip())
    if not found:
        raise InputError(f"{option}: {text!r} is not a duration such as 90s, 10m or 2h")
    return float(found[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}[found[2] or "s"]


def build_parser() -> argparse.ArgumentParser:
    idea, examples = (__doc__ or "").split("\n\nExamples:\n")
    parser = argparse.ArgumentParser(
        description=idea.split("\n")[0],
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sources", nargs="*", default=["-"], metavar="[LABEL=]FILE", help="- reads standard input")
    parser.add_argument("--tz", action="append", default=[], metavar="[LABEL=]ZONE", help="zone of lines without one")
    parser.add_argument("--date", help="first day, YYYY-MM-DD, for lines without a date or year")
    parser.add_argument("--date-order", choices=("dmy", "mdy"), help="how to read 03/04/2025")
    parser.add_argument("--skew", action="append", default=[], metavar="LABEL=SECONDS", help="that clock was ahead")
    parser.add_argument("--zone", action="append", default=[], metavar="ABBR=OFFSET", help="meaning of an abbreviation")
    parser.add_argument("--from", dest="start", metavar="TIME", help="leave out what is earlier")
    parser.add_argument("--to", dest="end", metavar="TIME", help="leave out what is later")
    parser.add_argument("--gap", default="0", metavar="DURATION", help="mark longer silences, such as 10m")
    parser.add_argument("--redact", action="store_true", help="mask addresses and what looks like a secret")
    parser.add_argument("--width", type=int, default=240, help="cut texts in the table; 0 keeps them whole")
    parser.add_argument("--format", choices=("markdown", "json"), default="markdown")
    return parser


def clocks(options: argparse.Namespace, labels: set[str]) -> dict[str, Clock]:
    zones: dict[str, tzinfo] = {name: timezone(timedelta(minutes=m)) for name, m in ABBREVIATIONS.items()}
    for value in options.zone:
        name, _, offset = value.partition("=")
        if not re.fullmatch(r"[A-Z]{2,5}", name) or not offset:
            raise InputError(f"--zone: {value!r} is not of the form CST=-06:00")
        zones[name] = parse_zone(offset)
    try:
        first = date.fromisoformat(options.date) if options.date else None
    except ValueError as error:
        raise InputError(f"--date: {options.date!r} is not a day such as 2025-03-01") from error
    names = per_label(options.tz, "--tz", labels)
    skews = per_label(options.skew, "--skew", labels)
    result = {}
    for label in labels:
        zone_name = names.get(label, names.get("", "UTC"))
        skew = skews.get(label, skews.get("", "0"))
        try:
            seconds = timedelta(seconds=float(skew))
        except (ValueError, OverflowError) as error:
            raise InputError(f"--skew: {skew!r} is not a number of seconds") from error
        given = label in names or "" in names
        zone = parse_zone(zone_name)
        result[label] = Clock(label, zone, zone_name, given, first, options.date_order, zones, seconds)
    return result


def run(options: argparse.Namespace) -> int:
    sources = split_sources(options.sources)
    start = parse_moment(options.start, "--from") if options.start else None
    end = parse_moment(options.end, "--to") if options.end else None
    gap = parse_duration(options.gap, "--gap")
    by_label = clocks(options, set(sources))
    entries: list[Entry] = []
    unplaced: list[dict[str, Any]] = []
    for label, name in sources.items():
        placed, rest = read_source(label, read_text(name), by_label[label])
        entries += placed
        unplaced += rest
    read = len(entries)
    entries.sort(key=lambda entry: entry.at)  # stable: the order of sources and lines decides between equals
    entries = [e for e in entries if (start is None or e.at >= start) and (end is None or e.at <= end)]
    counts = Counter((entry.source, note) for entry in entries for note in entry.assumed)
    notes = [
        f"{source}: {note} ({count} {'line' if count == 1 else 'lines'})" for (source, note), count in counts.items()
    ]
    notes += [
        f"{label}: {c.skew.total_seconds():g} s were taken off its times" for label, c in by_label.items() if c.skew
    ]
    if len(entries) < read:
        notes.append(f"{read - len(entries)} entries lie outside --from and --to and are left out")
    if options.redact:
        for entry in entries:
            entry.text, entry.more = redact(entry.text), [redact(line) for line in entry.more]
        for item in unplaced:
            item["text"] = redact(item["text"])
    entries = fold_repeats(entries)
    if options.format == "json":
        print(to_json(entries, notes, unplaced))
    else:
        print(to_markdown(entries, notes, unplaced, gap, max(options.width, 0)))
    if not entries:
        print("timeline: no line could be placed; see the reasons, or give --date and --tz", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        code = run(build_parser().parse_args())
        sys.stdout.flush()
        return code
    except InputError as error:
        print(f"timeline: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0


if __name__ == "__main__":
    sys.exit(main())
