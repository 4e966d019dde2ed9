//! Every named check of this version is accounted for: a test drives it, or nothing of the crate has a place
//! for it yet.

use backwave::invariant::InvariantTrigger;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Each trigger that has a site, with the tests that drive it through a group or a client: file and function.
/// The function, or the one that it hands its name to, names the trigger.
const DRIVEN: &[(&str, &[(&str, &str)])] = &[
    (
        "OutcomeBatchCountMismatch",
        &[("fail_stop.rs", "a_report_answered_with_another_number_of_rows_halts")],
    ),
    (
        "HeartbeatBatchCountMismatch",
        &[("fail_stop.rs", "a_renewal_answered_with_another_number_of_rows_halts")],
    ),
    (
        "ClaimedJobTerminal",
        &[
            ("fail_stop.rs", "a_claim_that_hands_out_an_ended_job_halts"),
            ("tampered_rows.rs", "a_claimed_row_that_the_database_ends_halts"),
        ],
    ),
    (
        "ClaimBatchOverrun",
        &[("fail_stop.rs", "a_claim_that_hands_out_more_than_was_asked_for_halts")],
    ),
    (
        "ClaimedRowNotLeasedToWorker",
        &[
            ("fail_stop.rs", "a_claim_that_hands_out_what_another_holds_halts"),
            ("tampered_rows.rs", "a_claimed_row_that_the_database_gives_to_another_halts"),
        ],
    ),
    (
        "ClaimedRowNotEligible",
        &[
            (
                "fail_stop.rs",
                "a_claim_that_hands_out_what_its_own_predicate_excludes_or_no_handler_is_for_halts",
            ),
            ("tampered_rows.rs", "a_claimed_row_that_the_database_renames_halts"),
        ],
    ),
    ("OutcomeFenceRejected", &[("tampered_rows.rs", "swapped")]),
    (
        "UnexpectedAffectedRowCount",
        &[
            (
                "fail_stop.rs",
                "a_client_sees_that_its_enqueue_was_answered_for_another_number_of_jobs",
            ),
            ("tampered_rows.rs", "row_count"),
            (
                "observer_faults.rs",
                "a_cursor_write_that_touched_another_number_of_rows_ends_that_pump_only",
            ),
        ],
    ),
    (
        "ObserverReportFenceRejected",
        &[(
            "observer_faults.rs",
            "a_refused_report_of_a_hold_that_was_live_degrades_and_the_observer_goes_on",
        )],
    ),
    (
        "ObserverCursorRegressed",
        &[(
            "observer_faults.rs",
            "a_cursor_that_is_asked_to_move_backward_degrades_and_the_observer_goes_on",
        )],
    ),
    (
        "GuaranteedRowAbsent",
        &[
            ("observer_faults.rs", "a_cursor_row_that_is_gone_under_its_lock_ends_that_pump_only"),
            ("tampered_rows.rs", "version_row_gone"),
            ("tampered_rows.rs", "a_long_payload_that_is_gone_halts_at_the_claim"),
            ("tampered_rows.rs", "a_client_is_told_of_a_long_payload_that_is_gone"),
        ],
    ),
    (
        "WorkflowMemberEnqueueRejected",
        &[("graphs.rs", "a_store_that_loses_a_member_of_a_graph_is_a_violation")],
    ),
    (
        "UndefinedEnumValueStored",
        &[
            ("tampered_rows.rs", "settler"),
            ("tampered_rows.rs", "state"),
            ("tampered_rows.rs", "policy"),
            ("tampered_rows.rs", "client_meets_a_policy_that_is_none"),
            ("tampered_rows.rs", "client_meets_a_state_that_is_none"),
        ],
    ),
    (
        "DanglingGatingEdge",
        &[
            ("tampered_edges_and_queues.rs", "gate_without_a_dependent"),
            ("tampered_edges_and_queues.rs", "gate_of_a_job_that_does_not_wait"),
            ("tampered_edges_and_queues.rs", "client_meets_a_gate_without_a_dependent"),
            ("tampered_edges_and_queues.rs", "client_meets_a_gate_of_a_job_that_does_not_wait"),
            ("tampered_edges_and_queues.rs", "what_a_store_finds_of_gates_and_queues_halts"),
        ],
    ),
    (
        "ParentJobMissingFromBatch",
        &[
            ("tampered_edges_and_queues.rs", "parent_that_vanishes"),
            ("tampered_edges_and_queues.rs", "client_meets_a_parent_that_vanishes"),
            ("tampered_edges_and_queues.rs", "what_a_store_finds_of_gates_and_queues_halts"),
        ],
    ),
    (
        "ApplicationLockNotAcquired",
        &[
            ("tampered_edges_and_queues.rs", "a_migration_without_its_lock_halts_who_asks_for_it"),
            ("tampered_edges_and_queues.rs", "a_writer_that_is_not_alone_with_its_store_halts"),
        ],
    ),
    (
        "QueueConfigLockNotAcquired",
        &[
            ("tampered_edges_and_queues.rs", "settings_that_vanish"),
            (
                "tampered_edges_and_queues.rs",
                "a_client_whose_change_of_a_queue_does_not_stick_is_told_so",
            ),
            ("tampered_edges_and_queues.rs", "what_a_store_finds_of_gates_and_queues_halts"),
        ],
    ),
    (
        "LeasedCountAggregateNull",
        &[
            ("tampered_edges_and_queues.rs", "a_count_of_leases_that_is_null_halts_at_the_claim"),
            ("tampered_edges_and_queues.rs", "a_count_of_leases_that_a_store_cannot_tell_halts"),
        ],
    ),
];

/// Each trigger that nothing can raise yet, and why. It is named only where it is defined; this test fails
/// once that changes, and the trigger belongs above.
const WITHOUT_A_SITE: &[(&str, &str)] = &[];

#[test]
fn every_trigger_is_driven_by_a_test_or_has_no_site() {
    let known: BTreeSet<&str> =
        InvariantTrigger::ALL.iter().map(|trigger| trigger.name()).collect();
    let driven = DRIVEN.iter().map(|(name, _)| *name);
    let listed: Vec<&str> = driven.chain(WITHOUT_A_SITE.iter().map(|(name, _)| *name)).collect();
    let distinct: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(distinct, known, "each trigger is on one of the two lists, and nothing else is");
    assert_eq!(listed.len(), distinct.len(), "no trigger is on both");
}

#[test]
fn each_test_that_is_said_to_drive_a_trigger_exists_and_names_it() {
    for (trigger, tests) in DRIVEN {
        assert!(!tests.is_empty(), "{trigger}");
        for (file, function) in *tests {
            let text = read(&root().join("tests").join(file));
            let body = body_of(&text, function).unwrap_or_else(|| {
                panic!("{trigger}: there is no `fn {function}` in tests/{file}")
            });
            assert!(
                body.contains(&format!("InvariantTrigger::{trigger}")),
                "tests/{file}: `fn {function}` does not name {trigger}"
            );
            // A function that makes a scene is of use only where a test runs it.
            let calls = text.matches(&format!("{function}(")).count();
            let is_scene = text.contains(&format!("\n    {function},\n"));
            let is_test = is_scene || text.contains(&format!("#[test]\nfn {function}("));
            assert!(is_test || calls > 1, "tests/{file}: nothing calls `fn {function}`");
        }
    }
}

#[test]
fn a_trigger_has_a_site_exactly_where_that_is_said() {
    let sources = sources(&root().join("src"));
    assert!(sources.len() > 50, "only {} sources were looked at", sources.len());
    let sites = |trigger: &str| -> Vec<&Path> {
        let names = |text: &str| code_of(text).any(|line| names_word(line, trigger));
        sources.iter().filter(|(_, text)| names(text)).map(|(path, _)| path.as_path()).collect()
    };
    for (trigger, why) in WITHOUT_A_SITE {
        let sites = sites(trigger);
        assert!(sites.is_empty(), "{trigger} has no site, since {why}; but see {sites:?}");
    }
    for (trigger, _) in DRIVEN {
        assert!(!sites(trigger).is_empty(), "{trigger} is driven, and nothing raises it");
    }
}

/// Made to fail the build if it could: a match on every trigger would then need no arm for the rest.
#[test]
#[deny(unreachable_patterns)]
fn a_match_on_a_trigger_leaves_room_for_those_to_come() {
    use InvariantTrigger as T;
    for trigger in T::ALL {
        let place = match *trigger {
            T::OutcomeBatchCountMismatch | T::HeartbeatBatchCountMismatch => "known",
            T::ClaimedJobTerminal | T::ClaimBatchOverrun | T::ClaimedRowNotLeasedToWorker => {
                "known"
            }
            T::ClaimedRowNotEligible | T::OutcomeFenceRejected => "known",
            T::ObserverReportFenceRejected | T::ObserverCursorRegressed => "known",
            T::UnexpectedAffectedRowCount | T::GuaranteedRowAbsent | T::DanglingGatingEdge => {
                "known"
            }
            T::ParentJobMissingFromBatch | T::UndefinedEnumValueStored => "known",
            T::ApplicationLockNotAcquired | T::QueueConfigLockNotAcquired => "known",
            T::LeasedCountAggregateNull | T::WorkflowMemberEnqueueRejected => "known",
            _ => "to come",
        };
        assert_eq!(place, "known", "{trigger}");
    }
}

/// A check of the crate's own is a value under a trigger's name, never a bare assertion.
#[test]
fn no_check_of_the_crate_is_without_a_name() {
    let bare = ["assert!(", "assert_eq!(", "assert_ne!(", "panic!(", "unreachable!("];
    let (mut looked_at, mut found) = (0, Vec::new());
    for (path, text) in sources(&root().join("src")) {
        // What tests are written with may fail as tests do.
        let of_tests = ["testing", "exhaust", "interleavings", "snapshot.rs"];
        if path.components().any(|part| of_tests.iter().any(|name| part.as_os_str() == *name)) {
            continue;
        }
        looked_at += usize::from(path.extension().is_some_and(|extension| extension == "rs"));
        // Evaluated while a program is built, and so no check of a running one.
        let text = match body_of_const(&text, "assert_well_named") {
            Some(while_built) => text.replace(while_built, ""),
            None => text,
        };
        let code = code_of(&text).filter(|line| bare.iter().any(|bare| line.contains(bare)));
        found.extend(code.map(|line| format!("{}: {}", path.display(), line.trim())));
    }
    assert!(looked_at > 50, "only {looked_at} sources were looked at");
    assert_eq!(found, Vec::<String>::new());
}

fn body_of_const<'t>(text: &'t str, function: &str) -> Option<&'t str> {
    let begin = text.find(&format!("const fn {function}<"))?;
    let rest = &text[begin..];
    Some(&rest[..rest.find("\n}\n")?])
}

/// The text of a function at the margin.
fn body_of<'t>(text: &'t str, function: &str) -> Option<&'t str> {
    let begin = text.find(&format!("\nfn {function}("))?;
    let rest = &text[begin..];
    Some(&rest[..rest.find("\n}\n")?])
}

/// The lines of a source that are no comments and no tests of its own.
fn code_of(text: &str) -> impl Iterator<Item = &str> {
    let is_comment = |line: &str| line.starts_with("//") || line.starts_with("--");
    text.lines()
        .take_while(|line| !line.starts_with("#[cfg(test)]"))
        .filter(move |line| !is_comment(line.trim_start()))
}

fn names_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part)
    })
}

/// The sources that may raise a violation: not the definition itself, and no tests.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let of_entry = |path: PathBuf| match path.file_name().and_then(|name| name.to_str()) {
        Some("tests" | "guide") => Vec::new(),
        Some("invariant.rs") => Vec::new(),
        Some(name) if name.ends_with("tests.rs") => Vec::new(),
        _ if path.is_dir() => sources(&path),
        Some(name) if name.ends_with(".rs") || name.ends_with(".sql") => {
            let text = read(&path);
            vec![(path, text)]
        }
        _ => Vec::new(),
    };
    let entries = fs::read_dir(folder).expect("the folder can be read");
    entries.flat_map(|entry| of_entry(entry.expect("an entry").path())).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
