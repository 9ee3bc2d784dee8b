"""What goes over the wire, and nothing that goes there breaks it: parameters, cursors, errors, values that are JSON.

A path may hold bytes that are no UTF-8 and a frontmatter a number that JSON has no word for; either would end the
connection while it is written. `clean` is between such values and every message.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

from metier.errors import (
    AmbiguousSkill,
    BadArguments,
    InvalidSkill,
    MetierError,
    PolicyDenied,
    ResourceError,
    SkillNotFound,
)
from metier.files.text import storable
from metier.session.session import Session
from metier.session.tools import code_of

REFUSED: Final = -32000
"""Policy says no, or the runtime cannot; `data` has the type of the error."""

TTL_MS: Final = 300_000
"""How long a listing may be taken for current; changes are announced besides."""

PAGE: Final = 100
"""Skills on one page of a listing."""

_CURSOR: Final = "after:"
_T = TypeVar("_T")


class SkillParams(types.RequestParams):
    """Of `skills/get`."""

    uri: str


class DirectoryParams(types.PaginatedRequestParams):
    """Of `resources/directory/read`."""

    uri: str


class OperationParams(types.RequestParams):
    """Of `metier/<operation>`: the fields of the operation, which it checks itself."""

    model_config = ConfigDict(extra="allow")


def clean(value: Any) -> Any:
    """The value with nothing in it that JSON or UTF-8 cannot say."""
    return storable(value)


def page(items: Mapping[str, _T], cursor: str | None, size: int) -> tuple[list[_T], str | None]:
    """The items that come after the cursor in the order of their names, and the cursor of the next page.

    A cursor names the last item seen and not a position, so that a change between two pages moves nothing.
    """
    after = _seen(cursor)
    names = sorted(name for name in items if after is None or name > after)
    chosen = names[:size]
    following = f"{_CURSOR}{chosen[-1]}" if len(names) > size else None
    return [items[name] for name in chosen], _encode(following) if following else None


def _encode(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def _seen(cursor: str | None) -> str | None:
    if cursor is None:
        return None
    try:
        text = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise invalid("the cursor is not one of ours") from error
    if not text.startswith(_CURSOR):
        raise invalid("the cursor is not one of ours")
    return text.removeprefix(_CURSOR)


def invalid(message: str) -> MCPError:
    """The parameters do not fit: an unknown uri, a wrong cursor."""
    return MCPError(types.INVALID_PARAMS, clean(message))


def failure(error: MetierError, session: Session) -> MCPError:
    """An error of the runtime in the words that the profile allows, with the code that the protocol has for it."""
    unknown = isinstance(error, SkillNotFound | AmbiguousSkill | InvalidSkill | ResourceError | BadArguments)
    data: dict[str, Any] = {"type": type(error).__name__, "code": code_of(error)}
    if isinstance(error, ResourceError):
        data["reason"] = error.reason
    if isinstance(error, PolicyDenied):
        data["tool"] = error.tool
    return MCPError(types.INVALID_PARAMS if unknown else REFUSED, clean(session.explain(error)), clean(data))
