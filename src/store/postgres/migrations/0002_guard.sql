-- Version 2, part 8: what version 1 must not do any more.
--
-- Code of version 1 would claim from paused queues and beyond limits, and end jobs without a look at their
-- dependents. Its calls answer from now on what makes it give up its session; a new one it does not get.

CREATE FUNCTION {schema}.too_new_v2() RETURNS void LANGUAGE plpgsql AS {tag}
DECLARE
    v_min_reader CONSTANT integer := (SELECT v.min_reader FROM {schema}.schema_version AS v);
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'BW003', HINT = v_min_reader,
        MESSAGE = format('the schema needs code that knows schema version %s', v_min_reader);
END
{tag};

CREATE OR REPLACE FUNCTION {schema}.claim_v1(
    p_worker uuid,
    p_total integer,
    p_queues text[],
    p_quotas integer[],
    p_spill boolean,
    p_names text[],
    p_versions bigint[],
    p_bytes_max bigint,
    p_lease_us bigint,
    p_floor_dues timestamptz[],
    p_floor_ids uuid[],
    p_now timestamptz DEFAULT NULL
) RETURNS TABLE (
    id uuid, pass smallint, place smallint, attempt integer, failures integer, version integer,
    state_before smallint, state smallint, owner uuid, expiry timestamptz, due_at timestamptz,
    timeout_us bigint, wire_name text, queue text, retry text, tags text[], payload bytea,
    store_time timestamptz, withheld boolean, next_due timestamptz,
    floor_dues timestamptz[], floor_ids uuid[],
    probes_us bigint[], waded bigint[]
) LANGUAGE plpgsql VOLATILE AS {tag}
BEGIN
    PERFORM {schema}.too_new_v2();
END
{tag};

CREATE OR REPLACE FUNCTION {schema}.report_v1(
    p_jobs uuid[],
    p_attempts bigint[],
    p_owners uuid[],
    p_reaps boolean[],
    p_pumps uuid[],
    p_sequences bigint[],
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
BEGIN
    PERFORM {schema}.too_new_v2();
END
{tag};

CREATE OR REPLACE FUNCTION {schema}.exchange_v1(
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
    verdicts smallint[], states smallint[]
) LANGUAGE plpgsql VOLATILE AS {tag}
BEGIN
    PERFORM {schema}.too_new_v2();
END
{tag};

CREATE OR REPLACE FUNCTION {schema}.hand_back_v1(
    p_worker uuid,
    p_jobs uuid[],
    p_attempts bigint[],
    p_now timestamptz DEFAULT NULL,
    OUT given boolean[],
    OUT store_time timestamptz
) LANGUAGE plpgsql VOLATILE AS {tag}
BEGIN
    PERFORM {schema}.too_new_v2();
END
{tag};

CREATE OR REPLACE FUNCTION {schema}.request_cancel_v1(
    p_job uuid, p_now timestamptz DEFAULT NULL, OUT answer smallint, OUT state smallint
) LANGUAGE plpgsql VOLATILE AS {tag}
BEGIN
    PERFORM {schema}.too_new_v2();
END
{tag};

CREATE OR REPLACE FUNCTION {schema}.requeue_v1(
    p_job uuid, p_now timestamptz DEFAULT NULL, OUT answer smallint, OUT state smallint
) LANGUAGE plpgsql VOLATILE AS {tag}
BEGIN
    PERFORM {schema}.too_new_v2();
END
{tag};
