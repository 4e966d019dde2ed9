use super::*;
use crate::invariant::halt;

#[derive(Debug, thiserror::Error)]
enum Layer<E: Error + Send + Sync + 'static> {
    #[error(transparent)]
    Transparent(E),
    #[error("a layer")]
    Source(#[source] E),
    #[error("a box")]
    Boxed(#[source] BoxError),
}

/// An error that hides its inside behind an `Arc`, as shared results do.
#[derive(Debug, Clone, thiserror::Error)]
#[error("shared")]
struct Shared(#[source] std::sync::Arc<dyn Error + Send + Sync>);

/// Every way of wrapping an error that we know to occur, by name.
fn wrapped<E: Error + Send + Sync + Clone + 'static>(error: E) -> Vec<(&'static str, JobError)> {
    let in_anyhow = || anyhow::Error::from(error.clone());
    let boxed = || -> BoxError { Box::new(error.clone()) };
    vec![
        ("bare", error.clone().into()),
        ("boxed", boxed().into()),
        ("anyhow", in_anyhow().into()),
        ("anyhow with context", in_anyhow().context("while").into()),
        ("anyhow with two contexts", in_anyhow().context("a").context("b").into()),
        ("eyre", eyre::Report::from(error.clone()).into()),
        ("eyre wrapped", eyre::Report::from(error.clone()).wrap_err("while").into()),
        ("transparent", Layer::Transparent(error.clone()).into()),
        ("source", Layer::Source(error.clone()).into()),
        ("boxed source", Layer::<E>::Boxed(boxed()).into()),
        ("box of anyhow", BoxError::from(in_anyhow()).into()),
        ("anyhow in eyre", eyre::Report::from(Shared(std::sync::Arc::new(error.clone()))).into()),
        (
            "transparent in anyhow in a box",
            Layer::<E>::Boxed(anyhow::Error::from(Layer::Transparent(error.clone())).into()).into(),
        ),
        ("io", std::io::Error::other(error.clone()).into()),
        ("io of anyhow", std::io::Error::other(in_anyhow()).into()),
        ("nested transparent", Layer::Transparent(Layer::Transparent(error)).into()),
    ]
}

#[test]
fn a_cancellation_is_found_in_every_chain_and_never_overridden() {
    let reason = CancelReason::OperatorRequest;
    for (name, error) in wrapped(Cancelled { reason }) {
        assert_eq!(error.verdict(), Verdict::GaveWay(reason), "{name}");
        let overridden = Err::<(), _>(error).or_discard().or_snooze(Duration::ZERO);
        assert_eq!(overridden.unwrap_err().verdict(), Verdict::GaveWay(reason), "{name}");
    }
    let discarded = JobError::discard(Cancelled { reason });
    assert_eq!(discarded.verdict(), Verdict::GaveWay(reason));
}

#[test]
fn a_violation_is_found_in_every_chain_with_its_message_and_never_overridden() {
    let trigger = InvariantTrigger::ClaimBatchOverrun;
    for (name, error) in wrapped(halt(trigger, "3 rows for 2")) {
        let error = Err::<(), _>(error).or_discard().or_retry_in(Duration::ZERO).unwrap_err();
        assert_eq!(error.verdict(), Verdict::Retry, "{name}");
        let seen = error.violation().unwrap_or_else(|| panic!("not found behind {name}"));
        assert_eq!(seen.trigger, trigger, "{name}");
        assert_eq!(seen.message, "3 rows for 2", "{name}");
        assert_eq!(seen.type_name, "backwave::invariant::InvariantViolation");
    }
}

#[test]
fn a_violation_out_of_the_client_is_found() {
    let violation = halt(InvariantTrigger::GuaranteedRowAbsent, "gone");
    let enqueue = crate::EnqueueError::from(crate::store::StoreError::from(violation));
    let error = JobError::from(anyhow::Error::from(enqueue));
    assert_eq!(error.trigger(), Some(InvariantTrigger::GuaranteedRowAbsent));
}

#[test]
fn only_a_plain_retry_takes_another_verdict() {
    let second = Duration::from_secs(1);
    let plain = || Err::<(), _>("no");
    let verdict = |result: Result<(), JobError>| result.unwrap_err().verdict();
    assert_eq!(verdict(plain().or_discard()), Verdict::Discard);
    assert_eq!(verdict(plain().or_snooze(second)), Verdict::Snooze(second));
    assert_eq!(verdict(plain().or_retry_in(second)), Verdict::RetryIn(second));
    assert_eq!(verdict(plain().or_retry_in(second).or_discard()), Verdict::RetryIn(second));
    assert_eq!(verdict(Err(JobError::cancel("no")).or_discard()), Verdict::Cancel);
    assert_eq!(verdict(Err(JobError::snooze(second)).or_discard()), Verdict::Snooze(second));
}

#[test]
fn an_error_takes_eight_bytes() {
    assert_eq!(size_of::<crate::JobResult>(), 8);
}

#[test]
fn a_detail_says_each_link_once() {
    let inner = std::io::Error::other("disk full");
    let error = anyhow::Error::from(inner).context("writing the page").context("printing");
    assert_eq!(JobError::from(error).detail(100), "printing: writing the page: disk full");

    #[derive(Debug, thiserror::Error)]
    #[error("query failed: {0}")]
    struct Repeats(#[source] std::io::Error);
    let error = JobError::from(Repeats(std::io::Error::other("disk full")));
    assert_eq!(error.detail(100), "query failed: disk full");
    assert_eq!(JobError::snooze(Duration::ZERO).detail(100), "");
}

#[test]
fn a_detail_is_clean_and_cut_on_a_character_boundary() {
    assert_eq!(JobError::from("a\0b").detail(100), "a\u{fffd}b");
    assert_eq!(JobError::from("aéé").detail(4), "aé");
    let long = "x".repeat(10_000);
    let error = anyhow::Error::msg(long.clone()).context(long);
    assert_eq!(JobError::from(error).detail(50).len(), 50);
}

#[derive(Debug)]
struct Hostile;

impl fmt::Display for Hostile {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("in Display");
    }
}

impl Error for Hostile {}

impl Drop for Hostile {
    fn drop(&mut self) {
        panic!("in Drop");
    }
}

#[test]
fn an_error_that_panics_when_shown_or_dropped_is_contained() {
    let error = JobError::from(Hostile);
    assert_eq!(error.detail(100), "the error's own Display panicked");
    assert_eq!(error.verdict(), Verdict::Retry);
    error.dispose();
    let error = JobError::from(anyhow::Error::from(Hostile).context("printing"));
    assert_eq!(error.detail(100), "printing: : the error's own Display panicked");
    error.dispose();
}
