"""What the protocol carries: parameters, cursors and errors.

A path may hold bytes that are not UTF-8, and a frontmatter may hold a number that JSON cannot express; writing either
would break the connection. Every such value passes through `storable_text` or `storable_table` before it is sent.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Final, TypeVar

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
    StoreError,
)
from metier.files.shapes import is_table
from metier.files.text import storable_table, storable_text
from metier.session.session import Session
from metier.session.tools import code_of

REFUSED: Final = -32000
"""The error code for a request that policy denies or the runtime cannot perform; `data` holds the error type."""

TTL_MS: Final = 300_000
"""How long a listing stays current. Changes are announced as well."""

PAGE: Final = 100
"""The number of skills on one page of a listing."""

_CURSOR: Final = "after:"
_T = TypeVar("_T")


class SkillParams(types.RequestParams):
    """Parameters of `skills/get`."""

    uri: str


class DirectoryParams(types.PaginatedRequestParams):
    """Parameters of `resources/directory/read`."""

    uri: str


class OperationParams(types.InputResponseRequestParams):
    """Parameters of `metier/<operation>`: the fields of the operation, which it checks itself."""

    model_config = ConfigDict(extra="allow")


def page(items: Mapping[str, _T], cursor: str | None, size: int) -> tuple[list[_T], str | None]:
    """The items after the cursor, in the order of their names, and the cursor of the next page.

    A cursor names the last item of a page instead of a position, so a change between two pages moves no item.
    """
    after = _decode(cursor)
    names = sorted(name for name in items if after is None or name > after)
    chosen = names[:size]
    return [items[name] for name in chosen], _encode(chosen[-1]) if len(names) > size else None


def _encode(name: str) -> str:
    return base64.urlsafe_b64encode(f"{_CURSOR}{name}".encode()).decode()


def _decode(cursor: str | None) -> str | None:
    if cursor is None:
        return None
    try:
        text = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise invalid("invalid cursor") from error
    if not text.startswith(_CURSOR):
        raise invalid("invalid cursor")
    return text.removeprefix(_CURSOR)


def invalid(message: str) -> MCPError:
    """The error for invalid parameters: an unknown uri, an invalid cursor."""
    return MCPError(types.INVALID_PARAMS, storable_text(message))


def failure(error: MetierError, session: Session) -> MCPError:
    """An error of the runtime as an error of the protocol, with a message that hides what the profile hides."""
    unknown = isinstance(error, SkillNotFound | AmbiguousSkill | InvalidSkill | ResourceError | BadArguments)
    data: dict[str, object] = {"type": type(error).__name__, "code": code_of(error)}
    if isinstance(error, ResourceError | StoreError):
        data["reason"] = error.reason
    if isinstance(error, PolicyDenied):
        data["tool"] = error.tool
    code = types.INVALID_PARAMS if unknown else REFUSED
    return MCPError(code, storable_text(session.explain(error)), storable_table(data))


def about(uri: str, error: MCPError) -> MCPError:
    """The error, with the uri of the resource that it is about, as the protocol asks."""
    data = error.error.data if is_table(error.error.data) else {}
    return MCPError(error.code, error.message, {**data, "uri": storable_text(uri)})
