//! stub
use crate::CancelReason;
/// v
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Verdict {
    Retry,
    RetryIn(std::time::Duration),
    Discard,
    Snooze(std::time::Duration),
    Cancel,
    GaveWay(CancelReason),
}
