"""The growing text of an answer as HTML: blocks that stay as they are, and the block that still changes.

A block of Markdown is rendered once, when the next one begins. Only the last one is rendered again as it grows, so the
work for an answer does not depend on how many pieces it comes in. A block that is very long grows as plain text until
the answer is whole.
"""

from dataclasses import dataclass, field
from typing import Final

from metier.files.text import visible
from metier.surfaces.web.markdown import MARKDOWN_CHARACTERS, answer_html, last_block

TAIL_CHARACTERS: Final = 10_000
"""A block that grows beyond them is not rendered again and again."""


@dataclass(slots=True)
class GrowingAnswer:
    """One answer, as far as it has come."""

    text: str
    _done: int = 0
    """How much of the text is in blocks that stay."""
    _plain: int = field(default=-1)
    """How much of the text was sent once it grows as plain text."""

    def whole(self) -> dict[str, str]:
        """All blocks, for a page that has none of them."""
        self._done, self._plain = 0, -1
        grown = self.grown()
        return {"done": grown.get("done", ""), "tail": grown.get("tail", ""), "plain": grown.get("plain", "")}

    def grow(self, text: str) -> dict[str, str]:
        """Append text. `done` is to be added to the blocks, `tail` replaces the last one, `plain` is appended to it."""
        self.text += text
        return self.grown()

    def grown(self) -> dict[str, str]:
        done = ""
        if self._plain < 0 and self._done < MARKDOWN_CHARACTERS:
            rest = self.text[self._done : self._done + MARKDOWN_CHARACTERS]
            place = last_block(rest)
            if place:
                done = answer_html(rest[:place])
                self._done += place
        tail = self.text[self._done :]
        if self._plain < 0 and len(tail) <= TAIL_CHARACTERS:
            return {"done": done, "tail": answer_html(tail)}
        start = max(self._plain, self._done)
        fresh = self._plain < 0
        self._plain = len(self.text)
        plain = visible(self.text[start:], lines=True)
        return {"done": done, "tail": "", "plain": plain} if fresh else {"plain": plain}
