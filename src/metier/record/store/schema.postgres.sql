-- The record: streams with their next seq, events with their exact text, artifacts by digest, and which session
-- uses which artifact.
-- position comes from its own sequence. A writer publishes the last value before it takes the next one (see postgres.py).
-- The first value is taken here, so that "last value" always means a value that was taken.
CREATE TABLE metier_streams (
    stream_id text PRIMARY KEY,
    session_id text NOT NULL,
    stream_kind text NOT NULL,
    next_seq bigint NOT NULL,
    first_ms bigint NOT NULL,
    last_ms bigint NOT NULL
);
CREATE INDEX metier_streams_by_session ON metier_streams (session_id);
CREATE SEQUENCE metier_positions MINVALUE 0 START 0;
SELECT nextval('metier_positions');
CREATE TABLE metier_events (
    position bigint PRIMARY KEY DEFAULT nextval('metier_positions'),
    id text NOT NULL UNIQUE,
    session_id text NOT NULL,
    stream_id text NOT NULL,
    seq bigint NOT NULL,
    timestamp_ms bigint NOT NULL,
    type text NOT NULL,
    body text NOT NULL,
    UNIQUE (stream_id, seq)
);
CREATE INDEX metier_events_by_session ON metier_events (session_id, position);
CREATE TABLE metier_artifacts (
    digest text PRIMARY KEY,
    touched_ms bigint NOT NULL,
    size bigint NOT NULL,
    content bytea NOT NULL
);
CREATE TABLE metier_artifact_uses (
    session_id text NOT NULL,
    digest text NOT NULL,
    PRIMARY KEY (session_id, digest)
);
CREATE INDEX metier_artifact_uses_by_digest ON metier_artifact_uses (digest);
-- Documents of session state by key, with their version, and notices to other hosts (kept for an hour).
CREATE TABLE metier_states (
    session_id text NOT NULL,
    key text NOT NULL,
    version bigint NOT NULL,
    saved_ms bigint NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (session_id, key)
);
CREATE TABLE metier_notices (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    channel text NOT NULL,
    sent_ms bigint NOT NULL,
    payload text NOT NULL
);
