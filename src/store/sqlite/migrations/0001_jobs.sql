-- Version 1. Frozen once released: change the schema by adding a file, never by editing this one.
--
-- Times are whole microseconds since the Unix epoch. Names carry the prefix of the crate, since the
-- host keeps tables of its own in the same file.

CREATE TABLE backwave_jobs (
    -- What every write goes by: an integer key is the row's own address. It is not the order of
    -- claims, which is (due_at, id).
    seq              INTEGER PRIMARY KEY,
    id               BLOB    NOT NULL UNIQUE CHECK (length(id) = 16),
    queue            TEXT    NOT NULL,
    wire_name        TEXT    NOT NULL,
    version          INTEGER NOT NULL CHECK (version >= 1),
    -- 0 Scheduled, 1 AwaitingParent, 2 Leased, 3 Succeeded, 4 DeadLettered, 5 Quarantined, 6 Cancelled.
    -- Not bounded above: a later version may add a state, and a reader refuses what it does not know.
    state            INTEGER NOT NULL CHECK (state >= 0),
    due_at           INTEGER NOT NULL,
    attempt          INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    failures         INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
    owner            BLOB    CHECK (length(owner) = 16),
    expiry           INTEGER,
    cancel_requested INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested BETWEEN 0 AND 1),
    created_at       INTEGER NOT NULL,
    finished_at      INTEGER,
    -- How the last settled attempt ended: which one, by whose hand (1 holder, 2 reaper, 3 hand-back,
    -- 4 operator; 0 nobody yet), and the receipt of the write when it was an outcome.
    settled_attempt  INTEGER,
    settled_by       INTEGER NOT NULL DEFAULT 0 CHECK (settled_by >= 0),
    receipt_pump     BLOB    CHECK (length(receipt_pump) = 16),
    receipt_sequence INTEGER,
    retry            TEXT,
    timeout_us       INTEGER CHECK (timeout_us > 0),
    tags             TEXT,
    failure_detail   TEXT,
    output           BLOB,
    -- A payload stands here when it is short, and in backwave_payloads when it is long: SQLite writes
    -- a row whole at every change, and a lease should not cost the bytes of a payload.
    payload_bytes    INTEGER NOT NULL,
    payload          BLOB    CHECK (payload IS NULL OR length(payload) = payload_bytes),

    -- Owner, expiry and state agree: no row is half leased. (No IN over a list: the engine would build a
    -- table for it at every write.)
    CHECK ((state = 2) = (owner IS NOT NULL)),
    CHECK ((state = 2) = (expiry IS NOT NULL)),
    CHECK (finished_at IS NULL OR state > 2),
    CHECK (state NOT BETWEEN 3 AND 6 OR finished_at IS NOT NULL),
    CHECK ((settled_by = 0) = (settled_attempt IS NULL)),
    CHECK ((receipt_pump IS NULL) = (receipt_sequence IS NULL)),
    CHECK (receipt_pump IS NULL OR settled_by <> 0),
    CHECK (output IS NULL OR state > 2)
) STRICT;

CREATE TABLE backwave_payloads (
    seq     INTEGER PRIMARY KEY REFERENCES backwave_jobs (seq) ON DELETE CASCADE,
    payload BLOB    NOT NULL
) STRICT;

CREATE INDEX backwave_jobs_due    ON backwave_jobs (queue, due_at, id)          WHERE state = 0;
CREATE INDEX backwave_jobs_await  ON backwave_jobs (queue)                      WHERE state = 1;
CREATE INDEX backwave_jobs_expiry ON backwave_jobs (expiry, queue)              WHERE state = 2;
CREATE INDEX backwave_jobs_owner  ON backwave_jobs (owner)                      WHERE state = 2;
CREATE INDEX backwave_jobs_ended  ON backwave_jobs (state, finished_at, queue)  WHERE state > 2;

-- For people with the sqlite3 shell, and for programs that only look: part of the public face.
CREATE VIEW backwave_jobs_v1 AS
SELECT lower(substr(hex(j.id), 1, 8) || '-' || substr(hex(j.id), 9, 4) || '-' || substr(hex(j.id), 13, 4)
           || '-' || substr(hex(j.id), 17, 4) || '-' || substr(hex(j.id), 21)) AS id,
       j.queue,
       j.wire_name,
       j.version,
       CASE j.state
           WHEN 0 THEN 'Scheduled'
           WHEN 1 THEN 'AwaitingParent'
           WHEN 2 THEN 'Leased'
           WHEN 3 THEN 'Succeeded'
           WHEN 4 THEN 'DeadLettered'
           WHEN 5 THEN 'Quarantined'
           WHEN 6 THEN 'Cancelled'
       END AS state,
       j.attempt,
       j.failures,
       strftime('%Y-%m-%dT%H:%M:%fZ', j.due_at / 1e6, 'unixepoch') AS due_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', j.created_at / 1e6, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', j.finished_at / 1e6, 'unixepoch') AS finished_at,
       lower(hex(j.owner)) AS owner,
       strftime('%Y-%m-%dT%H:%M:%fZ', j.expiry / 1e6, 'unixepoch') AS expiry,
       j.cancel_requested,
       j.timeout_us / 1e3 AS timeout_ms,
       j.retry,
       j.tags,
       CAST(coalesce(j.payload, p.payload) AS TEXT) AS payload,
       CAST(j.output AS TEXT) AS output,
       j.failure_detail
  FROM backwave_jobs AS j
  LEFT JOIN backwave_payloads AS p ON p.seq = j.seq;
