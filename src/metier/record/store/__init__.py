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

from metier.errors import ConfigError
from metier.errors import StateConflict as StateConflict
from metier.errors import StoreError as StoreError
from metier.errors import StreamConflict as StreamConflict
from metier.files import plugins
from metier.record.store.checks import check_artifacts as check_artifacts
from metier.record.store.checks import check_digest as check_digest
from metier.record.store.checks import check_name as check_name
from metier.record.store.checks import check_notice as check_notice
from metier.record.store.checks import check_stored_artifact as check_stored_artifact
from metier.record.store.lines import export_lines as export_lines
from metier.record.store.lines import import_lines as import_lines
from metier.record.store.protocol import Listener as Listener
from metier.record.store.protocol import Store as Store
from metier.record.store.values import ENVELOPE as ENVELOPE
from metier.record.store.values import EVENT_BYTES as EVENT_BYTES
from metier.record.store.values import GRACE_MS as GRACE_MS
from metier.record.store.values import NOTICE_BYTES as NOTICE_BYTES
from metier.record.store.values import STATE_BYTES as STATE_BYTES
from metier.record.store.values import Document as Document
from metier.record.store.values import Draft as Draft
from metier.record.store.values import EncodedFrame as EncodedFrame
from metier.record.store.values import Frame as Frame
from metier.record.store.values import Imported as Imported
from metier.record.store.values import Page as Page
from metier.record.store.values import Pruned as Pruned
from metier.record.store.values import Stats as Stats
from metier.record.store.values import Summary as Summary
from metier.record.store.values import canonical as canonical
from metier.record.store.values import parse_frame as parse_frame
from metier.record.store.values import parse_value as parse_value
from metier.record.store.writes import AppendBatch as AppendBatch
from metier.record.store.writes import EventRow as EventRow
from metier.record.store.writes import RestoreBatch as RestoreBatch
from metier.record.store.writes import StateChange as StateChange
from metier.record.store.writes import StateRow as StateRow
from metier.record.store.writes import StreamHead as StreamHead
from metier.record.store.writes import digests_in as digests_in
from metier.record.store.writes import new_rows as new_rows
from metier.record.store.writes import number_drafts as number_drafts
from metier.record.store.writes import prepare_append as prepare_append
from metier.record.store.writes import prepare_restore as prepare_restore
from metier.record.store.writes import prepare_state as prepare_state

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
