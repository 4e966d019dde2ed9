-- Version 1, part 4: keeping leases, giving them back, and finding the dead ones.

CREATE FUNCTION {schema}.renew_v1(
    p_worker uuid,
    p_jobs uuid[],
    p_attempts bigint[],
    p_lease_us bigint,
    p_now timestamptz DEFAULT NULL,
    OUT renewed boolean[],
    OUT cancels boolean[],
    OUT expiry timestamptz,
    OUT store_time timestamptz
) LANGUAGE plpgsql VOLATILE AS {tag}
#variable_conflict use_column
DECLARE
    v_tids tid[];
    v_expiry timestamptz;
    v_expected integer;
    v_rows integer;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM {schema}.require_read_committed_v1();
    END IF;
    WITH r AS MATERIALIZED (
        SELECT u.job, u.attempt, u.place
        FROM unnest(p_jobs, p_attempts) WITH ORDINALITY AS u (job, attempt, place)
        ORDER BY u.job
    ), l AS MATERIALIZED (
        SELECT r.place, j.tid, j.expiry, j.cancel_requested,
            j.state = 2 AND j.attempt = r.attempt AND j.owner = p_worker AS leased
        FROM r LEFT JOIN LATERAL (
            SELECT k.ctid AS tid, k.state, k.attempt, k.owner, k.expiry, k.cancel_requested
            FROM {schema}.jobs AS k WHERE k.id = r.job FOR NO KEY UPDATE
        ) AS j ON true
    ), c AS MATERIALIZED (
        SELECT coalesce(p_now, clock_timestamp()) AS now
        FROM (SELECT count(*) AS n FROM l) AS locked WHERE locked.n >= 0
    ), v AS (
        SELECT l.tid, c.now, l.cancel_requested, coalesce(l.leased AND l.expiry > c.now, false) AS held
        FROM l CROSS JOIN c
        ORDER BY l.place
    )
    SELECT array_agg(v.held), array_agg(coalesce(v.cancel_requested, false)),
        array_agg(CASE WHEN v.held THEN v.tid END), min(v.now), count(DISTINCT v.tid) FILTER (WHERE v.held)
    INTO renewed, cancels, v_tids, store_time, v_expected
    FROM v;
    store_time := coalesce(store_time, p_now, clock_timestamp());
    v_expiry := least(store_time + p_lease_us * interval '1 microsecond', timestamptz '9999-12-30 00:00:00+00');
    expiry := v_expiry;
    UPDATE {schema}.jobs AS j SET expiry = v_expiry
    FROM unnest(v_tids) AS r (tid) WHERE j.ctid = r.tid;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    IF v_rows <> v_expected THEN
        PERFORM {schema}.violated_v1('UnexpectedAffectedRowCount',
            format('a renewal updated %s of %s rows that it had locked', v_rows, v_expected));
    END IF;
END
{tag};

CREATE FUNCTION {schema}.hand_back_v1(
    p_worker uuid,
    p_jobs uuid[],
    p_attempts bigint[],
    p_now timestamptz DEFAULT NULL,
    OUT given boolean[],
    OUT store_time timestamptz
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_tids tid[];
    v_expected integer;
    v_rows integer;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM {schema}.require_read_committed_v1();
    END IF;
    WITH r AS MATERIALIZED (
        SELECT u.job, u.attempt, u.place
        FROM unnest(p_jobs, p_attempts) WITH ORDINALITY AS u (job, attempt, place)
        ORDER BY u.job
    ), l AS MATERIALIZED (
        SELECT r.place, j.tid, j.expiry,
            j.state = 2 AND j.attempt = r.attempt AND j.owner = p_worker AS leased
        FROM r LEFT JOIN LATERAL (
            SELECT k.ctid AS tid, k.state, k.attempt, k.owner, k.expiry
            FROM {schema}.jobs AS k WHERE k.id = r.job FOR NO KEY UPDATE
        ) AS j ON true
    ), c AS MATERIALIZED (
        SELECT coalesce(p_now, clock_timestamp()) AS now
        FROM (SELECT count(*) AS n FROM l) AS locked WHERE locked.n >= 0
    ), v AS (
        SELECT l.tid, c.now, coalesce(l.leased AND l.expiry > c.now, false) AS held
        FROM l CROSS JOIN c
        ORDER BY l.place
    )
    SELECT array_agg(v.held), array_agg(CASE WHEN v.held THEN v.tid END), min(v.now),
        count(DISTINCT v.tid) FILTER (WHERE v.held)
    INTO given, v_tids, store_time, v_expected
    FROM v;
    store_time := coalesce(store_time, p_now, clock_timestamp());
    UPDATE {schema}.jobs AS j SET
        state = CASE WHEN j.cancel_requested THEN 6 ELSE 0 END,
        owner = NULL,
        expiry = NULL,
        due_at = CASE WHEN j.cancel_requested THEN j.due_at ELSE least(j.due_at, store_time) END,
        finished_at = CASE WHEN j.cancel_requested THEN store_time END,
        settled_attempt = j.attempt,
        settled_by = 3,
        receipt_pump = NULL,
        receipt_sequence = NULL
    FROM unnest(v_tids) AS r (tid) WHERE j.ctid = r.tid;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    IF v_rows <> v_expected THEN
        PERFORM {schema}.violated_v1('UnexpectedAffectedRowCount',
            format('a hand-back updated %s of %s rows that it had locked', v_rows, v_expected));
    END IF;
END
{tag};

-- Always at least one row, for the store's time; no id where nothing has lapsed.
CREATE FUNCTION {schema}.find_lapsed_v1(p_queues text[], p_max integer, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (
    store_time timestamptz, id uuid, attempt integer, owner uuid, expiry timestamptz, failures integer,
    retry text, wire_name text, queue text
) LANGUAGE plpgsql VOLATILE AS {tag}
#variable_conflict use_column
DECLARE
    v_now CONSTANT timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    -- What is found is to be settled.
    IF current_setting('transaction_read_only') <> 'off' THEN
        PERFORM {schema}.require_writable_v1();
    END IF;
    RETURN QUERY
    SELECT v_now, j.id, j.attempt, j.owner, j.expiry, j.failures, j.retry, j.wire_name, j.queue
    FROM (SELECT 1) AS one LEFT JOIN LATERAL (
        SELECT k.id, k.attempt, k.owner, k.expiry, k.failures, k.retry, k.wire_name, k.queue
        FROM {schema}.jobs AS k
        WHERE k.state = 2 AND k.expiry <= v_now AND k.queue = ANY (p_queues)
        ORDER BY k.expiry, k.id LIMIT p_max
    ) AS j ON true;
END
{tag};

-- Always at least one row, for the store's time; no id where the worker holds nothing.
CREATE FUNCTION {schema}.held_by_v1(p_worker uuid, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (store_time timestamptz, id uuid, attempt integer, expiry timestamptz)
LANGUAGE plpgsql VOLATILE AS {tag}
#variable_conflict use_column
DECLARE
    v_now CONSTANT timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    RETURN QUERY
    SELECT v_now, j.id, j.attempt, j.expiry
    FROM (SELECT 1) AS one LEFT JOIN LATERAL (
        SELECT k.id, k.attempt, k.expiry FROM {schema}.jobs AS k
        WHERE k.state = 2 AND k.owner = p_worker ORDER BY k.id
    ) AS j ON true;
END
{tag};
