mod gathering;

use super::threads::{Threads, TryError};
use super::*;
use crate::invariant::{InvariantTrigger, halt};
use crate::operator::CancelOutcome;
use crate::store::*;
use crate::{Job, JobState, MemoryStore, Timestamp, WorkerId};
use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::thread::ThreadId;

/// What one call of the store does, beside what it should.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mischief {
    /// Opening a session fails, transiently.
    NoConnection,
    /// The call is carried out, and its answer and session are lost.
    LostAnswer,
    /// The call is refused with a code, transiently, on a session that stands.
    Busy,
    /// The call is refused as a whole, transiently, and the session is lost.
    Refused,
    /// A fault that nobody knows.
    Unknown,
    Violation,
    /// A violation that is raised by unwinding.
    RaisedViolation,
    Panic,
    /// One answer too few.
    ShortAnswer,
    /// Waits at the gate.
    Hang,
}

/// A memory store that misbehaves by plan, and notes on which threads its sessions live.
#[derive(Clone)]
struct Fake(Arc<FakeInner>);

struct FakeInner {
    memory: MemoryStore,
    plan: Mutex<VecDeque<Mischief>>,
    log: Mutex<Vec<(&'static str, ThreadId)>>,
    closed: Sender<ThreadId>,
    arrived: (Sender<()>, Receiver<()>),
    gate: (Sender<()>, Receiver<()>),
}

fn fake(plan: &[Mischief]) -> (Fake, Receiver<ThreadId>) {
    let (closed, sessions_closed) = unbounded();
    let inner = FakeInner {
        memory: MemoryStore::new(),
        plan: Mutex::new(plan.iter().copied().collect()),
        log: Mutex::default(),
        closed,
        arrived: unbounded(),
        gate: unbounded(),
    };
    (Fake(Arc::new(inner)), sessions_closed)
}

impl Fake {
    fn note(&self, what: &'static str) {
        self.0.log.lock().push((what, std::thread::current().id()));
    }

    fn count(&self, what: &str) -> usize {
        self.0.log.lock().iter().filter(|(noted, _)| *noted == what).count()
    }

    fn is_over(&self) -> bool {
        self.0.plan.lock().is_empty()
    }
}

fn reset() -> StoreError {
    StoreError::transient(std::io::Error::from(std::io::ErrorKind::ConnectionReset))
}

impl Store for Fake {
    fn open_session(&self) -> Result<Box<dyn Session>, StoreError> {
        self.note("open");
        let mut plan = self.0.plan.lock();
        if plan.front() == Some(&Mischief::NoConnection) {
            plan.pop_front();
            return Err(reset().with_session_lost());
        }
        Ok(Box::new(FakeSession { fake: self.clone(), inner: self.0.memory.open_session()? }))
    }

    fn hub(&self) -> &Hub {
        self.0.memory.hub()
    }

    fn bounds(&self) -> &Bounds {
        self.0.memory.bounds()
    }
}

struct FakeSession {
    fake: Fake,
    inner: Box<dyn Session>,
}

impl Drop for FakeSession {
    fn drop(&mut self) {
        self.fake.note("close");
        let _ = self.fake.0.closed.send(std::thread::current().id());
    }
}

impl FakeSession {
    fn act<R>(
        &mut self,
        call: impl FnOnce(&mut dyn Session) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        self.fake.note("call");
        let violation = || halt(InvariantTrigger::GuaranteedRowAbsent, "a row is gone");
        let mischief = self.fake.0.plan.lock().pop_front();
        match mischief {
            None | Some(Mischief::NoConnection | Mischief::ShortAnswer) => {}
            Some(Mischief::LostAnswer) => {
                call(self.inner.as_mut())?;
                return Err(reset().with_session_lost());
            }
            Some(Mischief::Busy) => return Err(reset().with_code("5")),
            Some(Mischief::Refused) => {
                return Err(reset().with_session_lost().with_refused_whole());
            }
            Some(Mischief::Unknown) => {
                return Err(StoreError::new(fmt::Error).with_code("XX000"));
            }
            Some(Mischief::Violation) => return Err(violation().into()),
            Some(Mischief::RaisedViolation) => std::panic::resume_unwind(Box::new(violation())),
            Some(Mischief::Panic) => panic!("in the store"),
            Some(Mischief::Hang) => {
                self.fake.0.arrived.0.send(()).expect("the test listens");
                self.fake.0.gate.1.recv().expect("the gate opens");
            }
        }
        call(self.inner.as_mut())
    }
}

impl Jobs for FakeSession {
    fn enqueue(&mut self, rows: &[JobRow]) -> Result<EnqueueAnswer, StoreError> {
        let is_short = self.fake.0.plan.lock().front() == Some(&Mischief::ShortAnswer);
        let mut answer = self.act(|session| session.enqueue(rows))?;
        if let EnqueueAnswer::Accepted { jobs, .. } = &mut answer
            && is_short
        {
            jobs.pop();
        }
        Ok(answer)
    }

    fn claim(&mut self, claim: &Claim<'_>) -> Result<Claimed, StoreError> {
        self.inner.claim(claim)
    }

    fn report(&mut self, rows: &[OutcomeRow]) -> Result<Reported, StoreError> {
        self.inner.report(rows)
    }

    fn exchange(
        &mut self,
        rows: &[OutcomeRow],
        claim: &Claim<'_>,
    ) -> Result<Exchanged, StoreError> {
        self.inner.exchange(rows, claim)
    }

    fn renew(
        &mut self,
        worker: WorkerId,
        rows: &[LeaseRef],
        lease: Duration,
    ) -> Result<Renewal, StoreError> {
        self.inner.renew(worker, rows, lease)
    }

    fn find_lapsed(&mut self, queues: &[String], max: u32) -> Result<Lapsed, StoreError> {
        self.inner.find_lapsed(queues, max)
    }

    fn held_by(&mut self, worker: WorkerId) -> Result<Held, StoreError> {
        self.inner.held_by(worker)
    }

    fn hand_back(&mut self, worker: WorkerId, rows: &[LeaseRef]) -> Result<HandedBack, StoreError> {
        self.inner.hand_back(worker, rows)
    }

    fn now(&mut self) -> Result<Timestamp, StoreError> {
        self.inner.now()
    }
}

crate::forward_session!(FakeSession, through act; Operations Upkeep Reads Observing Scheduling);

#[derive(serde::Serialize, serde::Deserialize)]
struct Greet;

impl Job for Greet {
    const WIRE_NAME: &'static str = "greet";
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Weigh(f64);

impl Job for Weigh {
    const WIRE_NAME: &'static str = "weigh";
}

fn stored(store: &Fake) -> u64 {
    let counts = store.0.memory.open_session().and_then(|mut session| session.counts());
    counts.expect("memory answers").iter().map(|count| count.count).sum()
}

/// Takes the one due job and ends it.
fn settle(memory: &MemoryStore, outcome: Outcome) {
    let worker = WorkerId::new();
    let mut session = memory.open_session().expect("memory opens");
    let plan = [QueueQuota { queue: "default".to_owned(), quota: 1 }];
    let accepts = [Accepts { wire_name: "greet".to_owned(), version_max: 1 }];
    let claim = Claim::new(worker, 1, &plan, &accepts, Duration::from_secs(60));
    let claimed = session.claim(&claim).expect("memory answers");
    let job = &claimed.jobs[0];
    let receipt = Receipt { pump: worker, sequence: 1 };
    let row = OutcomeRow::new(job.id, job.attempt, worker, receipt, outcome);
    session.report(&[row]).expect("memory answers");
    memory.hub().settled();
}

#[test]
fn a_call_is_all_or_nothing_and_names_the_job_at_fault() {
    let (store, _) = fake(&[]);
    let client = Client::new(store.clone());
    let jobs = [NewJob::new(&Greet), NewJob::new(&Weigh(f64::NAN)), NewJob::raw("", "{}")];
    let encode = client.enqueue_many(jobs).expect_err("NaN");
    assert!(matches!(encode, EnqueueError::Encode { index: 1, .. }), "{encode:?}");
    assert_eq!(store.count("open"), 0);
    let jobs = [NewJob::new(&Greet), NewJob::raw("", "{}")];
    let rejected = client.enqueue_many(jobs).expect_err("an empty wire name");
    assert!(matches!(rejected, EnqueueError::Rejected { index: 1, .. }), "{rejected:?}");
    assert_eq!(stored(&store), 0);
    assert_eq!(client.enqueue_many(Vec::<NewJob>::new()).expect("nothing to do"), []);
}

#[test]
fn many_jobs_go_in_one_call() {
    let (store, _) = fake(&[]);
    let client = Client::new(store.clone());
    let enqueued = client.enqueue_many(std::iter::repeat_n(&Greet, 10_000)).expect("enqueues");
    assert!(enqueued.iter().all(|job| job.is_new));
    assert_eq!((store.count("call"), stored(&store)), (1, 10_000));
}

#[test]
fn an_id_that_exists_is_told_as_not_new() {
    let (store, _) = fake(&[]);
    let client = Client::new(store.clone());
    let id = JobId::new();
    assert!(client.enqueue(NewJob::new(&Greet).id(id)).expect("enqueues").is_new);
    assert!(!client.enqueue(NewJob::new(&Greet).id(id)).expect("enqueues").is_new);
    assert_eq!(stored(&store), 1);
}

#[test]
fn a_lost_answer_is_repaired_under_the_same_id() {
    let (store, _) = fake(&[Mischief::LostAnswer, Mischief::NoConnection, Mischief::LostAnswer]);
    let client = Client::new(store.clone());
    let job = client.enqueue(&Greet).expect("the last try is answered");
    assert!(job.is_new, "the job is this call's own");
    assert_eq!((stored(&store), store.count("open"), store.count("call")), (1, 4, 3));
}

#[test]
fn an_answer_that_stays_lost_is_told_with_the_ids() {
    let (store, _) = fake(&[Mischief::LostAnswer, Mischief::Busy, Mischief::Busy, Mischief::Busy]);
    let client = Client::new(store.clone());
    let id = JobId::new();
    match client.enqueue(NewJob::new(&Greet).id(id)) {
        Err(EnqueueError::OutcomeUnknown { ids, .. }) => assert_eq!(ids, [id]),
        other => panic!("{other:?}"),
    }
    assert_eq!(stored(&store), 1);
}

#[test]
fn what_was_surely_not_stored_is_not_called_unknown() {
    for mischief in [Mischief::NoConnection, Mischief::Busy, Mischief::Refused] {
        let (store, _) = fake(&[mischief; 4]);
        let refused = Client::new(store.clone()).enqueue(&Greet).expect_err("never answered");
        assert!(matches!(refused, EnqueueError::Store(_)), "{mischief:?}: {refused:?}");
        assert!(store.is_over(), "four tries");
    }
    let (store, _) = fake(&[Mischief::Unknown]);
    let refused = Client::new(store.clone()).enqueue(&Greet).expect_err("an unknown fault");
    assert!(matches!(refused, EnqueueError::Store(_)), "{refused:?}");
    assert_eq!(store.count("call"), 1, "an unknown fault is not repeated");
}

#[test]
fn who_waits_for_a_job_hears_of_an_operators_cancel() {
    let memory = MemoryStore::new();
    let client = Client::new(memory.clone());
    let operator = client.operator("ada");
    for by_filter in [false, true] {
        let job = client.enqueue(&Greet).expect("enqueues").id;
        let seen = memory.hub().settled_count();
        if by_filter {
            assert_eq!(operator.cancel_matching(&JobFilter::new()).expect("cancels"), 1);
        } else {
            operator.cancel(job).expect("cancels");
        }
        assert_eq!(memory.hub().settled_count(), seen + 1);
    }
}

#[test]
fn a_violation_comes_back_as_a_value_and_is_not_repeated() {
    for mischief in [Mischief::Violation, Mischief::RaisedViolation] {
        let (store, _) = fake(&[mischief, mischief]);
        let client = Client::new(store.clone());
        match client.enqueue(&Greet) {
            Err(EnqueueError::Invariant(violation)) => {
                assert_eq!(violation.trigger(), InvariantTrigger::GuaranteedRowAbsent);
            }
            other => panic!("{mischief:?}: {other:?}"),
        }
        assert_eq!(store.count("call"), 1);
        assert!(matches!(client.monitor().counts(), Err(Error::Invariant(_))));
        client.enqueue(&Greet).expect("the client goes on");
    }
    let (store, _) = fake(&[Mischief::ShortAnswer]);
    let short = Client::new(store).enqueue(&Greet);
    assert!(matches!(short, Err(EnqueueError::Invariant(_))), "{short:?}");
}

#[test]
fn a_panic_of_the_store_is_contained_and_its_session_replaced() {
    let (store, closed) = fake(&[Mischief::Panic, Mischief::Panic]);
    let client = Client::new(store.clone());
    let unknown = client.enqueue(&Greet).expect_err("it panicked");
    assert!(matches!(unknown, EnqueueError::OutcomeUnknown { .. }), "{unknown:?}");
    match client.monitor().counts() {
        Err(Error::Store(error)) => assert!(error.to_string().ends_with("in the store"), "{error}"),
        other => panic!("{other:?}"),
    }
    client.enqueue(&Greet).expect("the client goes on");
    assert_eq!((store.count("open"), closed.len()), (3, 2));
}

#[test]
fn no_session_lives_on_a_callers_thread_and_the_last_clone_ends_them() {
    let (store, closed) = fake(&[Mischief::LostAnswer]);
    let client = Client::new(store.clone());
    assert_eq!(store.count("open"), 0, "nothing is opened before the first use");
    client.clone().enqueue(&Greet).expect("enqueues");
    closed.recv().expect("the lost session is closed");
    drop(client);
    closed.recv_timeout(Duration::from_secs(60)).expect("the last session is closed");
    let here = std::thread::current().id();
    assert!(store.0.log.lock().iter().all(|(_, thread)| *thread != here));
}

#[test]
fn two_calls_run_side_by_side_and_a_third_waits() {
    let (store, _) = fake(&[Mischief::Hang; 3]);
    let client = Client::new(store.clone());
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..3).map(|_| scope.spawn(|| client.monitor().counts())).collect();
        let arrived = &store.0.arrived.1;
        arrived.recv().expect("the first arrives");
        arrived.recv().expect("the second arrives");
        assert_eq!(client.0.threads.alive(), 2);
        assert!(arrived.is_empty());
        for _ in 0..3 {
            store.0.gate.0.send(()).expect("the gate stands");
        }
        for caller in callers {
            caller.join().expect("no panic").expect("answers");
        }
    });
    assert_eq!((store.count("open"), store.count("call")), (2, 3));
}

#[test]
fn calls_one_after_the_other_share_one_session() {
    let (store, _) = fake(&[]);
    let client = Client::new(store.clone());
    for _ in 0..2_000 {
        client.monitor().counts().expect("answers");
    }
    assert_eq!((store.count("open"), client.0.threads.alive()), (1, 1));
}

const PATIENCE_OF_TESTS: Option<Duration> = Some(Duration::from_millis(300));

fn is_hung<R>(result: Result<R, TryError>) -> bool {
    let Err(TryError::Store { error, may_be_done }) = result else { panic!("no answer is due") };
    assert_eq!(classify(&error, None), FaultClass::Transient, "{error}");
    may_be_done
}

#[test]
fn a_call_that_hangs_is_given_up_and_another_thread_goes_on() {
    let (store, closed) = fake(&[Mischief::Hang]);
    let threads = Threads::patient(Arc::new(store.clone()), threads::IDLE, PATIENCE_OF_TESTS);
    assert!(is_hung(threads.run(|session| session.counts())), "it may be done all the same");
    assert_eq!(threads.alive(), 0);
    threads.run(|session| session.counts()).ok().expect("another thread answers");
    assert_eq!((store.count("open"), threads.alive()), (2, 1));
    store.0.gate.0.send(()).expect("open");
    closed.recv_timeout(Duration::from_secs(60)).expect("the lost thread closes its session");
    threads.run(|session| session.counts()).ok().expect("answers");
    assert_eq!((store.count("open"), threads.alive()), (2, 1));
}

#[test]
fn when_too_many_threads_hang_calls_are_given_up_before_they_begin() {
    let (store, _closed) = fake(&[Mischief::Hang; 6]);
    let threads = Threads::patient(Arc::new(store.clone()), threads::IDLE, PATIENCE_OF_TESTS);
    for _ in 0..6 {
        assert!(is_hung(threads.run(|session| session.counts())));
    }
    assert_eq!(threads.alive(), 2, "four are written off, two keep their places");
    assert!(!is_hung(threads.run(|session| session.counts())), "it was not begun");
    for _ in 0..6 {
        store.0.gate.0.send(()).expect("open");
    }
    threads.run(|session| session.counts()).ok().expect("answers");
    // Whoever comes back from a call that was given up begins what waits, but not what was withdrawn.
    assert_eq!(store.count("call"), 7);
    assert!(threads.alive() <= 2);
}

#[test]
fn an_idle_thread_ends_and_another_starts() {
    let (store, closed) = fake(&[]);
    let threads = Threads::new(Arc::new(store.clone()), Duration::from_millis(1));
    let now = || threads.run(|session| session.now()).ok();
    now().expect("answers");
    closed.recv_timeout(Duration::from_secs(60)).expect("the idle session is closed");
    assert_eq!(threads.alive(), 0);
}

#[test]
fn a_client_works_inside_an_async_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("starts");
    let (store, closed) = fake(&[]);
    runtime.block_on(async {
        let client = Client::new(store.clone());
        let id = tokio::spawn({
            let client = client.clone();
            async move { client.enqueue(&Greet).map(|job| job.id) }
        });
        let id = id.await.expect("no panic").expect("enqueues");
        client.operator("test").cancel(id).expect("cancels");
    });
    closed.recv_timeout(Duration::from_secs(60)).expect("the session is closed");
}

#[test]
fn waiting_ends_with_the_job() {
    let (store, _) = fake(&[]);
    let client = Client::new(store.clone());
    let job = client.enqueue(&Greet).expect("enqueues").id;
    let timed_out = client.wait(job, Duration::ZERO).expect_err("nobody runs it");
    assert!(matches!(timed_out, Error::WaitTimedOut { state: JobState::Scheduled, .. }));
    let record = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| client.wait(job, Duration::MAX));
        settle(&store.0.memory, Outcome::Succeeded);
        waiter.join().expect("no panic").expect("ends")
    });
    assert_eq!(record.state, JobState::Succeeded);
    let nobody = JobId::new();
    let absent = client.wait(nobody, Duration::MAX);
    assert!(matches!(absent, Err(Error::NotFound { id }) if id == nobody));
}

#[test]
fn groups_are_woken_once_per_queue_with_the_shortest_delay() {
    #[derive(Default)]
    struct Heard(Mutex<Vec<(String, Duration)>>);
    impl Wake for Heard {
        fn wake(&self, queue: &str, due_in: Duration) {
            self.0.lock().push((queue.to_owned(), due_in));
            panic!("a subscriber's own trouble");
        }
    }
    let (store, _) = fake(&[]);
    let client = Client::new(store.clone());
    let heard = Arc::new(Heard::default());
    let _subscription = store.hub().subscribe(heard.clone());
    let job =
        |queue: &str, seconds| NewJob::new(&Greet).queue(queue).delay(Duration::from_secs(seconds));
    client.enqueue_many([job("b", 9), job("a", 5), job("b", 3)]).expect("enqueues");
    client.enqueue(NewJob::new(&Greet).due_at(Timestamp::EPOCH)).expect("enqueues");
    client.wake("c");
    let expected = [("a", 5), ("b", 3), ("default", 0), ("c", 0)]
        .map(|(queue, seconds)| (queue.to_owned(), Duration::from_secs(seconds)));
    assert_eq!(*heard.0.lock(), expected);
}

#[test]
fn an_operators_lost_answer_is_repaired() {
    let (store, _) = fake(&[]);
    let client = Client::new(store.clone());
    let operator = client.operator("ada");
    assert_eq!(operator.actor(), "ada");
    let job = client.enqueue(&Greet).expect("enqueues").id;
    assert!(matches!(operator.requeue(job), Err(Error::IllegalState { .. })));
    settle(&store.0.memory, Outcome::DeadLettered);

    store.0.plan.lock().push_back(Mischief::LostAnswer);
    operator.requeue(job).expect("requeued by the first try");
    store.0.plan.lock().push_back(Mischief::LostAnswer);
    assert_eq!(operator.cancel(job).expect("cancelled"), CancelOutcome::Cancelled);
    let again = operator.cancel(job);
    assert!(matches!(again, Err(Error::IllegalState { state: JobState::Cancelled, .. })));
    assert!(matches!(operator.cancel(JobId::new()), Err(Error::NotFound { .. })));
}
