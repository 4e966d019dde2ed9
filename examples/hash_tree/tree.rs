//! The tree: its regular files, in order of their paths.

use crate::file::HashFile;
use std::io;
use std::path::{Path, PathBuf};
use walkdir::{DirEntry, WalkDir};

/// A folder to walk.
pub struct Tree {
    /// As it was given: what is printed.
    shown: PathBuf,
    /// What jobs are made of.
    canonical: PathBuf,
    /// Files of the database itself, which change while they are read.
    left_out: Vec<PathBuf>,
}

impl Tree {
    pub fn open(folder: &Path) -> io::Result<Self> {
        let canonical = folder.canonicalize()?;
        // A file or a folder that cannot be read is told now, not as an empty tree.
        std::fs::read_dir(&canonical)?;
        Ok(Self { shown: folder.to_owned(), canonical, left_out: Vec::new() })
    }

    /// Leaves out the database at `path` (canonical) and the files that SQLite keeps beside it.
    pub fn leave_out_database(&mut self, path: &Path) {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            self.left_out.push(name.into());
        }
    }

    /// The files, in the byte order of their paths; at any time one folder's names are in memory.
    pub fn files(&self) -> impl Iterator<Item = walkdir::Result<HashFile>> + '_ {
        let walk = WalkDir::new(&self.canonical).sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
        walk.into_iter().filter_map(|entry| match entry {
            Ok(entry) if !entry.file_type().is_file() => None,
            Ok(entry) if self.left_out.iter().any(|path| path == entry.path()) => None,
            entry => Some(entry.map(|entry| HashFile::new(entry.into_path()))),
        })
    }

    /// The path as the caller would write it.
    pub fn shown(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.canonical) {
            Ok(below) => self.shown.join(below),
            Err(_) => path.to_owned(),
        }
    }
}

/// A folder is followed by a slash in the paths of its files, and `a.txt` comes before `a/b`.
fn sort_key(entry: &DirEntry) -> Vec<u8> {
    let mut key = entry.file_name().as_encoded_bytes().to_vec();
    if entry.file_type().is_dir() {
        key.push(b'/');
    }
    key
}
