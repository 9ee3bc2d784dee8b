-- The record: streams with their next seq, events with their exact text, artifacts by digest, and which session
-- uses which artifact.
-- position is the order of commits. AUTOINCREMENT ensures that a position is not used again after a prune.
CREATE TABLE streams (
    stream_id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    stream_kind TEXT NOT NULL,
    next_seq INTEGER NOT NULL,
    first_ms INTEGER NOT NULL,
    last_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX streams_by_session ON streams (session_id);
CREATE TABLE events (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL,
    stream_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    timestamp_ms INTEGER NOT NULL,
    type TEXT NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (stream_id, seq)
);
CREATE INDEX events_by_session ON events (session_id, position);
CREATE TABLE artifacts (
    digest TEXT PRIMARY KEY,
    touched_ms INTEGER NOT NULL,
    size INTEGER NOT NULL,
    content BLOB NOT NULL
);
CREATE TABLE artifact_uses (
    session_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (session_id, digest)
) WITHOUT ROWID;
CREATE INDEX artifact_uses_by_digest ON artifact_uses (digest);
-- Documents of session state by key, with their version, and notices to other processes (kept for an hour).
CREATE TABLE states (
    session_id TEXT NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    saved_ms INTEGER NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (session_id, key)
) WITHOUT ROWID;
CREATE TABLE notices (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL,
    sent_ms INTEGER NOT NULL,
    payload TEXT NOT NULL
);
