#!/bin/bash
# Runs a subset of every scenario that the simulator can drive, and prints what misses its expectation (docs/expectations.md).
#
#   scripts/expectations.sh [SUBSET] [DIRECTORY]      test (the default) or check; results stay in the directory
#
# FARLINK: the program. Ends with 1 if anything is missed, or if a scenario judges nothing.
set -uo pipefail
cd "$(dirname "$0")/.."
subset=${1:-test}
target=${CARGO_TARGET_DIR:-target}
out=${2:-$target/expectations}
farlink=${FARLINK:-$target/debug/farlink}
if [ -z "${FARLINK:-}" ]; then
    cargo build --quiet --locked --package farlink || exit 1
fi
mkdir -p "$out"
failed=0
scenarios=$("$farlink" sim list) || exit 1
for scenario in $scenarios; do
    # What is no part of the simulator (haproxy, pepsal) is named and left out.
    "$farlink" sim run "$scenario" --subset "$subset" --allow-skips --threads "$(nproc)" --json "$out/$scenario.json" \
        >"$out/$scenario.txt" 2>"$out/$scenario.log"
    outcome=$?
    judged=$(grep -E '^  [0-9]+ hold, ' "$out/$scenario.txt")
    echo "-- $scenario:${judged:- nothing was judged}"
    grep -E '^(  FAIL|NOT INTACT|           expected because|skipped)' "$out/$scenario.txt"
    case "$judged" in '' | '  0 hold, 0 missed'*) outcome=1 ;; esac
    if [ "$outcome" -ne 0 ]; then
        failed=1
        [ -n "$judged" ] || tail -5 "$out/$scenario.log"
    fi
done
exit $failed
