//! Observers as the store knows them, and what they have parked, read page by page.

use super::Monitor;
use crate::Error;
use crate::store::{ObserverRecord, PAGE_MAX, ParkedDelivery};
use std::collections::VecDeque;
use std::time::Duration;

impl Monitor {
    /// The observers that are registered, in the whole fleet, ordered by name.
    ///
    /// # Errors
    /// A failed read.
    pub fn observers(&self) -> Result<Vec<ObserverRecord>, Error> {
        Ok(self.client.call(|session| session.observers())?.answer)
    }

    /// How long an observer is behind: the age of the oldest transition that it has not passed, zero where it has
    /// passed all; none for an observer that is not registered. Transitions that its filter does not
    /// match count until it has looked at them.
    ///
    /// # Errors
    /// A failed read.
    pub fn observer_lag(&self, observer: &str) -> Result<Option<Duration>, Error> {
        let observers = self.observers()?;
        let Some(record) = observers.into_iter().find(|record| record.observer == observer) else {
            return Ok(None);
        };
        let Some(since) = record.behind_since else { return Ok(Some(Duration::ZERO)) };
        Ok(Some(self.now()?.since(since)))
    }

    /// The deliveries that an observer has parked, in order of their positions, read page by page as the iterator is
    /// advanced. An error ends it.
    ///
    /// ```
    /// use backwave::{Client, MemoryStore};
    ///
    /// let client = Client::new(MemoryStore::new());
    /// assert_eq!(client.monitor().parked("alerts").count(), 0);
    /// ```
    pub fn parked(&self, observer: impl Into<String>) -> Parked {
        let rest = Rest::After(None);
        Parked { monitor: self.clone(), observer: observer.into(), read: VecDeque::new(), rest }
    }
}

/// What an observer has parked; from [`Monitor::parked`].
#[derive(Debug)]
#[must_use = "nothing is read until it is advanced"]
pub struct Parked {
    monitor: Monitor,
    observer: String,
    read: VecDeque<ParkedDelivery>,
    rest: Rest,
}

/// What is left to read.
#[derive(Debug)]
enum Rest {
    After(Option<u64>),
    Nothing,
}

impl Parked {
    fn read_on(&mut self, after: Option<u64>) -> Result<(), Error> {
        // An error is the last thing it says.
        self.rest = Rest::Nothing;
        let observer = self.observer.clone();
        let read = move |session: &mut dyn crate::store::Session| {
            session.parked(&observer, after, PAGE_MAX)
        };
        self.read = self.monitor.client.call(read)?.answer.into();
        let last = self.read.back().map(|parked| parked.parking.observation.position());
        if last.is_some() && self.read.len() >= PAGE_MAX as usize {
            self.rest = Rest::After(last);
        }
        Ok(())
    }
}

impl Iterator for Parked {
    type Item = Result<ParkedDelivery, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(parked) = self.read.pop_front() {
                return Some(Ok(parked));
            }
            let Rest::After(after) = self.rest else { return None };
            if let Err(error) = self.read_on(after) {
                return Some(Err(error));
            }
        }
    }
}

impl std::iter::FusedIterator for Parked {}
