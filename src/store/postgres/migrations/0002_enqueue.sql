-- Version 2, part 7: how jobs come in, with parents or without.

-- Ties new jobs to their parents: locks those by ascending id FOR SHARE, which keeps an end from coming between
-- (the row lock of a foreign key would not), and decides from the locked rows. One edge per element, in the order
-- of the call; `p_later` says that the parent stands behind its dependent in the same call, which is no parent
-- to have. Answers the place of the first edge whose parent is not there; then the new jobs are gone again.
CREATE FUNCTION {schema}.tie_v2(
    p_new uuid[], p_children uuid[], p_parents uuid[], p_places smallint[], p_later boolean[], p_now timestamptz,
    OUT rejected integer
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_children uuid[];
    v_parents uuid[];
    v_cancelled uuid[];
    v_expected integer;
    v_rows integer;
BEGIN
    -- A job that existed keeps the parents it has. The test of the membership is hidden from the planner, which
    -- would make a join of it.
    SELECT array_agg(e.child), array_agg(e.parent) INTO v_children, v_parents
    FROM unnest(p_children, p_parents) AS e (child, parent)
    WHERE (e.child IN (SELECT unnest(p_new))) IS TRUE;
    IF v_children IS NULL THEN
        RETURN;
    END IF;
    PERFORM 1 FROM {schema}.jobs AS j WHERE j.id = ANY (v_parents) ORDER BY j.id FOR SHARE;
    SELECT min(e.edge) INTO rejected
    FROM unnest(p_children, p_parents, p_later) WITH ORDINALITY AS e (child, parent, later, edge)
    LEFT JOIN {schema}.jobs AS p ON p.id = e.parent
    WHERE (e.child IN (SELECT unnest(p_new))) IS TRUE
        AND (p.id IS NULL OR e.later AND (e.parent IN (SELECT unnest(p_new))) IS TRUE);
    IF rejected IS NOT NULL THEN
        DELETE FROM {schema}.jobs AS j WHERE j.id = ANY (p_new);
        RETURN;
    END IF;

    WITH RECURSIVE e AS MATERIALIZED (
        SELECT u.child, u.parent, p.state FROM unnest(v_children, v_parents) AS u (child, parent)
        JOIN {schema}.jobs AS p ON p.id = u.parent
        JOIN {schema}.jobs AS c ON c.id = u.child
        WHERE c.parent_rule = 0
    ), f (id) AS (
        SELECT e.child FROM e WHERE e.state IN (4, 5, 6)
        UNION
        SELECT e.child FROM f JOIN e ON e.parent = f.id
    )
    SELECT array_agg(f.id) INTO v_cancelled FROM f;
    INSERT INTO {schema}.lineage (child, parent, place)
    SELECT e.child, e.parent, e.place FROM unnest(p_children, p_parents, p_places) AS e (child, parent, place)
    WHERE (e.child IN (SELECT unnest(p_new))) IS TRUE;
    INSERT INTO {schema}.gates (parent, child)
    SELECT e.parent, e.child FROM unnest(v_children, v_parents) AS e (child, parent)
    JOIN {schema}.jobs AS p ON p.id = e.parent
    WHERE p.state < 3
        AND (e.parent IN (SELECT unnest(v_cancelled))) IS NOT TRUE
        AND (e.child IN (SELECT unnest(v_cancelled))) IS NOT TRUE;

    -- They were stored as if they waited; here are those that do not.
    WITH b (id) AS MATERIALIZED (
        SELECT DISTINCT e.child FROM unnest(v_children) AS e (child)
        WHERE NOT EXISTS (SELECT 1 FROM {schema}.gates AS g WHERE g.child = e.child)
    ), w AS (
        UPDATE {schema}.jobs AS j SET
            state = CASE WHEN (j.id IN (SELECT unnest(v_cancelled))) IS TRUE THEN 6 ELSE 0 END,
            finished_at = CASE WHEN (j.id IN (SELECT unnest(v_cancelled))) IS TRUE THEN p_now END
        FROM b WHERE j.id = b.id
        RETURNING j.queue, j.state
    ), d AS (
        INSERT INTO {schema}.ended_deltas (queue, state, delta)
        SELECT w.queue, w.state, count(*) FROM w WHERE w.state = 6 GROUP BY w.queue, w.state
    )
    SELECT (SELECT count(*) FROM b), (SELECT count(*) FROM w) INTO v_expected, v_rows;
    IF v_rows <> v_expected THEN
        PERFORM {schema}.violated_v1('UnexpectedAffectedRowCount',
            format('an enqueue updated %s of %s rows that it had stored', v_rows, v_expected));
    END IF;
END
{tag};

-- For adapters, which have checked the rows. `p_tags` holds a JSON array of strings per job. A row whose id
-- exists is left as it is, and so is one whose unique key another job holds, who is told. No key comes twice
-- in one call, unless it is held already. Rows come by ascending key and id, so that two calls with the same ones
-- do not deadlock.
--
-- A key is taken by the insert, which waits for whoever is about to take it or to give it back. Where it gave way to
-- a holder that a later statement does not find any more, somebody else has ended meanwhile, and it is tried again.
CREATE FUNCTION {schema}.enqueue_v2(
    p_ids uuid[], p_wire_names text[], p_versions integer[], p_queues text[], p_payloads bytea[],
    p_dues timestamptz[], p_delays_us bigint[], p_retries text[], p_timeouts_us bigint[], p_tags text[],
    p_rules smallint[], p_unique_keys text[], p_concurrency_keys text[],
    -- The tick that a job is minted for.
    p_schedules text[], p_ticks timestamptz[],
    -- Per edge; see tie_v2.
    p_children uuid[], p_parents uuid[], p_places smallint[], p_later boolean[],
    p_history smallint,
    p_now timestamptz DEFAULT NULL,
    OUT new_ids uuid[],
    OUT store_time timestamptz,
    OUT rejected integer,
    -- Per job that was not stored because of its key: itself, who holds the key, and that one's state.
    OUT held_ids uuid[],
    OUT held_by uuid[],
    OUT held_states smallint[]
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_now CONSTANT timestamptz := coalesce(p_now, clock_timestamp());
    v_is_unique CONSTANT boolean := EXISTS (SELECT 1 FROM unnest(p_unique_keys) AS u (key) WHERE u.key IS NOT NULL);
    v_added uuid[];
    v_again uuid[];
BEGIN
    -- An observer is to be told of it, whatever is kept otherwise.
    IF p_history = 0 AND EXISTS (SELECT FROM {schema}.observed) THEN
        p_history := 1;
    END IF;
    store_time := v_now;
    LOOP
        WITH added AS (
            INSERT INTO {schema}.jobs
                (id, wire_name, version, queue, payload, state, due_at, created_at, retry, timeout_us, tags, parent_rule,
                    unique_key, concurrency_key, schedule, tick)
            SELECT u.id, u.wire_name, u.version, u.queue, u.payload,
                CASE WHEN u.id IN (SELECT unnest(p_children)) THEN 1 ELSE 0 END,
                least(coalesce(u.due, v_now + coalesce(u.delay_us, 0) * interval '1 microsecond'),
                    timestamptz '9999-12-30 00:00:00+00'),
                v_now, u.retry, u.timeout_us,
                CASE WHEN u.tags IS NULL THEN '{}'::text[]
                    ELSE ARRAY(SELECT t.tag FROM json_array_elements_text(u.tags::json) AS t (tag)) END,
                u.rule, u.unique_key, u.concurrency_key, u.schedule, u.tick
            FROM unnest(p_ids, p_wire_names, p_versions, p_queues, p_payloads, p_dues, p_delays_us, p_retries,
                    p_timeouts_us, p_tags, p_rules, p_unique_keys, p_concurrency_keys, p_schedules, p_ticks)
                AS u (id, wire_name, version, queue, payload, due, delay_us, retry, timeout_us, tags, rule,
                    unique_key, concurrency_key, schedule, tick)
            WHERE v_again IS NULL OR u.id IN (SELECT unnest(v_again))
            ON CONFLICT DO NOTHING
            RETURNING id
        )
        SELECT array_agg(added.id) INTO v_added FROM added;
        new_ids := new_ids || v_added;
        EXIT WHEN NOT v_is_unique;
        -- Whoever has neither come in nor given way to somebody who is there comes again.
        SELECT array_agg(s.id) FILTER (WHERE s.holder IS NOT NULL),
            array_agg(s.holder) FILTER (WHERE s.holder IS NOT NULL),
            array_agg(s.state) FILTER (WHERE s.holder IS NOT NULL),
            array_agg(s.id) FILTER (WHERE s.holder IS NULL)
        INTO held_ids, held_by, held_states, v_again
        FROM (
            SELECT u.id, h.id AS holder, h.state
            FROM unnest(p_ids, p_unique_keys) AS u (id, key)
            LEFT JOIN LATERAL (
                SELECT h.id, h.state FROM {schema}.jobs AS h
                WHERE h.unique_key = u.key AND h.unique_key IS NOT NULL AND h.state < 3
            ) AS h ON true
            WHERE u.key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {schema}.jobs AS j WHERE j.id = u.id)
        ) AS s;
        EXIT WHEN v_again IS NULL;
    END LOOP;
    INSERT INTO {schema}.keyed_queues (name)
    SELECT DISTINCT u.queue FROM unnest(p_queues, p_concurrency_keys) AS u (queue, key)
    WHERE u.key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {schema}.keyed_queues AS k WHERE k.name = u.queue);
    IF cardinality(p_children) > 0 AND new_ids IS NOT NULL THEN
        rejected := {schema}.tie_v2(new_ids, p_children, p_parents, p_places, p_later, v_now);
    END IF;
    IF rejected IS NOT NULL THEN
        new_ids := NULL;
    ELSIF p_history > 0 THEN
        INSERT INTO {schema}.transitions (at, job, attempt, to_state, hand)
        SELECT v_now, j.id, 0, j.state, 5 FROM {schema}.jobs AS j WHERE j.id = ANY (new_ids);
    END IF;
END
{tag};

-- The same for jobs of new ids without parents, keys and ticks, which is what nearly all are: no insert that gives way
-- to others, no list of what came in. Where one of the ids is known nothing is stored, and `is_fresh` is false; where
-- one becomes known at the same moment the call fails with unique_violation. Then enqueue_v2 is to be asked.
--
-- A column that is the same for all jobs comes as an array of one, and one that is null for all as null.
CREATE FUNCTION {schema}.enqueue_fresh_v2(
    p_ids uuid[], p_wire_names text[], p_versions integer[], p_queues text[], p_payloads bytea[],
    p_dues timestamptz[], p_delays_us bigint[], p_retries text[], p_timeouts_us bigint[], p_tags text[],
    p_history smallint,
    p_now timestamptz DEFAULT NULL,
    OUT is_fresh boolean,
    OUT store_time timestamptz
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_now CONSTANT timestamptz := coalesce(p_now, clock_timestamp());
    v_rows integer;
BEGIN
    store_time := v_now;
    is_fresh := NOT EXISTS (SELECT 1 FROM {schema}.jobs AS j WHERE j.id = ANY (p_ids));
    IF NOT is_fresh THEN
        RETURN;
    END IF;
    INSERT INTO {schema}.jobs
        (id, wire_name, version, queue, payload, state, due_at, created_at, retry, timeout_us, tags)
    SELECT u.id, coalesce(u.wire_name, p_wire_names[1]), coalesce(u.version, p_versions[1]),
        coalesce(u.queue, p_queues[1]), u.payload, 0,
        CASE WHEN u.due IS NULL AND u.delay_us IS NULL THEN v_now
            ELSE least(coalesce(u.due, v_now + u.delay_us * interval '1 microsecond'),
                timestamptz '9999-12-30 00:00:00+00') END,
        v_now, u.retry, u.timeout_us,
        CASE WHEN u.tags IS NULL THEN '{}'::text[]
            ELSE ARRAY(SELECT t.tag FROM json_array_elements_text(u.tags::json) AS t (tag)) END
    FROM unnest(p_ids, p_wire_names, p_versions, p_queues, p_payloads, p_dues, p_delays_us, p_retries,
            p_timeouts_us, p_tags)
        AS u (id, wire_name, version, queue, payload, due, delay_us, retry, timeout_us, tags);
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    IF v_rows <> cardinality(p_ids) THEN
        PERFORM {schema}.violated_v1('UnexpectedAffectedRowCount',
            format('an enqueue stored %s of %s jobs', v_rows, cardinality(p_ids)));
    END IF;
    -- An observer is to be told of it, whatever is kept otherwise.
    IF p_history > 0 OR EXISTS (SELECT 1 FROM {schema}.observed) THEN
        INSERT INTO {schema}.transitions (at, job, attempt, to_state, hand)
        SELECT v_now, u.id, 0, 0, 5 FROM unnest(p_ids) AS u (id);
    END IF;
END
{tag};

-- The parents as they are stored: each once, in the order of the first mention.
CREATE FUNCTION {schema}.checked_parents_v2(p_parents json, p_id uuid) RETURNS uuid[] LANGUAGE plpgsql IMMUTABLE AS {tag}
DECLARE
    v_parent json;
    v_parents uuid[] := '{}';
BEGIN
    IF p_parents IS NULL OR json_typeof(p_parents) = 'null' THEN
        RETURN v_parents;
    END IF;
    IF json_typeof(p_parents) <> 'array' THEN
        RAISE EXCEPTION 'the field parents is no array' USING ERRCODE = '22023';
    END IF;
    FOR v_parent IN SELECT p.parent FROM json_array_elements(p_parents) AS p (parent) LOOP
        IF json_typeof(v_parent) <> 'string'
            OR v_parent #>> '{}' !~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'
        THEN
            RAISE EXCEPTION 'the field parents holds what is no UUID' USING ERRCODE = '22023';
        END IF;
        IF (v_parent #>> '{}')::uuid = p_id THEN
            RAISE EXCEPTION 'the field parents holds the job itself' USING ERRCODE = '22023';
        END IF;
        IF (v_parent #>> '{}')::uuid <> ALL (v_parents) THEN
            v_parents := v_parents || (v_parent #>> '{}')::uuid;
        END IF;
    END LOOP;
    IF cardinality(v_parents) > 16 THEN
        RAISE EXCEPTION 'the job has % parents and the limit is 16', cardinality(v_parents) USING ERRCODE = '22023';
    END IF;
    RETURN v_parents;
END
{tag};

CREATE FUNCTION {schema}.checked_key_v2(p_job json, p_field text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS {tag}
DECLARE
    v_key CONSTANT text := {schema}.checked_string_v1(p_job, p_field);
BEGIN
    IF v_key = '' THEN
        RAISE EXCEPTION 'the field % is empty', p_field USING ERRCODE = '22023';
    ELSIF octet_length(v_key) > 256 THEN
        RAISE EXCEPTION 'the field % has % bytes and the limit is 256', p_field, octet_length(v_key)
            USING ERRCODE = '22023';
    ELSIF v_key ~ '[\u0001-\u001f\u007f]' THEN
        RAISE EXCEPTION 'the field % holds a control character', p_field USING ERRCODE = '22023';
    ELSIF v_key LIKE ' %' OR v_key LIKE '% ' THEN
        RAISE EXCEPTION 'the field % begins or ends with a blank', p_field USING ERRCODE = '22023';
    END IF;
    RETURN v_key;
END
{tag};

CREATE FUNCTION {schema}.checked_rule_v2(p_job json) RETURNS smallint LANGUAGE plpgsql IMMUTABLE AS {tag}
DECLARE
    v_rule CONSTANT text := {schema}.checked_string_v1(p_job, 'parent_rule');
BEGIN
    CASE coalesce(v_rule, 'OnSuccess')
        WHEN 'OnSuccess' THEN RETURN 0;
        WHEN 'OnAnyTerminal' THEN RETURN 1;
        ELSE
            RAISE EXCEPTION 'the field parent_rule is neither OnSuccess nor OnAnyTerminal' USING ERRCODE = '22023';
    END CASE;
END
{tag};

-- The advertised way in for every language, inside any transaction: a JSON object with `wire_name` and
-- `payload`, and optionally `id`, `version`, `queue`, `due_at` (RFC 3339) or `delay_ms`, `retry`,
-- `timeout_ms`, `tags`, `parents` (ids of jobs), `parent_rule` (`OnSuccess` or `OnAnyTerminal`), `unique_key` and
-- `concurrency_key`. Answers the job's id, or that of the job that holds the unique key, where nothing is stored. An
-- id that exists is left as it is. What is wrong with the job is SQLSTATE 22023. Its birth is in a history only where
-- an observer is registered: what a store keeps otherwise is its programs' setting, which is not known here.
CREATE OR REPLACE FUNCTION {schema}.enqueue(p_job json) RETURNS uuid LANGUAGE plpgsql VOLATILE
SET standard_conforming_strings = on SET search_path = pg_catalog, pg_temp AS {tag}
DECLARE
    v_now CONSTANT timestamptz := clock_timestamp();
    v_field text;
    v_id uuid;
    v_payload text;
    v_replaced text;
    v_marker text;
    v_parents uuid[];
    v_rejected integer;
    v_held_by uuid;
BEGIN
    SELECT w.replaced, w.marker INTO v_replaced, v_marker FROM {schema}.without_nul_v1(p_job::text) AS w;
    IF v_marker IS NOT NULL THEN
        p_job := v_replaced;
    END IF;
    IF p_job IS NULL OR json_typeof(p_job) <> 'object' THEN
        RAISE EXCEPTION 'the job is no JSON object' USING ERRCODE = '22023';
    END IF;
    FOR v_field IN
        SELECT k.name FROM json_object_keys(p_job) AS k (name)
        WHERE k.name NOT IN ('id', 'wire_name', 'version', 'queue', 'payload', 'due_at', 'delay_ms', 'retry',
            'timeout_ms', 'tags', 'parents', 'parent_rule', 'unique_key', 'concurrency_key')
    LOOP
        RAISE EXCEPTION 'the field % is unknown', left(v_field, 64) USING ERRCODE = '22023';
    END LOOP;
    IF p_job -> 'payload' IS NULL THEN
        RAISE EXCEPTION 'the field payload is missing' USING ERRCODE = '22023';
    END IF;
    v_payload := p_job -> 'payload';
    IF v_marker IS NOT NULL THEN
        IF length(v_replaced) - length(replace(v_replaced, v_marker, ''))
                <> length(v_payload) - length(replace(v_payload, v_marker, ''))
        THEN
            RAISE EXCEPTION 'only the payload may hold a NUL' USING ERRCODE = '22023';
        END IF;
        v_payload := replace(v_payload, v_marker, '\u0000');
    END IF;
    IF octet_length(v_payload) > 65536 THEN
        RAISE EXCEPTION 'the payload has % bytes and the limit is 65536', octet_length(v_payload)
            USING ERRCODE = '22023';
    END IF;
    IF {schema}.checked_string_v1(p_job, 'id') !~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' THEN
        RAISE EXCEPTION 'the field id is no UUID' USING ERRCODE = '22023';
    END IF;
    v_id := coalesce((p_job ->> 'id')::uuid, {schema}.new_id_v1());
    v_parents := {schema}.checked_parents_v2(p_job -> 'parents', v_id);
    SELECT e.rejected, e.held_by[1] INTO v_rejected, v_held_by FROM {schema}.enqueue_v2(
        ARRAY[v_id],
        ARRAY[{schema}.checked_name_v1('wire name', {schema}.checked_string_v1(p_job, 'wire_name'))],
        ARRAY[coalesce({schema}.checked_number_v1(p_job, 'version', 1, 2147483647), 1)::integer],
        ARRAY[{schema}.checked_name_v1('queue name',
            coalesce({schema}.checked_string_v1(p_job, 'queue'), 'default'))],
        ARRAY[convert_to(v_payload, 'UTF8')],
        ARRAY[{schema}.checked_due_v1(p_job, v_now)],
        NULL,
        ARRAY[{schema}.checked_retry_v1(p_job -> 'retry')],
        ARRAY[{schema}.checked_number_v1(p_job, 'timeout_ms', 1, 9007199254740) * 1000],
        ARRAY[to_json({schema}.checked_tags_v1(p_job -> 'tags'))::text],
        ARRAY[{schema}.checked_rule_v2(p_job)],
        ARRAY[{schema}.checked_key_v2(p_job, 'unique_key')],
        ARRAY[{schema}.checked_key_v2(p_job, 'concurrency_key')],
        NULL, NULL,
        array_fill(v_id, ARRAY[cardinality(v_parents)]),
        v_parents,
        ARRAY(SELECT (p.place - 1)::smallint FROM generate_series(1, cardinality(v_parents)) AS p (place)),
        array_fill(false, ARRAY[cardinality(v_parents)]),
        0::smallint,
        v_now) AS e;
    IF v_rejected IS NOT NULL THEN
        RAISE EXCEPTION 'the field parents holds %, and there is no such job', v_parents[v_rejected]
            USING ERRCODE = '22023';
    END IF;
    RETURN coalesce(v_held_by, v_id);
END
{tag};
