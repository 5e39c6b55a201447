#!/bin/bash
# Everything that `make test` checks, stage by stage, with the time that each takes. Ends with the results of cargo's tests.
# As root it installs what is missing and says so. As an ordinary user it leaves out what needs privilege, and says that too.
#   scripts/test.sh [STAGE ...]      only these stages: format lints licences wasm tests seeds scenarios fuzz lab
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh
export CARGO_TERM_COLOR=never
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
log=$target/test-results.log
: >"$log"
wanted=${*:-format lints licences wasm tests seeds scenarios fuzz lab}
failed=()
times=()
started=$SECONDS

# cpu: seconds of processor time that the stages have taken so far, all cores together. On a busy machine it says more than the clock.
# In a pipe `times` would tell of a subshell that has no children.
cpu() {
    times >"$target/times"
    awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, "m"); sum += 60 * t[1] + t[2] } printf "%d\n", sum }' "$target/times"
}

# stage NAME COMMAND...: runs it, notes its time, and goes on after a failure.
stage() {
    local name=$1 from=$SECONDS outcome=ok cpu_from
    shift
    case " $wanted " in *" $name "*) ;; *) return ;; esac
    echo "== $name"
    cpu >"$target/cpu"
    cpu_from=$(cat "$target/cpu")
    "$@" || { outcome=FAILED; failed+=("$name"); }
    cpu >"$target/cpu"
    times+=("$(printf '%-10s %4d s  %5d CPU-s  %s' "$name" $((SECONDS - from)) $(($(cat "$target/cpu") - cpu_from)) "$outcome")")
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

# As developers build it, and as routers get it.
lints() {
    cargo clippy --workspace --all-targets --locked --quiet -- -D warnings &&
        cargo clippy --package farlink --no-default-features --locked --quiet -- -D warnings
}

tests() {
    local what="a program that tests look with" package
    for package in ethtool iperf3 iptables; do need_package "$package" "$package" "$what" || true; done
    need_package ping iputils-ping "$what" || true
    RUST_BACKTRACE=0 cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$log.full"
    local outcome=${PIPESTATUS[0]}
    grep -E '^(     Running|   Doc-tests|test result:|error: test failed|test .* FAILED)' "$log.full" >"$log"
    return "$outcome"
}

need_commands || exit 1
stage format cargo fmt --all --check
stage lints lints
stage licences licences
stage wasm wasm
stage tests tests
# The tests have built the program. Built alone it shares fewer features of its libraries with them, and most of it would be built again.
case " $wanted " in *" tests "*) export FARLINK=$target/debug/farlink ;; esac
stage seeds scripts/seeds.sh
stage scenarios scripts/expectations.sh test
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
