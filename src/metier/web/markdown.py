"""Turns text of a skill, a model or a script into inert HTML.

Markdown is parsed without raw HTML and sanitized after the parser, so a bug in one of the two is not enough for an
injection. Nothing is loaded from other sites: an image is shown as its description. Characters that a reader cannot see
(terminal escapes, direction overrides) are shown as escapes.
"""

import functools
from collections.abc import Callable, Sequence
from html import escape
from typing import Final

import nh3
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from metier.files.text import visible

MARKDOWN_CHARACTERS: Final = 100_000
"""Longer text is shown as it is: a hostile text of this length takes a second to format."""

_BLOCKS: Final = ("blockquote", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "ul")
_INLINE: Final = ("a", "br", "code", "del", "em", "s", "span", "strong")
_TABLES: Final = ("table", "tbody", "td", "th", "thead", "tr")
_TAGS: Final = frozenset((*_BLOCKS, *_INLINE, *_TABLES))
_ATTRIBUTES: Final = {"a": {"href"}, "ol": {"start"}, "code": {"class"}, "span": {"class"}}
_SCHEMES: Final = {"http", "https", "mailto"}
_HEADINGS: Final = {"h1": "h3", "h2": "h4", "h3": "h5", "h4": "h6", "h5": "h6", "h6": "h6"}
"""The text is part of a page whose own headings are h1 and h2."""


def to_html(text: str, link: Callable[[str], str | None] | None = None) -> str:
    """Markdown as HTML. `link` maps a relative address to one of a page; without it, relative links are removed."""
    shown = visible(text, lines=True)
    if len(shown) > MARKDOWN_CHARACTERS:
        return f'<pre class="plain">{escape(shown)}</pre>'
    return nh3.clean(
        _parser().render(shown),
        tags=set(_TAGS),
        attributes={tag: set(names) for tag, names in _ATTRIBUTES.items()},
        url_schemes=set(_SCHEMES),
        link_rel="noopener noreferrer nofollow",
        url_relative=link or "deny",
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


def _lower_headings(state: StateCore) -> None:
    for token in state.tokens:
        token.tag = _HEADINGS.get(token.tag, token.tag)


def _image(renderer: object, tokens: Sequence[Token], index: int, options: object, env: object) -> str:
    words = tokens[index].content or "no description"
    return f'<span class="image">[picture: {escape(words)}]</span>'
