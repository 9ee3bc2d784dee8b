"""Finds characters that people do not see: in a skill, they can hide instructions from its reader.

Some of them are part of ordinary text, and those are no finding: joiners in emoji and in Indic and Arabic words, marks
of direction in lines that have right-to-left letters, tags in the emoji of a flag, spaces without width in Thai, and
what keeps the backticks of an example from ending the code around it.
"""

import re
import unicodedata
from typing import Final, Literal, NamedTuple

Kind = Literal["hidden", "invisible"]
"""`hidden`: it reorders text or carries text that nobody sees. `invisible`: it is only not seen."""

_CANDIDATE: Final = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e01ef]"
)
_FLAG: Final = re.compile("\U0001f3f4[\U000e0020-\U000e007e]+\U000e007f")
_RIGHT_TO_LEFT: Final = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
UNSPACED: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af]")
"""Scripts without spaces between words, where a space without width says that a line may end."""

_DIRECTION: Final = "\u061c\u200e\u200f\u202a\u202b\u202c\u2066\u2067\u2068\u2069"
_REORDERING: Final = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


class HiddenCharacter(NamedTuple):
    """One character and its place in the text."""

    at: int
    kind: Kind
    char: str

    @property
    def removable(self) -> bool:
        """Whether the text means the same without it. A control character may be what is left of something else."""
        return self.kind == "hidden" or unicodedata.category(self.char) != "Cc"

    @property
    def shown(self) -> str:
        """Its number and, if it has one, its name."""
        name = unicodedata.name(self.char, "")
        return f"U+{ord(self.char):04X}{f' {name}' if name else ''}"


def hidden_characters(text: str) -> list[HiddenCharacter]:
    """Find the characters of a text that nobody sees and that ordinary text does not need."""
    if text.isascii() and text.isprintable():
        return []
    flags = {at for flag in _FLAG.finditer(text) for at in range(flag.start() + 1, flag.end())}
    found: list[HiddenCharacter] = []
    end, right_to_left = 0, False
    for match in _CANDIDATE.finditer(text):
        at, char = match.start(), match[0]
        if at in flags or (at == 0 and char == "\ufeff"):
            continue  # part of an emoji, or a byte order mark
        if at >= end:
            start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at) + 1 or len(text)
            right_to_left = _RIGHT_TO_LEFT.search(text, start, end) is not None
        kind = _kind(text, at, char, right_to_left)
        if kind is not None:
            found.append(HiddenCharacter(at, kind, char))
    return found


def _kind(text: str, at: int, char: str, right_to_left: bool) -> Kind | None:
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    code = ord(char)
    if 0xE0000 <= code <= 0xE007F:
        return "hidden"
    if _is_selector(char):
        # One selector chooses the look of the character before it. A second one can only carry data.
        wanted = before and not before.isspace() and not _is_selector(before)
        return None if wanted and (code < 0xE0000 or not before.isascii()) else "hidden"
    if char in _DIRECTION and right_to_left:
        return None
    if char in _REORDERING:
        return "hidden"
    if "`" in (before, after):
        return None
    if char in "\u200c\u200d":
        return None if _joins(before, after, char) else "invisible"
    if char == "\u200b":
        return None if UNSPACED.match(before) or UNSPACED.match(after) else "invisible"
    if char == "\u00ad":
        return None if before.isalpha() and after.isalpha() else "invisible"
    return "invisible"


def _is_selector(char: str) -> bool:
    return "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"


def _joins(before: str, after: str, char: str) -> bool:
    """Whether a joiner is between the parts of an emoji, or in a word of a script that has joiners."""
    if not before:
        return False
    if char == "\u200d" and after and _is_emoji(before) and _is_emoji(after):
        return True
    return unicodedata.category(before)[0] in "LM" and ord(before) >= 0x0590 and not _is_selector(before)


def _is_emoji(char: str) -> bool:
    return _is_selector(char) or unicodedata.category(char) in ("So", "Sk") or char in "\u2640\u2642\u2695"
