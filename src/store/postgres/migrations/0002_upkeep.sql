-- Version 2, part 6: what maintenance takes away.

-- Looks at the jobs that ended in one state, from the given end and id on, at most so many. Deletes of them those
-- that nobody has locked and that no job names as its parent, with all that is theirs.
CREATE FUNCTION {schema}.purge_state_v2(
    p_state smallint, p_before timestamptz, p_from_end timestamptz, p_from_id uuid, p_max integer,
    -- What is younger is waited for by observers that have not passed it.
    p_awaited timestamptz,
    OUT looked_at integer,
    OUT deleted integer,
    -- How many transitions were deleted that an observer had not passed.
    OUT unobserved bigint,
    OUT last_end timestamptz,
    OUT last_id uuid
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_ids uuid[];
    v_ends timestamptz[];
    v_free uuid[];
    v_gone uuid[];
BEGIN
    deleted := 0;
    unobserved := 0;
    SELECT array_agg(p.id), array_agg(p.finished_at), count(*) INTO v_ids, v_ends, looked_at
    FROM (
        SELECT j.id, j.finished_at FROM {schema}.jobs AS j
        WHERE j.state >= 3 AND j.state = p_state AND j.finished_at <= p_before
            AND (j.finished_at, j.id) > (p_from_end, p_from_id)
        ORDER BY j.finished_at, j.id LIMIT p_max
    ) AS p;
    IF looked_at = 0 THEN
        RETURN;
    END IF;
    last_end := v_ends[looked_at];
    last_id := v_ids[looked_at];
    -- Whoever enqueues a dependent holds its parents' rows, and such rows are stepped over.
    SELECT array_agg(l.id) INTO v_free FROM (
        SELECT j.id FROM {schema}.jobs AS j
        WHERE j.id = ANY (v_ids) AND j.state = p_state AND j.finished_at <= p_before
        ORDER BY j.id FOR UPDATE SKIP LOCKED
    ) AS l;
    -- In a later snapshot, which sees the dependents of whoever let go before.
    SELECT array_agg(f.id) INTO v_gone FROM unnest(v_free) AS f (id)
    WHERE NOT EXISTS (SELECT 1 FROM {schema}.lineage AS l WHERE l.parent = f.id);
    IF EXISTS (SELECT FROM {schema}.observed) THEN
        WITH t AS MATERIALIZED (
            SELECT s.job, s.at, s.unpassed FROM {schema}.standing_v4(v_gone, NULL) AS s
        ), a AS MATERIALIZED (
            SELECT DISTINCT t.job FROM t WHERE t.unpassed AND t.at > p_awaited
        )
        SELECT (SELECT array_agg(g.id) FROM unnest(v_gone) AS g (id) WHERE g.id NOT IN (SELECT a.job FROM a)),
            (SELECT count(*) FROM t WHERE t.unpassed AND t.job NOT IN (SELECT a.job FROM a))
        INTO v_gone, unobserved;
    END IF;
    IF v_gone IS NULL THEN
        RETURN;
    END IF;
    DELETE FROM {schema}.lineage AS l WHERE l.child = ANY (v_gone);
    DELETE FROM {schema}.transitions AS t WHERE t.job = ANY (v_gone);
    DELETE FROM {schema}.latch_backlog AS b WHERE b.parent = ANY (v_gone);
    DELETE FROM {schema}.jobs AS j WHERE j.id = ANY (v_gone);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    IF deleted <> cardinality(v_gone) THEN
        PERFORM {schema}.violated_v1('UnexpectedAffectedRowCount',
            format('a purge deleted %s of %s rows that it had locked', deleted, cardinality(v_gone)));
    END IF;
END
{tag};

-- Looks at transitions beyond a position, at most so many. Of each job met, deletes those beyond the newest so many
-- that no observer waits for.
CREATE FUNCTION {schema}.trim_transitions_v2(
    p_from bigint, p_kept bigint, p_max integer, p_awaited timestamptz,
    OUT looked_at integer, OUT last_position bigint, OUT unobserved bigint
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_jobs uuid[];
    v_lasts bigint[];
    v_gone bigint[];
BEGIN
    SELECT array_agg(DISTINCT t.job), count(*), max(t.position) INTO v_jobs, looked_at, last_position
    FROM (
        SELECT t.job, t.position FROM {schema}.transitions AS t
        WHERE t.position > p_from ORDER BY t.position LIMIT p_max
    ) AS t;
    IF EXISTS (SELECT FROM {schema}.observed) THEN
        SELECT array_agg(m.job), array_agg(last.position) INTO v_jobs, v_lasts
        FROM unnest(v_jobs) AS m (job) CROSS JOIN LATERAL (
            SELECT n.position FROM {schema}.transitions AS n WHERE n.job >= m.job AND n.job <= m.job
            ORDER BY n.job DESC, n.position DESC OFFSET p_kept LIMIT 1
        ) AS last;
        SELECT array_agg(t.place), count(*) FILTER (WHERE t.unpassed) INTO v_gone, unobserved
        FROM {schema}.standing_v4(v_jobs, v_lasts) AS t WHERE NOT t.unpassed OR t.at <= p_awaited;
        DELETE FROM {schema}.transitions AS t WHERE t.position = ANY (v_gone);
        RETURN;
    END IF;
    unobserved := 0;
    DELETE FROM {schema}.transitions AS t
    USING unnest(v_jobs) AS m (job) CROSS JOIN LATERAL (
        -- As a range, so that only the index of jobs has this order.
        SELECT n.position FROM {schema}.transitions AS n WHERE n.job >= m.job AND n.job <= m.job
        ORDER BY n.job DESC, n.position DESC OFFSET p_kept LIMIT 1
    ) AS last
    WHERE t.job = m.job AND t.position <= last.position;
END
{tag};

-- `p_keeps_us` tells per terminal state, from Succeeded on, how long jobs are kept; `p_unobserved_us` how long
-- observers are waited for. Null is for ever.
CREATE FUNCTION {schema}.purge_v2(
    p_keeps_us bigint[], p_audit_us bigint, p_unobserved_us bigint, p_kept bigint, p_max integer,
    p_from_state smallint, p_from_end timestamptz, p_from_id uuid, p_trimmed bigint,
    p_now timestamptz DEFAULT NULL,
    OUT jobs integer,
    OUT more boolean,
    OUT last_state smallint,
    OUT last_end timestamptz,
    OUT last_id uuid,
    OUT trimmed bigint,
    OUT unobserved bigint,
    OUT store_time timestamptz
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_left integer := p_max;
    v_page record;
    v_audit integer := 0;
    v_awaited timestamptz;
BEGIN
    PERFORM {schema}.require_read_committed_v1();
    store_time := coalesce(p_now, clock_timestamp());
    v_awaited := coalesce(store_time - p_unobserved_us * interval '1 microsecond', '-infinity');
    jobs := 0;
    unobserved := 0;
    FOR v_state IN coalesce(p_from_state, 3) .. 6 LOOP
        EXIT WHEN v_left = 0;
        CONTINUE WHEN p_keeps_us[v_state - 2] IS NULL;
        SELECT p.looked_at, p.deleted, p.unobserved, p.last_end, p.last_id INTO v_page
        FROM {schema}.purge_state_v2(v_state::smallint, store_time - p_keeps_us[v_state - 2] * interval '1 microsecond',
            CASE v_state WHEN p_from_state THEN p_from_end ELSE '-infinity' END,
            CASE v_state WHEN p_from_state THEN p_from_id ELSE '00000000-0000-0000-0000-000000000000' END,
            v_left, v_awaited) AS p;
        jobs := jobs + v_page.deleted;
        unobserved := unobserved + v_page.unobserved;
        v_left := v_left - v_page.looked_at;
        IF v_left = 0 THEN
            last_state := v_state;
            last_end := v_page.last_end;
            last_id := v_page.last_id;
        END IF;
    END LOOP;
    more := v_left = 0;

    trimmed := 0;
    IF p_kept IS NOT NULL THEN
        SELECT t.looked_at, t.last_position, t.unobserved INTO v_page
        FROM {schema}.trim_transitions_v2(p_trimmed, p_kept, p_max, v_awaited) AS t;
        unobserved := unobserved + v_page.unobserved;
        IF v_page.looked_at = p_max THEN
            more := true;
            trimmed := v_page.last_position;
        END IF;
    END IF;

    IF p_audit_us IS NOT NULL THEN
        DELETE FROM {schema}.audit AS a WHERE a.position = ANY (ARRAY(
            SELECT o.position FROM {schema}.audit AS o
            WHERE o.at <= store_time - p_audit_us * interval '1 microsecond'
            ORDER BY o.at, o.position LIMIT p_max FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS v_audit = ROW_COUNT;
        more := more OR v_audit = p_max;
    END IF;
    DELETE FROM {schema}.pumps AS p WHERE p.worker = ANY (ARRAY(
        SELECT o.worker FROM {schema}.pumps AS o
        WHERE o.last_seen <= store_time - interval '7 days' ORDER BY o.worker FOR UPDATE SKIP LOCKED));
    PERFORM {schema}.sum_up_v2();
END
{tag};

-- Sums up what has been counted. Rows that somebody else sums up are left to him.
CREATE FUNCTION {schema}.sum_up_v2() RETURNS void LANGUAGE plpgsql VOLATILE AS {tag}
BEGIN
    WITH c AS MATERIALIZED (
        SELECT e.ctid AS tid FROM {schema}.ended_deltas AS e FOR UPDATE SKIP LOCKED
    ), d AS (
        DELETE FROM {schema}.ended_deltas AS e USING c WHERE e.ctid = c.tid RETURNING e.queue, e.state, e.delta
    )
    INSERT INTO {schema}.ended_deltas (queue, state, delta)
    SELECT d.queue, d.state, sum(d.delta) FROM d GROUP BY d.queue, d.state HAVING sum(d.delta) <> 0;
END
{tag};
