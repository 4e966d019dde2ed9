-- Version 2, part 1: the tables of dependents, keys, queue settings, history, audit and announcements.

-- First, since it waits for whoever uses the table: all that follows stands behind this lock.
ALTER TABLE {schema}.jobs ADD COLUMN parent_rule smallint NOT NULL DEFAULT 0;
-- Not validated: the default is valid, and a look at every row would take its time under the lock.
ALTER TABLE {schema}.jobs
    ADD CONSTRAINT jobs_parent_rule_known CHECK (parent_rule BETWEEN 0 AND 1) NOT VALID;
-- The tick of a schedule that a job was minted for.
ALTER TABLE {schema}.jobs ADD COLUMN schedule text COLLATE "C", ADD COLUMN tick timestamptz;
ALTER TABLE {schema}.jobs
    ADD CONSTRAINT jobs_tick_complete CHECK ((schedule IS NULL) = (tick IS NULL)) NOT VALID;

-- Of the jobs with one unique key at most one lives, and of the jobs of a queue with one concurrency key only so
-- many are leased at a time.
ALTER TABLE {schema}.jobs ADD COLUMN unique_key text COLLATE "C";
ALTER TABLE {schema}.jobs ADD COLUMN concurrency_key text COLLATE "C";
CREATE UNIQUE INDEX jobs_unique_key ON {schema}.jobs (unique_key) WHERE unique_key IS NOT NULL AND state < 3;

-- What waits with a concurrency key stands apart from what waits without: in its order, and by its key, so that
-- many jobs of a key that has no slot hide neither the other keys nor the jobs without one.
DROP INDEX {schema}.jobs_due;
CREATE INDEX jobs_due ON {schema}.jobs (queue, due_at, id) WHERE state = 0 AND concurrency_key IS NULL;
CREATE INDEX jobs_keyed_due ON {schema}.jobs (queue, due_at, id) WHERE state = 0 AND concurrency_key IS NOT NULL;
-- The sums let these two serve only who asks for them in the same words: a planner that thinks the table small takes
-- any index for as good as another.
CREATE INDEX jobs_keyed ON {schema}.jobs (queue, concurrency_key, due_at, id)
    WHERE state + 0 = 0 AND concurrency_key IS NOT NULL;
CREATE INDEX jobs_key_slots ON {schema}.jobs (queue, concurrency_key)
    WHERE state + 0 = 2 AND concurrency_key IS NOT NULL;

-- The queues that ever had a job with a concurrency key. Whoever enqueues the first one adds a row and waits for
-- nobody, so there may be several of one queue; none is changed or deleted. A claim that takes jobs with a key
-- locks those it sees: of any two claims one sees all that the other does, so that they come one after another.
CREATE TABLE {schema}.keyed_queues (
    name text COLLATE "C" NOT NULL
);
CREATE INDEX keyed_queues_name ON {schema}.keyed_queues (name);

-- What a purge walks.
CREATE INDEX jobs_ended ON {schema}.jobs (state, finished_at, id) WHERE state >= 3;
-- The states that few jobs are in, for whoever looks for those few.
CREATE INDEX jobs_rare ON {schema}.jobs (state, id) WHERE state IN (1, 4, 5);
-- What counts against a queue's limit.
CREATE INDEX jobs_leased_queue ON {schema}.jobs (queue) WHERE state = 2;

-- What holds a dependent back: one row per parent that it waits for, deleted as the parent ends.
CREATE TABLE {schema}.gates (
    parent uuid NOT NULL,
    child uuid NOT NULL,
    PRIMARY KEY (parent, child)
);
CREATE INDEX gates_child ON {schema}.gates (child);

-- Which parents a job was enqueued with; kept as long as the job.
CREATE TABLE {schema}.lineage (
    child uuid NOT NULL,
    parent uuid NOT NULL,
    place smallint NOT NULL,
    PRIMARY KEY (child, parent)
);
CREATE INDEX lineage_parent ON {schema}.lineage (parent);

-- Parents that have ended, and left gates for later.
CREATE TABLE {schema}.latch_backlog (
    parent uuid PRIMARY KEY
);

-- A row per queue that was ever set. None is ever deleted.
CREATE TABLE {schema}.queues (
    name text COLLATE "C" PRIMARY KEY,
    is_paused boolean NOT NULL DEFAULT false,
    concurrency_limit bigint,
    -- Per concurrency key; null means one.
    key_limit bigint,
    CONSTRAINT queues_limit_valid CHECK (concurrency_limit BETWEEN 0 AND 4294967295),
    CONSTRAINT queues_key_limit_valid CHECK (key_limit BETWEEN 0 AND 4294967295)
);

-- What became of jobs. A position says nothing of the order of commits, which the transaction's id is for.
CREATE TABLE {schema}.transitions (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at timestamptz NOT NULL,
    job uuid NOT NULL,
    worker uuid,
    attempt integer NOT NULL,
    from_state smallint,
    to_state smallint NOT NULL,
    hand smallint NOT NULL,
    detail text
);
CREATE INDEX transitions_job ON {schema}.transitions (job, position);

CREATE TABLE {schema}.audit (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    job uuid,
    concurrency_limit bigint,
    action smallint NOT NULL,
    actor text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    -- The schedule or the observer that it was done to.
    subject text COLLATE "C"
);
CREATE INDEX audit_at ON {schema}.audit (at, position);
CREATE INDEX audit_job ON {schema}.audit (job, position) WHERE job IS NOT NULL;

-- The pumps that have announced themselves.
CREATE TABLE {schema}.pumps (
    worker uuid PRIMARY KEY,
    started_at timestamptz NOT NULL,
    last_seen timestamptz NOT NULL,
    halted_at timestamptz,
    pid bigint NOT NULL,
    group_name text COLLATE "C" NOT NULL,
    host text NOT NULL,
    queues text[] COLLATE "C" NOT NULL,
    wire_names text[] COLLATE "C" NOT NULL,
    version text NOT NULL,
    halt_type text,
    halt_message text,
    halt_trigger text,
    CONSTRAINT pumps_halt_complete CHECK (
        (halted_at IS NULL) = (halt_type IS NULL) AND (halted_at IS NULL) = (halt_message IS NULL))
);

-- How many jobs have ended, as a sum of changes: whoever ends jobs adds a row and waits for nobody. A purge
-- sums them up.
CREATE TABLE {schema}.ended_deltas (
    queue text COLLATE "C" NOT NULL,
    state smallint NOT NULL,
    delta bigint NOT NULL
);
INSERT INTO {schema}.ended_deltas (queue, state, delta)
SELECT j.queue, j.state, count(*) FROM {schema}.jobs AS j WHERE j.state BETWEEN 3 AND 6 GROUP BY j.queue, j.state;

-- What is deleted is counted wherever it is deleted, also by hand.
CREATE FUNCTION {schema}.count_deleted_v2() RETURNS trigger LANGUAGE plpgsql AS {tag}
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        DELETE FROM {schema}.ended_deltas;
    ELSE
        INSERT INTO {schema}.ended_deltas (queue, state, delta)
        SELECT g.queue, g.state, -count(*) FROM gone AS g WHERE g.state BETWEEN 3 AND 6 GROUP BY g.queue, g.state;
    END IF;
    RETURN NULL;
END
{tag};
CREATE TRIGGER jobs_deleted AFTER DELETE ON {schema}.jobs REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.count_deleted_v2();
CREATE TRIGGER jobs_truncated AFTER TRUNCATE ON {schema}.jobs
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.count_deleted_v2();
