"""Turns text of a skill, a model or a script into inert HTML.

Markdown is parsed without raw HTML and sanitized after the parser, so a bug in one of the two is not enough for an
injection. Nothing is loaded from other sites: an image is shown as its description. Characters that a reader cannot see
(terminal escapes, direction overrides) are shown as escapes. Formulas are shown as they are written.
"""

import functools
import re
from collections.abc import Callable, MutableMapping, Sequence
from html import escape
from typing import Any, Final

import nh3
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.texmath import texmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import find_lexer_class_by_name
from pygments.util import ClassNotFound

from metier.files.text import visible

MARKDOWN_CHARACTERS: Final = 100_000
"""What is behind them is shown as it is: a hostile text of this length takes a second to format."""
CODE_CHARACTERS: Final = 20_000
"""Longer code is shown without colours."""
PLAIN_CHARACTERS: Final = 20_000
"""Text that is not formatted is shown in blocks of this length, of which a browser lays out only those in view."""

_BLOCKS: Final = ("blockquote", "div", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "ul")
_INLINE: Final = ("a", "br", "code", "del", "em", "s", "span", "strong")
_TABLES: Final = ("table", "tbody", "td", "th", "thead", "tr")
_TAGS: Final = frozenset((*_BLOCKS, *_INLINE, *_TABLES))
_ATTRIBUTES: Final = {
    "a": {"href"},
    "ol": {"start"},
    "li": {"class"},
    "code": {"class"},
    "span": {"class"},
    "div": {"class", "tabindex", "role", "aria-label"},
}
_SCHEMES: Final = {"http", "https", "mailto"}
_HEADINGS: Final = {"h1": "h3", "h2": "h4", "h3": "h5", "h4": "h6", "h5": "h6", "h6": "h6"}
"""The text is part of a page whose own headings are h1 and h2."""
_COLOUR: Final = "hl-"
"""How the classes of coloured code begin."""
_CODE: Final = re.compile(r"<pre>(.*?)</pre>", re.DOTALL)
"""Code in sanitized HTML, in which no text has such an element."""
_COPIED: Final = (
    r'<div class="code"><button class="button bare copy" type="button" data-copy-code>Copy<span class="sr"> code</span>'
    r'</button><pre tabindex="0">\1</pre></div>'
)
_TABLE: Final = {"class": "scrolls", "tabindex": "0", "role": "region", "aria-label": "Table"}
_BOXES: Final = {"[ ] ": "\u2610 ", "[x] ": "\u2611 ", "[X] ": "\u2611 "}


def to_html(text: str, link: Callable[[str], str | None] | None = None) -> str:
    """Markdown as HTML. `link` maps a relative address to one of a page; without it, relative links are removed."""
    shown = visible(text, lines=True)
    formatted = len(shown)
    if formatted > MARKDOWN_CHARACTERS:
        formatted = max(0, last_block(shown[:MARKDOWN_CHARACTERS]))
    html = nh3.clean(
        _parser().render(shown[:formatted]),
        tags=set(_TAGS),
        attributes={tag: set(names) for tag, names in _ATTRIBUTES.items()},
        url_schemes=set(_SCHEMES),
        link_rel="noopener noreferrer nofollow",
        url_relative=link or "deny",
        attribute_filter=_attribute,
    )
    return html + plain(shown[formatted:])


def answer_html(text: str) -> str:
    """The answer of a model: its links open beside the chat, and its code can be copied."""
    html = to_html(text).replace("<a href=", '<a target="_blank" href=')
    return _CODE.sub(_COPIED, html)


def plain(text: str) -> str:
    """Text as it is, in blocks."""
    starts = range(0, len(text), PLAIN_CHARACTERS)
    return "".join(f'<pre class="plain">{escape(text[start : start + PLAIN_CHARACTERS])}</pre>' for start in starts)


def last_block(text: str) -> int:
    """Where the last block of a Markdown text begins. What is before it stays as it is when the text grows."""
    lines = [token.map[0] for token in _parser().parse(text) if token.level == 0 and token.map and token.nesting >= 0]
    place = 0
    for _ in range(lines[-1] if lines else 0):
        place = text.index("\n", place) + 1
    return place


def _attribute(tag: str, name: str, value: str) -> str | None:
    if tag == "div":
        return value if _TABLE.get(name) == value else None
    if name == "class":
        known = {
            "span": value in ("image", "math")
            or (value.startswith(_COLOUR) and value.isascii() and value.isprintable()),
            "code": value == "math" or (value.startswith("language-") and value.isascii()),
            "li": value == "task",
        }
        return value if known.get(tag) else None
    return value


@functools.cache
def _parser() -> MarkdownIt:
    given = {"html": False, "maxNesting": 20, "linkify": True, "highlight": _coloured}
    made = MarkdownIt("commonmark", given).enable(["table", "strikethrough", "linkify"])
    made.use(dollarmath_plugin, allow_space=False, allow_digits=False, double_inline=True)
    made.use(texmath_plugin, delimiters="brackets")
    made.core.ruler.push("headings", _lower_headings)
    made.core.ruler.push("tasks", _show_tasks)
    made.add_render_rule("image", _image)
    made.add_render_rule("table_open", _open_table)
    made.add_render_rule("table_close", _close_table)
    for kind in ("math_inline", "math_inline_double", "math_block", "math_block_label", "math_block_eqno"):
        made.add_render_rule(kind, _math)
    return made


def _coloured(code: str, language: str, attributes: str) -> str:
    """Code with its words in elements that have a class; the empty text stands for code as it is."""
    if not language or len(code) > CODE_CHARACTERS:
        return ""
    try:
        lexer = find_lexer_class_by_name(language)()
    except ClassNotFound:
        return ""
    return highlight(code, lexer, HtmlFormatter(nowrap=True, classprefix=_COLOUR))


def _lower_headings(state: StateCore) -> None:
    for token in state.tokens:
        token.tag = _HEADINGS.get(token.tag, token.tag)


def _show_tasks(state: StateCore) -> None:
    """Show the boxes of a list of tasks."""
    for item, _, inline in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        if item.type == "list_item_open" and inline.type == "inline" and inline.children:
            text = inline.children[0]
            box = _BOXES.get(text.content[:4])
            if text.type == "text" and box:
                text.content = box + text.content[4:]
                item.attrSet("class", "task")


def _image(renderer: object, tokens: Sequence[Token], index: int, options: object, env: object) -> str:
    words = tokens[index].content or "no description"
    return f'<span class="image">[picture: {escape(words)}]</span>'


def _math(renderer: object, tokens: Sequence[Token], index: int, options: object, env: MutableMapping[str, Any]) -> str:
    token = tokens[index]
    block = f'<pre><code class="math">{escape(token.content.strip())}</code></pre>'
    return block if token.block else f'<code class="math">{escape(token.content)}</code>'


def _open_table(renderer: object, tokens: Sequence[Token], index: int, options: object, env: object) -> str:
    given = " ".join(f'{name}="{value}"' for name, value in _TABLE.items())
    return f"<div {given}><table>"


def _close_table(renderer: object, tokens: Sequence[Token], index: int, options: object, env: object) -> str:
    return "</table></div>"
