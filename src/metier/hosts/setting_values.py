"""Reads single values of a configuration. A wrong one is an error that names its key and file."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from metier.errors import ConfigError
from metier.files.shapes import is_list
from metier.values.value import Value, field

CATALOG_CHARS: Final = 2_000
"""How long a text that describes the catalog may be. Some hosts cut such texts of servers, at 2 KiB or more."""

_NUMBERS: Final = ("instructions_chars", "description_chars")
_ON: Final = ("1", "true", "yes", "on")
_OFF: Final = ("0", "false", "no", "off")


def from_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The settings that have a variable `METIER_*`."""
    keys = ("profile", "cache", "store", "store_required", "store_days", "store_megabytes", "telemetry", "enabled")
    return {key: env[f"METIER_{key.upper()}"] for key in keys if env.get(f"METIER_{key.upper()}")}


def text(value: object, key: str, file: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{key} must be text", file=file, key=key)
    return value


def count(value: object, key: str, file: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 10**9:
        raise ConfigError(f"{key} must be a whole number, 0 or more", file=file, key=key)
    return value


def as_flag(value: object) -> bool | None:
    """The truth value that a value or a word of a variable stands for, if it stands for one."""
    if isinstance(value, str) and value.lower() in (*_ON, *_OFF):
        return value.lower() in _ON
    return value if isinstance(value, bool) else None


def flag(value: object, key: str, file: str) -> bool:
    found = as_flag(value)
    if found is None:
        raise ConfigError(f"{key} must be true or false", file=file, key=key)
    return found


def check_hosts(value: object, file: str) -> tuple[str, ...]:
    """The `hosts` of the table `check`: names or files of profiles."""
    table = cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {"": value}
    for key in table:
        if key != "hosts":
            hint = 'write hosts = ["codex"] in the table [check]'
            raise ConfigError(
                "check is a table with the key hosts", file=file, key=f"check.{key}".rstrip("."), hint=hint
            )
    hosts = table.get("hosts", [])
    if not is_list(hosts) or not all(isinstance(host, str) and host for host in hosts):
        raise ConfigError("check.hosts must be a list of profiles", file=file, key="check.hosts")
    return tuple(str(host) for host in hosts)


class McpSettings(Value):
    """The table `mcp`: servers whose skills join the catalog, and limits for our own server."""

    servers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Unchecked. See `metier.sources.mcp_servers.servers`."""
    instructions_chars: int = CATALOG_CHARS
    """For the instructions of Metier's server. 0 leaves the catalog out of them."""
    description_chars: int = CATALOG_CHARS
    """For the description of its load tool. 0 leaves the catalog out of it."""


def mcp_settings(tables: Iterable[tuple[str, Any]]) -> McpSettings:
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
