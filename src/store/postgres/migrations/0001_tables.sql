-- Version 1, part 1: the tables.
--
-- One table holds every job for its whole life. Names compare byte by byte (COLLATE "C"), so that order
-- and index scans do not hang on the database's locale.

CREATE TABLE {schema}.schema_version (
    one_row boolean PRIMARY KEY DEFAULT true CHECK (one_row),
    -- The last migration applied.
    version integer NOT NULL,
    -- The oldest version of the code that may work on this schema.
    min_reader integer NOT NULL
);

CREATE TABLE {schema}.jobs (
    id uuid PRIMARY KEY,
    due_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    finished_at timestamptz,
    expiry timestamptz,
    timeout_us bigint,
    receipt_sequence bigint,
    attempt integer NOT NULL DEFAULT 0,
    failures integer NOT NULL DEFAULT 0,
    version integer NOT NULL,
    settled_attempt integer,
    state smallint NOT NULL,
    settled_by smallint,
    cancel_requested boolean NOT NULL DEFAULT false,
    owner uuid,
    receipt_pump uuid,
    queue text COLLATE "C" NOT NULL,
    wire_name text COLLATE "C" NOT NULL,
    retry text,
    tags text[] COLLATE "C" NOT NULL DEFAULT '{}',
    payload bytea NOT NULL,
    output bytea,
    failure_detail text,
    CONSTRAINT jobs_state_known CHECK (state BETWEEN 0 AND 6),
    CONSTRAINT jobs_lease_complete CHECK (
        (state = 2) = (owner IS NOT NULL) AND (state = 2) = (expiry IS NOT NULL)),
    CONSTRAINT jobs_end_dated CHECK ((state >= 3) = (finished_at IS NOT NULL)),
    CONSTRAINT jobs_counters_valid CHECK (attempt >= 0 AND failures >= 0 AND version >= 1)
) WITH (
    -- A job is written three times in a normal life; room on its page keeps the versions together.
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.05
);

-- What a claim walks.
CREATE INDEX jobs_due ON {schema}.jobs (queue, due_at, id) WHERE state = 0;
-- What a worker holds, and what has lapsed: rows in this index are as many as workers hold. The expiry
-- is left out on purpose, so that a renewal touches no index.
CREATE INDEX jobs_leased ON {schema}.jobs (owner) WHERE state = 2;

-- Refuses any isolation level but READ COMMITTED: under a frozen snapshot, a read after a lock does not
-- see what the lock waited for.
CREATE FUNCTION {schema}.require_read_committed_v1() RETURNS void LANGUAGE plpgsql AS {tag}
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'this operation needs a transaction of isolation level READ COMMITTED'
            USING ERRCODE = 'BW002';
    END IF;
END
{tag};

-- Refuses a read-only transaction also where there is nothing to write yet: a pump on a standby or a database
-- set read-only must say so, not find its queues quiet.
CREATE FUNCTION {schema}.require_writable_v1() RETURNS void LANGUAGE plpgsql AS {tag}
BEGIN
    IF current_setting('transaction_read_only') <> 'off' THEN
        RAISE EXCEPTION 'the database is read-only' USING ERRCODE = '25006';
    END IF;
END
{tag};

-- Fails with a violated invariant, which is named by its trigger.
CREATE FUNCTION {schema}.violated_v1(p_trigger text, p_message text) RETURNS void LANGUAGE plpgsql AS {tag}
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'BW001', MESSAGE = p_message, HINT = p_trigger;
END
{tag};
