-- Version 3, part 1: recurring schedules.
--
-- Whoever changes schedules locks their rows by ascending name, before any job.

CREATE TABLE {schema}.schedules (
    name text COLLATE "C" PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    -- Grows with each write: what a decision about the schedule is compared with.
    revision bigint NOT NULL,
    skipped bigint NOT NULL DEFAULT 0,
    -- Every tick up to here is settled: minted or skipped.
    cursor timestamptz NOT NULL,
    -- When a node looks at it next; null, once it has ended.
    look_at timestamptz,
    next_tick timestamptz,
    -- The last tick that minted a job, and that job. The job may have been purged since.
    last_tick timestamptz,
    last_job uuid,
    -- The last tick that was skipped: 1 missed, 2 overlap.
    skip_tick timestamptz,
    skip_reason smallint,
    -- What went wrong when a node looked at it last, and since when it does.
    error text,
    error_since timestamptz,
    created_at timestamptz NOT NULL,
    is_paused boolean NOT NULL DEFAULT false,
    -- When it ticks, and what a tick mints: JSON texts that only programs understand.
    timing text NOT NULL,
    definition text NOT NULL,
    CONSTRAINT schedules_counters_valid CHECK (revision >= 1 AND skipped >= 0),
    CONSTRAINT schedules_last_complete CHECK ((last_tick IS NULL) = (last_job IS NULL)),
    CONSTRAINT schedules_skip_complete CHECK ((skip_tick IS NULL) = (skip_reason IS NULL)),
    CONSTRAINT schedules_error_complete CHECK ((error IS NULL) = (error_since IS NULL))
);
-- What a node looks for.
CREATE INDEX schedules_due ON {schema}.schedules (look_at, name) WHERE NOT is_paused AND look_at IS NOT NULL;
