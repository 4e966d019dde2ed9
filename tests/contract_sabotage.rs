//! The clauses of the contract, held over stores that lie: a rule, how it is broken, and the clause that must
//! find it. A check that has never gone red proves nothing.

#[allow(unreachable_pub, reason = "a test binary exports nothing")]
#[path = "sabotage/keys.rs"]
mod keys;
#[allow(unreachable_pub, reason = "a test binary exports nothing")]
#[path = "sabotage/observers.rs"]
mod observers;
#[allow(unreachable_pub, reason = "a test binary exports nothing")]
#[path = "sabotage/reads.rs"]
mod reads;
#[path = "sabotage/schedules.rs"]
mod schedules;

use backwave::store::{
    AuditAction, AuditRecord, Bounds, HistoryPolicy, Hub, JobFilter, LeaseRef, Mode, Outcome,
    ParentRule, PurgeCursor, QueueChange, Reported, Retention, Revoked, RowReport, Session, Store,
    StoreError,
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
    let rules = [
        DEPENDENTS,
        QUEUES,
        keys::KEYS,
        OPERATORS,
        UPKEEP,
        reads::READS,
        schedules::SCHEDULES,
        observers::OBSERVERS,
    ];
    for (rule, lie, clause) in rules.into_iter().flatten() {
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
