-- Version 1, part 5: what an operator causes.

-- Answers: 0 no such job, 1 cancelled now, 2 its holder will hear of it, 3 ended already.
CREATE FUNCTION {schema}.request_cancel_v1(
    p_job uuid, p_now timestamptz DEFAULT NULL, OUT answer smallint, OUT state smallint
) LANGUAGE plpgsql VOLATILE AS {tag}
#variable_conflict use_column
DECLARE
    v_state smallint;
    v_rows integer;
BEGIN
    PERFORM {schema}.require_read_committed_v1();
    SELECT j.state INTO v_state FROM {schema}.jobs AS j WHERE j.id = p_job FOR NO KEY UPDATE;
    state := v_state;
    answer := CASE WHEN v_state IS NULL THEN 0 WHEN v_state IN (0, 1) THEN 1 WHEN v_state = 2 THEN 2 ELSE 3 END;
    IF answer NOT IN (1, 2) THEN
        RETURN;
    END IF;
    UPDATE {schema}.jobs AS j SET
        cancel_requested = true,
        state = CASE WHEN v_state = 2 THEN 2 ELSE 6 END,
        finished_at = CASE WHEN v_state = 2 THEN NULL ELSE coalesce(p_now, clock_timestamp()) END
    WHERE j.id = p_job;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    IF v_rows <> 1 THEN
        PERFORM {schema}.violated_v1('UnexpectedAffectedRowCount',
            format('a cancel request updated %s rows for one that it had locked', v_rows));
    END IF;
END
{tag};

-- Answers: 0 no such job, 1 requeued, 2 in a state that no requeue leads out of.
CREATE FUNCTION {schema}.requeue_v1(
    p_job uuid, p_now timestamptz DEFAULT NULL, OUT answer smallint, OUT state smallint
) LANGUAGE plpgsql VOLATILE AS {tag}
#variable_conflict use_column
DECLARE
    v_state smallint;
    v_rows integer;
BEGIN
    PERFORM {schema}.require_read_committed_v1();
    SELECT j.state INTO v_state FROM {schema}.jobs AS j WHERE j.id = p_job FOR NO KEY UPDATE;
    state := v_state;
    answer := CASE WHEN v_state IS NULL THEN 0 WHEN v_state IN (4, 5) THEN 1 ELSE 2 END;
    IF answer <> 1 THEN
        RETURN;
    END IF;
    UPDATE {schema}.jobs AS j SET
        state = 0,
        due_at = coalesce(p_now, clock_timestamp()),
        failures = 0,
        cancel_requested = false,
        finished_at = NULL
    WHERE j.id = p_job;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    IF v_rows <> 1 THEN
        PERFORM {schema}.violated_v1('UnexpectedAffectedRowCount',
            format('a requeue updated %s rows for one that it had locked', v_rows));
    END IF;
END
{tag};
