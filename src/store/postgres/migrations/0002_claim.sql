-- Version 2, part 3: the claim, which heeds how queues are set.
--
-- One row per job claimed, and a last row without an id that sums up. Steps, each a statement of its own:
-- a shared lock of the schema's configuration, which whoever changes it takes exclusively; the settings of the
-- planned queues; a lock of those with a limit, in order of their names, so that claims of one limited queue come
-- one after another; the count of what is leased there, whose snapshot is younger than that lock; then, per
-- queue, the lowest Scheduled row from the floor on (which is the next floor, and says whether anything is due
-- at all); the candidates, locked; their update, whose snapshot is younger than the locks.
--
-- Of a queue that ever had a job with a concurrency key and has one that is due, the claim locks the mark of that,
-- too, and counts leases by key after it. Only a claim that has done so takes jobs with a key: one that saw no mark,
-- or nothing due, looks at what has none, which stands in an index of its own.
--
-- Who holds a queue's settings or marks waits for no job: candidates that are locked are passed over.

-- Locks the settings of queues by ascending name.
CREATE FUNCTION {schema}.lock_limits_v2(p_names text[])
RETURNS TABLE (name text, concurrency_limit bigint) LANGUAGE plpgsql VOLATILE AS {tag}
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT q.name, q.concurrency_limit FROM {schema}.queues AS q
    WHERE q.name = ANY (p_names) ORDER BY q.name FOR UPDATE;
END
{tag};

-- How many of a queue's jobs are leased, dead leases included.
CREATE FUNCTION {schema}.leased_count_v2(p_queue text) RETURNS bigint LANGUAGE plpgsql STABLE AS {tag}
BEGIN
    RETURN (SELECT count(*) FROM {schema}.jobs AS j WHERE j.state = 2 AND j.queue = p_queue);
END
{tag};

-- How many more jobs each of the given queues may lease: its limit less what is leased there, counted once the
-- settings are locked.
CREATE FUNCTION {schema}.rooms_v2(p_queues text[], OUT names text[], OUT rooms bigint[])
LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_limits bigint[];
BEGIN
    SELECT array_agg(l.name), array_agg(l.concurrency_limit) INTO names, v_limits
    FROM {schema}.lock_limits_v2(p_queues) AS l;
    IF coalesce(cardinality(names), 0) <> cardinality(p_queues) THEN
        PERFORM {schema}.violated_v1('QueueConfigLockNotAcquired',
            format('of the settings of %s queues, %s were locked',
                cardinality(p_queues), coalesce(cardinality(names), 0)));
    END IF;
    SELECT array_agg(l.concurrency_limit - {schema}.leased_count_v2(l.name) ORDER BY l.place) INTO rooms
    FROM unnest(names, v_limits) WITH ORDINALITY AS l (name, concurrency_limit, place);
    IF array_position(rooms, NULL) IS NOT NULL THEN
        PERFORM {schema}.violated_v1('LeasedCountAggregateNull',
            format('the count of leased jobs of the queue %s is null', names[array_position(rooms, NULL)]));
    END IF;
END
{tag};

-- Locks the marks of queues with keys, by ascending name.
CREATE FUNCTION {schema}.lock_keys_v2(p_names text[]) RETURNS void LANGUAGE plpgsql VOLATILE AS {tag}
BEGIN
    PERFORM 1 FROM {schema}.keyed_queues AS k WHERE k.name = ANY (p_names) ORDER BY k.name, k.ctid FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM {schema}.violated_v1('QueueConfigLockNotAcquired',
            format('of the queues %s, which have keys, no mark was locked', p_names));
    END IF;
END
{tag};

-- The first `p_room` jobs of a queue that are due and acceptable and whose key has a slot for them. First it goes
-- along the jobs in their order; where so many of them have no slot that it does not find enough, it goes from key
-- to key, so that a backlog of one key is one step however long it is. Its price grows with the keys that wait.
CREATE FUNCTION {schema}.keyed_due_v2(
    p_queue text, p_now timestamptz, p_room integer, p_limit bigint, p_names text[], p_versions bigint[],
    OUT tids tid[]
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_window CONSTANT integer := greatest(64, 4 * least(p_room, 100000));
    v_seen integer;
BEGIN
    SELECT count(*), array_agg(s.tid ORDER BY s.due_at, s.id) FILTER (WHERE s.place <= s.free)
    INTO v_seen, tids
    FROM (
        SELECT r.tid, r.due_at, r.id, r.place,
            CASE WHEN r.place <= p_limit THEN p_limit - (
                SELECT count(*) FROM {schema}.jobs AS l
                WHERE l.state + 0 = 2 AND l.concurrency_key IS NOT NULL AND l.queue = p_queue
                    AND l.concurrency_key = r.concurrency_key
            ) END AS free
        FROM (
            SELECT w.tid, w.due_at, w.id, w.concurrency_key,
                row_number() OVER (PARTITION BY w.concurrency_key ORDER BY w.due_at, w.id) AS place
            FROM (
                SELECT j.ctid AS tid, j.due_at, j.id, j.concurrency_key FROM {schema}.jobs AS j
                WHERE j.state = 0 AND j.concurrency_key IS NOT NULL AND j.queue = p_queue AND j.due_at <= p_now
                    AND j.wire_name = ANY (p_names)
                    AND j.version <= p_versions[array_position(p_names, j.wire_name)]
                ORDER BY j.due_at, j.id LIMIT v_window
            ) AS w
        ) AS r
    ) AS s;
    IF coalesce(cardinality(tids), 0) < p_room AND v_seen >= v_window THEN
        WITH RECURSIVE k AS (
            SELECT (
                SELECT j.concurrency_key FROM {schema}.jobs AS j
                WHERE j.state + 0 = 0 AND j.concurrency_key IS NOT NULL AND j.queue = p_queue
                ORDER BY j.queue, j.concurrency_key, j.due_at, j.id LIMIT 1
            ) AS key
            UNION ALL
            SELECT (
                SELECT j.concurrency_key FROM {schema}.jobs AS j
                WHERE j.state + 0 = 0 AND j.concurrency_key IS NOT NULL AND j.queue = p_queue
                    AND j.concurrency_key > k.key
                ORDER BY j.queue, j.concurrency_key, j.due_at, j.id LIMIT 1
            )
            FROM k WHERE k.key IS NOT NULL
        ), f AS MATERIALIZED (
            SELECT k.key, p_limit - (
                SELECT count(*) FROM {schema}.jobs AS l
                WHERE l.state + 0 = 2 AND l.concurrency_key IS NOT NULL AND l.queue = p_queue
                    AND l.concurrency_key = k.key
            ) AS free
            FROM k WHERE k.key IS NOT NULL
        )
        SELECT array_agg(s.tid ORDER BY s.due_at, s.id) INTO tids
        FROM (
            SELECT c.tid, c.due_at, c.id FROM f CROSS JOIN LATERAL (
                SELECT j.ctid AS tid, j.due_at, j.id FROM {schema}.jobs AS j
                WHERE j.state + 0 = 0 AND j.concurrency_key IS NOT NULL AND j.queue = p_queue
                    AND j.concurrency_key = f.key AND j.due_at <= p_now
                    AND j.wire_name = ANY (p_names)
                    AND j.version <= p_versions[array_position(p_names, j.wire_name)]
                ORDER BY j.queue, j.concurrency_key, j.due_at, j.id LIMIT least(f.free, p_room)
            ) AS c
            WHERE f.free > 0
            ORDER BY c.due_at, c.id LIMIT p_room
        ) AS s;
    END IF;
    tids := tids[1 : p_room];
END
{tag};

-- When the first acceptable job with a key is due, in any of the queues, that is due after one instant and by
-- another.
CREATE FUNCTION {schema}.keyed_first_v2(
    p_queues text[], p_after timestamptz, p_until timestamptz, p_names text[], p_versions bigint[]
) RETURNS timestamptz LANGUAGE plpgsql STABLE AS {tag}
BEGIN
    RETURN (
        SELECT min(d.due_at) FROM unnest(p_queues) AS q (name) CROSS JOIN LATERAL (
            SELECT j.due_at FROM {schema}.jobs AS j
            WHERE j.state = 0 AND j.concurrency_key IS NOT NULL AND j.queue = q.name
                AND j.due_at > p_after AND j.due_at <= p_until
                AND j.wire_name = ANY (p_names)
                AND j.version <= p_versions[array_position(p_names, j.wire_name)]
            ORDER BY j.due_at, j.id LIMIT 1
        ) AS d);
END
{tag};

CREATE FUNCTION {schema}.claim_v2(
    p_worker uuid,
    p_total integer,
    p_queues text[],
    p_quotas integer[],
    p_spill boolean,
    p_names text[],
    p_versions bigint[],
    p_bytes_max bigint,
    p_lease_us bigint,
    -- Per queue, the lowest (due, id) that can still be claimable; null where it is not known.
    p_floor_dues timestamptz[],
    p_floor_ids uuid[],
    p_history smallint,
    p_now timestamptz DEFAULT NULL
) RETURNS TABLE (
    id uuid, pass smallint, place smallint, attempt integer, failures integer, version integer,
    state_before smallint, state smallint, owner uuid, expiry timestamptz, due_at timestamptz,
    timeout_us bigint, wire_name text, queue text, retry text, tags text[], payload bytea,
    -- Of the last row only.
    store_time timestamptz, withheld boolean, next_due timestamptz,
    floor_dues timestamptz[], floor_ids uuid[],
    -- Per queue looked at without a floor: how long that took, and how many index entries it passed.
    probes_us bigint[], waded bigint[],
    -- Of each job.
    schedule text, tick timestamptz
) LANGUAGE plpgsql VOLATILE AS {tag}
#variable_conflict use_column
DECLARE
    v_nil CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    v_now timestamptz;
    v_expiry timestamptz;
    v_left integer := p_total;
    v_bytes bigint := 0;
    v_sum bigint;
    v_full boolean := false;
    v_withheld boolean := false;
    v_bounded boolean := false;
    v_next timestamptz;
    -- Per queue of the plan: whether it may hold more that is due and claimable.
    v_open boolean[] := array_fill(NULL::boolean, ARRAY[cardinality(p_queues)]);
    v_dues timestamptz[] := p_floor_dues;
    v_ids uuid[] := p_floor_ids;
    v_probes bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(p_queues)]);
    v_waded bigint[] := v_probes;
    v_began timestamptz;
    v_entries bigint;
    v_queue text;
    v_room integer;
    v_fit integer;
    v_size bigint;
    v_rows integer;
    v_due timestamptz;
    v_id uuid;
    v_tids tid[];
    v_jobs uuid[];
    v_states smallint[];
    v_sizes bigint[];
    v_paused text[];
    -- Queues with a limit; those of them that hold something due; how many more of each may be leased.
    v_capped text[];
    v_limited text[];
    v_rooms bigint[];
    v_slot integer;
    -- Queues that ever had keys; those of them with one that is due, and how many jobs of one key may be leased.
    v_marked text[];
    v_keyed text[];
    v_key_limits bigint[];
    v_keyed_tids tid[];
BEGIN
    -- An observer is to be told of it, whatever is kept otherwise.
    IF p_history = 0 AND EXISTS (SELECT FROM {schema}.observed) THEN
        p_history := 1;
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM {schema}.require_read_committed_v1();
    END IF;
    IF current_setting('transaction_read_only') <> 'off' THEN
        PERFORM {schema}.require_writable_v1();
    END IF;
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('backwave configuration {schema_text}', 0));
    v_now := coalesce(p_now, clock_timestamp());
    -- Of a limited queue without a job that is due nothing is taken: its settings need no lock, and an idle claim
    -- writes nothing.
    SELECT array_agg(q.name) FILTER (WHERE q.is_paused),
        array_agg(q.name) FILTER (WHERE NOT q.is_paused AND d.is_due),
        array_agg(q.name) FILTER (WHERE q.concurrency_limit IS NOT NULL),
        (SELECT array_agg(DISTINCT k.name) FROM {schema}.keyed_queues AS k WHERE k.name = ANY (p_queues))
    INTO v_paused, v_limited, v_capped, v_marked
    FROM {schema}.queues AS q
    CROSS JOIN LATERAL (
        SELECT EXISTS (
            SELECT 1 FROM {schema}.jobs AS j
            WHERE j.state = 0 AND j.concurrency_key IS NULL AND j.queue = q.name AND j.due_at <= v_now
        ) OR EXISTS (
            SELECT 1 FROM {schema}.jobs AS j
            WHERE j.state = 0 AND j.concurrency_key IS NOT NULL AND j.queue = q.name AND j.due_at <= v_now
        ) AS is_due
    ) AS d
    WHERE q.name = ANY (p_queues) AND (q.is_paused OR q.concurrency_limit IS NOT NULL);
    IF v_limited IS NOT NULL THEN
        SELECT r.names, r.rooms INTO v_limited, v_rooms FROM {schema}.rooms_v2(v_limited) AS r;
        v_now := coalesce(p_now, clock_timestamp());
    END IF;
    IF v_marked IS NOT NULL THEN
        SELECT array_agg(k.name) INTO v_keyed FROM unnest(v_marked) AS k (name)
        WHERE (k.name = ANY (v_paused)) IS NOT TRUE
            AND {schema}.keyed_first_v2(ARRAY[k.name], '-infinity', v_now, p_names, p_versions) IS NOT NULL;
    END IF;
    IF v_keyed IS NOT NULL THEN
        PERFORM {schema}.lock_keys_v2(v_keyed);
        SELECT array_agg(coalesce(q.key_limit, 1) ORDER BY k.place) INTO v_key_limits
        FROM unnest(v_keyed) WITH ORDINALITY AS k (name, place) LEFT JOIN {schema}.queues AS q ON q.name = k.name;
        v_now := coalesce(p_now, clock_timestamp());
    END IF;
    v_expiry := least(v_now + p_lease_us * interval '1 microsecond', timestamptz '9999-12-30 00:00:00+00');
    FOR v_pass IN 1 .. CASE WHEN p_spill THEN 2 ELSE 1 END LOOP
        FOR v_place IN 1 .. cardinality(p_queues) LOOP
            EXIT WHEN v_left <= 0 OR v_full;
            v_queue := p_queues[v_place];
            CONTINUE WHEN v_queue = ANY (v_paused);
            IF v_open[v_place] IS NULL THEN
                v_began := clock_timestamp();
                v_entries := pg_stat_get_xact_tuples_returned('{schema_text}.jobs_due'::regclass);
                SELECT j.due_at, j.id INTO v_due, v_id FROM {schema}.jobs AS j
                WHERE j.state = 0 AND j.concurrency_key IS NULL AND j.queue = v_queue
                    AND (j.due_at, j.id) >= (coalesce(v_dues[v_place], '-infinity'), coalesce(v_ids[v_place], v_nil))
                ORDER BY j.due_at, j.id LIMIT 1;
                IF v_dues[v_place] IS NULL THEN
                    v_probes[v_place] := 1000000 * extract(epoch FROM clock_timestamp() - v_began);
                    v_waded[v_place] :=
                        pg_stat_get_xact_tuples_returned('{schema_text}.jobs_due'::regclass) - v_entries;
                END IF;
                v_open[v_place] := coalesce(v_due <= v_now, false);
                -- A job enqueued from now on may be due now: the floor stays at or below it.
                IF v_open[v_place] THEN
                    v_dues[v_place] := v_due;
                    v_ids[v_place] := v_id;
                ELSE
                    v_dues[v_place] := v_now;
                    v_ids[v_place] := v_nil;
                    v_open[v_place] := coalesce(v_queue = ANY (v_keyed), false);
                END IF;
            END IF;
            v_room := CASE v_pass WHEN 1 THEN least(p_quotas[v_place], v_left) ELSE v_left END;
            CONTINUE WHEN NOT v_open[v_place];
            IF v_queue = ANY (v_capped) THEN
                v_slot := array_position(v_limited, v_queue);
                -- Without a slot, what is due has become so since the settings were read: the next claim's.
                v_room := least(v_room, coalesce(v_rooms[v_slot], 0));
            END IF;
            IF v_room <= 0 THEN
                v_bounded := true;
                CONTINUE;
            END IF;

            IF v_queue = ANY (v_keyed) THEN
                SELECT k.tids INTO v_keyed_tids FROM {schema}.keyed_due_v2(
                    v_queue, v_now, v_room, v_key_limits[array_position(v_keyed, v_queue)], p_names, p_versions) AS k;
                -- Locked are more than are taken, until the transaction ends: those behind the room.
                WITH u AS MATERIALIZED (
                    SELECT j.ctid AS tid, j.id, j.state, octet_length(j.payload)::bigint AS size, j.due_at
                    FROM {schema}.jobs AS j
                    WHERE j.state = 0 AND j.concurrency_key IS NULL AND j.queue = v_queue AND j.due_at <= v_now
                        AND (j.due_at, j.id) >= (v_dues[v_place], v_ids[v_place])
                        AND j.wire_name = ANY (p_names)
                        AND j.version <= p_versions[array_position(p_names, j.wire_name)]
                    ORDER BY j.due_at, j.id LIMIT v_room FOR NO KEY UPDATE SKIP LOCKED
                ), k AS MATERIALIZED (
                    SELECT j.ctid AS tid, j.id, j.state, octet_length(j.payload)::bigint AS size, j.due_at
                    FROM {schema}.jobs AS j
                    WHERE j.ctid = ANY (v_keyed_tids) AND j.state = 0 FOR NO KEY UPDATE SKIP LOCKED
                ), c AS MATERIALIZED (
                    SELECT u.tid, u.id, u.state, u.size, u.due_at FROM u
                    UNION ALL
                    SELECT k.tid, k.id, k.state, k.size, k.due_at FROM k
                    ORDER BY due_at, id LIMIT v_room
                )
                SELECT array_agg(c.tid), array_agg(c.id), array_agg(c.state), array_agg(c.size), sum(c.size)
                INTO v_tids, v_jobs, v_states, v_sizes, v_sum FROM c;
            ELSE
                WITH c AS MATERIALIZED (
                    SELECT j.ctid AS tid, j.id, j.state, octet_length(j.payload)::bigint AS size
                    FROM {schema}.jobs AS j
                    WHERE j.state = 0 AND j.concurrency_key IS NULL AND j.queue = v_queue AND j.due_at <= v_now
                        AND (j.due_at, j.id) >= (v_dues[v_place], v_ids[v_place])
                        AND j.wire_name = ANY (p_names)
                        AND j.version <= p_versions[array_position(p_names, j.wire_name)]
                    ORDER BY j.due_at, j.id LIMIT v_room FOR NO KEY UPDATE SKIP LOCKED
                )
                SELECT array_agg(c.tid), array_agg(c.id), array_agg(c.state), array_agg(c.size), sum(c.size)
                INTO v_tids, v_jobs, v_states, v_sizes, v_sum FROM c;
            END IF;
            v_fit := coalesce(cardinality(v_tids), 0);
            IF v_fit < v_room THEN
                v_open[v_place] := false;
            ELSE
                v_bounded := true;
            END IF;
            CONTINUE WHEN v_fit = 0;

            IF v_bytes + v_sum > p_bytes_max THEN
                v_rows := v_fit;
                v_fit := 0;
                FOREACH v_size IN ARRAY v_sizes LOOP
                    EXIT WHEN v_bytes + v_size > p_bytes_max AND (v_fit > 0 OR v_left < p_total);
                    v_bytes := v_bytes + v_size;
                    v_fit := v_fit + 1;
                END LOOP;
                v_full := true;
                v_withheld := v_fit < v_rows;
                v_open[v_place] := true;
                v_tids := v_tids[1 : v_fit];
                EXIT WHEN v_fit = 0;
            ELSE
                v_bytes := v_bytes + v_sum;
            END IF;

            RETURN QUERY UPDATE {schema}.jobs AS j
            SET state = 2, owner = p_worker, expiry = v_expiry, attempt = j.attempt + 1
            FROM unnest(v_tids, v_states) AS c (tid, state)
            WHERE j.ctid = c.tid
            RETURNING j.id, v_pass::smallint, v_place::smallint, j.attempt, j.failures, j.version,
                c.state, j.state, j.owner, j.expiry, j.due_at,
                j.timeout_us, j.wire_name, j.queue, j.retry, j.tags, j.payload,
                NULL::timestamptz, NULL::boolean, NULL::timestamptz,
                NULL::timestamptz[], NULL::uuid[], NULL::bigint[], NULL::bigint[],
                j.schedule, j.tick;
            GET DIAGNOSTICS v_rows = ROW_COUNT;
            IF v_rows <> v_fit THEN
                PERFORM {schema}.violated_v1('UnexpectedAffectedRowCount',
                    format('a claim updated %s of %s rows that it had locked', v_rows, v_fit));
            END IF;
            IF p_history > 0 THEN
                INSERT INTO {schema}.transitions (at, job, worker, attempt, from_state, to_state, hand)
                SELECT v_now, j.id, p_worker, j.attempt, 0, j.state, 6
                FROM {schema}.jobs AS j WHERE j.id = ANY (v_jobs[1 : v_fit]);
            END IF;
            v_left := v_left - v_rows;
            IF v_queue = ANY (v_capped) THEN
                v_rooms[v_slot] := v_rooms[v_slot] - v_rows;
            END IF;
        END LOOP;
    END LOOP;

    IF v_left > 0 AND p_total > 0 THEN
        FOR v_place IN 1 .. cardinality(p_queues) LOOP
            CONTINUE WHEN p_queues[v_place] = ANY (v_paused);
            -- What is due in a queue that came back short is locked by somebody else's claim; in another it is
            -- kept back by a bound. Neither is next.
            IF NOT v_withheld AND (v_full OR v_bounded) AND v_open[v_place] IS NOT false THEN
                v_withheld := EXISTS (
                    SELECT 1 FROM {schema}.jobs AS j
                    WHERE j.state = 0 AND j.concurrency_key IS NULL AND j.queue = p_queues[v_place]
                        AND j.due_at <= v_now
                        AND (j.due_at, j.id) >= (coalesce(v_dues[v_place], '-infinity'), coalesce(v_ids[v_place], v_nil))
                        AND j.wire_name = ANY (p_names)
                        AND j.version <= p_versions[array_position(p_names, j.wire_name)]);
            END IF;
            SELECT j.due_at INTO v_due FROM {schema}.jobs AS j
            WHERE j.state = 0 AND j.concurrency_key IS NULL AND j.queue = p_queues[v_place]
                AND (j.due_at, j.id) >= (v_now + interval '1 microsecond', v_nil)
                AND j.wire_name = ANY (p_names)
                AND j.version <= p_versions[array_position(p_names, j.wire_name)]
            ORDER BY j.due_at, j.id LIMIT 1;
            v_next := least(v_next, v_due);
        END LOOP;
        IF v_marked IS NOT NULL THEN
            -- What is due and was not taken is kept back by a key or a bound: not next.
            v_withheld := v_withheld
                OR {schema}.keyed_first_v2(v_keyed, '-infinity', v_now, p_names, p_versions) IS NOT NULL;
            v_next := least(v_next, {schema}.keyed_first_v2(
                ARRAY(SELECT k.name FROM unnest(v_marked) AS k (name) WHERE (k.name = ANY (v_paused)) IS NOT TRUE),
                v_now, 'infinity', p_names, p_versions));
        END IF;
    END IF;
    IF v_paused IS NOT NULL AND p_total > 0 AND NOT v_withheld THEN
        v_withheld := EXISTS (
            SELECT 1 FROM unnest(v_paused) AS q (name) CROSS JOIN LATERAL (
                SELECT 1 FROM {schema}.jobs AS j
                WHERE j.state = 0 AND j.concurrency_key IS NULL AND j.queue = q.name AND j.due_at <= v_now
                    AND j.wire_name = ANY (p_names)
                    AND j.version <= p_versions[array_position(p_names, j.wire_name)]
                LIMIT 1
            ) AS d)
            OR {schema}.keyed_first_v2(v_paused, '-infinity', v_now, p_names, p_versions) IS NOT NULL;
    END IF;
    store_time := v_now;
    withheld := v_withheld;
    next_due := v_next;
    floor_dues := v_dues;
    floor_ids := v_ids;
    probes_us := v_probes;
    waded := v_waded;
    RETURN NEXT;
END
{tag};
