//! For whoever wraps a session: what the wrapper does not care about goes on to the session inside.

/// Implements topics of the [`Session`](crate::store::Session) contract for a wrapper, by handing each call on:
/// `forward_session!(Wrapper, |wrapper| expression; Topic Topic ..)`, where the expression gives the session
/// inside of a `&mut Wrapper` and may end in `?`. With `through method` in the place of the closure, each call is
/// handed to that method of the wrapper as `FnOnce(&mut dyn Session) -> Result<R, StoreError>`.
///
/// ```
/// use backwave::store::{self, Claimed, Session};
///
/// /// Counts what is read, and leaves the rest alone.
/// struct Counting {
///     inner: Box<dyn Session>,
///     reads: u32,
/// }
///
/// impl Counting {
///     fn reading(&mut self) -> &mut dyn Session {
///         self.reads += 1;
///         self.inner.as_mut()
///     }
/// }
///
/// backwave::forward_session!(Counting, |this| this.inner; Jobs Operations Upkeep Observing Scheduling);
/// backwave::forward_session!(Counting, |this| this.reading(); Reads);
/// # use backwave::store::{Reads, Store};
/// # let inner = backwave::MemoryStore::new().open_session().unwrap();
/// # let mut session = Counting { inner, reads: 0 };
/// # session.counts().unwrap();
/// # assert_eq!(session.reads, 1);
/// ```
#[macro_export]
macro_rules! forward_session {
    ($wrapper:ty, |$this:ident| $inner:expr; $($topic:ident)+) => {
        $($crate::forward_session!(@$topic $wrapper, [$this, $inner]);)+
    };
    ($wrapper:ty, through $method:ident; $($topic:ident)+) => {
        $($crate::forward_session!(@$topic $wrapper, [through $method]);)+
    };
    (@Jobs $wrapper:ty, $how:tt) => {
        $crate::forward_session!(@impl Jobs for $wrapper, $how;
            enqueue(rows: &[$crate::store::JobRow]) -> $crate::store::EnqueueAnswer;
            claim(claim: &$crate::store::Claim<'_>) -> $crate::store::Claimed;
            report(rows: &[$crate::store::OutcomeRow]) -> $crate::store::Reported;
            exchange(rows: &[$crate::store::OutcomeRow], claim: &$crate::store::Claim<'_>)
                -> $crate::store::Exchanged;
            renew(
                worker: $crate::WorkerId,
                rows: &[$crate::store::LeaseRef],
                lease: ::std::time::Duration
            ) -> $crate::store::Renewal;
            find_lapsed(queues: &[::std::string::String], max: u32) -> $crate::store::Lapsed;
            held_by(worker: $crate::WorkerId) -> $crate::store::Held;
            hand_back(worker: $crate::WorkerId, rows: &[$crate::store::LeaseRef])
                -> $crate::store::HandedBack;
            now() -> $crate::Timestamp;
        );
    };
    (@Operations $wrapper:ty, $how:tt) => {
        $crate::forward_session!(@impl Operations for $wrapper, $how;
            request_cancel(actor: &str, job: $crate::JobId) -> $crate::store::CancelAnswer;
            requeue(actor: &str, job: $crate::JobId) -> $crate::store::RequeueAnswer;
            change_matching(
                actor: &str,
                change: $crate::store::BulkChange,
                filter: &$crate::store::JobFilter,
                after: ::std::option::Option<$crate::JobId>,
                max: u32
            ) -> $crate::store::BulkAnswer;
            change_queue(actor: &str, queue: &str, change: $crate::store::QueueChange)
                -> $crate::store::QueueAnswer;
            revoke(actor: &str, worker: $crate::WorkerId, max: u32) -> $crate::store::Revoked;
        );
    };
    (@Upkeep $wrapper:ty, $how:tt) => {
        $crate::forward_session!(@impl Upkeep for $wrapper, $how;
            purge(purge: &$crate::store::Purge) -> $crate::store::Purged;
            work_off_latches(max: u32) -> $crate::store::LatchesWorkedOff;
            announce(announcement: &$crate::store::Announcement) -> $crate::Timestamp;
            withdraw(worker: $crate::WorkerId) -> ();
        );
    };
    (@Reads $wrapper:ty, $how:tt) => {
        $crate::forward_session!(@impl Reads for $wrapper, $how;
            job(job: $crate::JobId) -> ::std::option::Option<$crate::store::JobRecord>;
            find(filter: &$crate::store::JobFilter, page: &$crate::store::Page) -> $crate::store::Found;
            counts() -> ::std::vec::Vec<$crate::store::QueueCount>;
            parents(job: $crate::JobId) -> ::std::vec::Vec<$crate::store::ParentRecord>;
            ancestor(job: $crate::JobId, ancestor: $crate::JobId)
                -> ::std::option::Option<$crate::store::ParentRecord>;
            history(job: $crate::JobId) -> ::std::vec::Vec<$crate::store::Transition>;
            audit(filter: &$crate::store::AuditFilter) -> $crate::store::AuditPage;
            queues() -> ::std::vec::Vec<$crate::store::QueueSettings>;
            pumps() -> ::std::vec::Vec<$crate::store::PumpRecord>;
        );
    };
    (@Observing $wrapper:ty, $how:tt) => {
        $crate::forward_session!(@impl Observing for $wrapper, $how;
            observe(ask: &$crate::store::Observe<'_>) -> $crate::store::Observed;
            resolve(resolve: &$crate::store::Resolve<'_>) -> $crate::store::Resolved;
            release_cursor(observer: &str, worker: $crate::WorkerId, epoch: u64) -> $crate::Timestamp;
            observers() -> ::std::vec::Vec<$crate::store::ObserverRecord>;
            parked(observer: &str, after: ::std::option::Option<u64>, max: u32)
                -> ::std::vec::Vec<$crate::store::ParkedDelivery>;
            change_observer(actor: &str, observer: &str, change: $crate::store::ObserverChange) -> u64;
        );
    };
    (@Scheduling $wrapper:ty, $how:tt) => {
        $crate::forward_session!(@impl Scheduling for $wrapper, $how;
            declare(owner: &str, rows: &[$crate::store::ScheduleRow], is_whole: bool)
                -> $crate::store::Declared;
            change_schedule(actor: &str, name: &str, change: &$crate::store::ScheduleChange)
                -> $crate::store::ScheduleAnswer;
            due_schedules(max: u32) -> $crate::store::DueSchedules;
            mint(rows: &[$crate::store::MintRow]) -> $crate::store::Minted;
            schedules() -> ::std::vec::Vec<$crate::store::ScheduleRecord>;
        );
    };
    (@impl $topic:ident for $wrapper:ty, $how:tt;
        $($method:ident($($given:ident: $type:ty),*) -> $answer:ty;)+
    ) => {
        impl $crate::store::$topic for $wrapper {
            $(fn $method(
                &mut self,
                $($given: $type),*
            ) -> ::std::result::Result<$answer, $crate::store::StoreError> {
                $crate::forward_session!(@call self, $how, $method($($given),*))
            })+
        }
    };
    (@call $wrapper:expr, [through $act:ident], $method:ident($($given:ident),*)) => {
        $wrapper.$act(|session| session.$method($($given),*))
    };
    (@call $wrapper:expr, [$this:ident, $inner:expr], $method:ident($($given:ident),*)) => {{
        let $this = $wrapper;
        $inner.$method($($given),*)
    }};
}
