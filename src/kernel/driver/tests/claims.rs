//! How much is claimed, when a claim's slots are released, and what its answer must look like.

use super::*;

#[test]
fn the_first_claim_asks_for_every_worker() {
    let mut scene = Scene::new(4);
    let ask = scene.expect_claim();
    assert_eq!(ask.total, 4);
    assert_eq!(ask.plan[0].queue, "default");
    scene.nothing();
}

#[test]
fn one_claim_is_under_way_at_a_time() {
    let mut scene = Scene::new(4);
    scene.expect_claim();
    scene.tick_poll();
    scene.tell(Event::Woken { due: START });
    scene.nothing();
}

#[test]
fn a_claim_that_brought_all_is_followed_by_another_once_there_is_room() {
    let (mut scene, runs) = Scene::running(2, 2);
    scene.finish_ok(&runs[0]);
    let (rows, ask) = scene.expect_exchange();
    assert_eq!((rows.len(), ask.total), (1, 1));
    scene.nothing();
}

#[test]
fn a_claim_that_brought_less_waits_for_the_next_poll() {
    let mut scene = Scene::new(4);
    scene.claim(1);
    scene.nothing();
    scene.tick_poll();
    assert_eq!(scene.expect_claim().total, 3);
}

#[test]
fn what_a_claim_asked_for_is_released_by_a_failed_answer() {
    let mut scene = Scene::new(4);
    scene.expect_claim();
    scene.tell(Event::ClaimFailed { in_doubt: false });
    scene.nothing();
    scene.tick_poll();
    assert_eq!(scene.expect_claim().total, 4);
}

#[test]
fn nothing_beyond_the_workers_is_claimed_without_prefetch() {
    let (mut scene, _) = Scene::running(3, 3);
    scene.tick_poll();
    scene.nothing();
}

/// A pool of one whose jobs have turned out to be short.
fn with_learnt_prefetch() -> Scene {
    let mut scene = Scene::of(DriverConfig { prefetch: Prefetch::Auto, ..config(1) });
    for _ in 0..32 {
        assert_eq!(scene.expect_claim().total, 1);
        let job = scene.new_job();
        let run = scene.give(vec![job])[0];
        let ending = Ending::Succeeded { output: None };
        let execution = run.execution;
        scene.tell(Event::Finished { execution, ending, token: None, took: ms(1) });
        let (rows, _) = scene.expect_exchange();
        scene.written(&rows);
        scene.answer_claim(Vec::new());
        scene.tell(Event::Woken { due: scene.now });
    }
    scene
}

#[test]
fn prefetch_is_learnt_from_how_long_attempts_take() {
    let mut scene = with_learnt_prefetch();
    let total = scene.expect_claim().total;
    assert!((2..=10).contains(&total), "{total} asked for");
}

#[test]
fn what_waits_longer_than_promised_is_withdrawn_and_handed_back() {
    let mut scene = with_learnt_prefetch();
    let runs = scene.claim(2);
    scene.quiet();
    scene.pass(ms(500));
    scene.tick_poll();
    let withdrawn = [scene.expect_withdraw(), scene.expect_withdraw()];
    assert_eq!(withdrawn, [runs[0].execution, runs[1].execution]);
    scene.quiet();
    scene.not_started(&runs[1]);
    assert_eq!(scene.hand_back(), [runs[1].lease]);
    // One held in vain is enough to hold no more.
    scene.quiet();
    scene.finish_ok(&runs[0]);
    let ask = match scene.next() {
        Some(Command::Exchange { ask, .. }) => ask,
        Some(Command::Report { rows }) => {
            scene.written(&rows);
            scene.tell(Event::Woken { due: scene.now });
            scene.expect_claim()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(ask.total, 1);
}

#[test]
fn an_attempt_that_takes_long_does_not_end_the_prefetch_of_others() {
    let mut scene = with_learnt_prefetch();
    let runs = scene.claim(2);
    scene.quiet();
    scene.pass(ms(500));
    scene.tick_poll();
    scene.expect_withdraw();
    scene.expect_withdraw();
    scene.said.clear();
    // Both had begun: the withdrawal changes nothing, and nobody was disappointed.
    assert!(scene.driver.appetite.extra() > 0);
    let _ = runs;
}

#[test]
fn a_late_answer_is_not_executed() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    let job = scene.new_job();
    let (id, expiry) = (job.id, job.expiry);
    scene.pass(LEASE);
    assert_eq!(scene.now, expiry);
    scene.answer_claim(vec![job]);
    scene.nothing();
    assert!(scene.is_noted(&Note::LeaseLost { job: id, attempt: 1, why: Lost::LateClaim }));
}

#[test]
fn late_answers_do_not_make_the_pump_burn_through_the_queue() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    let jobs = scene.new_jobs(2);
    scene.pass(LEASE);
    scene.answer_claim(jobs);
    scene.nothing();
    scene.tick_poll();
    scene.expect_claim();
}

#[test]
fn more_jobs_than_asked_for_halt() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    let jobs = scene.new_jobs(3);
    let answer = Event::Claimed(Claimed::new(jobs, scene.now));
    scene.tell_halting(answer, InvariantTrigger::ClaimBatchOverrun);
}

#[test]
fn an_answer_without_a_claim_halts() {
    let (mut scene, _) = Scene::running(2, 2);
    let jobs = scene.new_jobs(1);
    let answer = Event::Claimed(Claimed::new(jobs, scene.now));
    scene.tell_halting(answer, InvariantTrigger::ClaimBatchOverrun);
}

fn halts(trigger: InvariantTrigger, change: impl Fn(&mut ClaimedJob)) {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    let mut jobs = scene.new_jobs(2);
    change(&mut jobs[1]);
    scene.tell_halting(Event::Claimed(Claimed::new(jobs, scene.now)), trigger);
}

#[test]
fn a_claimed_job_that_is_or_was_terminal_halts() {
    for state in JobState::ALL.into_iter().filter(|state| state.is_terminal()) {
        halts(InvariantTrigger::ClaimedJobTerminal, |job| job.state_before = state);
        halts(InvariantTrigger::ClaimedJobTerminal, |job| job.state = state);
    }
}

#[test]
fn a_claimed_job_out_of_a_state_that_is_not_waiting_halts() {
    for state in [JobState::AwaitingParent, JobState::Leased] {
        halts(InvariantTrigger::ClaimedRowNotEligible, |job| job.state_before = state);
    }
}

#[test]
fn a_claimed_job_that_is_not_leased_to_the_claimer_halts() {
    let trigger = InvariantTrigger::ClaimedRowNotLeasedToWorker;
    halts(trigger, |job| job.owner = None);
    halts(trigger, |job| job.owner = Some(WorkerId::from_bytes([8; 16])));
    halts(trigger, |job| job.state = JobState::Scheduled);
    halts(trigger, |job| job.state = JobState::AwaitingParent);
}

#[test]
fn an_attempt_claimed_while_it_runs_here_halts() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    let job = scene.new_job();
    scene.give(vec![job.clone()]);
    scene.tick_poll();
    scene.expect_claim();
    let answer = Event::Claimed(Claimed::new(vec![job], scene.now));
    scene.tell_halting(answer, InvariantTrigger::ClaimedRowNotEligible);
}

#[test]
fn an_attempt_claimed_twice_in_one_answer_halts() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    let job = scene.new_job();
    let answer = Event::Claimed(Claimed::new(vec![job.clone(), job], scene.now));
    scene.tell_halting(answer, InvariantTrigger::ClaimedRowNotEligible);
}

#[test]
fn a_late_result_of_an_older_attempt_does_not_free_the_slot_of_the_newer_one() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    let job = scene.new_job();
    let older = scene.give(vec![job.clone()])[0];
    scene.tick_poll();
    scene.expect_claim();
    let mut again = job;
    again.attempt = 2;
    scene.answer_claim(vec![again]);
    assert_eq!(scene.expect_cancel(), (older.execution, CancelReason::LeaseLost));
    assert_eq!(scene.expect_withdraw(), older.execution);
    let newer = scene.expect_execute();
    assert_eq!(scene.lost(&older), Some(Lost::NotRenewed));

    // Both hold a worker; the older one's result is dropped and frees one.
    scene.tick_poll();
    scene.nothing();
    scene.finish_ok(&older);
    assert_eq!(scene.claim(0), []);
    scene.heartbeat();
    assert_eq!(scene.expect_renew(), [newer.lease]);
    scene.finish_ok(&newer);
    assert_eq!(scene.settle()[0].attempt, 2);
}

#[test]
fn claims_by_weight_give_each_queue_its_share() {
    let dispatch = DispatchPolicy::weighted([("a", 3), ("b", 1)]);
    let mut scene = Scene::of(DriverConfig { dispatch, ..config(1) });
    let mut firsts = String::new();
    for _ in 0..8 {
        let ask = scene.expect_claim();
        assert_eq!(ask.plan.len(), 2, "the other queue takes what this one leaves");
        assert_eq!(ask.plan.iter().map(|quota| quota.quota).sum::<u32>(), 1);
        firsts.push_str(&ask.plan[0].queue);
        let jobs = scene.new_jobs(1);
        let run = scene.give(jobs)[0];
        scene.nothing();
        scene.finish_ok(&run);
        let (rows, ask) = scene.expect_exchange();
        scene.written(&rows);
        scene.answer_claim(Vec::new());
        firsts.push_str(&ask.plan[0].queue);
        scene.tell(Event::Woken { due: scene.now });
    }
    assert_eq!(firsts.matches('a').count(), 12);
    assert_eq!(firsts.matches('b').count(), 4);
}
