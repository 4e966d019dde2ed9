-- Version 2, part 9: what people read. jobs_v1 stays.

CREATE VIEW {schema}.jobs_v2 AS
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
    j.failure_detail,
    CASE j.parent_rule
        WHEN 0 THEN 'OnSuccess'
        WHEN 1 THEN 'OnAnyTerminal'
        ELSE 'rule ' || j.parent_rule
    END AS parent_rule,
    j.unique_key,
    j.concurrency_key,
    ARRAY(SELECT l.parent FROM {schema}.lineage AS l WHERE l.child = j.id ORDER BY l.place) AS parents
FROM {schema}.jobs AS j;
