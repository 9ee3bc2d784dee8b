"""JSON that comes in from outside. Python's parser also takes `NaN` and `Infinity`, and reads `1e999` as infinite.

No other program could read what is then sent or stored, so every way in parses with `parse_json` or `read_json`.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

from metier import limits
from metier.files.beneath import read_regular
from metier.files.shapes import as_table

if TYPE_CHECKING:
    import json


def parse_json(text: str | bytes) -> Any:
    """A JSON text as data. Raises `ValueError` if it is not JSON, and `RecursionError` if it is nested too deeply."""
    import json  # most processes that list skills read no JSON

    if not isinstance(text, str):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    if text.startswith("\ufeff"):
        raise ValueError("Unexpected UTF-8 BOM (decode using utf-8-sig)")
    return _decoder().decode(text)


def read_json(file: str) -> Any:
    """A small JSON file as data. Raises `OSError` if it cannot be read, and `ValueError` if it is not JSON."""
    try:
        return parse_json(read_regular(file, limits.REGISTRY_BYTES))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def infinite_in(value: object) -> bool:
    """Whether data that somebody else parsed has a number that JSON cannot express."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, float):
            if not math.isfinite(one):
                return True
        elif isinstance(one, Mapping):
            waiting += cast("Mapping[object, object]", one).values()
        elif isinstance(one, list):
            waiting += cast("list[object]", one)
    return False


def part_of(text: str, keys: Sequence[str]) -> str:
    """The text at these keys of a JSON text. The whole text where it has none there, or is no JSON."""
    if not keys:
        return text
    try:
        part: object = parse_json(text)
    except (ValueError, RecursionError):
        return text
    for key in keys:
        part = as_table(part).get(key)
    return part if isinstance(part, str) else text


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


@functools.cache
def _decoder() -> "json.JSONDecoder":
    """One for all: making it takes as long as parsing a small message."""
    import json

    return json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
