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
