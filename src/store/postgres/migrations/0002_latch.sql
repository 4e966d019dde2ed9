-- Version 2, part 2: the latch, which holds a dependent back until its parents have ended.
--
-- Whoever ends jobs calls resolve_v2 in the same transaction. Before it locks what it ends, it locks the
-- dependents with them (lock_family_v2), all by ascending id in one statement: edges define no order of their own,
-- and two ends of graphs that overlap would wait for each other.

-- Locks jobs by ascending id, all in one statement; a row for each that is there.
CREATE FUNCTION {schema}.lock_jobs_v2(p_ids uuid[])
RETURNS TABLE (id uuid, state smallint) LANGUAGE plpgsql VOLATILE AS {tag}
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT j.id, j.state FROM {schema}.jobs AS j WHERE j.id = ANY (p_ids) ORDER BY j.id FOR NO KEY UPDATE;
END
{tag};

-- The gates that ends of the given parents in the given states resolve, those of the dependents that are
-- cancelled by it among them: breadth first, so that a beginning of the answer needs nothing of the rest.
-- `failed` says that the gate's dependent is cancelled.
CREATE FUNCTION {schema}.reach_v2(p_parents uuid[], p_states smallint[], p_max integer)
RETURNS TABLE (parent uuid, child uuid, failed boolean) LANGUAGE plpgsql VOLATILE AS {tag}
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE r (parent, child, failed) AS (
        SELECT g.parent, g.child, coalesce(j.parent_rule = 0 AND p.state <> 3, false)
        FROM unnest(p_parents, p_states) AS p (id, state)
        JOIN {schema}.gates AS g ON g.parent = p.id
        LEFT JOIN {schema}.jobs AS j ON j.id = g.child
        UNION
        SELECT g.parent, g.child, coalesce(j.parent_rule = 0, false)
        FROM r
        JOIN {schema}.gates AS g ON g.parent = r.child
        LEFT JOIN {schema}.jobs AS j ON j.id = g.child
        WHERE r.failed
    )
    SELECT r.parent, r.child, r.failed FROM r LIMIT p_max;
END
{tag};

-- Locks jobs, and with them the dependents that ends of the given parents reach. What has come in while it waited
-- is locked too, at most three times; what comes in after that is not. Answers the ids asked for, there or not.
CREATE FUNCTION {schema}.lock_family_v2(
    p_ids uuid[], p_parents uuid[], p_states smallint[], p_max integer, OUT locked uuid[]
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_more uuid[];
BEGIN
    locked := p_ids;
    FOR v_round IN 1 .. 4 LOOP
        SELECT array_agg(m.id) INTO v_more
        FROM (SELECT r.child FROM {schema}.reach_v2(p_parents, p_states, p_max) AS r EXCEPT SELECT unnest(locked))
            AS m (id);
        EXIT WHEN v_more IS NULL AND v_round > 1;
        locked := locked || v_more;
        PERFORM 1 FROM {schema}.lock_jobs_v2(locked);
    END LOOP;
END
{tag};

-- Resolves up to `p_max` gates of parents that this transaction holds and that have ended. What is over is noted
-- for later.
CREATE FUNCTION {schema}.resolve_v2(
    p_ended uuid[], p_history smallint, p_max integer, p_now timestamptz,
    OUT resolved integer,
    -- The queues with dependents that were released, and when the first of each is due.
    OUT released text[],
    OUT released_dues timestamptz[]
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_ids uuid[];
    v_states smallint[];
    v_locked uuid[];
    v_parents uuid[];
    v_children uuid[];
    v_failed boolean[];
    v_found integer;
    v_cancelled uuid[];
    v_released uuid[];
    v_dangling uuid;
    v_expected integer;
    v_rows integer;
BEGIN
    SELECT array_agg(l.id), array_agg(l.state) INTO v_ids, v_states FROM {schema}.lock_jobs_v2(p_ended) AS l;
    IF coalesce(cardinality(v_ids), 0) <> cardinality(p_ended) THEN
        PERFORM {schema}.violated_v1('ParentJobMissingFromBatch',
            format('of %s parents that had ended, %s were read under their locks',
                cardinality(p_ended), coalesce(cardinality(v_ids), 0)));
    END IF;
    v_locked := {schema}.lock_family_v2(v_ids, v_ids, v_states, p_max);
    -- Only now, in a snapshot younger than the locks: what is read stays so.
    SELECT array_agg(r.parent), array_agg(r.child), array_agg(r.failed), count(*)
    INTO v_parents, v_children, v_failed, v_found
    FROM {schema}.reach_v2(v_ids, v_states, p_max + 1) AS r;
    SELECT least(p_max, v_found, min(c.place) - 1) INTO resolved
    FROM unnest(v_children) WITH ORDINALITY AS c (id, place)
    WHERE c.id NOT IN (SELECT unnest(v_locked));
    v_parents := v_parents[1 : resolved];
    v_children := v_children[1 : resolved];
    v_failed := v_failed[1 : resolved];

    SELECT array_agg(DISTINCT e.child) FILTER (WHERE e.failed),
        (array_agg(e.child) FILTER (WHERE j.state IS DISTINCT FROM 1))[1]
    INTO v_cancelled, v_dangling
    FROM unnest(v_children, v_failed) AS e (child, failed) LEFT JOIN {schema}.jobs AS j ON j.id = e.child;
    IF v_dangling IS NOT NULL THEN
        PERFORM {schema}.violated_v1('DanglingGatingEdge',
            format('a gate names the dependent %s, which is not there or does not wait', v_dangling));
    END IF;
    DELETE FROM {schema}.gates AS g WHERE g.child = ANY (v_cancelled);
    DELETE FROM {schema}.gates AS g USING unnest(v_parents, v_children) AS e (parent, child)
    WHERE g.parent = e.parent AND g.child = e.child;
    SELECT array_agg(c.id) INTO v_released
    FROM (SELECT unnest(v_children) EXCEPT SELECT unnest(v_cancelled)) AS c (id)
    WHERE NOT EXISTS (SELECT 1 FROM {schema}.gates AS g WHERE g.child = c.id);

    WITH w AS (
        UPDATE {schema}.jobs AS j SET
            state = CASE WHEN c.is_cancelled THEN 6 ELSE 0 END,
            due_at = CASE WHEN c.is_cancelled THEN j.due_at ELSE greatest(j.due_at, p_now) END,
            finished_at = CASE WHEN c.is_cancelled THEN p_now END
        FROM (SELECT unnest(v_cancelled), true UNION ALL SELECT unnest(v_released), false) AS c (id, is_cancelled)
        WHERE j.id = c.id
        RETURNING j.id, j.queue, j.state, j.attempt, j.due_at
    ), d AS (
        INSERT INTO {schema}.ended_deltas (queue, state, delta)
        SELECT w.queue, w.state, count(*) FROM w WHERE w.state = 6 GROUP BY w.queue, w.state
    ), t AS (
        INSERT INTO {schema}.transitions (at, job, attempt, from_state, to_state, hand)
        SELECT p_now, w.id, w.attempt, 1, w.state, 7 FROM w WHERE p_history > 0
    )
    SELECT coalesce(sum(q.count), 0), array_agg(q.queue) FILTER (WHERE q.due IS NOT NULL),
        array_agg(q.due) FILTER (WHERE q.due IS NOT NULL)
    INTO v_rows, released, released_dues
    FROM (SELECT w.queue, count(*) AS count, min(w.due_at) FILTER (WHERE w.state = 0) AS due FROM w GROUP BY w.queue)
        AS q;
    v_expected := coalesce(cardinality(v_cancelled), 0) + coalesce(cardinality(v_released), 0);
    IF v_rows <> v_expected THEN
        PERFORM {schema}.violated_v1('UnexpectedAffectedRowCount',
            format('the end of parents updated %s of %s dependents that it had locked', v_rows, v_expected));
    END IF;
    IF v_found > resolved THEN
        INSERT INTO {schema}.latch_backlog (parent)
        SELECT p.id FROM unnest(v_ids || v_cancelled) AS p (id)
        WHERE EXISTS (SELECT 1 FROM {schema}.gates AS g WHERE g.parent = p.id)
        ORDER BY p.id
        ON CONFLICT (parent) DO NOTHING;
    END IF;
END
{tag};

-- Works off what was noted.
CREATE FUNCTION {schema}.work_off_latches_v2(
    p_max integer, p_history smallint, p_now timestamptz DEFAULT NULL,
    OUT resolved integer, OUT more boolean, OUT released text[], OUT released_dues timestamptz[],
    OUT store_time timestamptz
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_noted uuid[];
    v_ended uuid[];
    v_left uuid[];
BEGIN
    -- An observer is to be told of it, whatever is kept otherwise.
    IF p_history = 0 AND EXISTS (SELECT FROM {schema}.observed) THEN
        p_history := 1;
    END IF;
    PERFORM {schema}.require_read_committed_v1();
    resolved := 0;
    more := false;
    SELECT array_agg(b.parent) INTO v_noted
    FROM (SELECT b.parent FROM {schema}.latch_backlog AS b ORDER BY b.parent LIMIT p_max) AS b;
    IF v_noted IS NULL THEN
        store_time := coalesce(p_now, clock_timestamp());
        RETURN;
    END IF;
    PERFORM {schema}.lock_family_v2(v_noted, f.ids, f.states, p_max)
    FROM (
        SELECT array_agg(j.id) AS ids, array_agg(j.state) AS states FROM {schema}.jobs AS j
        WHERE j.id = ANY (v_noted) AND j.state >= 3
    ) AS f;
    SELECT array_agg(l.id) FILTER (WHERE l.state >= 3) INTO v_ended FROM {schema}.lock_jobs_v2(v_noted) AS l;
    store_time := coalesce(p_now, clock_timestamp());
    IF v_ended IS NOT NULL THEN
        SELECT r.resolved, r.released, r.released_dues INTO resolved, released, released_dues
        FROM {schema}.resolve_v2(v_ended, p_history, p_max, store_time) AS r;
    END IF;
    -- The note of a parent that an operator has requeued goes too: its gates wait for its next end.
    SELECT array_agg(e.id) INTO v_left FROM unnest(v_ended) AS e (id)
    WHERE EXISTS (SELECT 1 FROM {schema}.gates AS g WHERE g.parent = e.id);
    DELETE FROM {schema}.latch_backlog AS b
    WHERE b.parent = ANY (v_noted) AND (b.parent = ANY (v_left)) IS NOT TRUE;
    more := EXISTS (SELECT 1 FROM {schema}.latch_backlog);
END
{tag};
