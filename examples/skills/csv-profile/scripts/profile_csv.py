#!/usr/bin/env python3
"""Profile a CSV file: what its columns hold, what is missing, and what looks wrong.

Every value is classified by its spelling alone and the file is read once, row by row; a column then reports its
majority type and the exceptions with their line. Nothing is converted, repaired or guessed silently: what had to be
worked out (delimiter, encoding) is part of the output.

Examples:
  profile_csv.py data.csv
  profile_csv.py --format json --null -999 data.csv
  zcat data.csv.gz | profile_csv.py --delimiter tab -
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import json
import os
import re
import statistics
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from hashlib import blake2b
from typing import Any, BinaryIO

NULLS = frozenset({"", "na", "n/a", "nan", "null", "none", "nil", "#n/a", "\\n"})
BOOLEANS = frozenset({"true", "false", "yes", "no"})
BYTE_ORDER_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
DELIMITERS = (",", ";", "\t", "|")
INTEGER = re.compile(r"[+-]?\d{1,300}")
DECIMAL = re.compile(r"[+-]?(?:\d{1,300}\.\d{0,300}|\.\d{1,300}|\d{1,300}(?=[eE]))(?:[eE][+-]?\d{1,4})?")
LOCAL_NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:[.,' ]\d{3})+(?:[.,]\d+)?|\d+,\d+)")
SLASH_DATE = re.compile(r"(\d{1,2})[/.](\d{1,2})[/.](\d{4})")
FORMULA = re.compile(r"[=@]|[+-](?![\d.,\s]|$)")
MAX_DISTINCT = 100_000  # per column; beyond it the count is a lower bound
MAX_FIELD = 16 * 1024 * 1024
SAMPLE_LINES = 50
LONG_RECORD = 20  # lines; a record that spans more is probably an unclosed quote
SHOWN = 3  # examples per finding
FITTING = {  # a column's type -> the spellings that fit it, where that is more than the type itself
    "decimal": {"decimal", "integer"},
    "datetime": {"datetime", "date"},
    "code": {"code", "integer"},
}


class InputError(Exception):
    """Something the caller can put right; shown as one line."""


@dataclass
class Source:
    """Decoded lines of the input, with what was worked out about it."""

    lines: Iterator[str]
    encoding: str
    bom: bool


def kind_of(value: str) -> str:
    """The type that a non-missing value is spelled as."""
    if INTEGER.fullmatch(value):
        digits = value.lstrip("+-")
        return "code" if len(digits) > 1 and digits[0] == "0" else "integer"
    if DECIMAL.fullmatch(value):
        return "decimal" if abs(float(value)) != float("inf") else "text"
    if value.lower() in BOOLEANS:
        return "boolean"
    if SLASH_DATE.fullmatch(value):
        return "local date"
    if value[:4].isdigit() and value[4:5] == "-":
        try:
            date.fromisoformat(value)
            return "date"
        except ValueError:
            pass
        try:
            datetime.fromisoformat(value)
            return "datetime"
        except ValueError:
            pass
    return "local number" if LOCAL_NUMBER.fullmatch(value) else "text"


@dataclass
class Column:
    """What is learnt about one column; fed value by value, then asked for a summary."""

    name: str
    filled: int = 0
    missing: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    first_lines: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    distinct: Counter[str] = field(default_factory=Counter)
    distinct_full: bool = False
    numbers: array[float] = field(default_factory=lambda: array("d"))
    number_lines: array[int] = field(default_factory=lambda: array("q"))
    low: tuple[Any, str] | None = None
    high: tuple[Any, str] | None = None
    ranges: dict[str, tuple[str, str]] = field(default_factory=dict)
    longest: int = 0
    padded: int = 0
    formulas: int = 0
    long_digits: int = 0
    date_parts: list[bool] = field(default_factory=lambda: [False, False])

    def add(self, raw: str, line: int, nulls: frozenset[str]) -> None:
        value = raw.strip()
        if value.casefold() in nulls:
            self.missing += 1
            return
        self.filled += 1
        self.padded += value != raw
        self.longest = max(self.longest, len(value))
        kind = kind_of(value)
        self.kinds[kind] += 1
        low, high = self.ranges.get(kind, (value, value))
        self.ranges[kind] = (min(low, value), max(high, value))
        examples = self.first_lines.setdefault(kind, [])
        if len(examples) < SHOWN:
            examples.append((line, value))
        if not self.distinct_full or value in self.distinct:
            self.distinct[value] += 1
            self.distinct_full = len(self.distinct) >= MAX_DISTINCT
        if kind in ("integer", "decimal"):
            self.add_number(int(value) if kind == "integer" else float(value), value, line)
        else:
            self.formulas += bool(FORMULA.match(value))
        if kind in ("integer", "code"):
            self.long_digits += len(value.lstrip("+-")) > 15
        found = SLASH_DATE.fullmatch(value) if kind == "local date" else None
        if found:
            self.date_parts[0] |= int(found[1]) > 12
            self.date_parts[1] |= int(found[2]) > 12

    def add_number(self, number: float, text: str, line: int) -> None:
        self.numbers.append(float(number))
        self.number_lines.append(line)
        if self.low is None or number < self.low[0]:
            self.low = (number, text)
        if self.high is None or number > self.high[0]:
            self.high = (number, text)

    def type(self) -> str:
        """The majority type; integers and decimals together are decimal, dates and datetimes are datetime."""
        if not self.filled:
            return "empty"
        merged = Counter(self.kinds)
        if merged["decimal"]:
            merged["decimal"] += merged.pop("integer", 0)
        elif merged["code"]:
            merged["code"] += merged.pop("integer", 0)
        if merged["datetime"]:
            merged["datetime"] += merged.pop("date", 0)
        kind, count = max(merged.items(), key=lambda item: item[1])
        return kind if count * 10 >= self.filled * 9 else "text" if merged["text"] else "mixed"

    def fitting(self) -> set[str]:
        kind = self.type()
        return set(self.kinds) if kind in ("text", "mixed") else FITTING.get(kind, {kind})

    def exceptions(self) -> list[tuple[int, str]]:
        """The first values whose spelling does not fit the column's type; of a mixed column, some of each."""
        fitting = set() if self.type() == "mixed" else self.fitting()
        return sorted(e for kind, examples in self.first_lines.items() if kind not in fitting for e in examples)

    def exception_count(self) -> int:
        return self.filled - sum(self.kinds[kind] for kind in self.fitting())

    def text_range(self) -> tuple[str | None, str | None]:
        """First and last value in text order, which is also the order of ISO dates; none for local dates."""
        found = [self.ranges[kind] for kind in self.fitting() if kind in self.ranges and kind != "local date"]
        return (min(low for low, _ in found), max(high for _, high in found)) if found else (None, None)

    def fences(self) -> tuple[float, float] | None:
        """Tukey's fences; none for few values, for codes, or when the middle half is all one number."""
        if len(self.numbers) < 8 or self.type() not in ("integer", "decimal"):
            return None
        low, _, high = statistics.quantiles(self.numbers, n=4, method="inclusive")
        spread = 1.5 * (high - low)
        return (low - spread, high + spread) if 0 < spread < float("inf") else None

    def outliers(self) -> list[tuple[int, float]]:
        """Values beyond the fences, the farthest first."""
        fences = self.fences()
        if fences is None:
            return []
        low, high = fences
        found = [(line, n) for line, n in zip(self.number_lines, self.numbers, strict=True) if not low <= n <= high]
        return sorted(found, key=lambda item: -max(low - item[1], item[1] - high))

    def date_order(self) -> str:
        first, second = self.date_parts
        if first and second:
            return "mixed: both day-first and month-first values occur"
        if first or second:
            return "day first" if first else "month first"
        return "ambiguous: no value shows whether the day or the month comes first"

    def summary(self, rows: int, with_values: bool) -> dict[str, Any]:
        kind = self.type()
        numeric = kind in ("integer", "decimal")
        low, high = (self.low[1], self.high[1]) if numeric and self.low and self.high else self.text_range()
        outliers = self.outliers()
        result: dict[str, Any] = {
            "name": self.name,
            "type": kind,
            "exceptions": self.exception_count(),
            "missing": self.missing,
            "distinct": len(self.distinct),
            "distinct_is_lower_bound": self.distinct_full,
            "unique": bool(rows) and not self.distinct_full and len(self.distinct) == rows == self.filled,
            "min": low,
            "max": high,
            "mean": statistics.fmean(self.numbers) if numeric else None,
            "median": statistics.median(self.numbers) if numeric else None,
            "longest": self.longest,
            "outliers": len(outliers),
            "top": [list(item) for item in self.distinct.most_common(SHOWN)],
            "notes": self.notes(rows, outliers, with_values),
        }
        if not with_values:
            for key in ("min", "max", "mean", "median", "top"):
                result[key] = None
        return result

    def notes(self, rows: int, outliers: list[tuple[int, float]], with_values: bool) -> list[str]:
        def shown(items: Iterable[tuple[int, object]]) -> str:
            few = list(itertools.islice(items, SHOWN))
            return ", ".join(
                f"line {line}: {clip(str(value))}" if with_values else f"line {line}" for line, value in few
            )

        notes = []
        if self.exception_count():
            notes.append(f"{many(self.exception_count(), 'value')} not {self.type()} ({shown(self.exceptions())})")
        if self.type() == "mixed":
            spread = ", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common())
            notes.append(f"mixed types: {spread} ({shown(self.exceptions())})")
        if outliers:
            notes.append(
                f"{many(len(outliers), 'outlier')} ({shown((line, f'{number:g}') for line, number in outliers)})"
            )
        if self.kinds["code"]:
            notes.append(f"{many(self.kinds['code'], 'value')} with leading zeros: codes, import as text")
        if self.long_digits:
            notes.append(f"{many(self.long_digits, 'value')} longer than 15 digits: import as text")
        if self.kinds["local date"]:
            notes.append(f"date order {self.date_order()}")
        if self.kinds["local number"]:
            notes.append(f"{many(self.kinds['local number'], 'number')} with decimal commas or thousands separators")
        if self.padded:
            notes.append(f"{many(self.padded, 'value')} with spaces around them")
        folded = len({value.casefold() for value in self.distinct})
        if folded < len(self.distinct):
            notes.append(f"spellings that differ in case only: {len(self.distinct) - folded}")
        if self.formulas:
            notes.append(f"{many(self.formulas, 'cell')} spelled like a spreadsheet formula")
        if rows > 1 and len(self.distinct) == 1 and not self.missing:
            notes.append("constant: the same value in every row")
        return notes


def open_source(name: str, encoding: str | None) -> tuple[BinaryIO, Source]:
    """Open the input and decide its encoding: what was asked for, a byte order mark, or UTF-8."""
    if name == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise InputError("nothing to read: pipe a table into this script, or name a file")
        stream: BinaryIO = sys.stdin.buffer
    else:
        try:
            stream = open(name, "rb")  # noqa: SIM115 - closed by the caller
        except OSError as error:
            raise InputError(f"{name}: {error.strerror or error}") from error
    head = stream.peek(4)[:4] if isinstance(stream, io.BufferedReader) else b""
    bom = next((name for mark, name in BYTE_ORDER_MARKS if head.startswith(mark)), None)
    chosen = encoding or bom or "utf-8"
    try:
        text = io.TextIOWrapper(stream, encoding=chosen, newline="")
    except (LookupError, ValueError) as error:
        raise InputError(f"--encoding: {chosen!r} is not a text encoding that Python knows") from error
    return stream, Source(iter(text), chosen, bom is not None)


def choose_delimiter(sample: list[str]) -> str:
    """The delimiter that splits most sample rows into the same number (above one) of fields."""
    best, best_score = ",", (0.0, 0)
    for delimiter in DELIMITERS:
        try:
            widths = Counter(len(row) for row in csv.reader(sample, delimiter=delimiter) if row)
        except csv.Error:
            continue
        if widths:
            width, count = max(widths.items(), key=lambda item: (item[1], item[0]))
            score = (count / widths.total(), width)
            if width > 1 and score > best_score:
                best, best_score = delimiter, score
    return best


def column_names(header: list[str]) -> tuple[list[str], list[str]]:
    """Unique names for the columns, and notes on what was wrong with the header."""
    notes, names = [], []
    counts = Counter(name.strip() for name in header)
    seen: Counter[str] = Counter()
    for position, raw in enumerate(header, 1):
        name = raw.strip()
        seen[name] += 1
        if not name:
            names.append(f"column_{position}")
            notes.append(f"column {position} has no name")
        else:
            names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    notes += [
        f"column name {clip(name)!r} occurs {count} times" for name, count in counts.items() if name and count > 1
    ]
    return names, notes


def profile(source: Source, options: argparse.Namespace) -> dict[str, Any]:
    sample = list(itertools.islice(source.lines, SAMPLE_LINES))
    delimiter = options.delimiter or choose_delimiter(sample)
    reader = csv.reader(itertools.chain(sample, source.lines), delimiter=delimiter)
    first = next((row for row in reader if row), None)
    if first is None:
        raise InputError("the input is empty")
    names, notes = ([f"column_{i}" for i in range(1, len(first) + 1)], []) if options.no_header else column_names(first)
    columns = [Column(name) for name in names]
    if reader.line_num >= LONG_RECORD:
        notes.append(f"the first record spans {reader.line_num} lines: is a quote not closed?")
    nulls = NULLS | {word.strip().casefold() for word in options.null}
    rows = blank = duplicates = 0
    ragged: Counter[int] = Counter()
    ragged_lines: list[int] = []
    seen: set[bytes] = set()
    partial = False
    start = reader.line_num
    pending: Iterable[list[str]] = itertools.chain([first], reader) if options.no_header else reader
    for row in pending:
        line, start = start + (0 if options.no_header and not rows else 1), reader.line_num
        if not row:
            blank += 1
            continue
        if start - line >= LONG_RECORD:
            notes.append(f"the record at line {line} spans {start - line + 1} lines: is a quote not closed?")
        if options.limit and rows >= options.limit:
            partial = True
            break
        rows += 1
        if len(row) != len(columns):
            ragged[len(row)] += 1
            if len(ragged_lines) < SHOWN:
                ragged_lines.append(line)
        digest = blake2b("\x00".join(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        duplicates += digest in seen
        seen.add(digest)
        for index, column in enumerate(columns):
            column.add(row[index] if index < len(row) else "", line, nulls)
    if ragged:
        widths = ", ".join(f"{count} with {width} fields" for width, count in ragged.most_common(SHOWN))
        where = ", ".join(str(line) for line in ragged_lines)
        notes.append(
            f"{many(ragged.total(), 'ragged row')} ({widths}; first at line {where}); expected {len(columns)} fields"
        )
    if duplicates:
        notes.append(f"{many(duplicates, 'duplicate row')}, an exact copy of an earlier row")
    if blank:
        notes.append(f"{many(blank, 'blank line')}, ignored")
    if partial:
        notes.append(f"partial: only the first {many(rows, 'row')} read (--limit)")
    summaries = [column.summary(rows, not options.no_values) for column in columns]
    return {
        "rows": rows,
        "columns": len(columns),
        "delimiter": delimiter,
        "encoding": source.encoding,
        "byte_order_mark": source.bom,
        "partial": partial,
        "duplicate_rows": duplicates,
        "ragged_rows": ragged.total(),
        "key_candidates": [summary["name"] for summary in summaries if summary["unique"]],
        "notes": notes,
        "profile": summaries,
    }


def many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def clip(text: str, width: int = 40) -> str:
    """One printable line of at most `width` characters."""
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return clean if len(clean) <= width else clean[: width - 1] + "…"


def cell(value: object) -> str:
    """A value for a Markdown table."""
    if value is None:
        return ""
    text = f"{value:.6g}" if isinstance(value, float) else clip(str(value))
    return re.sub(r"([\\|<>`*])", r"\\\1", text)


def to_markdown(data: dict[str, Any], label: str) -> str:
    delimiter = "tab" if data["delimiter"] == "\t" else f"`{data['delimiter']}`"
    keys = ", ".join(cell(name) for name in data["key_candidates"]) or "none"
    size = f"{many(data['rows'], 'row')}, {many(data['columns'], 'column')}"
    lines = [
        f"# Profile of {cell(label)}",
        "",
        f"- {size}; delimiter {delimiter}, encoding {data['encoding']}",
        f"- Key candidates (unique, never missing): {keys}",
        *(f"- {cell_text(note)}" for note in data["notes"]),
        "",
        "| column | type | missing | distinct | min | max | median | most frequent |",
        "|---|---|---:|---:|---|---|---|---|",
    ]
    for column in data["profile"]:
        share = f" ({column['missing'] / data['rows']:.1%})" if column["missing"] else ""
        kind = column["type"] + (f", {many(column['exceptions'], 'exception')}" if column["exceptions"] else "")
        distinct = ("at least " if column["distinct_is_lower_bound"] else "") + str(column["distinct"])
        top = ", ".join(f"{cell(value)} ({count})" for value, count in column["top"] or [] if count > 1)
        shown = [cell(column["name"]), kind, f"{column['missing']}{share}", distinct]
        shown += [cell(column[key]) for key in ("min", "max", "median")]
        lines.append("| " + " | ".join([*shown, top]) + " |")
    noted = [column for column in data["profile"] if column["notes"]]
    if noted:
        lines += ["", "## Notes", ""]
        lines += [f"- **{cell(column['name'])}**: {cell_text('; '.join(column['notes']))}" for column in noted]
    return "\n".join(lines)


def cell_text(text: str) -> str:
    return re.sub(r"([<>`*])", r"\\\1", text)


def delimiter_option(text: str) -> str:
    value = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(value) != 1 or value in '\r\n"':
        raise argparse.ArgumentTypeError(f"{text!r} is not one character (use 'tab' for a tabulator)")
    return value


def limit_option(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows above 0")
    return int(text)


def build_parser() -> argparse.ArgumentParser:
    idea, examples = (__doc__ or "").split("\n\nExamples:\n")
    parser = argparse.ArgumentParser(
        description=idea.split("\n")[0],
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", help="the table; - reads standard input")
    parser.add_argument("--format", choices=("markdown", "json"), default="markdown")
    parser.add_argument("--delimiter", type=delimiter_option, help="one character, or 'tab' (default: worked out)")
    parser.add_argument("--encoding", help="default: by byte order mark, else utf-8")
    parser.add_argument("--no-header", action="store_true", help="the first row is data")
    parser.add_argument("--null", action="append", default=[], metavar="WORD", help="one more word for a missing value")
    parser.add_argument("--no-values", action="store_true", help="print counts, but no values of the table")
    parser.add_argument("--limit", type=limit_option, metavar="N", help="read only the first N rows")
    return parser


def run(options: argparse.Namespace) -> int:
    csv.field_size_limit(MAX_FIELD)
    label = "standard input" if options.file == "-" else os.path.basename(options.file)
    stream, source = open_source(options.file, options.encoding)
    try:
        data = profile(source, options)
    except UnicodeError as error:
        hint = "try --encoding cp1252 or latin-1" if source.encoding.startswith("utf-8") else "try another --encoding"
        raise InputError(f"{label}: not {source.encoding} ({error}); {hint}") from error
    except csv.Error as error:
        raise InputError(f"{label}: {error}; is this a table, and is the delimiter right?") from error
    except OSError as error:
        raise InputError(f"{label}: {error.strerror or error}") from error
    finally:
        if options.file != "-":
            stream.close()
    if options.format == "json":
        print(json.dumps({"file": label, **data}, indent=2, ensure_ascii=False))
    else:
        print(to_markdown(data, label))
    return 0


def main() -> int:
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        code = run(build_parser().parse_args())
        sys.stdout.flush()
        return code
    except InputError as error:
        print(f"profile_csv: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0


if __name__ == "__main__":
    sys.exit(main())
