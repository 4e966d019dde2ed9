//! Bugs that tests plant in what threads say to each other, to see that they are found. Outside of this crate's
//! own tests there is no such bug: the question is answered with no as the code is compiled.

/// Whether the threads that run on this one have a bug.
macro_rules! slips {
    ($slip:ident) => {{
        #[cfg(test)]
        let is_planted = $crate::shell::planted::is_planted($crate::shell::planted::Slip::$slip);
        #[cfg(not(test))]
        let is_planted = false;
        is_planted
    }};
}
pub(crate) use slips;

/// A bug.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slip {
    // -- between ticker and pump
    /// The pump is told of a tick before its flag is raised.
    ToldBeforeRaised,
    /// A ticker that dies tells nobody.
    TickerDiesSilently,
    /// A ticker that dies tells the first pump only.
    TickerTellsOne,
    // -- between hub and pump
    /// Whether a hint is the first is asked before it is left, in two steps.
    HintInTwoSteps,
    /// What was hinted at during a claim is taken for known.
    HintSwallowedInCall,
    // -- between workers and pump
    /// What arrives while commands are carried out is cleared away.
    InboxCleared,
    /// A worker that vanishes tells nobody.
    WorkerDiesSilently,
    /// A task is given to two workers, and both begin it.
    TakenByTwo,
    /// Whether a task waits is asked before it is begun or taken back, in two steps.
    BeganInTwoSteps,
    /// A worker keeps its result to itself once a stop is asked for.
    ResultKeptAtStop,
    /// A pump that halts leaves its tasks to the workers.
    TasksLeftAtHalt,
    // -- between the group's handle and its threads
    /// A stop is only shown, and looked for before each wait.
    StopOnlyShown,
    /// A stop is asked for once all handlers can see it, and the pump does not look.
    StopShownFirst,
    /// Only the first pump is asked to stop.
    StopToOne,
    /// Who asks for the ends first takes them away.
    EndsTaken,
    /// A thread of the group waits for the group's end.
    #[cfg(feature = "testing")]
    WaitsForItself,
    // -- between hub, callback and observer pump
    /// What is written while the pump looks for it is taken for seen.
    WatchSwallowedInCall,
    /// A callback thread that comes back too late passes for the one that took over.
    LateCallbackTaken,
    /// A callback that panics takes its thread along.
    CallbackDiesSilently,
}

#[cfg(test)]
thread_local! {
    /// Shuttle's threads share one of the process.
    pub(crate) static PLANTED: std::cell::Cell<Option<Slip>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(crate) fn is_planted(slip: Slip) -> bool {
    PLANTED.get() == Some(slip)
}
