//! What several threads enqueue goes together, and each hears of its own.

use super::*;

const THREADS: usize = 6;

/// Has one call hang, and meanwhile as many others as there are jobs enqueue one each; what came of them, in
/// the order of the jobs.
fn gathered(store: &Fake, jobs: Vec<NewJob>) -> Vec<Result<Enqueued, EnqueueError>> {
    let client = Client::new(store.clone());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| client.enqueue(&Greet));
        store.0.arrived.1.recv().expect("the first call is on its way");
        let others: Vec<_> = (1..)
            .zip(jobs)
            .map(|(count, job)| {
                let other = scope.spawn(|| client.enqueue(job));
                // One after another, so that their order is known.
                while client.0.gather.waiting() < count {
                    std::thread::yield_now();
                }
                other
            })
            .collect();
        let calls = store.count("call");
        store.0.gate.0.send(()).expect("the first call waits");
        assert!(first.join().expect("no panic").expect("enqueued").is_new);
        assert_eq!(calls, 1);
        others.into_iter().map(|other| other.join().expect("no panic")).collect()
    })
}

fn greetings() -> Vec<NewJob> {
    std::iter::repeat_with(|| NewJob::new(&Greet)).take(THREADS).collect()
}

#[test]
fn what_is_enqueued_while_a_call_is_on_its_way_goes_as_one() {
    let (store, _) = fake(&[Mischief::Hang]);
    let jobs = greetings();
    let ids: Vec<_> = jobs.iter().map(NewJob::job_id).collect();
    let told = gathered(&store, jobs);
    let told: Vec<_> = told.into_iter().map(|told| told.expect("enqueued")).collect();
    assert!(told.iter().all(|job| job.is_new));
    assert_eq!(told.iter().map(|job| job.id).collect::<Vec<_>>(), ids);
    assert_eq!((store.count("call"), stored(&store)), (2, 1 + THREADS as u64));
}

#[test]
fn a_refusal_goes_to_whose_job_it_is_and_the_others_go_on_without_it() {
    for bad in [0, 3, THREADS] {
        let (store, _) = fake(&[Mischief::Hang]);
        let mut jobs = greetings();
        jobs.insert(bad, NewJob::raw("", "{}"));
        for (place, told) in gathered(&store, jobs).into_iter().enumerate() {
            match told {
                Ok(job) => assert!(job.is_new && place != bad),
                Err(EnqueueError::Rejected { index: 0, .. }) => assert_eq!(place, bad),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((store.count("call"), stored(&store)), (3, 1 + THREADS as u64));
    }
}

#[test]
fn after_a_fault_everybody_goes_alone_and_each_job_is_stored_once() {
    for mischief in [
        Mischief::LostAnswer,
        Mischief::Refused,
        Mischief::Unknown,
        Mischief::RaisedViolation,
        Mischief::Panic,
        Mischief::ShortAnswer,
    ] {
        let (store, _) = fake(&[Mischief::Hang, mischief]);
        for told in gathered(&store, greetings()) {
            assert!(told.expect("enqueued").is_new, "{mischief:?}");
        }
        assert_eq!(store.count("call"), 2 + THREADS, "{mischief:?}");
        assert_eq!(stored(&store), 1 + THREADS as u64, "{mischief:?}");
    }
}

#[test]
fn a_fault_of_one_call_is_told_to_nobody_else() {
    // The first to go alone meets the fault again; the others never hear of it.
    let (store, _) = fake(&[Mischief::Hang, Mischief::Unknown, Mischief::Unknown]);
    let told = gathered(&store, greetings());
    let failed = told.iter().filter(|told| matches!(told, Err(EnqueueError::Store(_)))).count();
    assert_eq!((failed, stored(&store)), (1, THREADS as u64));
}

#[test]
fn one_id_enqueued_twice_at_once_is_new_once() {
    let (store, _) = fake(&[Mischief::Hang]);
    let id = JobId::new();
    let twice = vec![NewJob::new(&Greet).id(id), NewJob::new(&Greet).id(id)];
    let told = gathered(&store, twice);
    let new: Vec<_> = told.into_iter().map(|told| told.expect("enqueued").is_new).collect();
    assert_eq!((new, stored(&store)), (vec![true, false], 2));
}

#[test]
fn a_call_of_many_jobs_goes_alone_and_waits_for_nobody() {
    let (store, _) = fake(&[Mischief::Hang]);
    let client = Client::new(store.clone());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| client.enqueue(&Greet));
        store.0.arrived.1.recv().expect("the first call is on its way");
        let many = std::iter::repeat_n(&Greet, 101);
        assert_eq!(client.enqueue_many(many).expect("enqueued").len(), 101);
        store.0.gate.0.send(()).expect("the first call waits");
        first.join().expect("no panic").expect("enqueued");
    });
    assert_eq!(stored(&store), 102);
}
