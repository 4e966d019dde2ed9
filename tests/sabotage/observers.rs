//! Rules about observers, broken.

use super::{Intercept, Sabotage};
use backwave::store::{
    CursorStale, Observe, Observed, ObserverChange, ObserverStart, Resolve, Resolved, Session,
    TransitionFilter,
};
use std::time::Duration;

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

pub const OBSERVERS: &[Sabotage] = &[
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
