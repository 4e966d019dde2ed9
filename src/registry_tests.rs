use super::*;
use crate::{ContextBuilder, JobError};
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer, Serialize};

#[derive(Serialize, Deserialize)]
struct Add {
    number: u32,
}

impl Job for Add {
    const WIRE_NAME: &'static str = "add";
    const VERSION: u32 = 2;

    fn upcast(_: u32, old: Payload<'_>) -> Result<Self, DecodeError> {
        old.decode().map(|number| Self { number })
    }
}

#[derive(Serialize, Deserialize)]
struct Other;

impl Job for Other {
    const WIRE_NAME: &'static str = "other";
    const QUEUE: &'static str = "elsewhere";
}

fn start(registry: &Registry, index: usize, version: u32, payload: &str) -> Run {
    let entries = registry.entries().expect("no duplicates");
    (entries[index].run)(&ContextBuilder::new().build(), version, payload.as_bytes())
}

fn done(run: Run) -> JobResult {
    match run {
        Run::Done(result) => result,
        Run::Undecodable(detail) => panic!("{detail}"),
    }
}

fn undecodable(run: Run) -> String {
    match run {
        Run::Undecodable(detail) => detail,
        Run::Done(_) => panic!("it ran"),
    }
}

#[test]
fn a_handler_gets_its_job_whatever_known_version_it_was_stored_in() {
    let sum = Arc::new(Mutex::new(0));
    let registry = Registry::new().handle_with(&sum, |sum: &Mutex<u32>, _, job: Add| {
        *sum.lock() += job.number;
        Ok(())
    });
    done(start(&registry, 0, 2, r#"{"number":5}"#)).expect("adds");
    done(start(&registry, 0, 1, "7")).expect("adds");
    assert_eq!(*sum.lock(), 12);
}

#[test]
fn what_does_not_decode_runs_nothing_and_quotes_nothing() {
    let ran = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&ran);
    let registry =
        Registry::new().handle(|_, _: Add| panic!("must not run")).around(move |_, next| {
            *seen.lock() += 1;
            next()
        });
    let wrong = undecodable(start(&registry, 0, 2, r#"{"number":"secret"}"#));
    assert!(wrong.contains("line 1 column 18") && !wrong.contains("secret"), "{wrong}");
    let missing = undecodable(start(&registry, 0, 2, "{}"));
    assert!(missing.contains("missing field `number`"), "{missing}");
    let newer = undecodable(start(&registry, 0, 3, "7"));
    assert!(newer.ends_with("this program reads versions up to 2"), "{newer}");
    assert_eq!(*ran.lock(), 0);
}

#[test]
fn a_deserialize_that_panics_is_undecodable() {
    struct Trap;
    impl Serialize for Trap {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_unit()
        }
    }
    impl<'de> Deserialize<'de> for Trap {
        fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            panic!("tr\0ap");
        }
    }
    impl Job for Trap {
        const WIRE_NAME: &'static str = "trap";
    }
    let registry = Registry::new().handle(|_, _: Trap| Ok(()));
    let detail = undecodable(start(&registry, 0, 1, "null"));
    assert!(detail.ends_with("its Deserialize panicked: tr\u{fffd}ap"), "{detail}");
}

#[test]
fn wrappers_go_from_the_outside_in_and_a_merge_keeps_each_ones_own() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let noting = |registry: Registry, name: &'static str| {
        let log = Arc::clone(&log);
        registry.around(move |_, next| {
            log.lock().push(name);
            next()
        })
    };
    let theirs = noting(Registry::new().handle(|_, _: Other| Ok(())), "theirs");
    let ours = noting(Registry::new(), "first").handle(|_, _: Add| Ok(()));
    let registry = noting(ours.merge(theirs), "second");
    done(start(&registry, 0, 1, "7")).expect("runs");
    assert_eq!(*log.lock(), ["first", "second"]);
    log.lock().clear();
    let outer = noting(Registry::new(), "outer").merge(registry);
    done(start(&outer, 1, 1, "null")).expect("runs");
    assert_eq!(*log.lock(), ["theirs"]);
}

#[test]
fn a_wrapper_may_call_the_handler_again() {
    let sum = Arc::new(Mutex::new(0));
    let registry = Registry::new()
        .handle_with(&sum, |sum: &Mutex<u32>, _, job: Add| {
            *sum.lock() += job.number;
            Err("again")?
        })
        .around(|_, next| next().or_else(|_| next()));
    assert!(done(start(&registry, 0, 1, "4")).is_err());
    assert_eq!(*sum.lock(), 8);
}

#[test]
fn two_handlers_for_one_wire_name_are_refused() {
    let registry = Registry::new().handle(|_, _: Add| Ok(())).handle(|_, _: Other| Ok(()));
    let manifest = registry.manifest().expect("no duplicates");
    assert_eq!(manifest.to_string(), "add v2 default\nother v1 elsewhere\n");
    let twice = registry.clone().merge(registry);
    assert_eq!(twice.manifest(), Err(DuplicateWireName { wire_name: "add" }));
}

#[derive(Serialize, Deserialize)]
struct Bomb;

impl Job for Bomb {
    const WIRE_NAME: &'static str = "bomb";
}

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("in Drop");
    }
}

#[test]
fn a_job_that_panics_when_dropped_takes_no_verdict_along() {
    let skipped = Registry::new()
        .handle(|_, _: Bomb| Ok(()))
        .around(|_, _| Err(JobError::cancel("not today")));
    assert!(done(start(&skipped, 0, 1, "null")).is_err());

    let doubly = Registry::new().handle(|_, _: Bomb| Ok(())).around(|_, _| panic!("in around"));
    let caught = catch_unwind(AssertUnwindSafe(|| start(&doubly, 0, 1, "null")));
    let payload = caught.err().expect("the wrapper's panic passes through");
    assert_eq!(panic_message(payload.as_ref()), "in around");

    let dropped_inside = Registry::new().handle(|_, _: Bomb| Ok(()));
    assert!(catch_unwind(AssertUnwindSafe(|| start(&dropped_inside, 0, 1, "null"))).is_err());
}

#[test]
fn every_kind_of_handler_fits() {
    trait Gateway: Send + Sync {
        fn add(&self, number: u32) -> anyhow::Result<u32>;
    }
    struct Real;
    impl Gateway for Real {
        fn add(&self, number: u32) -> anyhow::Result<u32> {
            Ok(number)
        }
    }
    fn whole(_: &JobContext, job: Add) -> anyhow::Result<()> {
        anyhow::ensure!(job.number > 0, "nothing to add");
        Ok(())
    }
    fn with_state(gateway: &(dyn Gateway + 'static), _: &JobContext, job: Add) -> JobResult {
        gateway.add(job.number)?;
        Ok(())
    }
    struct Service;
    impl Service {
        fn method(&self, _: &JobContext, _: Add) -> JobResult {
            Ok(())
        }
    }
    let gateway: Arc<dyn Gateway> = Arc::new(Real);
    for registry in [
        Registry::new().handle(|ctx, job: Add| Ok(whole(ctx, job)?)),
        Registry::new().handle_with(&gateway, with_state),
        Registry::new().handle_with(&gateway, |gateway, _, job: Add| {
            gateway.add(job.number)?;
            Ok(())
        }),
        Registry::new().handle_with(&Arc::new(Service), Service::method),
        Registry::new().handle(|ctx, job: Add| {
            if job.number == 0 {
                Err("needs a number")?;
            }
            ctx.check_cancelled()?;
            Ok(())
        }),
    ] {
        done(start(&registry, 0, 1, "3")).expect("runs");
    }
}

#[test]
fn a_panic_without_a_message_says_so() {
    assert_eq!(panic_message(&7_u8), "a panic without a message");
    assert_eq!(panic_message(&"text"), "text");
    assert_eq!(panic_message(&"owned\0".to_owned()), "owned\u{fffd}");
}
