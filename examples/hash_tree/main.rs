//! Hashes every file below a folder, one job per file, and goes on where it stopped.
//!
//! ```text
//! cargo run --release --example hash_tree -- ~/photos --list > digests
//! ```
//!
//! What makes it safe to stop at any moment, by Ctrl-C or by pulling the plug, and to start again:
//!
//! - a job's id is derived from the canonical path of its file, so that a file is enqueued once however
//!   often the tree is walked;
//! - a digest is the job's **output**, not a row in a table of this program's own: the write that says
//!   that the job has succeeded is the write that keeps the digest. There is no moment at which one
//!   is true without the other, no second database code, and SQLite and Postgres look the same from here;
//! - what waits is in the database, and so are the leases of a run that was killed: once they have
//!   lapsed, the next run inherits its files;
//! - a file that cannot be read is Dead-Lettered with its reason, and the rest goes on.
//!
//! A file is hashed once for good: one that has changed since is not hashed again. Start with a fresh
//! database to hash a tree anew.

#![allow(unreachable_pub, reason = "a program has no outside")]

mod args;
mod file;
mod outcome;
mod progress;
mod run;
mod tree;

use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match args::parse(std::env::args_os().skip(1)) {
        Ok(args::Parsed::Run(options)) => options,
        Ok(args::Parsed::Help) => {
            print!("{}", args::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("hash_tree: {error}\n\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    match run::run(&options) {
        Ok(run::End::AllSucceeded) => ExitCode::SUCCESS,
        Ok(run::End::SomeFailed) => ExitCode::from(1),
        Ok(run::End::Interrupted) => ExitCode::from(130),
        Err(error) => {
            eprintln!("hash_tree: {}", chain(&*error));
            ExitCode::from(2)
        }
    }
}

/// An error and what caused it, in one line that says nothing twice.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}
