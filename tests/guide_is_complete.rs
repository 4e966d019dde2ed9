//! The manual names every trigger and every event id there is: what an operator can meet, they can look
//! up.

use backwave::invariant::InvariantTrigger;

#[test]
fn the_page_on_fail_stop_names_every_trigger() {
    let page = include_str!("../src/guide/fail_stop.md");
    for trigger in InvariantTrigger::ALL {
        assert!(page.contains(&format!("`{trigger}`")), "{trigger} is missing");
    }
}

#[test]
fn the_page_on_fail_stop_lists_what_becomes_an_abort_and_says_when_respawning_is_wrong() {
    let page = include_str!("../src/guide/fail_stop.md");
    let (_, aborts) = page.split_once("# What cannot be contained").expect("there is such a part");
    for abort in [
        "stack overflow",
        "a panic in a destructor while another panic unwinds",
        "`extern \"C\"`",
        "an allocation that\nfails",
        "a panic hook that aborts",
        "`std::process::exit`",
        "`panic = \"abort\"`",
    ] {
        assert!(aborts.contains(abort), "{abort} is missing");
    }
    for warning in
        ["**Do not respawn in a loop.**", "Remove the cause. Then restart the process, or"]
    {
        assert!(page.contains(warning), "{warning} is missing");
    }
}

#[test]
fn the_page_on_operating_names_every_event_id_and_no_other() {
    let page = include_str!("../src/guide/operating.md");
    let logged = include_str!("../src/telemetry.rs").split("event_id = ").skip(1);
    let logged = logged.filter_map(|rest| rest.get(..4)?.parse::<u32>().ok());
    let logged: std::collections::BTreeSet<u32> = logged.collect();
    assert!(logged.len() > 10, "the catalogue is not where it is looked for");
    let table = page.lines().filter(|line| line.starts_with("| 1") || line.starts_with("| 2"));
    let told = table.flat_map(|line| line.split('|').nth(1).unwrap_or_default().split(','));
    let told = told.filter_map(|id| id.trim().parse::<u32>().ok());
    let told: std::collections::BTreeSet<u32> =
        told.filter(|id| (1000..3000).contains(id)).collect();
    assert_eq!(told, logged);
}
