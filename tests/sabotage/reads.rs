//! Rules about what can be read, broken.

use super::Sabotage;
use backwave::JobState;
use backwave::store::TransitionBy;
use std::time::Duration;

pub const READS: &[Sabotage] = &[
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
