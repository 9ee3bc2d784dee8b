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
