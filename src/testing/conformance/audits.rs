//! What operators leave behind, and leases taken away by them.

use super::Fixture;
use super::desk::{ACTOR, Desk, LEASE, SECOND, outcome, reap, retry, row, rows, sound};
use super::office::nothing_kept;
use crate::store::{
    AuditAction, AuditFilter, BulkChange, CancelAnswer, Due, JobFilter, JobRow, Outcome,
    QueueChange, RequeueAnswer, RowReport, StaleReason,
};
use crate::{JobId, JobState, WorkerId};

pub(super) fn a_cancel_is_audited_with_its_job_and_its_queue(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let id = desk.add(&JobRow { queue: "mail".to_owned(), ..row() });
    desk.wait(SECOND);
    desk.cancel(id);
    let all = desk.audit(&AuditFilter::default());
    assert_eq!(all.len(), 1);
    let told = &all[0];
    assert_eq!((told.action, told.job), (AuditAction::Cancel, Some(id)));
    assert_eq!((told.actor.as_str(), told.queue.as_str()), (ACTOR, "mail"));
    assert_eq!(told.at, desk.now());
}

pub(super) fn a_cancel_request_is_audited_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    assert_eq!(desk.cancel(job.id), CancelAnswer::Requested);
    assert_eq!(desk.deeds(), [(AuditAction::Cancel, Some(job.id))]);
    assert_eq!(desk.cancel(job.id), CancelAnswer::Requested);
    assert_eq!(desk.deeds().len(), 1, "it stood already");
}

pub(super) fn a_requeue_is_audited(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.end(Outcome::DeadLettered);
    assert_eq!(desk.requeue(job.id), RequeueAnswer::Requeued);
    assert_eq!(desk.deeds(), [(AuditAction::Requeue, Some(job.id))]);
}

pub(super) fn what_has_no_effect_is_not_audited(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let done = desk.end(Outcome::Succeeded).id;
    let waiting = desk.add(&row());
    desk.cancel(done);
    desk.cancel(JobId::new());
    desk.requeue(done);
    desk.requeue(waiting);
    desk.requeue(JobId::new());
    desk.resume("default");
    desk.limit("default", None);
    desk.revoke(WorkerId::new(), 9);
    desk.bulk(BulkChange::Requeue, &JobFilter::new(), None, 9);
    desk.bulk(BulkChange::Cancel, &JobFilter::new().queue("nobody"), None, 9);
    assert!(desk.deeds().is_empty(), "{:?}", desk.deeds());
}

pub(super) fn each_change_of_a_queue_is_audited_with_what_was_set(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.pause("mail");
    desk.pause("mail");
    desk.limit("mail", 3);
    desk.limit("mail", 3);
    desk.limit("mail", None);
    desk.resume("mail");
    let actions = [
        AuditAction::Resume,
        AuditAction::Limit(None),
        AuditAction::Limit(Some(3)),
        AuditAction::Pause,
    ];
    assert_eq!(desk.deeds(), actions.map(|action| (action, None)));
    let all = desk.audit(&AuditFilter::default());
    assert!(all.iter().all(|told| told.queue == "mail" && told.actor == ACTOR));
}

pub(super) fn a_cascade_is_audited_by_what_was_done_only(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    desk.child(&[parent]);
    desk.follower(&[parent]);
    desk.cancel(parent);
    assert_eq!(desk.deeds(), [(AuditAction::Cancel, Some(parent))]);
}

pub(super) fn records_come_newest_first_and_page_by_page(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let jobs = rows(7);
    desk.accept(&jobs);
    for job in &jobs {
        desk.cancel(job.id);
    }
    let mut told = Vec::new();
    let mut filter = AuditFilter { limit: Some(3), ..AuditFilter::default() };
    for expected in [3, 3, 1, 0] {
        let page = desk.audit(&filter);
        assert_eq!(page.len(), expected);
        assert!(page.windows(2).all(|pair| pair[0].position > pair[1].position));
        filter.before = page.last().map(|record| record.position).or(filter.before);
        told.extend(page.into_iter().filter_map(|record| record.job));
    }
    let newest_first: Vec<_> = jobs.iter().rev().map(|job| job.id).collect();
    assert_eq!(told, newest_first);
}

pub(super) fn records_are_found_by_job_queue_and_actor(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let one = desk.add(&JobRow { queue: "a".to_owned(), ..row() });
    let two = desk.add(&JobRow { queue: "b".to_owned(), ..row() });
    sound(desk.session.request_cancel("grace", one));
    desk.cancel(two);
    desk.pause("a");
    sound(desk.session.change_queue("grace", "b", QueueChange::Pause));
    let mut found = |filter: AuditFilter| {
        desk.audit(&filter).into_iter().map(|told| (told.action, told.queue)).collect::<Vec<_>>()
    };
    let cancel = |queue: &str| (AuditAction::Cancel, queue.to_owned());
    let pause = |queue: &str| (AuditAction::Pause, queue.to_owned());
    let all = AuditFilter::default;
    assert_eq!(found(AuditFilter { job: Some(one), ..all() }), [cancel("a")]);
    let of_queue = AuditFilter { queue: Some("a".to_owned()), ..all() };
    assert_eq!(found(of_queue.clone()), [pause("a"), cancel("a")]);
    let by_grace = AuditFilter { actor: Some("grace".to_owned()), ..all() };
    assert_eq!(found(by_grace), [pause("b"), cancel("a")]);
    let both = AuditFilter { actor: Some(ACTOR.to_owned()), ..of_queue };
    assert_eq!(found(both), [pause("a")]);
    assert!(found(AuditFilter { job: Some(JobId::new()), ..all() }).is_empty());
    assert!(found(AuditFilter { actor: Some("ad".to_owned()), ..all() }).is_empty());
}

pub(super) fn an_actor_is_cleaned_and_cut(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let cases = [
        ("é".repeat(100), "é".repeat(64)),
        (format!("{}é", "a".repeat(127)), "a".repeat(127)),
        ("a\u{0}b\u{1b}".to_owned(), "a\u{fffd}b\u{fffd}".to_owned()),
        (String::new(), String::new()),
        ("'; DROP TABLE jobs; --".to_owned(), "'; DROP TABLE jobs; --".to_owned()),
    ];
    for (given, kept) in cases {
        let id = desk.add(&row());
        sound(desk.session.request_cancel(&given, id));
        let told = desk.audit(&AuditFilter { job: Some(id), ..AuditFilter::default() });
        assert_eq!(told[0].actor, kept);
    }
}

pub(super) fn a_revoke_takes_the_leases_of_one_worker(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (worker, other) = (WorkerId::new(), WorkerId::new());
    let (one, two, three) = (desk.hold(worker), desk.hold(other), desk.hold(worker));
    desk.wait(SECOND);
    let revoked = desk.revoke(worker, 9);
    assert_eq!((revoked.jobs, revoked.more), (vec![one.id, three.id], false));
    for job in [&one, &three] {
        let stored = desk.job(job.id);
        assert_eq!((stored.state, stored.attempt, stored.failures), (JobState::Scheduled, 1, 0));
        assert_eq!((stored.owner, stored.expiry), (None, None));
        assert_eq!(stored.due_at, job.due_at, "a due time that has passed stays");
    }
    assert_eq!(desk.state(two.id), JobState::Leased);
    assert!(desk.held(worker).is_empty());
    assert!(desk.revoke(worker, 9).jobs.is_empty());
}

pub(super) fn a_revoke_takes_dead_leases_too(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.wait(LEASE * 2);
    assert_eq!(desk.revoke(worker, 9).jobs, [job.id]);
    assert_eq!(desk.job(job.id).failures, 0, "it counts as no failure");
    assert!(desk.lapsed(&["default"], 9).is_empty());
}

pub(super) fn a_revoked_job_whose_due_time_has_not_passed_is_due_now(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    // The store's clock steps back behind the due time.
    let now = desk.now().saturating_sub(SECOND);
    fixture.clock().set(now);
    assert_eq!(desk.revoke(worker, 9).jobs, [job.id]);
    assert_eq!(desk.job(job.id).due_at, now);
}

pub(super) fn what_the_holder_reports_after_a_revoke_is_stale_and_says_so(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.revoke(worker, 9);
    let late = outcome(&job, Outcome::Succeeded);
    let revoked = RowReport::Stale(StaleReason::Revoked);
    assert_eq!(desk.settle(&late), revoked);
    let again = desk.take_one(WorkerId::new());
    assert_eq!(again.attempt, 2);
    assert_eq!(desk.settle(&late), revoked, "also while it runs again");
    assert_eq!(desk.settle(&reap(&job, retry(SECOND))), revoked, "also to a reaper");
    assert_eq!(desk.state(job.id), JobState::Leased);
}

pub(super) fn a_receipt_from_before_a_revoke_is_forgotten(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    let first = outcome(&job, retry(std::time::Duration::ZERO));
    desk.settle(&first);
    desk.take_one(worker);
    desk.revoke(worker, 9);
    let answer = desk.settle(&first);
    assert!(matches!(answer, RowReport::Stale(_)), "{answer:?}");
    assert_eq!(desk.state(job.id), JobState::Scheduled);
}

pub(super) fn a_revoke_under_a_cancel_request_cancels(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let (one, two) = (desk.hold(worker), desk.hold(worker));
    desk.cancel(two.id);
    desk.wait(SECOND);
    assert_eq!(desk.revoke(worker, 9).jobs, [one.id, two.id]);
    assert_eq!(desk.state(one.id), JobState::Scheduled);
    let stored = desk.job(two.id);
    assert_eq!((stored.state, stored.finished_at), (JobState::Cancelled, Some(desk.now())));
}

pub(super) fn a_revoke_goes_page_by_page_by_ascending_id(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let mut jobs = rows(5);
    // Not in order of their ids: the latest id is due first.
    for (job, seconds) in jobs.iter_mut().zip(1..) {
        job.due = Due::At(desk.now().saturating_sub(SECOND * seconds));
    }
    desk.accept(&jobs);
    assert_eq!(desk.take(worker, 9).len(), 5);
    let first = desk.revoke(worker, 2);
    assert_eq!(first.jobs, [jobs[0].id, jobs[1].id]);
    assert!(first.more);
    assert_eq!(desk.revoke(worker, 2).jobs, [jobs[2].id, jobs[3].id]);
    let last = desk.revoke(worker, 2);
    assert_eq!((last.jobs, last.more), (vec![jobs[4].id], false));
}

pub(super) fn a_revoke_is_audited_job_by_job(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let (one, two) = (desk.hold(worker), desk.hold(worker));
    desk.revoke(worker, 9);
    let mut deeds = desk.deeds();
    deeds.sort_by_key(|(_, job)| *job);
    let revoke = |id| (AuditAction::Revoke, Some(id));
    assert_eq!(deeds, [revoke(one.id), revoke(two.id)]);
}

pub(super) fn an_audit_outlives_its_job(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let id = desk.add(&row());
    desk.cancel(id);
    assert_eq!(desk.purge(nothing_kept()), 1);
    assert_eq!(desk.deeds(), [(AuditAction::Cancel, Some(id))]);
}
