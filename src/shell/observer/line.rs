//! Calls of an observer pump to the store. A fault that is shown to be transient is told once when a run of them
//! begins and once when it ends; any other ends the pump.

use super::super::calls::{Answer, Called};
use super::super::clock::StoreTime;
use super::super::faults::Fault;
use crate::stage::Stage;
use crate::store::{FaultClass, Observed, Resolved, Session, Store, StoreError, classify};
use crate::{Timestamp, telemetry};
use std::sync::Arc;

impl Answer for Observed {
    fn store_time(&self) -> Timestamp {
        match self {
            Self::Held { store_time, .. } | Self::Elsewhere { store_time, .. } => *store_time,
        }
    }
}

impl Answer for Resolved {
    fn store_time(&self) -> Timestamp {
        match self {
            Self::Applied { store_time, .. } | Self::Stale { store_time, .. } => *store_time,
        }
    }
}

/// The pump's session, opened anew when it is lost, and what is known of the store's clock through it.
pub(super) struct Line {
    stage: Stage,
    observer: Arc<str>,
    store: Arc<dyn Store>,
    session: Option<Box<dyn Session>>,
    pub(super) time: StoreTime,
    faults: u64,
}

impl Line {
    pub(super) fn new(stage: Stage, observer: Arc<str>, store: Arc<dyn Store>) -> Self {
        let time = StoreTime::new(stage.clone());
        Self { stage, observer, store, session: None, time, faults: 0 }
    }

    pub(super) fn call<T: Answer>(
        &mut self,
        operation: impl FnOnce(&mut dyn Session) -> Result<T, StoreError>,
    ) -> Result<Called<T>, Fault> {
        let mut session = match self.session.take().map_or_else(|| self.store.open_session(), Ok) {
            Ok(session) => session,
            Err(error) => return self.failed(error, false),
        };
        let sent = self.stage.now();
        match operation(session.as_mut()) {
            Ok(answer) => {
                self.session = Some(session);
                // A jump of the store's clock at worst repeats a delivery.
                let _jump = self.time.anchor(answer.store_time(), sent, self.stage.now());
                self.answered();
                Ok(Called::Answered(answer))
            }
            Err(error) => {
                let lost = error.session_lost();
                if !lost {
                    self.session = Some(session);
                }
                self.failed(error, lost)
            }
        }
    }

    fn failed<T>(&mut self, error: StoreError, in_doubt: bool) -> Result<Called<T>, Fault> {
        if classify(&error, self.store.fault_classifier()) != FaultClass::Transient {
            return Err(Fault::from(error));
        }
        if self.faults == 0 {
            telemetry::observer_fault_began(&self.observer, &error);
        }
        self.faults += 1;
        Ok(Called::Failed { in_doubt })
    }

    fn answered(&mut self) {
        if self.faults > 0 {
            telemetry::observer_fault_ended(&self.observer, self.faults);
            self.faults = 0;
        }
    }
}
