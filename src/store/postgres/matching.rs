//! Which jobs a filter matches: the SQL that looks for them, and its parameters.
//!
//! The states stand in the text as literals, each looked for where it is found fast. Those that few jobs are in
//! have an index of their own, so that a few Dead-Lettered jobs are not looked for among millions that
//! succeeded; the others are walked in the order of ids.

use crate::JobId;
use crate::kernel::state::JobState;
use crate::store::JobFilter;
use ::postgres::types::ToSql;

/// A question for the ids of jobs, in the order of ids.
pub(super) struct Matching<'a> {
    filter: &'a JobFilter,
    states: Vec<JobState>,
    newest_first: bool,
    /// The first id that may be told; `None` where none is left.
    bound: Option<JobId>,
    limit: i64,
}

impl<'a> Matching<'a> {
    /// Ascending beyond `after`, or descending. `states` are those that are looked for.
    pub(super) fn new(
        filter: &'a JobFilter,
        states: Vec<JobState>,
        newest_first: bool,
        after: Option<JobId>,
        limit: u32,
    ) -> Self {
        let bound = bound(after, newest_first);
        Self { filter, states, newest_first, bound, limit: limit.into() }
    }

    /// Asks for what comes beyond that job.
    pub(super) fn go_on_after(&mut self, job: JobId) {
        self.bound = bound(Some(job), self.newest_first);
    }

    /// At most so many ids are told.
    pub(super) fn limit(&self) -> usize {
        usize::try_from(self.limit).unwrap_or(0)
    }

    /// Whether nothing can match.
    pub(super) fn is_empty(&self) -> bool {
        self.states.is_empty() || self.bound.is_none()
    }

    /// A subquery that gives the ids, with eleven parameters from `$1` on. `also` is one more condition on `j`.
    pub(super) fn sql(&self, also: &str) -> String {
        let (rare, common): (Vec<_>, Vec<_>) =
            self.states.iter().copied().partition(|state| is_rare(*state));
        let mut parts: Vec<_> = rare.into_iter().map(|state| self.rare(state, also)).collect();
        if self.filter.unique_key.is_some() {
            let lives =
                format!("j.unique_key IS NOT NULL AND j.state < 3 AND {}", in_states(&self.states));
            parts = vec![self.few(&lives, also)];
        } else if common == [JobState::Leased] && self.asks_for_slots() {
            parts.push(self.few("j.state + 0 = 2 AND j.concurrency_key IS NOT NULL", also));
        } else if !common.is_empty() {
            parts.push(self.common(&common, also));
        }
        let order = self.direction();
        format!(
            "SELECT m.id FROM ({}) AS m ORDER BY m.id {order} LIMIT $9",
            parts.join(" UNION ALL ")
        )
    }

    /// The parameters of [`Self::sql`].
    pub(super) fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        let filter = self.filter;
        vec![
            &filter.queue,
            &filter.wire_name,
            &filter.tag,
            &filter.created_from,
            &filter.created_before,
            &filter.finished_from,
            &filter.finished_before,
            &self.bound,
            &self.limit,
            &filter.unique_key,
            &filter.concurrency_key,
        ]
    }

    /// The state as a range and as a part of the order: so only the index of the rare states gives the order.
    fn rare(&self, state: JobState, also: &str) -> String {
        let (code, order) = (state.code(), self.direction());
        format!(
            "(SELECT j.id FROM {{schema}}.jobs AS j \
             WHERE j.state IN (1, 4, 5) AND j.state >= {code} AND j.state <= {code} AND {}{also} \
             ORDER BY j.state {order}, j.id {order} LIMIT $9)",
            self.conditions()
        )
    }

    fn common(&self, states: &[JobState], also: &str) -> String {
        format!(
            "(SELECT j.id FROM {{schema}}.jobs AS j WHERE {} AND {}{also} ORDER BY j.id {} LIMIT $9)",
            in_states(states),
            self.conditions(),
            self.direction()
        )
    }

    /// A key of one queue, of which few run.
    const fn asks_for_slots(&self) -> bool {
        self.filter.queue.is_some() && self.filter.concurrency_key.is_some()
    }

    /// What a key leads to, by an index whose condition is given: sorted once it is found, since it is not to be
    /// looked for in the order of all ids.
    fn few(&self, condition: &str, also: &str) -> String {
        let key = match self.filter.unique_key {
            Some(_) => "j.unique_key = $10",
            None => "j.queue = $1 AND j.concurrency_key = $11",
        };
        format!(
            "(SELECT f.id FROM (SELECT j.id FROM {{schema}}.jobs AS j \
             WHERE {key} AND {condition} AND {}{also} OFFSET 0) AS f \
             ORDER BY f.id {} LIMIT $9)",
            self.conditions(),
            self.direction()
        )
    }

    fn conditions(&self) -> String {
        let side = if self.newest_first { "<=" } else { ">=" };
        format!(
            "($1::text IS NULL OR j.queue = $1) AND ($2::text IS NULL OR j.wire_name = $2) \
             AND ($3::text IS NULL OR $3 = ANY (j.tags)) \
             AND ($4::timestamptz IS NULL OR j.created_at >= $4) \
             AND ($5::timestamptz IS NULL OR j.created_at < $5) \
             AND ($6::timestamptz IS NULL OR j.finished_at >= $6) \
             AND ($7::timestamptz IS NULL OR j.finished_at < $7) \
             AND ($10::text IS NULL OR j.unique_key = $10) \
             AND ($11::text IS NULL OR j.concurrency_key = $11) \
             AND j.id {side} $8::uuid"
        )
    }

    const fn direction(&self) -> &'static str {
        if self.newest_first { "DESC" } else { "ASC" }
    }
}

/// The states of `filter` that are also in `among`; all of those where the filter names none.
pub(super) fn states_among(filter: &JobFilter, among: &[JobState]) -> Vec<JobState> {
    let wanted = |state: &JobState| filter.states.is_empty() || filter.states.contains(state);
    among.iter().copied().filter(wanted).collect()
}

fn in_states(states: &[JobState]) -> String {
    let codes: Vec<_> = states.iter().map(|state| state.code().to_string()).collect();
    format!("j.state IN ({})", codes.join(", "))
}

const fn is_rare(state: JobState) -> bool {
    matches!(state, JobState::AwaitingParent | JobState::DeadLettered | JobState::Quarantined)
}

/// The first id that may be told; `None` where none is left.
fn bound(after: Option<JobId>, newest_first: bool) -> Option<JobId> {
    match (after, newest_first) {
        (None, false) => Some(JobId::from_bytes([0; 16])),
        (None, true) => Some(JobId::from_bytes([u8::MAX; 16])),
        (Some(id), false) => number(id).checked_add(1).map(id_of),
        (Some(id), true) => number(id).checked_sub(1).map(id_of),
    }
}

fn number(id: JobId) -> u128 {
    u128::from_be_bytes(id.to_bytes())
}

const fn id_of(number: u128) -> JobId {
    JobId::from_bytes(number.to_be_bytes())
}
