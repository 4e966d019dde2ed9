-- Version 4, part 2: taking a cursor and reading what lies beyond it.

-- Rows of kind 2 are what lies beyond the cursor, those of kind 3 are parked deliveries that are to be tried again;
-- the last row is of kind 0 where the cursor is held by the asker, 1 where by somebody else. One row more than asked
-- for says that there is more.
--
-- A call looks at 5000 transitions at most. What it is not told of is passed over, as long as nothing that it is told
-- of lies before.
CREATE FUNCTION {schema}.observe_v4(
    p_observer text,
    p_worker uuid,
    -- Null for any.
    p_states smallint[],
    p_wire_names text[],
    p_queues text[],
    p_oldest boolean,
    p_lease_us bigint,
    p_max integer,
    p_now timestamptz DEFAULT NULL
) RETURNS TABLE (
    kind smallint,
    place bigint, at timestamptz, from_state smallint, to_state smallint, attempt integer, hand smallint,
    worker uuid, detail text, job uuid, wire_name text, queue text,
    -- Of the last row only.
    store_time timestamptz, expiry timestamptz, epoch bigint, round bigint,
    failing_position bigint, failures bigint, failing_due_at timestamptz, more boolean, reset text
) LANGUAGE plpgsql VOLATILE AS {tag}
#variable_conflict use_column
DECLARE
    -- Before this transaction has an id: a mark is to be of both.
    v_high CONSTANT bigint := coalesce((SELECT max(t.position) FROM {schema}.transitions AS t), 0);
    v_marks CONSTANT boolean := pg_current_xact_id_if_assigned() IS NULL;
    v_now timestamptz;
    v {schema}.observers;
    v_system bigint;
    v_reset text;
    v_opened boolean := false;
    v_end bigint;
    v_looked integer;
    v_rows integer := 0;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM {schema}.require_read_committed_v1();
    END IF;
    -- Somebody else may register it first, and an operator remove it again, though hardly so often.
    FOR v_try IN 1 .. 100 LOOP
        SELECT o.* INTO v FROM {schema}.observers AS o WHERE o.observer = p_observer FOR UPDATE;
        EXIT WHEN FOUND;
        IF v_rows > 0 OR v_try = 100 THEN
            PERFORM {schema}.violated_v1('GuaranteedRowAbsent',
                'the cursor of an observer is not there that this transaction has made sure of');
        END IF;
        INSERT INTO {schema}.observers
            (observer, registered_at, system, origin_xid, origin, base, mark_xids, marks)
        SELECT p_observer, coalesce(p_now, clock_timestamp()), {schema}.system_v4(), pg_current_xact_id(),
            CASE WHEN v_marks THEN v_high ELSE 0 END, CASE WHEN NOT p_oldest THEN pg_current_snapshot() END,
            CASE WHEN v_marks THEN ARRAY[pg_current_xact_id()] ELSE '{}' END,
            CASE WHEN v_marks THEN ARRAY[v_high] ELSE '{}' END
        ON CONFLICT (observer) DO NOTHING;
        GET DIAGNOSTICS v_rows = ROW_COUNT;
        IF v_rows > 0 THEN
            INSERT INTO {schema}.observed (observer) VALUES (p_observer) ON CONFLICT (observer) DO NOTHING;
        END IF;
    END LOOP;
    v_now := coalesce(p_now, clock_timestamp());
    IF NOT v.is_free AND v.worker <> p_worker AND v.expiry > v_now THEN
        kind := 1;
        store_time := v_now;
        expiry := v.expiry;
        RETURN NEXT;
        RETURN;
    END IF;
    IF v.is_free OR v.worker <> p_worker THEN
        v.epoch := v.epoch + 1;
    END IF;
    v.expiry := least(v_now + p_lease_us * interval '1 microsecond', timestamptz '9999-12-30 00:00:00+00');

    v_system := {schema}.system_v4();
    IF v.system <> v_system AND v.system <> 0 AND v_system <> 0 THEN
        v_reset := 'the database was moved to another cluster since the cursor was written';
    ELSIF greatest(pg_snapshot_xmax(v.base), pg_snapshot_xmax(v.top)) > pg_snapshot_xmax(pg_current_snapshot()) THEN
        v_reset := 'the cursor was written in what is the future of this cluster';
    END IF;
    v.system := v_system;
    IF v_reset IS NOT NULL THEN
        v.base := NULL;
        v.top := NULL;
        v.origin_xid := pg_current_xact_id();
        v.origin := CASE WHEN v_marks THEN v_high ELSE 0 END;
        v.mark_xids := '{}';
        v.marks := '{}';
        v.failing_position := NULL;
        v.failures := NULL;
        v.failing_due_at := NULL;
    END IF;

    -- What is left of a round, and the next one where nothing is left.
    LOOP
        IF v.top IS NULL THEN
            v_opened := true;
            v.top := pg_current_snapshot();
            v.round := v.round + 1;
            v.passed := CASE WHEN v.base IS NULL THEN 0
                ELSE {schema}.low_v4(v.base, v.top, v.mark_xids, v.marks) END;
            -- In a later snapshot, which sees whatever that one does.
            v.ceiling := coalesce((SELECT max(t.position) FROM {schema}.transitions AS t), 0);
            IF v_marks AND v.mark_xids[cardinality(v.mark_xids)] IS DISTINCT FROM pg_current_xact_id() THEN
                v.mark_xids := v.mark_xids || pg_current_xact_id();
                v.marks := v.marks || v_high;
            END IF;
        END IF;
        SELECT max(w.position), count(*) INTO v_end, v_looked
        FROM (
            SELECT t.position FROM {schema}.transitions AS t
            WHERE t.position > v.passed AND t.position <= v.ceiling ORDER BY t.position LIMIT 5000
        ) AS w;
        -- The job is looked up for what is told only, one by one in the order of the log.
        RETURN QUERY
        SELECT 2::smallint, t.position, t.at, t.from_state, t.to_state, t.attempt, t.hand, t.worker, t.detail, t.job,
            j.wire_name, j.queue,
            NULL::timestamptz, NULL::timestamptz, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
            NULL::timestamptz, NULL::boolean, NULL::text
        FROM {schema}.transitions AS t CROSS JOIN LATERAL (
            SELECT k.wire_name, k.queue FROM {schema}.jobs AS k
            WHERE k.id = t.job
                AND (p_wire_names IS NULL OR k.wire_name = ANY (p_wire_names))
                AND (p_queues IS NULL OR k.queue = ANY (p_queues))
            OFFSET 0
        ) AS j
        WHERE t.position > v.passed AND t.position <= v_end
            AND (p_states IS NULL OR t.to_state = ANY (p_states))
            AND {schema}.seen_v4(t.xid, t.position, v.top, v.origin_xid, v.origin)
            AND NOT {schema}.seen_v4(t.xid, t.position, v.base, v.origin_xid, v.origin)
        ORDER BY t.position LIMIT p_max + 1;
        GET DIAGNOSTICS v_rows = ROW_COUNT;
        EXIT WHEN v_rows > 0;
        IF v_looked = 5000 THEN
            v.passed := v_end;
            EXIT;
        END IF;
        v.base := v.top;
        v.top := NULL;
        -- The marks that tell where something begins that this snapshot does not see: whoever was under way then.
        SELECT array_agg(m.xid ORDER BY m.xid), array_agg(m.mark ORDER BY m.xid) INTO v.mark_xids, v.marks
        FROM unnest(v.mark_xids, v.marks) AS m (xid, mark)
        WHERE m.xid = v.mark_xids[cardinality(v.mark_xids)] OR m.xid IN (
            SELECT (
                SELECT n.xid FROM unnest(v.mark_xids) AS n (xid) WHERE n.xid <= x.xid ORDER BY n.xid DESC LIMIT 1)
            FROM (
                SELECT i.xid FROM pg_snapshot_xip(v.base) AS i (xid) UNION ALL SELECT pg_snapshot_xmax(v.base)
            ) AS x (xid));
        EXIT WHEN v_opened;
    END LOOP;

    UPDATE {schema}.observers AS o SET
        system = v.system, origin_xid = v.origin_xid, origin = v.origin, base = v.base, top = v.top,
        round = v.round, passed = v.passed, ceiling = v.ceiling,
        mark_xids = coalesce(v.mark_xids, '{}'), marks = coalesce(v.marks, '{}'),
        worker = p_worker, epoch = v.epoch, expiry = v.expiry, is_free = false,
        failing_position = v.failing_position, failures = v.failures, failing_due_at = v.failing_due_at
    WHERE o.observer = p_observer;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    IF v_rows <> 1 THEN
        PERFORM {schema}.violated_v1('UnexpectedAffectedRowCount',
            format('the write of a cursor updated %s rows for one that it had locked', v_rows));
    END IF;
    RETURN QUERY
    SELECT 3::smallint, p.position, p.at, p.from_state, p.to_state, p.attempt, p.hand, p.worker, p.detail, p.job,
        p.wire_name, p.queue,
        NULL::timestamptz, NULL::timestamptz, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
        NULL::timestamptz, NULL::boolean, NULL::text
    FROM {schema}.parked AS p WHERE p.observer = p_observer AND p.is_wanted ORDER BY p.position LIMIT p_max;
    kind := 0;
    store_time := v_now;
    expiry := v.expiry;
    epoch := v.epoch;
    round := v.round;
    failing_position := v.failing_position;
    failures := v.failures;
    failing_due_at := v.failing_due_at;
    more := v_looked = 5000;
    reset := v_reset;
    RETURN NEXT;
END
{tag};

-- When the oldest transition was written that an observer has not passed.
CREATE FUNCTION {schema}.behind_since_v4(p_observer {schema}.observers) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_base CONSTANT pg_snapshot := coalesce(p_observer.top, p_observer.base);
    v_low bigint := 0;
    v_in_round timestamptz;
BEGIN
    IF p_observer.top IS NOT NULL THEN
        SELECT t.at INTO v_in_round FROM {schema}.transitions AS t
        WHERE t.position > p_observer.passed AND t.position <= p_observer.ceiling
            AND {schema}.seen_v4(t.xid, t.position, p_observer.top, p_observer.origin_xid, p_observer.origin)
            AND NOT {schema}.seen_v4(t.xid, t.position, p_observer.base, p_observer.origin_xid, p_observer.origin)
        ORDER BY t.position LIMIT 1;
    END IF;
    IF v_base IS NOT NULL THEN
        v_low := {schema}.low_v4(v_base, pg_current_snapshot(), p_observer.mark_xids, p_observer.marks);
    END IF;
    RETURN least(v_in_round, (
        SELECT t.at FROM {schema}.transitions AS t
        WHERE t.position > v_low
            AND NOT {schema}.seen_v4(t.xid, t.position, v_base, p_observer.origin_xid, p_observer.origin)
        ORDER BY t.position LIMIT 1));
END
{tag};
