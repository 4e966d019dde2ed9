//! Which file it is: a path is only a name, and a name can come to mean another file.
//!
//! When the file at the path is replaced or removed while it is open, a connection goes on in a file
//! that nobody else will find, and two processes may both claim the same jobs in peace. So the
//! identities of the database and of its WAL and shared-memory files are noted and compared.

use super::fault::SqliteFault;
use std::ffi::OsString;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

/// The identities of a database and of the two files beside it that all its connections must share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) database: FileId,
    wal: Option<FileId>,
    shared_memory: Option<FileId>,
}

/// Tells one file from another on the same host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl Identity {
    /// Of the files at `path` now.
    ///
    /// # Errors
    /// [`SqliteFault::FileReplaced`] when there is no database at the path.
    pub(super) fn of(path: &Path) -> Result<Self, SqliteFault> {
        let database =
            file_id(path).ok_or_else(|| SqliteFault::FileReplaced { path: path.to_owned() })?;
        Ok(Self {
            database,
            wal: file_id(&beside(path, "-wal")),
            shared_memory: file_id(&beside(path, "-shm")),
        })
    }

    /// Fails unless the files at `path` are still these.
    ///
    /// # Errors
    /// [`SqliteFault::FileReplaced`], naming the file.
    pub(super) fn check(&self, path: &Path) -> Result<(), SqliteFault> {
        let now = Self::of(path)?;
        let replaced = |path| Err(SqliteFault::FileReplaced { path });
        if now.database != self.database {
            return replaced(path.to_owned());
        }
        if now.wal != self.wal {
            return replaced(beside(path, "-wal"));
        }
        if now.shared_memory != self.shared_memory {
            return replaced(beside(path, "-shm"));
        }
        Ok(())
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

fn file_id(path: &Path) -> Option<FileId> {
    std::fs::metadata(path).ok().map(|metadata| identify(&metadata))
}

#[cfg(unix)]
fn identify(metadata: &Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt;
    FileId(metadata.dev(), metadata.ino())
}

/// Elsewhere an open database can be neither removed nor replaced, so that its being there is enough.
#[cfg(not(unix))]
fn identify(_: &Metadata) -> FileId {
    FileId(0, 0)
}
