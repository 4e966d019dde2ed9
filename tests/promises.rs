//! What is promised of a fail-stop, and the tests that prove it: `tests/promises.md` lists both. Here it is
//! seen to that each promise has a test, that each test named exists and is run, and that no test of these
//! matters is without its promise.

use backwave::testing::conformance::CLAUSES;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const TABLE: &str = include_str!("promises.md");

/// Files of which every test proves a promise of the table.
const WHOLE: &[&str] = &[
    "after_a_halt.rs",
    "containment.rs",
    "fail_stop.rs",
    "fault_classifier.rs",
    "health.rs",
    "log_catalogue.rs",
    "observer_faults.rs",
    "shutdown.rs",
    "tampered_edges_and_queues.rs",
    "tampered_rows.rs",
    "src/health/tests.rs",
];

/// One row of the table.
#[derive(Debug)]
struct Promise<'t> {
    text: &'t str,
    proofs: Vec<&'t str>,
}

/// The rows of all tables; each cell that is no promise or no list of tests is told.
fn promises(table: &str) -> Result<Vec<Promise<'_>>, String> {
    let rows = table.lines().filter(|line| line.starts_with('|'));
    rows.filter(|row| !row.starts_with("| promise |") && !row.starts_with("|---"))
        .map(promise)
        .collect()
}

fn promise(row: &str) -> Result<Promise<'_>, String> {
    let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
    let [text, proofs] = cells[..] else { return Err(format!("not two cells: {row}")) };
    let named: Vec<&str> = proofs.split('`').skip(1).step_by(2).collect();
    let between = proofs.split('`').step_by(2).map(|rest| rest.trim_matches([',', ' ']));
    if named.is_empty() || text.is_empty() || between.into_iter().any(|rest| !rest.is_empty()) {
        return Err(format!("a promise without a test: {row}"));
    }
    Ok(Promise { text, proofs: named })
}

/// The tests of a source: those that are run, each by the name of its function.
fn tests_of(source: &str) -> BTreeSet<&str> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let plain = lines.iter().enumerate().filter(|(_, line)| **line == "#[test]");
    let plain = plain.filter_map(|(at, _)| {
        let mut rest = lines[at + 1..].iter().skip_while(|line| line.starts_with("#["));
        let function = name_of(rest.next()?)?;
        let attributes = lines[at + 1..].iter().take_while(|line| line.starts_with("#["));
        let is_ignored = attributes.into_iter().any(|line| line.starts_with("#[ignore"));
        (!is_ignored).then_some(function)
    });
    let scenes =
        source.split_once("\non_every_store!(\n").and_then(|(_, rest)| rest.split_once("\n);"));
    let scenes = scenes.map_or("", |(scenes, _)| scenes).split(',').map(str::trim);
    let functions: BTreeSet<&str> = source.lines().filter_map(name_of).collect();
    plain.chain(scenes.filter(|scene| functions.contains(scene))).collect()
}

fn name_of(line: &str) -> Option<&str> {
    let (name, _) = line.strip_prefix("fn ")?.split_once('(')?;
    Some(name)
}

/// Whether a test is there under that name, `sources` giving the text of a file.
fn exists(proof: &str, sources: &mut Sources) -> Result<(), String> {
    let (file, function) = proof.rsplit_once("::").ok_or_else(|| format!("no file in {proof}"))?;
    let is_there = match file.strip_prefix("conformance::") {
        Some(topic) => {
            let name = format!("{topic}::{function}");
            CLAUSES.iter().any(|clause| clause.name == name)
        }
        None => tests_of(sources.of(file)?).contains(function),
    };
    if is_there { Ok(()) } else { Err(format!("there is no test {proof}")) }
}

#[derive(Default)]
struct Sources(BTreeMap<String, String>);

impl Sources {
    fn of(&mut self, file: &str) -> Result<&str, String> {
        if !self.0.contains_key(file) {
            let text = fs::read_to_string(place_of(file)).map_err(|e| format!("{file}: {e}"))?;
            self.0.insert(file.to_owned(), text);
        }
        Ok(&self.0[file])
    }
}

/// Names of files are those in `tests`, but where they begin with `src/`.
fn place_of(file: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if file.starts_with("src/") { root.join(file) } else { root.join("tests").join(file) }
}

#[test]
fn every_promise_is_proved_by_tests_that_exist() {
    let promises = promises(TABLE).unwrap_or_else(|error| panic!("{error}"));
    assert!(promises.len() > 100, "only {} promises were read", promises.len());
    let texts: BTreeSet<&str> = promises.iter().map(|promise| promise.text).collect();
    assert_eq!(texts.len(), promises.len(), "no promise is made twice");
    let mut sources = Sources::default();
    let missing: Vec<String> = promises
        .iter()
        .flat_map(|promise| &promise.proofs)
        .filter_map(|proof| exists(proof, &mut sources).err())
        .collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn no_test_of_these_matters_is_without_its_promise() {
    let promises = promises(TABLE).unwrap_or_else(|error| panic!("{error}"));
    let named: BTreeSet<&str> = promises.into_iter().flat_map(|promise| promise.proofs).collect();
    let mut sources = Sources::default();
    let mut idle = Vec::new();
    for file in WHOLE {
        let tests = tests_of(sources.of(file).expect("the file is there"));
        assert!(tests.len() > 3, "{file}: only {} tests were found", tests.len());
        let proofs = tests.into_iter().map(|test| format!("{file}::{test}"));
        idle.extend(proofs.filter(|proof| !named.contains(proof.as_str())));
    }
    assert_eq!(idle, Vec::<String>::new());
}

/// The clauses count as proofs because each store is held to all of them.
#[test]
fn every_store_is_held_to_the_clauses() {
    for store in ["memory", "sqlite", "postgres"] {
        let file =
            fs::read_to_string(place_of(&format!("contract_{store}.rs"))).expect("it is there");
        assert!(file.contains("backwave::conformance_tests!("), "{store}");
    }
}

/// A host reads health; that a group halts, limps or recovers is said by the crate alone.
#[test]
fn nothing_of_health_can_be_written_by_a_host() {
    let source = fs::read_to_string(place_of("src/health/mod.rs")).expect("it is there");
    let public = source.lines().filter_map(|line| line.trim().strip_prefix("pub fn "));
    let public: Vec<&str> = public.filter_map(|rest| rest.split('(').next()).collect();
    let readers = ["new", "is_healthy", "halted_groups", "partially_halted_groups"];
    assert_eq!(public, [&readers[..], &["degraded_groups", "check"]].concat());
    for writer in ["pub(crate) struct Pen", "pub(crate) struct Pulse", "pub(crate) fn halted("] {
        assert!(source.contains(writer), "{writer}");
    }
}

#[test]
fn a_promise_without_a_test_is_found() {
    let unproved = "| promise | proved by |\n|---|---|\n| it holds | |\n";
    assert!(promises(unproved).is_err());
    assert!(promises("| it holds |  |\n").is_err());
    assert!(promises("| it holds | somebody says so |\n").is_err());
    assert!(promises("| it holds | `a.rs::b`, and more |\n").is_err());
    let proved = promises("| it holds | `a.rs::b`, `src/c.rs::d` |\n").expect("two tests");
    assert_eq!(
        (proved[0].text, &proved[0].proofs[..]),
        ("it holds", &["a.rs::b", "src/c.rs::d"][..])
    );
}

#[test]
fn a_test_that_is_not_there_or_not_run_is_found() {
    let mut sources = Sources::default();
    let source = "on_every_store!(\n    scene,\n    gone,\n);\n#[test]\nfn plain() {}\n#[test]\n\
                  #[ignore = \"slow\"]\nfn ignored() {}\nfn helper() {}\nfn scene(_: &World) {}\n";
    sources.0.insert("a.rs".to_owned(), format!("\n{source}"));
    for proof in
        ["a.rs::plain", "a.rs::scene", "conformance::fence::only_its_owner_ends_an_attempt"]
    {
        assert_eq!(exists(proof, &mut sources), Ok(()));
    }
    for proof in [
        "a.rs::ignored",
        "a.rs::helper",
        "a.rs::gone",
        "a.rs::nothing",
        "nowhere.rs::plain",
        "conformance::fence::nothing",
        "plain",
    ] {
        assert!(exists(proof, &mut sources).is_err(), "{proof}");
    }
}
