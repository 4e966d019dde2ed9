//! Settling dead leases.

use super::*;

const OTHER: WorkerId = WorkerId::from_bytes([9; 16]);

fn lapsed(number: u64, failures: u32) -> LapsedJob {
    let mut job = LapsedJob::new(job_id(number), 4, OTHER, START);
    job.failures = failures;
    job
}

/// Looks for dead leases and finds these.
fn found(scene: &mut Scene, jobs: Vec<LapsedJob>) {
    scene.maintenance();
    take!(scene, Command::FindLapsed { max } => assert_eq!(max, 100));
    scene.tell(Event::LapsedFound(jobs));
}

fn rows(scene: &mut Scene) -> Vec<OutcomeRow> {
    match scene.next() {
        Some(Command::Report { rows } | Command::Exchange { rows, .. }) => rows,
        other => panic!("expected a report, found {other:?}"),
    }
}

#[test]
fn a_dead_lease_is_settled_in_the_reapers_mode_against_its_own_holder() {
    let (mut scene, _) = Scene::running(1, 1);
    found(&mut scene, vec![lapsed(500, 0)]);
    let row = scene.expect_report().remove(0);
    assert_eq!((row.job, row.attempt, row.owner), (job_id(500), 4, OTHER));
    assert_eq!(row.mode, Mode::Reap);
    assert_eq!(row.receipt.pump, WORKER);
    assert_eq!(row.outcome, Outcome::Retry { after: secs(2) });
    assert!(row.detail.as_deref().is_some_and(|detail| detail.contains("lapsed")));
    scene.written(&[row]);
    assert!(scene.is_noted(&Note::LapsedSettled { count: 1 }));
}

#[test]
fn a_dead_lease_that_is_to_be_settled_is_not_renewed() {
    let (mut scene, runs) = Scene::running(1, 1);
    found(&mut scene, vec![lapsed(500, 0)]);
    let rows = scene.expect_report();
    scene.report_failed(rows, true);
    scene.heartbeat();
    assert_eq!(scene.expect_renew(), [runs[0].lease]);
}

#[test]
fn a_lapse_is_a_failure_and_the_last_one_dead_letters() {
    let (mut scene, _) = Scene::running(1, 1);
    found(&mut scene, vec![lapsed(500, 1), lapsed(501, 2)]);
    let rows = scene.settle();
    assert_eq!(outcomes(&rows), [Outcome::Retry { after: secs(2) }, Outcome::DeadLettered]);
    let job = job_id(501);
    let note = Note::DeadLettered { job, attempt: 4, failures: 3, lapsed: true };
    assert!(scene.is_noted(&note));
}

#[test]
fn a_lapse_is_judged_by_the_jobs_own_policy_before_the_groups() {
    let (mut scene, _) = Scene::running(1, 1);
    let mut own = lapsed(500, 8);
    own.retry = Some(RetryPolicy::new(10).fixed(secs(70)).jitter_percent(0));
    found(&mut scene, vec![own]);
    assert_eq!(outcomes(&scene.settle()), [Outcome::Retry { after: secs(70) }]);
}

#[test]
fn maintenance_runs_while_the_pool_is_saturated() {
    let (mut scene, _) = Scene::running(1, 1);
    scene.maintenance();
    take!(scene, Command::FindLapsed { .. } => ());
}

#[test]
fn one_search_is_under_way_at_a_time_and_a_failed_one_waits_for_the_next_maintenance() {
    let (mut scene, _) = Scene::running(1, 1);
    scene.maintenance();
    take!(scene, Command::FindLapsed { .. } => ());
    scene.tell(Event::FindLapsedFailed);
    scene.tick_poll();
    scene.nothing();
    scene.maintenance();
    take!(scene, Command::FindLapsed { .. } => ());
    scene.nothing();
}

#[test]
fn a_full_page_of_which_something_was_settled_is_followed_by_another_at_once() {
    let (mut scene, _) = Scene::running(1, 1);
    found(&mut scene, (0..100).map(|n| lapsed(500 + n, 0)).collect());
    let rows = rows(&mut scene);
    let mut reports = vec![RowReport::Stale(StaleReason::Reaped); 100];
    reports[99] = RowReport::Applied(JobState::Scheduled);
    scene.tell(Event::Reported { rows, reports });
    take!(scene, Command::FindLapsed { .. } => ());
    // A page that is not full is the last.
    scene.tell(Event::LapsedFound(vec![lapsed(700, 0)]));
    scene.settle();
    scene.nothing();
}

#[test]
fn a_full_page_of_which_nothing_was_settled_is_not_asked_for_again() {
    let (mut scene, _) = Scene::running(1, 1);
    found(&mut scene, (0..100).map(|n| lapsed(500 + n, 0)).collect());
    let rows = rows(&mut scene);
    scene.stale(rows, StaleReason::Reaped);
    scene.nothing();
}

#[test]
fn a_lapse_that_somebody_else_settled_says_nothing() {
    let (mut scene, _) = Scene::running(1, 1);
    found(&mut scene, vec![lapsed(500, 0)]);
    let notes = scene.notes.len();
    let rows = rows(&mut scene);
    scene.stale(rows, StaleReason::Unknown);
    assert_eq!(scene.notes.len(), notes);
}

#[test]
fn the_own_result_beats_the_own_lapse() {
    let (mut scene, runs) = Scene::running(2, 1);
    scene.finish_ok(&runs[0]);
    let kept = scene.expect_report();
    scene.report_failed(kept, true);
    let lease = runs[0].lease;
    found(&mut scene, vec![LapsedJob::new(lease.job, lease.attempt, WORKER, START)]);
    scene.tick_poll();
    let rows = scene.expect_report();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].mode, rows[0].outcome), (Mode::Holder, Outcome::Succeeded));
    scene.written(&rows);
    scene.claim(0);
    scene.nothing();
}

#[test]
fn the_own_result_beats_the_own_lapse_while_it_is_under_way() {
    let (mut scene, runs) = Scene::running(2, 1);
    scene.maintenance();
    take!(scene, Command::FindLapsed { .. } => ());
    scene.finish_ok(&runs[0]);
    let rows = scene.expect_report();
    let lease = runs[0].lease;
    let page = vec![LapsedJob::new(lease.job, lease.attempt, WORKER, START)];
    scene.tell(Event::LapsedFound(page));
    scene.report_failed(rows, true);
    scene.tick_poll();
    let rows = scene.expect_report();
    assert_eq!((rows.len(), rows[0].mode), (1, Mode::Holder));
    scene.written(&rows);
    scene.claim(0);
    scene.nothing();
}

#[test]
fn a_running_attempt_whose_lease_the_store_calls_dead_is_lost_and_settled() {
    let (mut scene, runs) = Scene::running(2, 2);
    let lease = runs[0].lease;
    found(&mut scene, vec![LapsedJob::new(lease.job, lease.attempt, WORKER, START)]);
    assert_eq!(scene.expect_cancel(), (runs[0].execution, CancelReason::LeaseLost));
    scene.expect_withdraw();
    let rows = scene.settle();
    assert_eq!((rows.len(), rows[0].mode), (1, Mode::Reap));
    scene.finish_ok(&runs[0]);
    scene.claim(0);
    scene.nothing();
}

#[test]
fn one_report_holds_one_row_of_a_job() {
    // More waits than one report holds, among it a dead lease of job 600; then a claim that rides with
    // the first part brings the job itself, and it ends.
    let mut scene = Scene::new(1);
    scene.claim(0);
    for page in 0..6 {
        let first = 100 + page * 100;
        found(&mut scene, (first..first + 100).map(|n| lapsed(n, 0)).collect());
        if page == 0 {
            let rows = scene.expect_report();
            scene.report_failed(rows, false);
        }
    }
    scene.tick_poll();
    let first = scene.expect_report();
    assert_eq!(first.len(), 500);
    scene.tell(Event::Woken { due: scene.now });
    scene.written(&first);
    take!(scene, Command::Exchange { rows, .. } => {
        assert!(jobs(&rows).contains(&job_id(600)));
        scene.report_failed(rows, false);
    });
    take!(scene, Command::FindLapsed { .. } => scene.tell(Event::LapsedFound(Vec::new())));
    let mut job = scene.new_job();
    (job.id, job.attempt) = (job_id(600), 5);
    let run = scene.give(vec![job])[0];
    scene.finish_ok(&run);
    scene.tick_poll();
    let rows = scene.expect_report();
    let of_it: Vec<_> = rows.iter().filter(|row| row.job == job_id(600)).collect();
    assert_eq!(of_it.len(), 1);
    assert_eq!((of_it[0].mode, of_it[0].attempt), (Mode::Holder, 5));
}

#[test]
fn a_stopping_pump_settles_no_more_dead_leases() {
    let (mut scene, _) = Scene::running(1, 1);
    scene.maintenance();
    take!(scene, Command::FindLapsed { .. } => ());
    scene.stop();
    scene.expect_withdraw();
    scene.tell(Event::LapsedFound(vec![lapsed(500, 0)]));
    scene.nothing();
    scene.maintenance();
    scene.nothing();
}

#[test]
fn two_results_of_one_job_go_in_two_reports() {
    // While a claim is under way, five pages of dead leases and one result pile up: one row more than a
    // report holds. The claim that rides with the first 500 brings the next attempt of that very job.
    let (mut scene, runs) = Scene::running(2, 1);
    let older = runs[0];
    scene.tick_poll();
    scene.expect_claim();
    for page in 0..5 {
        let first = 100 + page * 100;
        found(&mut scene, (first..first + 100).map(|n| lapsed(n, 0)).collect());
    }
    scene.finish_ok(&older);
    scene.tell(Event::Woken { due: scene.now });
    scene.answer_claim(Vec::new());
    let (rows, _) = scene.expect_exchange();
    assert_eq!(rows.len(), 500);
    scene.written(&rows);
    take!(scene, Command::FindLapsed { .. } => scene.tell(Event::LapsedFound(Vec::new())));
    let mut job = scene.new_job();
    (job.id, job.attempt) = (older.lease.job, 2);
    let newer = scene.give(vec![job])[0];
    let rows = scene.expect_report();
    scene.report_failed(rows, true);

    scene.finish_ok(&newer);
    scene.tick_poll();
    let rows = scene.expect_report();
    assert_eq!(rows.iter().map(|row| row.attempt).collect::<Vec<_>>(), [1]);
    scene.stale(rows, StaleReason::Reaped);
    assert_eq!(scene.settle()[0].attempt, 2);
}
