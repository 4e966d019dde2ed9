//! The job: one file, and its handler.

use backwave::{Job, JobContext, JobId, JobResult, JobResultExt, NewJob, RetryPolicy};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Computes the digest of one file. Its output is the digest in hexadecimal.
#[derive(Serialize, Deserialize)]
pub struct HashFile {
    pub path: Name,
}

impl Job for HashFile {
    const WIRE_NAME: &'static str = "hash_file";
    const QUEUE: &'static str = "hash_tree";
    // The only failures that are retried are those of a process that died; they need no long pauses.
    const RETRY: Option<RetryPolicy> =
        Some(RetryPolicy::new(10).delays(Duration::from_millis(100), Duration::from_secs(5)));
}

/// A path, kept without loss: as text where it is text, so that people can read it in the database;
/// else in the system's own units.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub enum Name {
    Text(String),
    Raw(OsString),
}

impl HashFile {
    /// `path` is canonical: two names of one file make one job.
    pub fn new(path: PathBuf) -> Self {
        let path = path.into_os_string().into_string();
        Self { path: path.map_or_else(Name::Raw, Name::Text) }
    }

    pub fn path(&self) -> &Path {
        match &self.path {
            Name::Text(path) => Path::new(path),
            Name::Raw(path) => Path::new(path),
        }
    }

    /// The job for it, under an id that is always the same for this path: the first 16 bytes of a
    /// SHA-256, marked as a UUID of version 8 (RFC 9562: free for such uses).
    pub fn to_new_job(&self) -> Result<(JobId, NewJob), serde_json::Error> {
        let path = serde_json::to_vec(&self.path)?;
        let digest = Sha256::new().chain_update(b"hash_tree ").chain_update(path).finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        bytes[6] = (bytes[6] & 0x0f) | 0x80;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let id = JobId::from_bytes(bytes);
        Ok((id, NewJob::new(self).id(id)))
    }
}

/// The handler. Whatever keeps a file from being read is not mended by another try.
pub fn hash(ctx: &JobContext, job: HashFile) -> JobResult {
    let mut file = File::open(job.path()).or_discard()?;
    let mut hasher = Sha256::new();
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        // Between two blocks is a good moment to give way: a large file must not hold up a clean stop.
        if ctx.is_stopping() {
            return Err(ctx.give_way());
        }
        ctx.check_cancelled()?;
        match file.read(&mut block) {
            Ok(0) => break,
            Ok(count) => hasher.update(&block[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).or_discard(),
        }
    }
    ctx.set_output(&hex(&hasher.finalize()))?;
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const BLOCK_BYTES: usize = 64 * 1024;
