-- Version 1, part 3: the report, and the exchange.
--
-- A job occurs at most once in one call. Verdicts: 0 applied, 1 applied before by this receipt, and stale:
-- 2 lapsed, 3 reaped, 4 revoked, 5 gone, 6 unknown.

CREATE FUNCTION {schema}.report_v1(
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
    p_now timestamptz DEFAULT NULL,
    OUT verdicts smallint[],
    OUT states smallint[],
    OUT store_time timestamptz
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_tids tid[];
    v_next smallint[];
    v_expected integer;
    v_unknown boolean;
    v_rows integer;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM {schema}.require_read_committed_v1();
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
    WHERE r.verdict = 0 AND j.ctid = r.tid;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    IF v_rows <> v_expected THEN
        PERFORM {schema}.violated_v1('UnexpectedAffectedRowCount',
            format('a report updated %s of %s rows that it had locked', v_rows, v_expected));
    END IF;
END
{tag};

-- report_v1 and then claim_v1, in one transaction. The first row carries the report's answer, the rows
-- after it are the claim's.
CREATE FUNCTION {schema}.exchange_v1(
    p_jobs uuid[], p_attempts bigint[], p_owners uuid[], p_reaps boolean[], p_pumps uuid[],
    p_sequences bigint[], p_states smallint[], p_failed boolean[], p_delays_us bigint[],
    p_outputs bytea[], p_details text[],
    p_worker uuid, p_total integer, p_queues text[], p_quotas integer[], p_spill boolean,
    p_names text[], p_versions bigint[], p_bytes_max bigint, p_lease_us bigint,
    p_floor_dues timestamptz[], p_floor_ids uuid[],
    p_now timestamptz DEFAULT NULL
) RETURNS TABLE (
    id uuid, pass smallint, place smallint, attempt integer, failures integer, version integer,
    state_before smallint, state smallint, owner uuid, expiry timestamptz, due_at timestamptz,
    timeout_us bigint, wire_name text, queue text, retry text, tags text[], payload bytea,
    store_time timestamptz, withheld boolean, next_due timestamptz,
    floor_dues timestamptz[], floor_ids uuid[], probes_us bigint[], waded bigint[],
    -- Of the first row only.
    verdicts smallint[], states smallint[]
) LANGUAGE plpgsql VOLATILE AS {tag}
#variable_conflict use_column
BEGIN
    SELECT r.verdicts, r.states, r.store_time INTO verdicts, states, store_time
    FROM {schema}.report_v1(p_jobs, p_attempts, p_owners, p_reaps, p_pumps, p_sequences, p_states, p_failed,
        p_delays_us, p_outputs, p_details, p_now) AS r;
    RETURN NEXT;
    RETURN QUERY
    SELECT c.id, c.pass, c.place, c.attempt, c.failures, c.version,
        c.state_before, c.state, c.owner, c.expiry, c.due_at,
        c.timeout_us, c.wire_name, c.queue, c.retry, c.tags, c.payload,
        c.store_time, c.withheld, c.next_due, c.floor_dues, c.floor_ids, c.probes_us, c.waded,
        NULL::smallint[], NULL::smallint[]
    FROM {schema}.claim_v1(p_worker, p_total, p_queues, p_quotas, p_spill, p_names, p_versions, p_bytes_max,
        p_lease_us, p_floor_dues, p_floor_ids, p_now) AS c;
END
{tag};
