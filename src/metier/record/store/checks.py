"""Checks of everything that is handed to a store.

All functions are pure, and each raises `StoreError` with the reason "invalid" unless it says otherwise. Stores call
them before a transaction begins, so that a refused argument never leaves half a write behind.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from metier import limits
from metier.errors import StoreError
from metier.files.digests import FORM, digest_of, is_digest
from metier.files.shapes import is_items, is_mapping
from metier.record.store.values import ENVELOPE, EVENT_BYTES, NOTICE_BYTES, STATE_BYTES, Draft, Frame, Json, encode

NAME_CHARACTERS: Final = 256
"""The longest id, kind, type or key. They are index keys, and an index entry must fit into a page of each database."""

DATA_DEPTH: Final = 64
"""How deep the data of an event may be nested, so that a reader's stack does not depend on what was written."""

INTEGER_BITS: Final = 13_000
"""About 3,900 digits. Python refuses to parse more than 4,300, and everything written must stay readable."""

_LARGEST_INTEGER: Final = (1 << 63) - 1


def check_name(value: object, what: str) -> str:
    """Return an id, kind, type or key: short and printable, so that it is safe in an index, a log and a terminal."""
    if not isinstance(value, str) or not value or len(value) > NAME_CHARACTERS or not value.isprintable():
        shown = ascii(value)
        shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
        raise _invalid(f"{what} {shown} is not a valid name", f"use 1 to {NAME_CHARACTERS} printable characters")
    return str(value)


def check_integer(value: object, what: str, lowest: int = 0) -> int:
    """Return an integer that fits into 64 bits and is at least `lowest`."""
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= _LARGEST_INTEGER:
        raise _invalid(f"{what} {value!r} is not an integer of at least {lowest}")
    return int(value)


def check_digest(digest: str) -> str:
    """Return a digest if it has the form of one."""
    if not is_digest(digest):
        raise _invalid(f"{digest!r} is not a digest", FORM)
    return digest


def check_artifacts(contents: Iterable[bytes]) -> dict[str, bytes]:
    """Return artifacts by digest. They are sorted, so that all writers lock them in the same order."""
    found: dict[str, bytes] = {}
    for content in contents:
        if len(content) > limits.RESOURCE_BYTES:
            raise _invalid(f"an artifact has {len(content)} bytes, more than {limits.RESOURCE_BYTES}")
        copy = bytes(content)
        found[digest_of(copy)] = copy
    return dict(sorted(found.items()))


def check_stored_artifact(content: bytes | None, digest: str, store: str = "") -> bytes:
    """Return the content found under a digest.

    Raises `StoreError` with the reason "missing-artifact" where there is none, and "changed-artifact" where the
    content has another digest.
    """
    if content is None:
        raise StoreError(f"artifact {digest} is not in the store", reason="missing-artifact", store=store)
    found = digest_of(content)
    if found != digest:
        message = f"artifact {digest} was changed: its content has the digest {found}"
        raise StoreError(message, reason="changed-artifact", store=store, hint="restore it from an export")
    return content


def check_notice(payload: str) -> str:
    """Return the payload of a notice."""
    try:
        size = len(payload.encode())
    except UnicodeEncodeError:
        size = -1
    if not 0 <= size <= NOTICE_BYTES or "\0" in payload:
        raise _invalid("the notice cannot be sent", f"use text of at most {NOTICE_BYTES} bytes, without NUL")
    return payload


def check_draft(draft: Draft) -> Draft:
    """Return a copy of a draft that holds only plain JSON values. One that is text already is plain."""
    if draft.encoded is not None:
        check_size(draft.encoded.text, f"event {draft.id!r}", EVENT_BYTES)
        return draft
    check_name(draft.id, "the event id")
    check_name(draft.type, "the event type")
    check_integer(draft.timestamp_ms, "timestamp_ms")
    data = plain_object(draft.data, "data")
    taken = [key for key in ENVELOPE if key in data]
    if taken:
        raise _invalid(f"data of event {draft.id!r} has the reserved key {taken[0]!r}", "rename the key")
    # The envelope is bounded by twice the longest names, so that the whole frame stays below the limit as well.
    bounded_text(data, f"data of event {draft.id!r}", EVENT_BYTES - 8 * 4 * NAME_CHARACTERS)
    return Draft(draft.id, draft.timestamp_ms, draft.type, data)


def check_frame(frame: Mapping[str, object]) -> Frame:
    """Return a copy of a complete frame, such as one from an import, with its envelope first."""
    missing = [key for key in ENVELOPE if key not in frame]
    if missing:
        raise _invalid(f"the frame has no {', '.join(missing)}")
    for key in ("id", "session_id", "stream_kind", "stream_id", "type"):
        check_name(frame[key], key)
    check_integer(frame["seq"], "seq")
    check_integer(frame["timestamp_ms"], "timestamp_ms")
    copy = plain_object(frame, "frame")
    bounded_text(copy, "the frame", EVENT_BYTES)
    return {**{key: copy[key] for key in ENVELOPE}, **copy}


def document_text(value: object) -> str:
    """Return the text of a document of session state."""
    return bounded_text(plain(value, "state"), "the state", STATE_BYTES)


def plain(value: object, where: str) -> Json:
    """Return a copy of a JSON value made of plain types. The error for any other value says where it is."""
    try:
        return _quick_copy(value, 0)
    except _NotQuick:
        return _copy(value, where, 0)


class _NotQuick(Exception):
    """A value has to be looked at more closely."""


def _quick_copy(value: Any, depth: int) -> Any:
    """Copy what nearly all values are made of. A place in the value is only put into words where it is needed."""
    kind = type(value)  # pyright: ignore[reportUnknownVariableType] - of any value
    if kind is str or value is None or kind is bool:
        return value
    if (kind is int and -_LARGEST_INTEGER <= value <= _LARGEST_INTEGER) or (kind is float and math.isfinite(value)):
        return value
    if depth < DATA_DEPTH:
        if kind is dict:
            if all(type(key) is str for key in value):
                return {key: _quick_copy(item, depth + 1) for key, item in value.items()}
        elif kind is list or kind is tuple:
            return [_quick_copy(item, depth + 1) for item in value]
    raise _NotQuick


def _copy(value: object, where: str, depth: int) -> Json:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        if value.bit_length() > INTEGER_BITS:
            raise _invalid(f"{where} is a number of more than 3,900 digits", "write it as text")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _invalid(f"{where} is {value}", "JSON has no such number")
        return float(value)
    if depth == DATA_DEPTH:
        raise _invalid(f"{where} is nested more than {DATA_DEPTH} levels deep")
    if is_mapping(value):
        copy: dict[str, Json] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise _invalid(f"{where} has the key {key!r}", "keys of a JSON object are strings")
            copy[str.__str__(key)] = _copy(item, f"{where}.{key}", depth + 1)
        return copy
    if is_items(value):
        return [_copy(item, f"{where}[{number}]", depth + 1) for number, item in enumerate(value)]
    raise _invalid(f"{where} is a {type(value).__name__}", "not a JSON value")


def plain_object(value: object, where: str) -> dict[str, Json]:
    """Return a copy of a JSON object made of plain types."""
    copy = plain(value, where)
    if not isinstance(copy, dict):
        raise _invalid(f"{where} is a {type(value).__name__}", "not a JSON object")
    return copy


def bounded_text(value: Json, where: str, limit: int) -> str:
    """Return the text of a JSON value, which is valid UTF-8 and has at most `limit` bytes."""
    text = encode(value)
    check_size(text, where, limit)
    return text


def check_size(text: str, where: str, limit: int) -> None:
    """Check that a text is valid UTF-8 and has at most `limit` bytes."""
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        found = ascii(text[max(0, error.start - 20) : error.end])
        hint = "replace it, or pass the bytes as an artifact"
        raise _invalid(f"{where} contains half a surrogate pair, near {found}", hint) from None
    if size > limit:
        raise _invalid(f"{where} has {size} bytes, more than {limit}", "put the content into an artifact")


def invalid_text(store: str) -> StoreError:
    """Return the error for a name in a query, such as a session id from a command line, that no store can hold."""
    return StoreError("a name in the query is not valid text", reason="invalid", store=store)


def _invalid(message: str, hint: str = "") -> StoreError:
    return StoreError(message, reason="invalid", hint=hint)
