-- Version 4, part 1: observers, which are cursors over the log of transitions.
--
-- Positions are given out before their transactions commit, so that a position says nothing of what was visible
-- when. An observer goes over the log in rounds. One round tells of what the snapshot `top` sees and the snapshot
-- `base` does not, by position; when all of it is told, `top` becomes the next round's `base`. So each transition
-- that commits lies in exactly one round, whenever it commits and whoever is busy meanwhile; and whoever changes a
-- job's state sees the change before it committed, so that a job's changes are told in their order.
--
-- Where a round begins to look is told by marks. A mark is the id of a transaction of this cursor and the highest
-- position that was given out before that id was: what a transaction with this id or a higher one writes stands
-- beyond it. (Whoever writes a transition has written or locked a row before, and so has its id before its position.)

CREATE TABLE {schema}.observers (
    observer text COLLATE "C" PRIMARY KEY,
    registered_at timestamptz NOT NULL,
    -- The cluster that all this is true of; 0 where it may not be asked.
    system bigint NOT NULL,
    -- What stands up to this position with a higher id than this one was written in another cluster: in no order
    -- with the ids of this one, and seen by every snapshot.
    origin_xid xid8 NOT NULL,
    origin bigint NOT NULL,
    -- Null for one that sees nothing.
    base pg_snapshot,
    -- Null between two rounds.
    top pg_snapshot,
    round bigint NOT NULL DEFAULT 0,
    -- Of the round, up to here all is delivered, parked, or nothing that it is told of; and beyond that is none of it.
    passed bigint NOT NULL DEFAULT 0,
    ceiling bigint NOT NULL DEFAULT 0,
    mark_xids xid8[] NOT NULL DEFAULT '{}',
    marks bigint[] NOT NULL DEFAULT '{}',
    -- Who holds the cursor, or held it last; which hold that is; when it ends or ended; whether it was given up.
    worker uuid,
    epoch bigint NOT NULL DEFAULT 0,
    expiry timestamptz,
    is_free boolean NOT NULL DEFAULT true,
    -- What the first delivery beyond the cursor has been through.
    failing_position bigint,
    failures bigint,
    failing_due_at timestamptz,
    CONSTRAINT observers_hold_complete CHECK (
        (worker IS NULL) = (expiry IS NULL) AND (is_free OR worker IS NOT NULL)),
    CONSTRAINT observers_failing_complete CHECK (
        (failing_position IS NULL) = (failures IS NULL) AND (failing_position IS NULL) = (failing_due_at IS NULL))
) WITH (fillfactor = 50);

-- The same observers, in rows that are never updated: what every writer asks first is whether there is one.
CREATE TABLE {schema}.observed (
    observer text COLLATE "C" PRIMARY KEY
);

-- Deliveries given up: copies, since a purge may take what they are of.
CREATE TABLE {schema}.parked (
    observer text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    at timestamptz NOT NULL,
    parked_at timestamptz NOT NULL,
    failures bigint NOT NULL,
    job uuid NOT NULL,
    worker uuid,
    attempt integer NOT NULL,
    from_state smallint,
    to_state smallint NOT NULL,
    hand smallint NOT NULL,
    is_wanted boolean NOT NULL DEFAULT false,
    wire_name text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    -- What went wrong with the job, and what with its delivery.
    detail text,
    fault text NOT NULL,
    PRIMARY KEY (observer, position)
);
-- Those that an operator wants tried again.
CREATE INDEX parked_wanted ON {schema}.parked (observer, position) WHERE is_wanted;

-- Whether a snapshot sees what a transition's transaction wrote. To be taken into the statement that calls it.
CREATE FUNCTION {schema}.seen_v4(
    p_xid xid8, p_position bigint, p_snapshot pg_snapshot, p_origin_xid xid8, p_origin bigint
) RETURNS boolean LANGUAGE sql IMMUTABLE AS {tag}
    SELECT p_snapshot IS NOT NULL
        AND (pg_visible_in_snapshot(p_xid, p_snapshot) OR p_position <= p_origin AND p_xid > p_origin_xid)
{tag};

-- Whether an observer has passed a transition. To be taken into the statement that calls it.
CREATE FUNCTION {schema}.passed_v4(
    p_xid xid8, p_position bigint, p_base pg_snapshot, p_top pg_snapshot, p_passed bigint, p_origin_xid xid8,
    p_origin bigint
) RETURNS boolean LANGUAGE sql IMMUTABLE AS {tag}
    SELECT {schema}.seen_v4(p_xid, p_position, p_base, p_origin_xid, p_origin)
        OR p_position <= p_passed AND {schema}.seen_v4(p_xid, p_position, p_top, p_origin_xid, p_origin)
{tag};

-- The transitions of jobs, each up to a position where one is given, and whether some observer has not passed them.
CREATE FUNCTION {schema}.standing_v4(p_jobs uuid[], p_untils bigint[])
RETURNS TABLE (job uuid, place bigint, at timestamptz, unpassed boolean) LANGUAGE plpgsql STABLE AS {tag}
#variable_conflict use_column
DECLARE
    -- Once for all of them: their table holds many a version of each.
    v_observers CONSTANT {schema}.observers[] := ARRAY(SELECT o FROM {schema}.observers AS o);
BEGIN
    RETURN QUERY
    SELECT t.job, t.position, t.at, EXISTS (
        SELECT 1 FROM unnest(v_observers) AS o WHERE NOT {schema}.passed_v4(
            t.xid, t.position, o.base, o.top, o.passed, o.origin_xid, o.origin))
    FROM unnest(p_jobs, p_untils) AS u (job, until) CROSS JOIN LATERAL (
        SELECT n.job, n.position, n.at, n.xid FROM {schema}.transitions AS n
        WHERE n.job = u.job AND n.position <= coalesce(u.until, 9223372036854775807)
    ) AS t;
END
{tag};

-- A position up to which `p_until` sees nothing that `p_base` does not.
CREATE FUNCTION {schema}.low_v4(p_base pg_snapshot, p_until pg_snapshot, p_mark_xids xid8[], p_marks bigint[])
RETURNS bigint LANGUAGE sql IMMUTABLE AS {tag}
    SELECT coalesce(max(m.mark), 0) FROM unnest(p_mark_xids, p_marks) AS m (xid, mark)
    WHERE m.xid <= least(pg_snapshot_xmax(p_base), (
        SELECT x.xid FROM pg_snapshot_xip(p_base) AS x (xid) WHERE pg_visible_in_snapshot(x.xid, p_until)
        ORDER BY x.xid LIMIT 1))
{tag};

-- The cluster, or 0 where the role may not ask.
CREATE FUNCTION {schema}.system_v4() RETURNS bigint LANGUAGE plpgsql STABLE AS {tag}
BEGIN
    IF has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE') THEN
        RETURN (SELECT c.system_identifier FROM pg_catalog.pg_control_system() AS c);
    END IF;
    RETURN 0;
END
{tag};
