#!/usr/bin/env python3
"""Group the commits of a `git log` into the sections of release notes.

The history already says what changed, so a program does the sorting and a person does the wording. Input is text
(a pipe or a file) and Git is never called: the same text always gives the same notes. No commit vanishes in
silence; each one is listed, or counted in the summary on standard error with the reason why it is not.

Examples:
  git log --no-decorate v1.4.0..HEAD | group_commits.py --current 1.4.0
  group_commits.py history.txt --title "1.5.0" --url https://example.org/team/project
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import sys
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

SECTIONS = {  # title -> commit types, in the order of the notes
    "Security": ("security",),
    "Features": ("feat", "feature"),
    "Fixes": ("fix", "bugfix", "hotfix"),
    "Performance": ("perf",),
    "Deprecations": ("deprecate", "deprecation"),
    "Reverts": ("revert",),
    "Documentation": ("docs", "doc"),
    "Internal": ("refactor", "test", "tests", "build", "ci", "chore", "style", "deps"),
}
BREAKING, OTHER, INTERNAL = "Breaking changes", "Other changes", "Internal"
SECTION_OF = {kind: title for title, kinds in SECTIONS.items() for kind in kinds}

COMMIT_LINE = re.compile(r"^commit ([0-9a-f]{7,64})(?: .*)?$")
ONE_LINE = re.compile(r"^([0-9a-f]{7,64}) (?:\([^()]*(?:HEAD|tag: |origin/)[^()]*\) )?(.+)$")
CONVENTIONAL = re.compile(r"^([A-Za-z]+)(?:\(([^()]+)\))?(!)?: +(.+)$")
BREAKING_NOTE = re.compile(r"^BREAKING[ -]CHANGE: *(.*)$")
FOOTER = re.compile(r"^(?:[A-Za-z][A-Za-z-]*(?:: | #))")
REVERT_SUBJECT = re.compile(r'^(?:Revert|Reapply) "(.+)"$')
REVERTED_HASH = re.compile(r"\b[Rr]everts? commit ([0-9a-f]{7,64})\b")
MERGE_SUBJECT = re.compile(r"^Merge (?:branch|branches|pull request|remote-tracking|tag|commit|[0-9a-f]{7,})\b")
AUTOSQUASH = re.compile(r"^(?:fixup|squash|amend)! ")
SUBJECT_REFERENCE = re.compile(r"\s*\((#\d+(?:, ?#\d+)*)\)\s*$")
FOOTER_REFERENCE = re.compile(r"^(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?|refs?|see)\b[^#]*(#\d.*)$", re.IGNORECASE)
VERSION = re.compile(r"^v?(\d+)\.(\d+)\.(\d+)$")


class InputError(Exception):
    """Something the caller can put right; shown as one line."""


@dataclass
class Commit:
    """One commit as the log shows it; `hash` is empty when only subjects were given."""

    hash: str
    subject: str
    body: list[str] = field(default_factory=list)
    is_merge: bool = False


@dataclass
class Entry:
    """One line of the notes; several commits with the same subject share it."""

    type: str
    scope: str
    text: str
    breaking: bool
    notes: list[str]
    references: list[str]
    hashes: list[str]


def parse_log(text: str) -> list[Commit]:
    """Read `git log` in its default, --oneline or subject-only form; the first line decides which."""
    lines = [line.rstrip("\r") for line in text.lstrip("\ufeff").split("\n")]
    first = next((line for line in lines if line.strip()), "")
    if COMMIT_LINE.match(first):
        return parse_full_log(lines)
    commits = []
    for line in lines:
        if line.strip():
            found = ONE_LINE.match(line.strip())
            commits.append(Commit(found[1], found[2].strip()) if found else Commit("", line.strip()))
    return commits


def parse_full_log(lines: list[str]) -> list[Commit]:
    """Messages are indented by four blanks, so a `commit ...` at the margin is always a new commit."""
    commits: list[Commit] = []
    in_header = False
    for line in lines:
        found = COMMIT_LINE.match(line)
        if found:
            commits.append(Commit(found[1], ""))
            in_header = True
        elif not commits:
            continue
        elif in_header:
            in_header = bool(line.strip())
            commits[-1].is_merge = commits[-1].is_merge or line.startswith("Merge: ")
        elif line.startswith("    ") or not line.strip():
            text = line[4:].rstrip()
            if commits[-1].subject:
                commits[-1].body.append(text)
            else:
                commits[-1].subject = text.strip()
    for commit in commits:
        commit.subject = commit.subject or "(no message)"
    return commits


def reverted_index(commit: Commit, commits: list[Commit], lookup: dict[str, list[int]]) -> int | None:
    """The position of the commit that this one takes back, if it lies in the same range and is the only candidate."""
    quoted = REVERT_SUBJECT.match(commit.subject)
    named = REVERTED_HASH.search(" ".join(commit.body))
    is_revert = quoted or commit.subject.lower().startswith(("revert:", "revert("))
    if not is_revert:
        return None
    if named:
        near = lookup.get(named[1][:7], [])
        same = [i for i in near if commits[i].hash.startswith(named[1]) or named[1].startswith(commits[i].hash)]
    else:
        same = lookup.get(f"subject {quoted[1]}", []) if quoted else []
    return same[0] if len(same) == 1 else None


def without_reverted(commits: list[Commit]) -> tuple[list[Commit], int]:
    """Drop each commit that was taken back within the range, together with its revert.

    A revert that was itself reverted has no effect, so the newest word counts; the order of the input does not.
    """
    lookup: dict[str, list[int]] = {}
    for index, commit in enumerate(commits):
        lookup.setdefault(f"subject {commit.subject}", []).append(index)
        if commit.hash:
            lookup.setdefault(commit.hash[:7], []).append(index)
    target = [reverted_index(commit, commits, lookup) for commit in commits]
    waiting = Counter(index for index in target if index is not None)
    queue = deque(index for index in range(len(commits)) if not waiting[index])
    undone: set[int] = set()
    while queue:
        index = queue.popleft()
        goal = target[index]
        if goal is None:
            continue
        if index not in undone:
            undone.add(goal)
        waiting[goal] -= 1
        if not waiting[goal]:
            queue.append(goal)
    kept = [commit for index, commit in enumerate(commits) if index not in undone and target[index] is None]
    return kept, len(commits) - len(kept)


def breaking_notes(body: list[str]) -> list[str]:
    """The text after each `BREAKING CHANGE:` footer, up to a blank line or the next footer."""
    notes: list[str] = []
    inside = False
    for line in body:
        found = BREAKING_NOTE.match(line)
        if found:
            notes.append(found[1].strip())
            inside = True
        elif inside and line.strip() and not FOOTER.match(line):
            notes[-1] = f"{notes[-1]} {line.strip()}".strip()
        else:
            inside = False
    return [note for note in notes if note]


def to_entry(commit: Commit) -> Entry:
    """Split a subject by the rules of conventional commits; anything else keeps the type ''."""
    text, references = commit.subject, []
    found = SUBJECT_REFERENCE.search(text)
    if found:
        text = text[: found.start()]
        references += re.findall(r"#\d+", found[1])
    for line in commit.body:
        footer = FOOTER_REFERENCE.match(line)
        if footer:
            references += re.findall(r"#\d+", footer[1])
    kind, scope, bang = "", "", False
    parts = CONVENTIONAL.match(text)
    if parts and parts[1].lower() in SECTION_OF:
        kind, scope, bang, text = parts[1].lower(), (parts[2] or "").strip(), bool(parts[3]), parts[4]
    elif REVERT_SUBJECT.match(text):
        kind = "revert"
    notes = breaking_notes(commit.body)
    unique = list(dict.fromkeys(references))
    return Entry(kind, scope, text.strip(), bang or bool(notes), notes, unique, [commit.hash] if commit.hash else [])


def group(commits: list[Commit]) -> tuple[dict[str, list[Entry]], dict[str, int]]:
    """Sort commits into sections; the second value counts what was left out, by reason."""
    work = [c for c in commits if not c.is_merge and not MERGE_SUBJECT.match(c.subject)]
    clean = [c for c in work if not AUTOSQUASH.match(c.subject)]
    kept, cancelled = without_reverted(clean)
    left_out = {
        "merges": len(commits) - len(work),
        "fixup commits": len(work) - len(clean),
        "cancelled by reverts": cancelled,
        "same subject again": 0,
    }
    sections: dict[str, list[Entry]] = {title: [] for title in (BREAKING, *SECTIONS, OTHER)}
    seen: dict[tuple[str, str, str], Entry] = {}
    for commit in kept:
        entry = to_entry(commit)
        key = (entry.type, entry.scope, entry.text)
        if key in seen:
            first = seen[key]
            first.hashes += entry.hashes
            first.references += [r for r in entry.references if r not in first.references]
            first.notes += [n for n in entry.notes if n not in first.notes]
            first.breaking = first.breaking or entry.breaking
            left_out["same subject again"] += 1
        else:
            seen[key] = entry
    for entry in seen.values():
        title = BREAKING if entry.breaking else SECTION_OF.get(entry.type, OTHER)
        sections[title].append(entry)
    return {title: entries for title, entries in sections.items() if entries}, left_out


def suggest_bump(sections: dict[str, list[Entry]]) -> str:
    if BREAKING in sections:
        return "major"
    if "Features" in sections or "Deprecations" in sections:
        return "minor"
    return "patch" if set(sections) - {INTERNAL} else "none"


def next_version(current: str, bump: str) -> str:
    """Apply a bump; before 1.0.0 a breaking change raises the minor number."""
    found = VERSION.match(current)
    if not found:
        raise InputError(f"--current: {current!r} is not a version such as 1.4.0")
    major, minor, patch = (int(part) for part in found.groups())
    if bump == "major" and major > 0:
        return f"{major + 1}.0.0"
    if bump in ("major", "minor"):
        return f"{major}.{minor + 1}.0"
    return f"{major}.{minor}.{patch + 1}" if bump == "patch" else f"{major}.{minor}.{patch}"


def escape_markdown(text: str) -> str:
    """Escape what Markdown or HTML would read as markup, outside code spans."""
    text = "".join(c if c.isprintable() else " " for c in text)
    parts = re.split(r"(`[^`]+`)", text)
    for index in range(0, len(parts), 2):
        part = re.sub(r"([\\*<>\[\]`])", r"\\\1", parts[index])
        parts[index] = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", part)
    return "".join(parts)


def origin(entry: Entry, url: str) -> str:
    """The references and short hashes at the end of a line, as links when a project address is given."""
    items = [f"[{ref}]({url}/issues/{ref[1:]})" if url else ref for ref in entry.references]
    items += [f"[{full[:7]}]({url}/commit/{full})" if url else full[:7] for full in entry.hashes]
    return f" ({', '.join(items)})" if items else ""


def to_markdown(sections: dict[str, list[Entry]], title: str, url: str, show_all: bool) -> str:
    lines = [f"## {escape_markdown(title)}", ""]
    for name, entries in sections.items():
        if name == INTERNAL and not show_all:
            continue
        lines += [f"### {name}", ""]
        for entry in entries:
            scope = f"**{escape_markdown(entry.scope)}:** " if entry.scope else ""
            lines.append(f"- {scope}{escape_markdown(entry.text)}{origin(entry, url)}")
            lines += [f"  - {escape_markdown(note)}" for note in entry.notes]
        lines.append("")
    return "\n".join(lines)


def read_input(name: str) -> str:
    if name == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise InputError("nothing to read: pipe `git log` into this script, or name a file")
        return sys.stdin.buffer.read().decode("utf-8", errors="replace")
    try:
        with open(name, "rb") as file:
            return file.read().decode("utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error


def build_parser() -> argparse.ArgumentParser:
    idea, examples = (__doc__ or "").split("\n\nExamples:\n")
    parser = argparse.ArgumentParser(
        description=idea.split("\n")[0],
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", default="-", help="output of git log; - or nothing reads standard input")
    parser.add_argument("--title", default="Unreleased", help="heading of the notes (default: Unreleased)")
    parser.add_argument("--current", metavar="X.Y.Z", help="the last released version, to suggest the next one")
    parser.add_argument("--url", default="", help="address of the project; makes links of hashes and issue numbers")
    parser.add_argument("--all", action="store_true", help="list internal changes too, instead of counting them")
    parser.add_argument("--json", action="store_true", help="print data instead of Markdown")
    return parser


def run(arguments: argparse.Namespace) -> int:
    url = arguments.url.rstrip("/")
    if url and not re.fullmatch(r"https?://[^\s()<>\[\]]+", url):
        raise InputError(f"--url: {arguments.url!r} is not an http or https address")
    if arguments.current:
        next_version(arguments.current, "none")
    commits = parse_log(read_input(arguments.file))
    if not commits:
        print("group_commits: no commits in the input; is the range empty?", file=sys.stderr)
        return 1
    sections, left_out = group(commits)
    bump = suggest_bump(sections)
    upcoming = next_version(arguments.current, bump) if arguments.current else None
    internal = len(sections.get(INTERNAL, []))
    if arguments.json:
        data: dict[str, Any] = {
            "title": arguments.title,
            "commits": len(commits),
            "bump": bump,
            "current": arguments.current,
            "next": upcoming,
            "left_out": left_out,
            "sections": [
                {"title": name, "entries": [vars(entry) for entry in entries]} for name, entries in sections.items()
            ],
        }
        print(json.dumps(data, indent=2, ensure_ascii=False))
        return 0
    print(to_markdown(sections, arguments.title, url, arguments.all), end="")
    reasons = [f"{reason} {count}" for reason, count in left_out.items() if count]
    if internal and not arguments.all:
        reasons.append(f"internal {internal} (--all lists them)")
    summary = f"{len(commits)} commits read; left out: {', '.join(reasons) or 'none'}; suggested bump: {bump}"
    print(summary + (f" ({arguments.current} -> {upcoming})" if upcoming else ""), file=sys.stderr)
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
        print(f"group_commits: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0


if __name__ == "__main__":
    sys.exit(main())
