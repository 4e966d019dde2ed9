//! Where clients and groups on the same data find each other within a process.
//!
//! Everything here is a hint: polling is the only thing that correctness rests on, and a hint that is
//! lost costs latency. No subscriber runs under a lock of the hub's.

use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

/// Hears that a queue may have work. Called on the thread of whoever caused it: it must not block.
pub trait Wake: Send + Sync {
    /// `queue` has a job that is due in `due_in`.
    fn wake(&self, queue: &str, due_in: Duration);

    /// Schedules were declared, or one was changed. Default: nobody cares.
    fn schedules_changed(&self) {}
}

/// Hears that transitions were written. Called on the thread of whoever wrote them: it must not block.
pub(crate) trait Watch: Send + Sync {
    /// There may be something for an observer.
    fn transitions_written(&self);
}

/// A meeting place; clones are the same place.
#[derive(Clone, Default)]
pub struct Hub(Arc<Inner>);

type Subscribers<S> = Vec<(u64, Arc<S>)>;

#[derive(Default)]
struct Inner {
    /// Replaced whole on every change, so that a caller takes the list and lets go of the lock.
    subscribers: Mutex<Arc<Subscribers<dyn Wake>>>,
    /// The same of those who watch transitions, and how many they are: with nobody there nothing is locked.
    watchers: Mutex<Arc<Subscribers<dyn Watch>>>,
    watching: AtomicUsize,
    /// Counts batches in which some job reached a terminal state; also numbers subscriptions.
    settled: Mutex<Counters>,
    changed: Condvar,
}

#[derive(Default)]
struct Counters {
    settled: u64,
    subscriptions: u64,
}

impl Hub {
    /// A place of its own.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The place that everybody in this process shares who names the same `key` (a file, a database).
    #[must_use]
    pub fn shared(key: &str) -> Self {
        static PLACES: LazyLock<Mutex<HashMap<String, Weak<Inner>>>> =
            LazyLock::new(Mutex::default);
        let mut places = PLACES.lock();
        if let Some(inner) = places.get(key).and_then(Weak::upgrade) {
            return Self(inner);
        }
        places.retain(|_, place| place.strong_count() > 0);
        let inner = Arc::default();
        places.insert(key.to_owned(), Arc::downgrade(&inner));
        Self(inner)
    }

    /// Tells every subscriber that `queue` has a job due in `due_in`.
    pub fn wake(&self, queue: &str, due_in: Duration) {
        let subscribers = Arc::clone(&self.0.subscribers.lock());
        for (_, subscriber) in subscribers.iter() {
            subscriber.wake(queue, due_in);
        }
    }

    /// Tells every subscriber that schedules were declared, or that one was changed.
    pub fn schedules_changed(&self) {
        let subscribers = Arc::clone(&self.0.subscribers.lock());
        for (_, subscriber) in subscribers.iter() {
            subscriber.schedules_changed();
        }
    }

    /// Subscribes until the answer is dropped.
    pub fn subscribe(&self, subscriber: Arc<dyn Wake>) -> Subscription {
        let id = self.next_id();
        edit(&self.0.subscribers, |list| list.push((id, subscriber)));
        Subscription { hub: self.clone(), id }
    }

    fn next_id(&self) -> u64 {
        let mut counters = self.0.settled.lock();
        counters.subscriptions += 1;
        counters.subscriptions
    }

    /// Tells every watcher that a session of this process has written transitions, or may have.
    pub(crate) fn transitions_written(&self) {
        if self.0.watching.load(Ordering::Acquire) == 0 {
            return;
        }
        let watchers = Arc::clone(&self.0.watchers.lock());
        for (_, watcher) in watchers.iter() {
            watcher.transitions_written();
        }
    }

    /// Watches until the answer is dropped.
    pub(crate) fn watch(&self, watcher: Arc<dyn Watch>) -> Subscription {
        let id = self.next_id();
        edit(&self.0.watchers, |list| list.push((id, watcher)));
        self.0.watching.fetch_add(1, Ordering::AcqRel);
        Subscription { hub: self.clone(), id }
    }

    fn unsubscribe(&self, id: u64) {
        edit(&self.0.subscribers, |list| list.retain(|(known, _)| *known != id));
        let mut was_watching = false;
        edit(&self.0.watchers, |list| {
            let before = list.len();
            list.retain(|(known, _)| *known != id);
            was_watching = list.len() < before;
        });
        if was_watching {
            self.0.watching.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Says that some job reached a terminal state.
    pub fn settled(&self) {
        self.0.settled.lock().settled += 1;
        self.0.changed.notify_all();
    }

    /// How often [`Self::settled`] was called; pass it to [`Self::wait_settled`].
    #[must_use]
    pub fn settled_count(&self) -> u64 {
        self.0.settled.lock().settled
    }

    /// Blocks until something has settled since `seen` was read, or until `deadline`.
    pub fn wait_settled(&self, seen: u64, deadline: Instant) {
        let mut counters = self.0.settled.lock();
        // The count is read under the lock that the condition variable releases, so that a settlement
        // between the caller's read of the store and this wait is seen.
        while counters.settled == seen {
            if self.0.changed.wait_until(&mut counters, deadline).timed_out() {
                return;
            }
        }
    }
}

fn edit<S: ?Sized>(list: &Mutex<Arc<Subscribers<S>>>, change: impl FnOnce(&mut Subscribers<S>)) {
    let replaced = {
        let mut list = list.lock();
        let mut next = list.as_ref().clone();
        change(&mut next);
        std::mem::replace(&mut *list, Arc::new(next))
    };
    // A subscriber may be dropped here, outside of the lock.
    drop(replaced);
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("subscribers", &self.0.subscribers.lock().len()).finish()
    }
}

/// A subscription; ends when dropped.
#[must_use = "a subscription ends when it is dropped"]
#[derive(Debug)]
pub struct Subscription {
    hub: Hub,
    id: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.unsubscribe(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard(Mutex<Vec<(String, Duration)>>);

    impl Wake for Heard {
        fn wake(&self, queue: &str, due_in: Duration) {
            self.0.lock().push((queue.to_owned(), due_in));
        }
    }

    #[test]
    fn a_subscriber_hears_until_its_subscription_is_dropped() {
        let hub = Hub::shared("a place of this test");
        let heard = Arc::new(Heard::default());
        let subscription = hub.subscribe(heard.clone());
        Hub::shared("a place of this test").wake("mail", Duration::from_secs(3));
        Hub::shared("another place").wake("mail", Duration::ZERO);
        drop(subscription);
        hub.wake("mail", Duration::ZERO);
        assert_eq!(*heard.0.lock(), [("mail".to_owned(), Duration::from_secs(3))]);
    }

    #[derive(Default)]
    struct Watched(AtomicUsize);

    impl Watch for Watched {
        fn transitions_written(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_watcher_hears_of_transitions_until_its_subscription_is_dropped() {
        let hub = Hub::new();
        hub.transitions_written();
        let (watched, heard) = (Arc::new(Watched::default()), Arc::new(Heard::default()));
        let subscriptions = (hub.watch(watched.clone()), hub.subscribe(heard.clone()));
        hub.transitions_written();
        drop(subscriptions);
        hub.transitions_written();
        assert_eq!(watched.0.load(Ordering::SeqCst), 1);
        assert_eq!(hub.0.watching.load(Ordering::SeqCst), 0);
        assert!(heard.0.lock().is_empty());
    }

    #[test]
    fn a_settlement_before_the_wait_is_not_missed() {
        let hub = Hub::new();
        let seen = hub.settled_count();
        hub.settled();
        hub.wait_settled(seen, Instant::now() + Duration::from_secs(60));
        hub.wait_settled(seen + 1, Instant::now());
    }
}
