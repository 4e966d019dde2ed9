//! What an attempt's end means.

use super::*;

const REASONS: [Option<CancelReason>; 4] = [
    None,
    Some(CancelReason::GroupStopping),
    Some(CancelReason::OperatorRequest),
    Some(CancelReason::TimedOut),
];

/// What a driver makes of an attempt's end.
#[derive(Debug, PartialEq, Eq)]
enum Means {
    Written(Outcome),
    HandedBack,
    Dropped,
}
use Means::{Dropped, HandedBack, Written};

const RETRY: Means = Written(Outcome::Retry { after: secs(2) });
const DEAD: Means = Written(Outcome::DeadLettered);

fn meaning(
    ending: Ending,
    token: Option<CancelReason>,
    failures: u32,
    stopping: bool,
) -> (Means, Option<String>) {
    let mut scene = Scene::new(1);
    scene.expect_claim();
    let mut job = scene.new_job();
    job.failures = failures;
    job.timeout = Some(secs(9));
    let run = scene.give(vec![job])[0];
    if stopping {
        scene.stop();
        scene.expect_withdraw();
    }
    scene.finish(&run, ending, token);
    if let Some(Command::Claim(_)) = scene.said.front() {
        scene.next();
    }
    match scene.next() {
        Some(Command::Exchange { rows, .. } | Command::Report { rows }) => {
            assert_eq!((rows.len(), rows[0].mode), (1, Mode::Holder));
            (Written(rows[0].outcome), rows[0].detail.clone())
        }
        Some(Command::HandBack { .. }) => (HandedBack, None),
        None | Some(Command::Stopped) => (Dropped, None),
        other => panic!("{other:?}"),
    }
}

fn means(verdict: Verdict, token: Option<CancelReason>) -> Means {
    meaning(failed(verdict), token, 0, false).0
}

fn means_stopping(verdict: Verdict, token: Option<CancelReason>) -> Means {
    meaning(failed(verdict), token, 0, true).0
}

#[test]
fn ok_is_success_whatever_the_token_says_short_of_a_lost_lease() {
    for reason in REASONS {
        let ok = || Ending::Succeeded { output: None };
        assert_eq!(meaning(ok(), reason, 0, false).0, Written(Outcome::Succeeded));
        assert_eq!(meaning(ok(), reason, 0, true).0, Written(Outcome::Succeeded));
    }
}

#[test]
fn nothing_is_recorded_once_the_lease_is_lost() {
    let lost = Some(CancelReason::LeaseLost);
    let endings = [
        Ending::Succeeded { output: None },
        failed(Verdict::Retry),
        failed(Verdict::Discard),
        failed(Verdict::GaveWay(CancelReason::LeaseLost)),
        Ending::Undecodable { detail: "no".to_owned() },
        Ending::NotStarted,
    ];
    for ending in endings {
        assert_eq!(meaning(ending, lost, 0, false).0, Dropped);
    }
}

#[test]
fn an_output_rides_with_success() {
    let (mut scene, runs) = Scene::running(1, 1);
    let output = Some(Body::new(b"7".to_vec()));
    scene.finish(&runs[0], Ending::Succeeded { output: output.clone() }, None);
    assert_eq!(scene.expect_exchange().0[0].output, output);
}

#[test]
fn a_failure_is_retried_by_the_policy_until_its_ceiling() {
    assert_eq!(meaning(failed(Verdict::Retry), None, 0, false), (RETRY, Some("it broke".into())));
    assert_eq!(meaning(failed(Verdict::Retry), None, 1, false).0, RETRY);
    assert_eq!(meaning(failed(Verdict::Retry), None, 2, false).0, DEAD);
    assert_eq!(meaning(failed(Verdict::Retry), None, u32::MAX, false).0, DEAD);
}

#[test]
fn a_delay_of_its_own_replaces_the_policys_delay_and_never_its_ceiling() {
    let in_9_s = || failed(Verdict::RetryIn(secs(9)));
    let retry = Written(Outcome::Retry { after: secs(9) });
    assert_eq!(meaning(in_9_s(), None, 1, false).0, retry);
    assert_eq!(meaning(in_9_s(), None, 2, false).0, DEAD);
}

#[test]
fn delays_are_kept_within_bounds() {
    let shortest = Written(Outcome::Retry { after: RetryPolicy::DELAY_MIN });
    assert_eq!(means(Verdict::RetryIn(Duration::ZERO), None), shortest);
    let longest = Written(Outcome::Snooze { after: RetryPolicy::DELAY_MAX });
    assert_eq!(means(Verdict::Snooze(Duration::MAX), None), longest);
}

#[test]
fn a_verdict_stands_whatever_the_token_says_short_of_a_time_out() {
    for reason in [None, Some(CancelReason::OperatorRequest), Some(CancelReason::GroupStopping)] {
        assert_eq!(means(Verdict::Retry, reason), RETRY);
        assert_eq!(means(Verdict::Discard, reason), DEAD);
        assert_eq!(means(Verdict::Cancel, reason), Written(Outcome::Cancelled));
        let snooze = Written(Outcome::Snooze { after: secs(5) });
        assert_eq!(means(Verdict::Snooze(secs(5)), reason), snooze);
        assert_eq!(means_stopping(Verdict::Snooze(secs(5)), reason), snooze);
    }
}

#[test]
fn an_attempt_that_timed_out_has_failed_whatever_its_error_claims() {
    let timed_out = Some(CancelReason::TimedOut);
    for stopping in [false, true] {
        for verdict in [
            Verdict::Retry,
            Verdict::RetryIn(secs(50)),
            Verdict::Discard,
            Verdict::Cancel,
            Verdict::Snooze(secs(50)),
            Verdict::GaveWay(CancelReason::TimedOut),
        ] {
            let (means, detail) = meaning(failed(verdict), timed_out, 0, stopping);
            assert_eq!(means, RETRY);
            assert!(detail.is_some_and(|detail| detail.contains("9s")), "it names the limit");
        }
    }
    assert_eq!(meaning(failed(Verdict::Retry), timed_out, 2, false).0, DEAD);
}

#[test]
fn giving_way_is_settled_by_the_tokens_reason() {
    let gave_way = || Verdict::GaveWay(CancelReason::OperatorRequest);
    let operator = Some(CancelReason::OperatorRequest);
    let stop = Some(CancelReason::GroupStopping);
    assert_eq!(means(gave_way(), operator), Written(Outcome::Cancelled));
    assert_eq!(means_stopping(gave_way(), operator), Written(Outcome::Cancelled));
    assert_eq!(means_stopping(gave_way(), stop), HandedBack);
    // Asked by the stop itself, before the token fires.
    assert_eq!(means_stopping(gave_way(), None), HandedBack);
}

#[test]
fn giving_way_unasked_is_a_failure() {
    assert_eq!(means(Verdict::GaveWay(CancelReason::OperatorRequest), None), RETRY);
}

#[test]
fn what_cannot_be_decoded_is_quarantined() {
    for reason in REASONS {
        let ending = Ending::Undecodable { detail: "no such field".to_owned() };
        let expected = (Written(Outcome::Quarantined), Some("no such field".to_owned()));
        assert_eq!(meaning(ending, reason, 2, false), expected);
    }
}

#[test]
fn what_never_began_is_handed_back() {
    for reason in REASONS {
        assert_eq!(meaning(Ending::NotStarted, reason, 0, false).0, HandedBack);
    }
}

#[test]
fn a_job_is_settled_by_its_own_policy_before_the_groups() {
    let mut scene = Scene::new(1);
    scene.expect_claim();
    let mut job = scene.new_job();
    job.retry = Some(RetryPolicy::never());
    let run = scene.give(vec![job])[0];
    scene.fail(&run);
    let rows = scene.settle();
    assert_eq!(outcomes(&rows), [Outcome::DeadLettered]);
    let job = run.lease.job;
    let note = Note::DeadLettered { job, attempt: 1, failures: 1, lapsed: false };
    assert!(scene.is_noted(&note));
}

#[test]
fn an_empty_detail_is_none() {
    let (mut scene, runs) = Scene::running(1, 1);
    let ending = Ending::Failed { verdict: Verdict::Cancel, detail: String::new() };
    scene.finish(&runs[0], ending, None);
    assert_eq!(scene.expect_exchange().0[0].detail, None);
}

#[test]
fn a_second_end_of_one_execution_is_ignored() {
    let (mut scene, runs) = Scene::running(1, 1);
    scene.finish_ok(&runs[0]);
    scene.settle();
    scene.fail(&runs[0]);
    scene.nothing();
}
