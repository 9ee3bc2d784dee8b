"""Replaces the values of secrets, as they are and in their common encodings, by `[secret NAME]`.

White space is not compared, so a value is also found where it is wrapped, indented or split over lines. Masking guards
against accidents. It cannot stop a script that wants to give a value away: a value that is reversed, compressed,
encrypted or printed in parts with other text between them is not found.
"""

import base64
import bisect
import itertools
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast
from urllib.parse import quote, quote_plus

from metier.files.text import from_utf8, utf8

SHORTEST: Final = 8
"""The characters that a value has at least, without white space. Shorter ones occur by chance."""
DISTINCT: Final = 4
"""The different characters that a value has at least, for the same reason."""
_LINE: Final = 16
"""The characters of a line of a value that is found by itself, also without white space."""
_BLANKS: Final = b" \t\r\n\v\f"
_BLANK: Final = re.compile(rb"[ \t\r\n\v\f]")
_ESCAPED_BYTE: Final = re.compile(r"%[0-9A-F]{2}")


class _Span(NamedTuple):
    start: int
    end: int
    name: str


class Mask:
    """The values of some secrets, and everything that is looked for because of them."""

    def __init__(self, secrets: Mapping[str, str] | None = None) -> None:
        names: dict[bytes, str] = {}
        for name, value in (secrets or {}).items():
            for form in _forms(value):
                names.setdefault(form, name)
        self._names = names
        self._sorted = sorted(names)
        self._first = frozenset(form[0] for form in names)
        self._longest = max(map(len, names), default=0)

    def __bool__(self) -> bool:
        return bool(self._names)

    def __repr__(self) -> str:
        return f"Mask({', '.join(sorted(set(self._names.values())))})"

    def data(self, data: bytes, *, cut: bool = False) -> bytes:
        """The bytes without any value. With `cut`, the beginning of a value at their very end is masked, too."""
        return _replaced(data, self._spans(_Squeezed(data), cut=cut))

    def text(self, text: str) -> str:
        """The same for text."""
        if not self._names:
            return text
        data = utf8(text)
        masked = self.data(data)
        return text if masked is data else from_utf8(masked)

    def value(self, value: object) -> object:
        """The same for all text in a value of JSON."""
        if not self._names:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            table = cast("Mapping[object, object]", value)
            return {self.value(key): self.value(item) for key, item in table.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in cast("Sequence[object]", value)]
        return value

    def found(self, data: bytes, *, cut: bool = False) -> tuple[str, ...]:
        """The names of the secrets whose values are in the bytes."""
        return tuple(sorted({span.name for span in self._spans(_Squeezed(data), cut=cut)}))

    def beginning(self, data: bytes) -> tuple[bytes, bytes]:
        """The masked beginning of the bytes, and the rest, which may become a value with more bytes to come."""
        squeezed = _Squeezed(data)
        begin = self._beginning(squeezed.data)
        waiting = len(data) if begin is None else squeezed.place(begin)
        spans = self._spans(squeezed)
        if spans and spans[-1].start < waiting < spans[-1].end:  # one value may be the beginning of another
            waiting = spans[-1].start
        while spans and spans[-1].start >= waiting:
            spans.pop()
        return _replaced(data[:waiting], spans), data[waiting:]

    # --- search ---

    def _spans(self, squeezed: "_Squeezed", *, cut: bool = False) -> list[_Span]:
        """The places of values, in order and apart from each other."""
        found = [
            _Span(start, start + len(form), name)
            for form, name in self._names.items()
            for start in _places(squeezed.data, form)
        ]
        begin = self._beginning(squeezed.data) if cut else None
        if begin is not None and len(squeezed.data) - begin >= SHORTEST:
            found.append(_Span(begin, len(squeezed.data), self._names[self._begun(squeezed.data[begin:])]))
        joined: list[_Span] = []
        for span in sorted(found, key=lambda one: (one.start, -one.end)):
            if joined and span.start < joined[-1].end:
                joined[-1] = joined[-1]._replace(end=max(span.end, joined[-1].end))
            else:
                joined.append(span)
        return [_Span(squeezed.place(start), squeezed.place(end - 1) + 1, name) for start, end, name in joined]

    def _beginning(self, squeezed: bytes) -> int | None:
        """The first place from which on everything is the beginning of a value, and not all of it."""
        for start in range(max(0, len(squeezed) - self._longest + 1), len(squeezed)):
            if squeezed[start] in self._first and self._begun(squeezed[start:]):
                return start
        return None

    def _begun(self, start: bytes) -> bytes:
        """A value that begins like this and is longer; empty if there is none."""
        for index in itertools.count(bisect.bisect_left(self._sorted, start)):
            form = self._sorted[index] if index < len(self._sorted) else b""
            if form != start:  # an equal one is found as a whole
                return form if form.startswith(start) else b""
        raise AssertionError


class StreamMask:
    """Masks a stream that comes in pieces. What may be the beginning of a value waits for the next piece."""

    def __init__(self, mask: Mask) -> None:
        self._mask, self._held = mask, b""

    def feed(self, data: bytes) -> bytes:
        """What can be shown now."""
        shown, self._held = self._mask.beginning(self._held + data)
        return shown

    def end(self, *, cut: bool) -> bytes:
        """What is left at the end of the stream, which may have been `cut`."""
        data, self._held = self._held, b""
        return self._mask.data(data, cut=cut)


class _Squeezed:
    """Bytes without white space, and where each of them was."""

    def __init__(self, data: bytes) -> None:
        self.data = data.translate(None, _BLANKS)
        blanks = (found.start() for found in _BLANK.finditer(data)) if len(self.data) < len(data) else ()
        self._before = [place - number for number, place in enumerate(blanks)]

    def place(self, index: int) -> int:
        return index + bisect.bisect_right(self._before, index)


def _replaced(data: bytes, spans: Sequence[_Span]) -> bytes:
    parts: list[bytes] = []
    at = 0
    for start, end, name in spans:
        parts += (data[at:start], f"[secret {name}]".encode())
        at = end
    return b"".join((*parts, data[at:])) if spans else data


def _places(data: bytes, form: bytes) -> Iterator[int]:
    start = data.find(form)
    while start >= 0:
        yield start
        start = data.find(form, start + 1)


# --- encodings ---


def _forms(value: str) -> set[bytes]:
    """How a value can look, without white space."""
    lines = [line for line in value.splitlines() if len(_squeezed(line)) >= _LINE and not line.startswith("-----")]
    texts = {value, *(lines if len(value.splitlines()) > 1 else ())}
    forms = {_squeezed(form) for text in texts for form in (*_escaped(text), *_in_urls(text), *_as_digits(text))}
    return {form for form in forms if len(form) >= SHORTEST}


def _squeezed(text: str) -> bytes:
    return utf8(text).translate(None, _BLANKS)


def _escaped(text: str) -> Iterator[str]:
    """The text itself, and as programs quote it in JSON, Python, a shell or HTML."""
    yield text
    for ascii_only in (True, False):
        once = json.dumps(text, ensure_ascii=ascii_only)
        yield once[1:-1]
        yield once[1:-1].replace("/", "\\/")
        yield json.dumps(once, ensure_ascii=ascii_only)[3:-3]
    for quoted in (repr(text), ascii(text), repr(utf8(text))[1:]):
        yield quoted[1:-1]
        yield quoted[1:-1].replace("'", "\\'")
    yield shlex.quote(text)[1:-1] if "'" in text else text
    yield text.replace("'", "'\\''")
    import html  # with its table of entities, which only a run needs

    yield html.escape(text)
    yield html.escape(text, quote=False)
    yield html.escape(text).replace("&#x27;", "&#39;")


def _in_urls(text: str) -> Iterator[str]:
    for safe in ("", "/", "!'()*"):
        for encoded in (quote(text, safe=safe), quote_plus(text, safe=safe)):
            yield encoded
            yield _ESCAPED_BYTE.sub(lambda found: found[0].lower(), encoded)


def _as_digits(text: str) -> Iterator[str]:
    """Hexadecimal, and base64 at each of the three places of a value in a longer text."""
    data = utf8(text)
    yield data.hex()
    yield data.hex().upper()
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + data).decode()
        # The first and the last digits also depend on what is around the value.
        whole = encoded[(shift * 8 + 5) // 6 : (shift + len(data)) * 8 // 6]
        yield whole
        yield whole.replace("+", "-").replace("/", "_")
