//! The kernel decides and does nothing: no file of it names a clock, a thread, I/O, a lock, a log, or
//! the rooms that do such things.

use std::fs;
use walkdir::WalkDir;

/// What no code below `src/kernel` may name. A name ends where an identifier ends.
const FORBIDDEN: &[&str] = &[
    "std::time::Instant",
    "std::time::SystemTime",
    "std::thread",
    "std::fs",
    "std::net",
    "std::io",
    "std::env",
    "std::process",
    "std::sync",
    "log",
    "metrics",
    "parking_lot",
    "crossbeam",
    "crossbeam_channel",
    "rusqlite",
    "postgres",
    "uuid",
    "crate::shell",
    "crate::telemetry",
    "crate::store::memory",
    "crate::store::sqlite",
    "crate::store::postgres",
    "crate::MemoryStore",
    "crate::SqliteStore",
    "crate::PostgresStore",
];

/// Names that are out of place whatever path leads to them.
const FORBIDDEN_ANYWHERE: &[&str] = &["Instant", "SystemTime", "Mutex", "RwLock"];

#[test]
fn no_file_of_the_kernel_names_what_belongs_to_the_shell() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/src/kernel");
    let mut files = 0;
    let mut found = Vec::new();
    for entry in WalkDir::new(root) {
        let entry = entry.expect("the folder can be read");
        if entry.path().extension().is_some_and(|extension| extension == "rs") {
            files += 1;
            let code = fs::read_to_string(entry.path()).expect("the file can be read");
            found.extend(
                impurities(&code).map(|name| format!("{}: {name}", entry.path().display())),
            );
        }
    }
    assert!(files > 10, "only {files} files were looked at");
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn the_check_sees_through_groups_and_past_comments() {
    let found = |code: &str| impurities(code).collect::<Vec<_>>();
    assert_eq!(found("use std::time::{Duration, Instant};"), ["std::time::Instant", "Instant"]);
    assert_eq!(found("use std::{fmt, net::{IpAddr, self}};"), ["std::net"]);
    assert_eq!(
        found("use crate::store::{\n    Claimed,\n    memory,\n};"),
        ["crate::store::memory"]
    );
    assert_eq!(found("fn f() { log::info!(\"\"); }"), ["log"]);
    assert_eq!(found("let now = ::std::time::SystemTime::now();").len(), 2);
    assert_eq!(found("// std::thread is not for us\n/// nor `log::info`\nfn f() {}").len(), 0);
    assert_eq!(found("let dialog = catalog::entry(); self.log; let log = 1;").len(), 0);
}

fn impurities(code: &str) -> impl Iterator<Item = &'static str> {
    let code = without_comments(code);
    let paths = paths(&code);
    let named = |name: &&&str| {
        let inside = format!("{name}::");
        paths.iter().any(|path| {
            let path = path.trim_start_matches("::");
            // A single word counts only as the head of a path: a local may be called `log`.
            (path == **name && name.contains("::")) || path.starts_with(&inside)
        })
    };
    let named: Vec<_> = FORBIDDEN.iter().filter(named).copied().collect();
    let anywhere: Vec<_> = FORBIDDEN_ANYWHERE
        .iter()
        .filter(|name| paths.iter().any(|path| path.split("::").any(|part| part == **name)))
        .copied()
        .collect();
    named.into_iter().chain(anywhere)
}

fn without_comments(code: &str) -> String {
    let lines = code.lines().map(|line| line.split_once("//").map_or(line, |(before, _)| before));
    lines.collect::<Vec<_>>().join("\n")
}

/// Every path in the code; those inside the braces of a `use` with what stands before the braces.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut prefixes: Vec<String> = Vec::new();
    let mut path = String::new();
    for character in code.chars().chain([' ']) {
        match character {
            '{' if path.ends_with("::") => {
                let prefix = prefixes.last().cloned().unwrap_or_default();
                prefixes.push(prefix + &std::mem::take(&mut path));
            }
            character if character.is_alphanumeric() || character == '_' || character == ':' => {
                path.push(character);
            }
            other => {
                if !path.is_empty() {
                    let prefix = prefixes.last().cloned().unwrap_or_default();
                    let whole = prefix + &std::mem::take(&mut path);
                    found.push(whole.trim_end_matches("::self").to_owned());
                }
                if other == '}' {
                    prefixes.pop();
                }
            }
        }
    }
    found
}
