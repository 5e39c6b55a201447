#!/bin/bash
# Makes docs/report-example.html and three pictures of the README again, from simulator runs. Needs no privilege, takes about a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh
need_commands
cargo build --release --locked --package farlink
farlink="${CARGO_TARGET_DIR:-target}/release/farlink"
out=$(mktemp -d)
trap 'rm -r "$out"' EXIT
sizes=size_bytes=10240,size_bytes=102400,size_bytes=1024000,size_bytes=10240000

# A run in which hosts alone give up (5 % of losses in bursts) ends with status 1; the report says so.
run() {
    "$farlink" sim run "${@:2}" --allow-skips --json "$out/$1.json" || test -s "$out/$1.json"
}
run single thesis-single --only "rtt_ms=500,ber=0,rate_bps=384000,rate_bps=8000000,$sizes"
run ber thesis-single --only rtt_ms=500,rate_bps=8000000,size_bytes=10240000
run loss loss-sweep --only size_bytes=10000000 --repeat 5
run tail loss-sweep --only size_bytes=100000,loss=0.01,loss_burst=1 --repeat 200
"$farlink" sim run loss-sweep --only variant=farlink,size_bytes=1000000,loss=0.003,loss_burst=1 --flow-trace "$out/flow.json"
run parallel thesis-parallel --only flows=1,flows=10,flows=20,flows=40

"$farlink" report "$out/single.json" "$out/ber.json" "$out/loss.json" "$out/tail.json" "$out/parallel.json" "$out/flow.json" \
    -o docs/report-example.html --svg "$out/plots"
cp "$out/plots/thesis-single-ratio-8-mbit-s.svg" docs/completion-time.svg
cp "$out/plots/loss-sweep-goodput-loss-single-losses.svg" docs/goodput-loss.svg
run starved asymmetric --only case=paper,rtt_ms=0,size_bytes=10000000,host_cc=cubic,variant=direct,variant=farlink-ahead,variant=farlink
"$farlink" report "$out/starved.json" -o "$out/starved.html" --svg "$out/starved"
cp "$out/starved/asymmetric-goodput-return.svg" docs/starved-goodput.svg
ls -l docs/report-example.html docs/completion-time.svg docs/goodput-loss.svg docs/starved-goodput.svg
