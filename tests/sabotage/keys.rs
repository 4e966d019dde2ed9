//! Rules about unique keys and concurrency keys, broken.

use super::{Intercept, Sabotage};
use backwave::JobState;
use backwave::store::{
    Admission, Claim, Claimed, EnqueueAnswer, JobFilter, JobRecord, JobRow, Page, QueueChange,
    RequeueAnswer, Session, StoreError,
};

/// Enqueues other rows than were given.
fn enqueue_so(store: &Intercept, change: fn(&mut JobRow)) {
    store.on_enqueue(move |session, rows| {
        let mut rows = rows.to_vec();
        rows.iter_mut().for_each(change);
        session.enqueue(&rows)
    });
}

/// Which limit per key takes the place of the one that is set.
type OtherLimit = fn(Option<u32>, &mut dyn Session) -> Result<Option<u32>, StoreError>;

/// Claims with another limit per key than the queue `default` has.
fn claim_with(store: &Intercept, limit: OtherLimit) {
    store.on_claim(move |session, claim| {
        let settings = session.queues()?.into_iter().find(|set| set.queue == "default");
        let before = settings.and_then(|set| set.concurrency_limit_per_key);
        let other = limit(before, session)?;
        session.change_queue("", "default", QueueChange::KeyLimit(other))?;
        let claimed = session.claim(claim)?;
        session.change_queue("", "default", QueueChange::KeyLimit(before))?;
        Ok(claimed)
    });
}

fn all(session: &mut dyn Session) -> Result<Vec<JobRecord>, StoreError> {
    Ok(session.find(&JobFilter::new(), &Page::new(200))?.jobs)
}

/// Claims no further than to the first job whose key has no slot.
fn claim_up_to_the_first_blocked(
    session: &mut dyn Session,
    claim: &Claim<'_>,
) -> Result<Claimed, StoreError> {
    let jobs = all(session)?;
    let of = |state| jobs.iter().filter(move |job| job.state == state);
    let mut waiting: Vec<_> = of(JobState::Scheduled).collect();
    waiting.sort_by_key(|job| (job.due_at, job.id));
    let mut running: Vec<_> =
        of(JobState::Leased).filter_map(|job| job.concurrency_key.clone()).collect();
    let free = waiting.iter().take_while(|job| match &job.concurrency_key {
        Some(key) if running.contains(key) => false,
        key => {
            running.extend(key.clone());
            true
        }
    });
    let free = u32::try_from(free.count()).expect("few jobs");
    let mut claim = *claim;
    claim.total = claim.total.min(free);
    session.claim(&claim)
}

pub const KEYS: &[Sabotage] = &[
    (
        "a unique key is held by one job: it is forgotten",
        |store| enqueue_so(store, |row| row.unique_key = None),
        "unique_keys::a_job_whose_key_is_held_is_not_stored_and_told_by_whom",
    ),
    (
        "keys are compared byte by byte: they are folded",
        |store| {
            enqueue_so(store, |row| {
                row.unique_key = row.unique_key.as_ref().map(|key| key.to_lowercase());
            });
        },
        "unique_keys::keys_that_only_look_alike_are_different",
    ),
    (
        "a key is of the whole store: it is one of its queue",
        |store| {
            enqueue_so(store, |row| {
                row.unique_key = row.unique_key.as_ref().map(|key| format!("{}{key}", row.queue));
            });
        },
        "unique_keys::a_key_is_of_the_whole_store",
    ),
    (
        "the first of a call takes its key: the one with the lowest id does",
        |store| {
            store.on_enqueue(|session, rows| {
                let mut order: Vec<_> = (0..rows.len()).collect();
                order.sort_by_key(|index| rows[*index].id);
                let sorted: Vec<_> = order.iter().map(|index| rows[*index].clone()).collect();
                let mut answer = session.enqueue(&sorted)?;
                if let EnqueueAnswer::Accepted { jobs, .. } = &mut answer {
                    let told = jobs.clone();
                    order.iter().zip(told).for_each(|(index, told)| jobs[*index] = told);
                }
                Ok(answer)
            });
        },
        "unique_keys::of_a_key_twice_in_one_call_the_first_takes_it",
    ),
    (
        "an enqueue repeated is a duplicate: it is held by itself",
        |store| {
            store.on_enqueue(|session, rows| {
                let mut answer = session.enqueue(rows)?;
                let EnqueueAnswer::Accepted { jobs, .. } = &mut answer else { return Ok(answer) };
                for (job, row) in jobs.iter_mut().zip(rows) {
                    if *job == Admission::Duplicate && row.unique_key.is_some() {
                        *job = Admission::Held { by: row.id, state: JobState::Scheduled };
                    }
                }
                Ok(answer)
            });
        },
        "unique_keys::an_enqueue_repeated_is_a_duplicate_and_not_held_by_itself",
    ),
    (
        "an end frees the key: a job that failed keeps it",
        |store| {
            store.on_enqueue(|session, rows| {
                let dead: Vec<_> = all(session)?
                    .into_iter()
                    .filter(|job| job.state == JobState::DeadLettered && job.unique_key.is_some())
                    .collect();
                let is_kept = |row: &&JobRow| {
                    dead.iter().find(|job| job.unique_key == row.unique_key).map(|job| job.id)
                };
                match rows.iter().find_map(|row| is_kept(&row)) {
                    None => session.enqueue(rows),
                    Some(by) => {
                        let mut answer = session.enqueue(&[])?;
                        if let EnqueueAnswer::Accepted { jobs, .. } = &mut answer {
                            let state = JobState::DeadLettered;
                            jobs.resize(rows.len(), Admission::Held { by, state });
                        }
                        Ok(answer)
                    }
                }
            });
        },
        "unique_keys::every_outcome_that_ends_a_job_frees_its_key",
    ),
    (
        "a job that is held back is not stored: it is, without its key",
        |store| {
            store.on_enqueue(|session, rows| {
                let answer = session.enqueue(rows)?;
                let mut plain = rows.to_vec();
                plain.iter_mut().for_each(|row| row.unique_key = None);
                session.enqueue(&plain)?;
                Ok(answer)
            });
        },
        "unique_keys::the_rest_of_a_call_goes_on_beside_a_held_key",
    ),
    (
        "a requeue needs the key to be free: it is said to have been done",
        |store| {
            store.on_requeue(|session, actor, job| {
                Ok(match session.requeue(actor, job)? {
                    RequeueAnswer::KeyHeld { .. } => RequeueAnswer::Requeued,
                    other => other,
                })
            });
        },
        "unique_keys::a_requeue_whose_key_is_held_is_refused_and_says_by_whom",
    ),
    (
        "a bulk requeue passes over keys that are held: it takes them away",
        |store| {
            store.on_change_matching(|session, actor, change, filter, after, max| {
                for job in all(session)? {
                    if job.state == JobState::Scheduled && job.unique_key.is_some() {
                        session.request_cancel("", job.id)?;
                    }
                }
                session.change_matching(actor, change, filter, after, max)
            });
        },
        "unique_keys::a_bulk_requeue_passes_over_what_holds_no_key_of_its_own",
    ),
    (
        "a key finds the job that holds it: it finds what has ended as well",
        |store| {
            store.on_find(|session, filter, page| {
                let mut other = filter.clone();
                other.unique_key = None;
                let mut found = session.find(&other, page)?;
                found.jobs.retain(|job| {
                    filter.unique_key.is_none() || job.unique_key == filter.unique_key
                });
                Ok(found)
            });
        },
        "unique_keys::the_job_that_holds_a_key_is_found_by_it",
    ),
    (
        "of a concurrency key one job runs at a time: it is forgotten",
        |store| enqueue_so(store, |row| row.concurrency_key = None),
        "concurrency_keys::of_one_key_one_job_runs_at_a_time",
    ),
    (
        "a key that nobody has set limits to one: it limits nothing",
        |store| claim_with(store, |before, _| Ok(before.or(Some(99)))),
        "concurrency_keys::of_one_key_one_job_runs_at_a_time",
    ),
    (
        "a limit per key is exact: it lets one more run",
        |store| claim_with(store, |before, _| Ok(before.map(|limit| limit + 1))),
        "concurrency_keys::keys_are_exact_over_a_long_run",
    ),
    (
        "a limit of zero lets nothing with a key begin: it is taken for none",
        |store| claim_with(store, |before, _| Ok(before.filter(|limit| *limit > 0))),
        "concurrency_keys::a_limit_per_key_of_zero_lets_only_jobs_without_a_key_begin",
    ),
    (
        "a dead lease holds its key: it is not counted",
        |store| {
            claim_with(store, |before, session| {
                let lapsed = session.find_lapsed(&["default".to_owned()], 99)?.jobs.len();
                let lapsed = u32::try_from(lapsed).expect("a small number");
                Ok(Some(before.unwrap_or(1) + lapsed))
            });
        },
        "concurrency_keys::a_dead_lease_holds_its_key_until_it_is_settled",
    ),
    (
        "a job that waits for its key holds back no other",
        |store| store.on_claim(claim_up_to_the_first_blocked),
        "concurrency_keys::jobs_with_other_keys_and_without_are_not_held_back",
    ),
    (
        "what a key keeps back is told",
        |store| store.on_claim(|session, claim| Ok(session.claim(claim)?.withheld(false))),
        "concurrency_keys::what_a_key_keeps_back_is_told",
    ),
    (
        "what no key keeps back is not told to be",
        |store| store.on_claim(|session, claim| Ok(session.claim(claim)?.withheld(true))),
        "concurrency_keys::a_key_that_keeps_nothing_back_withholds_nothing",
    ),
    (
        "what is due and kept back by its key promises no due time: it does",
        |store| {
            store.on_claim(|session, claim| {
                let claimed = session.claim(claim)?;
                let due =
                    claimed.next_due.or_else(|| claimed.withheld.then_some(claimed.store_time));
                Ok(claimed.next_due(due))
            });
        },
        "concurrency_keys::what_a_key_keeps_back_is_told",
    ),
];
