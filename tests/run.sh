#!/usr/bin/env bash
# Everything that must hold, on a machine with Rust and nothing else.
#
#   tests/run.sh                          checks, tests, docs and examples
#   tests/run.sh --server-only -- CMD..   runs CMD with a throw-away Postgres, and nothing else
#   tests/run.sh --server-only --durable -- CMD..
#                                         the same with a server that keeps its promises, for benches
#
# A cluster of its own is started on a free loopback port in a temporary folder, and both are gone at
# the end, also after a failure or a signal. While it runs these are exported:
#
#   BACKWAVE_TEST_POSTGRES_URL   a superuser's connection URL
#   BACKWAVE_TEST_PG_BIN         the folder of the binaries, for tests that run a server of their own
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

pg_bin=""
cluster=""
durable=""
server_up=""
child=""
current_step="reading the arguments"

main() {
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    case "${1:-}" in
    "") run_everything ;;
    --server-only) shift && run_with_server "$@" ;;
    *) usage ;;
    esac
}

usage() {
    sed -n '2,14s/^# \{0,1\}//p' "tests/run.sh" >&2
    exit 2
}

run_with_server() {
    [[ "${1:-}" == "--durable" ]] && durable=yes && shift
    [[ "${1:-}" == "--" ]] && shift
    [[ $# -gt 0 ]] || usage
    start_server
    step "running $*"
    # Somebody at a terminal may want to talk to the command, so it stays in the foreground there.
    if [[ -t 0 ]]; then "$@"; else run "$@"; fi
}

run_everything() {
    start_server
    check_format
    check_lints
    check_matrix
    run_tests
    build_docs
    run_examples
    step "the end"
}

# Runs a command so that a signal ends it with everything that it has started: bash handles no signal while a
# foreground command runs, and a test binary outlives the cargo that started it.
run() {
    local code=0
    set -m
    "$@" &
    child=$!
    set +m
    wait "$child" || code=$?
    child=""
    return "$code"
}

step() {
    current_step="$*"
    printf '\n== %s\n' "$*" >&2
}

fail() {
    printf 'tests/run.sh: %s\n' "$*" >&2
    exit 1
}

# -- the server

start_server() {
    step "starting a throw-away Postgres"
    find_postgres || install_postgres
    find_postgres || fail "Postgres was installed but has no binaries under /usr/lib/postgresql/*/bin"
    make_cluster
    local attempt
    for attempt in 1 2 3 4 5; do
        # Another process may take the port between the look and the start: then look again.
        if launch "$(free_port)"; then
            echo "Postgres: $("$pg_bin/postgres" --version) at $BACKWAVE_TEST_POSTGRES_URL" >&2
            return
        fi
        echo "attempt $attempt did not start" >&2
    done
    cat "$cluster/log" >&2 || true
    fail "the cluster in $cluster does not start"
}

# The newest version wins.
find_postgres() {
    local found
    found="$(find /usr/lib/postgresql -mindepth 3 -maxdepth 3 -path '*/bin/initdb' 2>/dev/null | sort -V | tail -n 1)"
    [[ -n "$found" ]] || return 1
    pg_bin="$(dirname "$found")"
}

install_postgres() {
    if [[ "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null; then
        fail "no Postgres under /usr/lib/postgresql/*/bin. Install one, e.g.: sudo apt-get install postgresql"
    fi
    step "installing Postgres with apt-get"
    apt-get update
    # Without this the package would also start a cluster of its own, which nobody here needs.
    if [[ ! -e /etc/postgresql-common/createcluster.conf ]]; then
        mkdir -p /etc/postgresql-common
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends postgresql
}

make_cluster() {
    # Not TMPDIR: the server's account must be able to enter it, and the path of a socket is short.
    cluster="$(mktemp -d /tmp/backwave-tests.XXXXXX)"
    mkdir "$cluster/socket"
    chmod 755 "$cluster"
    if [[ "$(id -u)" == 0 ]]; then
        chown -R "$(server_account)" "$cluster"
    fi
    as_server "$pg_bin/initdb" --pgdata="$cluster/data" --username=postgres --auth=trust \
        --encoding=UTF8 --locale=C --no-sync >"$cluster/initdb.log" ||
        { cat "$cluster/initdb.log" >&2; fail "initdb failed"; }
}

# Postgres refuses to run as root.
server_account() {
    if id postgres >/dev/null 2>&1; then echo postgres; else echo nobody; fi
}

# Runs a command of Postgres under an account that it accepts, in a folder which that account can enter.
as_server() (
    cd "$cluster"
    if [[ "$(id -u)" == 0 ]]; then
        local account
        account="$(server_account)"
        exec setpriv --reuid="$account" --regid="$(id -g "$account")" --clear-groups -- env HOME="$cluster" "$@"
    fi
    exec "$@"
)

launch() {
    local port="$1"
    local options="-c listen_addresses=127.0.0.1 -c port=$port -c unix_socket_directories='$cluster/socket'"
    # 200 connections carry every test at once.
    options+=" -c max_connections=200"
    if [[ -n "$durable" ]]; then
        # As a small server of somebody's own would be set up. A checkpoint within a run would hit some
        # measurements and not others.
        options+=" -c fsync=on -c synchronous_commit=on -c full_page_writes=on"
        options+=" -c shared_buffers=512MB -c max_wal_size=4GB"
    else
        # Durability is of no use to a cluster that ends with the run.
        options+=" -c fsync=off -c synchronous_commit=off -c full_page_writes=off"
    fi
    # Its output goes to the log: a pipe that it inherited would keep our reader waiting.
    as_server "$pg_bin/pg_ctl" start --pgdata="$cluster/data" --log="$cluster/log" --wait --silent \
        --options="$options" >/dev/null 2>&1 || return 1
    server_up=yes
    export BACKWAVE_TEST_POSTGRES_URL="postgres://postgres@127.0.0.1:$port/postgres"
    export BACKWAVE_TEST_PG_BIN="$pg_bin"
}

free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 30000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    echo "$port"
}

clean_up() {
    local code=$?
    trap - EXIT
    # From here on a second signal must not leave the server behind.
    trap '' INT TERM HUP
    if [[ -n "$child" ]]; then
        # The process group of the one command that `run` has started.
        kill -TERM -- "-$child" 2>/dev/null && wait "$child" || true
    fi
    if [[ -n "$server_up" ]]; then
        as_server "$pg_bin/pg_ctl" stop --pgdata="$cluster/data" --mode=immediate --wait --silent >&2 ||
            echo "tests/run.sh: the cluster in $cluster did not stop" >&2
    fi
    [[ -z "$cluster" ]] || rm -rf "$cluster"
    if [[ $code == 0 ]]; then
        printf '\n== all is well\n' >&2
    else
        printf '\n== FAILED (exit code %s) while: %s\n' "$code" "$current_step" >&2
    fi
    exit "$code"
}

# -- the checks

check_format() {
    step "cargo fmt --check"
    run cargo fmt --check
}

check_lints() {
    step "cargo clippy, all features and targets"
    run cargo clippy --locked --all-features --all-targets -- -D warnings
}

check_matrix() {
    step "tests/matrix.sh: feature sets and version ranges"
    run bash tests/matrix.sh
}

# Not `--all-targets`: that would build the examples as tests, and tests run them as programs.
run_tests() {
    step "cargo test, all features, and the doc tests"
    run cargo test --locked --all-features
}

build_docs() {
    step "cargo doc without warnings"
    RUSTDOCFLAGS="-Dwarnings" run cargo doc --locked --no-deps --all-features
}

# Each example ends by itself and exits with a failure when something is wrong.
run_examples() {
    local file name
    for file in examples/*.rs; do
        [[ -e "$file" ]] || continue
        name="$(basename "$file" .rs)"
        step "running example $name"
        run cargo run --locked --quiet --all-features --example "$name"
    done
}

main "$@"
