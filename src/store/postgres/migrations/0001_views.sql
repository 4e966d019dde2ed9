-- Version 1, part 7: what people read.

-- `json`, never `jsonb`: the latter refuses \u0000, rounds numbers and reorders keys. Null for bytes that are
-- no JSON, so that one bad row does not hide the others.
CREATE FUNCTION {schema}.as_json_v1(p_body bytea) RETURNS json LANGUAGE plpgsql STABLE AS {tag}
BEGIN
    RETURN convert_from(p_body, 'UTF8')::json;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END
{tag};

CREATE VIEW {schema}.jobs_v1 AS
SELECT
    j.id, j.queue, j.wire_name, j.version,
    CASE j.state
        WHEN 0 THEN 'Scheduled'
        WHEN 1 THEN 'AwaitingParent'
        WHEN 2 THEN 'Leased'
        WHEN 3 THEN 'Succeeded'
        WHEN 4 THEN 'DeadLettered'
        WHEN 5 THEN 'Quarantined'
        WHEN 6 THEN 'Cancelled'
        ELSE 'state ' || j.state
    END AS state,
    j.attempt, j.failures, j.due_at, j.created_at, j.finished_at, j.owner, j.expiry, j.cancel_requested,
    j.timeout_us / 1000.0 AS timeout_ms,
    j.retry::json AS retry,
    j.tags,
    {schema}.as_json_v1(j.payload) AS payload,
    {schema}.as_json_v1(j.output) AS output,
    j.failure_detail
FROM {schema}.jobs AS j;
