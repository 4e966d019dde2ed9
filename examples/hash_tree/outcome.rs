//! What came of it: the state of each file's job, the reasons of those that failed, the digests.

use crate::file::HashFile;
use crate::tree::Tree;
use backwave::store::JobRecord;
use backwave::{Client, JobId, JobState};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Goes through the jobs once, in order; lists digests when asked to. Returns how many files are in
/// each state.
pub fn report(
    client: &Client,
    tree: &Tree,
    jobs: &[JobId],
    list: bool,
) -> Result<BTreeMap<JobState, u64>, Box<dyn Error>> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut states = BTreeMap::new();
    for id in jobs {
        let record = client.monitor().job(*id)?;
        *states.entry(record.state).or_insert(0) += 1;
        let file: HashFile = serde_json::from_slice(record.payload.as_bytes())?;
        let path = tree.shown(file.path());
        match record.state {
            JobState::Succeeded if list => write_line(&mut out, &record, &path)?,
            JobState::Succeeded => {}
            state => {
                let reason = record.failure_detail.as_deref().unwrap_or("no reason is recorded");
                eprintln!("{state}: {}: {reason}", path.display());
            }
        }
    }
    out.flush()?;
    Ok(states)
}

pub fn print_states(states: &BTreeMap<JobState, u64>) {
    for (state, count) in states {
        eprintln!("{state}: {count}");
    }
}

/// As `sha256sum` does: a name with a backslash or a line break is escaped, and its line begins with a
/// backslash.
fn write_line(out: &mut impl Write, record: &JobRecord, path: &Path) -> Result<(), Box<dyn Error>> {
    let digest: String = record.output()?;
    let name = path.as_os_str().as_encoded_bytes();
    let escaped = escape(name);
    let mark = if escaped == name { "" } else { "\\" };
    write!(out, "{mark}{digest}  ")?;
    out.write_all(&escaped)?;
    out.write_all(b"\n")?;
    Ok(())
}

fn escape(name: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'\\' => escaped.extend(b"\\\\"),
            b'\n' => escaped.extend(b"\\n"),
            b'\r' => escaped.extend(b"\\r"),
            _ => escaped.push(byte),
        }
    }
    escaped
}
