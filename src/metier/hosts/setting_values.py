"""Reads single values of a configuration. A wrong one is an error that names its key and file."""

from collections.abc import Mapping
from typing import cast

from metier.errors import ConfigError
from metier.files.shapes import is_list


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


def flag(value: object, key: str, file: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("1", "0", "true", "false", "yes", "no", "on", "off"):
        return value.lower() in ("1", "true", "yes", "on")
    raise ConfigError(f"{key} must be true or false", file=file, key=key)


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
