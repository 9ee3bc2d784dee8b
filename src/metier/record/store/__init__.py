"""The event store: events in streams, the artifacts they name, and small documents of session state.

`Store` is the interface. Three implementations pass one contract suite: memory (tests and sessions that are not kept),
SQLite (the default, one file) and PostgreSQL (many hosts, one record). Invariant: an event that `append` returned is
stored durably, once, at its seq, and reads back byte for byte; any other event is stored as a whole or not at all.
"""

import os
import re
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from metier.errors import ConfigError, StateConflict, StoreError, StreamConflict
from metier.files import plugins
from metier.record.store.checks import check_artifacts, check_digest, check_name, check_notice, check_stored_artifact
from metier.record.store.lines import export_lines, import_lines
from metier.record.store.protocol import Listener, Store
from metier.record.store.values import (
    ENVELOPE,
    EVENT_BYTES,
    GRACE_MS,
    NOTICE_BYTES,
    STATE_BYTES,
    Document,
    Draft,
    EncodedFrame,
    Frame,
    Imported,
    Page,
    Pruned,
    Stats,
    Summary,
    canonical,
    parse_frame,
    parse_value,
)
from metier.record.store.writes import (
    AppendBatch,
    EventRow,
    RestoreBatch,
    StateChange,
    StateRow,
    StreamHead,
    digests_in,
    new_rows,
    number_drafts,
    prepare_append,
    prepare_restore,
    prepare_state,
)

__all__ = [
    "ENVELOPE",
    "EVENT_BYTES",
    "GRACE_MS",
    "NOTICE_BYTES",
    "STATE_BYTES",
    "AppendBatch",
    "Document",
    "Draft",
    "EncodedFrame",
    "EventRow",
    "Frame",
    "Imported",
    "Listener",
    "Page",
    "Pruned",
    "RestoreBatch",
    "StateChange",
    "StateConflict",
    "StateRow",
    "Stats",
    "Store",
    "StoreError",
    "StreamConflict",
    "StreamHead",
    "Summary",
    "canonical",
    "check_artifacts",
    "check_digest",
    "check_name",
    "check_notice",
    "check_stored_artifact",
    "digests_in",
    "export_lines",
    "import_lines",
    "new_rows",
    "number_drafts",
    "open_store",
    "parse_frame",
    "parse_value",
    "prepare_append",
    "prepare_restore",
    "prepare_state",
]

_HINT: Final = "use memory:, a path, sqlite:///path or postgresql://user@host/database"


def open_store(
    url: str, *, on_trouble: Callable[[str], None] | None = None, patience: float = 30.0, outage: float = 3.0
) -> Store:
    """Open the store at a URL: `memory:`, a path, `sqlite:///path`, or `postgresql://user@host/database`.

    Installed packages bring further schemes: an entry point in the group `metier.stores` is called as this function is.

    `patience` is how many seconds an operation waits for a busy file or a lock before it raises. `outage` is how long
    it waits for a server that was lost, but no longer than `patience`; after that, operations raise at once until the
    server is back. `on_trouble` is called with one line of text when a server is lost, at each attempt to reach it, and
    when it is back.
    """
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", url)
    name = scheme[1].lower() if scheme else ""
    rest = url[len(name) + 1 :] if name else url
    if name == "memory" and not rest.strip("/"):
        from metier.record.store.memory import MemoryStore

        return MemoryStore()
    if name in ("postgresql", "postgres"):
        from metier.record.store.postgres import PostgresStore

        return PostgresStore(url, on_trouble=on_trouble, patience=patience, outage=outage)
    if name and name not in ("memory", "sqlite") and (opener := plugins.find("metier.stores", name)) is not None:
        return opener(url, on_trouble=on_trouble, patience=patience, outage=outage)
    path = _sqlite_path(url, name, rest)
    if not path.strip("/") or "\0" in path:
        raise ConfigError(f"{url!r} is not a store", hint=_HINT)
    from metier.record.store.sqlite import SqliteStore

    return SqliteStore(path, patience=patience)


def _sqlite_path(url: str, scheme: str, rest: str) -> str:
    """Return the path of a SQLite file that a URL or a plain path names, or an empty string."""
    if scheme == "sqlite":
        if rest.startswith("//"):
            # Three slashes are an empty host and an absolute path; four are common too. Two would name a host.
            rest = "/" + rest.lstrip("/") if rest.startswith("///") else ""
        return unquote(rest)
    if scheme and rest.startswith("//"):
        return ""
    return os.path.expanduser(url)
