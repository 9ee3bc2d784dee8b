"""The table `mcp` of the user's configuration: servers whose skills join the catalog, and limits for our own server."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from metier.errors import ConfigError
from metier.quick_dataclass import dataclass, field

CATALOG_CHARS: Final = 2_000
"""How long a text that describes the catalog may be. Some hosts cut such texts of servers, at 2 KiB or more."""

_NUMBERS: Final = ("instructions_chars", "description_chars")


@dataclass(frozen=True, slots=True)
class McpSettings:
    """See the module."""

    servers: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    """Unchecked. See `metier.mcp.source.servers`."""
    instructions_chars: int = CATALOG_CHARS
    """For the instructions of Metier's server. 0 leaves the catalog out of them."""
    description_chars: int = CATALOG_CHARS
    """For the description of its load tool. 0 leaves the catalog out of it."""


def read(tables: Iterable[tuple[str, Any]]) -> McpSettings:
    """The settings of these tables, each with its origin. A later one wins."""
    servers: dict[str, Any] = {}
    numbers: dict[str, int] = {}
    for origin, given in tables:
        table = dict(cast("Mapping[str, Any]", given)) if isinstance(given, Mapping) else dict[str, Any]()
        named: Any = table.pop("servers", {} if table else None)
        if not isinstance(named, Mapping):
            raise ConfigError("mcp must be a table with a table of servers", file=origin, key="mcp")
        servers.update(cast("Mapping[str, Any]", named))
        for key, value in table.items():
            if key not in _NUMBERS:
                hint = f"known: servers, {', '.join(_NUMBERS)}"
                raise ConfigError(f"mcp has no key {key!r}", file=origin, key=f"mcp.{key}", hint=hint)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigError(f"mcp.{key} must be a whole number, 0 or more", file=origin, key=f"mcp.{key}")
            numbers[key] = value
    return McpSettings(servers, **numbers)
