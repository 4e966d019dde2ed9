//! What programs build with this crate asks for no newer Rust than this crate promises.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

#[test]
#[ignore = "asks cargo, which may ask a registry: tests/matrix.sh runs it"]
fn no_locked_dependency_needs_a_newer_rust_than_the_manifest_promises() {
    let metadata = metadata();
    let packages: BTreeMap<&str, &Value> =
        items(&metadata["packages"]).map(|package| (text(&package["id"]), package)).collect();
    let root = text(&metadata["resolve"]["root"]);
    let promised = minor(&packages[root]["rust_version"]).expect("the manifest has a rust-version");

    let shipped = shipped(&metadata["resolve"], root);
    assert!(shipped.len() > 50, "only {} packages were looked at", shipped.len());
    let too_new: Vec<String> = shipped
        .iter()
        .map(|id| packages[id])
        .filter(|package| minor(&package["rust_version"]).is_some_and(|needed| needed > promised))
        .map(|package| format!("{} needs Rust {}", package["id"], package["rust_version"]))
        .collect();
    assert_eq!(too_new, Vec::<String>::new(), "promised is 1.{promised}");
}

/// All features, all platforms, as `Cargo.lock` has it.
fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--all-features", "--format-version=1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

/// The packages that reach a program: over normal and build dependencies, not over those of tests.
fn shipped<'a>(resolve: &'a Value, root: &'a str) -> BTreeSet<&'a str> {
    let nodes: BTreeMap<&str, &Value> =
        items(&resolve["nodes"]).map(|node| (text(&node["id"]), node)).collect();
    let mut found = BTreeSet::from([root]);
    let mut open = vec![root];
    while let Some(id) = open.pop() {
        for dependency in items(&nodes[id]["deps"]) {
            let is_shipped = items(&dependency["dep_kinds"]).any(|kind| kind["kind"] != "dev");
            let id = text(&dependency["pkg"]);
            if is_shipped && found.insert(id) {
                open.push(id);
            }
        }
    }
    found
}

/// The `89` of `1.89` and of `1.89.0`.
fn minor(version: &Value) -> Option<u32> {
    let version = version.as_str()?;
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse().ok());
    Some(minor.unwrap_or_else(|| panic!("{version} is a version")))
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().expect("a list").iter()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}
