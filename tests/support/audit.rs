//! What the database itself saw: every change of a job's state, noted by a trigger of the test's own.

use ::postgres::{Client, Config, NoTls};
use backwave::JobId;
use std::collections::BTreeMap;

const SCHEDULED: i16 = 0;
const LEASED: i16 = 2;
const TERMINAL_MIN: i16 = 3;
const SUCCEEDED: i16 = 3;

/// A connection beside the store's, and the notes in its schema.
pub struct Audit {
    config: Config,
    schema: String,
}

/// One change of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub attempt: i32,
    pub failures: i32,
    pub before: i16,
    pub after: i16,
}

/// What became of each job.
pub type Trail = BTreeMap<JobId, Vec<Step>>;

impl Audit {
    /// Begins to note; the store's schema must stand.
    pub fn begin(config: &Config, schema: &str) -> Self {
        let schema = format!("\"{}\"", schema.replace('"', "\"\""));
        let audit = Self { config: config.clone(), schema };
        let sql = "
            CREATE TABLE {schema}.test_audit (
                place bigserial PRIMARY KEY, job uuid NOT NULL, attempt integer NOT NULL,
                failures integer NOT NULL, before smallint NOT NULL, after smallint NOT NULL);
            CREATE FUNCTION {schema}.test_audit() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                INSERT INTO {schema}.test_audit (job, attempt, failures, before, after)
                VALUES (NEW.id, NEW.attempt, NEW.failures, OLD.state, NEW.state);
                RETURN NULL;
            END $$;
            CREATE TRIGGER audit AFTER UPDATE ON {schema}.jobs FOR EACH ROW
            WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION {schema}.test_audit()";
        let sql = sql.replace("{schema}", &audit.schema);
        audit.connect().batch_execute(&sql).expect("the trigger is made");
        audit
    }

    fn connect(&self) -> Client {
        self.config.connect(NoTls).expect("the server answers")
    }

    /// How many jobs are in that state.
    pub fn count(&self, state: i16) -> i64 {
        let sql = format!("SELECT count(*) FROM {}.jobs WHERE state = $1", self.schema);
        self.connect().query_one(&sql, &[&state]).expect("counted").get(0)
    }

    /// How many leases are held.
    pub fn leased(&self) -> i64 {
        self.count(LEASED)
    }

    /// How many jobs there are.
    pub fn jobs(&self) -> i64 {
        let sql = format!("SELECT count(*) FROM {}.jobs", self.schema);
        self.connect().query_one(&sql, &[]).expect("counted").get(0)
    }

    /// Everything noted so far, in order.
    pub fn trail(&self) -> Trail {
        let sql = format!(
            "SELECT job::text, attempt, failures, before, after FROM {}.test_audit ORDER BY place",
            self.schema
        );
        let mut trail = Trail::new();
        for row in self.connect().query(&sql, &[]).expect("read") {
            let job: JobId = row.get::<_, &str>(0).parse().expect("an id");
            let (attempt, failures) = (row.get(1), row.get(2));
            let step = Step { attempt, failures, before: row.get(3), after: row.get(4) };
            trail.entry(job).or_default().push(step);
        }
        trail
    }

    /// Every one of these jobs succeeded, once; each attempt was settled or given back at most once and
    /// followed the one before it; nothing is leased; and there are no other jobs. The trail, for more.
    pub fn assert_each_succeeded_once(&self, ids: &[JobId]) -> Trail {
        let trail = self.trail();
        for id in ids {
            let steps = trail.get(id).map(Vec::as_slice).unwrap_or_default();
            let ends = steps.iter().filter(|step| step.after >= TERMINAL_MIN).count();
            assert_eq!(ends, 1, "job {id} reached a terminal state so often: {steps:?}");
            assert_eq!(steps.last().map(|step| step.after), Some(SUCCEEDED), "{steps:?}");
            assert_order(*id, steps);
        }
        assert_eq!(self.jobs(), ids.len() as i64, "all jobs are known");
        assert_eq!(self.leased(), 0, "nothing is held");
        trail
    }
}

/// A lease is taken with the next attempt's number, and ends once.
fn assert_order(id: JobId, steps: &[Step]) {
    let mut attempt = 0;
    let mut state = SCHEDULED;
    for step in steps {
        assert_eq!(step.before, state, "job {id}: {steps:?}");
        attempt += i32::from(step.after == LEASED);
        assert_eq!(step.attempt, attempt, "job {id}: {steps:?}");
        state = step.after;
    }
}

/// The attempt and the failures with which a job ended.
pub fn last(trail: &Trail, id: JobId) -> (i32, i32) {
    let steps = trail.get(&id).expect("it has moved");
    let step = steps.last().expect("a trail has a step");
    (step.attempt, step.failures)
}
