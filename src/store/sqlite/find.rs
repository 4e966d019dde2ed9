//! Which jobs a filter matches: one page at a time, by id, without wading through what has ended.
//!
//! Jobs are looked for state by state, each by the index that holds just those, and the page is put together
//! from the first of each. Only Succeeded ones, and any at all, are walked by id: nearly every job is one of
//! them. When the time of their end is asked for, they too are found by an index.

use crate::store::{BulkChange, JobFilter, Page};
use crate::{JobId, JobState};
use rusqlite::types::Value;

/// A statement with what is bound to it.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) sql: String,
    pub(super) values: Vec<Value>,
}

/// The addresses and ids of a page of jobs, `page (seq, id)`, to be joined with what is asked of them, and
/// their order. `None` where no job can match.
pub(super) fn page(filter: &JobFilter, page: &Page) -> Option<(Query, &'static str)> {
    let states: &[JobState] =
        if filter.states.is_empty() { &JobState::ALL } else { &filter.states };
    let query = Builder::new(filter, page.after, page.newest_first).build(
        states,
        page.bounded_limit(),
        "",
    )?;
    Some((query, if page.newest_first { "DESC" } else { "ASC" }))
}

/// The jobs of a page that can be changed so, by ascending id: id, address, state, queue, attempt, unique
/// key.
pub(super) fn changeable(
    change: BulkChange,
    filter: &JobFilter,
    after: Option<JobId>,
    max: u32,
) -> Option<Query> {
    let asked = |state: &JobState| filter.states.is_empty() || filter.states.contains(state);
    let states: Vec<JobState> = change.from_states().iter().copied().filter(asked).collect();
    let unless = match change {
        BulkChange::Cancel => " AND (j.state <> 2 OR j.cancel_requested = 0)",
        // A job whose unique key another holds cannot live again.
        BulkChange::Requeue => {
            " AND NOT EXISTS (SELECT 1 FROM main.backwave_jobs AS h \
                               WHERE h.unique_key = j.unique_key AND h.state < 3)"
        }
    };
    let mut query = Builder::new(filter, after, false).build(&states, max, unless)?;
    query.sql = format!(
        "SELECT j.id, j.seq, j.state, j.queue, j.attempt, j.unique_key FROM ({}) AS page \
           JOIN main.backwave_jobs AS j ON j.seq = page.seq ORDER BY page.id",
        query.sql
    );
    Some(query)
}

struct Builder {
    /// What every part of the statement asks.
    conditions: String,
    values: Vec<Value>,
    is_descending: bool,
    asks_for_end: bool,
    asks_for_holder: bool,
    asks_for_slots: bool,
}

impl Builder {
    fn new(filter: &JobFilter, after: Option<JobId>, is_descending: bool) -> Self {
        let mut builder = Self {
            conditions: String::new(),
            values: Vec::new(),
            is_descending,
            asks_for_end: filter.finished_from.is_some() || filter.finished_before.is_some(),
            asks_for_holder: filter.unique_key.is_some(),
            asks_for_slots: filter.queue.is_some() && filter.concurrency_key.is_some(),
        };
        // Always there, so that a walk by id is a search. No id is as long as this one, none is greater.
        let (comparison, end) = if is_descending { ("<", vec![0xff; 17]) } else { (">", vec![]) };
        let from = after.map_or(end, |after| after.to_bytes().to_vec());
        builder.ask(&format!("j.id {comparison}"), Value::Blob(from), "");
        let text = |text: &String| Value::Text(text.clone());
        builder.ask_if("j.queue =", filter.queue.as_ref().map(text), "");
        builder.ask_if("j.wire_name =", filter.wire_name.as_ref().map(text), "");
        let tag = "EXISTS (SELECT 1 FROM json_each(j.tags) WHERE value =";
        builder.ask_if(tag, filter.tag.as_ref().map(text), ")");
        let holds = " AND j.state < 3";
        builder.ask_if("j.unique_key =", filter.unique_key.as_ref().map(text), holds);
        builder.ask_if("j.concurrency_key =", filter.concurrency_key.as_ref().map(text), "");
        let times = [
            ("j.created_at >=", filter.created_from),
            ("j.created_at <", filter.created_before),
            ("j.finished_at >=", filter.finished_from),
            ("j.finished_at <", filter.finished_before),
        ];
        for (condition, time) in times {
            builder.ask_if(condition, time.map(|time| Value::Integer(time.as_micros())), "");
        }
        builder
    }

    fn ask_if(&mut self, condition: &str, value: Option<Value>, tail: &str) {
        if let Some(value) = value {
            self.ask(condition, value, tail);
        }
    }

    fn ask(&mut self, condition: &str, value: Value, tail: &str) {
        self.values.push(value);
        self.conditions.push_str(&format!(" AND {condition} ?{}{tail}", self.values.len()));
    }

    fn build(mut self, states: &[JobState], limit: u32, unless: &str) -> Option<Query> {
        let sources = self.sources(states);
        if sources.is_empty() {
            return None;
        }
        self.values.push(Value::Integer(i64::from(limit)));
        let (conditions, limit) = (&self.conditions, self.values.len());
        let order = if self.is_descending { "DESC" } else { "ASC" };
        let parts: Vec<String> = sources
            .iter()
            .map(|source| {
                format!(
                    "SELECT seq, id FROM ( \
                       SELECT j.seq AS seq, j.id AS id FROM main.backwave_jobs AS j{source}{conditions}{unless} \
                        ORDER BY j.id {order} LIMIT ?{limit})"
                )
            })
            .collect();
        let parts = parts.join(" UNION ALL ");
        let sql = format!("SELECT seq, id FROM ({parts}) ORDER BY id {order} LIMIT ?{limit}");
        Some(Query { sql, values: self.values })
    }

    /// Where to look for jobs in these states: an index and the condition that it is made for.
    fn sources(&self, states: &[JobState]) -> Vec<String> {
        let asks_for_end = self.asks_for_end;
        let wanted: Vec<JobState> = JobState::ALL
            .into_iter()
            .filter(|state| states.contains(state) && (!asks_for_end || state.is_terminal()))
            .collect();
        let codes: Vec<String> = wanted.iter().map(|state| state.code().to_string()).collect();
        let codes = codes.join(", ");
        if wanted.is_empty() {
            return Vec::new();
        }
        if self.asks_for_holder {
            let index = "INDEXED BY backwave_jobs_unique_key";
            return vec![format!(" {index} WHERE j.state IN ({codes})")];
        }
        if wanted.contains(&JobState::Succeeded) && !asks_for_end {
            return vec![format!(" WHERE j.state IN ({codes})")];
        }
        wanted.into_iter().flat_map(|state| self.source(state)).collect()
    }

    fn source(&self, state: JobState) -> Vec<String> {
        if state == JobState::Leased && self.asks_for_slots {
            let index = "INDEXED BY backwave_jobs_key_slots";
            return vec![format!(" {index} WHERE j.state = 2 AND j.concurrency_key IS NOT NULL")];
        }
        let mut sources = vec![source(state, self.asks_for_end)];
        if state == JobState::Scheduled {
            sources.push(
                " INDEXED BY backwave_jobs_keyed_due \
                  WHERE j.state = 0 AND j.concurrency_key IS NOT NULL"
                    .to_owned(),
            );
        }
        sources
    }
}

fn source(state: JobState, asks_for_end: bool) -> String {
    let (index, condition) = match state {
        JobState::Scheduled => ("due", "j.state = 0 AND j.concurrency_key IS NULL"),
        JobState::AwaitingParent => ("await", "j.state = 1"),
        JobState::Leased => ("leased", "j.state = 2"),
        JobState::DeadLettered if !asks_for_end => ("failed", "j.state = 4"),
        JobState::Quarantined if !asks_for_end => ("failed", "j.state = 5"),
        JobState::Succeeded => ("ended", "j.state > 2 AND j.state = 3"),
        JobState::DeadLettered => ("ended", "j.state > 2 AND j.state = 4"),
        JobState::Quarantined => ("ended", "j.state > 2 AND j.state = 5"),
        JobState::Cancelled => ("ended", "j.state > 2 AND j.state = 6"),
    };
    format!(" INDEXED BY backwave_jobs_{index} WHERE {condition}")
}
