#!/usr/bin/env python3
"""Check HTML files for barriers that can be seen in the source.

The file becomes a small tree, and each check walks over the tree and yields findings; a check is one function with
one code or two. The checks look for what is missing or contradictory, never for taste, and a finding always has a
place, a WCAG criterion and a hint. Nothing is fetched, nothing is executed, style sheets are not read.

Examples:
  check_html.py index.html about.html
  check_html.py --fragment --ignore contrast - < part.html
"""

from __future__ import annotations

import argparse
import colorsys
import io
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

CODES = {  # code -> (severity, WCAG criterion, meaning)
    "html-lang": ("error", "3.1.1", "the page does not say its language"),
    "title": ("error", "2.4.2", "the page has no title"),
    "viewport-zoom": ("error", "1.4.4", "zooming is switched off"),
    "meta-refresh": ("error", "2.2.1", "the page reloads or moves on by itself"),
    "img-alt": ("error", "1.1.1", "a picture has no alternative text"),
    "img-alt-text": ("warning", "1.1.1", "an alternative text is a file name or a filler"),
    "svg-name": ("warning", "1.1.1", "a graphic with a role has no name"),
    "field-label": ("error", "3.3.2", "a form field has no label"),
    "label-target": ("error", "1.3.1", "a label points to nothing"),
    "button-name": ("error", "4.1.2", "a button has no name"),
    "link-name": ("error", "2.4.4", "a link has no text"),
    "link-text": ("warning", "2.4.4", "a link's text says nothing by itself"),
    "heading-order": ("warning", "1.3.1", "a heading level is skipped"),
    "heading-empty": ("error", "2.4.6", "a heading has no text"),
    "heading-first": ("warning", "2.4.6", "the page has no heading of level 1"),
    "duplicate-id": ("warning", "4.1.2", "an id is used twice"),
    "aria-reference": ("error", "1.3.1", "an aria attribute points to an id that does not exist"),
    "aria-hidden-focus": ("error", "4.1.2", "something hidden from screen readers can be focused"),
    "role-unknown": ("error", "4.1.2", "a role does not exist"),
    "tabindex": ("warning", "2.4.3", "a positive tabindex changes the order of focus"),
    "click-keyboard": ("error", "2.1.1", "an element reacts to clicks, but not to the keyboard"),
    "frame-title": ("error", "4.1.2", "a frame has no title"),
    "table-headers": ("warning", "1.3.1", "a table has no header cells"),
    "media-captions": ("warning", "1.2.2", "a video has no captions"),
    "media-autoplay": ("warning", "1.4.2", "something plays by itself"),
    "landmark-main": ("info", "1.3.1", "the page has no main landmark"),
    "list-structure": ("warning", "1.3.1", "a list item stands outside a list"),
    "contrast": ("error", "1.4.3", "inline colours have too little contrast"),
    "contrast-assumed": ("warning", "1.4.3", "the same, with black or white assumed for the other colour"),
}
SEVERITIES = ("error", "warning", "info")


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VOID = words("area base br col embed hr img input link meta param source track wbr")
CLOSED_BY = {  # an open element of the first kind ends when one of the others begins
    "li": {"li"},
    "dt": {"dt", "dd"},
    "dd": {"dt", "dd"},
    "tr": {"tr", "tbody", "tfoot"},
    "td": {"td", "th", "tr", "tbody", "tfoot"},
    "th": {"td", "th", "tr", "tbody", "tfoot"},
    "thead": {"tbody", "tfoot"},
    "tbody": {"tbody", "tfoot"},
    "option": {"option", "optgroup"},
    "optgroup": {"optgroup"},
    "head": {"body"},
    "p": words(
        "address article aside blockquote details div dl fieldset figure footer form h1 h2 h3 h4 h5 h6 header hr "
        "main nav ol p pre section table ul"
    ),
}
INLINE = words("a abbr b bdi bdo cite code em i kbd mark q s samp small span strong sub sup time u var")
BARRIER = words("ul ol dl table select button object svg template")
CAPTIONS = ("captions", "subtitles")
MAX_DEPTH = 512  # as in browsers: deeper elements become siblings, which keeps the checks fast
FILLERS = words("image picture photo img graphic icon logo spacer untitled bild foto")
FILE_NAME = re.compile(r"[\w%-]+\.(?:jpe?g|png|gif|svg|webp|avif|bmp)", re.IGNORECASE)
VAGUE = words("here click more this link details continue hier mehr weiterlesen") | {
    "click here", "read more", "learn more", "this link", "find out more", "hier klicken",
}  # fmt: skip
ROLES = words(
    "alert alertdialog application article banner blockquote button caption cell checkbox code columnheader combobox "
    "complementary contentinfo definition deletion dialog directory document emphasis feed figure form generic grid "
    "gridcell group heading img image insertion link list listbox listitem log main mark marquee math menu menubar "
    "menuitem menuitemcheckbox menuitemradio meter navigation none note option paragraph presentation progressbar "
    "radio radiogroup region row rowgroup rowheader scrollbar search searchbox separator slider spinbutton status "
    "strong subscript suggestion superscript switch tab table tablist tabpanel term text textbox time timer toolbar "
    "tooltip tree treegrid treeitem"
)
COLOURS = {
    "black": "000000", "silver": "c0c0c0", "gray": "808080", "grey": "808080", "white": "ffffff", "maroon": "800000",
    "red": "ff0000", "purple": "800080", "fuchsia": "ff00ff", "magenta": "ff00ff", "green": "008000", "lime": "00ff00",
    "olive": "808000", "yellow": "ffff00", "navy": "000080", "blue": "0000ff", "teal": "008080", "aqua": "00ffff",
    "cyan": "00ffff", "orange": "ffa500", "pink": "ffc0cb", "gold": "ffd700", "brown": "a52a2a", "tomato": "ff6347",
    "crimson": "dc143c", "darkred": "8b0000", "darkgreen": "006400", "darkblue": "00008b", "darkgray": "a9a9a9",
    "darkgrey": "a9a9a9", "lightgray": "d3d3d3", "lightgrey": "d3d3d3", "dimgray": "696969", "dimgrey": "696969",
    "gainsboro": "dcdcdc", "whitesmoke": "f5f5f5", "lightblue": "add8e6", "lightgreen": "90ee90", "skyblue": "87ceeb",
    "steelblue": "4682b4", "royalblue": "4169e1", "indigo": "4b0082", "violet": "ee82ee", "coral": "ff7f50",
    "salmon": "fa8072", "khaki": "f0e68c", "beige": "f5f5dc", "ivory": "fffff0", "rebeccapurple": "663399",
}  # fmt: skip
TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|<%.*?%>|\$\{.*?\}", re.DOTALL)

Colour = tuple[float, float, float]


class InputError(Exception):
    """Something the caller can put right; shown as one line."""


@dataclass(frozen=True)
class Finding:
    """One barrier and its place."""

    line: int
    column: int
    code: str
    message: str


@dataclass(eq=False)
class Node:
    """An element; texts and children are kept together in `content`, in the order of the source."""

    tag: str
    attrs: dict[str, str]
    line: int
    column: int
    parent: Node | None = None
    depth: int = 0
    content: list[Node | str] = field(default_factory=list)
    hidden: bool = False
    aria_hidden: bool = False
    colour: Colour | None = None
    background: Colour | None = None
    unknown_colour: bool = False
    unknown_background: bool = False
    large: bool = False

    def walk(self) -> Iterator[Node]:
        """This element and all below it, in the order of the source; without recursion, for deep files."""
        stack: list[Node] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(child for child in reversed(node.content) if isinstance(child, Node))

    def ancestors(self) -> Iterator[Node]:
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def text(self) -> str:
        """What a screen reader would say for the content: texts, alternative texts and labels, nothing hidden."""
        parts: list[str] = []
        stack: list[Node | str] = list(reversed(self.content))
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                parts.append(item)
            elif item.hidden or item.aria_hidden or item.tag in ("script", "style", "template"):
                continue
            elif item.attrs.get("aria-label", "").strip():
                parts.append(f" {item.attrs['aria-label']} ")
            elif item.tag in ("img", "area"):
                parts.append(f" {item.attrs.get('alt', '')} ")
            else:
                stack.extend(reversed(item.content))
        return " ".join("".join(parts).split())


class TreeBuilder(HTMLParser):
    """Turns source text into a tree, closing what HTML lets authors leave open."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("#document", {}, 1, 1)
        self.current = self.root

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.close_implied(tag)
        line, column = self.getpos()
        values: dict[str, str] = {}
        for name, value in attrs:
            values.setdefault(name, value or "")
        node = Node(tag, values, line, column + 1, self.current, self.current.depth + 1)
        inherit(node, self.current)
        self.current.content.append(node)
        if tag not in VOID and node.depth < MAX_DEPTH:
            self.current = node

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        in_svg = self.current.tag == tag and any(node.tag in ("svg", "math") for node in self.current.ancestors())
        if self.current.tag == tag and (in_svg or tag in ("svg", "math")):
            self.current = self.current.parent or self.root

    def handle_endtag(self, tag: str) -> None:
        node: Node | None = self.current
        while node is not None and node.tag != tag:
            node = node.parent
        if node is not None and node.parent is not None:
            self.current = node.parent

    def handle_data(self, data: str) -> None:
        self.current.content.append(data)

    def close_implied(self, tag: str) -> None:
        node = self.current
        while node.parent is not None:
            if tag in CLOSED_BY.get(node.tag, ()):
                self.current = node.parent
                return self.close_implied(tag) if self.current.tag in CLOSED_BY else None
            if node.tag in BARRIER or (node.tag not in CLOSED_BY and node.tag not in INLINE):
                return None
            node = node.parent
        return None


def inherit(node: Node, parent: Node) -> None:
    """Work out what an element takes over from the one around it: being hidden, colours, size of text."""
    style = parse_style(node.attrs.get("style", ""))
    node.hidden = parent.hidden or "hidden" in node.attrs or style.get("display") == "none"
    node.hidden = node.hidden or style.get("visibility") == "hidden"
    node.aria_hidden = parent.aria_hidden or node.attrs.get("aria-hidden", "").lower() == "true"
    node.colour, node.background = parent.colour, parent.background
    node.unknown_colour, node.unknown_background = parent.unknown_colour, parent.unknown_background
    back = style.get("background-color") or style.get("background")
    if back:
        node.background = parse_colour(back, node.background or (255.0, 255.0, 255.0))
        node.unknown_background = node.background is None
    if style.get("color"):
        node.colour = parse_colour(style["color"], node.background or (255.0, 255.0, 255.0))
        node.unknown_colour = node.colour is None
    heading = re.fullmatch(r"h[1-6]", node.tag) is not None
    node.large = node.tag in ("h1", "h2", "h3") or (parent.large and not heading)
    size = re.fullmatch(r"([\d.]{1,8})(px|pt|rem|em)", style.get("font-size", ""))
    if size and size[1].count(".") <= 1 and size[1] != ".":
        pixels = float(size[1]) * {"px": 1.0, "pt": 4 / 3, "rem": 16.0, "em": 16.0}[size[2]]
        weight = style.get("font-weight", "")
        bold_by_tag = heading or node.tag in ("b", "strong")
        bold = weight in ("bold", "bolder", "700", "800", "900") if weight else bold_by_tag
        node.large = pixels >= 24 or (bold and pixels >= 18.66)


def parse_style(text: str) -> dict[str, str]:
    found = {}
    for declaration in text.split(";"):
        name, _, value = declaration.partition(":")
        value = value.replace("!important", "").strip().lower()
        if value:
            found[name.strip().lower()] = value
    return found


def parse_colour(text: str, behind: Colour) -> Colour | None:
    """A CSS colour over what lies behind it; None where it cannot be known, such as var() or a picture."""
    text = COLOURS.get(text, text).strip()
    found = re.fullmatch(r"#?([0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})", text)
    if found:
        digits = found[1] if len(found[1]) > 4 else "".join(c * 2 for c in found[1])
        red, green, blue, *rest = (float(int(digits[i : i + 2], 16)) for i in range(0, len(digits), 2))
        return blend((red, green, blue), rest[0] / 255 if rest else 1.0, behind)
    if text == "transparent":
        return behind
    found = re.fullmatch(r"(rgb|hsl)a?\(([^()]{1,80})\)", text)
    if not found:
        return None
    parts = [part for part in re.split(r"[\s,/]+", found[2].strip()) if part]
    if len(parts) not in (3, 4):
        return None
    try:
        alpha = number(parts[3], 1.0) if len(parts) == 4 else 1.0
        if found[1] == "rgb":
            red, green, blue = (number(part, 255.0) for part in parts[:3])
        else:
            hue = float(parts[0].removesuffix("deg")) % 360 / 360
            red, green, blue = (255 * v for v in colorsys.hls_to_rgb(hue, number(parts[2], 1), number(parts[1], 1)))
    except ValueError:
        return None
    return blend((red, green, blue), alpha, behind)


def number(text: str, full: float) -> float:
    value = float(text[:-1]) / 100 * full if text.endswith("%") else float(text)
    return min(max(value, 0.0), full)


def blend(front: tuple[float, float, float], alpha: float, behind: Colour) -> Colour:
    red, green, blue = (f * alpha + b * (1 - alpha) for f, b in zip(front, behind, strict=True))
    return red, green, blue


def luminance(colour: Colour) -> float:
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast_ratio(one: Colour, other: Colour) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def hex_colour(colour: Colour) -> str:
    return "#" + "".join(f"{round(c):02x}" for c in colour)


# --- the checks ---------------------------------------------------------------------------------------------------


class Page:
    """The tree of one file with what several checks need: all elements, ids, and labels."""

    def __init__(self, source: str, fragment: bool) -> None:
        builder = TreeBuilder()
        end = source.rfind(">") + 1  # what follows holds no whole tag, and the parser would look at it again and again
        builder.feed(source[:end] + source[end:].replace("<", "&lt;"))
        builder.close()
        self.nodes = list(builder.root.walk())[1:]
        tags = {node.tag for node in self.nodes}
        self.fragment = fragment or not tags & {"html", "head", "body"}
        self.shown = [node for node in self.nodes if not node.hidden]
        self.ids: dict[str, Node] = {}
        for node in self.nodes:
            if node.attrs.get("id"):
                self.ids.setdefault(node.attrs["id"], node)
        self.labels: dict[str, list[Node]] = {}
        for node in self.nodes:
            if node.tag == "label" and node.attrs.get("for"):
                self.labels.setdefault(node.attrs["for"], []).append(node)

    def aria_name(self, node: Node) -> str:
        """The name given by aria-labelledby or aria-label."""
        named = [self.ids[i] for i in node.attrs.get("aria-labelledby", "").split() if i in self.ids]
        text = " ".join(other.text() or other.attrs.get("aria-label", "") for other in named).strip()
        return text or node.attrs.get("aria-label", "").strip()

    def name(self, node: Node) -> str:
        """The accessible name of something that takes it from its content."""
        return self.aria_name(node) or node.text() or node.attrs.get("title", "").strip()


def find(node: Node, code: str, detail: str) -> Finding:
    return Finding(node.line, node.column, code, detail)


def check_document(page: Page) -> Iterator[Finding]:
    if page.fragment:
        return
    top = next((node for node in page.nodes if node.tag == "html"), None)
    language = top.attrs.get("lang", "").strip() if top else ""
    if not re.fullmatch(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8})*", language) and not TEMPLATE.fullmatch(language):
        detail = f"lang={language!r} is no language tag" if language else "<html> has no lang attribute"
        yield Finding(
            top.line if top else 1, top.column if top else 1, "html-lang", f'{detail}; write <html lang="en">'
        )
    title = next((n for n in page.nodes if n.tag == "title" and not any(a.tag == "svg" for a in n.ancestors())), None)
    if title is None or not title.text():
        yield Finding(title.line if title else 1, title.column if title else 1, "title", "no <title> with text")
    if not any(node.tag == "main" or node.attrs.get("role") == "main" for node in page.nodes):
        yield Finding(1, 1, "landmark-main", "no <main>; put the page's own content into one")


def check_meta(page: Page) -> Iterator[Finding]:
    for node in page.nodes:
        if node.tag != "meta":
            continue
        content = node.attrs.get("content", "").lower()
        if node.attrs.get("name", "").lower() == "viewport":
            scale = re.search(r"maximum-scale\s*=\s*(\d{1,6}(?:\.\d{1,6})?)", content)
            if re.search(r"user-scalable\s*=\s*(?:no|0)\b", content) or (scale and float(scale[1]) < 2):
                yield find(node, "viewport-zoom", "remove user-scalable and maximum-scale")
        if node.attrs.get("http-equiv", "").lower() == "refresh" and not re.match(r"\s*0\s*(?:;|$)", content):
            yield find(node, "meta-refresh", "let the reader decide when to go on")


def check_pictures(page: Page) -> Iterator[Finding]:
    for node in page.shown:
        if node.aria_hidden or node.attrs.get("role") in ("presentation", "none"):
            continue
        is_picture = node.tag == "img" or (node.tag == "input" and node.attrs.get("type", "").lower() == "image")
        if is_picture or (node.tag == "area" and "href" in node.attrs):
            alt = node.attrs.get("alt")
            if alt is None and not page.aria_name(node):
                yield find(node, "img-alt", f'<{node.tag}> has no alt; describe it, or alt="" if it is decoration')
            elif node.tag != "img" and not (alt or "").strip() and not page.aria_name(node):
                yield find(node, "img-alt", f"<{node.tag}> acts as a control, so its alt must say what it does")
            elif alt and (FILE_NAME.fullmatch(alt.strip()) or alt.strip().lower() in FILLERS):
                yield find(node, "img-alt-text", f"alt={alt.strip()!r} does not say what the picture shows")
        if node.tag == "svg" and node.attrs.get("role") in ("img", "image"):
            titled = any(isinstance(child, Node) and child.tag == "title" and child.text() for child in node.content)
            if not titled and not page.aria_name(node):
                yield find(node, "svg-name", "add a <title> as first child, or aria-label")


def check_fields(page: Page) -> Iterator[Finding]:
    unlabelled = ("hidden", "submit", "button", "reset", "image")
    for node in page.shown:
        goal = node.attrs.get("for", "") if node.tag == "label" else ""
        if goal and goal not in page.ids and not TEMPLATE.search(goal):
            yield find(node, "label-target", f"for={goal!r} matches no id")
        if node.tag not in ("input", "select", "textarea") or node.aria_hidden:
            continue
        if node.tag == "input" and node.attrs.get("type", "text").lower() in unlabelled:
            continue
        around = [a for a in node.ancestors() if a.tag == "label"]
        labels = around + page.labels.get(node.attrs.get("id", ""), [])
        if any(label.text() for label in labels) or page.aria_name(node) or node.attrs.get("title", "").strip():
            continue
        hint = "; a placeholder vanishes and is no label" if node.attrs.get("placeholder") else ""
        yield find(node, "field-label", f'<{node.tag}> has no label; use <label for="...">{hint}')


def check_names(page: Page) -> Iterator[Finding]:
    for node in page.shown:
        if node.aria_hidden:
            continue
        role = node.attrs.get("role", "")
        if node.tag == "input" and node.attrs.get("type", "").lower() == "button":
            if not node.attrs.get("value", "").strip() and not page.aria_name(node):
                yield find(node, "button-name", "add a value")
        elif (node.tag == "button" or role == "button") and not page.name(node):
            yield find(node, "button-name", "add text, or aria-label for an icon")
        elif (node.tag == "a" and "href" in node.attrs and role != "button") or role == "link":
            name = page.name(node)
            if not name:
                yield find(node, "link-name", "add text that says where it leads, or alt for its picture")
            elif name.lower().strip(" .…»>→!") in VAGUE:
                yield find(node, "link-text", f"{name!r} says nothing out of its context")
        elif node.tag in ("iframe", "frame") and not page.aria_name(node) and not node.attrs.get("title", "").strip():
            yield find(node, "frame-title", "add a title that says what it shows")


def check_headings(page: Page) -> Iterator[Finding]:
    last = 0
    levels = []
    for node in page.shown:
        is_heading = node.attrs.get("role", "") == "heading" or re.fullmatch(r"h[1-6]", node.tag)
        if not is_heading or node.aria_hidden:
            continue
        wanted = node.attrs.get("aria-level", "")
        level = int(wanted) if re.fullmatch(r"[1-9]", wanted) else int(node.tag[1]) if node.tag[0] == "h" else 2
        if not page.name(node):
            yield find(node, "heading-empty", f"<{node.tag}> is empty; remove it or give it text")
        if last and level > last + 1:
            yield find(node, "heading-order", f"level {level} follows level {last}; use level {last + 1}")
        last = level
        levels.append(level)
    if not page.fragment and 1 not in levels:
        yield Finding(1, 1, "heading-first", "no <h1>; name the page's subject in one")


def check_ids(page: Page) -> Iterator[Finding]:
    counts = Counter(node.attrs["id"] for node in page.nodes if node.attrs.get("id"))
    for node in page.nodes:
        own = node.attrs.get("id", "")
        if counts[own] > 1 and page.ids[own] is not node and not TEMPLATE.search(own):
            yield find(node, "duplicate-id", f"id={own!r} is already used in line {page.ids[own].line}")
        for key in ("aria-labelledby", "aria-describedby", "aria-controls", "aria-owns", "aria-errormessage"):
            value = node.attrs.get(key, "")
            missing = [] if TEMPLATE.search(value) else [i for i in value.split() if i not in page.ids]
            if missing and key not in ("aria-controls", "aria-owns"):
                yield find(node, "aria-reference", f"{key} names {missing[0]!r}, which is no id in this file")


def can_focus(node: Node) -> bool:
    index = node.attrs.get("tabindex", "").strip()
    if re.fullmatch(r"-\d+", index) or "disabled" in node.attrs:
        return False
    if node.tag in ("a", "area"):
        return "href" in node.attrs or bool(index)
    if node.tag == "input":
        return node.attrs.get("type", "").lower() != "hidden"
    return node.tag in ("button", "select", "textarea", "iframe", "summary") or bool(re.fullmatch(r"\d+", index))


def check_interaction(page: Page) -> Iterator[Finding]:
    natural = (
        "a",
        "button",
        "input",
        "select",
        "textarea",
        "summary",
        "label",
        "option",
        "area",
        "body",
        "html",
        "form",
    )
    for node in page.shown:
        if re.fullmatch(r"\+?0*[1-9]\d*", node.attrs.get("tabindex", "").strip()):
            yield find(node, "tabindex", f"tabindex={node.attrs['tabindex']!r}; use 0 and order the source instead")
        if node.aria_hidden and can_focus(node):
            yield find(node, "aria-hidden-focus", f"<{node.tag}> lies in aria-hidden, but Tab reaches it")
        roles = node.attrs.get("role", "").lower().split()
        known = any(role in ROLES or role.startswith(("doc-", "graphics-")) for role in roles)
        if roles and not known and not TEMPLATE.search(node.attrs["role"]):
            yield find(node, "role-unknown", f"role={node.attrs['role']!r} is not defined")
        if "onclick" in node.attrs and node.tag not in natural and not can_focus(node):
            yield find(node, "click-keyboard", f"<{node.tag} onclick> cannot be focused; use <button>")
        if node.tag == "li" and not page.fragment:
            lists = ("ul", "ol", "menu", "template")
            if not any(a.tag in lists or a.attrs.get("role") == "list" for a in node.ancestors()):
                yield find(node, "list-structure", "<li> without <ul> or <ol> around it")


def check_tables_and_media(page: Page) -> Iterator[Finding]:
    for node in page.shown:
        if node.tag == "table" and node.attrs.get("role") not in ("presentation", "none"):
            inside = [child for child in node.walk() if child is not node]
            rows = sum(child.tag == "tr" for child in inside)
            header = any(c.tag == "th" or c.attrs.get("role") in ("columnheader", "rowheader") for c in inside)
            if rows > 1 and not header:
                yield find(node, "table-headers", 'use <th scope="col">, or role="presentation" for pure layout')
        if node.tag == "video" and "muted" not in node.attrs:
            tracks = [c for c in node.walk() if c.tag == "track" and c.attrs.get("kind", "subtitles") in CAPTIONS]
            if not tracks:
                yield find(node, "media-captions", 'add <track kind="captions">')
        if node.tag in ("video", "audio") and "autoplay" in node.attrs and "muted" not in node.attrs:
            yield find(node, "media-autoplay", "remove autoplay, or start muted")


def check_contrast(page: Page) -> Iterator[Finding]:
    for node in page.shown:
        if node.unknown_colour or node.unknown_background or (node.colour is None and node.background is None):
            continue
        if node.tag in ("script", "style", "title", "option") or "disabled" in node.attrs:
            continue
        if not any(isinstance(item, str) and item.strip() for item in node.content):
            continue
        front, back = node.colour or (0.0, 0.0, 0.0), node.background or (255.0, 255.0, 255.0)
        ratio, wanted = contrast_ratio(front, back), 3.0 if node.large else 4.5
        if ratio < wanted:
            code = "contrast" if node.colour and node.background else "contrast-assumed"
            pair = f"{hex_colour(front)} on {hex_colour(back)}"
            yield find(node, code, f"{pair} is {int(ratio * 100) / 100:.2f} to 1; wanted {wanted:g} to 1")


CHECKS: tuple[Callable[[Page], Iterator[Finding]], ...] = (
    check_document,
    check_meta,
    check_pictures,
    check_fields,
    check_names,
    check_headings,
    check_ids,
    check_interaction,
    check_tables_and_media,
    check_contrast,
)


def check(source: str, fragment: bool = False) -> list[Finding]:
    """All findings for one source text, in the order of the text."""
    page = Page(source, fragment)
    return sorted((f for run_check in CHECKS for f in run_check(page)), key=lambda f: (f.line, f.column, f.code))


# --- the command --------------------------------------------------------------------------------------------------


def read_source(name: str) -> str:
    try:
        if name == "-":
            if sys.stdin is None or sys.stdin.isatty():
                raise InputError("nothing to read: pipe a page into this script, or name a file")
            data = sys.stdin.buffer.read()
        else:
            with open(name, "rb") as file:
                data = file.read()
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error
    if b"\x00" in data:
        raise InputError(f"{name}: not a text file (it contains NUL bytes)")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # the structure is ASCII; only the quoted words may look odd
    if not text.strip():
        raise InputError(f"{name}: empty")
    return text


def printable(text: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def code_option(text: str) -> str:
    if text not in CODES:
        raise argparse.ArgumentTypeError(f"unknown code {text!r}; --list shows them all")
    return text


def build_parser() -> argparse.ArgumentParser:
    idea, examples = (__doc__ or "").split("\n\nExamples:\n")
    parser = argparse.ArgumentParser(
        description=idea.split("\n")[0],
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="HTML files; - reads standard input")
    parser.add_argument("--json", action="store_true", help="print data instead of lines")
    parser.add_argument("--fragment", action="store_true", help="not a whole page: skip the checks of the document")
    parser.add_argument("--ignore", action="append", default=[], type=code_option, metavar="CODE", help="repeatable")
    parser.add_argument("--fail-on", choices=(*SEVERITIES, "never"), default="error", help="default: error")
    parser.add_argument("--list", action="store_true", help="print all codes and end")
    return parser


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if options.list:
        for code, (severity, criterion, meaning) in CODES.items():
            print(f"{code:18} {severity:8} {criterion:7} {meaning}")
        return 0
    if not options.files:
        parser.error("name at least one file, or - for standard input")
    counts: Counter[str] = Counter()
    unreadable = 0
    rows = []
    for name in options.files:
        try:
            findings = [f for f in check(read_source(name), options.fragment) if f.code not in options.ignore]
        except InputError as error:
            print(f"check_html: {error}", file=sys.stderr)
            unreadable += 1
            continue
        for finding in findings:
            severity, criterion, _ = CODES[finding.code]
            counts[severity] += 1
            if options.json:
                rows.append({"file": name, "severity": severity, "wcag": criterion, **vars(finding)})
            else:
                place = f"{name}:{finding.line}:{finding.column}"
                print(f"{place}: {severity} {finding.code}: {printable(finding.message)} (WCAG {criterion})")
    if options.json:
        print(json.dumps({"findings": rows, "counts": {s: counts[s] for s in SEVERITIES}}, indent=2))
    else:
        total = ", ".join(f"{severity} {counts[severity]}" for severity in SEVERITIES)
        print(f"{total} in {len(options.files) - unreadable} of {len(options.files)} files", file=sys.stderr)
    if unreadable:
        return 2
    failing = SEVERITIES[: SEVERITIES.index(options.fail_on) + 1] if options.fail_on != "never" else ()
    return 1 if any(counts[severity] for severity in failing) else 0


def main() -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    parser = build_parser()
    try:
        code = run(parser.parse_args(), parser)
        sys.stdout.flush()
        return code
    except InputError as error:
        print(f"check_html: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0


if __name__ == "__main__":
    sys.exit(main())
