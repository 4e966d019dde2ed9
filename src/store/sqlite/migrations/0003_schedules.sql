-- Version 3: recurring schedules. Frozen once released, as version 1. It only adds: a reader of version 2 works
-- beside it, and mints nothing.

CREATE TABLE backwave_schedules (
    name        TEXT    NOT NULL PRIMARY KEY,
    owner       TEXT    NOT NULL,
    -- When it ticks, and what a tick mints: JSON texts that only programs understand.
    timing      TEXT    NOT NULL,
    definition  TEXT    NOT NULL,
    -- Grows with each write: what a decision about the schedule is compared with.
    revision    INTEGER NOT NULL DEFAULT 1 CHECK (revision >= 1),
    is_paused   INTEGER NOT NULL DEFAULT 0 CHECK (is_paused BETWEEN 0 AND 1),
    -- Every tick up to here is settled: minted or skipped.
    cursor      INTEGER NOT NULL,
    -- When a node looks at it next; null, once it has ended.
    look_at     INTEGER,
    next_tick   INTEGER,
    -- The last tick that minted a job, and that job. The job may have been purged since.
    last_tick   INTEGER,
    last_job    BLOB    CHECK (length(last_job) = 16),
    -- How many ticks were skipped, and the last of them: 1 missed, 2 overlap.
    skipped     INTEGER NOT NULL DEFAULT 0 CHECK (skipped >= 0),
    skip_tick   INTEGER,
    skip_reason INTEGER CHECK (skip_reason >= 0),
    -- What went wrong when a node looked at it last, and since when it does.
    error       TEXT,
    error_since INTEGER,
    created_at  INTEGER NOT NULL,
    CHECK ((last_tick IS NULL) = (last_job IS NULL)),
    CHECK ((skip_tick IS NULL) = (skip_reason IS NULL)),
    CHECK ((error IS NULL) = (error_since IS NULL))
) STRICT;

-- What a node looks for.
CREATE INDEX backwave_schedules_due ON backwave_schedules (look_at, name)
    WHERE is_paused = 0 AND look_at IS NOT NULL;

-- As version 2 of the view, and with the tick of a schedule that a job was minted for.
CREATE VIEW backwave_jobs_v3 AS
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
          FROM (SELECT parent FROM backwave_lineage WHERE child = j.id ORDER BY place) AS l) AS parents,
       j.schedule,
       strftime('%Y-%m-%dT%H:%M:%fZ', j.tick / 1e6, 'unixepoch') AS tick
  FROM backwave_jobs AS j
  LEFT JOIN backwave_payloads AS p ON p.seq = j.seq;

-- For people and for programs that only look: part of the public face.
CREATE VIEW backwave_schedules_v1 AS
SELECT s.name,
       s.owner,
       s.timing,
       s.definition,
       s.is_paused,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.cursor / 1e6, 'unixepoch') AS settled_to,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.look_at / 1e6, 'unixepoch') AS look_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.next_tick / 1e6, 'unixepoch') AS next_tick,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.last_tick / 1e6, 'unixepoch') AS last_tick,
       CASE WHEN s.last_job IS NOT NULL THEN
           lower(substr(hex(s.last_job), 1, 8) || '-' || substr(hex(s.last_job), 9, 4) || '-'
               || substr(hex(s.last_job), 13, 4) || '-' || substr(hex(s.last_job), 17, 4) || '-'
               || substr(hex(s.last_job), 21))
       END AS last_job,
       s.skipped,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.skip_tick / 1e6, 'unixepoch') AS last_skipped_tick,
       CASE s.skip_reason WHEN 1 THEN 'Missed' WHEN 2 THEN 'Overlap' END AS last_skip_reason,
       s.error,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.error_since / 1e6, 'unixepoch') AS error_since,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.created_at / 1e6, 'unixepoch') AS created_at
  FROM backwave_schedules AS s;
