//! The clauses of the contract, held over stores that lie: a rule, how it is broken, and the clause that must
//! find it. A check that has never gone red proves nothing.

use backwave::store::{
    AuditAction, AuditRecord, Bounds, CursorStale, HistoryPolicy, Hub, JobFilter, LeaseRef, Mode,
    Observe, Observed, ObserverChange, ObserverStart, Outcome, ParentRule, PurgeCursor,
    QueueChange, Reported, Resolve, Resolved, Retention, Revoked, RowReport, Session, Store,
    StoreError, TransitionBy, TransitionFilter,
};
use backwave::testing::conformance::{self, Fixture};
use backwave::testing::{Intercept, VirtualClock};
use backwave::{JobState, MemoryStore};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// A rule, how it is broken, and the clause that must find it.
type Sabotage = (&'static str, fn(&Intercept), &'static str);

#[test]
fn every_broken_rule_is_found_by_its_clause() {
    for (rule, lie, clause) in
        DEPENDENTS.iter().chain(QUEUES).chain(OPERATORS).chain(UPKEEP).chain(READS).chain(OBSERVERS)
    {
        conformance::run(clause, &fixture(|_| {}));
        let broken = fixture(*lie);
        let outcome = catch_unwind(AssertUnwindSafe(|| conformance::run(clause, &broken)));
        assert!(outcome.is_err(), "broken, and {clause} holds: {rule}");
    }
}

#[test]
fn a_store_that_wakes_nobody_is_found() {
    for clause in conformance::CLAUSES.iter().filter(|clause| clause.name.starts_with("waking::")) {
        let deaf = || {
            let clock = VirtualClock::new();
            let store = MemoryStore::with_clock(clock.clone());
            Fixture::new(clock, move |_| Deaf(store.clone(), Hub::new()))
        };
        let holds = catch_unwind(AssertUnwindSafe(|| (clause.run)(&deaf()))).is_ok();
        // The one that forbids to wake is kept by whoever never does.
        assert_eq!(holds, clause.name.ends_with("wakes_nobody"), "{}", clause.name);
    }
}

#[test]
fn a_store_that_keeps_a_history_unasked_is_found() {
    let clock = VirtualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).history(HistoryPolicy::Transitions);
    let store = store.build();
    let fixture = Fixture::new(clock, move |_| store.clone());
    let clause = || conformance::run("history::by_default_nothing_is_kept", &fixture);
    assert!(catch_unwind(AssertUnwindSafe(clause)).is_err());
}

fn fixture(lie: fn(&Intercept)) -> Fixture {
    let clock = VirtualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    Fixture::new(clock, move |options| {
        let store = Intercept::new(store.clone().with_history(options.history));
        lie(&store);
        store
    })
}

/// A store whose wakes go where nobody listens.
struct Deaf(MemoryStore, Hub);

impl Store for Deaf {
    fn open_session(&self) -> Result<Box<dyn Session>, StoreError> {
        self.0.open_session()
    }

    fn hub(&self) -> &Hub {
        &self.1
    }

    fn bounds(&self) -> &Bounds {
        self.0.bounds()
    }
}

const DEPENDENTS: &[Sabotage] = &[
    (
        "a dependent waits for parents that live: it is stored without them",
        |store| {
            store.on_enqueue(|session, rows| {
                let mut rows = rows.to_vec();
                rows.iter_mut().for_each(|row| row.parents.clear());
                session.enqueue(&rows)
            });
        },
        "dependents::a_job_whose_parent_lives_waits_for_it",
    ),
    (
        "only the first parent counts",
        |store| {
            store.on_enqueue(|session, rows| {
                let mut rows = rows.to_vec();
                rows.iter_mut().for_each(|row| row.parents.truncate(1));
                session.enqueue(&rows)
            });
        },
        "dependents::the_last_of_its_parents_releases_a_job",
    ),
    (
        "the rule of a dependent is kept: every one becomes a follower",
        |store| {
            store.on_enqueue(|session, rows| {
                let mut rows = rows.to_vec();
                rows.iter_mut().for_each(|row| row.parent_rule = ParentRule::OnAnyTerminal);
                session.enqueue(&rows)
            });
        },
        "cascades::a_dead_letter_cancels_strict_dependents_and_releases_others",
    ),
    (
        "an unknown parent is refused: it is left out instead",
        |store| {
            store.on_enqueue(|session, rows| {
                let mut rows = rows.to_vec();
                for row in &mut rows {
                    row.parents
                        .retain(|parent| session.job(*parent).is_ok_and(|job| job.is_some()));
                }
                session.enqueue(&rows)
            });
        },
        "dependents::an_unknown_parent_fails_the_whole_call",
    ),
    (
        "a call is stored whole or not at all: its rows are stored one by one",
        |store| {
            store.on_enqueue(|session, rows| {
                let mut answer = session.enqueue(&[])?;
                for row in rows {
                    answer = session.enqueue(std::slice::from_ref(row))?;
                }
                Ok(answer)
            });
        },
        "dependents::a_parent_that_comes_later_in_the_same_call_is_unknown",
    ),
    (
        "a job released is due at its release: it is told as due at its birth",
        |store| {
            store.on_job(|session, id| {
                let job = session.job(id)?;
                Ok(job.map(|mut job| {
                    job.due_at = job.created_at;
                    job
                }))
            });
        },
        "dependents::a_released_job_is_claimable_at_once_and_due_at_its_release",
    ),
    (
        "a quarantine is no success: dependents are released by it",
        |store| {
            store.on_report(|session, rows| {
                let mut rows = rows.to_vec();
                for row in &mut rows {
                    if row.outcome == Outcome::Quarantined {
                        row.outcome = Outcome::Succeeded;
                    }
                }
                session.report(&rows)
            });
        },
        "cascades::a_quarantine_does_the_same",
    ),
    (
        "a reaper's end cascades like a holder's: it is lost",
        |store| {
            store.on_report(|session, rows| {
                if rows.iter().all(|row| row.mode == Mode::Holder) {
                    return session.report(rows);
                }
                let applied = RowReport::Applied(JobState::DeadLettered);
                Ok(Reported::new(vec![applied; rows.len()], session.now()?))
            });
        },
        "cascades::a_reapers_dead_letter_does_the_same",
    ),
    (
        "an exchange reports before it claims: it claims before it reports",
        |store| {
            store.on_exchange(|session, rows, claim| {
                let claimed = session.claim(claim)?;
                Ok(backwave::store::Exchanged::new(session.report(rows)?, claimed))
            });
        },
        "cascades::an_exchange_releases_and_claims_in_one",
    ),
    (
        "what is over a thousand is worked off later: nobody does",
        |store| {
            store.on_work_off_latches(|session, _| {
                Ok(backwave::store::LatchesWorkedOff::new(0, false, session.now()?))
            });
        },
        "fan_out::what_is_over_a_thousand_is_left_and_worked_off",
    ),
    (
        "upkeep keeps to the number that it is given: it takes all there is",
        |store| store.on_work_off_latches(|session, _| session.work_off_latches(5_000)),
        "fan_out::what_is_over_a_thousand_is_left_and_worked_off",
    ),
    (
        "parents are told in their order: they come by id",
        |store| {
            store.on_parents(|session, id| {
                let mut parents = session.parents(id)?;
                parents.sort_by_key(|parent| parent.id);
                Ok(parents)
            });
        },
        "lineage::parents_are_told_in_their_order",
    ),
    (
        "it is told which parents hold a job back: none is said to",
        |store| {
            store.on_parents(|session, id| {
                let mut parents = session.parents(id)?;
                parents.iter_mut().for_each(|parent| parent.is_gating = false);
                Ok(parents)
            });
        },
        "lineage::a_parent_gates_until_it_ends_and_never_again",
    ),
    (
        "ancestors are told from any distance: only parents are",
        |store| {
            store.on_ancestor(|session, id, above| {
                Ok(session.parents(id)?.into_iter().find(|parent| parent.id == above))
            });
        },
        "lineage::an_ancestor_is_told_from_any_distance",
    ),
    (
        "only ancestors are told: so are dependents",
        |store| {
            store.on_ancestor(|session, id, other| {
                let found = session.ancestor(id, other)?;
                Ok(found.or(session.ancestor(other, id)?))
            });
        },
        "lineage::strangers_dependents_and_the_job_itself_are_no_ancestors",
    ),
];

/// Claims with the queue's settings out of the way.
fn claim_without(
    store: &Intercept,
    lift: fn(&backwave::store::QueueSettings, &mut dyn Session) -> Vec<QueueChange>,
) {
    store.on_claim(move |session, claim| {
        let settings = session.queues()?;
        for set in &settings {
            for change in lift(set, session) {
                session.change_queue("", &set.queue, change)?;
            }
        }
        let claimed = session.claim(claim)?;
        for set in &settings {
            let limit = QueueChange::Limit(set.concurrency_limit);
            session.change_queue("", &set.queue, limit)?;
            if set.is_paused {
                session.change_queue("", &set.queue, QueueChange::Pause)?;
            }
        }
        Ok(claimed)
    });
}

const QUEUES: &[Sabotage] = &[
    (
        "a limit is heeded by every claim",
        |store| claim_without(store, |_, _| vec![QueueChange::Limit(None)]),
        "limits::several_claims_take_no_more_than_the_limit_together",
    ),
    (
        "a limit is exact: it lets one more run",
        |store| {
            claim_without(store, |set, _| {
                let more = set.concurrency_limit.map(|limit| limit + 1);
                vec![QueueChange::Limit(more)]
            });
        },
        "limits::a_limit_is_exact_over_a_long_run",
    ),
    (
        "a dead lease holds its slot: it is not counted",
        |store| {
            claim_without(store, |set, session| {
                let lapsed = session.find_lapsed(std::slice::from_ref(&set.queue), 99);
                let dead = lapsed.map_or(0, |lapsed| lapsed.jobs.len());
                let dead = u32::try_from(dead).expect("a small number");
                vec![QueueChange::Limit(set.concurrency_limit.map(|limit| limit + dead))]
            });
        },
        "limits::a_dead_lease_holds_its_slot_until_it_is_settled",
    ),
    (
        "a limit of zero lets nothing begin: it is taken for none",
        |store| {
            claim_without(store, |set, _| {
                vec![QueueChange::Limit(set.concurrency_limit.filter(|limit| *limit > 0))]
            });
        },
        "limits::a_limit_of_zero_lets_nothing_begin",
    ),
    (
        "what is withheld is told",
        |store| store.on_claim(|session, claim| Ok(session.claim(claim)?.withheld(false))),
        "limits::what_a_limit_withholds_is_told",
    ),
    (
        "what is not withheld is not told to be",
        |store| store.on_claim(|session, claim| Ok(session.claim(claim)?.withheld(true))),
        "limits::a_limit_that_keeps_nothing_back_withholds_nothing",
    ),
    (
        "a paused queue gives nothing",
        |store| claim_without(store, |_, _| vec![QueueChange::Resume]),
        "pausing::a_paused_queue_gives_nothing_and_says_so",
    ),
    (
        "the next due time of a paused queue is not told",
        |store| {
            claim_without(store, |_, _| vec![QueueChange::Resume]);
        },
        "pausing::the_next_due_time_of_a_paused_queue_is_not_told",
    ),
    (
        "resuming keeps the limit: it is taken away",
        |store| {
            store.on_change_queue(|session, actor, queue, change| {
                if change == QueueChange::Resume {
                    session.change_queue(actor, queue, QueueChange::Limit(None))?;
                }
                session.change_queue(actor, queue, change)
            });
        },
        "pausing::a_pause_and_a_limit_are_kept_apart",
    ),
    (
        "it is told whether anything changed",
        |store| {
            store.on_change_queue(|session, actor, queue, change| {
                let mut answer = session.change_queue(actor, queue, change)?;
                answer.changed = true;
                Ok(answer)
            });
        },
        "pausing::pausing_twice_changes_something_once",
    ),
    (
        "queues are told by name",
        |store| {
            store.on_queues(|session| {
                let mut queues = session.queues()?;
                queues.sort_by_key(|set| set.queue.to_lowercase());
                Ok(queues)
            });
        },
        "limits::queues_are_told_as_they_are_set_by_name",
    ),
];

const OPERATORS: &[Sabotage] = &[
    (
        "every lease that is revoked is audited",
        |store| {
            store.on_audit(|session, filter| {
                let mut audit = session.audit(filter)?;
                audit.retain(|record| record.action != AuditAction::Revoke);
                Ok(audit)
            });
        },
        "audits::a_revoke_is_audited_job_by_job",
    ),
    (
        "what has no effect is not audited",
        |store| {
            store.on_audit(|session, filter| {
                let mut audit = session.audit(filter)?;
                let (at, queue) = (session.now()?, String::new());
                let made_up =
                    AuditRecord::new(9, at, queue.clone(), AuditAction::Cancel, None, queue);
                audit.push(made_up);
                Ok(audit)
            });
        },
        "audits::what_has_no_effect_is_not_audited",
    ),
    (
        "records come newest first",
        |store| {
            store.on_audit(|session, filter| {
                let mut audit = session.audit(filter)?;
                audit.reverse();
                Ok(audit)
            });
        },
        "audits::records_come_newest_first_and_page_by_page",
    ),
    (
        "an actor is kept up to its bound: it is cut at half of it",
        |store| {
            store.on_request_cancel(|session, actor, job| {
                let half: String = actor.chars().take(32).collect();
                session.request_cancel(&half, job)
            });
        },
        "audits::an_actor_is_cleaned_and_cut",
    ),
    (
        "a revoke takes dead leases too",
        |store| {
            store.on_revoke(|session, actor, worker, max| {
                let now = session.now()?;
                let held = session.held_by(worker)?.leases;
                if held.iter().any(|(_, expiry)| *expiry <= now) {
                    return Ok(Revoked::new(Vec::new(), false, now));
                }
                session.revoke(actor, worker, max)
            });
        },
        "audits::a_revoke_takes_dead_leases_too",
    ),
    (
        "a report after a revoke is told why it is stale: the lease was handed back in its holder's name",
        |store| {
            store.on_revoke(|session, _, worker, _| {
                let held = session.held_by(worker)?.leases;
                let leases: Vec<LeaseRef> = held.into_iter().map(|(lease, _)| lease).collect();
                let now = session.hand_back(worker, &leases)?.store_time;
                Ok(Revoked::new(leases.iter().map(|lease| lease.job).collect(), false, now))
            });
        },
        "audits::what_the_holder_reports_after_a_revoke_is_stale_and_says_so",
    ),
    (
        "a bulk keeps to the number that it is given",
        |store| {
            store.on_change_matching(|session, actor, change, filter, after, max| {
                session.change_matching(actor, change, filter, after, max + 1)
            });
        },
        "bulk::pages_go_by_ascending_id_to_the_end",
    ),
    (
        "a bulk begins beyond its cursor",
        |store| {
            store.on_change_matching(|session, actor, change, filter, _, max| {
                session.change_matching(actor, change, filter, None, max)
            });
        },
        "bulk::a_bulk_begins_beyond_its_cursor",
    ),
    (
        "a bulk says where to go on",
        |store| {
            store.on_change_matching(|session, actor, change, filter, after, max| {
                let mut answer = session.change_matching(actor, change, filter, after, max)?;
                answer.next = None;
                Ok(answer)
            });
        },
        "bulk::pages_go_by_ascending_id_to_the_end",
    ),
    (
        "a bulk heeds every condition: tags are passed over",
        |store| {
            store.on_change_matching(|session, actor, change, filter, after, max| {
                let mut filter = filter.clone();
                filter.tag = None;
                session.change_matching(actor, change, &filter, after, max)
            });
        },
        "bulk::each_condition_of_a_filter_narrows_a_bulk",
    ),
    (
        "a bulk cancel reaches what runs: only what waits is reached",
        |store| {
            store.on_change_matching(|session, actor, change, filter, after, max| {
                let mut filter = filter.clone();
                if filter.states.is_empty() {
                    filter = filter.state(JobState::Scheduled).state(JobState::AwaitingParent);
                }
                session.change_matching(actor, change, &filter, after, max)
            });
        },
        "bulk::a_bulk_cancel_reaches_what_lives_and_nothing_else",
    ),
];

/// Purges by another retention than was asked for.
fn purge_by(store: &Intercept, retention: fn(Retention) -> Retention) {
    store.on_purge(move |session, purge| {
        let mut purge = *purge;
        purge.retention = retention(purge.retention);
        session.purge(&purge)
    });
}

const UPKEEP: &[Sabotage] = &[
    (
        "what is kept for ever stays: an hour is taken for it",
        |store| {
            purge_by(store, |mut kept| {
                kept.quarantined = kept.quarantined.or(Some(Duration::from_secs(3_600)));
                kept
            });
        },
        "retention::kept_for_ever_is_for_ever",
    ),
    (
        "a job is kept for its time to the microsecond",
        |store| {
            purge_by(store, |mut kept| {
                kept.succeeded = kept.succeeded.map(|keep| keep + Duration::from_micros(1));
                kept
            });
        },
        "retention::a_succeeded_job_is_kept_for_its_time",
    ),
    (
        "each state has a time of its own: cancelled jobs go with the succeeded",
        |store| {
            purge_by(store, |mut kept| {
                kept.cancelled = kept.succeeded;
                kept
            });
        },
        "retention::a_succeeded_job_is_kept_for_its_time",
    ),
    (
        "a purge keeps to the number that it is given",
        |store| {
            store.on_purge(|session, purge| {
                let mut purge = *purge;
                purge.max = 5_000;
                session.purge(&purge)
            });
        },
        "retention::a_page_bounds_how_many_go_and_says_that_more_may",
    ),
    (
        "a purge goes on where it stopped: it begins anew each time",
        |store| {
            store.on_purge(|session, purge| {
                let mut purge = *purge;
                purge.cursor = PurgeCursor::default();
                session.purge(&purge)
            });
        },
        "retention::what_may_not_go_does_not_keep_the_rest",
    ),
    (
        "a full page says that there may be more",
        |store| {
            store.on_purge(|session, purge| {
                let mut purged = session.purge(purge)?;
                purged.more = false;
                Ok(purged)
            });
        },
        "retention::a_page_bounds_how_many_go_and_says_that_more_may",
    ),
    (
        "of a long life the newest transitions are kept: one too many",
        |store| {
            purge_by(store, |mut kept| {
                kept.transitions_per_job = kept.transitions_per_job.saturating_add(1);
                kept
            });
        },
        "retention::of_a_long_life_the_newest_transitions_are_kept",
    ),
    (
        "audit records go at their time",
        |store| {
            purge_by(store, |mut kept| {
                kept.audit = None;
                kept
            });
        },
        "retention::audit_records_are_kept_for_their_time",
    ),
    (
        "what is purged is gone: it is still found",
        |store| {
            store.on_purge(|session, purge| {
                let ended = JobFilter::new().state(JobState::Succeeded);
                let page = backwave::store::Page::new(purge.max);
                let jobs = session.find(&ended, &page)?.jobs.len();
                let mut purged =
                    session.purge(&backwave::store::Purge::new(Retention::forever(), 1))?;
                purged.jobs = u32::try_from(jobs).expect("a small number");
                Ok(purged)
            });
        },
        "retention::what_hangs_on_a_job_goes_with_it",
    ),
    (
        "a pump that stopped cleanly is gone",
        |store| store.on_withdraw(|_, _| Ok(())),
        "pumps::a_pump_that_stopped_cleanly_is_gone",
    ),
    (
        "a halt is kept: the next announcement takes it away",
        |store| {
            store.on_pumps(|session| {
                let mut pumps = session.pumps()?;
                for pump in pumps.iter_mut().filter(|pump| pump.halted_at < Some(pump.last_seen)) {
                    (pump.halted_at, pump.announcement.halt) = (None, None);
                }
                Ok(pumps)
            });
        },
        "pumps::a_halt_is_kept_when_the_pump_is_announced_again",
    ),
    (
        "a pump's start is that of its first word",
        |store| {
            store.on_pumps(|session| {
                let mut pumps = session.pumps()?;
                pumps.iter_mut().for_each(|pump| pump.started_at = pump.last_seen);
                Ok(pumps)
            });
        },
        "pumps::a_pump_is_seen_at_its_last_word_and_has_started_at_its_first",
    ),
    (
        "pumps are ordered by group",
        |store| {
            store.on_pumps(|session| {
                let mut pumps = session.pumps()?;
                pumps.sort_by_key(|pump| pump.announcement.worker);
                Ok(pumps)
            });
        },
        "pumps::pumps_are_ordered_by_group_and_worker",
    ),
];

const READS: &[Sabotage] = &[
    (
        "a life is told in its order",
        |store| {
            store.on_history(|session, id| {
                let mut history = session.history(id)?;
                history.reverse();
                Ok(history)
            });
        },
        "history::a_life_is_told_in_the_order_in_which_it_was_lived",
    ),
    (
        "a transition names its worker",
        |store| {
            store.on_history(|session, id| {
                let mut history = session.history(id)?;
                history.iter_mut().for_each(|step| step.worker = None);
                Ok(history)
            });
        },
        "history::a_claim_is_kept_with_its_worker_and_attempt",
    ),
    (
        "a transition names whose hand it was: releases are told as an operator's",
        |store| {
            store.on_history(|session, id| {
                let mut history = session.history(id)?;
                for step in history.iter_mut().filter(|step| step.by == TransitionBy::Parent) {
                    step.by = TransitionBy::Operator;
                }
                Ok(history)
            });
        },
        "history::a_release_and_a_cascade_are_kept_as_the_parents",
    ),
    (
        "details are kept by the larger policy",
        |store| {
            store.on_history(|session, id| {
                let mut history = session.history(id)?;
                history.iter_mut().for_each(|step| step.detail = None);
                Ok(history)
            });
        },
        "history::what_went_wrong_is_kept_where_the_policy_says_so",
    ),
    (
        "details are kept by no smaller policy",
        |store| {
            store.on_history(|session, id| {
                let detail = session.job(id)?.and_then(|job| job.failure_detail);
                let mut history = session.history(id)?;
                history.iter_mut().for_each(|step| step.detail.clone_from(&detail));
                Ok(history)
            });
        },
        "history::what_went_wrong_is_not_kept_by_the_smaller_policy",
    ),
    (
        "tags are found exactly: their case is passed over",
        |store| {
            store.on_find(|session, filter, page| {
                let wanted = filter.tag.as_ref().map(|tag| tag.to_lowercase());
                let mut loose = filter.clone();
                loose.tag = None;
                let mut found = session.find(&loose, page)?;
                found.jobs.retain(|job| {
                    wanted.is_none()
                        || job.tags.iter().any(|tag| Some(tag.to_lowercase()) == wanted)
                });
                Ok(found)
            });
        },
        "finding::tags_are_found_exactly",
    ),
    (
        "a bound in time is open at its end",
        |store| {
            store.on_find(|session, filter, page| {
                let mut filter = filter.clone();
                let closed = filter.created_before.map(|end| end + Duration::from_micros(1));
                filter.created_before = closed;
                session.find(&filter, page)
            });
        },
        "finding::jobs_are_found_by_when_they_were_accepted",
    ),
    (
        "pages go down where they are asked to",
        |store| {
            store.on_find(|session, filter, page| {
                let mut page = *page;
                page.newest_first = false;
                session.find(filter, &page)
            });
        },
        "finding::pages_go_up_by_id_and_down_again",
    ),
    (
        "a full page says where to go on",
        |store| {
            store.on_find(|session, filter, page| {
                let mut found = session.find(filter, page)?;
                found.next = None;
                Ok(found)
            });
        },
        "finding::a_page_that_is_not_full_is_the_last",
    ),
    (
        "a page has no more than its limit",
        |store| {
            store.on_find(|session, filter, page| {
                let mut page = *page;
                page.limit = page.limit.saturating_mul(2);
                session.find(filter, &page)
            });
        },
        "finding::pages_go_up_by_id_and_down_again",
    ),
    (
        "counts follow cascades: what was cancelled is not counted",
        |store| {
            store.on_counts(|session| {
                let mut counts = session.counts()?;
                counts.retain(|count| count.state != JobState::Cancelled);
                Ok(counts)
            });
        },
        "counting::counts_follow_births_releases_and_cascades",
    ),
    (
        "counts follow a purge: what was purged is still counted",
        |store| {
            let most = std::sync::Mutex::new(Vec::new());
            store.on_counts(move |session| {
                let counts = session.counts()?;
                let mut most = most.lock().expect("nobody panics here");
                if counts.len() >= most.len() {
                    *most = counts;
                }
                Ok(most.clone())
            });
        },
        "counting::counts_follow_a_purge",
    ),
];

/// Observes as asked, and lies about what was found.
fn observe_so(store: &Intercept, lie: fn(&mut Observed)) {
    store.on_observe(move |session, ask| {
        let mut observed = session.observe(ask)?;
        lie(&mut observed);
        Ok(observed)
    });
}

/// Observes something else than what was asked.
fn ask_so(store: &Intercept, lie: fn(&mut dyn Session, &mut Observe<'_>)) {
    store.on_observe(move |session, ask| {
        let mut ask = *ask;
        lie(session, &mut ask);
        session.observe(&ask)
    });
}

/// Resolves something else than what was asked.
fn resolve_so(store: &Intercept, lie: fn(&mut dyn Session, &mut Resolve<'_>)) {
    store.on_resolve(move |session, resolve| {
        let mut resolve = resolve.clone();
        lie(session, &mut resolve);
        session.resolve(&resolve)
    });
}

const OBSERVERS: &[Sabotage] = &[
    (
        "every transition is told: births are not",
        |store| {
            observe_so(store, |observed| {
                if let Observed::Held { batch, .. } = observed {
                    batch.retain(|told| told.transition.from.is_some());
                }
            });
        },
        "observers::every_edge_of_every_life_is_told",
    ),
    (
        "a job's changes are told in their order: the last of a page comes first",
        |store| {
            observe_so(store, |observed| {
                if let Observed::Held { batch, .. } = observed {
                    batch.reverse();
                }
            });
        },
        "observers::one_that_begins_with_the_oldest_is_told_of_what_is_kept",
    ),
    (
        "looking moves nothing: what is told counts as resolved",
        |store| {
            store.on_observe(|session, ask| {
                let observed = session.observe(ask)?;
                if let Observed::Held { lease, round, batch, .. } = &observed {
                    let mut resolve =
                        Resolve::new(ask.observer, ask.worker, lease.epoch, *round, ask.lease);
                    resolve.until = batch.last().map(|told| told.transition.position);
                    session.resolve(&resolve)?;
                }
                Ok(observed)
            });
        },
        "observers::looking_moves_nothing",
    ),
    (
        "one that begins now is told nothing of before",
        |store| ask_so(store, |_, ask| ask.start = ObserverStart::Oldest),
        "observers::one_that_begins_now_is_told_of_what_comes_after",
    ),
    (
        "a filter is heeded: everything is told",
        |store| {
            store.on_observe(|session, ask| {
                let (mut ask, all) = (*ask, TransitionFilter::new());
                ask.filter = &all;
                session.observe(&ask)
            });
        },
        "observers::a_filter_tells_by_the_state_led_to",
    ),
    (
        "a cursor moves as far as it is told: it moves by one more",
        |store| {
            resolve_so(store, |_, resolve| {
                resolve.until = resolve.until.map(|until| until + 1);
            });
        },
        "observers::what_is_resolved_is_never_told_again",
    ),
    (
        "it is told whether there is more",
        |store| {
            observe_so(store, |observed| {
                if let Observed::Held { more, .. } = observed {
                    *more = true;
                }
            });
        },
        "observers::a_page_that_holds_all_there_is_says_that_there_is_no_more",
    ),
    (
        "a cursor is held by one: everybody asks in its holder's name",
        |store| {
            ask_so(store, |session, ask| {
                let known = session.observers().unwrap_or_default();
                let holder = known.iter().find(|known| known.observer == ask.observer);
                ask.worker = holder.and_then(|known| known.worker).unwrap_or(ask.worker);
            });
        },
        "observers_hold::a_held_cursor_is_elsewhere_for_everybody_else",
    ),
    (
        "a new holder has a new epoch",
        |store| {
            observe_so(store, |observed| {
                if let Observed::Held { lease, .. } = observed {
                    lease.epoch = 1;
                }
            });
        },
        "observers_hold::a_hold_is_dead_at_its_expiry_instant",
    ),
    (
        "a released cursor is free at once: nobody releases it",
        |store| store.on_release_cursor(|session, _, _, _| session.now()),
        "observers_hold::a_released_cursor_is_free_at_once",
    ),
    (
        "a dead hold writes nothing: it is taken up again first",
        |store| {
            resolve_so(store, |session, resolve| {
                let all = TransitionFilter::new();
                let ask = Observe::new(resolve.observer, resolve.worker, &all, resolve.lease);
                let _ = session.observe(&ask);
            });
        },
        "observers_hold::a_resolution_under_a_dead_hold_is_lapsed",
    ),
    (
        "a cursor does not move backward: it is told that it has",
        |store| {
            store.on_resolve(|session, resolve| {
                let answer = session.resolve(resolve)?;
                Ok(match answer {
                    Resolved::Stale { reason: CursorStale::Regressed, store_time } => {
                        Resolved::Applied { expiry: store_time + resolve.lease, store_time }
                    }
                    other => other,
                })
            });
        },
        "observers_hold::a_cursor_does_not_move_backward",
    ),
    (
        "a failure is kept with the cursor",
        |store| resolve_so(store, |_, resolve| resolve.failing = None),
        "observers_hold::a_failure_is_told_to_the_next_holder",
    ),
    (
        "what is given up is kept",
        |store| resolve_so(store, |_, resolve| resolve.parked.clear()),
        "observers_parking::a_parked_delivery_is_kept_whole",
    ),
    (
        "a delivery given up again is not wanted again: its mark stays",
        |store| {
            store.on_resolve(|session, resolve| {
                let answer = session.resolve(resolve)?;
                for parking in &resolve.parked {
                    let at = parking.observation.transition.position;
                    let change = ObserverChange::Redeliver(Some(at));
                    session.change_observer("", resolve.observer, change)?;
                }
                Ok(answer)
            });
        },
        "observers_parking::a_delivery_given_up_again_is_parked_anew",
    ),
    (
        "a delivery that succeeded at last is forgotten: it stays",
        |store| resolve_so(store, |_, resolve| resolve.delivered_again.clear()),
        "observers_parking::a_delivery_that_succeeded_at_last_is_forgotten",
    ),
    (
        "what operators do with observers is audited",
        |store| {
            store.on_audit(|session, filter| {
                let mut audit = session.audit(filter)?;
                audit.retain(|record| record.subject.is_none());
                Ok(audit)
            });
        },
        "observers_parking::what_operators_do_with_observers_is_audited",
    ),
    (
        "a purge waits for observers",
        |store| {
            store.on_purge(|session, purge| {
                let mut purge = *purge;
                purge.retention.unobserved = Some(Duration::ZERO);
                session.purge(&purge)
            });
        },
        "observers_retention::a_purge_waits_for_every_observer",
    ),
    (
        "a purge waits no longer than it is told to: it waits for ever",
        |store| {
            store.on_purge(|session, purge| {
                let mut purge = *purge;
                purge.retention.unobserved = None;
                session.purge(&purge)
            });
        },
        "observers_retention::what_waited_too_long_goes_and_is_told",
    ),
    (
        "what nobody was told of is counted",
        |store| store.on_purge(|session, purge| Ok(session.purge(purge)?.unobserved(0))),
        "observers_retention::a_trim_of_what_waited_too_long_is_told",
    ),
];
