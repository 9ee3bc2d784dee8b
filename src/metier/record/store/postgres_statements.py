"""The statements of the PostgreSQL store for appends and pages. `postgres` explains how they work together."""

from typing import Final

MAX_BIGINT: Final = (1 << 63) - 1
"""The largest bigint: a position or time after all others."""

LOCK_RANGE: Final = 1 << 31
"""An advisory lock carries the lower 31 bits of a position. The last position taken supplies the rest."""

PUBLISH_POSITION: Final = """
SELECT pg_advisory_xact_lock_shared('metier_events'::regclass::oid::int4, mod(last_value, 2147483648)::int4)
FROM metier_positions"""
SELECT_TAKEN: Final = "SELECT last_value FROM metier_positions"
SELECT_PUBLISHED: Final = """
SELECT objid::int8 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND classid = 'metier_events'::regclass::oid"""

LOCK_STREAMS: Final = """
SELECT stream_id, session_id, stream_kind, next_seq FROM metier_streams
WHERE stream_id = ANY(%s) ORDER BY stream_id FOR UPDATE"""
CREATE_STREAM: Final = """
INSERT INTO metier_streams (stream_id, session_id, stream_kind, next_seq, first_ms, last_ms)
VALUES (%s, %s, %s, 0, %s, 0) ON CONFLICT DO NOTHING"""
LOCK_FREE_STREAMS: Final = f"{LOCK_STREAMS} SKIP LOCKED"
_UPDATE_FROM: Final = """
UPDATE metier_streams AS old SET next_seq = new.next_seq,
first_ms = least(old.first_ms, new.first_ms), last_ms = greatest(old.last_ms, new.last_ms)
FROM {} AS new (stream_id, next_seq, first_ms, last_ms) WHERE old.stream_id = new.stream_id"""
# One stream is the common case, and planning a join with a function costs the server more.
UPDATE_STREAM: Final = _UPDATE_FROM.format("(VALUES (%s, %s::int8, %s::int8, %s::int8))")
UPDATE_STREAMS: Final = _UPDATE_FROM.format("unnest(%s::text[], %s::int8[], %s::int8[], %s::int8[])")
SELECT_TEXTS: Final = "SELECT id, body FROM metier_events WHERE id = ANY(%s)"
SIZE: Final = """
SELECT sum(pg_total_relation_size(name::regclass))::int8 FROM unnest(array['metier_streams',
'metier_events', 'metier_artifacts', 'metier_artifact_uses', 'metier_states', 'metier_notices']) AS name"""
