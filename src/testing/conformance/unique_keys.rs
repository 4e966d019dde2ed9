//! Of the jobs with one unique key at most one lives.

use super::Fixture;
use super::desk::{ACTOR, Desk, LEASE, SECOND, lease_of, outcome, reap, retry, row, rows, sound};
use super::family::{child, follower};
use super::office::nothing_kept;
use super::races::{ROUNDS, together};
use crate::kernel::text::NameFault;
use crate::store::{
    Admission, BulkChange, EnqueueAnswer, JobFilter, JobRow, Outcome, Rejection, RequeueAnswer,
    RowReport,
};
use crate::{JobId, JobState, WorkerId};

/// A job with that key.
fn keyed(key: &str) -> JobRow {
    JobRow { unique_key: Some(key.to_owned()), ..row() }
}

const fn held(by: JobId, state: JobState) -> Admission {
    Admission::Held { by, state }
}

impl Desk {
    /// Enqueues what must be accepted, and tells what became of each.
    #[track_caller]
    fn admit(&mut self, rows: &[JobRow]) -> Vec<Admission> {
        match self.enqueue(rows) {
            EnqueueAnswer::Accepted { jobs, store_time } => {
                assert_eq!(store_time, self.now(), "the store's time is told");
                assert_eq!(jobs.len(), rows.len(), "one entry per job");
                jobs
            }
            other => panic!("refused: {other:?}"),
        }
    }

    #[track_caller]
    fn admit_one(&mut self, row: &JobRow) -> Admission {
        self.admit(std::slice::from_ref(row))[0]
    }

    /// Asserts that nobody holds the key, by taking it.
    #[track_caller]
    fn is_free(&mut self, key: &str) {
        assert_eq!(self.admit_one(&keyed(key)), Admission::New, "the key {key:?} is held");
    }

    /// Asserts that this job holds the key.
    #[track_caller]
    fn is_held(&mut self, key: &str, by: JobId) {
        let state = self.state(by);
        assert_eq!(self.admit_one(&keyed(key)), held(by, state), "the key {key:?} is free");
    }
}

pub(super) fn a_job_whose_key_is_held_is_not_stored_and_told_by_whom(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let first = desk.add(&keyed("k"));
    let second = keyed("k");
    assert_eq!(desk.admit_one(&second), held(first, JobState::Scheduled));
    assert!(desk.find(second.id).is_none(), "a job that was held back is stored");
    assert_eq!(desk.count("default", JobState::Scheduled), 1);
}

pub(super) fn the_holder_is_told_in_the_state_it_is_in(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.add(&row());
    let waiting = desk.add(&JobRow { unique_key: Some("w".to_owned()), ..child(&[parent]) });
    let leased = desk.take_one(WorkerId::new()).id;
    assert_eq!(leased, parent);
    desk.add(&keyed("l"));
    let leased = desk.take_one(WorkerId::new()).id;
    assert_eq!(desk.admit_one(&keyed("w")), held(waiting, JobState::AwaitingParent));
    assert_eq!(desk.admit_one(&keyed("l")), held(leased, JobState::Leased));
}

pub(super) fn the_rest_of_a_call_goes_on_beside_a_held_key(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let holder = desk.add(&keyed("k"));
    let call = [row(), keyed("k"), keyed("other"), keyed("k"), row()];
    let by = held(holder, JobState::Scheduled);
    let new = Admission::New;
    assert_eq!(desk.admit(&call), [new, by, new, by, new]);
    assert_eq!(desk.count("default", JobState::Scheduled), 4);
}

pub(super) fn of_a_key_twice_in_one_call_the_first_takes_it(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    // The later ids come first: it is the place in the call that decides.
    let mut call: Vec<_> = (0..6).map(|number| keyed(["a", "b"][number % 2])).collect();
    call.sort_by_key(|row| std::cmp::Reverse(row.id));
    call.swap(1, 2);
    let mut first: Vec<(&str, JobId)> = Vec::new();
    let expected: Vec<_> = call
        .iter()
        .map(|row| {
            let key = row.unique_key.as_deref().expect("each has a key");
            match first.iter().find(|(taken, _)| *taken == key) {
                Some((_, by)) => held(*by, JobState::Scheduled),
                None => {
                    first.push((key, row.id));
                    Admission::New
                }
            }
        })
        .collect();
    assert_eq!(desk.admit(&call), expected);
}

pub(super) fn an_enqueue_repeated_is_a_duplicate_and_not_held_by_itself(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = keyed("k");
    assert_eq!(desk.admit(&[job.clone(), job.clone()]), [Admission::New, Admission::Duplicate]);
    assert_eq!(desk.admit_one(&job), Admission::Duplicate);
    let claimed = desk.take_one(WorkerId::new());
    assert_eq!(desk.admit_one(&job), Admission::Duplicate);
    desk.settle(&outcome(&claimed, Outcome::Succeeded));
    desk.add(&keyed("k"));
    assert_eq!(desk.admit_one(&job), Admission::Duplicate);
}

pub(super) fn an_id_is_looked_at_before_its_key(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let plain = row();
    desk.add(&plain);
    desk.add(&keyed("k"));
    let again = JobRow { unique_key: Some("k".to_owned()), ..plain };
    assert_eq!(desk.admit_one(&again), Admission::Duplicate);
    assert_eq!(desk.job(again.id).unique_key, None, "it is left as it is");
}

pub(super) fn an_id_that_was_held_and_comes_again_is_told_the_same(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let holder = desk.add(&keyed("k"));
    let job = keyed("k");
    let again = JobRow { unique_key: None, ..job.clone() };
    let by = held(holder, JobState::Scheduled);
    assert_eq!(desk.admit(&[job, again.clone()]), [by, by]);
    assert!(desk.find(again.id).is_none());
}

/// A leased job with the key.
#[track_caller]
fn leased(desk: &mut Desk, key: &str) -> crate::store::ClaimedJob {
    let id = desk.add(&keyed(key));
    let job = desk.take_one(WorkerId::new());
    assert_eq!(job.id, id);
    job
}

pub(super) fn every_outcome_that_ends_a_job_frees_its_key(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for how in [Outcome::Succeeded, Outcome::DeadLettered, Outcome::Quarantined, Outcome::Cancelled]
    {
        let key = format!("{how:?}");
        let job = leased(&mut desk, &key);
        desk.is_held(&key, job.id);
        desk.settle(&outcome(&job, how));
        desk.is_free(&key);
        let next = desk.take_one(WorkerId::new());
        desk.settle(&outcome(&next, Outcome::Succeeded));
    }
}

pub(super) fn a_reapers_end_frees_the_key(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = leased(&mut desk, "k");
    desk.wait(LEASE);
    desk.is_held("k", job.id);
    desk.settle(&reap(&job, Outcome::DeadLettered));
    desk.is_free("k");
}

pub(super) fn a_cancel_of_a_waiting_job_frees_its_key(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let one = desk.add(&keyed("one"));
    desk.cancel(one);
    desk.is_free("one");
    desk.add(&keyed("many"));
    desk.bulk_all(BulkChange::Cancel, &JobFilter::new(), 9);
    desk.is_free("many");
    let parent = desk.add(&row());
    let waiting = desk.add(&JobRow { unique_key: Some("w".to_owned()), ..child(&[parent]) });
    desk.cancel(waiting);
    desk.is_free("w");
}

pub(super) fn a_parents_failure_frees_the_keys_of_its_dependents(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.add(&row());
    let job = desk.add(&JobRow { unique_key: Some("k".to_owned()), ..child(&[parent]) });
    desk.is_held("k", job);
    desk.cancel(parent);
    assert_eq!(desk.state(job), JobState::Cancelled);
    desk.is_free("k");
}

pub(super) fn a_job_given_back_under_a_cancel_request_frees_its_key(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    for key in ["back", "revoked"] {
        desk.add(&keyed(key));
        let job = desk.take_one(worker);
        desk.cancel(job.id);
        desk.is_held(key, job.id);
        if key == "back" {
            assert_eq!(desk.hand_back(worker, &[lease_of(&job)]), [true]);
        } else {
            assert_eq!(desk.revoke(worker, 9).jobs, [job.id]);
        }
        desk.is_free(key);
        let job = desk.take_one(worker);
        desk.settle(&outcome(&job, Outcome::Succeeded));
    }
}

pub(super) fn what_does_not_end_a_job_keeps_its_key(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let id = desk.add(&keyed("k"));
    for step in 0..5 {
        let job = desk.take_one(worker);
        desk.is_held("k", id);
        match step {
            0 => {
                desk.settle(&outcome(&job, retry(SECOND)));
            }
            1 => {
                desk.settle(&outcome(&job, Outcome::Snooze { after: SECOND }));
            }
            2 => assert_eq!(desk.hand_back(worker, &[lease_of(&job)]), [true]),
            3 => assert_eq!(desk.revoke(worker, 1).jobs, [id]),
            _ => {
                desk.wait(LEASE);
                desk.is_held("k", id);
                desk.settle(&reap(&job, retry(SECOND)));
            }
        }
        desk.is_held("k", id);
        desk.wait(SECOND);
    }
}

pub(super) fn a_job_born_cancelled_takes_no_key(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let failed = desk.end(Outcome::DeadLettered).id;
    let stillborn = JobRow { unique_key: Some("k".to_owned()), ..child(&[failed]) };
    let second = keyed("k");
    let third = JobRow { parents: vec![second.id], ..row() };
    let call = [stillborn.clone(), second.clone(), keyed("k"), third];
    let by = held(second.id, JobState::Scheduled);
    assert_eq!(desk.admit(&call), [Admission::New, Admission::New, by, Admission::New]);
    assert_eq!(desk.state(stillborn.id), JobState::Cancelled);
    assert_eq!(desk.job(stillborn.id).unique_key.as_deref(), Some("k"));
}

pub(super) fn the_parents_of_a_held_job_are_not_looked_at(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let failed = desk.end(Outcome::DeadLettered);
    let holder = desk.add(&keyed("k"));
    let job = JobRow { unique_key: Some("k".to_owned()), ..child(&[JobId::new()]) };
    assert_eq!(desk.admit_one(&job), held(holder, JobState::Scheduled));
    let job = JobRow { unique_key: Some("k".to_owned()), ..child(&[failed.id]) };
    assert_eq!(desk.admit_one(&job), held(holder, JobState::Scheduled));
}

pub(super) fn a_held_job_is_no_parent_to_have(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.add(&keyed("k"));
    let job = keyed("k");
    let call = [row(), job.clone(), follower(&[job.id])];
    assert_eq!(desk.refuse(&call), (2, Rejection::UnknownParent { parent: job.id }));
    assert!(desk.find(call[0].id).is_none(), "a refused call has stored something");
}

pub(super) fn a_requeue_whose_key_is_held_is_refused_and_says_by_whom(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = leased(&mut desk, "k");
    desk.settle(&outcome(&job, Outcome::DeadLettered));
    let holder = desk.add(&keyed("k"));
    assert_eq!(desk.requeue(job.id), RequeueAnswer::KeyHeld { by: holder });
    assert_eq!(desk.state(job.id), JobState::DeadLettered);
    assert!(desk.deeds().is_empty(), "what has no effect is not audited");
    assert_eq!(desk.requeue(holder), RequeueAnswer::IllegalState(JobState::Scheduled));
    desk.cancel(holder);
    assert_eq!(desk.requeue(job.id), RequeueAnswer::Requeued);
    desk.is_held("k", job.id);
}

pub(super) fn a_bulk_requeue_passes_over_what_holds_no_key_of_its_own(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut ended = Vec::new();
    for key in ["a", "b", "b", "a", "c"] {
        let job = leased(&mut desk, key);
        desk.settle(&outcome(&job, Outcome::DeadLettered));
        ended.push(job.id);
    }
    let plain = desk.end(Outcome::Quarantined).id;
    let holder = desk.add(&keyed("a"));
    assert_eq!(desk.bulk_all(BulkChange::Requeue, &JobFilter::new(), 2), 3);
    let states: Vec<_> = ended.iter().map(|id| desk.state(*id)).collect();
    let (dead, alive) = (JobState::DeadLettered, JobState::Scheduled);
    assert_eq!(states, [dead, alive, dead, dead, alive]);
    assert_eq!(desk.state(plain), alive);
    assert_eq!(desk.deeds().len(), 3);
    desk.is_held("a", holder);
    desk.is_held("b", ended[1]);
}

pub(super) fn of_two_with_one_key_in_a_page_the_first_is_requeued(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut ended = Vec::new();
    for _ in 0..3 {
        let job = leased(&mut desk, "k");
        desk.settle(&outcome(&job, Outcome::DeadLettered));
        ended.push(job.id);
    }
    ended.sort();
    assert_eq!(desk.bulk_all(BulkChange::Requeue, &JobFilter::new(), 100), 1);
    desk.is_held("k", ended[0]);
}

pub(super) fn keys_that_only_look_alike_are_different(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let alike = ["k", "K", "k.", "é", "e\u{301}", "k\u{a0}", "%", "_", "k\"", "k'", "\u{1f921}"];
    for key in alike {
        desk.is_free(key);
    }
    for key in alike {
        let holder = desk.matching(&JobFilter::new().unique_key(key));
        assert_eq!(holder.len(), 1, "{key:?}");
        assert_eq!(desk.job(holder[0]).unique_key.as_deref(), Some(key));
    }
}

pub(super) fn a_key_is_of_the_whole_store(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let holder = desk.add(&JobRow { queue: "a".to_owned(), ..keyed("k") });
    let other = JobRow { queue: "b".to_owned(), wire_name: "other".to_owned(), ..keyed("k") };
    assert_eq!(desk.admit_one(&other), held(holder, JobState::Scheduled));
}

pub(super) fn keys_that_cannot_be_used_are_refused_with_their_fault(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let limit = fixture.store().bounds().key_bytes_max;
    let long = "x".repeat(limit + 1);
    let too_long = NameFault::TooLong { bytes: limit + 1, limit };
    for (key, expected) in [
        ("", NameFault::Empty),
        ("a\0b", NameFault::ControlCharacter),
        (" k", NameFault::Blank),
        (long.as_str(), too_long),
    ] {
        let key = Some(key.to_owned());
        let unique = JobRow { unique_key: key.clone(), ..row() };
        let Rejection::UniqueKey { fault, .. } = desk.refuse_one(&unique) else {
            panic!("{key:?}")
        };
        assert_eq!(fault, expected);
        let concurrent = JobRow { concurrency_key: key.clone(), ..row() };
        let Rejection::ConcurrencyKey { fault, .. } = desk.refuse_one(&concurrent) else {
            panic!("{key:?}")
        };
        assert_eq!(fault, expected);
    }
}

pub(super) fn keys_read_back_as_they_were_given(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let limit = fixture.store().bounds().key_bytes_max;
    let job = JobRow { concurrency_key: Some("c".repeat(limit)), ..keyed(&"u".repeat(limit)) };
    desk.add(&job);
    let read = |desk: &mut Desk| {
        let record = desk.job(job.id);
        assert_eq!(
            (&record.unique_key, &record.concurrency_key),
            (&job.unique_key, &job.concurrency_key)
        );
    };
    read(&mut desk);
    let claimed = desk.take_one(WorkerId::new());
    read(&mut desk);
    desk.settle(&outcome(&claimed, Outcome::Succeeded));
    read(&mut desk);
}

pub(super) fn the_job_that_holds_a_key_is_found_by_it(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = leased(&mut desk, "k");
    let by_key = JobFilter::new().unique_key("k");
    assert_eq!(desk.matching(&by_key), [job.id]);
    assert_eq!(desk.matching(&by_key.clone().state(JobState::Leased)), [job.id]);
    assert!(desk.matching(&by_key.clone().state(JobState::Scheduled)).is_empty());
    assert!(desk.matching(&JobFilter::new().unique_key("other")).is_empty());
    desk.settle(&outcome(&job, Outcome::DeadLettered));
    assert!(desk.matching(&by_key).is_empty(), "what has ended holds no key");
    let next = desk.add(&keyed("k"));
    assert_eq!(desk.matching(&by_key), [next]);
    assert_eq!(desk.bulk(BulkChange::Cancel, &by_key, None, 9).changed, 1);
}

pub(super) fn a_thousand_keyed_jobs_come_in_by_one_call(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let holder = desk.add(&keyed("key 500"));
    let call: Vec<_> = (0..1_000).map(|number| keyed(&format!("key {number}"))).collect();
    let answers = desk.admit(&call);
    for (number, answer) in answers.into_iter().enumerate() {
        let is_held = number == 500;
        let expected = if is_held { held(holder, JobState::Scheduled) } else { Admission::New };
        assert_eq!(answer, expected, "key {number}");
    }
    // All but one are there, and that one is held still.
    let again = desk.admit(&call);
    assert_eq!(again.iter().filter(|answer| **answer == Admission::Duplicate).count(), 999);
    // The same keys under other ids.
    let others: Vec<_> =
        call.iter().map(|row| JobRow { id: JobId::new(), ..row.clone() }).collect();
    assert!(desk.admit(&others).iter().all(|answer| matches!(answer, Admission::Held { .. })));
    desk.bulk_all(BulkChange::Cancel, &JobFilter::new(), 200);
    assert_eq!(desk.purge(nothing_kept()), 1_000);
    assert!(desk.admit(&others).iter().all(|answer| answer.is_new()), "every key is free again");
}

pub(super) fn a_thousand_jobs_with_one_key_come_to_one(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let call: Vec<_> = (0..1_000).map(|_| keyed("k")).collect();
    let answers = desk.admit(&call);
    assert_eq!(answers[0], Admission::New);
    assert!(answers[1..].iter().all(|answer| *answer == held(call[0].id, JobState::Scheduled)));
}

pub(super) fn of_eight_threads_one_gets_a_key(fixture: &Fixture) {
    for round in 0..ROUNDS {
        let key = format!("key {round}");
        let answers = together(fixture, 8, |desk, _| {
            let job = keyed(&key);
            (job.id, desk.admit_one(&job))
        });
        let new: Vec<_> = answers.iter().filter(|(_, answer)| answer.is_new()).collect();
        assert_eq!(new.len(), 1, "{answers:?}");
        let by = held(new[0].0, JobState::Scheduled);
        assert!(answers.iter().all(|(_, answer)| answer.is_new() || *answer == by), "{answers:?}");
    }
}

pub(super) fn keys_enqueued_in_opposite_orders_are_each_taken_once(fixture: &Fixture) {
    for round in 0..ROUNDS {
        let answers = together(fixture, 4, |desk, number| {
            let mut call: Vec<_> =
                (0..20).map(|key| keyed(&format!("key {round} {key}"))).collect();
            if number % 2 == 1 {
                call.reverse();
            }
            desk.admit(&call).into_iter().filter(|answer| answer.is_new()).count()
        });
        assert_eq!(answers.iter().sum::<usize>(), 20, "{answers:?}");
    }
}

pub(super) fn a_key_is_requeued_or_enqueued_and_never_both(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for round in 0..ROUNDS {
        let key = format!("key {round}");
        let job = leased(&mut desk, &key);
        desk.settle(&outcome(&job, Outcome::DeadLettered));
        let won = together(fixture, 4, |desk, number| {
            if number % 2 == 0 {
                let answer = desk.requeue(job.id);
                answer == RequeueAnswer::Requeued
            } else {
                desk.admit_one(&keyed(&key)).is_new()
            }
        });
        assert_eq!(won.iter().filter(|won| **won).count(), 1, "{won:?}");
        let holder = desk.matching(&JobFilter::new().unique_key(&key));
        assert_eq!(holder.len(), 1);
        desk.cancel(holder[0]);
    }
}

pub(super) fn bulk_requeues_and_enqueues_of_the_same_keys_all_succeed(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let keys: Vec<_> = (0..10).map(|key| format!("key {key}")).collect();
    for _ in 0..ROUNDS {
        desk.bulk_all(BulkChange::Cancel, &JobFilter::new(), 200);
        desk.purge(nothing_kept());
        let call: Vec<_> = keys.iter().map(|key| keyed(key)).collect();
        desk.admit(&call);
        for job in desk.take(WorkerId::new(), 10) {
            desk.settle(&outcome(&job, Outcome::DeadLettered));
        }
        let won = together(fixture, 4, |desk, number| {
            if number % 2 == 0 {
                let filter = JobFilter::new();
                let change = BulkChange::Requeue;
                let page = sound(desk.session.change_matching(ACTOR, change, &filter, None, 100));
                page.changed as usize
            } else {
                let call: Vec<_> = keys.iter().map(|key| keyed(key)).collect();
                desk.admit(&call).into_iter().filter(|answer| answer.is_new()).count()
            }
        });
        assert_eq!(won.iter().sum::<usize>(), 10, "{won:?}");
    }
}

pub(super) fn an_end_frees_a_key_before_an_enqueue_or_after_it(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for round in 0..ROUNDS {
        let key = format!("key {round}");
        let job = leased(&mut desk, &key);
        let answers = together(fixture, 2, |desk, number| {
            if number == 0 {
                let row = outcome(&job, Outcome::Succeeded);
                assert_eq!(desk.settle(&row), RowReport::Applied(JobState::Succeeded));
                None
            } else {
                Some(desk.admit_one(&keyed(&key)))
            }
        });
        let answer = answers[1].expect("the second thread enqueues");
        let expected = [Admission::New, held(job.id, JobState::Leased)];
        assert!(expected.contains(&answer), "{answer:?}");
        if answer.is_new() {
            let next = desk.take_one(WorkerId::new());
            desk.settle(&outcome(&next, Outcome::Succeeded));
        }
    }
    assert!(desk.matching(&JobFilter::new().state(JobState::Scheduled)).is_empty());
    desk.accept(&rows(1));
}
