#!/bin/bash
# Simulator seeds, more of them than the tests run: SEEDS=10000 scripts/seeds.sh runs ten thousand of each mode.
# FARLINK: the program.
set -uo pipefail
cd "$(dirname "$0")/.."
seeds=${SEEDS:-1000}
farlink=${FARLINK:-${CARGO_TARGET_DIR:-target}/debug/farlink}
[ -n "${FARLINK:-}" ] || cargo build --quiet --locked --package farlink || exit 1
failed=0
for mode in clean route-flap mixed; do
    "$farlink" sim faults --mode "$mode" --seeds "0..$seeds" || failed=1
done
# Much happens in each of these.
"$farlink" sim faults --mode changing --seeds "0..$(((seeds + 4) / 5))" || failed=1
# Links go away for minutes in these, so each takes several times as long.
"$farlink" sim faults --mode custody --seeds "0..$(((seeds + 2) / 3))" || failed=1
# Each plays its connections twice, and has half an hour of quiet at its end.
"$farlink" sim faults --hostile --seeds "0..$(((seeds + 9) / 10))" || failed=1
exit $failed
