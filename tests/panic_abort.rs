//! Programs built with `panic = "abort"`: a group refuses to start in one, and a client tells of a
//! violated invariant without a panic.
//!
//! Each is a small package of its own in a temporary folder, built offline with this crate's lock file
//! into a folder that stays between runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const MANIFEST: &str = r#"
[package]
name = "abort-probe"
version = "0.0.0"
edition = "2024"

[dependencies]
backwave = { path = "@ROOT@", default-features = false, features = ["testing"] }
serde = { version = "1", features = ["derive"] }

[profile.dev]
panic = "abort"
debug = false

[workspace]
"#;

const SPAWNS: &str = r#"
use backwave::{GroupOptions, Health, Job, MemoryStore, Registry, SpawnError, spawn_group};
use std::sync::Arc;

#[derive(serde::Serialize, serde::Deserialize)]
struct Greet;

impl Job for Greet {
    const WIRE_NAME: &'static str = "greet";
}

fn main() {
    let registry = Registry::new().handle(|_, _: Greet| Ok(()));
    let health = Arc::new(Health::new());
    let group = spawn_group(MemoryStore::new(), registry, GroupOptions::new("g"), Arc::clone(&health));
    match group {
        Err(error @ SpawnError::PanicAbort) => println!("refused: {error}"),
        other => println!("{other:?}"),
    }
    assert!(health.check().groups.is_empty());
}
"#;

const ENQUEUES: &str = r#"
use backwave::invariant::{InvariantTrigger, halt};
use backwave::testing::Intercept;
use backwave::{Client, EnqueueError, MemoryStore, NewJob};

fn main() {
    let store = Intercept::new(MemoryStore::new());
    let client = Client::new(store.clone());
    let job = || NewJob::raw("greet", "null");
    client.enqueue(job()).expect("honest");
    store.on_enqueue(|_, _| Err(halt(InvariantTrigger::GuaranteedRowAbsent, "a lie").into()));
    match client.enqueue(job()) {
        Err(EnqueueError::Invariant(violation)) => println!("told: {}", violation.trigger()),
        other => println!("{other:?}"),
    }
    store.on_enqueue(|session, rows| session.enqueue(&rows[..0]));
    match client.enqueue(job()) {
        Err(EnqueueError::Invariant(violation)) => println!("told: {}", violation.trigger()),
        other => println!("{other:?}"),
    }
}
"#;

#[test]
fn a_program_that_aborts_on_panic_gets_no_group_and_hears_of_violations_as_errors() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let source = folder.path().join("src").join("bin");
    fs::create_dir_all(&source).expect("made");
    let manifest = MANIFEST.replace("@ROOT@", &root.display().to_string());
    fs::write(folder.path().join("Cargo.toml"), manifest).expect("written");
    // The versions that this crate was built with are those that need no network.
    fs::copy(root.join("Cargo.lock"), folder.path().join("Cargo.lock")).expect("copied");
    fs::write(source.join("spawns.rs"), SPAWNS).expect("written");
    fs::write(source.join("enqueues.rs"), ENQUEUES).expect("written");

    let target = target();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--offline", "--quiet"]).current_dir(folder.path());
    // What cargo has set for this very test is not meant for another build.
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(name);
    }
    let built = cargo.env("CARGO_TARGET_DIR", &target).output().expect("cargo runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));

    let refused = run(&target, "spawns");
    assert!(refused.starts_with("refused: ") && refused.contains("panic = \"abort\""), "{refused}");
    let told = run(&target, "enqueues");
    assert_eq!(told, "told: GuaranteedRowAbsent\ntold: UnexpectedAffectedRowCount\n");
}

/// Beside what cargo builds itself, so that it is kept and cleaned with it.
fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("panic_abort")
}

fn run(target: &Path, program: &str) -> String {
    let output = Command::new(target.join("debug").join(program)).output().expect("it runs");
    assert!(output.status.success(), "{program}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}
