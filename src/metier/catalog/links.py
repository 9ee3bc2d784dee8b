"""Finds what a Markdown text refers to: links, images, and paths in code.

Only what can be a file of a skill counts. Addresses, anchors, globs and placeholders such as `<name>` are not files.
"""

import posixpath
import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote

FOLDERS: Final = ("scripts", "references", "assets")
"""The folders that the standard names. A path in code that starts with one of them means a file of the skill."""

_FENCE: Final = re.compile(r"[ >\t]*(?:[-*+][ \t]+|\d+[.)][ \t]+)?(`{3,}|~{3,})(.*)")
_CODE: Final = re.compile(r"``(.+?)``|`([^`\n]+)`")
_RUNNER: Final = re.compile(
    r"(?:^|[\s;&|`])(?:python3?|uv run|bash|sh|zsh|node|tsx|deno run|bun|ruby|perl|Rscript|pwsh)[ \t][^;&|]*$"
)
_LINK: Final = re.compile(
    r"\]\([ \t\n]{0,8}(?:<([^<>\n]{1,1024})>|([^\s()<>]{1,1024}(?:\([^\s()]{0,256}\)[^\s()<>]{0,256}){0,4}))"
    r"(?:[ \t\n]{1,8}[\"'(][^)]{0,512})?[ \t\n]{0,8}\)"
)
"""Every repeat in these patterns has a bound, so that no text takes longer than its size."""
_DEFINITION: Final = re.compile(
    r"^ {0,3}\[[^\]\n^]{1,256}\]:[ \t]{0,8}(?:<([^<>\n]{1,1024})>|(\S{1,1024}))", re.MULTILINE
)
_ATTRIBUTE: Final = re.compile(r"<(?:img|a)\b[^<>]{0,256}?\b(?:src|href)=[\"']([^\"'\n]{1,1024})[\"']", re.IGNORECASE)
_OWN_FOLDER: Final = re.compile(r"^(?:\$\{?CLAUDE_SKILL_DIR\}?|\$\{?SKILL_DIR\}?|\{baseDir\}|\{skill_dir\}|\.)/")
_PATH: Final = re.compile(r"(?:[\w@+.-]+/)+[\w@+.-]*\w\.[A-Za-z][A-Za-z0-9]{0,7}")
_NO_FILE: Final = re.compile(r"[<>{}*?|$\[\]\\^\"`…]|\.\.\.|^[#/~]|^[A-Za-z][A-Za-z0-9+.-]*:")
_WORD: Final = re.compile(r"[^\s`'\"(),;=:]+")
_EXAMPLE: Final = re.compile(
    r"(?:^|/)(?:path|your|my|some|example|foo|bar|x{2,}|n{2,})[-_/.]|(?:^|/)(?:path|url|link)$", re.IGNORECASE
)


class Link(NamedTuple):
    """Something that a text refers to: its target as a path, and where in the text it is.

    The kind is `link` for links and images, `run` for a script in a command, and `code` for another path in code.
    """

    target: str
    at: int
    kind: Literal["link", "run", "code"]


class Code(NamedTuple):
    """A piece of code in a text: a block between fences, or a span between backticks."""

    at: int
    text: str
    fenced: bool


def find_links(text: str) -> Iterator[Link]:
    """Yield what a text refers to. Links inside code are examples and do not count."""
    prose, code = split_code(text)
    for pattern, mark in ((_LINK, "]("), (_DEFINITION, "]:"), (_ATTRIBUTE, "=")):
        for match in pattern.finditer(prose) if mark in prose else ():
            number = next((n for n, group in enumerate(match.groups(), 1) if group), 0)
            target = _as_file(match[number]) if number else ""
            if target:
                yield Link(target, match.start(number), "link")
    for piece in code:
        for match in _WORD.finditer(piece.text) if "/" in piece.text else ():
            path = _OWN_FOLDER.sub("", match[0])
            if path.split("/")[0] in FOLDERS and _PATH.fullmatch(path) and not _EXAMPLE.search(path):
                start = max(piece.text.rfind("\n", 0, match.start()) + 1, match.start() - 200)
                before = piece.text[start : match.start()]
                runs = path.startswith("scripts/") and _RUNNER.search(before)
                yield Link(path, piece.at + match.start(), "run" if runs else "code")


def split_code(text: str) -> tuple[str, list[Code]]:
    """Return the text with its code and comments blanked out, and the pieces of code."""
    code: list[Code] = []
    lines: list[str] = []
    closing, start, at = "", 0, 0
    for line in _without_comments(text).splitlines(keepends=True):
        fence = _FENCE.match(line) if "```" in line or "~~~" in line else None
        if closing:
            if fence is not None and fence[1].startswith(closing) and not fence[2].strip():
                code.append(Code(start, text[start : at + len(line)], fenced=True))
                closing = ""
            line = _blanked(line)
        elif fence is not None and not (fence[1][0] == "`" and "`" in fence[2]):
            closing, start = fence[1], at
            line = _blanked(line)
        lines.append(line)
        at += len(line)
    if closing:
        code.append(Code(start, text[start:], fenced=True))
    prose = "".join(lines)
    spans = [Code(m.start(m.lastindex or 0), m[m.lastindex or 0], fenced=False) for m in _CODE.finditer(prose)]
    return _CODE.sub(_blank, prose), code + spans


def _without_comments(text: str) -> str:
    parts: list[str] = []
    end = 0
    while (start := text.find("<!--", end)) >= 0 and (close := text.find("-->", start)) >= 0:
        parts += text[end:start], _blanked(text[start : close + 3])
        end = close + 3
    return "".join((*parts, text[end:]))


def _blank(match: re.Match[str]) -> str:
    return _blanked(match[0])


def _blanked(text: str) -> str:
    return "\n".join(" " * len(line) for line in text.split("\n"))


def _as_file(target: str) -> str:
    """The path that a link leads to; empty if it does not lead to a file."""
    path = _OWN_FOLDER.sub("", unquote(target.strip())).split("#")[0].split("?")[0]
    if not path or _NO_FILE.search(path) or _EXAMPLE.search(path):
        return ""
    # `[text](url)` is a placeholder. A file has an extension, and a folder ends with a slash.
    name = posixpath.basename(path.rstrip("/"))
    return path if "." in name.strip(".") or path.endswith("/") else ""
