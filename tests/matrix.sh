#!/usr/bin/env bash
# What a program may combine this crate with: each set of features, both ends of the version ranges in
# Cargo.toml, a second SQLite client in the tree, and the Rust that Cargo.toml promises.
#
#   tests/matrix.sh
#
# The variants are copies below target/matrix, with manifests of their own. They compile into the same target
# folder, so that whatever they have in common is built once.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly ROOT="$PWD"
readonly VARIANTS="$ROOT/target/matrix"

# The newest of each range that spans incompatible versions. The lock file takes the newest that
# this crate's own rust-version allows, and parking_lot 0.13 asks for a newer Rust.
readonly HIGHEST=(rusqlite@0.43.0 parking_lot@0.13.0)

main() {
    mkdir -p "$VARIANTS"
    check_feature_sets
    check_rust_version
    check_beside_sqlx
    check_highest_versions
    check_lowest_versions
}

step() {
    printf '\n-- %s\n' "$*" >&2
}

fail() {
    printf 'tests/matrix.sh: %s\n' "$*" >&2
    exit 1
}

# Alone, each feature still carries what it needs, and nothing is dead code. The tests and examples
# are seen without any feature and with the default ones, as `cargo test` builds them; with others that would
# cost more than it has ever found.
check_feature_sets() {
    lint_with "no features" --all-targets
    lint_with "only postgres" --features postgres
    lint_with "only sqlite, without an engine of its own" --features sqlite
    lint_with "only bundled, which is the default" --all-targets --features bundled
    lint_with "only metrics" --features metrics
    lint_with "only testing" --features testing
}

lint_with() {
    step "clippy: $1"
    cargo clippy --locked --no-default-features "${@:2}" -- -D warnings
}

# No toolchain as old as the promise is needed: clippy knows since when std has what (incompatible_msrv), and
# the dependencies state what they need.
check_rust_version() {
    step "the dependencies keep to our rust-version"
    cargo test --locked --all-features --test rust_version -- --ignored
}

# A tree links SQLite once, so a range that excludes another crate's version excludes the crate. sqlx brings
# its adapter into the resolution even where only Postgres is asked for.
check_beside_sqlx() {
    check_resolves beside_sqlx_sqlite 'sqlx = { version = "0.9", features = ["sqlite"] }'
    check_resolves beside_sqlx_postgres \
        'sqlx = { version = "0.9", default-features = false, features = ["postgres", "macros"] }'
}

check_resolves() {
    local folder="$VARIANTS/$1" engines
    step "resolving beside $2"
    rm -rf "$folder"
    mkdir -p "$folder/src"
    touch "$folder/src/lib.rs"
    cat >"$folder/Cargo.toml" <<MANIFEST
[package]
name = "$1"
edition = "2024"

[dependencies]
backwave = { path = "$ROOT" }
$2

[workspace]
MANIFEST
    (cd "$folder" && cargo generate-lockfile)
    engines="$(grep -c '^name = "libsqlite3-sys"$' "$folder/Cargo.lock" || true)"
    [[ "$engines" == 1 ]] || fail "$1 has $engines copies of libsqlite3-sys"
    grep -A1 -E '^name = "(libsqlite3-sys|rusqlite|sqlx)"$' "$folder/Cargo.lock" >&2
}

# Its tests run with the lock file's versions, which are the newest but for parking_lot.
check_highest_versions() {
    step "checking the highest versions: ${HIGHEST[*]}"
    copy_to highest
    highest_requirements <Cargo.toml >"$VARIANTS/highest/Cargo.toml"
    (cd "$VARIANTS/highest" && cargo update --workspace)
    in_copy highest cargo check --locked --all-features --lib
}

highest_requirements() {
    local pin script=""
    for pin in "${HIGHEST[@]}"; do
        script+="s/^(${pin%@*} = (\\{ version = )?\")>=[^\"]*\"/\\1=${pin#*@}\"/;"
    done
    sed -E "$script"
}

# The oldest that Cargo.toml allows of each dependency of programs, and the SQLite store at work with
# the oldest engine.
check_lowest_versions() {
    step "testing the lowest versions"
    copy_to lowest
    lowest_requirements <Cargo.toml >"$VARIANTS/lowest/Cargo.toml"
    (cd "$VARIANTS/lowest" && cargo update --workspace)
    in_copy lowest cargo test --locked --all-features --lib store::sqlite
}

# `>=0.39, <0.44` becomes `=0.39.0`, and `1.7` becomes `=1.7.0`, for the programs' dependencies only.
lowest_requirements() {
    sed -E '/^\[dependencies\]/,/^\[dev-dependencies\]/ {
        s/^([a-z_-]+ = (\{ version = )?")(>=)?([0-9]+(\.[0-9]+)*)(, <[0-9.]+)?"/\1=\4"/
        s/"=([0-9]+)"/"=\1.0"/
        s/"=([0-9]+\.[0-9]+)"/"=\1.0"/
    }'
}

# The times of the files stay, so that nothing is built again without need.
copy_to() {
    local part
    rm -rf "${VARIANTS:?}/$1"
    mkdir -p "$VARIANTS/$1"
    for part in Cargo.toml Cargo.lock README.md src tests examples benches docs; do
        [[ ! -e "$part" ]] || cp -a "$part" "$VARIANTS/$1/"
    done
}

in_copy() (
    cd "$VARIANTS/$1"
    CARGO_TARGET_DIR="$ROOT/target" "${@:2}"
)

main "$@"
