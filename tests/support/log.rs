//! A logger that keeps every line of the crate, so that a test can ask for those of its group.

use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::collections::BTreeMap;
use std::sync::{Mutex, Once, PoisonError};

/// One line.
#[derive(Debug, Clone)]
pub struct Line {
    pub event_id: u32,
    pub level: Level,
    pub fields: BTreeMap<String, String>,
    pub message: String,
}

impl Line {
    /// A key-value of it; empty where there is none.
    pub fn field(&self, key: &str) -> &str {
        self.fields.get(key).map_or("", String::as_str)
    }
}

static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

/// Begins to keep lines; to be called before the first group is spawned.
pub fn record() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Recorder).expect("there is no other logger");
        log::set_max_level(LevelFilter::Trace);
    });
}

/// The lines of that group with that id, oldest first. Group names are unique among the tests of a
/// binary.
pub fn lines(group: &str, event_id: u32) -> Vec<Line> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let of_group = |line: &&Line| line.field("worker_group") == group;
    lines.iter().filter(of_group).filter(|line| line.event_id == event_id).cloned().collect()
}

/// The lines about that observer with that id, oldest first. Names of observers are unique among the tests of a
/// binary, too.
pub fn of_observer(observer: &str, event_id: u32) -> Vec<Line> {
    let about = |line: &Line| line.field("observer") == observer && line.event_id == event_id;
    all().into_iter().filter(about).collect()
}

/// Every line, oldest first.
pub fn all() -> Vec<Line> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

struct Recorder;

impl Log for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == backwave::telemetry::LOG_TARGET
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let mut fields = Fields::default();
        record.key_values().visit(&mut fields).expect("every value can be shown");
        let fields = fields.0;
        let event_id = fields.get("event_id").and_then(|id| id.parse().ok());
        let event_id = event_id.expect("every line has an id");
        let message = record.args().to_string();
        let line = Line { event_id, level: record.level(), fields, message };
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn flush(&self) {}
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl<'kvs> VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        self.0.insert(key.to_string(), value.to_string());
        Ok(())
    }
}
