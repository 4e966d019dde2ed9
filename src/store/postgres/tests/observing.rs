//! Cursors that do not fit their log, rows that are tampered with, and roles that may do little.

use super::*;
use crate::JobState;
use crate::invariant::InvariantTrigger;
use crate::store::{
    Observation, Observe, Observed, ObserverStart, Purge, Resolve, Resolved, Retention,
    TransitionFilter,
};

/// One that holds an observer's cursor.
pub(super) struct Watcher {
    pub(super) worker: WorkerId,
    pub(super) start: ObserverStart,
    pub(super) max: u32,
    pub(super) epoch: u64,
    pub(super) round: u64,
}

/// What it saw.
pub(super) struct Seen {
    pub(super) batch: Vec<Observation>,
    pub(super) more: bool,
    pub(super) reset: Option<String>,
}

impl Watcher {
    pub(super) fn new(start: ObserverStart) -> Self {
        Self { worker: WorkerId::new(), start, max: 100, epoch: 0, round: 0 }
    }

    /// One that is registered by this, and told of what comes.
    pub(super) fn registered(session: &mut dyn Session) -> Self {
        let mut watcher = Self::new(ObserverStart::Now);
        assert!(watcher.look(session).batch.is_empty());
        watcher
    }

    pub(super) fn look_for(
        &mut self,
        session: &mut dyn Session,
        filter: &TransitionFilter,
    ) -> Seen {
        let mut ask = Observe::new("alerts", self.worker, filter, LEASE);
        (ask.start, ask.max) = (self.start, self.max);
        match session.observe(&ask).expect("no fault") {
            Observed::Held { lease, round, batch, more, reset, .. } => {
                (self.epoch, self.round) = (lease.epoch, round);
                Seen { batch, more, reset }
            }
            elsewhere @ Observed::Elsewhere { .. } => panic!("{elsewhere:?}"),
        }
    }

    pub(super) fn look(&mut self, session: &mut dyn Session) -> Seen {
        self.look_for(session, &TransitionFilter::new())
    }

    pub(super) fn pass(&self, session: &mut dyn Session, until: u64) {
        let mut resolve = Resolve::new("alerts", self.worker, self.epoch, self.round, LEASE);
        resolve.until = Some(until);
        let answer = session.resolve(&resolve).expect("no fault");
        assert!(matches!(answer, Resolved::Applied { .. }), "{answer:?}");
    }

    /// Is told of everything there is, and resolves it.
    pub(super) fn drain(&mut self, session: &mut dyn Session) -> Vec<Observation> {
        let mut told = Vec::new();
        loop {
            let seen = self.look(session);
            assert_eq!(seen.reset, None);
            match seen.batch.last() {
                Some(last) => self.pass(session, last.transition.position),
                None if seen.more => {}
                None => return told,
            }
            told.extend(seen.batch);
        }
    }
}

pub(super) fn jobs(told: &[Observation]) -> Vec<JobId> {
    told.iter().map(|told| told.job).collect()
}

fn run(place: &Place, sql: &str) {
    raw().batch_execute(&place.store.inner.schema.fill(sql)).expect("the statement runs");
}

#[test]
fn a_cursor_of_another_cluster_begins_anew_with_the_oldest_and_says_so() {
    let place = Place::new();
    let mut session = place.session();
    let mut watcher = Watcher::registered(session.as_mut());
    let rows = [row("q", -1), row("q", -1)];
    add(session.as_mut(), &rows);
    assert_eq!(watcher.drain(session.as_mut()).len(), 2);
    run(&place, "UPDATE {schema}.observers SET system = system + 1");
    let seen = watcher.look(session.as_mut());
    assert!(seen.reset.is_some_and(|why| why.contains("another cluster")));
    assert_eq!(jobs(&seen.batch), rows.each_ref().map(|row| row.id));
    watcher.pass(session.as_mut(), seen.batch[1].transition.position);
    assert!(watcher.drain(session.as_mut()).is_empty(), "it is told once, and goes on from there");
}

#[test]
fn a_cursor_from_the_future_begins_anew_with_the_oldest_and_says_so() {
    for column in ["base", "top"] {
        let place = Place::new();
        let mut session = place.session();
        let mut watcher = Watcher::registered(session.as_mut());
        add(session.as_mut(), &[row("q", -1)]);
        assert_eq!(watcher.drain(session.as_mut()).len(), 1);
        let sql = "UPDATE {schema}.observers SET {} = '90000000000:90000000000:'";
        run(&place, &sql.replace("{}", column));
        let seen = watcher.look(session.as_mut());
        assert!(seen.reset.is_some_and(|why| why.contains("future")), "{column}");
        assert_eq!(seen.batch.len(), 1, "{column}");
    }
}

#[test]
fn what_was_written_in_another_cluster_is_told_once_whatever_its_transactions_ids() {
    let place = Place::new();
    let mut session = place.session();
    let mut watcher = Watcher::registered(session.as_mut());
    let old: Vec<_> = (0..6).map(|_| row("q", -1)).collect();
    add(session.as_mut(), &old);
    // As it is after a dump was read into a cluster whose ids are far behind.
    run(
        &place,
        "UPDATE {schema}.transitions SET xid = '90000000000'::xid8 WHERE position % 2 = 0; \
         UPDATE {schema}.observers SET system = system + 1",
    );
    watcher.max = 4;
    let seen = watcher.look(session.as_mut());
    assert_eq!((seen.batch.len(), seen.more), (4, true));
    watcher.pass(session.as_mut(), seen.batch[3].transition.position);
    let young = row("q", -1);
    add(session.as_mut(), std::slice::from_ref(&young));
    let rest = watcher.drain(session.as_mut());
    let expected: Vec<_> = old[4..].iter().chain([&young]).map(|row| row.id).collect();
    assert_eq!(jobs(&rest), expected);
    // One that begins now is not told of them either, however the ids grow.
    session.change_observer("ada", "alerts", crate::store::ObserverChange::Remove).expect("done");
    let mut other = Watcher::registered(session.as_mut());
    assert!(other.drain(session.as_mut()).is_empty());
    assert_eq!(session.observers().expect("no fault")[0].behind_since, None);
    for row in old.iter().chain([&young]) {
        session.request_cancel("ada", row.id).expect("done");
    }
    assert_eq!(other.drain(session.as_mut()).len(), 7);
    let retention = Retention { cancelled: Some(Duration::ZERO), ..Retention::forever() };
    assert_eq!(session.purge(&Purge::new(retention, 100)).expect("no fault").jobs, 7);
}

#[test]
fn a_transition_whose_job_was_deleted_by_hand_is_stepped_over() {
    let place = Place::new();
    let mut session = place.session();
    let mut watcher = Watcher::registered(session.as_mut());
    let rows = [row("q", -1), row("q", -1), row("q", -1)];
    add(session.as_mut(), &rows);
    run(&place, &format!("DELETE FROM {{schema}}.jobs WHERE id = '{}'", rows[1].id));
    assert_eq!(jobs(&watcher.drain(session.as_mut())), [rows[0].id, rows[2].id]);
}

#[test]
fn a_birth_through_the_function_for_other_languages_is_told_while_somebody_observes() {
    let place = Place::new();
    let mut session = place.session();
    let sql = "SELECT {schema}.enqueue('{\"wire_name\": \"work\", \"payload\": 1}')";
    run(&place, sql);
    let mut watcher = Watcher::registered(session.as_mut());
    run(&place, sql);
    let told = watcher.drain(session.as_mut());
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].transition.from, told[0].transition.to), (None, JobState::Scheduled));
}

#[test]
fn a_cursor_that_is_gone_when_it_is_read_back_is_a_violation() {
    let place = Place::new();
    let mut session = place.session();
    run(
        &place,
        "CREATE FUNCTION {schema}.spite() RETURNS trigger LANGUAGE plpgsql AS $$ \
         BEGIN DELETE FROM {schema}.observers; RETURN NULL; END $$; \
         CREATE TRIGGER spite AFTER INSERT ON {schema}.observers FOR EACH ROW EXECUTE FUNCTION {schema}.spite()",
    );
    let filter = TransitionFilter::new();
    let ask = Observe::new("alerts", WorkerId::new(), &filter, LEASE);
    let error = session.observe(&ask).unwrap_err();
    assert_eq!(error.trigger(), Some(InvariantTrigger::GuaranteedRowAbsent), "{error}");
    run(&place, "DROP TRIGGER spite ON {schema}.observers");
    assert!(session.observers().expect("no fault").is_empty(), "nothing was written");
    Watcher::registered(session.as_mut());
}

#[test]
fn a_cursor_whose_write_touches_no_row_is_a_violation() {
    let place = Place::new();
    let mut session = place.session();
    let watcher = Watcher::registered(session.as_mut());
    run(
        &place,
        "CREATE FUNCTION {schema}.spite() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$; \
         CREATE TRIGGER spite BEFORE UPDATE ON {schema}.observers FOR EACH ROW EXECUTE FUNCTION {schema}.spite()",
    );
    let filter = TransitionFilter::new();
    let ask = Observe::new("alerts", watcher.worker, &filter, LEASE);
    let resolve = Resolve::new("alerts", watcher.worker, watcher.epoch, watcher.round, LEASE);
    let errors = [session.observe(&ask).unwrap_err(), session.resolve(&resolve).unwrap_err()];
    for error in errors {
        assert_eq!(error.trigger(), Some(InvariantTrigger::UnexpectedAffectedRowCount), "{error}");
    }
}

#[test]
fn a_role_that_may_only_read_and_write_the_tables_can_observe() {
    let place = Place::new();
    let role = fresh_name();
    run(
        &place,
        &format!(
            "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {{schema}} TO {role}; \
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {{schema}} TO {role}"
        ),
    );
    let mut config = config();
    config.user(&role);
    let store =
        PostgresStore::builder(config).schema(&place.schema).clock(|| START).open().unwrap();
    let mut session = store.open_session().unwrap();
    let mut watcher = Watcher::registered(session.as_mut());
    add(session.as_mut(), &[row("q", -1)]);
    assert_eq!(watcher.drain(session.as_mut()).len(), 1);
    session.change_observer("ada", "alerts", crate::store::ObserverChange::Remove).unwrap();
    drop((session, store));
    run(&place, &format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}
