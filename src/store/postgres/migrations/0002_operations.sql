-- Version 2, part 5: giving leases back, and what an operator causes.
--
-- What an operator does leaves an audit record per job changed, by the codes of the actions: 1 cancel,
-- 2 requeue, 3 revoke, 4 pause, 5 resume, 6 limit, 7 limit per concurrency key.

-- Locks leased jobs, and with those that are cancelled when their lease ends the dependents that this reaches.
CREATE FUNCTION {schema}.lock_cancelled_v2(p_jobs uuid[]) RETURNS void LANGUAGE plpgsql VOLATILE AS {tag}
BEGIN
    IF EXISTS (SELECT 1 FROM {schema}.gates AS g WHERE g.parent = ANY (p_jobs)) THEN
        PERFORM {schema}.lock_family_v2(p_jobs, e.ids, e.states, 1000)
        FROM (
            SELECT array_agg(j.id) AS ids, array_agg(6::smallint) AS states
            FROM {schema}.jobs AS j WHERE j.id = ANY (p_jobs) AND j.cancel_requested
        ) AS e;
    END IF;
END
{tag};

-- Resolves the gates of jobs that have ended, if there are such jobs and gates.
CREATE FUNCTION {schema}.resolve_if_any_v2(
    p_ended uuid[], p_history smallint, p_now timestamptz, OUT released text[], OUT released_dues timestamptz[]
) LANGUAGE plpgsql VOLATILE AS {tag}
BEGIN
    IF p_ended IS NOT NULL AND EXISTS (SELECT 1 FROM {schema}.gates AS g WHERE g.parent = ANY (p_ended)) THEN
        SELECT d.released, d.released_dues INTO released, released_dues
        FROM {schema}.resolve_v2(p_ended, p_history, 1000, p_now) AS d;
    END IF;
END
{tag};

CREATE FUNCTION {schema}.hand_back_v2(
    p_worker uuid,
    p_jobs uuid[],
    p_attempts bigint[],
    p_history smallint,
    p_now timestamptz DEFAULT NULL,
    OUT given boolean[],
    OUT store_time timestamptz,
    OUT released text[],
    OUT released_dues timestamptz[]
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_tids tid[];
    v_expected integer;
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
    PERFORM {schema}.lock_cancelled_v2(p_jobs);
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
    WITH w AS (
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
        FROM unnest(v_tids) AS r (tid) WHERE j.ctid = r.tid
        RETURNING j.id, j.queue, j.state, j.attempt
    ), d AS (
        INSERT INTO {schema}.ended_deltas (queue, state, delta)
        SELECT w.queue, w.state, count(*) FROM w WHERE w.state = 6 GROUP BY w.queue, w.state
    ), t AS (
        INSERT INTO {schema}.transitions (at, job, worker, attempt, from_state, to_state, hand)
        SELECT store_time, w.id, p_worker, w.attempt, 2, w.state, 3 FROM w WHERE p_history > 0
    )
    SELECT count(*), array_agg(w.id) FILTER (WHERE w.state = 6) INTO v_rows, v_ended FROM w;
    IF v_rows <> v_expected THEN
        PERFORM {schema}.violated_v1('UnexpectedAffectedRowCount',
            format('a hand-back updated %s of %s rows that it had locked', v_rows, v_expected));
    END IF;
    SELECT d.released, d.released_dues INTO released, released_dues
    FROM {schema}.resolve_if_any_v2(v_ended, p_history, store_time) AS d;
END
{tag};

-- Cancels what waits and marks what runs, of those in one of the given states if any are given.
CREATE FUNCTION {schema}.cancel_jobs_v2(
    p_actor text, p_jobs uuid[], p_in_states smallint[], p_history smallint, p_now timestamptz DEFAULT NULL,
    -- What was found under the locks, by ascending id.
    OUT found_states smallint[],
    OUT changed integer,
    OUT store_time timestamptz,
    OUT released text[],
    OUT released_dues timestamptz[]
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_ids uuid[];
    v_expected integer;
    v_ended uuid[];
BEGIN
    -- An observer is to be told of it, whatever is kept otherwise.
    IF p_history = 0 AND EXISTS (SELECT FROM {schema}.observed) THEN
        p_history := 1;
    END IF;
    PERFORM {schema}.require_read_committed_v1();
    IF EXISTS (SELECT 1 FROM {schema}.gates AS g WHERE g.parent = ANY (p_jobs)) THEN
        PERFORM {schema}.lock_family_v2(p_jobs, p_jobs, array_fill(6::smallint, ARRAY[cardinality(p_jobs)]), 1000);
    END IF;
    SELECT array_agg(l.state), array_agg(l.id) FILTER (
        WHERE (l.state IN (0, 1) OR l.state = 2 AND NOT l.cancel_requested)
            AND (p_in_states IS NULL OR l.state = ANY (p_in_states)))
    INTO found_states, v_ids
    FROM (
        SELECT j.id, j.state, j.cancel_requested FROM {schema}.jobs AS j
        WHERE j.id = ANY (p_jobs) ORDER BY j.id FOR NO KEY UPDATE
    ) AS l;
    store_time := coalesce(p_now, clock_timestamp());
    WITH w AS (
        UPDATE {schema}.jobs AS j SET
            cancel_requested = true,
            state = CASE j.state WHEN 2 THEN 2 ELSE 6 END,
            finished_at = CASE j.state WHEN 2 THEN NULL ELSE store_time END
        FROM {schema}.jobs AS b
        WHERE j.id = ANY (v_ids) AND b.id = j.id
        RETURNING j.id, j.queue, b.state AS before, j.state, j.attempt
    ), d AS (
        INSERT INTO {schema}.ended_deltas (queue, state, delta)
        SELECT w.queue, w.state, count(*) FROM w WHERE w.state = 6 GROUP BY w.queue, w.state
    ), a AS (
        INSERT INTO {schema}.audit (at, actor, action, job, queue)
        SELECT store_time, p_actor, 1, w.id, w.queue FROM w ORDER BY w.id
    ), t AS (
        INSERT INTO {schema}.transitions (at, job, attempt, from_state, to_state, hand)
        SELECT store_time, w.id, w.attempt, w.before, w.state, 4 FROM w WHERE p_history > 0 AND w.state = 6
    )
    SELECT count(*), array_agg(w.id) FILTER (WHERE w.state = 6) INTO changed, v_ended FROM w;
    v_expected := coalesce(cardinality(v_ids), 0);
    IF changed <> v_expected THEN
        PERFORM {schema}.violated_v1('UnexpectedAffectedRowCount',
            format('a cancel updated %s of %s rows that it had locked', changed, v_expected));
    END IF;
    IF v_ended IS NOT NULL THEN
        DELETE FROM {schema}.gates AS g WHERE g.child = ANY (v_ended);
        SELECT d.released, d.released_dues INTO released, released_dues
        FROM {schema}.resolve_if_any_v2(v_ended, p_history, store_time) AS d;
    END IF;
END
{tag};

-- Answers: 0 no such job, 1 cancelled now, 2 its holder will hear of it, 3 ended already.
CREATE FUNCTION {schema}.request_cancel_v2(
    p_actor text, p_job uuid, p_history smallint, p_now timestamptz DEFAULT NULL,
    OUT answer smallint, OUT state smallint, OUT store_time timestamptz,
    OUT released text[], OUT released_dues timestamptz[]
) LANGUAGE plpgsql VOLATILE AS {tag}
#variable_conflict use_column
DECLARE
    v_state smallint;
BEGIN
    SELECT c.found_states[1], c.store_time, c.released, c.released_dues
    INTO v_state, store_time, released, released_dues
    FROM {schema}.cancel_jobs_v2(p_actor, ARRAY[p_job], NULL, p_history, p_now) AS c;
    state := v_state;
    answer := CASE WHEN v_state IS NULL THEN 0 WHEN v_state IN (0, 1) THEN 1 WHEN v_state = 2 THEN 2 ELSE 3 END;
END
{tag};

-- Writes what requeue_jobs_v2 has decided, of jobs that it has locked.
CREATE FUNCTION {schema}.reschedule_v2(
    p_actor text, p_jobs uuid[], p_history smallint, p_now timestamptz,
    OUT changed integer,
    OUT released text[],
    OUT released_dues timestamptz[]
) LANGUAGE plpgsql VOLATILE AS {tag}
BEGIN
    WITH w AS (
        UPDATE {schema}.jobs AS j SET
            state = 0,
            due_at = p_now,
            failures = 0,
            cancel_requested = false,
            finished_at = NULL
        FROM {schema}.jobs AS b
        WHERE j.id = ANY (p_jobs) AND b.id = j.id
        RETURNING j.id, j.queue, b.state AS before, j.attempt
    ), d AS (
        INSERT INTO {schema}.ended_deltas (queue, state, delta)
        SELECT w.queue, w.before, -count(*) FROM w GROUP BY w.queue, w.before
    ), a AS (
        INSERT INTO {schema}.audit (at, actor, action, job, queue)
        SELECT p_now, p_actor, 2, w.id, w.queue FROM w ORDER BY w.id
    ), t AS (
        INSERT INTO {schema}.transitions (at, job, attempt, from_state, to_state, hand)
        SELECT p_now, w.id, w.attempt, w.before, 0, 4 FROM w WHERE p_history > 0
    )
    SELECT coalesce(sum(q.count), 0), array_agg(q.queue), array_agg(p_now)
    INTO changed, released, released_dues
    FROM (SELECT w.queue, count(*) AS count FROM w GROUP BY w.queue) AS q;
    IF changed <> coalesce(cardinality(p_jobs), 0) THEN
        PERFORM {schema}.violated_v1('UnexpectedAffectedRowCount',
            format('a requeue updated %s of %s rows that it had locked', changed, coalesce(cardinality(p_jobs), 0)));
    END IF;
END
{tag};

-- Makes Dead-Lettered and Quarantined jobs Scheduled again, of those in one of the given states if any are given;
-- but none whose unique key another job holds, and of several with one key the first.
CREATE FUNCTION {schema}.requeue_jobs_v2(
    p_actor text, p_jobs uuid[], p_in_states smallint[], p_history smallint, p_now timestamptz DEFAULT NULL,
    OUT found_states smallint[],
    OUT changed integer,
    OUT store_time timestamptz,
    OUT released text[],
    OUT released_dues timestamptz[]
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_ids uuid[];
    v_free uuid[];
    v_is_keyed boolean;
BEGIN
    -- An observer is to be told of it, whatever is kept otherwise.
    IF p_history = 0 AND EXISTS (SELECT FROM {schema}.observed) THEN
        p_history := 1;
    END IF;
    PERFORM {schema}.require_read_committed_v1();
    SELECT array_agg(l.state), array_agg(l.id) FILTER (
        WHERE l.state IN (4, 5) AND (p_in_states IS NULL OR l.state = ANY (p_in_states)))
    INTO found_states, v_ids
    FROM {schema}.lock_jobs_v2(p_jobs) AS l;
    store_time := coalesce(p_now, clock_timestamp());
    LOOP
        SELECT coalesce(bool_or(s.unique_key IS NOT NULL), false),
            array_agg(s.id) FILTER (WHERE s.unique_key IS NULL OR s.place = 1 AND NOT EXISTS (
                SELECT 1 FROM {schema}.jobs AS h
                WHERE h.unique_key = s.unique_key AND h.unique_key IS NOT NULL AND h.state < 3))
        INTO v_is_keyed, v_free
        FROM (
            SELECT j.id, j.unique_key, row_number() OVER (PARTITION BY j.unique_key ORDER BY j.id) AS place
            FROM {schema}.jobs AS j WHERE j.id = ANY (v_ids)
        ) AS s;
        IF NOT v_is_keyed THEN
            SELECT w.changed, w.released, w.released_dues INTO changed, released, released_dues
            FROM {schema}.reschedule_v2(p_actor, v_free, p_history, store_time) AS w;
            RETURN;
        END IF;
        -- Whoever is about to take a key cannot be seen before, only run into: then who came first decides.
        BEGIN
            SELECT w.changed, w.released, w.released_dues INTO changed, released, released_dues
            FROM {schema}.reschedule_v2(p_actor, v_free, p_history, store_time) AS w;
            RETURN;
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
    END LOOP;
END
{tag};

-- Answers: 0 no such job, 1 requeued, 2 in a state that no requeue leads out of, 3 another job holds its key.
CREATE FUNCTION {schema}.requeue_v2(
    p_actor text, p_job uuid, p_history smallint, p_now timestamptz DEFAULT NULL,
    OUT answer smallint, OUT state smallint, OUT held_by uuid
) LANGUAGE plpgsql VOLATILE AS {tag}
#variable_conflict use_column
DECLARE
    v_state smallint;
    v_changed integer;
    v_holder uuid;
BEGIN
    LOOP
        SELECT r.found_states[1], r.changed INTO v_state, v_changed
        FROM {schema}.requeue_jobs_v2(p_actor, ARRAY[p_job], NULL, p_history, p_now) AS r;
        EXIT WHEN v_state IS NULL OR v_state NOT IN (4, 5) OR v_changed = 1;
        SELECT h.id INTO v_holder FROM {schema}.jobs AS j
        JOIN {schema}.jobs AS h ON h.unique_key = j.unique_key AND h.unique_key IS NOT NULL AND h.state < 3
        WHERE j.id = p_job;
        -- One that has ended since holds nothing back any more.
        EXIT WHEN v_holder IS NOT NULL;
    END LOOP;
    state := v_state;
    held_by := v_holder;
    answer := CASE
        WHEN v_state IS NULL THEN 0
        WHEN v_holder IS NOT NULL THEN 3
        WHEN v_state IN (4, 5) THEN 1
        ELSE 2
    END;
END
{tag};

-- Takes leases away, live ones and dead ones, the first `p_max` by ascending id.
CREATE FUNCTION {schema}.revoke_v2(
    p_actor text, p_worker uuid, p_max integer, p_history smallint, p_now timestamptz DEFAULT NULL,
    OUT revoked uuid[],
    OUT more boolean,
    OUT store_time timestamptz,
    OUT released text[],
    OUT released_dues timestamptz[]
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_held uuid[];
    v_ids uuid[];
    v_expected integer;
    v_ended uuid[];
    v_queues text[];
    v_dues timestamptz[];
BEGIN
    -- An observer is to be told of it, whatever is kept otherwise.
    IF p_history = 0 AND EXISTS (SELECT FROM {schema}.observed) THEN
        p_history := 1;
    END IF;
    PERFORM {schema}.require_read_committed_v1();
    -- What it holds is few, and sorted once it is found: not to be looked for in order of all ids.
    SELECT array_agg(h.id) INTO v_held FROM (
        SELECT j.id FROM (
            SELECT j.id FROM {schema}.jobs AS j WHERE j.state = 2 AND j.owner = p_worker OFFSET 0
        ) AS j
        ORDER BY j.id LIMIT p_max
    ) AS h;
    more := coalesce(cardinality(v_held), 0) >= p_max;
    PERFORM {schema}.lock_cancelled_v2(v_held);
    SELECT array_agg(l.id) FILTER (WHERE l.state = 2 AND l.owner = p_worker) INTO v_ids
    FROM (
        SELECT j.id, j.state, j.owner FROM {schema}.jobs AS j
        WHERE j.id = ANY (v_held) ORDER BY j.id FOR NO KEY UPDATE
    ) AS l;
    store_time := coalesce(p_now, clock_timestamp());
    WITH w AS (
        UPDATE {schema}.jobs AS j SET
            state = CASE WHEN j.cancel_requested THEN 6 ELSE 0 END,
            owner = NULL,
            expiry = NULL,
            due_at = CASE WHEN j.cancel_requested THEN j.due_at ELSE least(j.due_at, store_time) END,
            finished_at = CASE WHEN j.cancel_requested THEN store_time END,
            settled_attempt = j.attempt,
            settled_by = 4,
            receipt_pump = NULL,
            receipt_sequence = NULL
        WHERE j.id = ANY (v_ids)
        RETURNING j.id, j.queue, j.state, j.attempt
    ), d AS (
        INSERT INTO {schema}.ended_deltas (queue, state, delta)
        SELECT w.queue, w.state, count(*) FROM w WHERE w.state = 6 GROUP BY w.queue, w.state
    ), a AS (
        INSERT INTO {schema}.audit (at, actor, action, job, queue)
        SELECT store_time, p_actor, 3, w.id, w.queue FROM w ORDER BY w.id
    ), t AS (
        INSERT INTO {schema}.transitions (at, job, worker, attempt, from_state, to_state, hand)
        SELECT store_time, w.id, p_worker, w.attempt, 2, w.state, 4 FROM w WHERE p_history > 0
    )
    SELECT array_agg(w.id ORDER BY w.id), array_agg(w.id) FILTER (WHERE w.state = 6),
        array_agg(DISTINCT w.queue) FILTER (WHERE w.state = 0)
    INTO revoked, v_ended, v_queues FROM w;
    v_expected := coalesce(cardinality(v_ids), 0);
    IF coalesce(cardinality(revoked), 0) <> v_expected THEN
        PERFORM {schema}.violated_v1('UnexpectedAffectedRowCount',
            format('a revocation updated %s of %s rows that it had locked',
                coalesce(cardinality(revoked), 0), v_expected));
    END IF;
    SELECT d.released, d.released_dues INTO released, released_dues
    FROM {schema}.resolve_if_any_v2(v_ended, p_history, store_time) AS d;
    v_dues := array_fill(store_time, ARRAY[coalesce(cardinality(v_queues), 0)]);
    released := v_queues || released;
    released_dues := v_dues || released_dues;
END
{tag};

-- Pauses (4) or resumes (5) a queue, or sets its limit (6) or that of each concurrency key (7). The exclusive lock waits for the claims that run, and
-- keeps out those that come; no job is touched.
CREATE FUNCTION {schema}.change_queue_v2(
    p_actor text, p_queue text, p_action smallint, p_limit bigint, p_now timestamptz DEFAULT NULL,
    OUT is_paused boolean,
    OUT concurrency_limit bigint,
    OUT key_limit bigint,
    OUT changed boolean,
    -- Whether jobs may be claimable now that were not.
    OUT opened boolean,
    OUT store_time timestamptz
) LANGUAGE plpgsql VOLATILE AS {tag}
#variable_conflict use_column
DECLARE
    v_was_paused boolean;
    v_old_limit bigint;
    v_old_key_limit bigint;
    v_paused boolean;
    v_limit bigint;
    v_key_limit bigint;
    v_rows integer;
BEGIN
    PERFORM {schema}.require_read_committed_v1();
    PERFORM pg_advisory_xact_lock(hashtextextended('backwave configuration {schema_text}', 0));
    INSERT INTO {schema}.queues (name) VALUES (p_queue) ON CONFLICT (name) DO NOTHING;
    SELECT q.is_paused, q.concurrency_limit, q.key_limit INTO v_was_paused, v_old_limit, v_old_key_limit
    FROM {schema}.queues AS q WHERE q.name = p_queue FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM {schema}.violated_v1('GuaranteedRowAbsent',
            'the settings of a queue are gone that this transaction has made sure of');
    END IF;
    store_time := coalesce(p_now, clock_timestamp());
    v_paused := CASE p_action WHEN 4 THEN true WHEN 5 THEN false ELSE v_was_paused END;
    v_limit := CASE p_action WHEN 6 THEN p_limit ELSE v_old_limit END;
    v_key_limit := CASE p_action WHEN 7 THEN p_limit ELSE v_old_key_limit END;
    is_paused := v_paused;
    concurrency_limit := v_limit;
    key_limit := v_key_limit;
    changed := v_paused <> v_was_paused OR v_limit IS DISTINCT FROM v_old_limit
        OR v_key_limit IS DISTINCT FROM v_old_key_limit;
    opened := v_was_paused AND NOT v_paused
        OR changed AND v_old_limit IS NOT NULL AND (v_limit IS NULL OR v_limit > v_old_limit)
        OR coalesce(v_key_limit, 1) > coalesce(v_old_key_limit, 1);
    IF NOT changed THEN
        RETURN;
    END IF;
    UPDATE {schema}.queues AS q SET is_paused = v_paused, concurrency_limit = v_limit, key_limit = v_key_limit
    WHERE q.name = p_queue;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    IF v_rows <> 1 THEN
        PERFORM {schema}.violated_v1('UnexpectedAffectedRowCount',
            format('a change of a queue updated %s rows for one that it had locked', v_rows));
    END IF;
    INSERT INTO {schema}.audit (at, actor, action, concurrency_limit, queue)
    VALUES (store_time, p_actor, p_action, CASE WHEN p_action IN (6, 7) THEN p_limit END, p_queue);
END
{tag};
