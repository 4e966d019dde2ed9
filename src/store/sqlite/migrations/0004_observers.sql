-- Version 4: observers, cursors over the log of transitions. Frozen once released, as version 1. A writer of an
-- earlier version would leave out transitions that an observer waits for, so `min_reader` rises with it.

CREATE TABLE backwave_observers (
    observer         TEXT    PRIMARY KEY,
    registered_at    INTEGER NOT NULL,
    -- Up to here every transition is delivered, parked, or nothing that it is told of.
    passed           INTEGER NOT NULL CHECK (passed >= 0),
    -- Who holds the cursor, or held it last; which hold that is; when it ends or ended; whether it was given up.
    worker           BLOB    CHECK (length(worker) = 16),
    epoch            INTEGER NOT NULL DEFAULT 0 CHECK (epoch >= 0),
    expiry           INTEGER,
    is_free          INTEGER NOT NULL DEFAULT 1 CHECK (is_free BETWEEN 0 AND 1),
    -- What the first delivery beyond the cursor has been through.
    failing_position INTEGER,
    failing_failures INTEGER,
    failing_due_at   INTEGER,
    CHECK ((worker IS NULL) = (expiry IS NULL)),
    CHECK (is_free = 1 OR worker IS NOT NULL),
    CHECK ((failing_position IS NULL) = (failing_failures IS NULL)),
    CHECK ((failing_position IS NULL) = (failing_due_at IS NULL))
) STRICT, WITHOUT ROWID;

-- Deliveries given up: copies, since a purge may take what they are of.
CREATE TABLE backwave_parked (
    observer   TEXT    NOT NULL,
    position   INTEGER NOT NULL,
    job        BLOB    NOT NULL CHECK (length(job) = 16),
    wire_name  TEXT    NOT NULL,
    queue      TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    from_state INTEGER CHECK (from_state >= 0),
    to_state   INTEGER NOT NULL CHECK (to_state >= 0),
    attempt    INTEGER NOT NULL CHECK (attempt >= 0),
    by_whom    INTEGER NOT NULL CHECK (by_whom >= 0),
    worker     BLOB    CHECK (length(worker) = 16),
    -- What went wrong with the job, and what with its delivery.
    detail     TEXT,
    failures   INTEGER NOT NULL CHECK (failures >= 0),
    fault      TEXT    NOT NULL,
    parked_at  INTEGER NOT NULL,
    is_wanted  INTEGER NOT NULL DEFAULT 0 CHECK (is_wanted BETWEEN 0 AND 1),
    PRIMARY KEY (observer, position)
) STRICT, WITHOUT ROWID;

-- Those that an operator wants tried again.
CREATE INDEX backwave_parked_wanted ON backwave_parked (observer, position) WHERE is_wanted = 1;
