#!/bin/bash
# Everything that `make test` checks, stage by stage, with the time that each takes. Ends with the results of cargo's tests.
# As root it installs what is missing and says so. As an ordinary user it leaves out what needs privilege, and says that too.
#   scripts/test.sh [STAGE ...]      only these stages: format lints licences wasm tests seeds fuzz lab
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh
export CARGO_TERM_COLOR=never
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
log=$target/test-results.log
: >"$log"
wanted=${*:-format lints licences wasm tests seeds fuzz lab}
failed=()
times=()
started=$SECONDS

# stage NAME COMMAND...: runs it, notes its time, and goes on after a failure.
stage() {
    local name=$1 from=$SECONDS outcome=ok
    shift
    case " $wanted " in *" $name "*) ;; *) return ;; esac
    echo "== $name"
    "$@" || { outcome=FAILED; failed+=("$name"); }
    times+=("$(printf '%-10s %4d s  %s' "$name" $((SECONDS - from)) "$outcome")")
}

licences() {
    if command -v cargo-deny >/dev/null; then
        cargo deny --log-level error check licenses bans sources
    else
        echo "cargo-deny is not installed (\`make deny\` installs it); the licences are checked by cargo test -p farlink --test licences"
    fi
}

wasm() {
    need_target wasm32-unknown-unknown && scripts/wasm-proof.sh
}

# The corpus is replayed by the tests; here the targets themselves are built.
fuzz() {
    need_package c++ g++ "the fuzzer's runtime" || { echo "left out: no C++ compiler"; return 0; }
    CARGO_TARGET_DIR=$target/fuzz cargo check --quiet --locked --manifest-path fuzz/Cargo.toml
}

tests() {
    RUST_BACKTRACE=0 cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$log.full"
    local outcome=${PIPESTATUS[0]}
    grep -E '^(     Running|   Doc-tests|test result:|error: test failed|test .* FAILED)' "$log.full" >"$log"
    return "$outcome"
}

need_commands || exit 1
stage format cargo fmt --all --check
stage lints cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
stage licences licences
stage wasm wasm
stage tests tests
stage seeds scripts/seeds.sh
stage fuzz fuzz
stage lab scripts/lab-smoke.sh

echo "== times"
printf '%s\n' "${times[@]}"
echo "total      $((SECONDS - started)) s"
if [ ${#failed[@]} -gt 0 ]; then
    echo "FAILED: ${failed[*]}"
fi
if [ -s "$log" ]; then
    echo "== results of cargo test"
    cat "$log"
    awk '/^test result:/ { passed += $4; failed += $6 } END { printf "test result: %s. %d passed; %d failed; in all suites\n", failed ? "FAILED" : "ok", passed, failed }' "$log"
fi
[ ${#failed[@]} -eq 0 ]
