-- Version 2, part 4: the report, and the exchange.
--
-- What ends jobs resolves the gates of their dependents in the same transaction. Where there are none, and no
-- history is kept, that costs two looks at an index.
--
-- A job occurs at most once in one call. Verdicts: 0 applied, 1 applied before by this receipt, and stale:
-- 2 lapsed, 3 reaped, 4 revoked, 5 gone, 6 unknown.

CREATE FUNCTION {schema}.report_v2(
    p_jobs uuid[],
    p_attempts bigint[],
    p_owners uuid[],
    -- Whether a reaper writes, rather than the holder.
    p_reaps boolean[],
    p_pumps uuid[],
    p_sequences bigint[],
    -- The state that the outcome leads to where no cancel request stands.
    p_states smallint[],
    p_failed boolean[],
    p_delays_us bigint[],
    p_outputs bytea[],
    p_details text[],
    -- 0 for none, 1 for transitions, 2 for transitions with what went wrong.
    p_history smallint,
    p_now timestamptz DEFAULT NULL,
    OUT verdicts smallint[],
    OUT states smallint[],
    OUT store_time timestamptz,
    -- The queues with dependents that were released, and when the first of each is due.
    OUT released text[],
    OUT released_dues timestamptz[]
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_tids tid[];
    v_next smallint[];
    v_expected integer;
    v_unknown boolean;
    v_rows integer;
    v_ended uuid[];
BEGIN
    -- An observer is to be told of it, whatever is kept otherwise.
    IF p_history = 0 AND EXISTS (SELECT FROM {schema}.observed) THEN
        p_history := 1;
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM {schema}.require_read_committed_v1();
    END IF;
    IF EXISTS (SELECT 1 FROM {schema}.gates AS g WHERE g.parent = ANY (p_jobs)) THEN
        PERFORM {schema}.lock_family_v2(p_jobs, e.ids, e.states, 1000)
        FROM (
            SELECT array_agg(u.job) AS ids, array_agg(CASE u.state WHEN 3 THEN 3 ELSE 6 END::smallint) AS states
            FROM unnest(p_jobs, p_states) AS u (job, state) JOIN {schema}.jobs AS j ON j.id = u.job
            WHERE u.state <> 0 OR j.cancel_requested
        ) AS e;
    END IF;
    -- Locks the batch by ascending id and judges it by the locked versions; the clock is read when the
    -- last lock is held.
    WITH r AS MATERIALIZED (
        SELECT u.job, u.attempt, u.owner, u.reap, u.pump, u.sequence, u.state, u.place
        FROM unnest(p_jobs, p_attempts, p_owners, p_reaps, p_pumps, p_sequences, p_states) WITH ORDINALITY
            AS u (job, attempt, owner, reap, pump, sequence, state, place)
        ORDER BY u.job
    ), l AS MATERIALIZED (
        SELECT r.place, r.attempt, r.reap, r.state AS base, j.tid, j.state, j.expiry,
            j.settled_attempt, j.settled_by, j.cancel_requested,
            j.state = 2 AND j.attempt = r.attempt AND j.owner = r.owner AS leased,
            j.receipt_pump = r.pump AND j.receipt_sequence = r.sequence AS repeated
        FROM r LEFT JOIN LATERAL (
            SELECT k.ctid AS tid, k.state, k.attempt, k.owner, k.expiry, k.settled_attempt, k.settled_by,
                k.receipt_pump, k.receipt_sequence, k.cancel_requested
            FROM {schema}.jobs AS k WHERE k.id = r.job FOR NO KEY UPDATE
        ) AS j ON true
    ), c AS MATERIALIZED (
        SELECT coalesce(p_now, clock_timestamp()) AS now
        FROM (SELECT count(*) AS n FROM l) AS locked WHERE locked.n >= 0
    ), v AS (
        SELECT l.place, l.tid, l.state, c.now,
            CASE
                WHEN l.state IS NULL THEN 5
                WHEN l.leased AND (l.expiry > c.now) <> l.reap THEN 0
                WHEN l.repeated THEN 1
                WHEN l.leased THEN 2
                WHEN l.settled_attempt = l.attempt
                    THEN CASE l.settled_by WHEN 2 THEN 3 WHEN 4 THEN 4 ELSE 6 END
                WHEN l.settled_attempt > l.attempt THEN 3
                ELSE 6
            END AS verdict,
            CASE WHEN l.cancel_requested AND l.base IN (0, 4) THEN 6 ELSE l.base END AS next,
            l.state NOT BETWEEN 0 AND 6 OR l.settled_by NOT BETWEEN 1 AND 4 AS unknown
        FROM l CROSS JOIN c
        ORDER BY l.place
    )
    SELECT array_agg(v.verdict), array_agg(CASE v.verdict WHEN 0 THEN v.next ELSE v.state END),
        array_agg(v.tid), min(v.now), count(*) FILTER (WHERE v.verdict = 0), bool_or(v.unknown)
    INTO verdicts, states, v_tids, store_time, v_expected, v_unknown
    FROM v;
    IF v_unknown THEN
        PERFORM {schema}.violated_v1('UndefinedEnumValueStored',
            'a job of a report has a state or a settler that no version up to this one writes');
    END IF;
    store_time := coalesce(store_time, p_now, clock_timestamp());
    IF v_expected = 0 THEN
        RETURN;
    END IF;
    WITH w AS (
        UPDATE {schema}.jobs AS j SET
            state = r.state,
            owner = NULL,
            expiry = NULL,
            failures = j.failures + r.failed::integer,
            due_at = CASE r.state
                WHEN 0 THEN least(store_time + r.delay_us * interval '1 microsecond', timestamptz '9999-12-30 00:00:00+00')
                ELSE j.due_at END,
            finished_at = CASE WHEN r.state >= 3 THEN store_time END,
            settled_attempt = j.attempt,
            settled_by = CASE WHEN r.reap THEN 2 ELSE 1 END,
            receipt_pump = r.pump,
            receipt_sequence = r.sequence,
            output = CASE r.state WHEN 3 THEN r.output END,
            failure_detail = coalesce(r.detail, j.failure_detail)
        FROM unnest(v_tids, verdicts, states, p_reaps, p_pumps, p_sequences, p_failed, p_delays_us, p_outputs, p_details)
            AS r (tid, verdict, state, reap, pump, sequence, failed, delay_us, output, detail)
        WHERE r.verdict = 0 AND j.ctid = r.tid
        RETURNING j.id, j.queue, j.state
    ), d AS (
        INSERT INTO {schema}.ended_deltas (queue, state, delta)
        SELECT w.queue, w.state, count(*) FROM w WHERE w.state >= 3 GROUP BY w.queue, w.state
    )
    SELECT count(*), array_agg(w.id) FILTER (WHERE w.state >= 3) INTO v_rows, v_ended FROM w;
    IF v_rows <> v_expected THEN
        PERFORM {schema}.violated_v1('UnexpectedAffectedRowCount',
            format('a report updated %s of %s rows that it had locked', v_rows, v_expected));
    END IF;
    IF p_history > 0 THEN
        INSERT INTO {schema}.transitions (at, job, worker, attempt, from_state, to_state, hand, detail)
        SELECT store_time, r.job, r.owner, r.attempt, 2, r.state, CASE WHEN r.reap THEN 2 ELSE 1 END,
            CASE WHEN p_history > 1 THEN r.detail END
        FROM unnest(p_jobs, p_owners, p_attempts, verdicts, states, p_reaps, p_details)
            AS r (job, owner, attempt, verdict, state, reap, detail)
        WHERE r.verdict = 0;
    END IF;
    IF v_ended IS NOT NULL AND EXISTS (SELECT 1 FROM {schema}.gates AS g WHERE g.parent = ANY (v_ended)) THEN
        SELECT d.released, d.released_dues INTO released, released_dues
        FROM {schema}.resolve_v2(v_ended, p_history, 1000, store_time) AS d;
    END IF;
END
{tag};

-- report_v2 and then claim_v2, in one transaction. The first row carries the report's answer, the rows
-- after it are the claim's.
--
-- Elsewhere settings are locked before jobs. Here the jobs of the report come first, so that no claim of a limited
-- queue waits for what the report waits for; and nobody can wait in a circle, since who holds settings waits for no
-- job.
CREATE FUNCTION {schema}.exchange_v2(
    p_jobs uuid[], p_attempts bigint[], p_owners uuid[], p_reaps boolean[], p_pumps uuid[],
    p_sequences bigint[], p_states smallint[], p_failed boolean[], p_delays_us bigint[],
    p_outputs bytea[], p_details text[],
    p_worker uuid, p_total integer, p_queues text[], p_quotas integer[], p_spill boolean,
    p_names text[], p_versions bigint[], p_bytes_max bigint, p_lease_us bigint,
    p_floor_dues timestamptz[], p_floor_ids uuid[],
    p_history smallint,
    p_now timestamptz DEFAULT NULL
) RETURNS TABLE (
    id uuid, pass smallint, place smallint, attempt integer, failures integer, version integer,
    state_before smallint, state smallint, owner uuid, expiry timestamptz, due_at timestamptz,
    timeout_us bigint, wire_name text, queue text, retry text, tags text[], payload bytea,
    store_time timestamptz, withheld boolean, next_due timestamptz,
    floor_dues timestamptz[], floor_ids uuid[], probes_us bigint[], waded bigint[],
    -- Of the first row only.
    verdicts smallint[], states smallint[], released text[], released_dues timestamptz[],
    -- Of each job.
    schedule text, tick timestamptz
) LANGUAGE plpgsql VOLATILE AS {tag}
#variable_conflict use_column
BEGIN
    SELECT r.verdicts, r.states, r.store_time, r.released, r.released_dues
    INTO verdicts, states, store_time, released, released_dues
    FROM {schema}.report_v2(p_jobs, p_attempts, p_owners, p_reaps, p_pumps, p_sequences, p_states, p_failed,
        p_delays_us, p_outputs, p_details, p_history, p_now) AS r;
    RETURN NEXT;
    RETURN QUERY
    SELECT c.id, c.pass, c.place, c.attempt, c.failures, c.version,
        c.state_before, c.state, c.owner, c.expiry, c.due_at,
        c.timeout_us, c.wire_name, c.queue, c.retry, c.tags, c.payload,
        c.store_time, c.withheld, c.next_due, c.floor_dues, c.floor_ids, c.probes_us, c.waded,
        NULL::smallint[], NULL::smallint[], NULL::text[], NULL::timestamptz[],
        c.schedule, c.tick
    FROM {schema}.claim_v2(p_worker, p_total, p_queues, p_quotas, p_spill, p_names, p_versions, p_bytes_max,
        p_lease_us, p_floor_dues, p_floor_ids, p_history, p_now) AS c;
END
{tag};
