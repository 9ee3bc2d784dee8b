"""The statements of the PostgreSQL store that make up an append and a page; `postgres` says how they play together."""

from typing import Final

NO_END: Final = (1 << 63) - 1
ROUND: Final = 1 << 31
"""Advisory locks carry 31 bits of a position; the rest follows from the last one given."""

# Bounds on what a stalled writer can do to others, and the promise of durability, whatever the server's defaults are.
TERMS: Final = """
SELECT set_config('lock_timeout', %(ms)s, true), set_config('idle_in_transaction_session_timeout', %(ms)s, true),
CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END"""
PUBLISH: Final = """
SELECT pg_advisory_xact_lock_shared('metier_events'::regclass::oid::int4, mod(last_value, 2147483648)::int4)
FROM metier_positions"""
GIVEN: Final = "SELECT last_value FROM metier_positions"
PUBLISHED: Final = """
SELECT objid::int8 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND classid = 'metier_events'::regclass::oid"""

HOLD: Final = """
SELECT stream_id, session_id, stream_kind, next_seq FROM metier_streams
WHERE stream_id = ANY(%s) ORDER BY stream_id FOR UPDATE"""
CREATE: Final = """
INSERT INTO metier_streams (stream_id, session_id, stream_kind, next_seq, first_ms, last_ms)
VALUES (%s, %s, %s, 0, %s, 0) ON CONFLICT DO NOTHING"""
ADVANCE: Final = """
UPDATE metier_streams SET next_seq = %s, first_ms = least(first_ms, %s), last_ms = greatest(last_ms, %s)
WHERE stream_id = %s"""
TEXTS: Final = "SELECT id, body FROM metier_events WHERE id = ANY(%s)"
INSERT: Final = """
INSERT INTO metier_events (id, session_id, stream_id, seq, timestamp_ms, type, body)
VALUES (%s, %s, %s, %s, %s, %s, %s)"""
USE: Final = "INSERT INTO metier_artifact_uses (session_id, digest) VALUES (%s, %s) ON CONFLICT DO NOTHING"
KEEP: Final = """
INSERT INTO metier_artifacts (digest, touched_ms, size, content) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"""

ALL: Final = """
SELECT position, body FROM metier_events
WHERE position > %(cursor)s AND position <= %(end)s AND seq > %(after)s AND timestamp_ms >= %(since)s
AND (%(types)s::text[] IS NULL OR type = ANY(%(types)s)) ORDER BY position LIMIT %(limit)s"""
OF_SESSION: Final = """
SELECT position, body FROM metier_events
WHERE session_id = %(session)s
AND position > %(cursor)s AND position <= %(end)s AND seq > %(after)s AND timestamp_ms >= %(since)s
AND (%(types)s::text[] IS NULL OR type = ANY(%(types)s)) ORDER BY position LIMIT %(limit)s"""
OF_STREAM: Final = """
SELECT position, body FROM metier_events
WHERE stream_id = %(stream)s AND (%(session)s::text IS NULL OR session_id = %(session)s)
AND position > %(cursor)s AND position <= %(end)s AND seq > %(after)s AND timestamp_ms >= %(since)s
AND (%(types)s::text[] IS NULL OR type = ANY(%(types)s)) ORDER BY seq LIMIT %(limit)s"""
