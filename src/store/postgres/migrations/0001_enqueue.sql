-- Version 1, part 6: how jobs come in.

-- For adapters, which have checked the rows. `p_tags` holds a JSON array of strings per job. A row whose id
-- exists is left as it is. Rows come by ascending id, so that two calls with the same ids do not deadlock.
CREATE FUNCTION {schema}.enqueue_v1(
    p_ids uuid[], p_wire_names text[], p_versions integer[], p_queues text[], p_payloads bytea[],
    p_dues timestamptz[], p_delays_us bigint[], p_retries text[], p_timeouts_us bigint[], p_tags text[],
    p_now timestamptz DEFAULT NULL,
    OUT new_ids uuid[],
    OUT store_time timestamptz
) LANGUAGE plpgsql VOLATILE AS {tag}
DECLARE
    v_now CONSTANT timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    store_time := v_now;
    WITH added AS (
        INSERT INTO {schema}.jobs
            (id, wire_name, version, queue, payload, state, due_at, created_at, retry, timeout_us, tags)
        SELECT u.id, u.wire_name, u.version, u.queue, u.payload, 0,
            least(coalesce(u.due, v_now + coalesce(u.delay_us, 0) * interval '1 microsecond'),
                timestamptz '9999-12-30 00:00:00+00'),
            v_now, u.retry, u.timeout_us,
            CASE WHEN u.tags IS NULL THEN '{}'::text[]
                ELSE ARRAY(SELECT t.tag FROM json_array_elements_text(u.tags::json) AS t (tag)) END
        FROM unnest(p_ids, p_wire_names, p_versions, p_queues, p_payloads, p_dues, p_delays_us, p_retries,
                p_timeouts_us, p_tags)
            AS u (id, wire_name, version, queue, payload, due, delay_us, retry, timeout_us, tags)
        ON CONFLICT (id) DO NOTHING
        RETURNING id
    )
    SELECT array_agg(added.id) INTO new_ids FROM added;
END
{tag};

-- A version 7 UUID: 48 bits of time, the rest random but for version and variant.
CREATE FUNCTION {schema}.new_id_v1() RETURNS uuid LANGUAGE sql VOLATILE AS {tag}
    SELECT encode(set_bit(set_bit(overlay(
        uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
        FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
{tag};

CREATE FUNCTION {schema}.checked_name_v1(p_what text, p_name text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS {tag}
BEGIN
    IF p_name IS NULL OR p_name = '' THEN
        RAISE EXCEPTION 'the % is missing or empty', p_what USING ERRCODE = '22023';
    ELSIF octet_length(p_name) > 128 THEN
        RAISE EXCEPTION 'the % has % bytes and the limit is 128', p_what, octet_length(p_name) USING ERRCODE = '22023';
    ELSIF p_name ~ '[\u0001-\u001f\u007f]' THEN
        RAISE EXCEPTION 'the % holds a control character', p_what USING ERRCODE = '22023';
    ELSIF p_name LIKE ' %' OR p_name LIKE '% ' THEN
        RAISE EXCEPTION 'the % begins or ends with a blank', p_what USING ERRCODE = '22023';
    END IF;
    RETURN p_name;
END
{tag};

CREATE FUNCTION {schema}.checked_number_v1(p_job json, p_field text, p_min bigint, p_max bigint)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS {tag}
DECLARE
    v_text CONSTANT text := p_job ->> p_field;
    v_number numeric;
BEGIN
    IF v_text IS NULL THEN
        RETURN NULL;
    END IF;
    IF json_typeof(p_job -> p_field) <> 'number' OR v_text !~ '^-?[0-9]{1,19}$' THEN
        RAISE EXCEPTION 'the field % is no whole number', p_field USING ERRCODE = '22023';
    END IF;
    v_number := v_text::numeric;
    IF v_number NOT BETWEEN p_min AND p_max THEN
        RAISE EXCEPTION 'the field % is % and not between % and %', p_field, v_text, p_min, p_max
            USING ERRCODE = '22023';
    END IF;
    RETURN v_number;
END
{tag};

CREATE FUNCTION {schema}.checked_string_v1(p_job json, p_field text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS {tag}
BEGIN
    IF json_typeof(p_job -> p_field) NOT IN ('string', 'null') THEN
        RAISE EXCEPTION 'the field % is no string', p_field USING ERRCODE = '22023';
    END IF;
    RETURN p_job ->> p_field;
END
{tag};

-- The retry policy in the form in which it is stored.
CREATE FUNCTION {schema}.checked_retry_v1(p_retry json) RETURNS text LANGUAGE plpgsql IMMUTABLE AS {tag}
DECLARE
    -- One year.
    v_delay_max CONSTANT bigint := 31622400000000;
    v_first bigint;
    v_max bigint;
BEGIN
    IF p_retry IS NULL OR json_typeof(p_retry) = 'null' THEN
        RETURN NULL;
    END IF;
    IF json_typeof(p_retry) <> 'object' OR EXISTS (
        SELECT 1 FROM json_object_keys(p_retry) AS k (name)
        WHERE k.name NOT IN ('failures_max', 'delay_first_us', 'delay_max_us', 'jitter_percent'))
    THEN
        RAISE EXCEPTION 'the field retry is no object of failures_max, delay_first_us, delay_max_us and jitter_percent'
            USING ERRCODE = '22023';
    END IF;
    v_first := coalesce({schema}.checked_number_v1(p_retry, 'delay_first_us', 0, v_delay_max), 2000000);
    v_max := coalesce({schema}.checked_number_v1(p_retry, 'delay_max_us', 0, v_delay_max), 300000000);
    RETURN format('{"failures_max":%s,"delay_first_us":%s,"delay_max_us":%s,"jitter_percent":%s}',
        coalesce({schema}.checked_number_v1(p_retry, 'failures_max', 1, 4294967295), 10), v_first, v_max,
        coalesce({schema}.checked_number_v1(p_retry, 'jitter_percent', 0, 100), 10));
END
{tag};

CREATE FUNCTION {schema}.checked_tags_v1(p_tags json) RETURNS text[] LANGUAGE plpgsql IMMUTABLE AS {tag}
DECLARE
    v_tag json;
    v_tags text[] := '{}';
BEGIN
    IF p_tags IS NULL OR json_typeof(p_tags) = 'null' THEN
        RETURN v_tags;
    END IF;
    IF json_typeof(p_tags) <> 'array' THEN
        RAISE EXCEPTION 'the field tags is no array' USING ERRCODE = '22023';
    END IF;
    IF json_array_length(p_tags) > 16 THEN
        RAISE EXCEPTION 'the job has % tags and the limit is 16', json_array_length(p_tags) USING ERRCODE = '22023';
    END IF;
    FOR v_tag IN SELECT t.tag FROM json_array_elements(p_tags) AS t (tag) LOOP
        IF json_typeof(v_tag) <> 'string' THEN
            RAISE EXCEPTION 'a tag is no string' USING ERRCODE = '22023';
        END IF;
        v_tags := v_tags || {schema}.checked_name_v1('tag', v_tag #>> '{}');
    END LOOP;
    RETURN v_tags;
END
{tag};

CREATE FUNCTION {schema}.checked_due_v1(p_job json, p_now timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS {tag}
DECLARE
    v_text CONSTANT text := {schema}.checked_string_v1(p_job, 'due_at');
    v_delay CONSTANT bigint := {schema}.checked_number_v1(p_job, 'delay_ms', 0, 9007199254740991);
    v_due timestamptz;
BEGIN
    IF v_text IS NOT NULL AND v_delay IS NOT NULL THEN
        RAISE EXCEPTION 'a job has due_at or delay_ms, not both' USING ERRCODE = '22023';
    END IF;
    IF v_text IS NOT NULL THEN
        -- With an offset always: an instant must not hang on the time zone of the session.
        IF v_text !~ '^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)$' THEN
            RAISE EXCEPTION 'the field due_at is no RFC 3339 instant' USING ERRCODE = '22023';
        END IF;
        v_due := v_text::timestamptz;
    ELSE
        -- 300 million million ms lie far beyond the latest instant and within what an interval holds.
        v_due := p_now + least(coalesce(v_delay, 0), 300000000000000) * interval '1 millisecond';
    END IF;
    IF v_due > timestamptz '9998-12-29 00:00:00+00' THEN
        RAISE EXCEPTION 'the due time is after 9998-12-29T00:00:00Z, the latest that can be stored'
            USING ERRCODE = '22023';
    END IF;
    RETURN v_due;
END
{tag};

-- The server's own reading of JSON refuses the escape \u0000 anywhere in a text, although a payload may hold it.
-- This puts another escape in its place, one that the text does not hold; null where there is nothing to
-- replace. An escape is preceded by an even number of backslashes.
CREATE FUNCTION {schema}.without_nul_v1(p_text text, OUT replaced text, OUT marker text) LANGUAGE plpgsql IMMUTABLE AS {tag}
BEGIN
    IF p_text !~ '(?<!\\)(\\\\)*\\u0000' THEN
        RETURN;
    END IF;
    -- The private use area.
    SELECT '\u' || to_hex(c.code) INTO marker FROM generate_series(57344, 63743) AS c (code)
    WHERE position('\u' || to_hex(c.code) IN lower(p_text)) = 0 LIMIT 1;
    IF marker IS NULL THEN
        RAISE EXCEPTION 'the job holds NUL and every character of the private use area' USING ERRCODE = '22023';
    END IF;
    replaced := regexp_replace(p_text, '(?<!\\)((\\\\)*)\\u0000', '\1\' || marker, 'g');
END
{tag};

-- The advertised way in for every language, inside any transaction: a JSON object with `wire_name` and
-- `payload`, and optionally `id`, `version`, `queue`, `due_at` (RFC 3339) or `delay_ms`, `retry`,
-- `timeout_ms` and `tags`. Answers the job's id. An id that exists is left as it is. What is wrong with the
-- job is SQLSTATE 22023.
CREATE FUNCTION {schema}.enqueue(p_job json) RETURNS uuid LANGUAGE plpgsql VOLATILE
SET standard_conforming_strings = on SET search_path = pg_catalog, pg_temp AS {tag}
DECLARE
    v_now CONSTANT timestamptz := clock_timestamp();
    v_field text;
    v_id uuid;
    v_payload text;
    v_replaced text;
    v_marker text;
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
            'timeout_ms', 'tags')
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
    INSERT INTO {schema}.jobs
        (id, wire_name, version, queue, payload, state, due_at, created_at, retry, timeout_us, tags)
    VALUES (
        v_id,
        {schema}.checked_name_v1('wire name', {schema}.checked_string_v1(p_job, 'wire_name')),
        coalesce({schema}.checked_number_v1(p_job, 'version', 1, 2147483647), 1),
        {schema}.checked_name_v1('queue name', coalesce({schema}.checked_string_v1(p_job, 'queue'), 'default')),
        convert_to(v_payload, 'UTF8'),
        0,
        {schema}.checked_due_v1(p_job, v_now),
        v_now,
        {schema}.checked_retry_v1(p_job -> 'retry'),
        {schema}.checked_number_v1(p_job, 'timeout_ms', 1, 9007199254740) * 1000,
        {schema}.checked_tags_v1(p_job -> 'tags'))
    ON CONFLICT (id) DO NOTHING;
    RETURN v_id;
END
{tag};
