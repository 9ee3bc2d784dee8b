"""Finds the commands of a shell script by reading its text. Nothing is run or expanded.

It knows words, quotes, substitutions, here-documents, the keywords that a command follows, and `case`. A command whose
name is only known at run time is not found.
"""

import re
from collections.abc import Iterator
from typing import Final

_BUILTINS: Final = frozenset(
    (  # noqa: SIM905 - a list would have a line for each
        ". : [ [[ ]] alias bg bind break builtin caller cd command compgen complete continue declare dirs disown echo "
        "enable eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd "
        "printf pushd pwd read readarray readonly return set shift shopt source suspend test times trap true type "
        "typeset ulimit umask unalias unset wait coproc"
    ).split()
)
_BEFORE_COMMAND: Final = ("if", "then", "elif", "else", "do", "while", "until", "!", "{", "time")
_CLOSING: Final = ("fi", "done", "esac", "}", "in", "select")
_PREFIXES: Final = ("sudo", "env", "exec", "command", "nohup", "builtin", "xargs", "nice", "timeout")
"""Programs and commands whose first argument without a dash is a command, too."""
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_ABSOLUTE: Final = re.compile(r"/(?:usr|bin|sbin|opt)(?:/[A-Za-z0-9_.+-]+)+")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_FUNCTION: Final = re.compile(r"(?:^|[\s;&|])(?:function\s+([\w.:-]+)|([\w.:-]+)\s*\(\s*\))", re.MULTILINE)
_OPERATOR: Final = re.compile(r";;|&&|\|\||\|&|;&|[;&|]")
_REDIRECTION: Final = re.compile(r"<<<|<<-?|[<>]\(|>>|[<>]&|>\||<>|[<>]")
_BLANKS: Final = re.compile(r"[ \t]*")
_VARIABLE: Final = re.compile(r"\$[\w@*#?]*")
_QUOTED: Final = re.compile(r"[^\"\\$`]+")


def called(text: str) -> tuple[str, ...]:
    """The commands that a script calls and that are neither part of the shell nor its own functions, in order."""
    own = {name for pair in _FUNCTION.findall(text) for name in pair if name}
    found = dict.fromkeys(_Reader(text.replace("\\\n", " ")).commands())
    return tuple(name for name in found if name not in own and name not in _BUILTINS)


class _Reader:
    """Reads commands from a text, also those in substitutions inside of it."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._found: list[str] = []
        self._documents: list[str] = []
        """The ends of here-documents that begin on the next line."""

    def commands(self) -> Iterator[str]:
        while self._at < len(self._text):
            self._list("")
            self._at += 1  # a closing bracket that nothing opened
        yield from self._found

    def _peek(self, many: int = 1) -> str:
        return self._text[self._at : self._at + many]

    def _take(self, pattern: re.Pattern[str]) -> str:
        """What a pattern matches here, if anything. It is read."""
        found = pattern.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return found[0] if found else ""

    def _list(self, end: str) -> None:
        """Commands up to a closing character."""
        expects, prefixed, skips, cases = True, False, False, 0
        pattern = False
        while self._at < len(self._text):
            char = self._peek()
            if char == "\n":
                self._at += 1
                self._skip_documents()
                expects, prefixed, skips = True, False, False
            elif char in " \t\r" or (char == "|" and pattern):
                self._at += 1
            elif char == "#":
                self._at = self._line_end()
            elif char == ")" and pattern:
                self._at += 1
                expects, pattern = True, False
            elif char == ")" or (end and char == end):
                return
            elif char in ";&|":
                pattern = self._take(_OPERATOR) in (";;", ";&") and cases > 0
                expects, prefixed, skips = not pattern, False, False
            elif char == "(":
                if self._peek(2) == "((":
                    self._skip_to("))")
                    expects = False
                elif pattern:
                    self._at += 1
                else:
                    start = self._at
                    self._inside(1, ")")
                    expects = not self._text[start + 1 : self._at - 1].strip()  # the body of a function follows
            elif char in "<>":
                self._redirect()
            else:
                word = self._word(end)
                if pattern and word != "esac":
                    continue
                if word == "esac":
                    cases, pattern, expects = max(0, cases - 1), False, False
                elif word == "in" and cases and not expects:
                    pattern = skips = True
                elif skips or not expects:
                    continue
                elif word == "case":
                    cases, expects = cases + 1, False
                elif word in ("for", "select", "function"):
                    skips = True
                elif word == "[[":
                    self._skip_to("]]")
                    expects = False
                elif word in _BEFORE_COMMAND:
                    continue
                elif word in _CLOSING:
                    expects = False
                elif _ASSIGNMENT.match(word) or (prefixed and re.match(r"-|\d+[smhd]?$", word)):
                    if prefixed and word in ("-v", "-V"):  # `command -v` only looks for a program
                        expects = False
                    elif word.endswith("=") and self._peek() == "(":  # a list
                        self._skip_to(")")
                else:
                    self._note(word)
                    prefixed = word in _PREFIXES
                    expects = prefixed

    def _note(self, word: str) -> None:
        if (_NAME.fullmatch(word) and not word.isdigit()) or _ABSOLUTE.fullmatch(word):
            self._found.append(word)

    def _inside(self, opening: int, end: str) -> None:
        """Read the commands of a substitution or a group."""
        self._at += opening
        self._list(end)
        self._at += 1

    def _word(self, end: str) -> str:
        """One word. What is substituted stands as `$` in it."""
        parts: list[str] = []
        while self._at < len(self._text):
            char = self._peek()
            if char in " \t\r\n;&|()<>" or (end == "`" and char == "`"):
                break
            parts.append(self._piece())
        return "".join(parts)

    def _piece(self) -> str:
        char = self._peek()
        if char == "\\":
            self._at += 2
            return self._text[self._at - 1 : self._at]
        if char == "'":
            start = self._at + 1
            self._at = self._find("'", start) + 1
            return self._text[start : self._at - 1]
        if char == '"':
            return self._quoted()
        if char == "$":
            return self._substituted()
        if char == "`":
            self._inside(1, "`")
            return "$"
        self._at += 1
        return char

    def _quoted(self) -> str:
        self._at += 1
        parts: list[str] = []
        while self._peek() not in ("", '"'):
            parts.append(self._take(_QUOTED) or self._piece())
        self._at += 1
        return "".join(parts)

    def _substituted(self) -> str:
        if self._peek(3) == "$((":
            self._skip_to("))")
        elif self._peek(2) == "$(":
            self._inside(2, ")")
        elif self._peek(2) == "${":
            self._at = self._find("}", self._at) + 1
        elif self._peek(2) == "$'":
            self._at += 1
            self._piece()
        else:
            self._take(_VARIABLE)
        return "$"

    def _redirect(self) -> None:
        operator = self._take(_REDIRECTION)
        if operator.endswith("("):
            self._inside(0, ")")
            return
        self._take(_BLANKS)
        word = self._word("")  # a file, or where the here-document ends
        if word and operator in ("<<", "<<-"):
            self._documents.append(word)

    def _skip_documents(self) -> None:
        for end in self._documents:
            while self._at < len(self._text):
                line_end = self._line_end()
                line = self._text[self._at : line_end]
                self._at = line_end + 1
                if line.strip() == end:
                    break
        self._documents.clear()

    def _skip_to(self, end: str) -> None:
        self._at = self._find(end, self._at) + len(end)

    def _line_end(self) -> int:
        return self._find("\n", self._at)

    def _find(self, what: str, start: int) -> int:
        found = self._text.find(what, start)
        return found if found >= 0 else len(self._text)
