-- Version 4, part 3: moving a cursor, and what an operator does with observers.

-- Verdicts: 0 applied, and stale: 1 lapsed, 2 taken, 3 gone, 4 regressed.
CREATE FUNCTION {schema}.resolve_cursor_v4(
    p_observer text, p_worker uuid, p_epoch bigint, p_round bigint, p_until bigint,
    p_failing_position bigint, p_failures bigint, p_due_us bigint, p_lease_us bigint,
    -- Parked deliveries that have succeeded since.
    p_delivered bigint[],
    -- Deliveries given up, each an element of every list.
    p_positions bigint[], p_ats timestamptz[], p_jobs uuid[], p_workers uuid[], p_attempts bigint[],
    p_from_states smallint[], p_to_states smallint[], p_hands smallint[], p_wire_names text[], p_queues text[],
    p_details text[], p_counts bigint[], p_faults text[],
    p_now timestamptz DEFAULT NULL,
    OUT verdict smallint,
    OUT expiry timestamptz,
    OUT store_time timestamptz
) LANGUAGE plpgsql VOLATILE AS {tag}
#variable_conflict use_column
DECLARE
    v {schema}.observers;
    v_now timestamptz;
    v_expiry timestamptz;
    v_rows integer;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM {schema}.require_read_committed_v1();
    END IF;
    SELECT o.* INTO v FROM {schema}.observers AS o WHERE o.observer = p_observer FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    store_time := v_now;
    verdict := CASE
        WHEN v.observer IS NULL THEN 3
        WHEN v.worker IS DISTINCT FROM p_worker OR v.epoch <> p_epoch THEN 2
        WHEN v.is_free OR v.expiry <= v_now THEN 1
        WHEN v.round <> p_round OR p_until IS NOT NULL AND (v.top IS NULL OR p_until < v.passed) THEN 4
        ELSE 0
    END;
    IF verdict <> 0 THEN
        RETURN;
    END IF;
    v.passed := coalesce(p_until, v.passed);
    IF p_failing_position IS NOT NULL THEN
        v.failing_position := p_failing_position;
        v.failures := p_failures;
        v.failing_due_at := least(v_now + p_due_us * interval '1 microsecond', timestamptz '9999-12-30 00:00:00+00');
    END IF;
    IF v.failing_position <= p_until THEN
        v.failing_position := NULL;
        v.failures := NULL;
        v.failing_due_at := NULL;
    END IF;
    v_expiry := least(v_now + p_lease_us * interval '1 microsecond', timestamptz '9999-12-30 00:00:00+00');
    expiry := v_expiry;
    UPDATE {schema}.observers AS o SET
        passed = v.passed, expiry = v_expiry,
        failing_position = v.failing_position, failures = v.failures, failing_due_at = v.failing_due_at
    WHERE o.observer = p_observer;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    IF v_rows <> 1 THEN
        PERFORM {schema}.violated_v1('UnexpectedAffectedRowCount',
            format('the write of a cursor updated %s rows for one that it had locked', v_rows));
    END IF;
    IF cardinality(p_delivered) > 0 THEN
        DELETE FROM {schema}.parked AS p WHERE p.observer = p_observer AND p.position = ANY (p_delivered);
    END IF;
    IF cardinality(p_positions) > 0 THEN
        INSERT INTO {schema}.parked AS p
            (observer, position, at, parked_at, failures, job, worker, attempt, from_state, to_state, hand,
            wire_name, queue, detail, fault)
        SELECT p_observer, u.place, u.at, v_now, u.count, u.job, u.worker, u.attempt, u.from_state, u.to_state, u.hand,
            u.wire_name, u.queue, u.detail, u.fault
        FROM unnest(p_positions, p_ats, p_jobs, p_workers, p_attempts, p_from_states, p_to_states, p_hands,
                p_wire_names, p_queues, p_details, p_counts, p_faults)
            AS u (place, at, job, worker, attempt, from_state, to_state, hand, wire_name, queue, detail, count, fault)
        ON CONFLICT (observer, position) DO UPDATE SET
            parked_at = excluded.parked_at, failures = excluded.failures, fault = excluded.fault, is_wanted = false;
    END IF;
END
{tag};

CREATE FUNCTION {schema}.release_cursor_v4(
    p_observer text, p_worker uuid, p_epoch bigint, p_now timestamptz DEFAULT NULL, OUT store_time timestamptz
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_now timestamptz;
BEGIN
    PERFORM 1 FROM {schema}.observers AS o WHERE o.observer = p_observer FOR UPDATE;
    v_now := coalesce(p_now, clock_timestamp());
    UPDATE {schema}.observers AS o SET is_free = true, expiry = v_now
    WHERE o.observer = p_observer AND o.worker = p_worker AND o.epoch = p_epoch AND NOT o.is_free AND o.expiry > v_now;
    store_time := v_now;
END
{tag};

-- By the codes of the actions: 12 has parked deliveries tried again, 13 forgets them, all of them or that of one
-- position; 14 forgets the observer. How many deliveries, or observers, that touched.
CREATE FUNCTION {schema}.change_observer_v4(
    p_actor text, p_observer text, p_action smallint, p_position bigint, p_now timestamptz DEFAULT NULL,
    OUT touched bigint
) LANGUAGE plpgsql VOLATILE AS {tag}
BEGIN
    -- First, as whoever moves the cursor does.
    PERFORM 1 FROM {schema}.observers AS o WHERE o.observer = p_observer FOR UPDATE;
    IF p_action = 12 THEN
        UPDATE {schema}.parked AS p SET is_wanted = true
        WHERE p.observer = p_observer AND (p_position IS NULL OR p.position = p_position) AND NOT p.is_wanted;
    ELSE
        DELETE FROM {schema}.parked AS p
        WHERE p.observer = p_observer AND (p_action = 14 OR p_position IS NULL OR p.position = p_position);
    END IF;
    GET DIAGNOSTICS touched = ROW_COUNT;
    IF p_action = 14 THEN
        DELETE FROM {schema}.observed AS o WHERE o.observer = p_observer;
        DELETE FROM {schema}.observers AS o WHERE o.observer = p_observer;
        GET DIAGNOSTICS touched = ROW_COUNT;
    END IF;
    IF touched > 0 THEN
        INSERT INTO {schema}.audit (at, actor, action, queue, subject)
        VALUES (coalesce(p_now, clock_timestamp()), p_actor, p_action, '', p_observer);
    END IF;
END
{tag};
