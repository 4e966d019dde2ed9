-- Version 2: dependents, keys, queue settings, history, audit, pumps, and counts of what has ended. Frozen once
-- released, as version 1. A reader of version 1 would hand out what a queue withholds and leave dependents
-- waiting, so `min_reader` rises with it.
--
-- Edges name jobs by id, never by row address: an address can be given out again.

-- 0 on success of every parent, 1 on any end of theirs. Of no meaning without parents.
ALTER TABLE backwave_jobs ADD COLUMN parent_rule INTEGER NOT NULL DEFAULT 0 CHECK (parent_rule >= 0);

-- Of the jobs with one unique key at most one lives, and of the jobs of a queue with one concurrency key only so
-- many are leased at a time.
ALTER TABLE backwave_jobs ADD COLUMN unique_key TEXT;
ALTER TABLE backwave_jobs ADD COLUMN concurrency_key TEXT;
-- The tick of a schedule that a job was minted for.
ALTER TABLE backwave_jobs ADD COLUMN schedule TEXT;
ALTER TABLE backwave_jobs ADD COLUMN tick INTEGER CHECK ((schedule IS NULL) = (tick IS NULL));

CREATE UNIQUE INDEX backwave_jobs_unique_key ON backwave_jobs (unique_key)
    WHERE unique_key IS NOT NULL AND state < 3;

-- Every queue that ever had a job with a concurrency key; a row is never deleted. Where there is none, no claim
-- asks about keys.
CREATE TABLE backwave_keyed_queues (
    queue TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- What holds a dependent back: a row for each parent that lives; deleted as it is resolved.
CREATE TABLE backwave_gates (
    parent BLOB NOT NULL CHECK (length(parent) = 16),
    child  BLOB NOT NULL CHECK (length(child) = 16),
    PRIMARY KEY (parent, child)
) STRICT, WITHOUT ROWID;

CREATE INDEX backwave_gates_child ON backwave_gates (child);

-- Whose child a job is; kept as long as the child. `place` is the parent's in the order it was enqueued with.
CREATE TABLE backwave_lineage (
    child  BLOB    NOT NULL CHECK (length(child) = 16),
    place  INTEGER NOT NULL CHECK (place >= 0),
    parent BLOB    NOT NULL CHECK (length(parent) = 16),
    PRIMARY KEY (child, place)
) STRICT, WITHOUT ROWID;

CREATE INDEX backwave_lineage_parent ON backwave_lineage (parent);

-- Parents that have ended with more gates than their write could resolve.
CREATE TABLE backwave_latch_backlog (
    parent BLOB PRIMARY KEY CHECK (length(parent) = 16)
) STRICT, WITHOUT ROWID;

-- Every queue that was ever set; a row is never deleted.
CREATE TABLE backwave_queues (
    queue             TEXT    PRIMARY KEY,
    is_paused         INTEGER NOT NULL DEFAULT 0 CHECK (is_paused BETWEEN 0 AND 1),
    concurrency_limit INTEGER CHECK (concurrency_limit >= 0),
    -- Per concurrency key; null means one.
    key_limit         INTEGER CHECK (key_limit >= 0)
) STRICT, WITHOUT ROWID;

-- Changes of state. AUTOINCREMENT, so that a position is never given out again after a purge.
CREATE TABLE backwave_transitions (
    position   INTEGER PRIMARY KEY AUTOINCREMENT,
    job        BLOB    NOT NULL CHECK (length(job) = 16),
    at         INTEGER NOT NULL,
    from_state INTEGER CHECK (from_state >= 0),
    to_state   INTEGER NOT NULL CHECK (to_state >= 0),
    attempt    INTEGER NOT NULL CHECK (attempt >= 0),
    -- 1 holder, 2 reaper, 3 hand-back, 4 operator, 5 enqueue, 6 claim, 7 parent.
    by_whom    INTEGER NOT NULL CHECK (by_whom >= 0),
    worker     BLOB    CHECK (length(worker) = 16),
    detail     TEXT
) STRICT;

CREATE INDEX backwave_transitions_job ON backwave_transitions (job);

-- What operators did.
CREATE TABLE backwave_audit (
    position          INTEGER PRIMARY KEY AUTOINCREMENT,
    at                INTEGER NOT NULL,
    actor             TEXT    NOT NULL,
    -- 1 cancel, 2 requeue, 3 revoke, 4 pause, 5 resume, 6 limit, 7 limit per concurrency key; of schedules 8 pause, 9 resume,
    -- 10 remove, 11 trigger; of observers 12 redeliver, 13 discard, 14 remove.
    action            INTEGER NOT NULL CHECK (action >= 0),
    concurrency_limit INTEGER,
    job               BLOB    CHECK (length(job) = 16),
    queue             TEXT    NOT NULL,
    -- The schedule or the observer that it was done to.
    subject           TEXT
) STRICT;

CREATE INDEX backwave_audit_at    ON backwave_audit (at);
CREATE INDEX backwave_audit_job   ON backwave_audit (job) WHERE job IS NOT NULL;
CREATE INDEX backwave_audit_queue ON backwave_audit (queue);
CREATE INDEX backwave_audit_actor ON backwave_audit (actor);

-- What pumps tell of themselves. `queues` and `wire_names` are JSON arrays.
CREATE TABLE backwave_pumps (
    worker         BLOB    PRIMARY KEY CHECK (length(worker) = 16),
    group_name     TEXT    NOT NULL,
    host           TEXT    NOT NULL,
    pid            INTEGER NOT NULL CHECK (pid >= 0),
    queues         TEXT    NOT NULL,
    wire_names     TEXT    NOT NULL,
    version        TEXT    NOT NULL,
    started_at     INTEGER NOT NULL,
    last_seen      INTEGER NOT NULL,
    halted_at      INTEGER,
    halt_type_name TEXT,
    halt_message   TEXT,
    halt_trigger   TEXT,
    CHECK ((halted_at IS NULL) = (halt_type_name IS NULL)),
    CHECK ((halted_at IS NULL) = (halt_message IS NULL)),
    CHECK (halt_trigger IS NULL OR halted_at IS NOT NULL)
) STRICT, WITHOUT ROWID;

-- How many jobs of a queue have ended in a state: written by whoever ends or requeues a job, in the same
-- transaction, so that counting costs nothing. Deletions are counted by the trigger, whoever deletes.
CREATE TABLE backwave_ended_counts (
    queue TEXT    NOT NULL,
    state INTEGER NOT NULL CHECK (state > 2),
    jobs  INTEGER NOT NULL,
    PRIMARY KEY (queue, state)
) STRICT, WITHOUT ROWID;

INSERT INTO backwave_ended_counts (queue, state, jobs)
SELECT queue, state, count(*) FROM backwave_jobs WHERE state > 2 GROUP BY queue, state;

CREATE TRIGGER backwave_jobs_deleted AFTER DELETE ON backwave_jobs WHEN old.state > 2
BEGIN
    UPDATE backwave_ended_counts SET jobs = jobs - 1 WHERE queue = old.queue AND state = old.state;
END;

-- What waits with a concurrency key stands apart from what waits without: in its order, and by its key, so that
-- many jobs of a key that has no slot hide neither the other keys nor the jobs without one. The key stands last in
-- the first two for who counts: the engine asks the row itself for what an index has not, also where the condition
-- of the index says it.
DROP INDEX backwave_jobs_due;
CREATE INDEX backwave_jobs_due       ON backwave_jobs (queue, due_at, id, concurrency_key)
    WHERE state = 0 AND concurrency_key IS NULL;
CREATE INDEX backwave_jobs_keyed_due ON backwave_jobs (queue, due_at, id, concurrency_key)
    WHERE state = 0 AND concurrency_key IS NOT NULL;
CREATE INDEX backwave_jobs_keyed     ON backwave_jobs (queue, concurrency_key, due_at, id)
    WHERE state = 0 AND concurrency_key IS NOT NULL;
CREATE INDEX backwave_jobs_key_slots ON backwave_jobs (queue, concurrency_key)
    WHERE state = 2 AND concurrency_key IS NOT NULL;

-- Two indexes are ordered anew, at no price for who writes: leases by queue, for limits; what has ended in
-- the order of a purge, its counts being kept elsewhere. The third finds the few failed ones among many.
DROP INDEX backwave_jobs_expiry;
DROP INDEX backwave_jobs_ended;
CREATE INDEX backwave_jobs_leased ON backwave_jobs (queue, expiry)          WHERE state = 2;
CREATE INDEX backwave_jobs_ended  ON backwave_jobs (state, finished_at, id) WHERE state > 2;
CREATE INDEX backwave_jobs_failed ON backwave_jobs (state, id)              WHERE state = 4 OR state = 5;

-- As version 1 of the view, and with keys and parents: a JSON array of their ids, in their order.
CREATE VIEW backwave_jobs_v2 AS
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
       j.failure_detail,
       CASE j.parent_rule WHEN 0 THEN 'OnSuccess' WHEN 1 THEN 'OnAnyTerminal' END AS parent_rule,
       j.unique_key,
       j.concurrency_key,
       (SELECT json_group_array(lower(substr(hex(l.parent), 1, 8) || '-' || substr(hex(l.parent), 9, 4) || '-'
                   || substr(hex(l.parent), 13, 4) || '-' || substr(hex(l.parent), 17, 4) || '-'
                   || substr(hex(l.parent), 21)))
          FROM (SELECT parent FROM backwave_lineage WHERE child = j.id ORDER BY place) AS l) AS parents
  FROM backwave_jobs AS j
  LEFT JOIN backwave_payloads AS p ON p.seq = j.seq;
