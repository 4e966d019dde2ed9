//! Operations that consist of statements, cut off before each of their writes in turn: each is whole or never was.

use super::desk::{ACTOR, Desk, LEASE, SECOND, accepts, lease_of, outcome, quota, row, sound};
use super::family::{child, follower};
use super::observers_desk::Watcher;
use super::office::nothing_kept;
use super::schedules_desk::{OWNER, minted, schedule, timed};
use super::{Fixture, StoreOptions};
use crate::store::{
    AuditFilter, AuditPage, BulkChange, Claim, ClaimedJob, EnqueueAnswer, HistoryPolicy, JobFilter,
    JobRecord, ObserverChange, ObserverRecord, Outcome, Page, ParentRecord, ParkedDelivery,
    Parking, PumpRecord, Purge, QueueChange, QueueCount, QueueSettings, Resolve, Resolved,
    RowReport, ScheduleChange, ScheduleRecord, Session, Store, StoreError, Transition,
};
use crate::{JobId, WorkerId};

/// What can be read of a store.
#[derive(Debug, PartialEq)]
struct Everything {
    jobs: Vec<(JobRecord, Vec<ParentRecord>, Vec<Transition>)>,
    counts: Vec<QueueCount>,
    audit: AuditPage,
    queues: Vec<QueueSettings>,
    pumps: Vec<PumpRecord>,
    schedules: Vec<ScheduleRecord>,
    observers: Vec<(ObserverRecord, Vec<ParkedDelivery>)>,
}

impl Everything {
    fn read(store: &dyn Store) -> Self {
        let mut session = sound(store.open_session());
        let page = sound(session.find(&JobFilter::new(), &Page::new(200)));
        let jobs = page.jobs.into_iter().map(|job| {
            let (parents, history) = (session.parents(job.id), session.history(job.id));
            (job, sound(parents), sound(history))
        });
        let jobs = jobs.collect();
        let observers = sound(session.observers()).into_iter().map(|one| {
            let parked = session.parked(&one.observer, None, 200);
            (one, parked)
        });
        let observers = observers.collect::<Vec<_>>().into_iter();
        Self {
            jobs,
            counts: sound(session.counts()),
            audit: sound(session.audit(&AuditFilter::default())),
            queues: sound(session.queues()),
            pumps: sound(session.pumps()),
            schedules: sound(session.schedules()),
            observers: observers.map(|(one, parked)| (one, sound(parked))).collect(),
        }
    }
}

/// No operation here writes more rows.
const WRITES_MAX: u32 = 200;

/// Cuts `act` off before its first write, its second, and so on, until it comes through.
#[track_caller]
fn whole_or_never(fixture: &Fixture, act: impl Fn(&mut dyn Session) -> Result<(), StoreError>) {
    let store = fixture.reopen_with(&StoreOptions::history(HistoryPolicy::WithFailureDetail));
    let before = Everything::read(store.as_ref());
    for write in 1..=WRITES_MAX {
        fixture.crash_at(Some(write));
        let done = act(sound(store.open_session()).as_mut());
        fixture.crash_at(None);
        let after = Everything::read(store.as_ref());
        if done.is_ok() {
            assert!(write > 1, "it is said to be done, and has written nothing");
            assert_ne!(after, before, "it is done, and has changed nothing");
            return;
        }
        assert_eq!(after, before, "it was cut off before write {write}, and something is left");
    }
    panic!("it was cut off before write {WRITES_MAX}");
}

/// A parent that is held, with dependents of both rules, and theirs.
fn family(fixture: &Fixture) -> (ClaimedJob, Vec<JobId>) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let (kept, freed) = (desk.child(&[parent]), desk.follower(&[parent]));
    let below = [desk.child(&[kept]), desk.follower(&[kept, freed])];
    (desk.grab(parent), [vec![kept, freed], below.to_vec()].concat())
}

pub(super) fn an_enqueue_is_whole_or_never_was(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (good, bad, live) = (desk.lone(), desk.lone(), desk.lone());
    desk.finish(good, Outcome::Succeeded);
    desk.finish(bad, Outcome::DeadLettered);
    let mut rows = vec![row(), child(&[good]), child(&[bad]), follower(&[bad, live])];
    rows.push(child(&[rows[0].id, live]));
    rows[0].payload = crate::store::Body::new(vec![b'1'; 5_000]);
    whole_or_never(fixture, |session| match session.enqueue(&rows)? {
        EnqueueAnswer::Accepted { .. } => Ok(()),
        other => panic!("{other:?}"),
    });
}

fn take(session: &mut dyn Session, worker: WorkerId) -> Result<(), StoreError> {
    let (plan, accepted) = ([quota("default", 9)], [accepts("work", 1)]);
    let claimed = session.claim(&Claim::new(worker, 9, &plan, &accepted, LEASE))?;
    assert_eq!(claimed.jobs.len(), 3);
    Ok(())
}

pub(super) fn a_claim_is_whole_or_never_was(fixture: &Fixture) {
    Desk::open(fixture).accept(&super::desk::rows(3));
    let worker = WorkerId::new();
    whole_or_never(fixture, |session| take(session, worker));
}

pub(super) fn a_report_is_whole_or_never_was(fixture: &Fixture) {
    let (parent, _) = family(fixture);
    let other = Desk::open(fixture).hold(WorkerId::new());
    let mut rows = [outcome(&parent, Outcome::DeadLettered), outcome(&other, Outcome::Succeeded)];
    rows[0].detail = Some("no more".to_owned());
    whole_or_never(fixture, |session| {
        let reported = session.report(&rows)?.rows;
        assert!(reported.iter().all(|row| matches!(row, RowReport::Applied(_))), "{reported:?}");
        Ok(())
    });
}

pub(super) fn an_exchange_is_whole_or_never_was(fixture: &Fixture) {
    let (parent, _) = family(fixture);
    Desk::open(fixture).accept(&super::desk::rows(3));
    let rows = [outcome(&parent, Outcome::Succeeded)];
    let (plan, accepted) = ([quota("default", 9)], [accepts("work", 1)]);
    let claim = Claim::new(WorkerId::new(), 9, &plan, &accepted, LEASE);
    whole_or_never(fixture, |session| {
        let exchanged = session.exchange(&rows, &claim)?;
        assert_eq!(exchanged.claimed.jobs.len(), 3);
        Ok(())
    });
}

pub(super) fn a_renewal_is_whole_or_never_was(fixture: &Fixture) {
    let (mut desk, worker) = (Desk::open(fixture), WorkerId::new());
    let held = [desk.hold(worker), desk.hold(worker)];
    desk.wait(SECOND);
    let leases = held.each_ref().map(lease_of);
    whole_or_never(fixture, |session| session.renew(worker, &leases, LEASE).map(drop));
}

pub(super) fn a_hand_back_is_whole_or_never_was(fixture: &Fixture) {
    let (parent, _) = family(fixture);
    let mut desk = Desk::open(fixture);
    // Given back under a cancel request, it ends, and so do its dependents.
    desk.cancel(parent.id);
    let worker = parent.owner.expect("it is held");
    whole_or_never(fixture, |session| session.hand_back(worker, &[lease_of(&parent)]).map(drop));
}

pub(super) fn a_cancel_is_whole_or_never_was(fixture: &Fixture) {
    let (_, dependents) = family(fixture);
    whole_or_never(fixture, |session| session.request_cancel(ACTOR, dependents[0]).map(drop));
}

pub(super) fn a_requeue_is_whole_or_never_was(fixture: &Fixture) {
    let job = Desk::open(fixture).end(Outcome::DeadLettered);
    whole_or_never(fixture, |session| session.requeue(ACTOR, job.id).map(drop));
}

pub(super) fn a_bulk_cancel_is_whole_or_never_was(fixture: &Fixture) {
    family(fixture);
    Desk::open(fixture).accept(&super::desk::rows(3));
    change_matching(fixture, BulkChange::Cancel);
}

pub(super) fn a_bulk_requeue_is_whole_or_never_was(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.end(Outcome::DeadLettered);
    desk.end(Outcome::Quarantined);
    change_matching(fixture, BulkChange::Requeue);
}

fn change_matching(fixture: &Fixture, change: BulkChange) {
    whole_or_never(fixture, |session| {
        session.change_matching(ACTOR, change, &JobFilter::new(), None, 100).map(drop)
    });
}

pub(super) fn a_change_of_a_queue_is_whole_or_never_was(fixture: &Fixture) {
    let change = QueueChange::Limit(Some(3));
    whole_or_never(fixture, |session| session.change_queue(ACTOR, "default", change).map(drop));
    whole_or_never(fixture, |session| {
        session.change_queue(ACTOR, "default", QueueChange::Pause).map(drop)
    });
}

pub(super) fn a_revoke_is_whole_or_never_was(fixture: &Fixture) {
    let (mut desk, worker) = (Desk::open(fixture), WorkerId::new());
    desk.hold(worker);
    let called_off = desk.hold(worker).id;
    desk.child(&[called_off]);
    desk.cancel(called_off);
    whole_or_never(fixture, |session| session.revoke(ACTOR, worker, 9).map(drop));
}

pub(super) fn a_purge_is_whole_or_never_was(fixture: &Fixture) {
    let mut desk = Desk::with_history(fixture, HistoryPolicy::WithFailureDetail);
    let parent = desk.end(Outcome::Succeeded).id;
    let dependent = desk.child(&[parent]);
    desk.finish(dependent, Outcome::DeadLettered);
    desk.end(Outcome::Succeeded);
    whole_or_never(fixture, |session| session.purge(&Purge::new(nothing_kept(), 100)).map(drop));
}

/// More dependents than one write resolves, two of which are left.
pub(super) fn gates_worked_off_later_are_whole_or_never_were(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let children: Vec<_> = (0..1_002)
        .map(|_| crate::store::JobRow { queue: "children".to_owned(), ..child(&[parent]) })
        .collect();
    desk.accept(&children);
    desk.finish(parent, Outcome::Succeeded);
    whole_or_never(fixture, |session| {
        assert_eq!(session.work_off_latches(100)?.resolved, 2);
        Ok(())
    });
}

pub(super) fn an_announcement_is_whole_or_never_was(fixture: &Fixture) {
    let note =
        crate::store::Announcement::new(WorkerId::new(), "main".to_owned(), "host".to_owned(), 1);
    whole_or_never(fixture, |session| session.announce(&note).map(drop));
}

pub(super) fn a_declaration_is_whole_or_never_was(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.declare_some(&[schedule("changed"), schedule("dropped"), schedule("kept")]);
    let rows = [timed("changed", "\"hourly\""), schedule("kept"), schedule("new")];
    whole_or_never(fixture, |session| session.declare(OWNER, &rows, true).map(drop));
}

pub(super) fn a_mint_is_whole_or_never_was(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let records = ["a", "b"].map(|name| desk.add_schedule(name));
    let tick = desk.wait(SECOND);
    let rows = records.map(|record| minted(&record, tick, &row()));
    whole_or_never(fixture, |session| session.mint(&rows).map(drop));
}

pub(super) fn what_an_operator_does_with_a_schedule_is_whole_or_never_was(fixture: &Fixture) {
    Desk::open(fixture).add_schedule("s");
    let trigger = ScheduleChange::Trigger(Box::new(row()));
    for change in [ScheduleChange::Pause, trigger, ScheduleChange::Resume, ScheduleChange::Remove] {
        whole_or_never(fixture, |session| session.change_schedule(ACTOR, "s", &change).map(drop));
    }
}

pub(super) fn what_an_observer_resolves_is_whole_or_never_was(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    desk.accept(&super::desk::rows(3));
    let told = watcher.look(&mut desk, 9).batch;
    desk.wait(SECOND);
    let parking = Parking::new(told[0].clone(), 10, "no".to_owned());
    let until = told[1].transition.position;
    let resolve = Resolve { parked: vec![parking], ..watcher.until(until) };
    whole_or_never(fixture, |session| {
        let resolved = session.resolve(&resolve)?;
        assert!(matches!(resolved, Resolved::Applied { .. }), "{resolved:?}");
        Ok(())
    });
    for change in [ObserverChange::Redeliver(None), ObserverChange::Remove] {
        whole_or_never(fixture, |session| {
            session.change_observer(ACTOR, "alerts", change).map(drop)
        });
    }
}
