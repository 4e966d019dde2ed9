//! The examples, run as anybody would run them, and looked at from outside: what they print, what they
//! leave in the database, and what `find` and `sha256sum` say of the same files.
#![cfg(unix)]
#![allow(unreachable_pub, reason = "a test binary has no outside")]

mod child;
mod database;
mod tree;

#[path = "../support/mod.rs"]
mod support;

use child::{Ended, Example};
use database::Database;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[test]
fn quickstart_runs_its_jobs_and_is_healthy() {
    let ended = Example::named("quickstart").run();
    assert_eq!(ended.code, Some(0), "{ended}");
    let lines: Vec<_> = ended.stdout().lines().map(str::to_owned).collect();
    let [ada, grace, health] = lines.as_slice() else { panic!("{ended}") };
    assert!(
        ada.starts_with("job ") && ada.contains("Succeeded, attempt 1, \"hello Ada\""),
        "{ada}"
    );
    assert!(grace.contains("Succeeded, attempt 2, \"hello Grace\""), "{grace}");
    assert_eq!(health, "health: Healthy");
}

#[test]
fn an_order_that_goes_well_is_reserved_charged_shipped_and_told() {
    let ended = Example::named("order_pipeline").run();
    assert_eq!(ended.code, Some(0), "{ended}");
    let said = ended.stdout();
    assert!(said.contains("  charging Ada 1650 cents, with "), "{ended}");
    assert!(said.contains("  shipping goods of 1650 cents to 12 Analytical Row"), "{ended}");
    assert!(said.contains("  Ada, your order is on its way"), "{ended}");
    assert_eq!(said.matches("Succeeded").count(), 5, "{ended}");
}

#[test]
fn an_order_with_an_article_that_cannot_be_reserved_is_called_off_and_told() {
    let ended = Example::named("order_pipeline").args(["tea", "unicorn"]).run();
    assert_eq!(ended.code, Some(0), "{ended}");
    let said = ended.stdout();
    assert!(!said.contains("charging"), "{ended}");
    assert!(said.contains("  Ada, we are sorry: your order is Some(Cancelled)"), "{ended}");
    let states = said.lines().filter_map(|line| line.strip_prefix("order."));
    let states: Vec<_> = states.map(|line| line.split_whitespace().nth(1)).collect();
    let expected = ["Succeeded", "DeadLettered", "Cancelled", "Cancelled", "Succeeded"];
    assert_eq!(states, expected.map(Some), "{ended}");
    assert!(said.contains("there is no unicorn in stock"), "{ended}");
}

#[test]
fn a_job_in_a_transaction_that_is_rolled_back_never_was() {
    let ended = Example::named("outbox").run();
    assert_eq!(ended.code, Some(0), "{ended}");
    let expected = "first order: the card was declined\njobs after the rollback: 0\n\
                    orders after the commit: 1\nconfirming order 1\nits job: Succeeded\n";
    assert_eq!(ended.stdout(), expected, "{ended}");
}

#[test]
fn each_dead_letter_is_one_alert_though_the_process_is_killed_in_the_middle() {
    let ended = Example::named("alerts").run();
    assert_eq!(ended.code, Some(0), "{ended}");
    let expected = "dead letters: 10\nkilled: true, alerts so far: 6\nalerts in the end: 10\n";
    assert_eq!(ended.stdout(), expected, "{ended}");
}

#[test]
fn an_operator_finds_out_why_a_job_does_not_run_and_acts_in_a_name() {
    use backwave::{Client, NewJob, SqliteStore};
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("jobs.db");
    let client = Client::new(SqliteStore::open(&file).expect("the file opens"));
    let job = NewJob::raw("mail", "{}").queue("mail").tag("welcome");
    let job = client.enqueue(job).expect("it is enqueued").id.to_string();
    let operator = |args: &[&str]| {
        Example::named("operator").args([&file]).args(["--as", "ada"]).args(args).run()
    };
    let said = |args: &[&str]| {
        let ended = operator(args);
        assert_eq!(ended.code, Some(0), "{args:?}: {ended}");
        ended.stdout().to_owned()
    };
    assert!(said(&["counts"]).contains("Scheduled"));
    said(&["pause", "mail"]);
    assert!(said(&["why", &job]).contains("the queue \"mail\" is paused"));
    said(&["limit", "mail", "3"]);
    assert!(said(&["queues"]).contains("limit: 3"));
    assert_eq!(said(&["cancel-tag", "welcome"]), "1 called off\n");
    assert_eq!([said(&["observers"]), said(&["parked", "alerts"])], ["", ""]);
    assert_eq!(said(&["redeliver", "alerts"]), "0 again\n");
    assert_eq!(said(&["forget", "alerts"]), "forgotten: false\n");
    assert!(said(&["show", &job]).contains("Cancelled"));
    let audit = said(&["audit"]);
    let actions: Vec<_> = audit.lines().map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(actions, [Some("Cancel"), Some("Limit(Some(3))"), Some("Pause")], "{audit}");
    assert!(audit.lines().all(|line| line.contains(" ada: ")), "{audit}");
    let late = operator(&["cancel", &job]);
    assert_eq!(late.code, Some(1), "{late}");
    assert!(late.stderr().contains("Cancelled, which does not allow it"), "{late}");
    assert_eq!(operator(&["dance"]).code, Some(2));
    assert_eq!(operator(&[]).code, Some(2));
}

#[test]
fn schedules_in_three_zones_keep_to_the_rule_through_two_years_of_clock_changes() {
    let ended = Example::named("nightly").run();
    assert_eq!(ended.code, Some(0), "{ended}");
    let said = ended.stdout();
    for line in [
        "Europe/Berlin: 2026-03-29T01:59:59, and then 2026-03-29T03:00:00",
        "    at half past two 2026-03-29 03:00 CEST",
        "    at half past two 2026-10-25 02:30 CEST",
        "    at midnight      2026-09-06 01:00 -03",
        "    every hour       2026-11-01 01:00 EDT",
        "    every hour       2026-11-01 01:00 EST",
    ] {
        assert_eq!(said.lines().filter(|said| *said == line).count(), 1, "{line}: {ended}");
    }
    assert!(said.contains(" runs, each where it should be\n"), "{ended}");
}

#[test]
fn hash_tree_agrees_with_find_and_sha256sum_whatever_the_names_and_sizes() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let files = folder.path().join("files");
    tree::grow(&files);
    let run = || hash_tree(&files, &Database::sqlite(folder.path()), &["--list"]).run();

    let first = run();
    assert_eq!(first.code, Some(0), "{first}");
    let count = tree::count(&files);
    assert!(count > 300, "{count} files");
    assert!(first.stderr().contains(&format!("{count} files, {count} of them new")), "{first}");
    assert!(first.stderr().contains(&format!("Succeeded: {count}\n")), "{first}");
    assert_same_list(&first, &files);

    let second = run();
    assert_eq!(second.code, Some(0), "{second}");
    assert!(second.stderr().contains(&format!("{count} files, 0 of them new")), "{second}");
    assert_same_list(&second, &files);
}

#[test]
fn a_file_that_cannot_be_read_is_dead_lettered_with_its_reason_and_the_rest_is_done() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let files = folder.path().join("files");
    tree::grow_plain(&files, 10);
    let expected = tree::sha256sum(&files);
    let locked = files.join("locked");
    std::fs::write(&locked, "nobody reads this").expect("a file can be written");
    tree::lock(&locked);

    let database = Database::sqlite(folder.path());
    let mut example = hash_tree(&files, &database, &["--list"]);
    example.as_common_user(folder.path());
    let ended = example.run();
    assert_eq!(ended.code, Some(1), "{ended}");
    let reason = format!("DeadLettered: {}: Permission denied", locked.display());
    assert!(ended.stderr().contains(&reason), "{ended}");
    assert!(ended.stderr().contains("Succeeded: 10\nDeadLettered: 1\n"), "{ended}");
    assert_eq!(ended.stdout, expected, "{ended}");
    let attempts: Vec<_> = database.rows().values().map(|row| row.attempt).collect();
    assert_eq!(attempts, [1; 11], "no other try can mend it");
}

#[test]
fn a_command_line_that_makes_no_sense_is_refused_with_its_fault() {
    let cases: &[(&[&str], &str)] = &[
        (&[], "no folder is given"),
        (&["a", "b"], "more than one folder is given"),
        (&["a", "--db"], "--db needs a value"),
        #[cfg(feature = "postgres")]
        (&["a", "--db", "x", "--postgres", "y"], "more than one database is given"),
        (&["a", "--workers", "0"], "--workers: \"0\" is no number from 1 to 1000"),
        (&["a", "--lease", "4"], "--lease: \"4\" is no number from 5 to 86400"),
        (&["a", "--frob"], "there is no option --frob"),
        (&["/no such folder"], "/no such folder: No such file or directory"),
    ];
    for (args, fault) in cases {
        let ended = Example::named("hash_tree").args(*args).run();
        assert_eq!(ended.code, Some(2), "{args:?}: {ended}");
        assert!(ended.stderr().starts_with(&format!("hash_tree: {fault}")), "{args:?}: {ended}");
    }
    let help = Example::named("hash_tree").args(["--help"]).run();
    assert_eq!((help.code, help.stderr()), (Some(0), ""));
    assert!(help.stdout().starts_with("Usage: hash_tree <folder>"));
}

#[test]
fn ctrl_c_stops_it_cleanly_and_the_next_run_goes_on() {
    half_way(Database::sqlite, |files, database, example| {
        example.interrupt();
        let stopped = example.wait();
        let at_stop = database.rows();
        if !is_half_way(&at_stop) {
            return false;
        }
        assert_eq!(stopped.code, Some(130), "{stopped}");
        assert!(stopped.stderr().contains("stopped; run it again to go on"), "{stopped}");
        let leased = at_stop.values().filter(|row| row.state == "Leased").count();
        assert_eq!(leased, 0, "everything was handed back");

        let resumed = hash_tree(files, database, &["--list"]).run();
        assert_eq!(resumed.code, Some(0), "{resumed}");
        assert_same_list(&resumed, files);
        assert!(database.rows().values().all(|row| row.failures == 0), "a stop is no failure");
        true
    });
}

#[test]
fn killed_half_way_on_sqlite_it_does_every_file_once() {
    half_way(Database::sqlite, kill_and_resume);
}

#[cfg(feature = "postgres")]
#[test]
fn killed_half_way_on_postgres_it_does_every_file_once() {
    half_way(|_| Database::postgres(), kill_and_resume);
}

fn kill_and_resume(files: &Path, database: &Database, mut example: child::Running) -> bool {
    example.kill();
    let killed = example.wait();
    assert_eq!(killed.code, None, "it ended by the signal");
    let at_kill = database.rows();
    let in_flight = at_kill.values().filter(|row| row.state == "Leased").count();
    if !is_half_way(&at_kill) || in_flight == 0 {
        return false;
    }

    let resumed = hash_tree(files, database, &["--list"]).run();
    assert_eq!(resumed.code, Some(0), "{resumed}");
    assert_same_list(&resumed, files);
    let at_end = database.rows();
    assert_eq!(at_end.len(), tree::count(files), "one job per file");
    for (id, row) in &at_end {
        assert_eq!(row.state, "Succeeded", "{id}");
        let before = at_kill.get(id);
        let was = before.map_or("unknown", |before| before.state.as_str());
        // Its lease lapsed, which counts as a failure; whatever else was there had one attempt.
        let expected = if was == "Leased" { (2, 1) } else { (1, 0) };
        assert_eq!((row.attempt, row.failures), expected, "{id} was {was} at the kill");
        if was == "Succeeded" {
            assert_eq!(Some(row), before, "{id} had ended, and nothing touches it again");
        }
    }
    true
}

/// Runs `hash_tree` until it says that some files are done and some are not, and hands it over. `check`
/// answers `false` where it turns out that the run was not half-way any more, or not in the middle of a
/// job: then all is tried again with more files.
fn half_way(
    database: impl Fn(&Path) -> Database,
    check: impl Fn(&Path, &Database, child::Running) -> bool,
) {
    for count in [2_000, 4_000, 8_000, 16_000, 32_000] {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let files = folder.path().join("files");
        tree::grow_plain(&files, count);
        let database = database(folder.path());
        let mut example = hash_tree(&files, &database, &["--workers", "1", "--lease", "5"]).start();
        if example.read_until(says_half_way) && check(&files, &database, example) {
            return;
        }
    }
    panic!("no run was caught half-way, however many files it had");
}

fn says_half_way(line: &str) -> bool {
    let mut numbers = line.split(' ').filter_map(|word| word.parse::<u64>().ok());
    let (done, total) = (numbers.next(), numbers.next());
    line.contains(" files done") && done > Some(0) && done < total
}

fn is_half_way(rows: &BTreeMap<String, database::Row>) -> bool {
    let done = rows.values().filter(|row| row.state == "Succeeded").count();
    0 < done && done < rows.len()
}

fn hash_tree(files: &Path, database: &Database, args: &[&str]) -> Example {
    Example::named("hash_tree").args([files]).args(database.args()).args(args)
}

fn assert_same_list(ended: &Ended, files: &Path) {
    let expected = tree::sha256sum(files);
    // Not `assert_eq`: nobody reads thousands of lines.
    let lines = |list: &[u8]| list.split(|byte| *byte == b'\n').count();
    let differs = ended.stdout.iter().zip(&expected).position(|(ours, theirs)| ours != theirs);
    assert!(
        ended.stdout == expected,
        "{} lines, {} expected for {:?}; the first difference at byte {differs:?}",
        lines(&ended.stdout),
        lines(&expected),
        String::from_utf8_lossy(files.as_os_str().as_bytes()),
    );
}
