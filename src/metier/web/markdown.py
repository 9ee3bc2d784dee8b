"""Text that a skill, a model or a script wrote becomes HTML that can do nothing but be read.

Markdown is parsed without raw HTML and cleaned again behind the parser, so that a mistake in one of the two is no hole.
Nothing is loaded from elsewhere: an image is shown as its description. What a reader could not see (terminal escapes,
direction overrides) is shown as an escape.
"""

import functools
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Final

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token

from metier.files.text import visible

MARKDOWN_CHARACTERS: Final = 100_000
"""Longer text is shown as it stands: a hostile one of this length takes a second to format."""

_TAGS: Final = frozenset(
    (
        "a", "blockquote", "br", "code", "del", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s", "span",
        "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
    )
)  # fmt: skip
_ATTRIBUTES: Final = {"a": {"href"}, "ol": {"start"}, "code": {"class"}, "span": {"class"}}
_SCHEMES: Final = {"http", "https", "mailto"}
_HEADINGS: Final = {"h1": "h3", "h2": "h4", "h3": "h5", "h4": "h6", "h5": "h6", "h6": "h6"}
"""A text is a part of a page whose own headings are h1 and h2."""


def to_html(text: str, link: Callable[[str], str | None] | None = None) -> str:
    """Markdown as HTML. `link` turns a relative address into one of a page, or `None`; without it they lead nowhere."""
    shown = visible(text, lines=True)
    if len(shown) > MARKDOWN_CHARACTERS:
        return f'<pre class="plain">{escape(shown)}</pre>'
    relative: Any = link if link is not None else "deny"
    return nh3.clean(
        _parser().render(shown),
        tags=set(_TAGS),
        attributes={tag: set(names) for tag, names in _ATTRIBUTES.items()},
        url_schemes=set(_SCHEMES),
        link_rel="noopener noreferrer nofollow",
        url_relative=relative,
        attribute_filter=_attribute,
    )


def _attribute(tag: str, name: str, value: str) -> str | None:
    if name == "class":
        known = value == "image" if tag == "span" else value.startswith("language-") and value.isascii()
        return value if known else None
    return value


@functools.cache
def _parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "maxNesting": 20}).enable(["table", "strikethrough"])
    made.core.ruler.push("headings", _lower_headings)
    made.add_render_rule("image", _image)
    return made


def _lower_headings(state: Any) -> None:
    for token in state.tokens:
        token.tag = _HEADINGS.get(token.tag, token.tag)


def _image(renderer: Any, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    words = tokens[index].content or "no description"
    return f'<span class="image">[picture: {escape(words)}]</span>'
